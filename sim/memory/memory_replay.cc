// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory_replay.h"

#include <algorithm>

#include "schedules/body/sizes.h"
#include "schedules/ir/stage_index.h"
#include "sim/memory/memory_ledger.h"
#include "sim/memory/memory_resident.h"
#include "sim/memory/memory_states.h"
#include "sim/memory/memory_steady.h"

namespace rehearse::sim {
namespace {

// Ops without growth after which equal ops are taken to bring none.
constexpr std::size_t kQuietOps = 32;
// Passes of segments below which a step is replayed whole. Split backwards leave holes that drift
// for long: their steps are shortened only where they are very long.
constexpr std::size_t kLongStep = 512, kLongSplitStep = 8192;

// A stage as this row runs it: its segments' programs and, per micro-batch in flight, a block of
// handles, one per slot.
struct StagePlan {
  struct Part {
    const SegmentProgram* program = nullptr;
    std::size_t unit = 0;
    std::size_t slot = 0;  // first slot
  };
  std::vector<Part> parts;
  std::size_t slots = 0;
  bool first = false, last = false;     // of the model
  std::vector<std::int32_t> block_of;   // per micro-batch and slice; -1: not in flight
  std::vector<Handle> handles;          // blocks of `slots` handles
  std::vector<std::int32_t> unused;     // blocks
  std::vector<std::int64_t> offloaded;  // per slot: bytes that a forward moves to the host

  std::int32_t take_block() {
    if (unused.empty()) {
      unused.push_back(static_cast<std::int32_t>(handles.size() / slots));
      handles.resize(handles.size() + slots, kNoBlock);
    }
    const std::int32_t block = unused.back();
    unused.pop_back();
    return block;
  }
  Handle* at(std::int32_t block) {
    return handles.data() + static_cast<std::size_t>(block) * slots;
  }
  bool same_programs(const StagePlan& other) const {
    return std::equal(parts.begin(), parts.end(), other.parts.begin(), other.parts.end(),
                      [](const Part& a, const Part& b) { return a.program == b.program; });
  }
};

class RowReplay {
 public:
  RowReplay(const ReplaySetup& setup, Row row, std::int64_t capacity)
      : setup_(setup),
        order_(*setup.order),
        row_(row),
        pipelined_(order_.num_rows() > 1),
        ledger_(capacity),
        state_(*setup.profile, setup.layout.plan,
               row_units(setup.layout, setup.stages[row.index()], order_.placement.stages()),
               order_.microbatches * order_.slices, pipelined_,
               script_flags(*setup.profile, setup.layout, /*experts=*/false), ledger_) {
    plan_stages();
    plan_skipping();
  }

  ReplayResult run() {
    const MemoryProfile& profile = *setup_.profile;
    state_.build();
    for (const ByCapability& workspace : profile.workspaces) {
      ledger_.allocate(workspace.of(setup_.compute_capability), MemoryPart::Workspace);
    }
    std::vector<Handle> transfers;
    for (int i = 0; pipelined_ && i < profile.transfer_buffers; ++i) {
      transfers.push_back(ledger_.allocate(setup_.handover, MemoryPart::Buffers));
    }
    if (!profile.moments_at_first_step) state_.create_moments();
    for (const bool first : {true, false}) {
      if (first && !profile.moments_at_first_step) continue;
      state_.begin_step();
      last_step_ = samples_.size();
      step();
      ledger_.op = {};
      if (setup_.samples) ledger_.watch();
      state_.optimizer_step(first);
      if (setup_.samples) samples_.push_back({{}, ledger_.most(), ledger_.now()});
      if (ledger_.out_of_memory()) break;
    }
    ledger_.free(transfers);
    ReplayResult result{.out_of_memory = ledger_.out_of_memory(), .memory = ledger_.result()};
    result.left_out = left_out_;
    result.samples = std::move(samples_);
    result.last_step = last_step_;
    result.memory.row = row_;
    result.memory.steady_allocated = ledger_.allocator().allocated() + stale_transfers();
    return result;
  }

