// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/causality.h"

#include <algorithm>

namespace rehearse::viz {

Causality::Causality(const Trace& trace) : trace_(&trace) {
  const auto n = static_cast<std::size_t>(trace.num_ops());
  const auto matched = [&](std::size_t op) {
    const OpClass op_class = traits(trace.class_of({static_cast<std::int32_t>(op)}).kind).op_class;
    return trace.partner[op] >= 0 &&
           (op_class == OpClass::Transfer || op_class == OpClass::Collective);
  };
  if (n > 0) {
    last_ = static_cast<std::int32_t>(std::ranges::max_element(trace.end_ns.view()) -
                                      trace.end_ns.begin());
  }
  // Nodes are numbered by their first op. Matches may be any number: sort, do not index by them.
  std::vector<std::pair<std::int32_t, std::int32_t>> by_match;
  for (std::size_t op = 0; op < n; ++op) {
    if (matched(op)) by_match.emplace_back(trace.partner[op], static_cast<std::int32_t>(op));
  }
  std::ranges::sort(by_match);
  std::vector<std::int32_t> first_of(n);
  for (std::size_t op = 0; op < n; ++op) first_of[op] = static_cast<std::int32_t>(op);
  for (std::size_t i = 1; i < by_match.size(); ++i) {
    if (by_match[i].first != by_match[i - 1].first) continue;
    first_of[static_cast<std::size_t>(by_match[i].second)] =
        first_of[static_cast<std::size_t>(by_match[i - 1].second)];
  }
  node_of_.resize(n);
  std::vector<std::int32_t> size;
  for (std::size_t op = 0; op < n; ++op) {
    const auto first = static_cast<std::size_t>(first_of[op]);
    if (first == op) {
      node_of_[op] = static_cast<std::int32_t>(size.size());
      size.push_back(0);
    } else {
      node_of_[op] = node_of_[first];
    }
    ++size[static_cast<std::size_t>(node_of_[op])];
  }
  node_begin_.assign(size.size() + 1, 0);
  for (std::size_t i = 0; i < size.size(); ++i) node_begin_[i + 1] = node_begin_[i] + size[i];
  members_.resize(n);
  std::vector<std::int32_t> next(node_begin_.begin(), node_begin_.end() - 1);
  for (std::size_t op = 0; op < n; ++op) {
    members_[static_cast<std::size_t>(next[static_cast<std::size_t>(node_of_[op])]++)] =
        static_cast<std::int32_t>(op);
  }

  on_lane_before_.assign(n, -1);
  std::vector<std::int32_t> last(static_cast<std::size_t>(trace.slots));
  for (std::size_t row = 0; row < trace.rows.size(); ++row) {
    std::ranges::fill(last, -1);
    for (auto op = static_cast<std::size_t>(trace.row_begin[row]);
         op < static_cast<std::size_t>(trace.row_begin[row + 1]); ++op) {
      const auto id = static_cast<std::int32_t>(op);
      std::int32_t& before = last[static_cast<std::size_t>(trace.class_of({id}).slot)];
      on_lane_before_[op] = before;
      before = id;
    }
  }
}

std::int64_t Causality::start(std::int32_t node) const {
  std::int64_t first = trace_->start_ns[static_cast<std::size_t>(members(node)[0])];
  for (const std::int32_t op : members(node)) {
    first = std::min(first, trace_->start_ns[static_cast<std::size_t>(op)]);
  }
  return first;
}

std::int64_t Causality::end(std::int32_t node) const {
  std::int64_t last = 0;
  for (const std::int32_t op : members(node)) {
    last = std::max(last, trace_->end_ns[static_cast<std::size_t>(op)]);
  }
  return last;
}

}  // namespace rehearse::viz
