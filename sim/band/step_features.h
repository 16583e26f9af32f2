// SPDX-License-Identifier: Apache-2.0
// What makes two training steps alike to a predictor: where one is predicted wrongly, so may the
// other be.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rehearse::sim {

// What a step has or has not, as bits of StepFeatures::kinds.
enum class StepKind : std::uint8_t {
  Tensor,
  Pipeline,
  Context,
  ShardedParameters,
  Experts,
  HostBound,       // most of its computing waits for the host that issues it
  LearnedRouting,  // routers choose, and nobody says how unevenly
  AssumedNetwork,  // nobody printed what joins its nodes
  BlockedHost,     // the framework's host waits at transfers between stages
  WideShards,      // ZeRO over more than 128 ranks
};
inline constexpr std::array<std::string_view, 10> kStepKindNames{"tp",
                                                                 "pp",
                                                                 "cp",
                                                                 "zero3",
                                                                 "experts",
                                                                 "host_bound",
                                                                 "learned_routing",
                                                                 "assumed_network",
                                                                 "blocked_host",
                                                                 "wide_shards"};

struct StepFeatures {
  std::string gpu;          // "hopper 90"; of other vendors the architecture's name
  std::string precision;    // of the matrix products; "16 bit" for fp16 and bf16
  std::string runtime;      // the profile; empty: one that stands for any framework
  std::string attention;    // the kernel
  std::uint32_t kinds = 0;  // bit i: StepKind i
  std::string nic;          // what joins the nodes; empty: one node
  std::int32_t gpus = 1;
  double network_share = 0;  // exposed communication over the step, mean over ranks
  double memory_fill = 0;    // peak_device over the capacity

  bool has(StepKind kind) const { return (kinds >> static_cast<unsigned>(kind) & 1U) != 0; }
  void set(StepKind kind, bool on = true) {
    if (on) kinds |= 1U << static_cast<unsigned>(kind);
  }
  // "blackwell" of "blackwell 100".
  std::string_view architecture() const { return std::string_view(gpu).substr(0, gpu.find(' ')); }
};

// "tp pp"
std::string kinds_text(std::uint32_t kinds);
// The kinds that such a text names. REQUIRES: words of kStepKindNames, separated by blanks;
// others are left out.
std::uint32_t kinds_of(std::string_view text);
// One JSON object, the columns of errors.csv but source and error (key `features` of validate
// --json).
std::string features_json(const StepFeatures& features);

// Features without a scale in which two steps differ, by name: "gpu", "precision", "cp". Two
// frameworks without a profile are two.
std::vector<std::string_view> differences(const StepFeatures& a, const StepFeatures& b);
// How many they are: asked of every measured step by every prediction.
std::int32_t num_differences(const StepFeatures& a, const StepFeatures& b);

}  // namespace rehearse::sim