 private:
  void plan_stages() {
    stage_at_.assign(setup_.segments.size(), -1);
    std::size_t unit = 0;
    for (const Stage stage : setup_.stages[row_.index()]) {
      StagePlan plan;
      for (const SegmentInfo& segment : setup_.segments[stage.index()]) {
        const SegmentProgram& program = setup_.program(segment);
        plan.parts.push_back({&program, unit++, plan.slots});
        plan.slots += static_cast<std::size_t>(program.slots);
      }
      plan.slots = std::max<std::size_t>(plan.slots, 1);  // a chunk without layers
      plan.first = stage.value == 0;
      plan.last = stage.index() + 1 == setup_.segments.size();
      plan.block_of.assign(static_cast<std::size_t>(order_.microbatches * order_.slices), -1);
      stage_at_[stage.index()] = static_cast<std::int32_t>(stages_.size());
      stages_.push_back(std::move(plan));
    }
  }

  // Where chunks run equal programs any two ops of a kind are alike, and what is in flight may be
  // exchanged; else a period must pass, and whole periods are left out.
  void plan_skipping() {
    std::size_t passes = 0;
    bool alike = !state_.gathers();
    for (const StagePlan& stage : stages_) {
      passes += stage.parts.size() * stage.block_of.size();
      alike &= stage.same_programs(stages_.front());
    }
    std::vector<std::int32_t> counts = in_flight_counts(order_, row_);
    if (setup_.whole_step || passes < (counts.empty() ? kLongSplitStep : kLongStep)) return;
    steady_ = steady_phase(order_, row_);
    if (alike) in_flight_ = std::move(counts);
    quiet_ops_ = in_flight_.empty() ? std::max(3 * kQuietOps, 2 * steady_.period) : kQuietOps;
  }

  std::int64_t stale_transfers() const {
    if (!pipelined_) return 0;
    return static_cast<std::int64_t>(stages_.size()) * setup_.profile->stale_transfers_per_chunk *
           CachingAllocator::round_size(setup_.handover);
  }

  void step() {
    const std::size_t begin = order_.first_op(row_);
    const auto program = order_.program(row_);
    const CachingAllocator& allocator = ledger_.allocator();
    std::int64_t reserved = -1, allocated = -1;
    std::size_t grown_at = 0;  // last op at which a peak grew
    bool skipped = steady_.period == 0;
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (!skipped && i >= std::max(steady_.begin, grown_at) + quiet_ops_ && i < steady_.end) {
        skipped = true;
        const std::size_t to = in_flight_.empty() ? skip_periods(i) : skip_to_cooldown(i);
        left_out_ = to - i;
        i = to;
      }
      ledger_.op = {static_cast<std::int32_t>(begin + i)};
      if (setup_.samples) ledger_.watch();
      for (const Op& work : work_of(order_, program[i])) run_op(work);
      if (setup_.samples) samples_.push_back({ledger_.op, ledger_.most(), ledger_.now()});
      if (ledger_.out_of_memory()) return;
      if (allocator.max_reserved() != reserved || allocator.max_allocated() != allocated) {
        reserved = allocator.max_reserved();
        allocated = allocator.max_allocated();
        grown_at = i;
      }
    }
  }

  // Both skips return the op to go on with: what is in flight is renamed as if all had run.
  std::size_t skip_periods(std::size_t i) {
    const std::size_t periods = (steady_.end - i) / steady_.period;
    const std::int32_t passes =
        static_cast<std::int32_t>(periods) * steady_.microbatches * order_.slices;
    for (StagePlan& stage : stages_) {
      std::rotate(stage.block_of.begin(), stage.block_of.end() - passes, stage.block_of.end());
    }
    state_.skip_backwards(passes);
    return i + periods * steady_.period;
  }
  std::size_t skip_to_cooldown(std::size_t i) {
    const auto program = order_.program(row_);
    std::size_t to = std::min(steady_.end + steady_.period, program.size() - 1);
    while (to > i && (in_flight_[to] != in_flight_[i] || program[to].kind != program[i].kind)) --to;
    const std::vector<Op> now = in_flight(order_, row_, i), then = in_flight(order_, row_, to);
    std::vector<Handle> held;  // of all that is in flight, oldest first
    for (const Op& op : now) {
      StagePlan& stage = stage_of(op);
      std::int32_t& block = block_of(stage, op);
      held.insert(held.end(), stage.at(block), stage.at(block) + stage.slots);
      stage.unused.push_back(block);
      block = -1;
    }
    for (std::size_t k = 0; k < then.size(); ++k) {
      StagePlan& stage = stage_of(then[k]);
      std::int32_t& block = block_of(stage, then[k]);
      block = stage.take_block();
      std::copy_n(held.begin() + static_cast<std::ptrdiff_t>(k * stage.slots), stage.slots,
                  stage.at(block));
    }
    return to;
  }

