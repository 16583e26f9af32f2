// SPDX-License-Identifier: Apache-2.0
// What `rehearse plan` answers: does it fit, how long does a step take, how to lay it out, how
// sure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/search/search.h"

namespace rehearse::cli {

// A change after which the model fits, where it does not.
struct Way {
  std::string what;  // "16 GPUs", "offload: optimizer"
  sim::FoundPlan plan;
};

struct PlanAnswer {
  std::string model;  // as the person named it
  std::int64_t parameters = 0;
  std::string cluster, gpu;
  std::int32_t gpus = 1, gpus_per_node = 8;
  std::vector<std::string> assumed;    // "sequence length 8192 (the model's)"
  std::optional<sim::FoundPlan> best;  // none: nothing fits
  std::vector<sim::NearPlan> near;     // that the prediction does not tell from it
  double fastest_s = 0;                // the step that `sensitivities` are compared with
  std::vector<sim::Sensitivity> sensitivities;
  std::optional<sim::ExpertAdvice> experts;  // of a model that has some
  std::vector<Way> ways;                     // only where nothing fits
  std::int64_t capacity = 0;                 // [B] of a GPU
  std::int64_t considered = 0;               // plans
  std::string flags;                         // that launch it, or why there are none
  std::string saved;                         // the scenario's file; empty: not asked for
};

// At most 25 lines.
std::string answer_text(const PlanAnswer& answer);
std::string answer_json(const PlanAnswer& answer);

}  // namespace rehearse::cli
