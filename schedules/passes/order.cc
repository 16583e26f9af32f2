// One global order. Every op has a key: the time at which it could start if nothing but its
// producers, its rank's compute stream and its partners delayed it. Each row is that one order
// restricted to the row, so every edge goes forward in it: no deadlock by construction.
#include <algorithm>
#include <tuple>

#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

// What waits for a node: a list through `edges`, by the node that is waited for.
struct Edge {
  std::int32_t to;    // node
  std::int32_t from;  // op, whose duration counts
  std::int32_t next;  // in the list of the same node, or -1
};
struct Graph {
  std::vector<std::int32_t> node_of;  // per op: ops of equal match are one node
  std::vector<std::int32_t> first;    // per node
  std::vector<std::int32_t> open;     // per node: edges to it
  std::vector<Edge> edges;

  void add(std::int32_t from, std::int32_t to) {
    std::int32_t& head = first[static_cast<std::size_t>(node_of[static_cast<std::size_t>(from)])];
    const std::int32_t node = node_of[static_cast<std::size_t>(to)];
    edges.push_back({node, from, head});
    head = static_cast<std::int32_t>(edges.size()) - 1;
    ++open[static_cast<std::size_t>(node)];
  }
};

void make_nodes(const Draft& draft, Graph& graph) {
  graph.node_of.resize(draft.ops.size());
  std::vector<std::int32_t> node_of_match(static_cast<std::size_t>(draft.num_matches), -1);
  std::int32_t nodes = 0;
  for (std::size_t i = 0; i < draft.ops.size(); ++i) {
    const MatchId match = draft.ops[i].match;
    if (match && node_of_match[match.index()] >= 0) {
      graph.node_of[i] = node_of_match[match.index()];
      continue;
    }
    graph.node_of[i] = nodes++;
    if (match) node_of_match[match.index()] = graph.node_of[i];
  }
  graph.first.assign(static_cast<std::size_t>(nodes), -1);
  graph.open.assign(static_cast<std::size_t>(nodes), 0);
}

// Reads follow the last write; a write follows the last write and every read since. Ops of one
// compute stream follow one another, whatever they touch.
Graph graph_of(const Draft& draft) {
  Graph graph;
  make_nodes(draft, graph);
  graph.edges.reserve(draft.operands.size() + draft.ops.size());
  const auto computes = [&](std::int32_t op) {
    return draft.ops[static_cast<std::size_t>(op)].stream == Stream::Compute;
  };
  const std::size_t num_values = draft.schedule.values.size();
  std::vector<std::int32_t> writer(num_values, -1);
  // Readers since: the last that computes, and the others as a list through the operands.
  std::vector<std::int32_t> computing(num_values, -1), newest(num_values, -1);
  std::vector<std::int32_t> older(draft.operands.size()), reader(draft.operands.size());
  std::vector<std::int32_t> previous(draft.schedule.rows.size(), -1);  // on the compute stream
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(draft.ops.size()); ++id) {
    const auto i = static_cast<std::size_t>(id);
    const bool compute = computes(id);
    const auto follow = [&](std::int32_t before) {
      if (before >= 0 && before != id && !(compute && computes(before))) graph.add(before, id);
    };
    for (std::int32_t k = draft.operand_begin[i]; k < draft.operand_begin[i + 1]; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const Operand& operand = draft.operands[at];
      const std::size_t v = operand.value.index();
      if (operand.access == Access::Workspace) continue;
      follow(writer[v]);
      if (operand.access == Access::Read) {
        if (compute) {
          computing[v] = id;
        } else {
          reader[at] = id;
          older[at] = newest[v];
          newest[v] = k;
        }
        continue;
      }
      follow(computing[v]);
      for (std::int32_t r = newest[v]; r >= 0; r = older[static_cast<std::size_t>(r)]) {
        follow(reader[static_cast<std::size_t>(r)]);
      }
      computing[v] = newest[v] = -1;
      writer[v] = id;
    }
    follow(draft.after[i].value);
    if (compute) {
      std::int32_t& last = previous[draft.row[i].index()];
      if (last >= 0) graph.add(last, id);
      last = id;
    }
  }
  return graph;
}

