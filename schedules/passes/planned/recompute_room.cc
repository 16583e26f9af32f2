// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/planned/recompute_room.h"

#include <algorithm>
#include <map>

#include "schedules/base/units.h"
#include "schedules/body/arena.h"
#include "schedules/body/body.h"
#include "schedules/body/sizes.h"
#include "schedules/order/registry.h"

namespace rehearse {
namespace {

// [B] of one stage and micro-batch (or slice).
struct StageSlabs {
  std::int64_t kept = 0;                       // from the forward on
  std::int64_t for_input = 0, for_weight = 0;  // from an R on
};

class Slabs {
 public:
  explicit Slabs(const Layout& layout) : layout_(layout) {}

  // Segments behind the first keep their inputs as they come, the first of a later stage what it
  // has received (compute_parts.cc, part_work.cc).
  StageSlabs of(const std::vector<SegmentInfo>& segments, bool first) {
    const std::int64_t activation = aligned(layout_.activation_bytes());
    StageSlabs sum{.kept =
                       activation * (static_cast<std::int64_t>(segments.size()) - (first ? 1 : 0))};
    for (const SegmentInfo& segment : segments) {
      const StageSlabs& one = of(segment);
      sum.kept += one.kept;
      sum.for_input += one.for_input;
      sum.for_weight += one.for_weight;
    }
    return sum;
  }

 private:
  // Slices are alike but for what they read of earlier ones.
  const StageSlabs& of(const SegmentInfo& segment) {
    const std::int32_t slice = layout_.plan.sequence_slices > 1 ? 0 : -1;
    const auto shape = [&](Direction direction) {
      return body_shape(layout_, segment, direction, slice);
    };
    const auto [known, fresh] = known_.try_emplace(shape(Direction::Forward));
    if (!fresh) return known->second;
    const Body forward = make_body(layout_, shape(Direction::Forward));
    known->second.kept = forward.saved_for_dgrad + forward.saved_for_wgrad;
    const BodyShape again = shape(Direction::Recompute);
    if (segment.kind == SegmentKind::Layer && !again.keeps) {
      const Body made = make_body(layout_, again);
      known->second.for_input = made.remade_for_dgrad;
      known->second.for_weight = made.remade_for_wgrad;
    }
    return known->second;
  }

  const Layout& layout_;
  std::map<BodyShape, StageSlabs> known_;
};

}  // namespace

RecomputeRoom recompute_room(const Layout& layout, const Schedule& order) {
  const Plan& plan = layout.plan;
  if (plan.memory_limit <= 0) return {};
  RecomputeRoom room{.most = plan.memory_limit *
                             std::min(plan.pipeline_parallel, plan.microbatches()) *
                             visited_chunks(order) * std::max(order.slices, 1)};
  if (!plan.runtime.performer().keeps_slabs) return room;
  Slabs slabs(layout);
  bool first = true;
  for (const auto& segments : stage_segments(layout, order.placement.stages())) {
    const StageSlabs stage = slabs.of(segments, std::exchange(first, false));
    const auto whole = static_cast<double>(std::max<std::int64_t>(stage.kept, 1));
    room.left.push_back({static_cast<double>(stage.for_input) / whole,
                         static_cast<double>(stage.for_weight) / whole});
  }
  return room;
}

}  // namespace rehearse
