// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/analysis.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "viz/analysis/units_text.h"

namespace rehearse::viz {
namespace {

// Ops grouped by kind and payload, in order of kind.
constexpr std::size_t kNumGroups = kNumOpKinds * 3;
std::size_t group_of(const TraceClass& c) {
  return static_cast<std::size_t>(c.kind) * 3 + static_cast<std::size_t>(c.payload);
}

// Whether ops of a kind compute: an op that sends may stand on the compute lane too.
bool works(std::size_t kind) {
  const OpClass of = traits(static_cast<OpKind>(kind)).op_class;
  return of != OpClass::Transfer && of != OpClass::Collective && of != OpClass::Copy;
}

}  // namespace

std::int64_t Summary::busy() const {
  return std::accumulate(kinds.begin(), kinds.end(), std::int64_t{0}) -
         std::accumulate(in_body.begin(), in_body.end(), std::int64_t{0});
}

std::int64_t Summary::between_ops() const {
  std::int64_t rest = total();
  for (std::size_t k = 0; k < kNumOpKinds; ++k) rest -= works(k) ? kinds[k] : 0;
  return rest;
}

std::int64_t Summary::inside_ops() const {
  std::int64_t sum = 0;
  for (std::size_t k = 0; k < kNumOpKinds; ++k) sum += works(k) ? in_body[k] : 0;
  return sum;
}

std::string bubbles_text(const Summary& summary) {
  std::string text = percent_text(summary.bubble_ratio()) + " of all ranks' time";
  if (summary.inside_unknown) return text + ", waits inside ops not measured";
  const std::int64_t inside = summary.inside_ops();
  return inside == 0 ? text : text + ", " + percent_text(summary.share(inside)) + " inside ops";
}

Summary summarize(const TraceIndex& index, std::int64_t begin, std::int64_t end,
                  std::int32_t first_row, std::int32_t last_row) {
  const Trace& trace = index.trace();
  Summary sum{.span = end - begin};
  sum.inside_unknown =
      trace.communicating_ns.empty() &&
      std::ranges::any_of(trace.nodes, [](const TraceNode& node) { return node.collective != 0; });
  std::array<std::int64_t, kNumKinds> time;
  for (std::int32_t row = first_row; row < last_row && trace.slots > 0; ++row) {
    const std::int64_t times = trace.rows[static_cast<std::size_t>(row)].multiplicity;
    const LaneIndex& lane = index.lane(row * trace.slots);
    const LaneIndex& idle = index.idle(row);
    std::int64_t rest = sum.span;
    sum.ranks += times;
    lane.busy(begin, end, time.data());
    for (std::size_t k = 0; k < static_cast<std::size_t>(lane.num_kinds); ++k) {
      sum.kinds[lane.kinds[k]] += times * time[k];
      rest -= time[k];
    }
    idle.busy(begin, end, time.data());
    for (std::size_t k = 0; k < static_cast<std::size_t>(idle.num_kinds); ++k) {
      sum.causes[static_cast<std::size_t>(cause_of(idle.kinds[k]))] += times * time[k];
      rest -= time[k];
    }
    sum.unexplained += times * rest;
    if (trace.communicating_ns.empty()) continue;
    for (std::int32_t i = lane.first_item_after(begin);
         i < lane.items.count && lane.items.start(i) < end; ++i) {
      const std::int64_t whole = lane.items.end(i) - lane.items.start(i);
      const std::int64_t inside =
          std::min(lane.items.end(i), end) - std::max(lane.items.start(i), begin);
      const std::int64_t waits = trace.communicating_ns[static_cast<std::size_t>(lane.items.op(i))];
      // An op cut by the range: its waiting is taken as spread evenly over it.
      sum.in_body[lane.items.kind(i)] +=
          times * (whole == inside ? waits
                                   : static_cast<std::int64_t>(std::llround(
                                         static_cast<double>(waits) * static_cast<double>(inside) /
                                         static_cast<double>(whole))));
    }
  }
  return sum;
}

std::vector<KindStatistics> statistics(const Trace& trace, std::int32_t bins,
                                       std::span<const std::uint8_t> kept) {
  std::array<std::vector<std::int64_t>, kNumGroups> durations;
  for (std::size_t i = 0; i < trace.start_ns.size(); ++i) {
    const OpId op{static_cast<std::int32_t>(i)};
    if (!kept.empty() && kept[i] == 0) continue;
    durations[group_of(trace.class_of(op))].push_back(trace.end_ns[i] - trace.start_ns[i]);
  }
  std::vector<KindStatistics> all;
  for (std::size_t group = 0; group < kNumGroups; ++group) {
    auto& times = durations[group];
    if (times.empty()) continue;
    std::ranges::sort(times);
    KindStatistics one{.kind = static_cast<OpKind>(group / 3),
                       .payload = static_cast<Payload>(group % 3),
                       .count = static_cast<std::int64_t>(times.size()),
                       .total = std::accumulate(times.begin(), times.end(), std::int64_t{0}),
                       .shortest = times.front(),
                       .longest = times.back(),
                       .median = times[times.size() / 2]};
    one.histogram.resize(static_cast<std::size_t>(std::max(bins, 1)));
    const double scale = static_cast<double>(one.histogram.size()) /
                         static_cast<double>(one.longest - one.shortest + 1);
    for (const std::int64_t time : times) {
      ++one.histogram[static_cast<std::size_t>(static_cast<double>(time - one.shortest) * scale)];
    }
    all.push_back(std::move(one));
  }
  return all;
}

Result<TraceDifference> difference(const Trace& a, const Trace& b) {
  if (a.num_ops() != b.num_ops() || a.schedule_hash != b.schedule_hash) {
    const auto schedule = [](const Trace& trace) {
      const std::string hash = trace.schedule_hash.empty() ? "foreign" : trace.schedule_hash;
      return trace.schedule_name.empty() ? hash : trace.schedule_name + " " + hash;
    };
    return Error{"the two traces are of different schedules (" + schedule(a) + " and " +
                 schedule(b) + "): compare holds op against op"};
  }
  TraceDifference out{.step_a = a.step().value, .step_b = b.step().value};
  struct Sum {
    KindDifference kind;
    double error = 0;
    std::int64_t with_time = 0;
  };
  std::array<Sum, kNumGroups> sums;
  for (OpId op{0}; op.value < a.num_ops(); ++op.value) {
    const std::size_t i = op.index();
    const TraceClass& c = a.class_of(op);
    const OpDifference one{.op = op,
                           .a = a.end_ns[i] - a.start_ns[i],
                           .b = b.end_ns[i] - b.start_ns[i],
                           .start_a = a.start_ns[i] - a.begin.value,
                           .start_b = b.start_ns[i] - b.begin.value};
    Sum& sum = sums[group_of(c)];
    sum.kind.kind = c.kind;
    sum.kind.payload = c.payload;
    ++sum.kind.count;
    sum.kind.a += one.a;
    sum.kind.b += one.b;
    sum.kind.bytes += c.bytes;
    if (one.a > 0) {
      sum.error += std::fabs(static_cast<double>(one.b - one.a)) / static_cast<double>(one.a);
      ++sum.with_time;
    }
    if (one.a != one.b || one.start_a != one.start_b) out.ops.push_back(one);
  }
  for (Sum& sum : sums) {
    if (sum.kind.count == 0) continue;
    if (sum.with_time > 0) sum.kind.mean_abs_error = sum.error / static_cast<double>(sum.with_time);
    out.kinds.push_back(sum.kind);
  }
  std::ranges::stable_sort(out.ops, std::ranges::greater{},
                           [](const OpDifference& op) { return std::abs(op.b - op.a); });
  return out;
}

}  // namespace rehearse::viz
