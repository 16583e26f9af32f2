// SPDX-License-Identifier: Apache-2.0
// The words that files have for the enums of a plan, in the order of the enumerators.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "schedules/runtime/trait_rows.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

inline constexpr std::array<std::string_view, 3> kRecomputeNames{"none", "selective", "full"};
inline constexpr std::array<std::string_view, 3> kOffloadNames{"none", "optimizer", "activations"};
inline constexpr std::array<std::string_view, 4> kComputeTypeNames{"fp32", "fp16", "bf16", "fp8"};
inline constexpr std::array<std::string_view, 2> kDataParallelNames{"all_reduce",
                                                                    "parameter_server"};
inline constexpr std::array<std::string_view, 5> kAxisNames{"tp", "cp", "ep", "dp", "pp"};

constexpr std::string_view name_of(RecomputeMode m) {
  return kRecomputeNames[static_cast<std::size_t>(m)];
}
constexpr std::string_view name_of(OffloadMode m) {
  return kOffloadNames[static_cast<std::size_t>(m)];
}
constexpr std::string_view name_of(AttentionKernel k) {
  return kAttentionKernelNames[static_cast<std::size_t>(k)];
}
constexpr std::string_view name_of(ComputeType t) {
  return kComputeTypeNames[static_cast<std::size_t>(t)];
}
constexpr std::string_view name_of(DataParallelAlgorithm a) {
  return kDataParallelNames[static_cast<std::size_t>(a)];
}
constexpr std::string_view name_of(Axis a) {
  return kAxisNames[static_cast<std::size_t>(a)];
}

}  // namespace rehearse
