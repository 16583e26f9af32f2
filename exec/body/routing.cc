// SPDX-License-Identifier: Apache-2.0
// Routers: the experts that tokens choose, the routers' losses, and copies that a plan drops.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "exec/body/node_rows.h"

namespace rehearse::exec {
namespace {

RouteShape route_shape(const OpView& op) {
  const Experts& experts = op.shared.model.experts;
  const float* correction = op.facts.correction;
  return {.tokens = op.shared.shape.experts.tokens,
          .experts = experts.count,
          .per_token = experts.per_token,
          .normalised = experts.normalised,
          .sigmoid = experts.sigmoid,
          .scale = static_cast<float>(experts.weight_scale),
          .groups = experts.groups,
          .kept_groups = experts.kept_groups,
          .group_best = experts.group_best,
          .correction = correction == nullptr ? nullptr : correction + op.layer() * experts.count};
}

// Calls visit(first, tokens, group) for the runs of the rank's tokens of whose groups losses are
// (Plan::balanced_groups). Tokens lie sample by sample, and so over the ranks that split them.
template <class Visit>
void for_each_balanced(const OpView& op, const Visit& visit) {
  const RankShape& s = op.shared.shape;
  const std::int64_t tokens = s.experts.tokens;
  if (op.shared.plan.router_balance != RouterBalance::Sequence) return visit(0, tokens, 0);
  const std::int64_t before = s.gather ? op.coordinate * tokens : 0;
  const std::int64_t of_sequence = s.tokens / op.shared.plan.micro_batch;
  for (std::int64_t first = 0; first < tokens;) {
    const std::int64_t group = (before + first) / of_sequence;
    const std::int64_t run = std::min(tokens, (group + 1) * of_sequence - before) - first;
    visit(first, run, group);
    first += run;
  }
}

}  // namespace

void route(const OpView& op, const Node& n) {
  const RouteShape shape = route_shape(op);
  float* sums = floats(op.out(n, 3));
  op.kernels.route(op.lane, shape, floats(op.in(n, 0)), ints(op.out(n, 0)), floats(op.out(n, 1)),
                   floats(op.out(n, 2)), sums);
  double* lost = op.facts.expert_counts.lost;
  if (lost == nullptr) return;
  op.kernels.count_not_finite(op.lane, shape.tokens, sums, lost + op.layer());
}

// The losses are means over the micro-batches, or sequences, of T tokens: of E / (k T^2) sum_e
// count_e sum_t P_te (Fedus et al. 2022, arXiv 2101.03961; DeepSeek-V3, 2412.19437, eq. 17-20) and
// of the mean over tokens of (log sum exp)^2 (Zoph et al. 2022, arXiv 2202.08906). The factor is 1
// over the tokens of all micro-batches, times the scale of the loss.
void route_backward(const OpView& op, const Node& n) {
  RouteShape shape = route_shape(op);
  const Plan& plan = op.shared.plan;
  const double of_all = static_cast<double>(op.facts.loss_scale);
  const bool balances = plan.router_balance != RouterBalance::None;
  if (balances) {
    const std::int64_t tokens = plan.micro_batch / plan.balanced_groups() * plan.sequence_length;
    shape.auxiliary =
        static_cast<float>(op.facts.losses.auxiliary * of_all * static_cast<double>(shape.experts) /
                           static_cast<double>(shape.per_token * tokens));
  }
  shape.z = static_cast<float>(2 * op.facts.losses.z * of_all);
  const std::int64_t k = shape.per_token, experts = shape.experts;
  for_each_balanced(op, [&](std::int64_t first, std::int64_t tokens, std::int64_t group) {
    shape.tokens = tokens;
    op.kernels.route_backward(op.lane, shape, floats(op.in(n, 0)) + first * k,
                              ints(op.in(n, 1)) + first * k, floats(op.in(n, 2)) + first * k,
                              floats(op.in(n, 3)) + first * experts, floats(op.in(n, 4)) + first,
                              balances ? floats(op.in(n, 5)) + group * experts : nullptr,
                              op.element(op.out(n), first * experts));
  });
}

// By the op's slice of the sequence, and by those before it.
void count_chosen(const OpView& op, const Node& n) {
  const std::int64_t experts = op.shared.model.experts.count;
  const std::int64_t k = op.shared.model.experts.per_token;
  op.device.clear(op.lane, op.out(n), 4 * op.shared.plan.balanced_groups() * experts);
  for (std::size_t slice = 0; slice < n.reads.size(); ++slice) {
    for_each_balanced(op, [&](std::int64_t first, std::int64_t tokens, std::int64_t group) {
      op.kernels.count_chosen(op.lane, tokens * k, experts, ints(op.in(n, slice)) + first * k,
                              floats(op.out(n)) + group * experts);
    });
  }
}

// Tokens that several ranks bring alike are counted by the first.
void drop_copies(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  const Experts& experts = op.shared.model.experts;
  const DropShape drop{.tokens = s.experts.tokens,
                       .experts = experts.count,
                       .per_token = experts.per_token,
                       .capacity = op.shared.room.each};
  op.kernels.drop_copies(op.lane, drop, ints(op.in(n, 0)), floats(op.in(n, 1)), ints(op.out(n)));
  double* dropped = op.facts.expert_counts.dropped;
  const bool alike = s.tensor > 1 && !s.gather;
  if (dropped == nullptr || (alike && op.coordinate != 0)) return;
  op.kernels.count_dropped(op.lane, drop, ints(op.in(n, 0)), ints(op.out(n)),
                           dropped + op.layer() * experts.count);
}

}  // namespace rehearse::exec
