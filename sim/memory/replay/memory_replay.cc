// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/replay/memory_replay.h"

#include <algorithm>
#include <numeric>

#include "schedules/body/leaving.h"
#include "schedules/body/sizes.h"
#include "schedules/ir/placed_recompute.h"
#include "schedules/ir/stage_index.h"
#include "sim/memory/memory_kinds.h"
#include "sim/memory/memory_states.h"
#include "sim/memory/replay/memory_ledger.h"
#include "sim/memory/replay/memory_resident.h"
#include "sim/memory/replay/memory_steady.h"
#include "sim/memory/stage_walk.h"

namespace rehearse::sim {
namespace {

// Ops without growth after which equal ops are taken to bring none.
constexpr std::size_t kQuietOps = 32;
// Passes of segments below which a step is replayed whole. Split backwards leave holes that drift
// for long: their steps are shortened only where they are very long.
constexpr std::size_t kLongStep = 512, kLongSplitStep = 8192;

// Steps more that are replayed where the cache has to be emptied.
constexpr int kSettlingSteps = 4;

// Blocks of the allocator, and units of ZeRO-3 that are gathered and reduced around them.
struct ReplayMemory {
  using Tensor = Handle;
  static constexpr Handle kNothing = kNoBlock;

  Ledger& ledger;
  ResidentState& state;

  void make(Handle& tensor, std::int64_t bytes, bool kept, std::uint8_t kind) {
    tensor = ledger.allocate(bytes, kept ? MemoryPart::Activations : MemoryPart::Workspace,
                             kComputeStream, kind);
  }
  void take(Handle tensor, std::uint8_t kind) { ledger.take(tensor, kind); }
  void drop(Handle& tensor) { ledger.free(tensor); }
  std::int64_t bytes(Handle tensor) const {
    return tensor < 0 ? 0 : ledger.allocator().block_size(tensor);
  }
  void enter(std::size_t unit, std::ptrdiff_t next) { state.enter(unit, next); }
  void leave_forward(std::size_t unit) { state.leave_forward(unit); }
  void leave_backward(std::size_t unit) { state.leave_backward(unit); }
};

// A stage as this row runs it: its segments and, per micro-batch in flight, a block of handles, one
// per slot.
struct StagePlan : StageSegments {
  std::vector<std::int32_t> block_of;  // per micro-batch and slice; -1: not in flight
  std::vector<Handle> handles;         // blocks of `slots` handles
  std::vector<std::int32_t> unused;    // blocks

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
};

class RowReplay {
 public:
  RowReplay(const ReplaySetup& setup, RankClass row, const AllocatorOptions& allocator)
      : setup_(setup),
        order_(*setup.order),
        placed_(order_),
        row_(row),
        pipelined_(order_.num_rows() > 1),
        ledger_(allocator),
        state_(*setup.profile, setup.layout.plan,
               row_units(setup.layout, setup.stages[row.index()], order_.placement.stages()),
               backwards_of_stages(order_, row_),
               script_flags(*setup.profile, setup.layout, /*experts=*/false), setup.role, ledger_) {
    ledger_.tell_apart(setup.kinds.size());
    plan_stages();
    for (const StagePlan& stage : stages_) {
      walks_.emplace_back(memory_, stage);
    }
    plan_skipping();
  }

  ReplayResult run() {
    const MemoryProfile& profile = *setup_.profile;
    state_.build();
    const Flags flags = script_flags(profile, setup_.layout, /*experts=*/false);
    for (const Workspace& workspace : profile.workspaces) {
      if (!workspace.condition.holds(flags)) continue;
      ledger_.allocate(workspace.bytes.of(setup_.compute_capability), MemoryPart::Workspace);
    }
    std::vector<Handle> transfers;
    for (int i = 0; pipelined_ && i < profile.transfer_buffers; ++i) {
      transfers.push_back(ledger_.allocate(setup_.handover, MemoryPart::Buffers));
    }
    if (!profile.moments_at_first_step) state_.create_moments();
    if (setup_.usual != nullptr) {
      load(*setup_.usual);
      replay_step(/*first=*/profile.moments_at_first_step);
      load(setup_);
    } else if (profile.moments_at_first_step) {
      replay_step(/*first=*/true);
    }
    replay_step(/*first=*/false);
    settle();
    ledger_.free(transfers);
    ReplayResult result{.out_of_memory = ledger_.out_of_memory(),
                        .refused = ledger_.allocator().refused(),
                        .memory = ledger_.result()};
    result.kinds = ledger_.kinds_at_peak();
    result.left_out = left_out_;
    result.memory.left_out = least_left_out_ > 3 * steady_.period;
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
      const std::vector<SegmentInfo>& segments = setup_.segments[stage.index()];
      for (std::size_t i = 0; i < segments.size(); ++i) {
        plan.add(of_segment(setup_.programs, setup_.layout, segments[i]), unit++,
                 leaves(setup_.layout.plan, segments, i, /*chosen=*/0));
      }
      plan.form_blocks(setup_.layout.plan.recompute_stream_layers);
      plan.slots = std::max<std::size_t>(plan.slots, 1);  // a chunk without layers
      plan.meet(setup_.layout, stage.value, static_cast<std::int32_t>(setup_.segments.size()));
      plan.block_of.assign(static_cast<std::size_t>(order_.microbatches * order_.slices), -1);
      stage_at_[stage.index()] = static_cast<std::int32_t>(stages_.size());
      stages_.push_back(std::move(plan));
    }
  }

