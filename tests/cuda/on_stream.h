// SPDX-License-Identifier: Apache-2.0
// Where the emulation's launches run: at once, or on the streams of a double.
#pragma once

#include <functional>

namespace emulation {

// Runs a launch when its stream gets there. The emulation takes one caller at a time.
extern void (*on_stream)(void* stream, std::function<void()> launch);

}  // namespace emulation
