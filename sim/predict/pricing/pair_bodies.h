// SPDX-License-Identifier: Apache-2.0
// Bodies of a forward and a backward that run as a pair, cut where tokens travel to the experts and
// back: the pieces that sim/cost/pair_overlap.h sets side by side.
#pragma once

#include <span>
#include <vector>

#include "schedules/body/body.h"
#include "sim/compute/body_cost.h"
#include "sim/cost/pair_overlap.h"

namespace rehearse::sim {

// A body in the order in which it runs. Of its collectives over the expert axis, neighbours count
// as one; the two longest are those of the tokens, to their experts and home. Shorter ones (counts)
// are part of what computes. [ns]
struct ExpertPieces {
  double before = 0;  // what computes until the tokens leave; all of a body that sends none
  double to_experts = 0;
  double between = 0;  // but for weight gradients
  double weight_gradient = 0;
  double home = 0;
  double after = 0;
  bool travels() const { return to_experts + home > 0; }
};

// Whether the body has collectives over the expert axis; one without is a single piece.
bool sends_tokens(const Body& body);
// `prices`: of the body's nodes, each alone (ComputeModel::price_nodes); `time`: of the body, of
// which all that does not travel is dealt to the pieces as the nodes' prices are.
ExpertPieces cut_at_experts(const Body& body, std::span<const NodePrice> prices, Nanoseconds time);

// The layers of a pair: the i-th body of the forward beside the i-th of the backward, in the order
// in which each runs. What a body computes after its tokens came home is part of the next one.
std::vector<PairedLayers> pair_up(std::span<const ExpertPieces> forward,
                                  std::span<const ExpertPieces> backward);

}  // namespace rehearse::sim
