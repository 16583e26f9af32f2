// SPDX-License-Identifier: Apache-2.0
// A model cut as a plan says: the two together, and the sizes that follow from them for every rank.
#pragma once

#include <cstdint>

#include "schedules/model/expert_parts.h"
#include "schedules/model/model.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// The experts of a rank, who shares them with it, and what one layer brings to them, on average
// over ranks. Zero: a dense model. Letters: E experts, k per token, e and q ranks that share them
// and each one's matrices.
struct ExpertShape {
  std::int64_t per_rank = 0;  // E/e
  std::int64_t width = 0;     // f/q: of an expert's matrices
  std::int64_t tokens = 0;    // n: that the rank brings, the shard of sequence parallelism
  std::int64_t copies = 0;    // n k: rows that it sends
  std::int64_t rows = 0;      // R = n k q: rows that its experts compute
  double visits = 0;          // tokens that have experts of one other rank of ep, on average
  std::int64_t shared = 0;    // columns of the shared experts, over tp
  std::int64_t row = 0;       // columns that a routed row has: h, or the latent ones
  // q where the ranks that share an expert's matrices have rows of their own, which they gather;
  // else 1.
  std::int64_t bringing = 1;
  std::int64_t block = 1;  // e times bringing: ranks that hold a whole set and whose tokens meet
  bool gathers_tokens = false;  // each of them gets all their tokens
  bool sends_once = false;      // a token goes once to each of them that has experts of it
  Routing routing;              // what a token may choose

  bool gathers_rows() const { return bringing > 1; }
  // Whether a token's copies, one per expert of it, travel to the ranks of their experts.
  bool sends_copies() const { return block > 1 && !gathers_tokens && !sends_once; }
};

// Per-rank shapes of one micro-batch (or sequence slice). Letters as in docs/ir.md. On a grid of
// tensor parallel ranks with r rows and c columns a rank has 1/r of the samples and 1/c of all
// columns: of heads, of hidden states, of an MLP.
struct RankShape {
  std::int64_t element = 2;  // e: bytes of the compute type (fp32 4, else 2)
  std::int64_t tensor = 1;   // t
  TensorGrid grid;           // r x c = t; none: 0 x 0
  std::int64_t tokens = 0;   // n: tokens that the products see
  std::int64_t local = 0;    // n/t under sequence parallelism, else n
  std::int64_t streams = 1;  // residual streams, each h wide (layer_mix.h)
  std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;  // heads, kv_heads: of this rank
  std::int64_t value_dim = 0;   // of a head's values: head_dim, but in latent attention
  std::int64_t qkv = 0;         // ((a + kv) d + kv value_dim) / t columns, and a gate's
  std::int64_t gate = 0;        // columns of attention's gate, as many as its output has
  std::int64_t ffn = 0;         // f/t
  std::int64_t up = 0;          // f/t, or 2f/t where gated: columns of the first MLP product
  std::int64_t vocabulary = 0;  // rows of the table: V'/t; of a grid V'/r
  std::int64_t logits = 0;      // columns of logits: V'/t; of a grid V'/c
  // From one row of logits to the next: `logits`, in 16 bit rounded up to 128 bytes, for tensor
  // cores read and write rows that begin at 16.
  std::int64_t logit_columns = 0;
  std::int64_t loss_chunk = 0;  // tokens of one chunk of the loss
  bool gather = false;          // sequence parallelism is active: t > 1 and the plan asks for it
  ExpertShape experts;

  // Tokens of the micro-batch that every rank is told: of a grid those of all its rows.
  std::int64_t batch_tokens() const { return grid.any() ? tokens * grid.rows : tokens; }
};

// A view. REQUIRES: model and plan outlive it, and what shapes are made of does not change.
struct Layout {
  Layout(const Transformer& model, const Plan& plan);

  const Transformer& model;
  const Plan& plan;
  RankShape shape;

  // [B] of what a segment or a stage hands on: (local, streams, hidden) in the compute type.
  std::int64_t activation_bytes() const {
    return shape.element * shape.local * shape.streams * shape.hidden;
  }
  // Layers of multi-token prediction that the runtime runs.
  std::int64_t prediction_layers() const {
    return plan.runtime.performer().predicts_further_tokens ? model.prediction_layers : 0;
  }
  // [B] of what stage `from` hands to the next, and takes back as gradients: one activation, and
  // from the prediction layers on one of each of these too, since all heads stand last.
  std::int64_t handover_bytes(std::int32_t from) const {
    const bool behind = plan.prediction_stage >= 0 && from >= plan.prediction_stage;
    return activation_bytes() * (1 + (behind ? prediction_layers() : 0));
  }
  // Tensor-parallel ranks that hold each key/value head: t / kv heads where these are fewer,
  // else 1.
  std::int64_t key_value_replicas() const;
};

// FLOPs of a step's matrix products as model_flops counts them, of the layers that the runtime has.
double step_flops(const Layout& layout, FlopsConvention convention);

}  // namespace rehearse
