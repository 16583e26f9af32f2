// SPDX-License-Identifier: Apache-2.0
// Which segments' activations go to the host (plan.offload, offload_activations): one rule for the
// lowering and for the memory that frameworks need.
#pragma once

#include <cstdint>
#include <span>

#include "schedules/body/body.h"

namespace rehearse {

// Whether what the `at`-th of a stage's segments keeps leaves. `chosen`: of its layers so many do
// (OffloadedActivations::Chosen), spread over the stage, so that their copies are.
bool leaves(const Plan& plan, std::span<const SegmentInfo> segments, std::size_t at,
            std::int32_t chosen);
// So many parts of a backward before its own one comes back: plan.prefetch, or as many as lie
// between two that leave.
std::int32_t fetched_ahead(const Plan& plan, std::span<const SegmentInfo> segments,
                           std::int32_t chosen);

// What a stage takes for a micro-batch, and the copies of all that its layers keep. Any unit.
struct StageCopies {
  std::int64_t forward = 0, backward = 0, out = 0, in = 0;
};
// How many of so many layers leave and come back for nothing: their copies take no longer than
// the forward that makes them, and the backward that reads them.
std::int32_t leaves_for_nothing(std::int64_t layers, const StageCopies& stage);
// Whether as much leaves as does for nothing.
constexpr bool chooses_leaving(const Plan& plan) {
  return plan.offload.activations && plan.offload_activations == OffloadedActivations::Chosen;
}
std::int64_t layers_of(std::span<const SegmentInfo> segments);

}  // namespace rehearse
