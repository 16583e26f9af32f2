// SPDX-License-Identifier: Apache-2.0
// How evenly the experts of a run's layers were chosen, step by step, from its trace.
#pragma once

#include <cstdint>
#include <span>

#include "schedules/trace/trace.h"

namespace rehearse::viz {

// Steps [first, last) of a trace, by place.
struct StepRange {
  std::int32_t first = 0, last = 0;
};

// Layers are counted among those with experts. A layer's experts lie on the ranks that share them
// one after another, and are cut into `parts` blocks likewise: ranks, or single experts.
class ExpertRows {
 public:
  explicit ExpertRows(const Trace& trace) : trace_(trace) {}

  bool empty() const { return trace_.expert_shape.empty(); }  // REQUIRED below: it is not
  std::int32_t steps() const { return static_cast<std::int32_t>(trace_.expert_steps.size()); }
  std::int32_t layers() const { return static_cast<std::int32_t>(trace_.expert_layers.size()); }
  std::int32_t experts() const { return trace_.expert_shape[0]; }
  std::int32_t ranks() const { return trace_.expert_shape[1]; }
  // Whose rows decide how long all wait: the ranks', or where nothing is shared the experts'.
  std::int32_t parts_that_wait() const { return ranks() > 1 ? ranks() : experts(); }
  std::int32_t layer_number(std::int32_t layer) const {
    return trace_.expert_layers[static_cast<std::size_t>(layer)];
  }
  // As `rehearse run` prints it, from 1.
  std::int32_t step_number(std::int32_t step) const {
    return trace_.expert_steps[static_cast<std::size_t>(step)] + 1;
  }

  // Rows of a block, over all the steps.
  std::int64_t rows(StepRange steps, std::int32_t layer, std::int32_t part,
                    std::int32_t parts) const;
  // The same over the mean of all blocks; 1 where none has any.
  double over_mean(StepRange steps, std::int32_t layer, std::int32_t part,
                   std::int32_t parts) const;
  // The load of the busiest block of each step, as the mean over the steps.
  double busiest(StepRange steps, std::int32_t layer, std::int32_t parts) const;

 private:
  std::span<const std::int64_t> of(std::int32_t step, std::int32_t layer) const;

  const Trace& trace_;
};

}  // namespace rehearse::viz
