// SPDX-License-Identifier: Apache-2.0
// Which ops are divided, and where. An op and its backward are cut alike, and merging adjacent
// parts gives the uncut order back.
#include "schedules/passes/draft.h"

namespace rehearse {

bool cuts_for_gradients(const Plan& plan) {
  return plan.zero_stage >= 2 && plan.shards() > 1 &&
         plan.runtime.performer().frees_reduced_gradients;
}

// Activations go to the host segment by segment. ZeRO-3 gathers and frees by part, and our ZeRO-2
// reduces and frees gradients by part: every op is cut where its buckets change. Overlapped
// gradient buckets need parts only where a bucket becomes ready: the last micro-batch (every one
// where gradients are reduced per micro-batch). Overlapped gathers need them in the first one,
// where there is a single position; in a pipeline a stage waits for all of its own. All else keeps
// stage size.
std::vector<std::int16_t> cut(const Draft& draft, Position position, Stage stage,
                              AtEnds microbatch) {
  const Plan& plan = draft.plan;
  const bool shards = plan.shards() > 1;
  const bool replicas = plan.replicas() > 1;
  const bool gathers = plan.overlap_parameter_gather && plan.zero_stage >= 1 &&
                       plan.pipeline_parallel == 1 && microbatch.first;
  const bool parameters = ((plan.gathers_units() || gathers) && shards) || plan.offload.parameters;
  const bool overlaps = plan.overlap_gradient_reduce && replicas && !plan.has_parameter_server();
  const bool gradients =
      cuts_for_gradients(plan) || (overlaps && (plan.zero_stage >= 2 || microbatch.last));
  const bool activations = plan.offload.activations;
  std::vector<std::int16_t> parts{0};
  if (!parameters && !gradients && !activations) return parts;
  const auto& buckets = draft.buckets_of[position.index()][stage.index()];
  for (std::size_t g = 1; g < buckets.size(); ++g) {
    if (activations || buckets[g] != buckets[g - 1]) {
      parts.push_back(static_cast<std::int16_t>(g));
    }
  }
  return parts;
}

}  // namespace rehearse
