// SPDX-License-Identifier: Apache-2.0
// The CPU: every call runs at once on the caller's thread, in fp32.
#pragma once

#include <memory>

#include "exec/backend/backend.h"

namespace rehearse::exec {

std::unique_ptr<Backend> make_cpu_backend();

}  // namespace rehearse::exec
