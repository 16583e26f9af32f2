// SPDX-License-Identifier: Apache-2.0
// Who waited for whom in a trace: order on a lane, the schedule's waits, and matches. Ops of one
// match (a SEND and its RECV, a collective's members) are one node: they happen together.
#pragma once

#include <span>
#include <vector>

#include "schedules/trace/trace.h"

namespace rehearse::viz {

class Causality {
 public:
  explicit Causality(const Trace& trace);

  std::int32_t num_nodes() const { return static_cast<std::int32_t>(node_begin_.size()) - 1; }
  std::int32_t node_of(OpId op) const { return node_of_[op.index()]; }
  std::span<const std::int32_t> members(std::int32_t node) const {
    const auto first = static_cast<std::size_t>(node_begin_[static_cast<std::size_t>(node)]);
    const auto last = static_cast<std::size_t>(node_begin_[static_cast<std::size_t>(node) + 1]);
    return std::span{members_}.subspan(first, last - first);
  }
  std::int64_t start(std::int32_t node) const;  // first member's
  std::int64_t end(std::int32_t node) const;    // last member's
  OpId last() const { return {last_}; }         // the first of the ops that end last; none: no op

  // Calls visit(op) for every op that some member of the node comes after.
  template <class Visit>
  void for_each_before(std::int32_t node, Visit visit) const {
    for (const std::int32_t member : members(node)) for_each_before_op({member}, visit);
  }
  // The same for one op, whatever happens together with it.
  template <class Visit>
  void for_each_before_op(OpId op, Visit visit) const {
    const auto m = op.index();
    if (on_lane_before_[m] >= 0) visit(OpId{on_lane_before_[m]});
    if (trace_->wait_begin.empty()) return;
    for (std::int32_t w = trace_->wait_begin[m]; w < trace_->wait_begin[m + 1]; ++w) {
      visit(OpId{trace_->waits[static_cast<std::size_t>(w)]});
    }
  }

 private:
  const Trace* trace_;
  std::vector<std::int32_t> node_of_, node_begin_, members_, on_lane_before_;
  std::int32_t last_ = -1;
};

}  // namespace rehearse::viz
