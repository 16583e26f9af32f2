// SPDX-License-Identifier: Apache-2.0
// The weights that a run begins with: seeded by name and element, so that every layout begins
// alike.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "schedules/model/model.h"

namespace rehearse::exec {

// For Interpreter::initialise. Normal with standard deviation r = initializer_range, the two
// projections into the residual stream r / sqrt(2 L) (Radford et al. 2019, section 2.3; as Hugging
// Face's GPT-2); norms multiply by 1, biases are 0. A value depends on seed, name and element
// alone.
std::function<double(const std::string& name, std::int64_t element)> initial_values(
    const Transformer& model, std::int64_t seed);

}  // namespace rehearse::exec
