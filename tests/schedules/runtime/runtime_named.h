// SPDX-License-Identifier: Apache-2.0
// A shipped runtime, for plans that a test makes by hand.
#pragma once

#include <string>

#include "schedules/runtime/runtime_file.h"

namespace rehearse {

inline RuntimeTraits runtime_named(const std::string& name) {
  return read_runtime(name, "").value();
}

}  // namespace rehearse
