// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/leaving.h"

#include <algorithm>

namespace rehearse {

bool leaves(const Plan& plan, std::span<const SegmentInfo> segments, std::size_t at,
            std::int32_t chosen) {
  if (!plan.offload.activations) return false;
  if (plan.offload_activations == OffloadedActivations::All) return true;
  if (segments[at].kind != SegmentKind::Layer) return false;
  const std::int64_t before = layers_of(segments.first(at));
  if (plan.offload_activations == OffloadedActivations::Checkpoints) {
    return plan.recompute_layers == 0 || before < plan.recompute_layers;
  }
  return before * chosen % layers_of(segments) < chosen;
}

std::int64_t layers_of(std::span<const SegmentInfo> segments) {
  return std::ranges::count(segments, SegmentKind::Layer, &SegmentInfo::kind);
}

std::int32_t fetched_ahead(const Plan& plan, std::span<const SegmentInfo> segments,
                           std::int32_t chosen) {
  if (!chooses_leaving(plan) || chosen == 0) return plan.prefetch;
  const auto apart = static_cast<std::int32_t>((layers_of(segments) + chosen - 1) / chosen);
  return std::max(plan.prefetch, apart);
}

std::int32_t leaves_for_nothing(std::int64_t layers, const StageCopies& stage) {
  const auto share = [&](std::int64_t time, std::int64_t copies) {
    return copies <= time ? layers : layers * time / copies;
  };
  return static_cast<std::int32_t>(
      std::min(share(stage.forward, stage.out), share(stage.backward, stage.in)));
}

}  // namespace rehearse
