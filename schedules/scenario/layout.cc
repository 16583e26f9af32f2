// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/layout.h"

#include <algorithm>

#include "schedules/model/layer_mix.h"
#include "schedules/model/parts.h"

namespace rehearse {
namespace {

// [B] of logits that a chunk of the loss may take in 16 bit.
constexpr std::int64_t kLogitBytes = std::int64_t{1} << 30;
constexpr std::int64_t kRowBytes = 128;  // that rows of logits begin at in 16 bit

std::int64_t rounded_up(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// Tokens of one chunk of the loss. `said`: chunks, where the plan says how many. Else: every
// chunk's products read the whole table and its gradient, and write the gradient, so chunks are as
// large as their logits may be. In 16 bit, which is mostly a GPU's, that is kLogitBytes, and all
// chunks are about as large. In fp32, which is mostly a CPU's, logits stay in the caches: they have
// as many elements as (n, h). A chunk has at least 256 rows (or half of all) then, so that its
// products stay efficient.
std::int64_t loss_chunk_tokens(const RankShape& shape, bool fp32, std::int64_t said) {
  const std::int64_t tokens = shape.tokens;
  if (shape.grid.any()) return tokens;  // every chunk would send the whole table around
  if (said > 1) return std::max<std::int64_t>(1, (tokens + said - 1) / said);
  const std::int64_t columns = std::max<std::int64_t>(shape.logit_columns, 1);
  if (!fp32) {
    const std::int64_t most = std::max<std::int64_t>(kLogitBytes / (shape.element * columns), 1);
    const std::int64_t chunks = (tokens + most - 1) / most;
    return chunks > 1 ? rounded_up((tokens + chunks - 1) / chunks, 128) : tokens;
  }
  const std::int64_t least = std::min<std::int64_t>((tokens + 1) / 2, 256);
  const std::int64_t chunk =
      std::clamp<std::int64_t>(tokens * shape.hidden / columns, least, tokens);
  return chunk >= 256 ? chunk / 128 * 128 : chunk;
}

// Without sequence parallelism the ranks of tp bring the same tokens, each to its part of all
// experts' matrices: q = t, e = 1 (expert_plan.cc).
ExpertShape expert_shape(const Transformer& model, const Plan& plan, const RankShape& shape) {
  const Experts& experts = model.experts;
  if (experts.count == 0) return {};
  const std::int64_t q = plan.expert_tensor_parallel;
  ExpertShape made;
  made.per_rank = std::max<std::int64_t>(1, experts.count / plan.expert_parallel);
  made.width = (experts.ffn_hidden + q - 1) / q;
  made.tokens = shape.local;
  made.copies = made.tokens * experts.per_token;
  made.bringing = shape.gather || shape.tensor == 1 ? q : 1;
  made.rows = made.copies * made.bringing;
  made.block = plan.expert_parallel * made.bringing;
  made.gathers_tokens = made.block > 1 && plan.expert_dispatch == ExpertDispatch::AllGather;
  made.sends_once = made.block > 1 && plan.expert_dispatch == ExpertDispatch::Deduplicated;
  made.routing = routing_of(experts);
  made.visits = static_cast<double>(made.tokens) *
                expected_parts(made.routing, plan.expert_parallel) / plan.expert_parallel;
  made.shared = (experts.shared_ffn_hidden + shape.tensor - 1) / shape.tensor;
  made.row = experts.latent > 0 ? experts.latent : model.hidden;
  return made;
}

RankShape rank_shape(const Transformer& model, const Plan& plan) {
  RankShape shape;
  const TensorGrid& grid = plan.tensor_parallel_2d;
  // Ranks that share columns, and those that share the rows of the table.
  const std::int64_t t = grid.any() ? grid.columns : plan.tensor_parallel;
  shape.element = plan.precision.compute == ComputeType::Fp32 ? 4 : 2;
  shape.tensor = plan.tensor_parallel;
  shape.grid = grid;
  shape.tokens = plan.microbatch_tokens() / std::max(plan.sequence_slices, 1);
  if (grid.any()) shape.tokens /= grid.rows;
  shape.gather = plan.sequence_parallel && t > 1;
  shape.local = shape.gather ? shape.tokens / t : shape.tokens;
  shape.streams = streams(model);
  shape.hidden = grid.any() ? model.hidden / t : model.hidden;
  shape.heads = model.heads / t;
  shape.kv_heads = std::max<std::int64_t>(model.kv_heads / t, 1);  // replicated where kv < t
  shape.head_dim = model.head_dim;
  shape.value_dim = model.value_dim();
  shape.gate = model.attention_gate ? shape.heads * shape.value_dim : 0;
  const std::int64_t values = model.keys_are_values ? 0 : shape.kv_heads * shape.value_dim;
  shape.qkv = (shape.heads + shape.kv_heads) * model.head_dim + values + shape.gate;
  shape.ffn = model.ffn_hidden / t;
  shape.up = matrices_up(model) * shape.ffn;
  shape.vocabulary = plan.padded_vocabulary / (grid.any() ? grid.rows : t);
  shape.logits = plan.padded_vocabulary / t;
  const bool fp32 = plan.precision.compute == ComputeType::Fp32;
  shape.logit_columns = fp32 ? shape.logits : rounded_up(shape.logits, kRowBytes / shape.element);
  shape.loss_chunk = loss_chunk_tokens(shape, fp32, plan.loss_chunks);
  shape.experts = expert_shape(model, plan, shape);
  return shape;
}

}  // namespace

Layout::Layout(const Transformer& of, const Plan& by)
    : model(of), plan(by), shape(rank_shape(of, by)) {}

std::int64_t Layout::key_value_replicas() const {
  if (plan.tensor_parallel_2d.any()) return 1;  // columns divide the key heads
  return std::max<std::int64_t>(plan.tensor_parallel / model.kv_heads, 1);
}

double step_flops(const Layout& layout, FlopsConvention convention) {
  Transformer trained = layout.model;
  trained.prediction_layers = layout.prediction_layers();
  return model_flops(trained, layout.plan.global_batch, layout.plan.sequence_length, convention);
}

}  // namespace rehearse
