// One global order. Every op has a key: the time at which it could start if nothing but its
// producers, its rank's compute stream and its partners delayed it. Each row is that one order
// restricted to the row, so every edge goes forward in it: no deadlock by construction.
#include <algorithm>
#include <numeric>

#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

// Reads follow the last write; a write follows the last write and every read since.
std::vector<std::pair<std::int32_t, std::int32_t>> edges_of(const Draft& draft) {
  std::vector<std::pair<std::int32_t, std::int32_t>> edges;
  edges.reserve(4 * draft.ops.size());
  // Readers since the last write, as a list through the operands: newest[value], older[operand].
  std::vector<std::int32_t> writer(draft.schedule.values.size(), -1);
  std::vector<std::int32_t> newest(draft.schedule.values.size(), -1);
  std::vector<std::int32_t> older(draft.operands.size(), -1), reader(draft.operands.size(), -1);
  std::vector<std::int32_t> previous(draft.schedule.rows.size(), -1);  // on the compute stream
  for (std::size_t i = 0; i < draft.ops.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    for (std::int32_t k = draft.operand_begin[i]; k < draft.operand_begin[i + 1]; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const Operand& operand = draft.operands[at];
      const std::size_t v = operand.value.index();
      if (operand.access == Access::Workspace) continue;
      // a pair may do both
      if (writer[v] >= 0 && writer[v] != id) edges.emplace_back(writer[v], id);
      if (operand.access == Access::Read) {
        reader[at] = id;
        older[at] = newest[v];
        newest[v] = k;
        continue;
      }
      for (std::int32_t r = newest[v]; r >= 0; r = older[static_cast<std::size_t>(r)]) {
        if (reader[static_cast<std::size_t>(r)] != id) {
          edges.emplace_back(reader[static_cast<std::size_t>(r)], id);
        }
      }
      newest[v] = -1;
      writer[v] = id;
    }
    if (draft.after[i]) edges.emplace_back(draft.after[i].value, id);
    if (draft.ops[i].stream == Stream::Compute) {
      std::int32_t& last = previous[draft.row[i].index()];
      if (last >= 0) edges.emplace_back(last, id);
      last = id;
    }
  }
  return edges;
}

std::vector<std::int64_t> starts_of(const Draft& draft) {
  const std::size_t num_ops = draft.ops.size();
  std::vector<std::int32_t> node_of(num_ops);
  std::vector<std::int32_t> node_of_match(static_cast<std::size_t>(draft.num_matches), -1);
  std::int32_t nodes = 0;
  for (std::size_t i = 0; i < num_ops; ++i) {
    const MatchId match = draft.ops[i].match;
    if (match && node_of_match[match.index()] >= 0) {
      node_of[i] = node_of_match[match.index()];
      continue;
    }
    node_of[i] = nodes++;
    if (match) node_of_match[match.index()] = node_of[i];
  }
  const auto edges = edges_of(draft);
  std::vector<std::int32_t> begin(static_cast<std::size_t>(nodes) + 1, 0), open(begin.size(), 0);
  for (const auto& [from, to] : edges) {
    ++begin[static_cast<std::size_t>(node_of[static_cast<std::size_t>(from)]) + 1];
    ++open[static_cast<std::size_t>(node_of[static_cast<std::size_t>(to)])];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<std::pair<std::int32_t, std::int64_t>> out(edges.size());  // (node, duration)
  std::vector<std::int32_t> fill(begin.begin(), begin.end() - 1);
  for (const auto& [from, to] : edges) {
    const auto f = static_cast<std::size_t>(node_of[static_cast<std::size_t>(from)]);
    out[static_cast<std::size_t>(fill[f]++)] = {node_of[static_cast<std::size_t>(to)],
                                                draft.duration[static_cast<std::size_t>(from)]};
  }
  std::vector<std::int64_t> start(static_cast<std::size_t>(nodes), 0);
  std::vector<std::int32_t> ready;
  for (std::int32_t n = 0; n < nodes; ++n) {
    if (open[static_cast<std::size_t>(n)] == 0) ready.push_back(n);
  }
  std::int32_t done = 0;
  while (!ready.empty()) {
    const auto n = static_cast<std::size_t>(ready.back());
    ready.pop_back();
    ++done;
    for (std::int32_t e = begin[n]; e < begin[n + 1]; ++e) {
      const auto& [to, duration] = out[static_cast<std::size_t>(e)];
      std::int64_t& at = start[static_cast<std::size_t>(to)];
      at = std::max(at, start[n] + duration);
      if (--open[static_cast<std::size_t>(to)] == 0) ready.push_back(to);
    }
  }
  if (done != nodes) return {};  // a cycle: the compute order itself cannot run
  std::vector<std::int64_t> of_op(num_ops);
  for (std::size_t i = 0; i < num_ops; ++i) of_op[i] = start[static_cast<std::size_t>(node_of[i])];
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

}  // namespace

Schedule order(Draft&& draft) {
  const std::vector<std::int64_t> start = starts_of(draft);
  if (start.empty() && !draft.ops.empty()) return {};
  Schedule s = std::move(draft.schedule);
  std::vector<std::int32_t> by_key(draft.ops.size());
  std::iota(by_key.begin(), by_key.end(), 0);
  std::stable_sort(by_key.begin(), by_key.end(), [&](std::int32_t a, std::int32_t b) {
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    if (draft.row[i] != draft.row[j]) return draft.row[i] < draft.row[j];
    if (start[i] != start[j]) return start[i] < start[j];
    const int ci = class_of(draft.ops[i]), cj = class_of(draft.ops[j]);
    return ci != cj ? ci < cj : draft.tie[i] < draft.tie[j];
  });
  std::vector<MatchId> renumbered(static_cast<std::size_t>(draft.num_matches));
  std::int32_t matches = 0;
  s.ops.reserve(draft.ops.size());
  s.operands.reserve(draft.operands.size());
  s.operand_begin.reserve(draft.ops.size() + 1);
  std::vector<std::int64_t> duration;
  duration.reserve(draft.ops.size());
  Row row{0};
  for (const std::int32_t from : by_key) {
    const auto i = static_cast<std::size_t>(from);
    for (; row < draft.row[i]; ++row.value) s.end_row();
    Op op = draft.ops[i];
    op.key = start[i];
    if (op.match) {
      MatchId& id = renumbered[op.match.index()];
      if (!id) id = {matches++};
      op.match = id;
    }
    s.ops.push_back(op);
    duration.push_back(draft.duration[i]);
    for (std::int32_t k = draft.operand_begin[i]; k < draft.operand_begin[i + 1]; ++k) {
      s.operands.push_back(draft.operands[static_cast<std::size_t>(k)]);
    }
    s.operand_begin.push_back(static_cast<std::int32_t>(s.operands.size()));
  }
  for (; row.index() < s.rows.size(); ++row.value) s.end_row();
  draft.duration = std::move(duration);  // now in the order of s.ops
  return s;
}

}  // namespace rehearse
