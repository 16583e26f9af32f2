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

// Kinds of parallelism, and whether a model has experts, as bits of StepFeatures::kinds.
enum class ParallelKind : std::uint8_t { Tensor, Pipeline, Context, ShardedParameters, Experts };
inline constexpr std::array<std::string_view, 5> kParallelKindNames{"tp", "pp", "cp", "zero3",
                                                                    "experts"};

struct StepFeatures {
  std::string gpu;        // "hopper 90"; of other vendors the architecture's name
  std::string precision;  // of the matrix products; "16 bit" for fp16 and bf16
  std::string runtime;    // the profile; empty: one that stands for any framework
  std::string attention;  // the kernel
  std::uint32_t kinds = 0;
  std::string nic;  // what joins the nodes; empty: one node
  std::int32_t gpus = 1;
  double network_share = 0;  // exposed communication over the step, mean over ranks
  double memory_fill = 0;    // peak_device over the capacity

  bool has(ParallelKind kind) const { return (kinds >> static_cast<unsigned>(kind) & 1U) != 0; }
  void set(ParallelKind kind) { kinds |= 1U << static_cast<unsigned>(kind); }
};

// "tp pp"
std::string kinds_text(std::uint32_t kinds);
// The kinds that such a text names. REQUIRES: words of kParallelKindNames, separated by blanks;
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
