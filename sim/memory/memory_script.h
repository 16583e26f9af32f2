// SPDX-License-Identifier: Apache-2.0
// A memory profile applied to one model and plan: which slots a segment allocates and frees, in
// bytes, forward and backward, recomputation already spelled out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/body/body.h"
#include "sim/memory/memory_letters.h"
#include "sim/memory/memory_profile.h"

namespace rehearse::sim {

// Slots that every segment has: what it hands to and takes from its neighbours.
enum : std::int16_t { kInputSlot, kOutputSlot, kOutputGradientSlot, kInputGradientSlot };

struct ScriptStep {
  std::int64_t bytes = 0;  // > 0: allocate; 0: free
  std::int16_t slot = 0;
  bool kept = false;          // lives beyond its op (part `activations`), else `workspace`
  bool weight_phase = false;  // freed by W where the backward is split
  // Whose it is: a block of the layer (ModelPart::block), or what name_kinds makes of that.
  std::uint8_t kind = 0;
};

struct SegmentProgram {
  std::vector<ScriptStep> forward, backward;  // backward: I and W together, in the order of B
  // The backward in two, where an order has an R: what that makes, all of which the rest may read,
  // and the rest. Empty unless asked for (segment_programs).
  std::vector<ScriptStep> again, apart;
  std::int16_t slots = 0;
  // Of a layer whose residual streams are computed again: what the forward made and its block of
  // layers drops (StageSegments), in the order in which it is made again.
  std::vector<ScriptStep> streams;
  std::int64_t output = 0;      // [B] handed on
  std::uint8_t input_kind = 0;  // whose what it reads is, as ScriptStep::kind
  bool own_block = false;       // it is a block of its own
};

// Which replica of a plan whose batches go through one GPU (DataParallel): the one with the loss of
// all, or another. Alike: every replica has its own.
enum class ReplicaRole : std::uint8_t { Alike, Root, Other };
inline ReplicaRole fullest_role(const Plan& plan) {
  return plan.has_parameter_server() ? ReplicaRole::Root : ReplicaRole::Alike;
}

// Recomputation concerns layers alone. A prediction layer is its projection and a layer; the head's
// is as often as there are losses.
SegmentProgram segment_program(const MemoryProfile& profile, const Layout& layout,
                               SegmentShape shape, bool rotates = true);

// The same of a mixed model's layers of one variant.
SegmentProgram layer_program(const MemoryProfile& profile, const Layout& layout, std::int32_t index,
                             bool rotates = true);

// The programs of every class of segments (segment_class) that the model has; empty: it has none.
// Layers that do not rotate have their own.
struct SegmentPrograms {
  std::vector<SegmentProgram> rotating, still;
  // Of layers that are not computed again where others are (keeps_layer); empty: there are none.
  std::vector<SegmentPrograms> kept;
};
// `apart`: for orders in which backwards have an R before them, too.
SegmentPrograms segment_programs(const MemoryProfile& profile, const Layout& layout,
                                 ReplicaRole role = ReplicaRole::Alike, bool apart = false);
const SegmentProgram& of_segment(const SegmentPrograms& programs, const Layout& layout,
                                 const SegmentInfo& segment);

// Programs that run one behind the other, as one: each takes what the one before hands on.
SegmentProgram chained(std::span<const SegmentProgram> programs);

struct ForwardBytes {
  // [B] when the forward has ended, its output among them, its input not; where streams are
  // computed again, without what its block of layers drops
  std::int64_t kept = 0;
  std::int64_t peak = 0;  // [B] inside it
};
ForwardBytes forward_bytes(const SegmentProgram& program);
// The same of segment_program and layer_program, of which only the forward is made.
ForwardBytes segment_forward_bytes(const MemoryProfile& profile, const Layout& layout,
                                   SegmentShape shape, bool rotates = true);
ForwardBytes layer_forward_bytes(const MemoryProfile& profile, const Layout& layout,
                                 std::int32_t index, bool rotates = true);

// Bytes that a segment's forward leaves for its backward, its input among them (`handover`; 0: it
// has none), its output not, nor what its block of layers drops.
std::int64_t kept_bytes(const SegmentProgram& program, std::int64_t handover);

}  // namespace rehearse::sim
