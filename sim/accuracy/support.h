// SPDX-License-Identifier: Apache-2.0
// What predictions of a model on a GPU in a precision rest on, asked of the very tables that price
// them: nothing is listed by hand.
//
// A row prices the forward and backward of all segments of the model for one sequence on one GPU,
// kernels alone, and says on which level at least half of that time rests: `measured` (points of a
// table), `interpolated` (between them), `formula` (rates of this kind of GPU, or of its data sheet
// where nobody measured it). `refused`: a prediction would be, in these words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"
#include "sim/cluster/cluster.h"
#include "sim/cost/rests_on.h"

namespace rehearse::sim {

struct SupportRow {
  std::string model, gpu, cluster;  // ids of shipped files, and the GPU's name
  ComputeType precision{};
  bool refused = false;
  std::string remark;              // why it is refused, or what is priced in its place
  RestsOn rests_on;                // shares
  std::int32_t validated_steps = 0;  // measured steps of this generation and type (scenarios/accuracy)

  std::string_view level() const;  // measured, interpolated, formula, refused
};

// Every precision of each model on each cluster's GPU, model by model. Errors: a file that cannot
// be read; a model that no plan can be made of is a row.
Result<std::vector<SupportRow>> support_rows(const std::vector<std::string>& models,
                                             const std::vector<Cluster>& clusters);
// Of the shipped clusters the first with each GPU, by name.
Result<std::vector<Cluster>> clusters_by_gpu();

// For people: a line per GPU and precision that counts models; with `each` a line per row.
std::string support_text(const std::vector<SupportRow>& rows, bool each);
std::string support_json(const std::vector<SupportRow>& rows);

}  // namespace rehearse::sim