  StagePlan& stage_of(const Op& op) {
    return stages_[static_cast<std::size_t>(stage_at_[op.stage.index()])];
  }
  std::int32_t& block_of(StagePlan& stage, const Op& op) const {
    const std::int32_t slice = std::max<std::int32_t>(op.slice, 0);
    return stage.block_of[static_cast<std::size_t>(op.microbatch.value * order_.slices + slice)];
  }

  void run_op(const Op& op) {
    if (op.stage.value < 0 || op.microbatch.value < 0) return;
    StagePlan& stage = stage_of(op);
    switch (op.kind) {
      case OpKind::Forward:
        forward(stage, op);
        break;
      case OpKind::Backward:
        backward(stage, op, /*split=*/false);
        break;
      case OpKind::InputGradient:
        backward(stage, op, /*split=*/true);
        break;
      case OpKind::WeightGradient:
        weight_gradient(stage, op);
        break;
      default:
        break;
    }
  }

  void forward(StagePlan& stage, const Op& op) {
    const std::int32_t block = stage.take_block();
    block_of(stage, op) = block;
    Handle* const handles = stage.at(block);
    Handle carried = kNoBlock;
    if (!stage.first) carried = ledger_.allocate(setup_.handover, MemoryPart::Activations);
    for (std::size_t i = 0; i < stage.parts.size(); ++i) {
      const StagePlan::Part& part = stage.parts[i];
      const bool more = i + 1 < stage.parts.size();
      state_.enter(part.unit, more ? static_cast<std::ptrdiff_t>(stage.parts[i + 1].unit) : -1);
      Handle* const own = handles + part.slot;
      own[kInputSlot] = carried;
      for (const ScriptStep& step : part.program->forward) run_step(step, own);
      carried = own[kOutputSlot];
      own[kOutputSlot] = kNoBlock;
      state_.leave_forward(part.unit);
      if (i > 0) offload(stage, i - 1, handles);  // while the part ran
    }
    ledger_.free(carried);  // sent
    if (!stage.parts.empty()) offload(stage, stage.parts.size() - 1, handles);
  }

  // Activations on the host: what a part's forward keeps is copied there while the next part runs,
  // and back while the backward of the next part does.
  bool offloads() const { return setup_.layout.plan.offload == OffloadMode::Activations; }
  void offload(StagePlan& stage, std::size_t part, Handle* handles) {
    if (!offloads()) return;
    stage.offloaded.resize(stage.slots);
    each_slot(stage, part, [&](std::size_t s) {
      stage.offloaded[s] = ledger_.allocator().block_size(handles[s]);
      ledger_.free(handles[s]);
    });
  }
  void fetch(StagePlan& stage, std::size_t part, Handle* handles) {
    if (!offloads()) return;
    each_slot(stage, part, [&](std::size_t s) {
      if (stage.offloaded[s] == 0) return;
      handles[s] = ledger_.allocate(stage.offloaded[s], MemoryPart::Activations);
    });
  }
  template <class Visit>
  void each_slot(const StagePlan& stage, std::size_t part, Visit visit) const {
    const StagePlan::Part& of = stage.parts[part];
    for (std::size_t s = 0; s < static_cast<std::size_t>(of.program->slots); ++s) {
      visit(of.slot + s);
    }
  }

