// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "exec/checkpoint/safetensors.h"
#include "schedules/model/optimizer.h"

namespace rehearse::exec {

// The tensors of optimizer.safetensors: the first moments of all parameters, then the second ones
// where the optimizer has them.
std::vector<TensorInfo> moment_list(const std::vector<TensorInfo>& parameters,
                                    const OptimizerRow& optimizer);

}  // namespace rehearse::exec
