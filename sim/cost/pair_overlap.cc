// SPDX-License-Identifier: Apache-2.0
// Both streams in their order, from one piece's end to the next.
#include "sim/cost/pair_overlap.h"

#include <algorithm>
#include <vector>

namespace rehearse::sim {
namespace {

struct Piece {
  double ns = 0;
  std::size_t after = 0;  // pieces of the other stream that must have ended
};

struct Streams {
  std::vector<Piece> compute, communication;
};

// Positions in the order of the header's picture: 5 pieces of compute and 4 of communication a
// layer.
Streams streams_of(std::span<const PairedLayers> layers) {
  Streams s;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const PairedLayers& l = layers[i];
    const std::size_t compute = 5 * i, communication = 4 * i;
    s.compute.push_back({l.attention_forward, communication});     // the last combine_forward
    s.compute.push_back({l.experts_backward, communication + 1});  // combine_backward
    s.compute.push_back({l.weight_gradient, 0});
    s.compute.push_back({l.experts_forward, communication + 2});     // dispatch_forward
    s.compute.push_back({l.attention_backward, communication + 3});  // dispatch_backward
    s.communication.push_back({l.combine_backward, compute});        // the last attention_backward
    s.communication.push_back({l.dispatch_forward, compute + 1});    // attention_forward
    s.communication.push_back({l.dispatch_backward, compute + 2});   // experts_backward
    s.communication.push_back({l.combine_forward, compute + 4});     // experts_forward
  }
  return s;
}

// One stream on its way: the piece that it is at, and what is left of it.
struct Cursor {
  const std::vector<Piece>* pieces = nullptr;
  std::size_t at = 0;
  double left = 0;

  bool done() const { return at == pieces->size(); }
  bool may_run(const Cursor& other) const { return !done() && other.at >= (*pieces)[at].after; }
  void begin() { left = done() ? 0 : (*pieces)[at].ns; }
  void next() {
    ++at;
    begin();
  }
};

}  // namespace

PairCost pair_cost(std::span<const PairedLayers> layers, const PairSharing& sharing) {
  const Streams streams = streams_of(layers);
  Cursor compute{&streams.compute}, communication{&streams.communication};
  compute.begin();
  communication.begin();
  PairCost cost;
  // A piece waits for earlier pieces alone, so one of the two can always run.
  while (!compute.done() || !communication.done()) {
    const bool computes = compute.may_run(communication);
    const bool moves = communication.may_run(compute);
    const double compute_rate = moves ? 1 - sharing.compute : 1;
    const double move_rate = computes ? 1 - sharing.communication : 1;
    double passed = computes ? compute.left / compute_rate : communication.left / move_rate;
    if (moves) passed = std::min(passed, communication.left / move_rate);
    const bool compute_ends = computes && compute.left <= passed * compute_rate;
    const bool move_ends = moves && communication.left <= passed * move_rate;
    cost.time += passed;
    if (moves && !computes) cost.exposed += passed;
    if (moves && computes) cost.contention += passed * sharing.compute;
    if (computes) compute.left -= passed * compute_rate;
    if (moves) communication.left -= passed * move_rate;
    if (compute_ends) compute.next();
    if (move_ends) communication.next();
  }
  return cost;
}

double unpaired_time(std::span<const PairedLayers> layers) {
  const Streams streams = streams_of(layers);
  double time = 0;
  for (const Piece& piece : streams.compute) time += piece.ns;
  for (const Piece& piece : streams.communication) time += piece.ns;
  return time;
}

}  // namespace rehearse::sim
