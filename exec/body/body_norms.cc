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

DropoutShape OpCursor::State::dropout_shape(const Node& n, std::int64_t first) const {
  const DropoutRates& rates = shared.plan.dropouts;
  const bool embedding = n.parameter == ParameterRole::Table;
  const double rate = n.parameter == ParameterRole::None ? 0
                      : embedding                        ? rates.embedding
                                                         : rates.residual;
  if (rate == 0) return {};
  const DropoutSite site = embedding                                  ? DropoutSite::Embedding
                           : n.parameter == ParameterRole::Projection ? DropoutSite::AttentionOutput
                                                                      : DropoutSite::MlpOutput;
  DropoutShape shape = dropout_of(rate, static_cast<std::uint64_t>(seed), step, layer(), site);
  shape.first = first;
  return shape;
}

void OpCursor::State::dropout(const Node& n) const {
  const RankShape& s = shared.shape;
  for_tokens(first_row(), s.local, [&](std::int64_t row, std::int64_t rows, std::int64_t token) {
    kernels.dropout(lane, rows, s.hidden, dropout_shape(n, token), element(r(n, 0), row * s.hidden),
                    element(w(n), row * s.hidden));
  });
}

void OpCursor::State::add_residual(const Node& n) {
  const RankShape& s = shared.shape;
  // Where a norm is behind the block, its last product has added the bias.
  const bool with_bias = shared.model.norm_placement == NormPlacement::Before;
  sum = {.rows = s.local,
         .h = s.hidden,
         .x = r(n, 0),
         .y = own(n, 1),
         .bias = with_bias ? bias(n) : nullptr,
         .sum = w(n)};
  for_tokens(first_row(), 1, [&](std::int64_t, std::int64_t, std::int64_t token) {
    sum.dropout = dropout_shape(n, token);
  });
  const SumNorm whole = sum;
  if (one_run() && norm_follows(n)) return;
  sum = {};
  if (one_run() || whole.dropout.threshold == 0) {
    return kernels.add_residual(lane, s.local, s.hidden, whole.x, whole.y, whole.bias,
                                whole.dropout, whole.sum);
  }
  for_tokens(first_row(), s.local, [&](std::int64_t row, std::int64_t rows, std::int64_t token) {
    kernels.add_residual(lane, rows, s.hidden, element(r(n, 0), row * s.hidden),
                         element(own(n, 1), row * s.hidden), whole.bias, dropout_shape(n, token),
                         element(w(n), row * s.hidden));
  });
}

std::pair<std::int64_t, double> OpCursor::State::norm_form(const Node& n) const {
  const LatentAttention& latent = shared.model.latent;
  switch (n.parameter) {
    case ParameterRole::QueryDownNorm:
      return {latent.q_lora_rank, LatentAttention::kNormEpsilon};
    case ParameterRole::KeyValueDownNorm:
      return {latent.kv_lora_rank, LatentAttention::kNormEpsilon};
    default:
      return {shared.shape.hidden, shared.model.norm_epsilon};
  }
}

void OpCursor::State::norm(const Node& n) {
  const Transformer& m = shared.model;
  const RankShape& s = shared.shape;
  const auto [width, epsilon] = norm_form(n);
  const double offset = m.norm_from_one ? 1 : 0;
  if (n.writes.size() > 2) {  // its backward reads no parameters
    kernels.copy_columns(lane, 1, s.hidden, parameter(n), s.hidden, w(n, 2), s.hidden);
  }
  if (sum.rows > 0) {
    sum.weight = parameter(n);
    sum.norm_bias = bias(n);
    sum.epsilon = m.norm_epsilon;
    sum.out = w(n, 0);
    sum.statistics = floats(w(n, 1));
    sum.weight_offset = offset;
    const SumNorm both = std::exchange(sum, {});
    return m.norm == NormKind::LayerNorm ? kernels.add_layer_norm(lane, both)
                                         : kernels.add_rms_norm(lane, both);
  }
  if (m.norm == NormKind::LayerNorm) {
    kernels.layer_norm(lane, s.local, width, r(n, 0), parameter(n), bias(n), epsilon, w(n, 0),
                       floats(w(n, 1)));
  } else {
    kernels.rms_norm(lane, s.local, width, r(n, 0), parameter(n), offset, epsilon, w(n, 0),
                     floats(w(n, 1)));
  }
}

// Reads dy, x, statistics, and the residual's gradient where it joins; the embedding's norm its
// weight instead.
void OpCursor::State::norm_backward(const Node& n) const {
  const RankShape& s = shared.shape;
  const bool kept_weight = n.parameter == ParameterRole::EmbeddingNorm;
  const std::int64_t width = norm_form(n).first;
  const std::byte* dy = own(n, 0, width);
  const std::byte* weight = kept_weight ? r(n, 3) : parameter(n);
  const std::byte* residual = n.reads.size() > 3 && !kept_weight ? r(n, 3) : nullptr;
  if (shared.model.norm == NormKind::LayerNorm) {
    kernels.layer_norm_backward(lane, s.local, width, dy, r(n, 1), floats(r(n, 2)), weight,
                                residual, w(n), gradient(n), bias_gradient(n));
  } else {
    kernels.rms_norm_backward(lane, s.local, width, dy, r(n, 1), floats(r(n, 2)), weight,
                              shared.model.norm_from_one ? 1 : 0, residual, w(n), gradient(n));
  }
}

}  // namespace rehearse::exec
