// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/pricing/priced_bodies.h"

#include <algorithm>
#include <optional>

#include "schedules/ranks/group_key.h"
#include "sim/cost/overlap.h"
#include "sim/cost/to_nanoseconds.h"

namespace rehearse::sim {
namespace {

// What an op sends of one kind over one group is one entry.
void add_traffic(std::vector<Traffic>& all, const Traffic& sent) {
  for (Traffic& same : all) {
    if (same.kind != sent.kind || same.link != sent.link || same.group != sent.group) continue;
    same.count += sent.count;
    same.bytes += sent.bytes;
    add_time(same.time, sent.time);
    return;
  }
  all.push_back(sent);
}

}  // namespace

const PricedBody& PricedBodies::body(SegmentInfo segment, const Op& op) {
  const BodyShape shape = body_shape(layout_, segment, direction_of(op.kind), op.slice, apart(op));
  const bool by_layer = shape.experts && layout_.plan.expert_routing == ExpertRouting::Measured;
  const std::int32_t layer = by_layer ? segment.layer : -1;
  const auto [at, fresh] = bodies_.try_emplace({shape, layer});
  PricedBody& made = at->second;
  if (!fresh) return made;
  std::optional<Body> own;
  const Body& body = compute_.body(layout_, shape, own);
  made.cost = compute_.price(body, layer);
  made.pieces = sends_tokens(body)
                    ? cut_at_experts(body, compute_.price_nodes(body, layer), made.cost.time)
                    : ExpertPieces{.before = static_cast<double>(made.cost.time.value)};
  for (const Node& node : body.nodes) {
    const OpKind kind = collective_kind(node.kind());
    if (kind == OpKind::Forward || node.bytes == 0) continue;
    const CollectiveCost& cost = collectives_.cost(node.kind(), node.axis, {node.bytes});
    if (cost.time.value == 0) continue;
    add_traffic(made.traffic,
                {.group = kind_along(node.axis),
                 .kind = kind,
                 .ranks = collectives_.group(node.axis).ranks,
                 .count = 1,
                 .bytes = collectives_.sent(node.kind(), node.axis, {node.bytes}).value,
                 .time = cost.time,
                 .link = cost.link,
                 .links = kinds_of(collectives_.group(node.axis).links)});
  }
  return made;
}

void PricedBodies::collect(const Op& op, Bodies& bodies) {
  const auto& segments = s_.segments[op.stage.index()];
  const std::size_t end =
      op.segment_end < 0 ? segments.size() : static_cast<std::size_t>(op.segment_end);
  for (std::size_t g = static_cast<std::size_t>(op.segment_begin); g < end; ++g) {
    bodies.push_back(&body(segments[g], op));
  }
}

const PricedBodies::Sum& PricedBodies::sum_of(const Bodies& bodies) {
  const auto [at, fresh] = sums_.try_emplace(bodies);
  Sum& made = at->second;
  if (!fresh) return made;
  std::vector<const BodyCost*> costs;
  for (const PricedBody* one : bodies) {
    costs.push_back(&one->cost);
    for (const Traffic& sent : one->traffic) add_traffic(made.traffic, sent);
  }
  made.cost = sum(costs);
  return made;
}

// Both bodies at once on one device. Where tokens travel to experts, two streams run side by side
// in the pair's order (pair_overlap.h). Else kernels run one after another, each waiting for
// collectives while the other computes: the time is what computes, or what communicates,
// whichever is longer, and what is hidden costs a share of itself, as any hidden collective does.
// Either way the host issues the kernels of both. overlap.pair leaves the former alone, or nothing:
// then the two follow one another.
BodyCost PricedBodies::paired(BodyCost both, std::span<const PricedBody* const> forward,
                              std::span<const PricedBody* const> backward) const {
  const auto pieces_of = [](std::span<const PricedBody* const> bodies) {
    std::vector<ExpertPieces> pieces;
    for (const PricedBody* one : bodies) pieces.push_back(one->pieces);
    return pieces;
  };
  const PairOverlap overlap = layout_.plan.overlap_pair;
  if (overlap == PairOverlap::None) return both;
  const std::vector<ExpertPieces> f = pieces_of(forward), b = pieces_of(backward);
  if (std::ranges::any_of(f, &ExpertPieces::travels) ||
      std::ranges::any_of(b, &ExpertPieces::travels)) {
    const KernelScalars& scalars = compute_.scalars();
    const PairCost cost = pair_cost(pair_up(f, b), {.compute = scalars.dispatch_slowdown,
                                                    .communication = scalars.dispatch_stretch});
    both.time = std::max(to_nanoseconds(cost.time), both.host);
    both.communicating = to_nanoseconds(cost.exposed);
    return both;
  }
  if (overlap == PairOverlap::Experts) return both;
  const std::int64_t computing = both.time.value - both.communicating.value;
  const Hidden hidden = hide(static_cast<double>(both.communicating.value),
                             static_cast<double>(computing), compute_.scalars().hidden_contention);
  both.communicating.value = static_cast<std::int64_t>(hidden.exposed);
  both.time = {computing + both.communicating.value + static_cast<std::int64_t>(hidden.contention)};
  both.time = std::max(both.time, both.host);
  return both;
}

}  // namespace rehearse::sim
