// SPDX-License-Identifier: Apache-2.0
// One micro-batch's way through a stage: which tensors its forward makes and drops, and its
// backward, in which order. The one place that says it: the replay walks it with blocks of the
// caching allocator, the quick bound of a search with bytes alone.
//
// A Memory says what a tensor is:
//   Tensor                             default-made: nothing there
//   make(Tensor&, bytes, bool kept)    kept: beyond the op that makes it
//   drop(Tensor&)                      nothing there afterwards
//   bytes(Tensor)                      0: nothing there
//   enter(unit, next)                  before a segment runs, in either direction; next: the unit
//                                      after it, -1: none
//   leave_forward(unit), leave_backward(unit)
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/memory/memory_script.h"

namespace rehearse::sim {

// A stage's segments and where each keeps its tensors: `slots` of them for a micro-batch.
struct StageSegments {
  struct Part {
    const SegmentProgram* program = nullptr;
    std::size_t unit = 0;  // of the row
    std::size_t slot = 0;  // first slot
    bool leaves = false;   // what its forward keeps goes to the host
    bool operator==(const Part& other) const {
      return program == other.program && leaves == other.leaves;
    }
  };
  std::vector<Part> parts;
  std::size_t slots = 0;
  // [B] handed over by the stage before and to the one behind; 0: there is none.
  std::int64_t incoming = 0, outgoing = 0;

  void meet(const Layout& layout, std::int32_t stage, std::int32_t stages) {
    incoming = stage > 0 ? layout.handover_bytes(stage - 1) : 0;
    outgoing = stage + 1 < stages ? layout.handover_bytes(stage) : 0;
  }
  void add(const SegmentProgram& program, std::size_t unit, bool leaves) {
    parts.push_back({&program, unit, slots, leaves});
    slots += static_cast<std::size_t>(program.slots);
  }
};

template <class Memory>
class StageWalk {
 public:
  using Tensor = typename Memory::Tensor;

  // What leaves goes to the host while the next part's forward runs, and comes back while its
  // backward does.
  StageWalk(Memory& memory, const StageSegments& stage) : memory_(memory), stage_(stage) {
    if (std::ranges::any_of(stage.parts, &StageSegments::Part::leaves)) {
      on_host_.resize(stage.slots);
    }
  }

  void forward(Tensor* tensors) {
    Tensor carried = Memory::kNothing;
    if (stage_.incoming > 0) memory_.make(carried, stage_.incoming, true);
    for (std::size_t i = 0; i < stage_.parts.size(); ++i) {
      const StageSegments::Part& part = stage_.parts[i];
      memory_.enter(part.unit, unit_at(i + 1));
      Tensor* const own = tensors + part.slot;
      own[kInputSlot] = std::exchange(carried, Memory::kNothing);
      for (const ScriptStep& step : part.program->forward) run(step, own);
      carried = std::exchange(own[kOutputSlot], Memory::kNothing);
      memory_.leave_forward(part.unit);
      if (i > 0) offload(i - 1, tensors);
    }
    memory_.drop(carried);  // sent
    if (!stage_.parts.empty()) offload(stage_.parts.size() - 1, tensors);
  }

  // What the backwards of the stage's parts compute again, of all of them at once (an R).
  // REQUIRES: programs that have it apart (segment_programs).
  void recompute(Tensor* tensors) {
    for (std::size_t i = 0; i < stage_.parts.size(); ++i) {
      const StageSegments::Part& part = stage_.parts[i];
      if (part.program->again.empty()) continue;
      const bool more = i + 1 < stage_.parts.size() && !stage_.parts[i + 1].program->again.empty();
      memory_.enter(part.unit, more ? unit_at(i + 1) : -1);
      fetch(i, tensors);
      for (const ScriptStep& step : part.program->again) run(step, tensors + part.slot);
      memory_.leave_forward(part.unit);
    }
  }

  // `split`: the input gradient's half, after which weight_gradient follows. `apart`: behind
  // recompute().
  void backward(Tensor* tensors, bool split, bool apart = false) {
    if (!stage_.parts.empty()) fetch(stage_.parts.size() - 1, tensors);
    Tensor carried = Memory::kNothing;
    if (stage_.outgoing > 0) memory_.make(carried, stage_.outgoing, true);
    for (std::size_t i = stage_.parts.size(); i-- > 0;) {
      const StageSegments::Part& part = stage_.parts[i];
      memory_.enter(part.unit, unit_at(i - 1));
      if (i > 0) fetch(i - 1, tensors);
      Tensor* const own = tensors + part.slot;
      own[kOutputGradientSlot] = std::exchange(carried, Memory::kNothing);
      for (const ScriptStep& step : backward_of(part, apart)) {
        if (!split || !step.weight_phase) run(step, own);
      }
      memory_.drop(own[kOutputGradientSlot]);
      memory_.drop(own[kInputSlot]);
      carried = std::exchange(own[kInputGradientSlot], Memory::kNothing);
      if (!split) memory_.leave_backward(part.unit);
    }
    memory_.drop(carried);  // sent
    if (!split) release(tensors);
  }

  void weight_gradient(Tensor* tensors, bool apart = false) {
    for (std::size_t i = stage_.parts.size(); i-- > 0;) {
      const StageSegments::Part& part = stage_.parts[i];
      for (const ScriptStep& step : backward_of(part, apart)) {
        if (step.weight_phase) run(step, tensors + part.slot);
      }
      memory_.leave_backward(part.unit);
    }
    release(tensors);
  }

 private:
  // -1: there is no such part (of part 0 the one before is at SIZE_MAX).
  std::ptrdiff_t unit_at(std::size_t part) const {
    return part < stage_.parts.size() ? static_cast<std::ptrdiff_t>(stage_.parts[part].unit) : -1;
  }
  static const std::vector<ScriptStep>& backward_of(const StageSegments::Part& part, bool apart) {
    return apart ? part.program->apart : part.program->backward;
  }
  void run(const ScriptStep& step, Tensor* own) {
    if (step.bytes > 0) {
      memory_.make(own[step.slot], step.bytes, step.kept);
    } else {
      memory_.drop(own[step.slot]);
    }
  }
  void offload(std::size_t part, Tensor* tensors) {
    if (!stage_.parts[part].leaves) return;
    each_slot(part, [&](std::size_t s) {
      on_host_[s] = memory_.bytes(tensors[s]);
      memory_.drop(tensors[s]);
    });
  }
  void fetch(std::size_t part, Tensor* tensors) {
    if (!stage_.parts[part].leaves) return;
    each_slot(part, [&](std::size_t s) {  // but for what came back for an R
      const bool there = memory_.bytes(tensors[s]) > 0;
      if (on_host_[s] > 0 && !there) memory_.make(tensors[s], on_host_[s], true);
    });
  }
  template <class Visit>
  void each_slot(std::size_t part, Visit visit) const {
    const StageSegments::Part& of = stage_.parts[part];
    for (std::size_t s = 0; s < static_cast<std::size_t>(of.program->slots); ++s) {
      visit(of.slot + s);
    }
  }
  void release(Tensor* tensors) {
    for (std::size_t s = 0; s < stage_.slots; ++s) memory_.drop(tensors[s]);
  }

  Memory& memory_;
  const StageSegments& stage_;
  std::vector<std::int64_t> on_host_;  // [B] per slot: what a forward moved there
};

}  // namespace rehearse::sim
