// SPDX-License-Identifier: Apache-2.0
// Tensor parallel ranks on a grid (plan key tensor_parallel_2d): its sizes, what they must divide,
// and what does not go together with it.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "schedules/model/layer_mix.h"
#include "schedules/model/parts.h"
#include "schedules/scenario/reader/given_keys.h"
#include "schedules/scenario/reader/plan_steps.h"

namespace rehearse {
namespace {

constexpr auto kGrid = &Plan::tensor_parallel_2d;

// What of a model no rank of a grid computes; empty: nothing.
std::string lacks(const Transformer& model) {
  const std::pair<bool, std::string_view> beyond[] = {
      {variants(model) > 0 || !beyond_plain_layers(model).empty(), "layers of several kinds"},
      {!model.has_attention || !model.has_mlp, "layers without attention or without an MLP"},
      {model.experts.count > 0, "experts"},
      {model.latent.used(), "latent attention"},
      {model.query_key_norm || model.query_key_norm_whole || model.query_key_unit_norm,
       "norms of queries and keys"},
      {model.attention_gate, "gates of heads"},
      {model.attention_sinks, "attention sinks"},
      {model.embedding_norm, "a norm behind the embedding"},
      {model.final_softcap > 0, "soft caps of logits"},
      {model.prediction_layers > 0, "layers that predict further tokens"}};
  for (const auto& [is, what] : beyond) {
    if (is) return std::string(what);
  }
  return {};
}

// What of the plan does not go together with it; empty: nothing.
std::string unfit(const Plan& plan) {
  const std::pair<bool, std::string_view> beyond[] = {
      {plan.sequence_parallel, "sequence_parallel: norms and sums have a rank's part already"},
      {plan.context_parallel > 1, "context_parallel: attention is local to a row of the grid"},
      {plan.sequence_slices > 1, "sequence_slices: a row of the grid has whole samples"},
      {plan.overlap_tensor_parallel == TensorOverlap::Chunked,
       "overlap.tensor_parallel true: a product is in panels already"},
      {plan.loss_chunks > 1, "loss_chunks: every chunk would send the whole table around"},
      {plan.dropouts.any(), "dropout: 0 leaves it out"}};
  for (const auto& [is, what] : beyond) {
    if (is) return std::string(what);
  }
  return {};
}

void check_divides(const GivenKeys& keys, const Transformer& model, const Plan& plan) {
  const std::int64_t r = plan.tensor_parallel_2d.rows, c = plan.tensor_parallel_2d.columns;
  const auto divides = [&](const std::string& who, std::int64_t size, std::string_view what,
                           std::int64_t value) {
    if (value % size == 0) return true;
    keys.fail(kGrid, who + " " + number(size) + (who.ends_with('s') ? " do" : " does") +
                         " not divide " + std::string(what) + " " + number(value));
    return false;
  };
  // Vectors are cut by columns, and each cut by rows; the same holds of what products sum over.
  const std::string both = "rows x columns";
  if (!divides("columns", c, "num_attention_heads", model.heads) ||
      !divides("columns", c, "num_key_value_heads", model.kv_heads) ||
      !divides(both, r * c, "hidden_size", model.hidden) ||
      !divides(both, r * c, "intermediate_size", model.ffn_hidden) ||
      !divides(both, r * c, "the columns of all heads", model.heads * model.value_dim())) {
    return;
  }
  const std::vector<ModelPart> parts = layer_parts(model, 0);
  const ModelPart* qkv = find_part(parts, ParameterRole::Qkv);
  if (model.qkv_bias && qkv != nullptr &&
      !divides(both, r * c, "the columns of queries, keys and values", qkv->out)) {
    return;
  }
  if (model.positions == PositionKind::Learned) {
    divides("rows", r, "max_position_embeddings", model.max_positions);
  }
}

}  // namespace

std::int32_t said_gpus_of_a_replica(const JsonValue& plan) {
  std::int64_t product = 1;
  const auto times = [&](const JsonValue& size) {
    product = std::min<std::int64_t>(product * size.integer, 1 << 20);
  };
  const JsonValue* grid = given_in(plan, kGrid);
  if (given_in(plan, &Plan::tensor_parallel) == nullptr && grid != nullptr &&
      grid->items.size() == 2) {
    for (const JsonValue& size : grid->items) times(size);
  }
  for (const auto key :
       {&Plan::tensor_parallel, &Plan::pipeline_parallel, &Plan::context_parallel}) {
    if (const JsonValue* size = given_in(plan, key)) times(*size);
  }
  return static_cast<std::int32_t>(product);
}

void read_tensor_grid(const GivenKeys& keys, Plan& plan) {
  const JsonValue* value = keys.given(kGrid);
  if (value == nullptr) return;
  if (value->items.size() != 2) {
    return keys.fail(kGrid, "must be [rows, columns], not a list of " +
                                number(static_cast<std::int64_t>(value->items.size())));
  }
  const std::int64_t rows = value->items[0].integer, columns = value->items[1].integer;
  const JsonValue* said = keys.given(&Plan::tensor_parallel);
  if (said != nullptr && rows * columns != plan.tensor_parallel) {
    return keys.fail(kGrid, "rows x columns = " + product({rows, columns}) + " = " +
                                number(rows * columns) + ", but tensor_parallel is " +
                                number(plan.tensor_parallel));
  }
  if (rows * columns == 1) return;  // one rank
  plan.tensor_parallel_2d = {static_cast<std::int32_t>(rows), static_cast<std::int32_t>(columns)};
  plan.tensor_parallel = static_cast<std::int32_t>(rows * columns);
  if (keys.context.model == nullptr) return;
  const Transformer& model = *keys.context.model;
  if (const std::string what = lacks(model); !what.empty()) {
    return keys.fail(kGrid, what + " are not cut on a grid", true);
  }
  check_divides(keys, model, plan);
}

void check_tensor_grid(const GivenKeys& keys, Plan& plan) {
  if (!plan.tensor_parallel_2d.any()) return;
  if (!plan.runtime.performer().own_kernels) {
    return keys.fail(kGrid,
                     "is of runtime rehearse: no framework that is known runs it today, not " +
                         plan.runtime.name,
                     true);
  }
  if (const std::string what = unfit(plan); !what.empty()) {
    return keys.fail(kGrid, "does not go together with " + what, true);
  }
  const std::int32_t rows = plan.tensor_parallel_2d.rows;
  const std::int64_t samples =
      plan.micro_batch_auto ? plan.global_batch / plan.data_parallel : plan.micro_batch;
  if (samples % rows != 0) {
    return keys.fail(kGrid, "rows " + number(rows) + " do not divide the samples of a " +
                                (plan.micro_batch_auto ? "replica " : "micro-batch ") +
                                number(samples));
  }
  if (plan.micro_batch_auto) plan.micro_batch = rows;  // until one is chosen, the smallest
}

}  // namespace rehearse
