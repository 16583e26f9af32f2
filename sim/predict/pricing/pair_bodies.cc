// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/pricing/pair_bodies.h"

#include <algorithm>

namespace rehearse::sim {
namespace {

// Collectives over the expert axis with nothing between them.
struct Stretch {
  std::size_t begin = 0, end = 0;  // nodes
  double ns = 0;
};

bool over_experts(const Node& node) {
  return collective_kind(node.kind()) != OpKind::Forward && node.axis == Axis::Expert;
}

std::vector<Stretch> stretches_of(const Body& body, std::span<const NodePrice> prices) {
  std::vector<Stretch> all;
  for (std::size_t i = 0; i < body.nodes.size(); ++i) {
    if (!over_experts(body.nodes[i])) continue;
    const auto ns = static_cast<double>(prices[i].time.value);
    if (!all.empty() && all.back().end == i) {
      all.back().end = i + 1;
      all.back().ns += ns;
    } else {
      all.push_back({i, i + 1, ns});
    }
  }
  std::ranges::stable_sort(all, std::greater<>(), &Stretch::ns);
  if (all.size() > 2) all.resize(2);
  std::ranges::sort(all, std::less<>(), &Stretch::begin);
  return all;
}

}  // namespace

bool sends_tokens(const Body& body) {
  return std::ranges::any_of(body.nodes, over_experts);
}

ExpertPieces cut_at_experts(const Body& body, std::span<const NodePrice> prices, Nanoseconds time) {
  ExpertPieces pieces;
  const std::vector<Stretch> travels = stretches_of(body, prices);
  const auto whole = static_cast<double>(time.value);
  if (travels.size() < 2) {
    pieces.before = whole;
    return pieces;
  }
  pieces.to_experts = travels[0].ns;
  pieces.home = travels[1].ns;
  double computes = 0;
  for (std::size_t i = 0; i < body.nodes.size(); ++i) {
    const bool out = i >= travels[0].begin, back = i >= travels[1].begin;
    if ((out && i < travels[0].end) || (back && i < travels[1].end)) continue;
    const auto ns = static_cast<double>(prices[i].time.value);
    const bool weight = out && !back && body.nodes[i].phase == NodePhase::Weight;
    (weight ? pieces.weight_gradient
     : back ? pieces.after
     : out  ? pieces.between
            : pieces.before) += ns;
    computes += ns;
  }
  const double left = std::max(0.0, whole - pieces.to_experts - pieces.home);
  const double scale = computes > 0 ? left / computes : 0;
  for (double* part : {&pieces.before, &pieces.between, &pieces.weight_gradient, &pieces.after}) {
    *part *= scale;
  }
  return pieces;
}

std::vector<PairedLayers> pair_up(std::span<const ExpertPieces> forward,
                                  std::span<const ExpertPieces> backward) {
  // One layer before the first holds what the backward computes until its first tokens leave, one
  // after the last what the forward computes when its last ones are home.
  std::vector<PairedLayers> layers(std::max(forward.size(), backward.size()) + 2);
  for (std::size_t i = 0; i < forward.size(); ++i) {
    PairedLayers& here = layers[i + 1];
    here.attention_forward += forward[i].before;
    here.dispatch_forward = forward[i].to_experts;
    here.experts_forward = forward[i].between + forward[i].weight_gradient;
    here.combine_forward = forward[i].home;
    layers[i + 2].attention_forward += forward[i].after;
  }
  for (std::size_t i = 0; i < backward.size(); ++i) {
    PairedLayers& here = layers[i + 1];
    layers[i].attention_backward += backward[i].before;
    here.combine_backward = backward[i].to_experts;
    here.experts_backward = backward[i].between;
    here.weight_gradient = backward[i].weight_gradient;
    here.dispatch_backward = backward[i].home;
    here.attention_backward += backward[i].after;
  }
  return layers;
}

}  // namespace rehearse::sim
