// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/pricing/body_collectives.h"

#include <cmath>

namespace rehearse::sim {

BodyCollectives::BodyCollectives(const Network& network, const Layout& layout)
    : network_(network),
      dispatcher_(static_cast<Dispatcher>(layout.plan.expert_dispatch)),
      hidden_(layout.shape.experts.row),
      tokens_(layout.shape.experts.tokens),
      slots_(layout.plan.expert_slots),
      balance_(balance_of(layout)) {}

const GroupShape& BodyCollectives::group(Axis axis) {
  std::optional<GroupShape>& shape = shapes_[static_cast<std::size_t>(axis)];
  if (!shape) shape = network_.group(RankClass{0}, axis);
  return *shape;
}

const CollectiveCost& BodyCollectives::cost(NodeKind kind, Axis axis, Bytes payload) {
  const Key key{static_cast<std::int64_t>(kind), static_cast<std::int64_t>(axis), payload.value};
  const auto [at, fresh] = known_.try_emplace(key);
  if (fresh) at->second = price(kind, group(axis), payload);
  return at->second;
}

CollectiveCost BodyCollectives::price(NodeKind kind, const GroupShape& group, Bytes payload) const {
  switch (kind) {
    case NodeKind::RingExchange:
      return ring_shift_cost(payload, group, network_);
    case NodeKind::Dispatch:
    case NodeKind::Combine: {
      // With slots all that is sent is the payload, alike on every rank.
      if (slots_) {
        return dispatch_cost(Dispatcher::AllToAll,
                             {.tokens = payload.value, .hidden = 1, .bytes_per_value = 1}, group,
                             network_)
            .cost;
      }
      const double values = static_cast<double>(hidden_ * tokens_ * balance_.routing.per_token);
      return dispatch_cost(dispatcher_,
                           {.tokens = tokens_,
                            .hidden = hidden_,
                            .bytes_per_value = static_cast<double>(payload.value) / values,
                            .routing = balance_.routing,
                            .load = balance_.rows(static_cast<double>(tokens_)).busiest},
                           group, network_)
          .cost;
    }
    default:
      return collective_cost(collective_kind(kind), payload, group, network_);
  }
}

Bytes BodyCollectives::sent(NodeKind kind, Axis axis, Bytes payload) {
  const bool tokens = kind == NodeKind::Dispatch || kind == NodeKind::Combine;
  if (!tokens || slots_) return payload;
  const double kept =
      static_cast<double>(payload.value) * balance_.rows(static_cast<double>(tokens_)).mean;
  if (dispatcher_ != Dispatcher::Deduplicated) return {std::llround(kept)};
  return {std::llround(kept * expected_parts(balance_.routing, group(axis).ranks) /
                       balance_.routing.per_token)};
}

}  // namespace rehearse::sim
