// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory_live.h"

#include <algorithm>
#include <utility>

#include "schedules/body/sizes.h"
#include "schedules/ir/stage_index.h"
#include "sim/memory/caching_allocator.h"
#include "sim/memory/memory_script.h"
#include "sim/memory/memory_states.h"

namespace rehearse::sim {
namespace {

// One micro-batch's tensors on a stage, made and dropped as the replay does (memory_replay.cc).
class Counter {
 public:
  std::int64_t now() const { return now_; }
  std::int64_t most() const { return most_; }
  void begin() { most_ = now_; }

  void make(std::int64_t& tensor, std::int64_t bytes) {
    tensor = bytes > 0 ? CachingAllocator::round_size(bytes) : 0;
    now_ += tensor;
    most_ = std::max(most_, now_);
  }
  void drop(std::int64_t& tensor) {
    now_ -= tensor;
    tensor = 0;
  }
  void run(const ScriptStep& step, std::int64_t* slots) {
    std::int64_t& tensor = slots[step.slot];
    step.bytes > 0 ? make(tensor, step.bytes) : drop(tensor);
  }

 private:
  std::int64_t now_ = 0, most_ = 0;
};

using Slots = std::vector<std::int64_t>;  // bytes per slot of a segment; 0: nothing there

// A stage's segments with what one micro-batch keeps of them.
class StageCount {
 public:
  StageCount(std::vector<const SegmentProgram*> programs, std::int64_t handover, bool first,
             bool last, bool offloads)
      : programs_(std::move(programs)),
        handover_(handover),
        first_(first),
        last_(last),
        offloads_(offloads) {
    for (const SegmentProgram* program : programs_) {
      slots_.emplace_back(static_cast<std::size_t>(program->slots), 0);
    }
  }

  void forward(Counter& count) {
    std::int64_t carried = 0;
    if (!first_) count.make(carried, handover_);
    for (std::size_t i = 0; i < programs_.size(); ++i) {
      Slots& own = slots_[i];
      own[kInputSlot] = std::exchange(carried, 0);
      for (const ScriptStep& step : programs_[i]->forward) count.run(step, own.data());
      carried = std::exchange(own[kOutputSlot], 0);
      if (i > 0) leave(count, i - 1);
    }
    count.drop(carried);
    if (!programs_.empty()) leave(count, programs_.size() - 1);
  }

  void backward(Counter& count, bool split) {
    if (!programs_.empty()) fetch(count, programs_.size() - 1);
    std::int64_t carried = 0;
    if (!last_) count.make(carried, handover_);
    for (std::size_t i = programs_.size(); i-- > 0;) {
      if (i > 0) fetch(count, i - 1);
      Slots& own = slots_[i];
      own[kOutputGradientSlot] = std::exchange(carried, 0);
      for (const ScriptStep& step : programs_[i]->backward) {
        if (!split || !step.weight_phase) count.run(step, own.data());
      }
      count.drop(own[kOutputGradientSlot]);
      count.drop(own[kInputSlot]);
      carried = std::exchange(own[kInputGradientSlot], 0);
    }
    count.drop(carried);
    if (!split) release(count);
  }

  void weight_gradient(Counter& count) {
    for (std::size_t i = programs_.size(); i-- > 0;) {
      for (const ScriptStep& step : programs_[i]->backward) {
        if (step.weight_phase) count.run(step, slots_[i].data());
      }
    }
    release(count);
  }

 private:
  // To the host and back, as the replay does.
  void leave(Counter& count, std::size_t i) {
    if (!offloads_) return;
    kept_.resize(slots_.size());
    kept_[i] = slots_[i];
    for (std::int64_t& tensor : slots_[i]) count.drop(tensor);
  }
  void fetch(Counter& count, std::size_t i) {
    if (!offloads_) return;
    for (std::size_t s = 0; s < kept_[i].size(); ++s) {
      if (kept_[i][s] > 0) count.make(slots_[i][s], kept_[i][s]);
    }
  }
  void release(Counter& count) {
    for (Slots& own : slots_) {
      for (std::int64_t& tensor : own) count.drop(tensor);
    }
  }

