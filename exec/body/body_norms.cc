// SPDX-License-Identifier: Apache-2.0
// Residual sums and norms; a sum and the norm that follows are one pass where memory allows.
#include "exec/body/body_state.h"

#include <algorithm>
#include <utility>

namespace rehearse::exec {

bool OpCursor::State::norm_follows(const Node& add) const {
  const bool within = node < body->nodes.size();
  if (!within && (!forward() || visited + 1 >= segments().size())) return false;
  const Body& after = within ? *body : body_of(visited + 1, Direction::Forward);
  const Node& next = after.nodes[within ? node : 0];
  if (next.kernel != Kernel::Norm || (within && next.reads[0] != add.writes[0])) return false;
  const auto tensor = [](const Body& of, std::int16_t i) -> const BodyTensor& {
    return of.tensors[static_cast<std::size_t>(i)];
  };
  return std::ranges::none_of(next.writes, [&](std::int16_t written) {
    const BodyTensor& out = tensor(after, written);
    if (!within) return out.home == TensorHome::Workspace;
    return std::ranges::any_of(add.reads, [&](std::int16_t read) {
      const BodyTensor& in = tensor(*body, read);
      return in.home == out.home && in.offset < out.offset + out.bytes &&
             out.offset < in.offset + in.bytes;
    });
  });
}

void OpCursor::State::add_residual(const Node& n) {
  const RankShape& s = shared.shape;
  sum = {
      .rows = s.local, .h = s.hidden, .x = r(n, 0), .y = own(n, 1), .bias = bias(n), .sum = w(n)};
  if (norm_follows(n)) return;
  kernels.add_residual(lane, s.local, s.hidden, sum.x, sum.y, sum.bias, sum.sum);
  sum = {};
}

void OpCursor::State::norm(const Node& n) {
  const Transformer& m = shared.model;
  const RankShape& s = shared.shape;
  if (sum.rows > 0) {
    sum.weight = parameter(n);
    sum.norm_bias = bias(n);
    sum.epsilon = m.norm_epsilon;
    sum.out = w(n, 0);
    sum.statistics = floats(w(n, 1));
    const SumNorm both = std::exchange(sum, {});
    return m.norm == NormKind::LayerNorm ? kernels.add_layer_norm(lane, both)
                                         : kernels.add_rms_norm(lane, both);
  }
  if (m.norm == NormKind::LayerNorm) {
    kernels.layer_norm(lane, s.local, s.hidden, r(n, 0), parameter(n), bias(n), m.norm_epsilon,
                       w(n, 0), floats(w(n, 1)));
  } else {
    kernels.rms_norm(lane, s.local, s.hidden, r(n, 0), parameter(n), m.norm_epsilon, w(n, 0),
                     floats(w(n, 1)));
  }
}

void OpCursor::State::norm_backward(const Node& n) const {
  const RankShape& s = shared.shape;
  const bool with_residual = n.reads.size() > 3;  // the model's last norm has none
  const std::byte* dy = with_residual ? own(n, 0) : r(n, 0);
  const std::byte* residual = with_residual ? r(n, 3) : nullptr;
  if (shared.model.norm == NormKind::LayerNorm) {
    kernels.layer_norm_backward(lane, s.local, s.hidden, dy, r(n, 1), floats(r(n, 2)), parameter(n),
                                residual, w(n), gradient(n), bias_gradient(n));
  } else {
    kernels.rms_norm_backward(lane, s.local, s.hidden, dy, r(n, 1), floats(r(n, 2)), parameter(n),
                              residual, w(n), gradient(n));
  }
}

}  // namespace rehearse::exec
