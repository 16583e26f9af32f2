// SPDX-License-Identifier: Apache-2.0
#include "schedules/trace/collectives_inside.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace rehearse {
namespace {

// What was predicted of a node; where nobody did, all take as long as each other.
std::int64_t time_of(const TraceNode& node) {
  return std::max<std::int64_t>(node.time_ns, node.time_ns < 0 ? 1 : 0);
}

const TraceMeeting* end_of_meetings(const Trace& trace) {
  return trace.meetings.data() + trace.meetings.size();
}
// The first meeting of a node at or behind this one.
const TraceMeeting* meeting_from(const Trace& trace, std::int32_t node) {
  return std::ranges::lower_bound(trace.meetings.data(), end_of_meetings(trace), node, {},
                                  &TraceMeeting::node);
}

// Calls visit(run, body) for the runs of bodies of the class.
template <class Visit>
void each_run(const Trace& trace, std::size_t of_class, Visit visit) {
  if (trace.run_begin.empty() || trace.meetings.empty()) return;
  for (std::int32_t r = trace.run_begin[of_class]; r < trace.run_begin[of_class + 1]; ++r) {
    const TraceBodyRun& run = trace.runs[static_cast<std::size_t>(r)];
    visit(run, trace.bodies[static_cast<std::size_t>(run.body)]);
  }
}

// Nodes run one after another, collectives on a lane of their own: the next node waits for one that
// nothing may run beside, the node at `until` for another, the body's end for one that its
// framework hides.
class Clock {
 public:
  Clock(const Trace& trace, std::vector<InsideCollective>& found) : trace_(trace), found_(found) {}

  void run(const TraceBody& body) {
    const TraceMeeting* meeting = meeting_from(trace_, body.node_begin);
    const TraceMeeting* const last = end_of_meetings(trace_);
    std::vector<std::pair<std::int32_t, std::int64_t>> joins;  // node, when it may begin
    for (std::int32_t n = body.node_begin; n < body.node_end; ++n) {
      const TraceNode& node = trace_.nodes[static_cast<std::size_t>(n)];
      for (const auto& [waits, until] : joins) {
        if (waits == n) now_ = std::max(now_, until);
      }
      if (meeting == last || meeting->node != n) {
        now_ += time_of(node);
        continue;
      }
      const std::int64_t begin = std::max(now_, lane_free_);
      lane_free_ = begin + time_of(node);
      found_.push_back({.name = trace_.text(node.name),
                        .kind = meeting->kind,
                        .group = meeting->group,
                        .bytes = node.bytes,
                        .begin_ns = begin,
                        .end_ns = lane_free_});
      if (meeting->until > n + 1) {
        joins.emplace_back(meeting->until, lane_free_);
      } else if (node.overlapped == 0) {
        now_ = lane_free_;
      }
      ++meeting;
    }
    now_ = std::max(now_, lane_free_);
  }
  std::int64_t now() const { return now_; }

 private:
  const Trace& trace_;
  std::vector<InsideCollective>& found_;
  std::int64_t now_ = 0, lane_free_ = 0;
};

bool is_collective(OpKind kind) {
  return traits(kind).op_class == OpClass::Collective;
}

}  // namespace

std::vector<InsideCollective> collectives_inside(const Trace& trace, OpId op) {
  std::vector<InsideCollective> found;
  Clock clock(trace, found);
  each_run(trace, static_cast<std::size_t>(trace.op_class[op.index()]),
           [&](const TraceBodyRun& run, const TraceBody& body) {
             for (std::int32_t i = 0; i < run.count; ++i) clock.run(body);
           });
  const std::int64_t start = trace.start_ns[op.index()], lasted = trace.end_ns[op.index()] - start;
  const double scale =
      clock.now() > 0 ? static_cast<double>(lasted) / static_cast<double>(clock.now()) : 0;
  const auto placed = [&](std::int64_t at) {
    return start + std::min(lasted, static_cast<std::int64_t>(scale * static_cast<double>(at)));
  };
  for (InsideCollective& one : found) {
    one.begin_ns = placed(one.begin_ns);
    one.end_ns = placed(one.end_ns);
  }
  return found;
}

std::vector<CollectiveSum> collectives_of(const Trace& trace, RankClass row) {
  std::map<std::pair<std::string_view, OpKind>, CollectiveSum> sums;
  const auto add = [&](std::string_view group, OpKind kind, std::int64_t count, std::int64_t bytes,
                       bool inside) {
    CollectiveSum& sum = sums[{group, kind}];
    sum.group = group;
    sum.kind = kind;
    sum.count += count;
    sum.bytes += count * bytes;
    sum.inside_count += inside ? count : 0;
    sum.inside_bytes += inside ? count * bytes : 0;
  };
  std::map<std::int32_t, std::int64_t> ops;  // of the row, by class
  for (auto op = trace.row_begin[row.index()]; op < trace.row_begin[row.index() + 1]; ++op) {
    ++ops[trace.op_class[static_cast<std::size_t>(op)]];
  }
  for (const auto& [of_class, count] : ops) {
    const TraceClass& c = trace.classes[static_cast<std::size_t>(of_class)];
    if (is_collective(c.kind)) add(trace.text(c.group), c.kind, count, c.bytes, false);
    each_run(trace, static_cast<std::size_t>(of_class),
             [&, of = count](const TraceBodyRun& run, const TraceBody& body) {
               const TraceMeeting* meeting = meeting_from(trace, body.node_begin);
               for (; meeting != end_of_meetings(trace) && meeting->node < body.node_end;
                    ++meeting) {
                 const TraceNode& node = trace.nodes[static_cast<std::size_t>(meeting->node)];
                 add(traits(meeting->group).name, meeting->kind, of * run.count, node.bytes, true);
               }
             });
  }
  std::vector<CollectiveSum> list;
  for (const auto& [key, sum] : sums) list.push_back(sum);
  return list;
}

}  // namespace rehearse