  // The programs of a step under another load. Slots are the same under every load.
  void load(const ReplaySetup& setup) {
    for (const Stage at : setup_.stages[row_.index()]) {
      StagePlan& stage = stages_[static_cast<std::size_t>(stage_at_[at.index()])];
      const std::vector<SegmentInfo>& segments = setup_.segments[at.index()];
      for (std::size_t i = 0; i < stage.parts.size(); ++i) {
        stage.parts[i].program = &of_segment(setup.programs, setup.layout, segments[i]);
      }
      stage.meet(setup.layout, at.value, static_cast<std::int32_t>(setup_.segments.size()));
    }
  }

  // Where chunks run equal programs any two ops of a kind are alike, and what is in flight may be
  // exchanged; else a period must pass, and whole periods are left out.
  void plan_skipping() {
    // The order may be a shorter one than the plan's.
    const auto microbatches =
        static_cast<std::size_t>(std::max(order_.microbatches, setup_.layout.plan.microbatches()));
    std::size_t passes = 0;
    bool alike = !state_.gathers();
    for (const StagePlan& stage : stages_) {
      passes += stage.parts.size() * microbatches * static_cast<std::size_t>(order_.slices);
      alike &= stage.parts == stages_.front().parts;
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

  void replay_step(bool first) {
    if (ledger_.out_of_memory()) return;
    state_.begin_step();
    ledger_.begin_step();
    last_step_ = samples_.size();
    step();
    // A longer order runs out of memory at the same op, where that is before what it has more.
    const bool ended_before = ledger_.out_of_memory() && left_out_ == 0 && at_ < steady_.end;
    if (!ended_before) least_left_out_ = std::min(least_left_out_, left_out_);
    ledger_.op = {};
    ledger_.behind = false;
    if (setup_.samples) ledger_.watch();
    state_.optimizer_step(first);
    if (setup_.samples) sample({});
  }

  void sample(OpId op) {
    constexpr std::size_t kMostInside = 48;
    const std::size_t ops = order_.program(row_).size() + 1;
    const std::vector<MemoryBytes>& trail = ledger_.trail();
    const std::size_t runs =
        std::min({trail.size(), kMostInside, std::max<std::size_t>(1, setup_.most_samples / ops)});
    MemorySample made{op, ledger_.most(), ledger_.now(), {}};
    for (std::size_t i = 0; i < runs; ++i) {
      const auto begin = trail.begin() + static_cast<std::ptrdiff_t>(trail.size() * i / runs);
      const auto end = trail.begin() + static_cast<std::ptrdiff_t>(trail.size() * (i + 1) / runs);
      made.inside.push_back(*std::max_element(
          begin, end, [](const auto& a, const auto& b) { return total(a) < total(b); }));
    }
    samples_.push_back(std::move(made));
  }
  static std::int64_t total(const MemoryBytes& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  }

  // A step that empties the cache leaves the next one another cache: on, until a step maps as much
  // as the one before it, or empties nothing.
  void settle() {
    for (int more = 0; more < kSettlingSteps && ledger_.retried(); ++more) {
      const std::int64_t before = ledger_.mapped();
      replay_step(/*first=*/false);
      if (ledger_.out_of_memory() || ledger_.mapped() == before) return;
    }
  }

  void step() {
    const std::size_t begin = order_.first_op(row_);
    const auto program = order_.program(row_);
    const CachingAllocator& allocator = ledger_.allocator();
    std::int64_t reserved = -1, allocated = -1;
    std::int32_t retries = -1;
    std::size_t grown_at = 0;  // last op at which a peak grew
    left_out_ = 0;
    bool skipped = steady_.period == 0;
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (!skipped && i >= std::max(steady_.begin, grown_at) + quiet_ops_ && i < steady_.end) {
        skipped = true;
        const std::size_t to = in_flight_.empty() ? skip_periods(i) : skip_to_cooldown(i);
        left_out_ = to - i;
        i = to;
        ledger_.behind = true;
      }
      at_ = i;
      ledger_.op = {static_cast<std::int32_t>(begin + i)};
      if (setup_.samples) ledger_.watch();
      for (const Op& work : work_of(order_, program[i])) run_op(work);
      if (setup_.samples) sample(ledger_.op);
      if (ledger_.out_of_memory()) return;
      if (allocator.max_reserved() != reserved || ledger_.peak_in_steps() != allocated ||
          allocator.retries() != retries) {
        reserved = allocator.max_reserved();
        allocated = ledger_.peak_in_steps();
        retries = allocator.retries();
        grown_at = i;
      }
    }
  }

  // Both skips return the op to go on with: what is in flight is renamed as if all had run.
  std::size_t skip_periods(std::size_t i) {
    const std::size_t periods = (steady_.end - i) / steady_.period;
    std::vector<std::int32_t> passes = steady_.shift;
    for (std::int32_t& count : passes) count *= static_cast<std::int32_t>(periods) * order_.slices;
    for (const Stage at : setup_.stages[row_.index()]) {
      std::vector<std::int32_t>& blocks =
          stages_[static_cast<std::size_t>(stage_at_[at.index()])].block_of;
      std::rotate(blocks.begin(), blocks.end() - passes[at.index()], blocks.end());
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
    StageWalk<ReplayMemory>& walk = walks_[static_cast<std::size_t>(stage_at_[op.stage.index()])];
    std::int32_t& block = block_of(stage, op);
    if (op.kind == OpKind::Forward) block = stage.take_block();
    if (block < 0) return;
    Handle* const handles = stage.at(block);
    switch (op.kind) {
      case OpKind::Forward:
        state_.begin_microbatch();
        walk.forward(handles);
        return;
      case OpKind::InputGradient:
        walk.backward(handles, /*split=*/true, placed_.of(op));
        return;
      case OpKind::Recompute:
        walk.recompute(handles);
        return;
      case OpKind::Backward:
        walk.backward(handles, /*split=*/false, placed_.of(op));
        break;
      case OpKind::WeightGradient:
        walk.weight_gradient(handles, placed_.of(op));
        break;
      default:
        return;
    }
    state_.end_microbatch();
    stage.unused.push_back(block);
    block = -1;
  }

  const ReplaySetup& setup_;
  const Schedule& order_;
  const PlacedRecompute placed_;
  RankClass row_;
  bool pipelined_;
  Ledger ledger_;
  ResidentState state_;
  std::vector<std::int32_t> stage_at_;  // per stage: index into stages_
  std::vector<StagePlan> stages_;
  ReplayMemory memory_{ledger_, state_};
  std::vector<StageWalk<ReplayMemory>> walks_;  // per stage
  SteadyPhase steady_;
  std::vector<std::int32_t> in_flight_;  // per op; empty: only whole periods are left out
  std::vector<MemorySample> samples_;
  std::size_t at_ = 0;  // the op that is replayed, in the row's program
  std::size_t quiet_ops_ = 0, left_out_ = 0, last_step_ = 0;
  std::size_t least_left_out_ = static_cast<std::size_t>(-1);  // of the steps so far
};

}  // namespace

ReplaySetup replay_setup(const MemoryProfile& profile, const Layout& layout,
                         std::int32_t compute_capability, const Schedule& order) {
  ReplaySetup setup{.layout = layout};
  setup.profile = &profile;
  setup.order = &order;
  setup.role = fullest_role(layout.plan);
  setup.programs =
      segment_programs(profile, layout, setup.role, /*apart=*/PlacedRecompute(order).any());
  setup.segments = stage_segments(layout, order.placement.stages());
  setup.stages = stages_of_rows(order);
  setup.handover = layout.activation_bytes();
  setup.compute_capability = compute_capability;
  return setup;
}

ReplaySetup with_role(const ReplaySetup& setup, ReplicaRole role) {
  ReplaySetup other = setup;
  other.role = role;
  other.programs = segment_programs(*setup.profile, setup.layout, role);
  if (!setup.kinds.empty()) name_kinds(other.programs, setup.layout.model, setup.kinds);
  return other;
}

ReplayResult replay_row(const ReplaySetup& setup, RankClass row,
                        const AllocatorOptions& allocator) {
  return RowReplay(setup, row, allocator).run();
}

}  // namespace rehearse::sim
