// SPDX-License-Identifier: Apache-2.0
#include "sim/report/overlap_note.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace rehearse::sim {
namespace {

// What the ops of one stream lost, on the row that lost most; none lost any: an empty column.
double most_lost(const Prediction& p, const std::vector<Nanoseconds>& column, Stream stream) {
  const Schedule& s = p.schedule;
  std::int64_t most = 0;
  for (std::size_t row = 0; !column.empty() && row + 1 < s.row_begin.size(); ++row) {
    std::int64_t sum = 0;
    for (auto i = static_cast<std::size_t>(s.row_begin[row]);
         i < static_cast<std::size_t>(s.row_begin[row + 1]); ++i) {
      if (s.ops[i].stream != stream) continue;
      sum += column[i].value *
             p.left_out.times_of({static_cast<std::int32_t>(row)}, {static_cast<std::int32_t>(i)});
    }
    most = std::max(most, sum);
  }
  return static_cast<double>(most) * 1e-6;
}

// All reductions over dp of the row that has most of them.
struct Reductions {
  std::int64_t count = 0;
  double ms = 0;
};
Reductions most_reductions(const Prediction& p) {
  Reductions sum;
  for (const CommunicationRow& row : p.communication) {
    const Traffic& t = row.traffic;
    if (!is_over_replicas(t.group) || t.kind == OpKind::AllGather || t.kind == OpKind::Unshard)
      continue;
    sum.count += t.count;
    sum.ms += static_cast<double>(t.time.value) * 1e-6;
  }
  return sum;
}

}  // namespace

std::string overlap_note(const Scenario& scenario, const Cluster& cluster,
                         const Prediction& prediction) {
  const Plan& plan = prediction.plan;
  const bool replicas = plan.replicas() > 1;
  if (!plan.overlap_gradient_reduce || !replicas) return {};
  Scenario plain = scenario;
  plain.plan = plan;
  plain.plan.micro_batch_auto = false;
  plain.plan.overlap_gradient_reduce = false;
  if (plan.bucket_bytes == default_bucket_bytes(plan)) {
    plain.plan.bucket_bytes = default_bucket_bytes(plain.plan);
  }
  const Result<Prediction> without = predict(plain, cluster,
                                             {.memory = prediction.remap_s > 0,
                                              .lifetimes = false,
                                              .confidence = false,
                                              .leave_out = true,
                                              .tables = prediction.hardware.get()});
  if (!without || prediction.step_s <= without.value().step_s) return {};

  std::vector<std::string> why;
  if (const double ms = most_lost(prediction, prediction.timeline.slowed, Stream::Compute);
      ms > 0) {
    why.push_back(
        fmt::format("compute beside data-parallel collectives runs slower, by up to {:.3f} ms on a "
                    "rank",
                    ms));
  }
  const double waited = most_lost(prediction, prediction.timeline.contended, Stream::P2p) -
                        most_lost(without.value(), without.value().timeline.contended, Stream::P2p);
  if (waited > 0) {
    why.push_back(fmt::format(
        "transfers between stages share their links with it, which takes up to {:.3f} ms more on a "
        "rank",
        waited));
  }
  const Reductions many = most_reductions(prediction), few = most_reductions(without.value());
  if (many.count > few.count) {
    why.push_back(fmt::format("{} reductions take {:.3f} ms, {} {:.3f} ms", many.count, many.ms,
                              few.count, few.ms));
  }
  std::string text = fmt::format(
      "overlap of the gradient reduction costs {:.3f} ms here: with overlap.gradient_reduce false "
      "the step takes {:.6f} s",
      (prediction.step_s - without.value().step_s) * 1e3, without.value().step_s);
  for (std::size_t i = 0; i < why.size(); ++i) text += (i == 0 ? ". Reasons: " : "; ") + why[i];
  if (plan.pipeline_parallel > 1) {
    text +=
        ". The last backward goes through all stages one after another, so what each loses adds "
        "up; "
        "without overlap the stages reduce side by side";
  }
  return text;
}

}  // namespace rehearse::sim
