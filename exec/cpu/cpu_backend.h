// SPDX-License-Identifier: Apache-2.0
// The CPU: every call runs at once on the caller's thread, in fp32.
#pragma once

#include "exec/backend/backend.h"

namespace rehearse::exec {

Backend make_cpu_backend();

}  // namespace rehearse::exec
