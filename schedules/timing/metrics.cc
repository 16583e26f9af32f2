// SPDX-License-Identifier: Apache-2.0
#include "schedules/timing/metrics.h"

#include <algorithm>

namespace rehearse {
namespace {

// Activations alive, in halves of one slice, so that sums are exact.
class Alive {
 public:
  void run(const Op& op) {
    switch (op.kind) {
      case OpKind::Forward:
        whole_ += 2;
        weighted_ += 2;
        break;
      case OpKind::Backward:
        whole_ -= 2;
        weighted_ -= 2;
        break;
      case OpKind::InputGradient:
        weighted_ -= 1;
        break;
      case OpKind::WeightGradient:
        whole_ -= 2;
        weighted_ -= 1;
        break;
      default:
        break;
    }
    peak_ = std::max(peak_, whole_);
    weighted_peak_ = std::max(weighted_peak_, weighted_);
  }
  std::int64_t peak() const { return peak_; }
  std::int64_t weighted_peak() const { return weighted_peak_; }

 private:
  std::int64_t whole_ = 0, weighted_ = 0, peak_ = 0, weighted_peak_ = 0;
};

double ratio(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

double largest(const std::vector<double>& values) {
  return values.empty() ? 0.0 : *std::ranges::max_element(values);
}

}  // namespace

double ScheduleMetrics::largest_peak() const {
  return largest(peak_activations);
}
double ScheduleMetrics::largest_weighted_peak() const {
  return largest(peak_activations_weighted);
}

ScheduleMetrics measure(const Schedule& schedule, const ComputeTiming& timing) {
  ScheduleMetrics metrics{.makespan = timing.makespan};
  const double halves = 2.0 * std::max(1, schedule.slices);
  std::int64_t total_busy = 0;
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    Alive alive;
    std::int64_t busy = 0, first = -1, last = 0;
    for (std::size_t i = schedule.first_op(row); i < schedule.first_op({row.value + 1}); ++i) {
      const Op& op = schedule.ops[i];
      if (!is_compute(op.kind)) continue;
      busy += timing.end[i].value - timing.start[i].value;
      if (first < 0) first = timing.start[i].value;
      last = std::max(last, timing.end[i].value);
      if (op.kind == OpKind::Overlap) {
        alive.run(schedule.children[static_cast<std::size_t>(op.child)]);
        alive.run(schedule.children[static_cast<std::size_t>(op.child) + 1]);
      } else {
        alive.run(op);
      }
    }
    const std::int64_t span = first < 0 ? 0 : last - first;
    metrics.span_bubble_ratio = std::max(metrics.span_bubble_ratio, ratio(span - busy, span));
    metrics.busy.push_back({busy});
    metrics.peak_activations.push_back(static_cast<double>(alive.peak()) / halves);
    metrics.peak_activations_weighted.push_back(static_cast<double>(alive.weighted_peak()) /
                                                halves);
    total_busy += busy;
  }
  const std::int64_t capacity = metrics.makespan.value * schedule.num_rows();
  metrics.bubble_ratio = ratio(capacity - total_busy, capacity);
  metrics.bubble_overhead = ratio(capacity - total_busy, total_busy);
  return metrics;
}

}  // namespace rehearse
