// SPDX-License-Identifier: Apache-2.0
// What predictions of a model on a GPU in a precision rest on, asked of the very tables that price
// them: nothing is listed by hand.
//
// Two things make a prediction trustworthy: measured steps of such GPUs that predictions were held
// against, and what the model's kernels are priced from. `measured`: whole steps of this generation
// of GPU, this type and this kind of model (with experts, or without) were. `interpolated`: fewer
// were, or of the other kind alone, or at least half of the kernels' time comes from points of
// measured tables or from between them. `formula`: neither. `refused`: a prediction would be, in
// these words. Kernels: the forward and backward of all segments for one sequence on one GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"
#include "sim/cluster/cluster.h"
#include "sim/cost/rests_on.h"

namespace rehearse::sim {

struct MeasuredSteps {
  // like: of models with experts, or of those without. 0 where the model has layers of another kind
  // than attention, of which no step was measured.
  std::int32_t all = 0, like = 0;
  double within = 0;  // nine in ten of `like` (of `all` where that is 0) were predicted
                      // no further off, relative
};

struct SupportRow {
  std::string model, gpu, cluster;  // ids of shipped files, and the GPU's name
  ComputeType precision{};
  bool refused = false;
  std::string remark;   // why it is refused, or what is priced in its place
  RestsOn rests_on;     // shares of the kernels' time
  MeasuredSteps steps;  // of this generation and type (scenarios/accuracy)

  std::string_view level() const;  // measured, interpolated, formula, refused
};

// Every precision of each model on each cluster's GPU, model by model. Errors: a file that cannot
// be read; a model that no plan can be made of is a row.
Result<std::vector<SupportRow>> support_rows(const std::vector<std::string>& models,
                                             const std::vector<Cluster>& clusters);
// The first of the shipped clusters with each GPU, by name.
Result<std::vector<Cluster>> clusters_by_gpu();

// For people: a line per GPU and precision that counts models; with `each` a line per row.
std::string support_text(const std::vector<SupportRow>& rows, bool each);
std::string support_json(const std::vector<SupportRow>& rows);

}  // namespace rehearse::sim
