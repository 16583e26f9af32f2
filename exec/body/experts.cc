// SPDX-License-Identifier: Apache-2.0
// Copies of tokens: which row is whose, the rows that are sent, the experts' products and the sums
// back. Where a device is asynchronous no count is read by the host: kernels go by what lies on the
// device, and what travels has planned sizes.
#include "exec/body/experts.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "exec/body/node_rows.h"

namespace rehearse::exec {
namespace {

// Numbers of 4 bytes in an array.
std::int64_t numbers(const OpView& op, std::int16_t tensor) {
  return op.tensor(tensor).bytes / 4;
}

// Tokens whose copies argument 1 has the rows of.
std::int64_t tokens_of(const OpView& op, const Node& n) {
  return numbers(op, n.reads[1]) / op.shared.model.experts.per_token;
}

// Of a gate, which reads (numbers, x), how many numbers there are, and how many columns each
// scales: a row of what shared experts give has one, or each head of what attention gives.
struct GateShape {
  std::int64_t rows = 0, cols = 0;
};
GateShape gate_shape(const OpView& op, const Node& n) {
  const std::int64_t rows = op.tensor(n.reads[0]).bytes / op.shared.shape.element;
  return {rows, op.tensor(n.reads[1]).bytes / op.tensor(n.reads[0]).bytes};
}

// Grouped products read (x, begin), (dy, begin) or (dy, x, begin).
GroupedShape grouped_shape(const OpView& op, const Node& n) {
  return {.experts = op.shared.shape.experts.per_rank,
          .rows = op.shared.room.rows,
          .begin = ints(op.in(n, n.reads.size() - 1))};
}

}  // namespace

// ---- which row is whose -------------------------------------------------------------------------

void sort_copies(const OpView& op, const Node& n) {
  const ExpertShape& x = op.shared.shape.experts;
  const Experts& model = op.shared.model.experts;
  const std::int64_t experts = numbers(op, n.writes[2]) - 1;
  const std::int64_t slot = x.sends_copies() ? op.shared.room.slot : 0;
  const bool all = experts == model.count;  // they are sent, or all are here
  const CopiesShape shape{.tokens = numbers(op, n.reads[0]) / model.per_token,
                          .per_token = model.per_token,
                          .first = all ? 0 : op.folded.expert * x.per_rank,
                          .experts = experts,
                          .room = numbers(op, n.writes[1]),
                          .per_slot = slot > 0 ? x.per_rank : 0,
                          .slot = slot};
  const std::int32_t* chosen = ints(op.in(n, 0));
  std::int32_t* begin = ints(op.out(n, 2));
  op.kernels.sort_copies(op.lane, shape, chosen, ints(op.out(n, 0)), ints(op.out(n, 1)), begin);
  if (x.sends_copies()) return;
  count_rows(op, begin);
  if (!x.gathers_tokens) return;
  count_most_rows(op, shape.tokens * shape.per_token, chosen);
  check_room(op);
}

void sort_rows(const OpView& op, const Node& n) {
  const ExpertShape& x = op.shared.shape.experts;
  const ArrivedShape shape{.sources = x.block,
                           .members = x.bringing,
                           .stride = op.shared.room.arrived,
                           .experts = op.shared.model.experts.count,
                           .first = op.folded.expert * x.per_rank,
                           .per_source = x.per_rank,
                           .room = op.shared.room.rows,
                           .slot = op.shared.room.slot};
  const std::int32_t* begins = ints(op.in(n, 0));
  std::int32_t* begin = ints(op.out(n, 1));
  op.kernels.sort_rows(op.lane, shape, begins, ints(op.out(n, 0)), begin);
  count_rows(op, begin);
  const bool all_here = x.per_rank == shape.experts;  // every source is another member
  if (all_here) count_most_here(op, begin);
  if (all_here || shape.slot > 0) {
    count_most_of_slots(
        op, {.experts = shape.experts, .together = x.per_rank, .lines = shape.sources}, begins);
  } else {  // the host reads the counts in any case (Interpreter::create refuses other devices)
    count_most_sent(op, shape, begins);
  }
  check_room(op);
}

void sort_visits(const OpView& op, const Node& n) {
  const ExpertShape& x = op.shared.shape.experts;
  const VisitsShape shape{.ranks = op.shared.plan.expert_parallel,
                          .rank = op.folded.expert,
                          .tokens = x.tokens,
                          .per_token = op.shared.model.experts.per_token,
                          .per_rank = x.per_rank,
                          .room = op.shared.room.arrived,
                          .slot = op.shared.room.slot};
  const std::int32_t* chosen = ints(op.in(n, 0));
  op.kernels.sort_visits(op.lane, shape, chosen, ints(op.out(n, 0)), ints(op.out(n, 1)),
                         ints(op.out(n, 2)), ints(op.out(n, 3)), ints(op.out(n, 4)),
                         ints(op.out(n, 5)));
  count_most_rows(op, shape.ranks * shape.tokens * shape.per_token, chosen);
  if (shape.slot > 0) {
    count_most_of_slots(op, {.experts = shape.ranks, .together = 1, .lines = shape.ranks},
                        ints(op.out(n, 4)));
  }
  check_room(op);
}

// A line of begins for every source: by expert of the model, or by rank where tokens are sent once.
void split(const OpView& op, const Node& n, std::int64_t width, UnequalParts* parts) {
  const std::int64_t ranks = op.shared.plan.expert_parallel;
  const std::int64_t members = op.shared.shape.experts.bringing;
  const std::int64_t line = numbers(op, n.reads[1]) / (ranks * members), each = (line - 1) / ranks;
  const std::int32_t* begins = ints(op.in(n, 1));
  // Elements of what rank `from` has for the experts of rank `to`, by their places on `ep`.
  const auto part = [&](std::int64_t from, std::int64_t to) {
    const std::int64_t source = from * members + (members > 1 ? op.folded.tensor : 0);
    const std::int32_t* at = begins + source * line + to * each;
    return width * (std::int64_t{at[each]} - at[0]);
  };
  parts->sends.clear();
  parts->receives.clear();
  for (std::int64_t other = 0; other < ranks; ++other) {
    parts->sends.push_back(part(op.folded.expert, other));
    parts->receives.push_back(part(other, op.folded.expert));
  }
  const bool back = n.kernel == Kernel::Combine || n.kernel == Kernel::CombineWeights;
  if (back) std::swap(parts->sends, parts->receives);
}

// ---- rows there and back ------------------------------------------------------------------------

void gather_rows(const OpView& op, const Node& n) {
  op.kernels.gather_rows(op.lane, numbers(op, n.reads[1]), op.shared.shape.hidden,
                         ints(op.in(n, 1)), op.in(n, 0), op.out(n));
}

void scatter_rows(const OpView& op, const Node& n) {
  op.kernels.scatter_rows(op.lane, numbers(op, n.reads[1]), op.shared.shape.hidden,
                          ints(op.in(n, 1)), op.in(n, 0), op.out(n));
}

// Reads (weights, token, begin): rows of k numbers; (weights, place): single ones, zero where a
// dropped copy has no weight. They are fp32, and move as they are.
void gather_weights(const OpView& op, const Node& n) {
  const bool rows = n.reads.size() > 2;
  const std::int64_t width = rows ? op.shared.model.experts.per_token : 1;
  const std::int64_t count =
      rows && op.shared.room.slot == 0 ? last_of(op, n, 2) : numbers(op, n.reads[1]);
  if (!rows) op.device.clear(op.lane, op.out(n), 4 * count);
  op.kernels.gather_rows(op.lane, count, width * 4 / op.shared.shape.element, ints(op.in(n, 1)),
                         op.in(n, 0), op.out(n));
}

void weigh_copies(const OpView& op, const Node& n) {
  op.kernels.weigh_copies(op.lane, tokens_of(op, n), op.shared.model.experts.per_token,
                          op.shared.shape.hidden, ints(op.in(n, 1)), floats(op.in(n, 2)),
                          op.in(n, 0), op.out(n));
}

void sum_copies(const OpView& op, const Node& n) {
  op.kernels.weigh_copies(op.lane, tokens_of(op, n), op.shared.model.experts.per_token,
                          op.shared.shape.hidden, ints(op.in(n, 1)), nullptr, op.in(n, 0),
                          op.out(n));
}

void weigh_backward(const OpView& op, const Node& n) {
  op.kernels.weigh_backward(op.lane, tokens_of(op, n), op.shared.model.experts.per_token,
                            op.shared.shape.hidden, ints(op.in(n, 1)), floats(op.in(n, 2)),
                            op.in(n, 0), op.in(n, 3), op.out(n, 0), floats(op.out(n, 1)));
}

// Reads what a copy is of where others read copies.
void spread_copies(const OpView& op, const Node& n) {
  op.kernels.weigh_backward(op.lane, tokens_of(op, n), op.shared.model.experts.per_token,
                            op.shared.shape.hidden, ints(op.in(n, 1)), floats(op.in(n, 2)), nullptr,
                            op.in(n, 0), op.out(n), nullptr);
}

void spread_weights(const OpView& op, const Node& n) {
  op.kernels.weigh_backward(op.lane, tokens_of(op, n), op.shared.model.experts.per_token,
                            op.shared.shape.hidden, ints(op.in(n, 1)), nullptr, op.in(n, 0),
                            op.in(n, 2), nullptr, floats(op.out(n)));
}

// ---- products -----------------------------------------------------------------------------------

// Where ranks sum an expert's output, the first one adds its bias.
void grouped_linear(const OpView& op, const Node& n) {
  const bool adds = n.parameter == ParameterRole::ExpertUp || op.folded.tensor == 0;
  op.kernels.grouped_linear(op.lane, grouped_shape(op, n), n.n, n.k, op.in(n, 0), op.parameter(n),
                            adds ? op.bias(n) : nullptr, op.out(n));
}

void grouped_linear_input(const OpView& op, const Node& n) {
  op.kernels.grouped_linear_input(op.lane, grouped_shape(op, n), n.k, n.n, op.in(n, 0),
                                  op.parameter(n), op.out(n));
}

void grouped_linear_weight(const OpView& op, const Node& n) {
  const GroupedShape shape = grouped_shape(op, n);
  op.kernels.grouped_linear_weight(op.lane, shape, n.n, n.m, op.in(n, 0), op.in(n, 1),
                                   op.gradient(n));
  if (float* sums = op.bias_gradient(n)) {
    op.kernels.grouped_column_sums(op.lane, shape, n.n, op.in(n, 0), sums);
  }
}

// ---- beside shared experts ----------------------------------------------------------------------

void add_outputs(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  op.kernels.add_residual(op.lane, s.local, s.hidden, op.in(n, 0), op.in(n, 1), nullptr, {},
                          op.out(n));
}

void gate(const OpView& op, const Node& n) {
  const GateShape shape = gate_shape(op, n);
  op.kernels.gate(op.lane, shape.rows, shape.cols, op.in(n, 0), op.in(n, 1), op.out(n));
}

void gate_backward(const OpView& op, const Node& n) {
  const GateShape shape = gate_shape(op, n);
  op.kernels.gate_backward(op.lane, shape.rows, shape.cols, op.in(n, 0), op.in(n, 1), op.in(n, 2),
                           op.out(n, 0), op.out(n, 1));
}

}  // namespace rehearse::exec