// Per op; empty: a cycle, the compute order itself cannot run.
std::vector<std::int64_t> starts_of(const Draft& draft) {
  Graph graph = graph_of(draft);
  const std::size_t nodes = graph.first.size();
  std::vector<std::int64_t> start(nodes, 0);
  std::vector<std::int32_t> ready;
  for (std::size_t n = 0; n < nodes; ++n) {
    if (graph.open[n] == 0) ready.push_back(static_cast<std::int32_t>(n));
  }
  std::size_t done = 0;
  while (!ready.empty()) {
    const auto n = static_cast<std::size_t>(ready.back());
    ready.pop_back();
    ++done;
    for (std::int32_t e = graph.first[n]; e >= 0;) {
      const Edge& edge = graph.edges[static_cast<std::size_t>(e)];
      const auto to = static_cast<std::size_t>(edge.to);
      start[to] =
          std::max(start[to], start[n] + draft.duration[static_cast<std::size_t>(edge.from)]);
      if (--graph.open[to] == 0) ready.push_back(edge.to);
      e = edge.next;
    }
  }
  if (done != nodes) return {};
  std::vector<std::int64_t> of_op(draft.ops.size());
  for (std::size_t i = 0; i < of_op.size(); ++i) {
    of_op[i] = start[static_cast<std::size_t>(graph.node_of[i])];
  }
  return of_op;
}

// Among ops of one key. Producers end before consumers start, so any rule is a linear extension;
// this one lets communication start before the compute that it can hide behind.
int class_of(const Op& op) {
  if (op.stream == Stream::H2d) return 0;
  if (op.kind == OpKind::Unshard) return 1;
  if (op.stream == Stream::P2p) return 2;
  if (op.stream != Stream::Compute) return 3;
  return traits(op.kind).op_class == OpClass::Collective ? 4 : 5;
}

// An op's place among those of its row.
struct Place {
  std::int64_t start;
  std::int64_t rule;  // class, then tie
  std::int32_t op;    // as emitted

  bool operator<(const Place& other) const {
    return std::tie(start, rule, op) < std::tie(other.start, other.rule, other.op);
  }
};

// The ops of all rows, row after row. What a row computes is in order already: it is sorted in.
std::vector<std::int32_t> by_key(const Draft& draft, const std::vector<std::int64_t>& start) {
  std::vector<std::int32_t> sorted;
  sorted.reserve(draft.ops.size());
  std::vector<Place> computes, others, all;
  for (std::size_t i = 0; i < draft.ops.size();) {
    const Row row = draft.row[i];
    computes.clear();
    others.clear();
    for (; i < draft.ops.size() && draft.row[i] == row; ++i) {
      const Op& op = draft.ops[i];
      const Place place{start[i], (std::int64_t{class_of(op)} << 32) + draft.tie[i],
                        static_cast<std::int32_t>(i)};
      (op.stream == Stream::Compute ? computes : others).push_back(place);
    }
    std::sort(others.begin(), others.end());
    all.resize(computes.size() + others.size());
    std::merge(computes.begin(), computes.end(), others.begin(), others.end(), all.begin());
    for (const Place& place : all) sorted.push_back(place.op);
  }
  return sorted;
}

}  // namespace

Schedule order(Draft&& draft) {
  const std::vector<std::int64_t> start = starts_of(draft);
  if (start.empty() && !draft.ops.empty()) return {};
  const std::vector<std::int32_t> sorted = by_key(draft, start);
  Schedule s = std::move(draft.schedule);
  std::vector<MatchId> renumbered(static_cast<std::size_t>(draft.num_matches));
  std::int32_t matches = 0;
  s.ops.resize(draft.ops.size());
  s.operands.resize(draft.operands.size());
  s.operand_begin.resize(draft.ops.size() + 1);
  std::vector<std::int64_t> duration(draft.ops.size());
  std::int32_t operands = 0;
  Row row{0};
  for (std::size_t to = 0; to < sorted.size(); ++to) {
    const auto from = static_cast<std::size_t>(sorted[to]);
    for (; row < draft.row[from]; ++row.value) {
      s.row_begin.push_back(static_cast<std::int32_t>(to));
    }
    Op& op = s.ops[to];
    op = draft.ops[from];
    op.key = start[from];
    if (op.match) {
      MatchId& id = renumbered[op.match.index()];
      if (!id) id = {matches++};
      op.match = id;
    }
    duration[to] = draft.duration[from];
    s.operand_begin[to] = operands;
    for (std::int32_t k = draft.operand_begin[from]; k < draft.operand_begin[from + 1]; ++k) {
      s.operands[static_cast<std::size_t>(operands++)] =
          draft.operands[static_cast<std::size_t>(k)];
    }
  }
  s.operand_begin.back() = operands;
  for (; row.index() < s.rows.size(); ++row.value) s.end_row();
  draft.duration = std::move(duration);  // now in the order of s.ops
  return s;
}

}  // namespace rehearse
