// SPDX-License-Identifier: Apache-2.0
// What a segment of the model is made of, whole, before any cut.
//
// Counts, FLOPs, the tensors of a rank, their places in files and buckets, the matrices that Muon
// orthogonalizes: all read this list. Nothing else knows that an MLP has a gate, or what latent
// attention multiplies with.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "schedules/model/model.h"
#include "schedules/model/parameter_role.h"

namespace rehearse {

// How the ranks of tp (of a routed expert: of etp) divide a part. Column-parallel products divide
// their outputs, which are rows of [out, in], and biases with them; row-parallel ones their inputs.
enum class Cut : std::uint8_t { None, Rows, Columns, Vocabulary };

// What a part is for. Product: a matrix that tokens are multiplied with. Lookup: a table of which a
// token takes a row. Norm: the weights, or the shifts, of a norm. Vector: a bias, a number per
// head.
enum class PartUse : std::uint8_t { Product, Lookup, Norm, Vector };

struct ModelPart {
  std::string_view name;  // for people: "qkv.weight"; files use Hugging Face's names
  ParameterRole role = ParameterRole::None;
  PartUse use = PartUse::Product;
  Cut cut = Cut::None;
  bool bias = false;    // belongs to the product, or norm, of the same role
  bool expert = false;  // of routed experts: [copies, out, in]
  std::int64_t out = 0, in = 1;
  // Blocks of `out`, each cut for itself: queries, keys, values; gate and up. Rows of gate and up
  // that take turns (gpt_oss) are one block.
  std::array<std::int64_t, 6> blocks{};
  std::int64_t matrices = 1;  // that stand in one: 2 where gate and up do
  std::int64_t copies = 1;    // of routed experts
  // Rows of one key/value head; 0: no heads. A rank has one head at least of every block but the
  // first: where heads are fewer than ranks, several hold the same ones.
  std::int64_t head_rows = 0;
  std::int64_t value_rows = 0;  // of a head in the last block, where these are others; 0: head_rows
  // Every rank has the part whole, and the gradient of its own heads alone.
  bool of_own_heads = false;
  bool muon = true;  // a product that Muon orthogonalizes, where it does any
  // Where in a layer it stands: before its first sum, behind it, or in the i-th of its kinds
  // (kFirstKind + i)
  std::uint8_t block = 0;

  // Takes weight decay even where only matrices do.
  bool matrix() const { return use == PartUse::Product || use == PartUse::Lookup; }
  bool table() const { return cut == Cut::Vocabulary; }
  // Rows of the whole [rows, in], the copies one behind the other.
  std::int64_t rows() const { return copies * out; }
  std::int64_t elements() const { return rows() * in; }
};

// Blocks of a layer (ModelPart::block): what reads the stream first (attention, or the kind in its
// place, with its norm), MLP or experts behind it, kinds beside it.
enum : std::uint8_t { kFirstBlock, kSecondBlock, kFirstKind };

// In the order of the model: an embedding's table and positions; a layer's first norm, qkv, ...; a
// head's norm and, where it is not tied, its table. A layer from model.layers on predicts further
// tokens: it is like the last one, with a projection and three norms of its own. The order is that
// of tensors in buckets, and so of checkpoints.
std::vector<ModelPart> embedding_parts(const Transformer& model);
std::vector<ModelPart> layer_parts(const Transformer& model, std::int64_t layer);
std::vector<ModelPart> head_parts(const Transformer& model);

// The part of the role that is no bias; nullptr: there is none.
const ModelPart* find_part(const std::vector<ModelPart>& parts, ParameterRole role);
// Columns that a token's queries, keys and values are compressed to (LatentAttention), together.
std::int64_t compressed_columns(const Transformer& model);
// Those of keys and values alone, beside which the rotary part stands.
std::int64_t compressed_key_value_columns(const Transformer& model);

// Elements of all parts.
std::int64_t elements_of(const std::vector<ModelPart>& parts);

// Matrices that give the middle of an MLP: gate and up, or up alone.
constexpr std::int64_t matrices_up(const Transformer& model) {
  return model.mlp == MlpKind::Gated ? 2 : 1;
}

}  // namespace rehearse