  void backward(StagePlan& stage, const Op& op, bool split) {
    const std::int32_t block = block_of(stage, op);
    if (block < 0) return;
    Handle* const handles = stage.at(block);
    if (!stage.parts.empty()) fetch(stage, stage.parts.size() - 1, handles);
    Handle carried = kNoBlock;
    if (!stage.last) carried = ledger_.allocate(setup_.handover, MemoryPart::Activations);
    for (std::size_t i = stage.parts.size(); i-- > 0;) {
      const StagePlan::Part& part = stage.parts[i];
      state_.enter(part.unit, i > 0 ? static_cast<std::ptrdiff_t>(stage.parts[i - 1].unit) : -1);
      if (i > 0) fetch(stage, i - 1, handles);
      Handle* const own = handles + part.slot;
      own[kOutputGradientSlot] = carried;
      for (const ScriptStep& step : part.program->backward) {
        if (!split || !step.weight_phase) run_step(step, own);
      }
      ledger_.free(own[kOutputGradientSlot]);
      ledger_.free(own[kInputSlot]);
      carried = own[kInputGradientSlot];
      own[kInputGradientSlot] = kNoBlock;
      if (!split) state_.leave_backward(part.unit);
    }
    ledger_.free(carried);  // sent
    if (!split) release(stage, op);
  }

  void weight_gradient(StagePlan& stage, const Op& op) {
    const std::int32_t block = block_of(stage, op);
    if (block < 0) return;
    Handle* const handles = stage.at(block);
    for (std::size_t i = stage.parts.size(); i-- > 0;) {
      const StagePlan::Part& part = stage.parts[i];
      for (const ScriptStep& step : part.program->backward) {
        if (step.weight_phase) run_step(step, handles + part.slot);
      }
      state_.leave_backward(part.unit);
    }
    release(stage, op);
  }

  void run_step(const ScriptStep& step, Handle* own) {
    if (step.bytes > 0) {
      own[step.slot] =
          ledger_.allocate(step.bytes, step.kept ? MemoryPart::Activations : MemoryPart::Workspace);
    } else {
      ledger_.free(own[step.slot]);
    }
  }

  void release(StagePlan& stage, const Op& op) {
    std::int32_t& block = block_of(stage, op);
    Handle* const handles = stage.at(block);
    for (std::size_t s = 0; s < stage.slots; ++s) ledger_.free(handles[s]);
    stage.unused.push_back(block);
    block = -1;
  }

  const ReplaySetup& setup_;
  const Schedule& order_;
  Row row_;
  bool pipelined_;
  Ledger ledger_;
  ResidentState state_;
  std::vector<std::int32_t> stage_at_;  // per stage: index into stages_
  std::vector<StagePlan> stages_;
  SteadyPhase steady_;
  std::vector<std::int32_t> in_flight_;  // per op; empty: only whole periods are left out
  std::vector<MemorySample> samples_;
  std::size_t quiet_ops_ = 0, left_out_ = 0, last_step_ = 0;
};

}  // namespace

const SegmentProgram& ReplaySetup::program(const SegmentInfo& segment) const {
  switch (segment.kind) {
    case SegmentKind::Embedding:
      return embedding;
    case SegmentKind::Head:
      return head;
    case SegmentKind::Layer:
      break;
  }
  return layout.model.has_experts(segment.layer) ? expert_layer : dense_layer;
}

ReplaySetup replay_setup(const MemoryProfile& profile, const Layout& layout,
                         std::int32_t compute_capability, const Schedule& order) {
  ReplaySetup setup{.layout = layout};
  setup.profile = &profile;
  setup.order = &order;
  setup.embedding = segment_program(profile, layout, SegmentShape::Embedding);
  setup.dense_layer = segment_program(profile, layout, SegmentShape::DenseLayer);
  if (layout.model.experts.count > 0) {
    setup.expert_layer = segment_program(profile, layout, SegmentShape::ExpertLayer);
  }
  setup.head = segment_program(profile, layout, SegmentShape::Head);
  setup.segments = stage_segments(layout.plan, order.placement.stages());
  setup.stages = stages_of_rows(order);
  setup.handover = layout.activation_bytes();
  setup.compute_capability = compute_capability;
  return setup;
}

ReplayResult replay_row(const ReplaySetup& setup, Row row, std::int64_t capacity) {
  return RowReplay(setup, row, capacity).run();
}

}  // namespace rehearse::sim
