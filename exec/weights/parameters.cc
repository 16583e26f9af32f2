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
    const std::vector<ModelPart> parts = segment_parts(layout.model, segment.kind, segment.layer);
    std::int32_t slot = tied ? 0 : first_slot[at.stage.index()][g];
    for (std::int32_t k = 0; k < at.tensor; ++k) {
      slot += tensors[static_cast<std::size_t>(k)].norm_slots;
    }
    places.push_back({.stage = at.stage,
                      .segment = at.segment,
                      .tensor = at.tensor,
                      .layer = segment.layer,
                      .what = what,
                      .part = parts[static_cast<std::size_t>(what.part)],
                      .bucket = at.bucket,
                      .offset = at.offset,
                      .slot = slot,
                      .name = hugging_face_name(layout.model, segment.kind, segment.layer, what)});
  }
  return places;
}

namespace {

// How the ranks divide what this rank holds a part of; what is replicated they do not.
Cut cut_of(const TensorPlace& place) {
  return place.what.replicated ? Cut::None : place.part.cut;
}

// Row of the whole matrix, or of an expert's, that row `local` of the part `c` of t is; -1: none.
std::int64_t whole_row(const ModelPart& part, std::int64_t c, std::int64_t t, std::int64_t local) {
  std::int64_t begin = 0;
  for (std::size_t b = 0; b < part.blocks.size(); ++b) {
    const std::int64_t rows = part.blocks[b], share = rows > 0 ? rows_of_block(part, b, t) : 0;
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

namespace {

// Where in the whole an element lies that a rank at place `coordinate` of a grid has
// (schedules/body/sizes.h).
std::int64_t whole_of_grid(const Layout& layout, const ModelPart& part, std::int32_t coordinate,
                           std::int64_t local) {
  const TensorGrid& grid = layout.plan.tensor_parallel_2d;
  const std::int64_t row = coordinate / grid.columns, column = coordinate % grid.columns;
  const GridPart here = grid_part(layout, part);
  if (is_grid_table(part)) {
    const std::int64_t of_table = row * here.rows + local / here.columns;
    return of_table < part.out ? of_table * part.in + column * here.columns + local % here.columns
                               : -1;
  }
  if (part.in == 1) return whole_row(part, column, grid.columns, row * here.rows + local);
  const std::int64_t each = here.rows * here.columns, panel = row * here.panels + local / each;
  const std::int64_t at = whole_row(part, column, grid.columns, local % each / here.columns);
  return at * part.in + panel * here.columns + local % here.columns;
}

}  // namespace

std::int64_t part_columns(const Layout& layout, const TensorPlace& place) {
  if (layout.plan.tensor_parallel_2d.any()) return grid_part(layout, place.part).columns;
  if (cut_of(place) != Cut::Columns) return place.part.in;
  const Plan& plan = layout.plan;
  return place.part.in / (place.part.expert ? plan.expert_tensor_parallel : plan.tensor_parallel);
}

std::int64_t whole_element(const Layout& layout, const TensorPlace& place, std::int32_t coordinate,
                           std::int64_t local) {
  const Plan& plan = layout.plan;
  const ModelPart& part = place.part;
  if (plan.tensor_parallel_2d.any()) return whole_of_grid(layout, part, coordinate, local);
  const bool experts = part.expert;
  const std::int64_t t = experts ? plan.expert_tensor_parallel : plan.tensor_parallel;
  const std::int64_t c = experts ? coordinate % t : coordinate;
  if (t == 1 && !experts && !place.what.table) return local;
  if (place.what.table) {
    const std::int64_t rows = plan.padded_vocabulary / t;
    const std::int64_t row = c * rows + local / part.in;
    return row < part.out ? row * part.in + local % part.in : -1;
  }
  // Experts lie one behind the other, those of the whole model and those of a part.
  const std::int64_t here = experts ? layout.shape.experts.per_rank : 1;
  const std::int64_t cols = part_columns(layout, place), each = place.what.elements / here;
  const std::int64_t before = experts ? (coordinate / t * here + local / each) * part.out : 0;
  const std::int64_t row = local % each / cols, col = local % cols;
  const Cut cut = cut_of(place);
  if (cut == Cut::Columns) return (before + row) * part.in + c * cols + col;
  if (cut != Cut::Rows) return (before + row) * part.in + col;
  const std::int64_t at = whole_row(part, c, t, row);
  return at < 0 ? -1 : (before + at) * part.in + col;
}

std::int64_t counted_elements(const Layout& layout, const TensorPlace& place,
                              std::int32_t coordinate) {
  if (layout.plan.tensor_parallel_2d.any()) return place.what.elements;  // all are cut
  if (place.what.replicated) return coordinate == 0 ? place.what.elements : 0;
  // Ranks that share an expert's matrices hold the bias of what they sum alike.
  const ModelPart& part = place.part;
  const std::int64_t alike =
      part.expert && part.cut == Cut::None ? layout.plan.expert_tensor_parallel : 1;
  if (coordinate % alike != 0) return 0;
  const bool shares = part.head_rows > 0 && coordinate % layout.key_value_replicas() != 0;
  if (!shares) return place.what.elements;
  const std::int64_t t = layout.plan.tensor_parallel;  // the queries' rows come first
  return place.what.elements / rows_of_rank(part, t) * rows_of_block(part, 0, t);
}

std::vector<NormPart> norm_parts(const Layout& layout, const TensorPlace& place,
                                 std::int32_t coordinate) {
  if (!place.part.expert) {
    return {{0, counted_elements(layout, place, coordinate), place.slot}};
  }
  if (counted_elements(layout, place, coordinate) == 0) return {};
  const std::int64_t here = layout.shape.experts.per_rank, matrices = place.part.matrices;
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
