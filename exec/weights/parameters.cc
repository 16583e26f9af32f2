// SPDX-License-Identifier: Apache-2.0
#include "exec/weights/parameters.h"

#include <algorithm>

#include "exec/weights/dialect_names.h"

namespace rehearse::exec {
namespace {

// A parameter that the dialect's files lack has our own name.
std::string hugging_face_name(const Transformer& model, SegmentKind kind, std::int32_t layer,
                              const ParameterTensor& what) {
  const std::string_view stem = dialect_stem(model, what.role);
  const std::string known =
      stem.empty() ? std::string(what.name) : std::string(stem) + (what.bias ? ".bias" : ".weight");
  if (kind != SegmentKind::Layer) return known;
  return std::string(dialect_names(model).layers) + std::to_string(layer) + '.' + known;
}

}  // namespace

std::vector<TensorPlace> place_tensors(const Layout& layout, const Schedule& schedule) {
  std::vector<std::vector<std::int32_t>> first_slot;  // of a segment's tensors, by stage
  std::int32_t slots = 0;
  for (const auto& stage : schedule.segments) {
    first_slot.emplace_back();
    for (const SegmentInfo& segment : stage) {
      first_slot.back().push_back(slots);
      slots +=
          static_cast<std::int32_t>(segment_parameters(layout, segment.kind, segment.layer).size());
    }
  }
  std::vector<TensorPlace> places;
  for (const BucketTensor& at : schedule.tensors) {
    // A tied table is the embedding's, whichever of its uses is here.
    const bool tied = schedule.buckets[at.bucket.index()].tied;
    const auto g = static_cast<std::size_t>(at.segment);
    const SegmentInfo segment =
        tied ? SegmentInfo{SegmentKind::Embedding} : schedule.segments[at.stage.index()][g];
    const ParameterTensor what = segment_parameters(
        layout, segment.kind, segment.layer)[static_cast<std::size_t>(at.tensor)];
    places.push_back({.stage = at.stage,
                      .segment = at.segment,
                      .tensor = at.tensor,
                      .layer = segment.layer,
                      .what = what,
                      .bucket = at.bucket,
                      .offset = at.offset,
                      .slot = at.tensor + (tied ? 0 : first_slot[at.stage.index()][g]),
                      .name = hugging_face_name(layout.model, segment.kind, segment.layer, what)});
  }
  return places;
}

WholeShape whole_shape(const Transformer& model, const TensorPlace& place) {
  const std::int64_t h = model.hidden, d = model.head_dim;
  const std::int64_t qkv = (model.heads + 2 * model.kv_heads) * d;
  const std::int64_t up = (model.mlp == MlpKind::Gated ? 2 : 1) * model.ffn_hidden;
  const bool bias = place.what.bias;
  switch (place.what.role) {
    case ParameterRole::Table:
    case ParameterRole::Head:
      return {model.vocabulary, h};
    case ParameterRole::Positions:
      return {model.max_positions, h};
    case ParameterRole::Qkv:
      return {qkv, bias ? 1 : h};
    case ParameterRole::Projection:
      if (bias) break;
      return {h, model.heads * d};
    case ParameterRole::Up:
      return {up, bias ? 1 : h};
    case ParameterRole::Down:
      if (bias) break;
      return {h, model.ffn_hidden};
    case ParameterRole::QueryNorm:
      if (model.query_key_norm_whole) return {model.heads * d, 1};
      break;
    case ParameterRole::KeyNorm:
      if (model.query_key_norm_whole) return {model.kv_heads * d, 1};
      break;
    case ParameterRole::Sinks:
      return {model.heads, 1};
    case ParameterRole::Norm1:
    case ParameterRole::OutNorm1:
    case ParameterRole::Norm2:
    case ParameterRole::OutNorm2:
    case ParameterRole::FinalNorm:
    case ParameterRole::EmbeddingNorm:
    case ParameterRole::None:
      break;
  }
  return {place.what.elements, 1};
}

std::int64_t whole_element(const Layout& layout, const TensorPlace& place, std::int32_t coordinate,
                           std::int64_t local) {
  const Transformer& model = layout.model;
  const Plan& plan = layout.plan;
  const WholeShape whole = whole_shape(layout.model, place);
  const std::int64_t t = plan.tensor_parallel, c = coordinate;
  if (t == 1 && !place.what.table) return local;
  if (place.what.table) {
    const std::int64_t rows = plan.padded_vocabulary / t;
    const std::int64_t row = c * rows + local / whole.cols;
    return row < whole.rows ? row * whole.cols + local % whole.cols : -1;
  }
  if (place.what.splits_columns()) {
    const std::int64_t cols = whole.cols / t;
    return local / cols * whole.cols + c * cols + local % cols;
  }
  if (!place.what.splits_rows()) return local;
  const std::int64_t row = local / whole.cols, col = local % whole.cols;
  // Blocks of rows that are split each for itself: q, k, v; gate and up.
  std::int64_t blocks[3] = {whole.rows, 0, 0}, shares[3] = {whole.rows / t, 0, 0};
  if (place.what.role == ParameterRole::Qkv) {
    const std::int64_t d = model.head_dim;
    const std::int64_t kv = std::max<std::int64_t>(model.kv_heads / t, 1) * d;
    blocks[0] = model.heads * d;
    blocks[1] = blocks[2] = model.kv_heads * d;
    shares[0] = blocks[0] / t;
    shares[1] = shares[2] = kv;
  } else if (place.what.role == ParameterRole::Up && model.mlp == MlpKind::Gated) {
    blocks[0] = blocks[1] = model.ffn_hidden;
    shares[0] = shares[1] = model.ffn_hidden / t;
  }
  std::int64_t begin = 0, mine = row;
  for (int b = 0; b < 3; ++b) {
    if (mine < shares[b]) {
      // Where key/value heads are fewer than t, several ranks hold the same ones.
      const std::int64_t first =
          shares[b] * t > blocks[b] ? c * blocks[b] / (t * shares[b]) * shares[b] : c * shares[b];
      return (begin + first + mine) * whole.cols + col;
    }
    mine -= shares[b];
    begin += blocks[b];
  }
  return -1;
}

std::int64_t counted_elements(const Layout& layout, const TensorPlace& place,
                              std::int32_t coordinate) {
  if (place.what.replicated) return coordinate == 0 ? place.what.elements : 0;
  const bool shares =
      place.what.role == ParameterRole::Qkv && coordinate % layout.key_value_replicas() != 0;
  if (!shares) return place.what.elements;
  const RankShape shape = layout.shape;  // the queries' rows come first
  return place.what.elements / shape.qkv * shape.heads * shape.head_dim;
}

}  // namespace rehearse::exec
