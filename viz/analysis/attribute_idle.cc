// SPDX-License-Identifier: Apache-2.0
// Why each gap of a compute lane is there, for traces that come without that knowledge. The rule is
// in analysis.h; the simulator has its own, finer one, as it knows what shared a link with what.
#include <algorithm>
#include <limits>

#include "viz/analysis/analysis.h"
#include "viz/analysis/causality.h"

namespace rehearse::viz {
namespace {

// Median duration of each class, over its micro-batches and ranks: what an op of it normally takes.
// The lower one: of two replicas the slow one is the straggler.
std::vector<std::int64_t> medians(const Trace& trace) {
  std::vector<std::vector<std::int64_t>> times(trace.classes.size());
  for (std::size_t i = 0; i < trace.start_ns.size(); ++i) {
    times[static_cast<std::size_t>(trace.op_class[i])].push_back(trace.end_ns[i] -
                                                                 trace.start_ns[i]);
  }
  std::vector<std::int64_t> median(times.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i].empty()) continue;
    const auto middle = times[i].begin() + static_cast<std::ptrdiff_t>((times[i].size() - 1) / 2);
    std::nth_element(times[i].begin(), middle, times[i].end());
    median[i] = *middle;
  }
  return median;
}

// A gap explained by a longer chain is a dependency; measured times may even hold circles.
constexpr int kMostHops = 4096;

enum class Phase { Filling, Running, Draining };

class Explainer {
 public:
  explicit Explainer(const Trace& trace)
      : trace_(trace), causality_(trace), median_(medians(trace)) {}

  // Spans of [begin, end), which `op` ends, in order of time.
  void explain(std::int64_t begin, std::int64_t end, OpId op, Phase phase,
               std::vector<IdleSpan>& out) {
    pieces_.clear();
    phase_ = phase;
    std::int64_t time = end;
    std::int32_t node = causality_.node_of(op);
    for (int hops = 0; time > begin; ++hops) {
      if (hops == kMostHops) {
        add(begin, time, op, IdleCause::Dependency);
        break;
      }
      const OpId last = last_arrival(node, begin);
      if (!last) {
        add(begin, time, op, IdleCause::Host);
        break;
      }
      const std::int32_t arrived = causality_.node_of(last);
      const std::int64_t ended = std::clamp(causality_.end(arrived), begin, time);
      add(ended, time, op, IdleCause::Host);  // all had arrived
      const std::int64_t started = std::clamp(causality_.start(arrived), begin, ended);
      if (is_work(last)) {
        // What the op took beyond its kind's usual time stands at its end.
        const std::int64_t usual = causality_.start(arrived) +
                                   median_[static_cast<std::size_t>(trace_.op_class[last.index()])];
        const std::int64_t late = std::clamp(usual, started, ended);
        add(late, ended, op, IdleCause::Straggler);
        add(started, late, op, IdleCause::Dependency);
      } else {
        add(started, ended, op, IdleCause::Communication);
      }
      time = started;
      node = arrived;
    }
    for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) out.push_back(*piece);
  }

 private:
  bool is_work(OpId op) const {
    const OpClass c = traits(trace_.class_of(op).kind).op_class;
    return c != OpClass::Transfer && c != OpClass::Collective && c != OpClass::Copy;
  }
  // What the node waited for that ended last, if that was after `begin`.
  OpId last_arrival(std::int32_t node, std::int64_t begin) const {
    OpId last;
    std::int64_t latest = begin;
    causality_.for_each_before(node, [&](OpId before) {
      const std::int32_t other = causality_.node_of(before);
      const std::int64_t end = causality_.end(other);
      if (end <= latest || other == node || causality_.start(other) >= causality_.end(node)) return;
      latest = end;
      last = before;
    });
    return last;
  }
  void add(std::int64_t from, std::int64_t to, OpId op, IdleCause cause) {
    if (from >= to) return;
    const bool always = cause == IdleCause::Host || cause == IdleCause::Straggler;
    if (!always && phase_ == Phase::Filling) cause = IdleCause::Warmup;
    if (!always && phase_ == Phase::Draining) cause = IdleCause::Cooldown;
    if (!pieces_.empty() && pieces_.back().cause == cause && pieces_.back().begin == to) {
      pieces_.back().begin = from;
      return;
    }
    pieces_.push_back({.begin = from, .end = to, .op = op, .cause = cause});
  }

  const Trace& trace_;
  Causality causality_;
  std::vector<std::int64_t> median_;
  std::vector<IdleSpan> pieces_;  // from the last to the first
  Phase phase_ = Phase::Running;
};

}  // namespace

void attribute_idle(Trace& trace) {
  if (trace.wait_begin.empty() || trace.slots == 0) return;
  Explainer explainer(trace);
  std::vector<IdleSpan> spans;
  std::vector<std::int64_t> begin{0};
  for (std::size_t row = 0; row < trace.rows.size(); ++row) {
    const auto first = static_cast<std::int32_t>(trace.row_begin[row]);
    const auto last = static_cast<std::int32_t>(trace.row_begin[row + 1]);
    std::int32_t first_work = last, last_work = first - 1;  // of the pipeline
    for (std::int32_t op = first; op < last; ++op) {
      if (!is_compute(trace.class_of({op}).kind)) continue;
      first_work = std::min(first_work, op);
      last_work = op;
    }
    std::int64_t free = trace.begin.value;
    for (std::int32_t op = first; op < last; ++op) {
      if (trace.class_of({op}).slot != 0) continue;
      const auto i = static_cast<std::size_t>(op);
      if (trace.start_ns[i] > free) {
        const Phase phase = op <= first_work ? Phase::Filling
                            : op > last_work ? Phase::Draining
                                             : Phase::Running;
        explainer.explain(free, trace.start_ns[i], {op}, phase, spans);
      }
      free = std::max(free, trace.end_ns[i]);
    }
    if (free < trace.end.value) {
      spans.push_back({.begin = free, .end = trace.end.value, .cause = IdleCause::Cooldown});
    }
    begin.push_back(static_cast<std::int64_t>(spans.size()));
  }
  trace.idle = std::move(spans);
  trace.idle_begin = std::move(begin);
}

}  // namespace rehearse::viz
