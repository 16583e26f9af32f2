// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/sizes.h"

#include <algorithm>

namespace rehearse {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Ranks that divide the part among them.
std::int64_t ranks_of(const Layout& layout, const ModelPart& part) {
  return part.expert ? layout.plan.expert_tensor_parallel : layout.plan.tensor_parallel;
}

// Every rank has all key heads' weights where several share them: each a part of their gradient.
bool is_whole(const Layout& layout, const ModelPart& part) {
  return part.cut == Cut::None || (part.of_own_heads && layout.key_value_replicas() > 1);
}

// Elements of the part, with all of its copies, that the rank has.
std::int64_t elements_of_rank(const Layout& layout, const ModelPart& part) {
  if (layout.plan.tensor_parallel_2d.any()) return grid_part(layout, part).elements();
  const std::int64_t copies = part.expert ? layout.shape.experts.per_rank : 1;
  const std::int64_t t = ranks_of(layout, part);
  switch (is_whole(layout, part) ? Cut::None : part.cut) {
    case Cut::None:
      break;
    case Cut::Rows:
      return copies * rows_of_rank(part, t) * part.in;
    case Cut::Columns:
      return copies * part.out * divide_up(part.in, t);
    case Cut::Vocabulary:
      return layout.shape.vocabulary * part.in;
  }
  return copies * part.out * part.in;
}

ParameterTensor tensor_of(const Layout& layout, const ModelPart& part) {
  ParameterTensor tensor{
      .name = part.name,
      .role = part.role,
      .bias = part.bias,
      .elements = elements_of_rank(layout, part),
      .matrix = part.matrix(),
      .table = part.table(),
      .expert = part.expert,
      .norm_slots = static_cast<std::int32_t>(part.expert ? part.copies * part.matrices : 1)};
  if (part.expert || layout.plan.tensor_parallel_2d.any() || !is_whole(layout, part)) return tensor;
  tensor.replicated = true;  // what joins (local, hidden) meets a shard of the tokens
  tensor.partial = part.of_own_heads ? layout.shape.tensor > 1 : layout.shape.gather;
  return tensor;
}

// What a framework has as one tensor, since its gradients become ready together: all matrices of
// the routed experts, and those of the shared ones.
std::string_view joined_name(const ModelPart& up) {
  if (up.bias) return {};
  if (up.role == ParameterRole::ExpertUp) return "experts.weight";
  return up.role == ParameterRole::SharedUp ? "shared_experts.weight" : std::string_view{};
}

}  // namespace

std::int64_t rows_of_block(const ModelPart& part, std::size_t block, std::int64_t t) {
  const std::int64_t rows = part.blocks[block];
  const std::int64_t together = rows == part.out ? part.matrices : 1;  // whose rows take turns
  if (part.head_rows == 0 || block == 0) return divide_up(rows / together, t) * together;
  const bool values = part.value_rows > 0 && block == 2;
  const std::int64_t head = values ? part.value_rows : part.head_rows;
  return std::max<std::int64_t>(rows / head / t, 1) * head;
}

std::int64_t rows_of_rank(const ModelPart& part, std::int64_t t) {
  std::int64_t rows = 0;
  for (std::size_t block = 0; block < part.blocks.size(); ++block) {
    rows += part.blocks[block] > 0 ? rows_of_block(part, block, t) : 0;
  }
  return rows;
}

bool is_grid_table(const ModelPart& part) {
  return part.use == PartUse::Lookup || part.cut == Cut::Vocabulary;
}

GridPart grid_part(const Layout& layout, const ModelPart& part) {
  const TensorGrid& grid = layout.plan.tensor_parallel_2d;
  const std::int64_t r = grid.rows, c = grid.columns;
  if (part.table()) return {layout.shape.vocabulary, part.in / c};
  if (is_grid_table(part)) return {part.out / r, part.in / c};
  const std::int64_t rows = rows_of_rank(part, c);
  if (part.in == 1) return {rows / r};
  return {rows, part.in / grid.panels(), grid.panels() / r};
}

std::vector<ModelPart> segment_parts(const Transformer& model, SegmentKind kind,
                                     std::int64_t layer) {
  switch (kind) {
    case SegmentKind::Embedding:
      return embedding_parts(model);
    case SegmentKind::Layer:
      return layer_parts(model, layer);
    case SegmentKind::Head:
      break;
  }
  return head_parts(model);
}

std::vector<ParameterTensor> segment_parameters(const Layout& layout, SegmentKind kind,
                                                std::int64_t layer) {
  const Transformer& model = layout.model;
  const std::vector<ModelPart> parts = segment_parts(model, kind, layer);
  std::vector<ParameterTensor> tensors;
  tensors.reserve(parts.size() + 1);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    tensors.push_back(tensor_of(layout, parts[i]));
    ParameterTensor& tensor = tensors.back();
    tensor.part = static_cast<std::int32_t>(i);
    const std::string_view joined = joined_name(parts[i]);
    if (joined.empty() || !layout.plan.runtime.performer().joins_latent_down) continue;
    const ParameterTensor down = tensor_of(layout, parts[++i]);
    tensor.name = joined;
    tensor.role = ParameterRole::None;
    tensor.elements += down.elements;
    if (down.expert) tensor.norm_slots += down.norm_slots;
    tensor.parts = 2;
  }
  // The first prediction layer has a table of its own unless one position holds all.
  if (kind == SegmentKind::Layer && layer == model.layers && layout.plan.pipeline_parallel > 1) {
    tensors.push_back({.name = "prediction.table.weight",
                       .elements = layout.shape.vocabulary * model.hidden,
                       .matrix = true,
                       .parts = 0});
  }
  return tensors;
}

std::vector<std::vector<SegmentInfo>> stage_segments(const Layout& layout, std::int32_t stages) {
  const Plan& plan = layout.plan;
  const std::int32_t predicts = plan.prediction_stage < 0 ? stages - 1 : plan.prediction_stage;
  std::vector<std::vector<SegmentInfo>> segments(static_cast<std::size_t>(stages));
  std::int32_t layer = 0;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (s == 0) segments[s].push_back({SegmentKind::Embedding, -1});
    for (std::int32_t i = 0; i < plan.stage_layers[s]; ++i) {
      segments[s].push_back({SegmentKind::Layer, layer++});
    }
    if (static_cast<std::int32_t>(s) == predicts) {
      for (std::int64_t i = 0; i < layout.prediction_layers(); ++i) {
        segments[s].push_back({SegmentKind::Layer, layer++});
      }
    }
    if (s + 1 == segments.size()) segments[s].push_back({SegmentKind::Head, -1});
  }
  return segments;
}

}  // namespace rehearse
