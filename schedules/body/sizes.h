// SPDX-License-Identifier: Apache-2.0
// Shapes and parameter tensors of one rank, from model and plan: what passes and bodies measure by.
#pragma once

#include <string_view>
#include <vector>

#include "schedules/body/kernel.h"
#include "schedules/ir/schedule.h"
#include "schedules/model/model.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

inline constexpr std::int64_t kAlignment = 256;  // [B] of every value, tensor in a slab, workspace
constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Per-rank shapes of one micro-batch (or sequence slice). Letters as in docs/ir.md.
struct RankShape {
  std::int64_t element = 2;  // e: bytes of the compute type (fp32 4, else 2)
  std::int64_t tensor = 1;   // t
  std::int64_t tokens = 0;   // n: tokens that the products see
  std::int64_t local = 0;    // n/t under sequence parallelism, else n
  std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;  // heads, kv_heads: of this rank
  std::int64_t qkv = 0;                                            // (a + 2 kv) d / t columns
  std::int64_t ffn = 0;                                            // f/t
  std::int64_t up = 0;          // f/t, or 2f/t where gated: columns of the first MLP product
  std::int64_t vocabulary = 0;  // V'/t
  std::int64_t loss_chunk = 0;  // tokens of one chunk of the loss
  bool gather = false;          // sequence parallelism is active: t > 1 and the plan asks for it
};
RankShape rank_shape(const Transformer& model, const Plan& plan);
// Tensor-parallel ranks that hold each key/value head: t / kv heads where these are fewer, else 1.
std::int64_t key_value_replicas(const Transformer& model, const Plan& plan);

// One parameter tensor of a segment as one rank holds it.
struct ParameterTensor {
  std::string_view name;  // for people: "norm1.weight"; files use Hugging Face names
  ParameterRole role = ParameterRole::None;
  bool bias = false;
  std::int64_t elements = 0;  // on this rank
  bool partial = false;       // its gradient is partial over tp (sequence parallelism)
  bool replicated = false;    // the same on every tp rank: counted by coordinate 0 in the norm
  bool matrix = false;        // takes weight decay even where only matrices do
  bool table = false;         // the vocabulary table

  // Of the matrix [out, in], over tp: column-parallel products split their outputs, biases with
  // them; row-parallel ones their inputs.
  bool splits_rows() const { return role == ParameterRole::Qkv || role == ParameterRole::Up; }
  bool splits_columns() const {
    return !bias && (role == ParameterRole::Projection || role == ParameterRole::Down);
  }
};
// In the order of the model: an embedding's table and positions, a layer's norm1, qkv, ..., a
// head's final norm and, where it is not tied, its table.
std::vector<ParameterTensor> segment_parameters(const Transformer& model, const Plan& plan,
                                                SegmentKind kind, std::int64_t layer);

// What every stage holds: stage s of the plan's chunks; stage 0 the embedding, the last the head.
std::vector<std::vector<SegmentInfo>> stage_segments(const Plan& plan, std::int32_t stages);

// Parameter and optimizer bytes of storages by precision.
std::int64_t activation_bytes(const Transformer& model, const Plan& plan);  // (local, hidden)

}  // namespace rehearse
