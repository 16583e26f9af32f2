// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/retime.h"

#include <algorithm>
#include <cmath>

namespace rehearse::viz {
namespace {

// Nodes in an order in which each stands behind those that it waits for; those of a circle are left
// out (Kahn's algorithm).
std::vector<std::int32_t> topological(const Causality& causes) {
  const auto nodes = static_cast<std::size_t>(causes.num_nodes());
  std::vector<std::int32_t> open(nodes), after_begin(nodes + 1);
  const auto for_each_edge = [&](const auto& visit) {
    for (std::int32_t node = 0; node < causes.num_nodes(); ++node) {
      causes.for_each_before(node, [&](OpId op) {
        if (causes.node_of(op) != node) visit(static_cast<std::size_t>(causes.node_of(op)), node);
      });
    }
  };
  for_each_edge([&](std::size_t before, std::int32_t node) {
    ++after_begin[before + 1];
    ++open[static_cast<std::size_t>(node)];
  });
  for (std::size_t i = 0; i < nodes; ++i) after_begin[i + 1] += after_begin[i];
  std::vector<std::int32_t> after(static_cast<std::size_t>(after_begin[nodes]));
  std::vector<std::int32_t> next(after_begin.begin(), after_begin.end() - 1);
  for_each_edge([&](std::size_t before, std::int32_t node) {
    after[static_cast<std::size_t>(next[before]++)] = node;
  });
  std::vector<std::int32_t> order;
  for (std::size_t node = 0; node < nodes; ++node) {
    if (open[node] == 0) order.push_back(static_cast<std::int32_t>(node));
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto node = static_cast<std::size_t>(order[i]);
    for (std::int32_t e = after_begin[node]; e < after_begin[node + 1]; ++e) {
      const std::int32_t other = after[static_cast<std::size_t>(e)];
      if (--open[static_cast<std::size_t>(other)] == 0) order.push_back(other);
    }
  }
  return order;
}

}  // namespace

Retiming::Retiming(const Trace& trace, const Causality& causes)
    : trace_(&trace), causes_(&causes), order_(topological(causes)) {
  const auto nodes = static_cast<std::size_t>(causes.num_nodes());
  possible_ = order_.size() == nodes;
  duration_.resize(nodes);
  lag_.resize(nodes);
  for (std::int32_t node = 0; node < causes.num_nodes(); ++node) {
    const auto i = static_cast<std::size_t>(node);
    const std::int64_t start = causes.start(node);
    std::int64_t ready = trace.begin.value;
    bool waits = false;
    causes.for_each_before(node, [&](OpId op) {
      if (causes.node_of(op) == node) return;
      const std::int64_t end = causes.end(causes.node_of(op));
      ready = waits ? std::max(ready, end) : end;
      waits = true;
    });
    duration_[i] = causes.end(node) - start;
    lag_[i] = start - ready;
  }
}

template <class Duration>
std::int64_t Retiming::step(const Duration& duration_of) const {
  std::vector<std::int64_t> end(duration_.size());
  std::int64_t last = trace_->begin.value;
  for (const std::int32_t node : order_) {
    std::int64_t ready = trace_->begin.value;
    bool waits = false;
    causes_->for_each_before(node, [&](OpId op) {
      const std::int32_t other = causes_->node_of(op);
      if (other == node) return;
      const std::int64_t ended = end[static_cast<std::size_t>(other)];
      ready = waits ? std::max(ready, ended) : ended;
      waits = true;
    });
    const auto i = static_cast<std::size_t>(node);
    end[i] = ready + lag_[i] + duration_of(node);
    last = std::max(last, end[i]);
  }
  return last - trace_->begin.value;
}

bool Retiming::alike(OpId a, OpId b) const {
  const TraceClass &x = trace_->class_of(a), &y = trace_->class_of(b);
  return x.kind == y.kind && x.stage == y.stage && x.payload == y.payload;
}

std::int64_t Retiming::step_if(OpId op, double factor) const {
  const std::int32_t changed = causes_->node_of(op);
  return step([&](std::int32_t node) {
    const std::int64_t lasts = duration_[static_cast<std::size_t>(node)];
    return node == changed ? std::llround(static_cast<double>(lasts) * factor) : lasts;
  });
}

std::int64_t Retiming::step_if_all_like(OpId op, double factor) const {
  return step([&](std::int32_t node) {
    const std::int64_t lasts = duration_[static_cast<std::size_t>(node)];
    return alike(op, {causes_->members(node)[0]})
               ? std::llround(static_cast<double>(lasts) * factor)
               : lasts;
  });
}

}  // namespace rehearse::viz
