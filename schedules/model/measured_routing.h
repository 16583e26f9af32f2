// SPDX-License-Identifier: Apache-2.0
// How unevenly a run's routers chose, from the file that `rehearse run --metrics` writes: what a
// prediction takes instead of a formula.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/model/model.h"

namespace rehearse {

// Rows of the busiest of `ranks` ranks over their mean in one layer, where each rank has equally
// many experts, one after another. 1 where there are no rows. REQUIRES: ranks divides rows.size().
double busiest_over_mean(std::span<const std::int64_t> rows, std::int64_t ranks);

struct MeasuredRouting {
  std::string path;  // of the file
  // Factors of busiest_over_mean() for every number of ranks that divides the experts: (ranks,
  // layers), each the mean over the file's steps; 1 for layers without experts.
  std::vector<std::int32_t> ranks;
  std::vector<double> factors;

  // One for every layer. REQUIRES: `of` divides the model's experts.
  std::span<const double> layers(std::int32_t of) const;
  bool operator==(const MeasuredRouting&) const = default;
};

// Rows of a step are those of all its micro-batches together: one alone is less even. Error: no
// such file, or one of another model, by its line.
Result<MeasuredRouting> read_routing(const std::string& path, const Transformer& model);

}  // namespace rehearse
