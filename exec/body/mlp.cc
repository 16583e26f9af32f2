// SPDX-License-Identifier: Apache-2.0
// Activations of an MLP: of a dense one, of shared experts, or of routed ones.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "exec/body/experts.h"
#include "exec/body/node_rows.h"

namespace rehearse::exec {
namespace {

struct MlpShape {
  std::int64_t rows = 0, width = 0;
};

// The rows that the node works on; routed experts' first ones are argument `begin`, which others
// lack. Where the host cannot read them, all that there is room for.
MlpShape mlp_shape(const OpView& op, const Node& n, std::size_t begin) {
  const RankShape& s = op.shared.shape;
  if (n.reads.size() > begin) {
    const bool unread = op.device.asynchronous();
    return {unread ? op.shared.room.rows : last_of(op, n, begin), s.experts.width};
  }
  const bool experts = op.shared.model.has_experts(op.info().layer);
  return {s.tokens, experts ? s.experts.shared : s.ffn};
}

bool clamps(const OpView& op, const Node& n) {
  return op.shared.model.experts.glu_limit > 0 && n.routed;
}

ClampedGlu clamped_glu(const OpView& op, const MlpShape& shape) {
  const Experts& experts = op.shared.model.experts;
  return {.rows = shape.rows,
          .f = shape.width,
          .alpha = static_cast<float>(experts.glu_alpha),
          .limit = static_cast<float>(experts.glu_limit)};
}

}  // namespace

void gated_activation(const OpView& op, const Node& n) {
  const MlpShape shape = mlp_shape(op, n, 1);
  if (clamps(op, n)) {
    return op.kernels.clamped_glu(op.lane, clamped_glu(op, shape), op.in(n, 0), op.out(n));
  }
  op.kernels.gated(op.lane, op.shared.model.activation, shape.rows, shape.width, op.in(n, 0),
                   op.out(n));
}

void gated_activation_backward(const OpView& op, const Node& n) {
  const MlpShape shape = mlp_shape(op, n, 2);
  if (clamps(op, n)) {
    return op.kernels.clamped_glu_backward(op.lane, clamped_glu(op, shape), op.in(n, 0),
                                           op.in(n, 1), op.out(n));
  }
  op.kernels.gated_backward(op.lane, op.shared.model.activation, shape.rows, shape.width,
                            op.in(n, 0), op.in(n, 1), op.out(n));
}

void activation(const OpView& op, const Node& n) {
  const MlpShape shape = mlp_shape(op, n, 1);
  op.kernels.activation(op.lane, op.shared.model.activation, shape.rows * shape.width, op.in(n, 0),
                        op.out(n));
}

void gelu(const OpView& op, const Node& n) {
  if (!std::exchange(op.carry.gelu, false)) activation(op, n);
}

void activation_backward(const OpView& op, const Node& n) {
  const MlpShape shape = mlp_shape(op, n, 2);
  op.kernels.activation_backward(op.lane, op.shared.model.activation, shape.rows * shape.width,
                                 op.in(n, 0), op.in(n, 1), op.out(n));
}

}  // namespace rehearse::exec
