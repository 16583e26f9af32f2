// SPDX-License-Identifier: Apache-2.0
// Optimizers, a row each: what they hold for a parameter, what a step moves, who performs them.
// Memory, prices, checkpoints and the executor ask the row; nothing else tells optimizers apart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rehearse {

enum class Optimizer : std::uint8_t {
  AdamW,      // Loshchilov & Hutter, arXiv 1711.05101
  AdamW8bit,  // with moments in 8 bit (Dettmers et al., arXiv 2110.02861)
  Muon,       // for matrices of layers, AdamW for the rest (Jordan et al., 2024; arXiv 2502.16982)
  Lion,       // Chen et al., arXiv 2302.06675, algorithm 2
};

// How the moments of a tensor are held.
enum class MomentForm : std::uint8_t {
  Whole,       // in fp32, or in what a plan's precision.optimizer leaves beside the master copy
  EightBit,    // two in 8 bit, with an fp32 scale for every kMomentBlock values
  OfMatrices,  // one in fp32; what is no matrix of a layer has a second
};
inline constexpr std::int64_t kMomentBlock = 256;

// The loop over a flat range that our executor runs; None: it has none.
enum class UpdateRule : std::uint8_t { None, AdamW, Lion };

struct OptimizerRow {
  std::string_view name;  // word of plan.optimizer
  // What stands before a tensor's name in a checkpoint, for each moment; empty: there is none.
  // Only optimizers that our executor performs have any.
  std::array<std::string_view, 2> moments{};
  MomentForm form = MomentForm::Whole;
  std::int32_t counted = 2;  // moments of fp32 that a plan's default precision.optimizer counts
  // [B] per parameter that a step reads and writes less than AdamW, of which profiles say it.
  std::int32_t spared_bytes = 0;
  double beta1 = 0.9, beta2 = 0.999;  // where `train` says nothing
  UpdateRule rule = UpdateRule::None;
  bool on_host = false;        // priced where a framework keeps the states in host memory
  bool newton_schulz = false;  // orthogonalises the update of every matrix of a layer

  bool run() const { return rule != UpdateRule::None; }  // by our executor
};

// In the order of the enumerators.
inline constexpr std::array kOptimizers{
    OptimizerRow{.name = "adamw",
                 .moments = {"exp_avg.", "exp_avg_sq."},
                 .rule = UpdateRule::AdamW,
                 .on_host = true},
    // Two moments are read and written: 16 bytes in fp32, 4 in 8 bit.
    OptimizerRow{.name = "adamw_8bit", .form = MomentForm::EightBit, .spared_bytes = 12},
    OptimizerRow{
        .name = "muon", .form = MomentForm::OfMatrices, .spared_bytes = 8, .newton_schulz = true},
    OptimizerRow{.name = "lion",
                 .moments = {"exp_avg."},
                 .counted = 1,
                 .spared_bytes = 8,
                 .beta2 = 0.99,
                 .rule = UpdateRule::Lion},
};
constexpr const OptimizerRow& row_of(Optimizer optimizer) {
  return kOptimizers[static_cast<std::size_t>(optimizer)];
}
// How many moments it has. REQUIRES: our executor performs it.
constexpr std::size_t num_moments(const OptimizerRow& row) {
  return row.moments[1].empty() ? 1 : 2;
}
inline constexpr auto kOptimizerNames = [] {
  std::array<std::string_view, kOptimizers.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kOptimizers[i].name;
  return names;
}();

}  // namespace rehearse
