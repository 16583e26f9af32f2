// SPDX-License-Identifier: Apache-2.0
// What the optimizer of a plan keeps between steps, in bytes: by the optimizer's row and the plan's
// precision.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/scenario/plan.h"

namespace rehearse {

// The bytes of a precision by name. In fp32, and where the plan's runtime shards parameters in
// fp32, parameters are their own master copy. `optimizer` counts the master copy and the moments in
// fp32 that the optimizer's row says.
Precision precision_named(const std::string& name, const Plan& plan);
// Bytes per parameter of the fp32 copy beside narrower parameters; 0: there is none.
std::int32_t master_bytes(const Precision& precision);

// Bytes per parameter of a row's moments in fp32, as a default precision.optimizer counts them.
std::int32_t counted_bytes(const OptimizerRow& row);
// [B] of the moments of a tensor, or of a flat range: one number for each array. `others`: so many
// of its elements are of no matrix of a layer.
std::vector<std::int64_t> moment_bytes(const OptimizerRow& row, const Precision& precision,
                                       std::int64_t elements, std::int64_t others);
std::vector<std::int64_t> moment_bytes(const Plan& plan, std::int64_t elements,
                                       std::int64_t others);
// [B] of the master copy and the moments of so many parameters: at least, as `others` may be 0
// where they are not counted.
std::int64_t state_bytes(const Plan& plan, std::int64_t elements, std::int64_t others = 0);

}  // namespace rehearse
