// SPDX-License-Identifier: Apache-2.0
// Routing, the orders of rows, and the experts' products. Where a device is asynchronous no count
// is read by the host: kernels go by what lies on the device, and what travels has planned sizes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "exec/body/body_state.h"

namespace rehearse::exec {

RouteShape OpCursor::State::route_shape() const {
  const Experts& experts = shared.model.experts;
  return {.tokens = shared.shape.experts.tokens,
          .experts = experts.count,
          .per_token = experts.per_token,
          .normalised = experts.normalised,
          .sigmoid = experts.sigmoid,
          .scale = static_cast<float>(experts.weight_scale),
          .groups = experts.groups,
          .kept_groups = experts.kept_groups,
          .group_best = experts.group_best,
          .correction = correction == nullptr ? nullptr : correction + layer() * experts.count};
}

const ExpertLimits& BodyRunner::expert_limits() const {
  return shared_->limits;
}

std::string too_many_rows(std::span<const RankCounts> ranks, std::int64_t layers,
                          const ExpertLimits& limits) {
  double factor = 0, worst = 0;
  std::string line;
  for (const auto& [rank, counts] : ranks) {
    for (std::size_t k = 0; k < limits.size(); ++k) {
      for (std::int64_t l = 0; l < layers; ++l) {
        const double came = counts.most[static_cast<std::int64_t>(k) * layers + l];
        const double ratio = came / limits[k].mean;
        factor = std::max(factor, ratio);
        if (came <= static_cast<double>(limits[k].rows) || ratio <= worst) continue;
        worst = ratio;
        line = "rank " + std::to_string(rank) + ", layer " + std::to_string(l) + ": " +
               std::to_string(static_cast<std::int64_t>(came)) + std::string(limits[k].what) +
               std::to_string(limits[k].rows);
      }
    }
  }
  if (line.empty()) return "";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", std::ceil(100 * factor) / 100);
  return line + ": plan.expert_capacity " + text.data() + " would hold them";
}

std::string lost_scores(std::span<const RankCounts> ranks, std::int64_t layers) {
  for (std::int64_t l = 0; l < layers; ++l) {
    for (const auto& [rank, counts] : ranks) {
      if (counts.lost[l] == 0) continue;
      return "rank " + std::to_string(rank) + ", layer " + std::to_string(l) +
             ": the router's scores are not numbers";
    }
  }
  return "";
}

void OpCursor::State::route(const Node& n) {
  const RouteShape shape = route_shape();
  kernels.route(lane, shape, floats(r(n, 0)), ints(w(n, 0)), floats(w(n, 1)), floats(w(n, 2)),
                floats(w(n, 3)));
  if (counts.lost == nullptr) return;
  kernels.count_not_finite(lane, shape.tokens, floats(w(n, 3)), counts.lost + layer());
}

// Calls visit(first, tokens, group) for the runs of the rank's tokens of whose groups losses are
// (Plan::balanced_groups). Tokens lie sample by sample, and so over the ranks that split them.
template <class Visit>
void OpCursor::State::for_each_balanced(const Visit& visit) const {
  const std::int64_t tokens = shared.shape.experts.tokens;
  if (shared.plan.router_balance != RouterBalance::Sequence) return visit(0, tokens, 0);
  const std::int64_t before = shared.shape.gather ? coordinate * tokens : 0;
  const std::int64_t of_sequence = shared.shape.tokens / shared.plan.micro_batch;
  for (std::int64_t first = 0; first < tokens;) {
    const std::int64_t group = (before + first) / of_sequence;
    const std::int64_t run = std::min(tokens, (group + 1) * of_sequence - before) - first;
    visit(first, run, group);
    first += run;
  }
}

// The losses are means over the micro-batches, or sequences, of T tokens: of E / (k T^2) sum_e
// count_e sum_t P_te (Fedus et al. 2022, arXiv 2101.03961; DeepSeek-V3, 2412.19437, eq. 17-20) and
// of the mean over tokens of (log sum exp)^2 (Zoph et al. 2022, arXiv 2202.08906). `scale` is 1
// over the tokens of all micro-batches.
void OpCursor::State::route_backward(const Node& n) const {
  RouteShape shape = route_shape();
  const Plan& plan = shared.plan;
  const double of_all = static_cast<double>(scale);
  const bool balances = plan.router_balance != RouterBalance::None;
  if (balances) {
    const std::int64_t tokens = plan.micro_batch / plan.balanced_groups() * plan.sequence_length;
    shape.auxiliary =
        static_cast<float>(losses.auxiliary * of_all * static_cast<double>(shape.experts) /
                           static_cast<double>(shape.per_token * tokens));
  }
  shape.z = static_cast<float>(2 * losses.z * of_all);
  const std::int64_t k = shape.per_token, experts = shape.experts;
  for_each_balanced([&](std::int64_t first, std::int64_t tokens, std::int64_t group) {
    shape.tokens = tokens;
    kernels.route_backward(lane, shape, floats(r(n, 0)) + first * k, ints(r(n, 1)) + first * k,
                           floats(r(n, 2)) + first * k, floats(r(n, 3)) + first * experts,
                           floats(r(n, 4)) + first,
                           balances ? floats(r(n, 5)) + group * experts : nullptr,
                           w(n) + first * experts * shared.shape.element);
  });
}

// By the op's slice of the sequence, and by those before it.
void OpCursor::State::count_chosen(const Node& n) const {
  const std::int64_t experts = shared.model.experts.count;
  const std::int64_t k = shared.model.experts.per_token;
  device.clear(lane, w(n), 4 * shared.plan.balanced_groups() * experts);
  for (std::size_t slice = 0; slice < n.reads.size(); ++slice) {
    for_each_balanced([&](std::int64_t first, std::int64_t tokens, std::int64_t group) {
      kernels.count_chosen(lane, tokens * k, experts, ints(r(n, slice)) + first * k,
                           floats(w(n)) + group * experts);
    });
  }
}

// Tokens that several ranks bring alike are counted by the first.
void OpCursor::State::drop_copies(const Node& n) const {
  const Experts& experts = shared.model.experts;
  const std::int64_t tokens = shared.shape.experts.tokens;
  const DropShape drop{.tokens = tokens,
                       .experts = experts.count,
                       .per_token = experts.per_token,
                       .capacity = shared.room.each};
  kernels.drop_copies(lane, drop, ints(r(n, 0)), floats(r(n, 1)), ints(w(n)));
  const bool alike = shared.shape.tensor > 1 && !shared.shape.gather;
  if (counts.dropped == nullptr || (alike && coordinate != 0)) return;
  kernels.count_dropped(lane, drop, ints(r(n, 0)), ints(w(n)),
                        counts.dropped + layer() * experts.count);
}

void OpCursor::State::sort_copies(const Node& n) {
  const ExpertShape& x = shared.shape.experts;
  const auto room = [&](std::size_t i) {
    return body->tensors[static_cast<std::size_t>(n.writes[i])].bytes / 4;
  };
  const std::int64_t experts = room(2) - 1, slot = shared.sends_copies ? shared.room.slot : 0;
  const bool all = experts == shared.model.experts.count;  // they are sent, or all are here
  const CopiesShape shape{.tokens = tensor(n, 0).bytes / 4 / shared.model.experts.per_token,
                          .per_token = shared.model.experts.per_token,
                          .first = all ? 0 : folded.expert * x.per_rank,
                          .experts = experts,
                          .room = room(1),
                          .per_slot = slot > 0 ? x.per_rank : 0,
                          .slot = slot};
  kernels.sort_copies(lane, shape, ints(r(n, 0)), ints(w(n, 0)), ints(w(n, 1)), ints(w(n, 2)));
  if (shared.sends_copies) return;
  count_rows(ints(w(n, 2)));
  if (!gathers_tokens(shared.layout)) return;
  count_most_rows(shape.tokens * shape.per_token, ints(r(n, 0)));
  check_room();
}

void OpCursor::State::sort_rows(const Node& n) {
  const ExpertShape& x = shared.shape.experts;
  const std::int64_t members = x.gathers_rows ? shared.plan.expert_tensor_parallel : 1;
  const ArrivedShape shape{.sources = members * shared.plan.expert_parallel,
                           .members = members,
                           .stride = shared.room.arrived,
                           .experts = shared.model.experts.count,
                           .first = folded.expert * x.per_rank,
                           .per_source = x.per_rank,
                           .room = shared.room.rows,
                           .slot = shared.room.slot};
  kernels.sort_rows(lane, shape, ints(r(n, 0)), ints(w(n, 0)), ints(w(n, 1)));
  count_rows(ints(w(n, 1)));
  if (counts.most == nullptr) return;
  const bool all_here = x.per_rank == shape.experts;  // every source is another member
  if (all_here) {
    kernels.count_rows(lane, {.experts = x.per_rank, .together = x.per_rank}, ints(w(n, 1)),
                       nullptr, most(0));
  }
  if (all_here || shape.slot > 0) {
    count_most_of_slots({.experts = shape.experts, .together = x.per_rank, .lines = shape.sources},
                        ints(r(n, 0)));
    return check_room();
  }
  // Without slots the host reads the counts in any case (Interpreter::create refuses others).
  // What the sources from `member` on, every `stride`-th, send to the experts of one rank, at most.
  const auto most_from = [&](std::int64_t member, std::int64_t stride) {
    std::int64_t largest = 0;
    for (std::int64_t first = 0; first < shape.experts; first += x.per_rank) {
      std::int64_t rows = 0;
      for (std::int64_t source = member; source < shape.sources; source += stride) {
        const std::int32_t* begins = ints(r(n, 0)) + source * (shape.experts + 1) + first;
        rows += begins[x.per_rank] - begins[0];
      }
      largest = std::max(largest, rows);
    }
    return static_cast<double>(largest);
  };
  *most(0) = std::max(*most(0), most_from(0, 1));
  // Each of the ranks that share an expert's matrices can overflow on its own.
  for (std::int64_t member = 0; member < members; ++member) {
    *most(1) = std::max(*most(1), most_from(member, members));
  }
  check_room();
}

void OpCursor::State::sort_visits(const Node& n) {
  const ExpertShape& x = shared.shape.experts;
  const VisitsShape shape{.ranks = shared.plan.expert_parallel,
                          .rank = folded.expert,
                          .tokens = x.tokens,
                          .per_token = shared.model.experts.per_token,
                          .per_rank = x.per_rank,
                          .room = shared.room.arrived,
                          .slot = shared.room.slot};
  const std::int32_t* chosen = ints(r(n, 0));
  kernels.sort_visits(lane, shape, chosen, ints(w(n, 0)), ints(w(n, 1)), ints(w(n, 2)),
                      ints(w(n, 3)), ints(w(n, 4)), ints(w(n, 5)));
  count_most_rows(shape.ranks * shape.tokens * shape.per_token, chosen);
  if (shape.slot > 0) {
    count_most_of_slots({.experts = shape.ranks, .together = 1, .lines = shape.ranks},
                        ints(w(n, 4)));
  }
  check_room();
}

// Reads (weights, token, begin): rows of k numbers; (weights, place): single ones, zero where a
// dropped copy has no weight. They are fp32, and move as they are.
void OpCursor::State::gather_weights(const Node& n) const {
  const bool rows = n.reads.size() > 2;
  const std::int64_t numbers = rows ? shared.model.experts.per_token : 1;
  const std::int64_t count = rows && shared.room.slot == 0 ? last_of(n, 2) : tensor(n, 1).bytes / 4;
  if (!rows) device.clear(lane, w(n), 4 * count);
  kernels.gather_rows(lane, count, numbers * 4 / shared.shape.element, ints(r(n, 1)), r(n, 0),
                      w(n));
}

// Ranks that share an expert's matrices have equal rows: the first counts them.
void OpCursor::State::count_rows(const std::int32_t* begin) const {
  const std::int64_t here = shared.shape.experts.per_rank;
  if (counts.rows == nullptr || folded.tensor != 0) return;
  const std::int64_t first = layer() * shared.model.experts.count + folded.expert * here;
  kernels.count_rows(lane, {.experts = here, .together = here}, begin, counts.rows + first,
                     nullptr);
}

void OpCursor::State::count_most_rows(std::int64_t copies, const std::int32_t* chosen) const {
  if (counts.most == nullptr) return;
  kernels.count_choices(
      lane, {.experts = shared.model.experts.count, .together = shared.shape.experts.per_rank},
      copies, chosen, most(0));
}

void OpCursor::State::count_most_of_slots(const CountShape& shape,
                                          const std::int32_t* begins) const {
  if (counts.most == nullptr) return;
  kernels.count_rows(lane, shape, begins, nullptr, most(1));
}

void OpCursor::State::check_room() {
  if (counts.most == nullptr || device.asynchronous() || !failure.empty()) return;
  const RankCounts here{.rank = lane.rank, .counts = counts};
  failure = too_many_rows({&here, 1}, shared.model.layers, shared.limits);
}

// A line of begins for every source: by expert of the model, or by rank where tokens are sent once.
void OpCursor::State::split(const Node& n, std::int64_t width, CollectiveRequest* request) {
  const std::int64_t ranks = shared.plan.expert_parallel;
  const std::int64_t members =
      shared.shape.experts.gathers_rows ? shared.plan.expert_tensor_parallel : 1;
  const std::int64_t line = tensor(n, 1).bytes / 4 / (ranks * members), each = (line - 1) / ranks;
  const std::int32_t* begins = ints(r(n, 1));
  // Elements of what rank `from` has for the experts of rank `to`, by their places on `ep`.
  const auto part = [&](std::int64_t from, std::int64_t to) {
    const std::int64_t source = from * members + (members > 1 ? folded.tensor : 0);
    const std::int32_t* at = begins + source * line + to * each;
    return width * (std::int64_t{at[each]} - at[0]);
  };
  sends.clear();
  receives.clear();
  for (std::int64_t other = 0; other < ranks; ++other) {
    sends.push_back(part(folded.expert, other));
    receives.push_back(part(other, folded.expert));
  }
  if (n.kernel == Kernel::Combine || n.kernel == Kernel::CombineWeights) std::swap(sends, receives);
  request->sends = sends.data();
  request->receives = receives.data();
}

void OpCursor::State::sum_copies(const Node& n) const {
  const std::int64_t k = shared.model.experts.per_token, h = shared.shape.hidden;
  const std::int64_t tokens = tensor(n, 1).bytes / 4 / k;
  switch (n.kernel) {
    case Kernel::WeighCopies:
      return kernels.weigh_copies(lane, tokens, k, h, ints(r(n, 1)), floats(r(n, 2)), r(n, 0),
                                  w(n));
    case Kernel::SumCopies:
      return kernels.weigh_copies(lane, tokens, k, h, ints(r(n, 1)), nullptr, r(n, 0), w(n));
    case Kernel::SpreadCopies:  // reads what a copy is of where others read copies
      return kernels.weigh_backward(lane, tokens, k, h, ints(r(n, 1)), floats(r(n, 2)), nullptr,
                                    r(n, 0), w(n), nullptr);
    case Kernel::SpreadWeights:
      return kernels.weigh_backward(lane, tokens, k, h, ints(r(n, 1)), nullptr, r(n, 0), r(n, 2),
                                    nullptr, floats(w(n)));
    default:
      return kernels.weigh_backward(lane, tokens, k, h, ints(r(n, 1)), floats(r(n, 2)), r(n, 0),
                                    r(n, 3), w(n, 0), floats(w(n, 1)));
  }
}

// Reads (x, begin), (dy, begin) or (dy, x, begin).
void OpCursor::State::grouped(const Node& n) const {
  const GroupedShape shape{.experts = shared.shape.experts.per_rank,
                           .rows = shared.room.rows,
                           .begin = ints(r(n, n.reads.size() - 1))};
  // Where ranks sum an expert's output, the first one adds its bias.
  const bool adds = n.parameter == ParameterRole::ExpertUp || folded.tensor == 0;
  switch (n.kernel) {
    case Kernel::GroupedLinear:
      return kernels.grouped_linear(lane, shape, n.n, n.k, r(n, 0), parameter(n),
                                    adds ? bias(n) : nullptr, w(n));
    case Kernel::GroupedLinearInput:
      return kernels.grouped_linear_input(lane, shape, n.k, n.n, r(n, 0), parameter(n), w(n));
    default:
      kernels.grouped_linear_weight(lane, shape, n.n, n.m, r(n, 0), r(n, 1), gradient(n));
      if (float* sums = bias_gradient(n)) {
        kernels.grouped_column_sums(lane, shape, n.n, r(n, 0), sums);
      }
  }
}

ClampedGlu OpCursor::State::clamped_glu(std::int64_t rows, std::int64_t width) const {
  const Experts& experts = shared.model.experts;
  return {.rows = rows,
          .f = width,
          .alpha = static_cast<float>(experts.glu_alpha),
          .limit = static_cast<float>(experts.glu_limit)};
}

std::pair<std::int64_t, std::int64_t> OpCursor::State::mlp_shape(const Node& n,
                                                                 std::size_t begin) const {
  const RankShape& s = shared.shape;
  if (n.reads.size() > begin) {
    return {device.asynchronous() ? shared.room.rows : last_of(n, begin), s.experts.width};
  }
  const bool experts = shared.model.has_experts(segments()[segment].layer);
  return {s.tokens, experts ? s.experts.shared : s.ffn};
}

}  // namespace rehearse::exec
