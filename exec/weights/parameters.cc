// SPDX-License-Identifier: Apache-2.0
#include "exec/weights/parameters.h"

#include <algorithm>
#include <array>

#include "exec/weights/dialect_names.h"

namespace rehearse::exec {
namespace {

// A parameter that the dialect's files lack has our own name.
std::string hugging_face_name(const Transformer& model, SegmentKind kind, std::int32_t layer,
                              const ParameterTensor& what) {
  const std::string_view stem = dialect_stem(model, what.role);
  const std::string_view suffix = what.role == ParameterRole::Sinks ? ""
                                  : what.bias                       ? ".bias"
                                                                    : ".weight";
  const std::string known =
      stem.empty() ? std::string(what.name) : std::string(stem) + std::string(suffix);
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
      slots += norm_slots(layout, segment);
    }
  }
  std::vector<TensorPlace> places;
  for (const BucketTensor& at : schedule.tensors) {
    // A tied table is the embedding's, whichever of its uses is here.
    const bool tied = schedule.buckets[at.bucket.index()].tied;
    const auto g = static_cast<std::size_t>(at.segment);
    const SegmentInfo segment =
        tied ? SegmentInfo{SegmentKind::Embedding} : schedule.segments[at.stage.index()][g];
    const std::vector<ParameterTensor> tensors =
        segment_parameters(layout, segment.kind, segment.layer);
    const ParameterTensor what = tensors[static_cast<std::size_t>(at.tensor)];
    std::int32_t slot = tied ? 0 : first_slot[at.stage.index()][g];
    for (std::int32_t k = 0; k < at.tensor; ++k) {
      slot += tensors[static_cast<std::size_t>(k)].norm_slots;
    }
    places.push_back({.stage = at.stage,
                      .segment = at.segment,
                      .tensor = at.tensor,
                      .layer = segment.layer,
                      .what = what,
                      .bucket = at.bucket,
                      .offset = at.offset,
                      .slot = slot,
                      .name = hugging_face_name(layout.model, segment.kind, segment.layer, what)});
  }
  return places;
}

WholeShape whole_shape(const Transformer& model, const TensorPlace& place) {
  const std::int64_t h = model.hidden, d = model.head_dim;
  const LatentAttention& latent = model.latent;
  const std::int64_t qkv = (model.heads + 2 * model.kv_heads) * d;
  const std::int64_t gates = model.mlp == MlpKind::Gated ? 2 : 1, up = gates * model.ffn_hidden;
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
      return {h, model.heads * model.value_dim()};
    case ParameterRole::Query:
      return {model.heads * d, h};
    case ParameterRole::QueryDown:
      return {latent.q_lora_rank, bias ? 1 : h};
    case ParameterRole::QueryUp:
      return {model.heads * d, latent.q_lora_rank};
    case ParameterRole::KeyValueDown:
      return {latent.kv_lora_rank + latent.qk_rope_head_dim, bias ? 1 : h};
    case ParameterRole::KeyValueUp:
      return {model.heads * (latent.qk_nope_head_dim + latent.v_head_dim), latent.kv_lora_rank};
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
    case ParameterRole::Router:
      return {model.experts.count, bias ? 1 : h};
    case ParameterRole::ExpertUp:
      return {model.experts.count * gates * model.experts.ffn_hidden, bias ? 1 : h};
    case ParameterRole::ExpertDown:
      return {model.experts.count * h, bias ? 1 : model.experts.ffn_hidden};
    case ParameterRole::SharedUp:
      return {gates * model.experts.shared_ffn_hidden, h};
    case ParameterRole::SharedDown:
      return {h, model.experts.shared_ffn_hidden};
    case ParameterRole::SharedGate:
      return {1, h};
    case ParameterRole::Norm1:
    case ParameterRole::OutNorm1:
    case ParameterRole::Norm2:
    case ParameterRole::OutNorm2:
    case ParameterRole::FinalNorm:
    case ParameterRole::EmbeddingNorm:
    case ParameterRole::QueryDownNorm:
    case ParameterRole::KeyValueDownNorm:
    case ParameterRole::None:
      break;
  }
  return {place.what.elements, 1};
}

