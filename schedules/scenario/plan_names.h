// SPDX-License-Identifier: Apache-2.0
// The words that files have for the enums of a plan, in the order of the enumerators.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "schedules/runtime/trait_rows.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// Words of `recompute`, each for more than the one before; a list of parts is another value.
inline constexpr std::array<std::string_view, 3> kRecomputeNames{"none", "selective", "full"};
inline constexpr std::array<std::string_view, 5> kTransferFormNames{
    "time_sorted", "producer_order", "consumer_order", "grouped", "serial"};
// Words of `offload`; the first means nothing, the others are the members of Offload.
inline constexpr std::array<std::string_view, 2> kOffloadTargetNames{"host", "nvme"};
inline constexpr std::array<std::string_view, 3> kOffloadedActivationsNames{"all", "checkpoints",
                                                                            "chosen"};
inline constexpr std::array<std::string_view, 3> kChimeraScalingNames{"none", "forward_doubling",
                                                                      "backward_halving"};
inline constexpr std::array<std::string_view, 6> kComputeTypeNames{"fp32", "fp16",  "bf16",
                                                                   "fp8",  "mxfp8", "nvfp4"};
inline constexpr std::array<std::string_view, 2> kDataParallelNames{"all_reduce",
                                                                    "parameter_server"};
inline constexpr std::array<std::string_view, 3> kIndexerLossNames{"none", "sparse", "dense"};
inline constexpr std::array<std::string_view, 3> kExpertDispatchNames{"all_to_all", "all_gather",
                                                                      "deduplicated"};
inline constexpr std::array<std::string_view, 3> kExpertOverlapNames{"none", "shared", "pair"};
inline constexpr std::array<std::string_view, 2> kExpertRoutingNames{"balanced", "uniform"};
// The words of `rank_order`.
inline constexpr std::array<std::string_view, 5> kAxisNames{"tp", "cp", "ep", "dp", "pp"};

constexpr std::string_view name_of(OffloadTarget t) {
  return kOffloadTargetNames[static_cast<std::size_t>(t)];
}
constexpr std::string_view name_of(OffloadedActivations a) {
  return kOffloadedActivationsNames[static_cast<std::size_t>(a)];
}
constexpr std::string_view name_of(PairOverlap o) {
  return kPairOverlapNames[static_cast<std::size_t>(o)];
}
constexpr std::string_view name_of(ContextParallelAlgorithm a) {
  return kContextParallelNames[static_cast<std::size_t>(a)];
}
constexpr std::string_view name_of(ChimeraScaling s) {
  return kChimeraScalingNames[static_cast<std::size_t>(s)];
}
constexpr std::string_view name_of(AttentionKernel k) {
  return kAttentionKernelNames[static_cast<std::size_t>(k)];
}
constexpr std::string_view name_of(ExpertOverlap o) {
  return kExpertOverlapNames[static_cast<std::size_t>(o)];
}
constexpr std::string_view name_of(Optimizer o) {
  return row_of(o).name;
}
constexpr std::string_view name_of(ComputeType t) {
  return kComputeTypeNames[static_cast<std::size_t>(t)];
}
constexpr std::string_view name_of(DataParallelAlgorithm a) {
  return kDataParallelNames[static_cast<std::size_t>(a)];
}
constexpr std::string_view name_of(TransferForm f) {
  return kTransferFormNames[static_cast<std::size_t>(f)];
}
constexpr std::string_view name_of(ExpertDispatch d) {
  return kExpertDispatchNames[static_cast<std::size_t>(d)];
}
constexpr std::string_view name_of(Axis a) {
  return kAxisNames[static_cast<std::size_t>(a)];
}

}  // namespace rehearse
