// SPDX-License-Identifier: Apache-2.0
// The generations of GPUs that are known by name: scenarios/kernels/generations.json, a row each.
// A cluster file names one of them; no code does.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedules/base/result.h"

namespace rehearse {

struct GpuGeneration {
  std::string architecture;  // as cluster files, files of kernels and rows of collectives name it
  std::string vendor;        // "nvidia", "amd", ...
  // Ranges of NVIDIA's compute capability (90 = 9.0), first and last; none: another vendor's.
  std::vector<std::pair<std::int32_t, std::int32_t>> capabilities;

  bool operator==(const GpuGeneration&) const = default;
};

// Errors: "FILE:LINE: KEY: what is wrong".
Result<std::vector<GpuGeneration>> read_generations(const std::string& path);
// The file that is shipped: shipped_directory()/kernels/generations.json.
Result<std::vector<GpuGeneration>> shipped_generations();
// The row whose ranges hold `capability`; null: none.
const GpuGeneration* generation_of(const std::vector<GpuGeneration>& all, std::int32_t capability);
// Nothing where `architecture` is one of `all`, or "other", which is none of them; else what is
// wrong with it, and the nearest.
Result<> check_generation(const std::vector<GpuGeneration>& all, const std::string& architecture);

}  // namespace rehearse
