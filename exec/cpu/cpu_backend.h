// SPDX-License-Identifier: Apache-2.0
// The CPU: every call runs at once on the caller's thread. Arithmetic is fp32's, whatever is
// stored.
#pragma once

#include "exec/backend/backend.h"

namespace rehearse::exec {

// `type`: of activations and full parameters, any but Float64.
Backend make_cpu_backend(ElementType type = ElementType::Float32);

}  // namespace rehearse::exec
