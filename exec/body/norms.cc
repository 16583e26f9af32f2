// SPDX-License-Identifier: Apache-2.0
// Residual sums and norms; a sum and the norm that follows are one pass where memory allows.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "exec/body/node_rows.h"
#include "exec/body/token_rows.h"
#include "schedules/model/parts.h"

namespace rehearse::exec {
namespace {

// Is the next node the norm of the sum that `add` makes, so that both can be one pass? What it
// writes must not lie where the sum's operands do: workspace is planned for one node at a time.
bool norm_follows(const OpView& op, const Node& add) {
  const bool within = op.carry.next < op.body->nodes.size();
  const bool forward = op.compute->kind == OpKind::Forward;
  if (!within && (!forward || op.segment + 1 >= op.compute->segments.size())) return false;
  const Body& after = within ? *op.body : op.body_of(op.segment + 1, Direction::Forward);
  const Node& next = after.nodes[within ? op.carry.next : 0];
  if (next.kernel != Kernel::Norm || (within && next.reads[0] != add.writes[0])) return false;
  return std::ranges::none_of(next.writes, [&](std::int16_t written) {
    const BodyTensor& out = after.tensors[static_cast<std::size_t>(written)];
    if (!within) return out.home == TensorHome::Workspace;
    return std::ranges::any_of(add.reads,
                               [&](std::int16_t read) { return overlap(op.tensor(read), out); });
  });
}

// What the node drops of rows that begin at token `first` of the step's batch.
DropoutShape dropout_shape(const OpView& op, const Node& n, std::int64_t first) {
  const DropoutRates& rates = op.shared.plan.dropouts;
  const bool embedding = n.parameter == ParameterRole::Table;
  const double rate = n.parameter == ParameterRole::None ? 0
                      : embedding                        ? rates.embedding
                                                         : rates.residual;
  if (rate == 0) return {};
  const DropoutSite site = embedding                                  ? DropoutSite::Embedding
                           : n.parameter == ParameterRole::Projection ? DropoutSite::AttentionOutput
                                                                      : DropoutSite::MlpOutput;
  DropoutShape shape =
      dropout_of(rate, static_cast<std::uint64_t>(op.facts.seed), op.facts.step, op.layer(), site);
  shape.first = first;
  return shape;
}

struct NormForm {
  std::int64_t width = 0;  // columns of a row
  double epsilon = 0;
};

NormForm norm_form(const OpView& op, const Node& n) {
  const LatentAttention& latent = op.shared.model.latent;
  switch (n.parameter) {
    case ParameterRole::QueryDownNorm:
      return {latent.q_lora_rank, LatentAttention::kNormEpsilon};
    case ParameterRole::KeyValueDownNorm:
      return {compressed_key_value_columns(op.shared.model), LatentAttention::kNormEpsilon};
    default:
      return {op.shared.shape.hidden, op.shared.model.norm_epsilon};
  }
}

// RMSNorm's, of its weight.
double weight_offset(const OpView& op) {
  return op.shared.model.norm_from_one ? 1 : 0;
}

}  // namespace

void dropout(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  for_tokens(op, first_row(op), s.local,
             [&](std::int64_t row, std::int64_t rows, std::int64_t token) {
               op.kernels.dropout(op.lane, rows, s.hidden, dropout_shape(op, n, token),
                                  op.element(op.in(n, 0), row * s.hidden),
                                  op.element(op.out(n), row * s.hidden));
             });
}

void copy(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  op.kernels.copy_columns(op.lane, s.local, s.hidden, op.in(n, 0), s.hidden, op.out(n), s.hidden);
}

void add_residual(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  // Where a norm is behind the block, its last product has added the bias.
  const bool with_bias = op.shared.model.norm_placement == NormPlacement::Before;
  SumNorm whole{.rows = s.local,
                .h = s.hidden,
                .x = op.in(n, 0),
                .y = op.own(n, 1),
                .bias = with_bias ? op.bias(n) : nullptr,
                .sum = op.out(n)};
  for_tokens(op, first_row(op), 1, [&](std::int64_t, std::int64_t, std::int64_t token) {
    whole.dropout = dropout_shape(op, n, token);
  });
  if (one_run(op) && norm_follows(op, n)) {
    op.carry.sum = whole;
    return;
  }
  if (one_run(op) || whole.dropout.threshold == 0) {
    return op.kernels.add_residual(op.lane, s.local, s.hidden, whole.x, whole.y, whole.bias,
                                   whole.dropout, whole.sum);
  }
  for_tokens(
      op, first_row(op), s.local, [&](std::int64_t row, std::int64_t rows, std::int64_t token) {
        op.kernels.add_residual(op.lane, rows, s.hidden, op.element(op.in(n, 0), row * s.hidden),
                                op.element(op.own(n, 1), row * s.hidden), whole.bias,
                                dropout_shape(op, n, token), op.element(op.out(n), row * s.hidden));
      });
}

void norm(const OpView& op, const Node& n) {
  const Transformer& m = op.shared.model;
  const RankShape& s = op.shared.shape;
  if (n.writes.size() > 2) {  // its backward reads no parameters
    op.kernels.copy_columns(op.lane, 1, s.hidden, op.parameter(n), s.hidden, op.out(n, 2),
                            s.hidden);
  }
  if (op.carry.sum.rows > 0) {
    SumNorm both = std::exchange(op.carry.sum, {});
    both.weight = op.parameter(n);
    both.norm_bias = op.bias(n);
    both.epsilon = m.norm_epsilon;
    both.out = op.out(n, 0);
    both.statistics = floats(op.out(n, 1));
    both.weight_offset = weight_offset(op);
    return m.norm == NormKind::LayerNorm ? op.kernels.add_layer_norm(op.lane, both)
                                         : op.kernels.add_rms_norm(op.lane, both);
  }
  const auto [width, epsilon] = norm_form(op, n);
  if (m.norm == NormKind::LayerNorm) {
    op.kernels.layer_norm(op.lane, s.local, width, op.in(n, 0), op.parameter(n), op.bias(n),
                          epsilon, op.out(n, 0), floats(op.out(n, 1)));
  } else {
    op.kernels.rms_norm(op.lane, s.local, width, op.in(n, 0), op.parameter(n), weight_offset(op),
                        epsilon, op.out(n, 0), floats(op.out(n, 1)));
  }
}

// Reads dy, x, statistics, and the residual's gradient where it joins; the embedding's norm its
// weight instead.
void norm_backward(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  const bool kept_weight = n.parameter == ParameterRole::EmbeddingNorm;
  const std::int64_t width = norm_form(op, n).width;
  const std::byte* dy = op.own(n, 0, width);
  const std::byte* weight = kept_weight ? op.in(n, 3) : op.parameter(n);
  const std::byte* residual = n.reads.size() > 3 && !kept_weight ? op.in(n, 3) : nullptr;
  const float* statistics = floats(op.in(n, 2));
  if (op.shared.model.norm == NormKind::LayerNorm) {
    op.kernels.layer_norm_backward(op.lane, s.local, width, dy, op.in(n, 1), statistics, weight,
                                   residual, op.out(n), op.gradient(n), op.bias_gradient(n));
  } else {
    op.kernels.rms_norm_backward(op.lane, s.local, width, dy, op.in(n, 1), statistics, weight,
                                 weight_offset(op), residual, op.out(n), op.gradient(n));
  }
}

}  // namespace rehearse::exec
