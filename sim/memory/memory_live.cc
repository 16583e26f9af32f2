// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory_live.h"

#include <algorithm>
#include <utility>

#include "schedules/body/leaving.h"
#include "schedules/body/sizes.h"
#include "schedules/ir/stage_index.h"
#include "sim/memory/memory_script.h"
#include "sim/memory/memory_states.h"
#include "sim/memory/replay/caching_allocator.h"
#include "sim/memory/stage_walk.h"

namespace rehearse::sim {
namespace {

// Bytes, rounded as the allocator rounds.
class Counter {
 public:
  using Tensor = std::int64_t;
  static constexpr std::int64_t kNothing = 0;

  std::int64_t now() const { return now_; }
  std::int64_t most() const { return most_; }
  void begin() { most_ = now_; }

  void make(std::int64_t& tensor, std::int64_t bytes, bool /*kept*/, std::uint8_t /*kind*/) {
    tensor = bytes > 0 ? CachingAllocator::round_size(bytes) : 0;
    now_ += tensor;
    most_ = std::max(most_, now_);
  }
  void drop(std::int64_t& tensor) {
    now_ -= tensor;
    tensor = 0;
  }
  void take(std::int64_t /*tensor*/, std::uint8_t /*kind*/) {}
  std::int64_t bytes(std::int64_t tensor) const { return tensor; }
  void enter(std::size_t, std::ptrdiff_t) {}
  void leave_forward(std::size_t) {}
  void leave_backward(std::size_t) {}

 private:
  std::int64_t now_ = 0, most_ = 0;
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
  const Plan& plan = layout.plan;
  const SegmentPrograms programs = segment_programs(profile, layout);
  const std::int64_t handover = layout.activation_bytes();

  const auto stages = static_cast<std::int32_t>(plan.stage_layers.size());
  std::vector<StageSegments> seen;  // stages inside
  std::vector<std::size_t> seen_at;
  const auto segments = stage_segments(layout, stages);
  for (std::size_t s = 0; s < segments.size(); ++s) {
    StageSegments stage;
    stage.meet(layout, static_cast<std::int32_t>(s), stages);
    for (std::size_t i = 0; i < segments[s].size(); ++i) {
      stage.add(of_segment(programs, layout, segments[s][i]), /*unit=*/0,
                leaves(plan, segments[s], i, /*chosen=*/0));
    }
    stage.form_blocks(plan.recompute_stream_layers);
    const bool inside =
        stage.incoming == handover && stage.outgoing == handover;  // alike where their parts are
    const auto same = std::ranges::find(seen, stage.parts, &StageSegments::parts);
    if (inside && same != seen.end()) {
      of_stage_.push_back(of_stage_[seen_at[static_cast<std::size_t>(same - seen.begin())]]);
      continue;
    }
    const auto pass = [&](auto run) {
      Counter count;
      StageWalk<Counter> walk(count, stage);
      std::vector<std::int64_t> tensors(stage.slots);
      Passes passes;
      const auto take = [&](Pass& to, auto part) {
        const std::int64_t before = count.now();
        count.begin();
        part();
        to = {count.most() - before, count.now() - before};
      };
      take(passes.forward, [&] { walk.forward(tensors.data()); });
      run(walk, tensors.data(), passes, take);
      return passes;
    };
    Passes passes =
        pass([&](StageWalk<Counter>& walk, std::int64_t* tensors, Passes& to, auto take) {
          take(to.backward, [&] { walk.backward(tensors, /*split=*/false); });
        });
    const Passes split =
        pass([&](StageWalk<Counter>& walk, std::int64_t* tensors, Passes& to, auto take) {
          take(to.input, [&] { walk.backward(tensors, /*split=*/true); });
          take(to.weight, [&] { walk.weight_gradient(tensors); });
        });
    passes.input = split.input;
    passes.weight = split.weight;
    if (inside) {
      seen.push_back(std::move(stage));
      seen_at.push_back(s);
    }
    of_stage_.push_back(passes);
  }

  const Flags flags = script_flags(profile, layout, /*experts=*/false);
  for (const Workspace& workspace : profile.workspaces) {
    if (workspace.condition.holds(flags)) held_ += workspace.bytes.of(compute_capability);
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
