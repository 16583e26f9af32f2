// SPDX-License-Identifier: Apache-2.0
// Products, with the biases and the GELU that the backends fuse into them.
#include "exec/body/body_state.h"

#include <algorithm>

namespace rehearse::exec {

void OpCursor::State::linear(const Node& n) {
  if (n.parameter == ParameterRole::Router) {
    return kernels.router_logits(lane, n.m, n.n, n.k, r(n, 0), parameter(n), bias(n), floats(w(n)));
  }
  // The bias of a row-parallel product is added after the sum over tp; by the first rank where a
  // norm reads that sum.
  const bool row_parallel =
      n.parameter == ParameterRole::Projection || n.parameter == ParameterRole::Down;
  const bool first = shared.model.norm_placement != NormPlacement::Before && coordinate == 0;
  const std::byte* added = !row_parallel || first ? bias(n) : nullptr;
  if (node < body->nodes.size() && body->nodes[node].kernel == Kernel::Gelu) {
    const Node& activation = body->nodes[node++];
    return kernels.linear_gelu(lane, n.m, n.n, n.k, r(n, 0), parameter(n), added, w(n),
                               w(activation));
  }
  kernels.linear(lane, n.m, n.n, n.k, r(n, 0), parameter(n), added, w(n));
}

void OpCursor::State::linear_input(const Node& n) const {
  // What the activation's gradient reads is the gradient that Down's product makes, in place.
  const auto activation =
      std::find_if(body->nodes.begin() + static_cast<std::ptrdiff_t>(node), body->nodes.end(),
                   [&](const Node& next) {
                     return next.kernel == Kernel::GeluBackward && next.reads[0] == n.writes[0];
                   });
  if (activation != body->nodes.end()) {
    return kernels.linear_input_gelu(lane, n.m, n.k, n.n, r(n, 0), parameter(n), r(*activation, 1),
                                     w(n));
  }
  kernels.linear_input(lane, n.m, n.k, n.n, r(n, 0), parameter(n), w(n));
}

void OpCursor::State::linear_weight(const Node& n) const {
  kernels.linear_weight(lane, n.k, n.n, n.m, r(n, 0), r(n, 1), gradient(n));
  float* sums = bias_gradient(n);
  if (sums == nullptr) return;
  // Row-parallel: reads (gathered dy, x, own dy); column-parallel: (dy, gathered x).
  const bool row_parallel = n.reads.size() > 2;
  kernels.add_column_sums(lane, row_parallel ? shared.shape.local : n.k, n.n,
                          r(n, row_parallel ? 2 : 0), sums);
}

void OpCursor::State::logits(const Node& n) {
  if (n.kernel == Kernel::Logits) {
    kernels.logits(lane, n.m, n.n, n.k, element(r(n, 0), chunk * n.k), parameter(n), floats(w(n)));
    if (const double cap = shared.model.final_softcap; cap > 0) {
      kernels.softcap(lane, n.m * n.n, cap, floats(w(n)));
    }
  } else if (n.kernel == Kernel::LogitsInput) {
    kernels.linear_input(lane, n.m, n.k, n.n, r(n, 0), parameter(n), element(w(n), chunk * n.n));
  } else {
    kernels.linear_weight(lane, n.k, n.n, n.m, r(n, 0), element(r(n, 1), chunk * n.m), gradient(n));
    chunk += n.k;
  }
}

}  // namespace rehearse::exec