namespace {

bool of_experts(const TensorPlace& place) {
  return place.what.role == ParameterRole::ExpertUp || place.what.role == ParameterRole::ExpertDown;
}

// Blocks of rows of a whole matrix that are split over tp each for itself: q, k, v; gate and up,
// unless their rows take turns.
struct Blocks {
  std::array<std::int64_t, 3> rows{}, shares{};
};
Blocks blocks_of(const Transformer& model, const TensorPlace& place, std::int64_t rows,
                 std::int64_t t) {
  Blocks of{{rows, 0, 0}, {rows / t, 0, 0}};
  const ParameterRole role = place.what.role;
  if (role == ParameterRole::Qkv) {
    const std::int64_t d = model.head_dim;
    const std::int64_t kv = std::max<std::int64_t>(model.kv_heads / t, 1) * d;
    of.rows = {model.heads * d, model.kv_heads * d, model.kv_heads * d};
    of.shares = {of.rows[0] / t, kv, kv};
  } else if (model.mlp == MlpKind::Gated &&
             (role == ParameterRole::Up || role == ParameterRole::SharedUp ||
              (role == ParameterRole::ExpertUp && model.experts.glu_limit == 0))) {
    of.rows = {rows / 2, rows / 2, 0};
    of.shares = {rows / 2 / t, rows / 2 / t, 0};
  }
  return of;
}

// Row of the whole matrix, or of an expert's, that row `local` of the part `c` of t is; -1: none.
std::int64_t whole_row(const Blocks& of, std::int64_t c, std::int64_t t, std::int64_t local) {
  std::int64_t begin = 0;
  for (std::size_t b = 0; b < of.rows.size(); ++b) {
    const std::int64_t rows = of.rows[b], share = of.shares[b];
    if (local < share) {
      // Where key/value heads are fewer than t, several ranks hold the same ones.
      const std::int64_t first = share * t > rows ? c * rows / (t * share) * share : c * share;
      return begin + first + local;
    }
    local -= share;
    begin += rows;
  }
  return -1;
}

}  // namespace

std::int64_t part_columns(const Layout& layout, const TensorPlace& place) {
  const std::int64_t cols = whole_shape(layout.model, place).cols;
  if (!place.what.splits_columns()) return cols;
  const Plan& plan = layout.plan;
  return cols / (of_experts(place) ? plan.expert_tensor_parallel : plan.tensor_parallel);
}

std::int64_t whole_element(const Layout& layout, const TensorPlace& place, std::int32_t coordinate,
                           std::int64_t local) {
  const Transformer& model = layout.model;
  const Plan& plan = layout.plan;
  const WholeShape whole = whole_shape(layout.model, place);
  const bool experts = of_experts(place);
  const std::int64_t t = experts ? plan.expert_tensor_parallel : plan.tensor_parallel;
  const std::int64_t c = experts ? coordinate % t : coordinate;
  if (t == 1 && !experts && !place.what.table) return local;
  if (place.what.table) {
    const std::int64_t rows = plan.padded_vocabulary / t;
    const std::int64_t row = c * rows + local / whole.cols;
    return row < whole.rows ? row * whole.cols + local % whole.cols : -1;
  }
  // Experts lie one behind the other, those of the whole model and those of a part.
  const std::int64_t count = experts ? model.experts.count : 1;
  const std::int64_t here = experts ? layout.shape.experts.per_rank : 1;
  const std::int64_t cols = part_columns(layout, place), each = place.what.elements / here;
  const std::int64_t before =
      experts ? (coordinate / t * here + local / each) * (whole.rows / count) : 0;
  const std::int64_t row = local % each / cols, col = local % cols;
  if (place.what.splits_columns()) return (before + row) * whole.cols + c * cols + col;
  if (!place.what.splits_rows()) return (before + row) * whole.cols + col;
  const Blocks blocks = blocks_of(model, place, whole.rows / count, t);
  const std::int64_t at = whole_row(blocks, c, t, row);
  return at < 0 ? -1 : (before + at) * whole.cols + col;
}

std::int64_t counted_elements(const Layout& layout, const TensorPlace& place,
                              std::int32_t coordinate) {
  if (place.what.replicated) return coordinate == 0 ? place.what.elements : 0;
  // Ranks that share an expert's matrices hold the bias of what they sum alike.
  if (place.what.role == ParameterRole::ExpertDown && place.what.bias &&
      coordinate % layout.plan.expert_tensor_parallel != 0) {
    return 0;
  }
  const bool shares =
      place.what.role == ParameterRole::Qkv && coordinate % layout.key_value_replicas() != 0;
  if (!shares) return place.what.elements;
  const RankShape shape = layout.shape;  // the queries' rows come first
  return place.what.elements / shape.qkv * shape.heads * shape.head_dim;
}

std::vector<NormPart> norm_parts(const Layout& layout, const TensorPlace& place,
                                 std::int32_t coordinate) {
  if (!of_experts(place)) {
    return {{0, counted_elements(layout, place, coordinate), place.slot}};
  }
  if (counted_elements(layout, place, coordinate) == 0) return {};
  const std::int64_t here = layout.shape.experts.per_rank, all = layout.model.experts.count;
  const std::int64_t matrices = place.what.norm_slots / all;
  const std::int64_t each = place.what.elements / here / matrices;
  const std::int64_t first = coordinate / layout.plan.expert_tensor_parallel * here * matrices;
  std::vector<NormPart> parts;
  for (std::int64_t i = 0; i < here * matrices; ++i) {
    parts.push_back({i * each, (i + 1) * each, place.slot + static_cast<std::int32_t>(first + i)});
  }
  return parts;
}

std::int32_t norm_slots(const Layout& layout, const SegmentInfo& segment) {
  std::int32_t slots = 0;
  for (const ParameterTensor& tensor : segment_parameters(layout, segment.kind, segment.layer)) {
    slots += tensor.norm_slots;
  }
  return slots;
}

}  // namespace rehearse::exec
