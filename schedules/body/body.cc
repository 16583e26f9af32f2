// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/body.h"

#include <algorithm>

#include "schedules/body/framework/body_framework.h"
#include "schedules/body/own/body_rehearse.h"
#include "schedules/model/layer_mix.h"
#include "schedules/scenario/memory/recompute_parts.h"

namespace rehearse {

namespace {

// Whose last layer a prediction layer is like.
const Transformer& of_prediction(const Transformer& model) {
  return variant(model, variant_of(model, model.layers));
}

}  // namespace

SegmentShape segment_shape(const Transformer& model, const SegmentInfo& segment) {
  switch (segment.kind) {
    case SegmentKind::Embedding:
      return SegmentShape::Embedding;
    case SegmentKind::Head:
      return SegmentShape::Head;
    case SegmentKind::Layer:
      break;
  }
  if (segment.layer >= model.layers) return SegmentShape::PredictionLayer;
  return model.has_experts(segment.layer) ? SegmentShape::ExpertLayer : SegmentShape::DenseLayer;
}

std::size_t body_kind(const Layout& layout, const SegmentInfo& segment, bool apart) {
  const auto shape = static_cast<std::size_t>(segment_shape(layout.model, segment));
  if (segment.kind != SegmentKind::Layer) return shape;
  if (keeps_layer(layout.plan, segment.layer)) return kNumSegmentShapes + shape;
  return apart ? 2 * kNumSegmentShapes + shape : shape;
}

std::optional<BodyShape> shape_of_kind(const Layout& layout, std::size_t kind, Direction direction,
                                       std::int32_t slice) {
  const auto shape = static_cast<SegmentShape>(kind % kNumSegmentShapes);
  const bool apart = kind >= 2 * kNumSegmentShapes, keeps = !apart && kind >= kNumSegmentShapes;
  const bool experts = shape == SegmentShape::ExpertLayer;
  if (direction == Direction::Recompute && (keeps || apart || !layout.plan.recompute.any())) {
    return {};  // nothing is computed again, or the number without `apart` has it
  }
  if (apart && (kind_of(shape) != SegmentKind::Layer || !layout.plan.recompute.any() ||
                !reads_kept(direction))) {
    return {};
  }
  if (shape == SegmentShape::PredictionLayer) return {};
  if (experts && layout.model.experts.count == 0) return {};
  if (keeps && (kind_of(shape) != SegmentKind::Layer || layout.plan.recompute_layers == 0)) {
    return {};
  }
  return BodyShape{.segment = kind_of(shape),
                   .experts = experts,
                   .direction = direction,
                   .slice = slice,
                   .keeps = keeps,
                   .apart = apart};
}

std::size_t segment_class(const Transformer& model, const SegmentInfo& segment) {
  const SegmentShape shape = segment_shape(model, segment);
  const bool of_layers = shape == SegmentShape::DenseLayer || shape == SegmentShape::ExpertLayer;
  const std::int32_t of = of_layers ? variant_of(model, segment.layer) : -1;
  return of < 0 ? static_cast<std::size_t>(shape)
                : kNumSegmentShapes + static_cast<std::size_t>(of);
}

std::size_t segment_classes(const Transformer& model) {
  return kNumSegmentShapes + static_cast<std::size_t>(variants(model));
}

std::optional<SegmentInfo> segment_of_class(const Transformer& model, std::size_t index) {
  if (index == static_cast<std::size_t>(SegmentShape::Embedding)) {
    return SegmentInfo{SegmentKind::Embedding, -1};
  }
  if (index == static_cast<std::size_t>(SegmentShape::Head)) {
    return SegmentInfo{SegmentKind::Head, -1};
  }
  if (index == static_cast<std::size_t>(SegmentShape::PredictionLayer)) {
    if (model.prediction_layers == 0) return {};
    return SegmentInfo{SegmentKind::Layer, static_cast<std::int32_t>(model.layers)};
  }
  for (std::int32_t layer = 0; layer < model.layers; ++layer) {
    const SegmentInfo segment{SegmentKind::Layer, layer};
    if (segment_class(model, segment) == index) return segment;
  }
  return {};
}

std::vector<std::pair<SegmentInfo, std::int64_t>> layers_by_class(const Layout& layout) {
  const Transformer& model = layout.model;
  std::vector<std::pair<SegmentInfo, std::int64_t>> found;
  const std::size_t classes = segment_classes(model);
  std::vector<std::size_t> place(2 * classes, 0);  // in `found`, from 1
  for (std::int32_t layer = 0; layer < model.layers; ++layer) {
    const SegmentInfo segment{SegmentKind::Layer, layer};
    const std::size_t kept = keeps_layer(layout.plan, layer) ? classes : 0;
    std::size_t& at = place[kept + segment_class(model, segment)];
    if (at == 0) {
      found.emplace_back(segment, 0);
      at = found.size();
    }
    ++found[at - 1].second;
  }
  return found;
}

bool rotates(const Transformer& model, const SegmentInfo& segment) {
  if (segment.kind != SegmentKind::Layer || model.positions != PositionKind::Rope) return true;
  return model.rotates(std::min<std::int64_t>(segment.layer, model.layers - 1));
}

Plan plan_of_kept_layers(const Plan& plan) {
  Plan kept = plan;
  kept.recompute = {};
  kept.recompute_layers = 0;
  return kept;
}

BodyShape body_shape(const Layout& layout, const SegmentInfo& segment, Direction direction,
                     std::int32_t slice, bool apart) {
  const Transformer& model = layout.model;
  const SegmentShape shape = segment_shape(model, segment);
  const bool prediction = shape == SegmentShape::PredictionLayer;
  const bool has_experts = prediction
                               ? of_prediction(model).has_experts(of_prediction(model).layers - 1)
                               : shape == SegmentShape::ExpertLayer;
  const bool keeps = segment.kind == SegmentKind::Layer && keeps_layer(layout.plan, segment.layer);
  std::optional<Reach> reach;
  if (segment.kind == SegmentKind::Layer) {
    reach = prediction ? of_prediction(model).reach(of_prediction(model).layers - 1)
                       : model.reach(segment.layer);
  }
  return {.segment = segment.kind,
          .experts = has_experts,
          .direction = direction,
          .slice = slice,
          .prediction = prediction,
          .reach = reach,
          .rotates = rotates(model, segment),
          .variant = segment.kind == SegmentKind::Layer ? variant_of(model, segment.layer) : -1,
          .keeps = keeps,
          .apart = apart && segment.kind == SegmentKind::Layer && !keeps && reads_kept(direction) &&
                   layout.plan.recompute.any()};
}

Body make_body(const Layout& layout, const BodyShape& shape) {
  if (shape.keeps) {
    BodyShape own = shape;
    own.keeps = false;
    const Plan plan = plan_of_kept_layers(layout.plan);
    return make_body({layout.model, plan}, own);
  }
  if (shape.variant >= 0) {
    BodyShape own = shape;
    own.variant = -1;
    return make_body({variant(layout.model, shape.variant), layout.plan}, own);
  }
  return layout.plan.runtime.performer().own_kernels ? make_rehearse_body(layout, shape)
                                                     : make_framework_body(layout, shape);
}

}  // namespace rehearse