  std::vector<const SegmentProgram*> programs_;
  std::int64_t handover_;
  bool first_, last_, offloads_;
  std::vector<Slots> slots_, kept_;  // per segment; kept_: on the host
};

}  // namespace

std::vector<LiveRow> live_rows(const Schedule& order) {
  const auto stages = stages_of_rows(order);
  std::vector<LiveRow> rows(stages.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const Stage stage : stages[r]) rows[r].stages.push_back(stage.value);
    const auto program = order.program({static_cast<std::int32_t>(r)});
    rows[r].program.reserve(program.size());
    for (const Op& op : program) {
      for (const Op& work : work_of(order, op)) {
        const bool holds = work.kind == OpKind::Forward || work.kind == OpKind::WeightGradient ||
                           is_backward(work.kind);
        if (!holds || work.stage.value < 0 || work.microbatch.value < 0) continue;
        rows[r].program.push_back({static_cast<std::int16_t>(work.stage.value), work.kind});
      }
    }
  }
  return rows;
}

LiveBytes::LiveBytes(const MemoryProfile& profile, const Layout& layout,
                     std::int32_t compute_capability) {
  const Transformer& model = layout.model;
  const Plan& plan = layout.plan;
  const auto program = [&](SegmentShape shape) { return segment_program(profile, layout, shape); };
  const SegmentProgram embedding = program(SegmentShape::Embedding);
  const SegmentProgram dense = program(SegmentShape::DenseLayer);
  const SegmentProgram expert =
      model.experts.count > 0 ? program(SegmentShape::ExpertLayer) : SegmentProgram{};
  const SegmentProgram head = program(SegmentShape::Head);
  const std::int64_t handover = layout.activation_bytes();

  const auto stages = static_cast<std::int32_t>(plan.stage_layers.size());
  std::vector<std::vector<const SegmentProgram*>> seen;  // of stages inside
  std::vector<std::size_t> seen_at;
  const auto segments = stage_segments(plan, stages);
  for (std::size_t s = 0; s < segments.size(); ++s) {
    std::vector<const SegmentProgram*> programs;
    for (const SegmentInfo& segment : segments[s]) {
      programs.push_back(segment.kind == SegmentKind::Embedding ? &embedding
                         : segment.kind == SegmentKind::Head    ? &head
                         : model.has_experts(segment.layer)     ? &expert
                                                                : &dense);
    }
    const bool first = s == 0, last = s + 1 == segments.size();
    const auto same = std::find(seen.begin(), seen.end(), programs);
    if (!first && !last && same != seen.end()) {
      of_stage_.push_back(of_stage_[seen_at[static_cast<std::size_t>(same - seen.begin())]]);
      continue;
    }
    const auto pass = [&](auto run) {
      Counter count;
      StageCount stage(programs, handover, first, last, plan.offload == OffloadMode::Activations);
      Passes passes;
      const auto take = [&](Pass& to, auto part) {
        const std::int64_t before = count.now();
        count.begin();
        part();
        to = {count.most() - before, count.now() - before};
      };
      take(passes.forward, [&] { stage.forward(count); });
      run(stage, count, passes, take);
      return passes;
    };
    Passes passes = pass([&](StageCount& stage, Counter& count, Passes& to, auto take) {
      take(to.backward, [&] { stage.backward(count, /*split=*/false); });
    });
    const Passes split = pass([&](StageCount& stage, Counter& count, Passes& to, auto take) {
      take(to.input, [&] { stage.backward(count, /*split=*/true); });
      take(to.weight, [&] { stage.weight_gradient(count); });
    });
    passes.input = split.input;
    passes.weight = split.weight;
    if (!first && !last) {
      seen.push_back(std::move(programs));
      seen_at.push_back(s);
    }
    of_stage_.push_back(passes);
  }

  for (const ByCapability& workspace : profile.workspaces) {
    held_ += workspace.of(compute_capability);
  }
  if (plan.pipeline_parallel > 1) held_ += profile.transfer_buffers * handover;
}

std::int64_t LiveBytes::most(std::span<const LiveOp> program) const {
  std::int64_t alive = 0, most = 0;
  for (const LiveOp& op : program) {
    const Passes& passes = of_stage_[static_cast<std::size_t>(op.stage)];
    const Pass& pass = op.kind == OpKind::Forward         ? passes.forward
                       : op.kind == OpKind::Backward      ? passes.backward
                       : op.kind == OpKind::InputGradient ? passes.input
                                                          : passes.weight;
    most = std::max(most, alive + pass.most);
    alive += pass.left;
  }
  return most + held_;
}

}  // namespace rehearse::sim
