// SPDX-License-Identifier: Apache-2.0
// "#SBATCH --nodes=24": the variables by which Slurm then tells a script.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rehearse {

// SLURM_NNODES and its kin with their values, in the order of the lines.
std::vector<std::pair<std::string, std::string>> batch_variables(std::string_view script);

}  // namespace rehearse
