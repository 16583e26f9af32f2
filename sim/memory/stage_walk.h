// SPDX-License-Identifier: Apache-2.0
// One micro-batch's way through a stage: which tensors its forward makes and drops, and its
// backward, in which order. The one place that says it: the replay walks it with blocks of the
// caching allocator, the quick bound of a search with bytes alone.
//
// A Memory says what a tensor is:
//   Tensor                             default-made: nothing there
//   make(Tensor&, bytes, bool kept, kind)  kept: beyond the op that makes it; kind: whose it is
//   take(Tensor, kind)                 it is that one's now
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

// The kind of what belongs to no segment, in a walk whose kinds have names.
inline constexpr std::uint8_t kHandedOnKind = 0;

// A stage's segments and where each keeps its tensors: `slots` of them for a micro-batch.
struct StageSegments {
  struct Part {
    const SegmentProgram* program = nullptr;
    std::size_t unit = 0;  // of the row
    std::size_t slot = 0;  // first slot
    bool leaves = false;   // what its forward keeps goes to the host
    // At the last layer of a block whose streams are computed again: the first of it; else -1
    std::int32_t block = -1;
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
  // Layers one behind the other whose streams are computed again are blocks of `layers`, 0: one.
  void form_blocks(std::int32_t layers) {
    for (std::size_t i = 0, first = 0; i < parts.size(); ++i) {
      const auto makes = [this](std::size_t part) {
        return part < parts.size() && !parts[part].program->streams.empty();
      };
      if (!makes(i)) {
        first = i + 1;
        continue;
      }
      const bool whole = layers > 0 && i + 1 - first == static_cast<std::size_t>(layers);
      const bool goes_on =
          makes(i + 1) && !parts[i].program->own_block && !parts[i + 1].program->own_block;
      if (goes_on && !whole) continue;
      parts[i].block = static_cast<std::int32_t>(first);
      first = i + 1;
    }
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
    if (stage_.incoming > 0) memory_.make(carried, stage_.incoming, true, kHandedOnKind);
    for (std::size_t i = 0; i < stage_.parts.size(); ++i) {
      const StageSegments::Part& part = stage_.parts[i];
      memory_.enter(part.unit, unit_at(i + 1));
      Tensor* const own = tensors + part.slot;
      own[kInputSlot] = std::exchange(carried, Memory::kNothing);
      memory_.take(own[kInputSlot], part.program->input_kind);
      for (const ScriptStep& step : part.program->forward) run(step, own);
      carried = std::exchange(own[kOutputSlot], Memory::kNothing);
      if (part.block >= 0) drop_block(i, tensors);
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
      if (part.block >= 0) make_block(i, tensors);
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
    if (stage_.outgoing > 0) memory_.make(carried, stage_.outgoing, true, kHandedOnKind);
    for (std::size_t i = stage_.parts.size(); i-- > 0;) {
      const StageSegments::Part& part = stage_.parts[i];
      memory_.enter(part.unit, unit_at(i - 1));
      if (i > 0) fetch(i - 1, tensors);
      if (part.block >= 0 && !apart) make_block(i, tensors);
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
      memory_.make(own[step.slot], step.bytes, step.kept, step.kind);
    } else {
      memory_.drop(own[step.slot]);
    }
  }
  // A block of layers that ends with this part, behind whose forward nobody reads what is between
  // its own blocks: NVIDIA/Megatron-LM megatron/core/tensor_parallel/random.py (d98e8a6),
  // discard_all_outputs_and_register_unified_recompute. What the block reads and hands on stays.
  void drop_block(std::size_t last, Tensor* tensors) {
    const auto first = static_cast<std::size_t>(stage_.parts[last].block);
    for (std::size_t i = first; i <= last; ++i) {
      Tensor* const own = tensors + stage_.parts[i].slot;
      if (i > first) memory_.drop(own[kInputSlot]);
      for (const ScriptStep& step : stage_.parts[i].program->streams) memory_.drop(own[step.slot]);
    }
  }
  // All of it again, in the order of the forward.
  void make_block(std::size_t last, Tensor* tensors) {
    const auto first = static_cast<std::size_t>(stage_.parts[last].block);
    for (std::size_t i = first; i <= last; ++i) {
      Tensor* const own = tensors + stage_.parts[i].slot;
      if (i > first) {
        memory_.make(own[kInputSlot], stage_.parts[i - 1].program->output, true,
                     stage_.parts[i].program->input_kind);
      }
      for (const ScriptStep& step : stage_.parts[i].program->streams) run(step, own);
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
      if (on_host_[s] > 0 && !there) {
        memory_.make(tensors[s], on_host_[s], true, stage_.parts[part].program->input_kind);
      }
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
