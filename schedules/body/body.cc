// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/body.h"

#include <algorithm>

#include "schedules/body/framework/body_framework.h"
#include "schedules/body/own/body_rehearse.h"

namespace rehearse {

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

bool rotates(const Transformer& model, const SegmentInfo& segment) {
  if (segment.kind != SegmentKind::Layer || model.positions != PositionKind::Rope) return true;
  return model.rotates(std::min<std::int64_t>(segment.layer, model.layers - 1));
}

BodyShape body_shape(const Transformer& model, const SegmentInfo& segment, Direction direction,
                     std::int32_t slice) {
  const SegmentShape shape = segment_shape(model, segment);
  const bool prediction = shape == SegmentShape::PredictionLayer;
  std::optional<Reach> reach;
  if (segment.kind == SegmentKind::Layer) {
    reach = model.reach(prediction ? model.layers - 1 : segment.layer);
  }
  return {.segment = segment.kind,
          .experts =
              prediction ? model.has_experts(model.layers - 1) : shape == SegmentShape::ExpertLayer,
          .direction = direction,
          .slice = slice,
          .prediction = prediction,
          .reach = reach,
          .rotates = rotates(model, segment)};
}

Body make_body(const Layout& layout, const BodyShape& shape) {
  return layout.plan.runtime.performer().own_kernels ? make_rehearse_body(layout, shape)
                                                     : make_framework_body(layout, shape);
}

}  // namespace rehearse
