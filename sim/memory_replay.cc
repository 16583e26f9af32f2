#include "sim/memory_replay.h"

#include <algorithm>
#include <array>

#include "schedules/sizes.h"
#include "schedules/stage_index.h"
#include "sim/caching_allocator.h"
#include "sim/memory_states.h"

namespace rehearse::sim {
namespace {

using Handle = CachingAllocator::Handle;
constexpr Handle kNone = CachingAllocator::kEmpty;

enum Part : std::uint8_t { Parameters, Gradients, Optimizer, Activations, Buffers, Workspace };
constexpr std::size_t kNumParts = 6;

// Streams of the allocator: blocks of one never serve another.
enum StreamNumber : int { kCompute, kGather, kReduce };

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// The allocator with what every block is for, and the peak with what was alive.
class Ledger {
 public:
  explicit Ledger(std::int64_t capacity) : allocator_({.capacity = capacity}) {}

  Handle allocate(std::int64_t bytes, Part part, int stream = kCompute) {
    const Handle handle = allocator_.allocate(bytes, stream);
    if (handle < 0) {
      out_of_memory_ |= handle == CachingAllocator::kOutOfMemory;
      return kNone;
    }
    const auto index = static_cast<std::size_t>(handle);
    if (part_of_.size() <= index) part_of_.resize(2 * index + 64);
    part_of_[index] = part;
    bytes_[part] += allocator_.block_size(handle);
    if (allocator_.allocated() > peak_) {
      peak_ = allocator_.allocated();
      at_peak_ = bytes_;
      peak_op_ = op;
    }
    return handle;
  }
  void free(Handle& handle) {
    if (handle < 0) return;
    bytes_[part_of_[static_cast<std::size_t>(handle)]] -= allocator_.block_size(handle);
    allocator_.free(handle);
    handle = kNone;
  }
  void free(std::vector<Handle>& handles) {
    for (Handle& handle : handles) free(handle);
    handles.clear();
  }
  bool out_of_memory() const { return out_of_memory_; }
  const CachingAllocator& allocator() const { return allocator_; }
  RankMemory result() const {
    RankMemory memory;
    memory.peak_allocated = peak_;
    memory.peak_reserved = allocator_.max_reserved();
    memory.at_op = peak_op_;
    memory.parts = {.parameters = at_peak_[Parameters],
                    .gradients = at_peak_[Gradients],
                    .optimizer = at_peak_[Optimizer],
                    .activations = at_peak_[Activations],
                    .buffers = at_peak_[Buffers],
                    .workspace = at_peak_[Workspace]};
    memory.retries = allocator_.retries();
    return memory;
  }

  OpId op{};  // what is being replayed

 private:
  CachingAllocator allocator_;
  std::vector<Part> part_of_;
  std::array<std::int64_t, kNumParts> bytes_{}, at_peak_{};
  std::int64_t peak_ = 0;
  OpId peak_op_{};
  bool out_of_memory_ = false;
};

// Parameters, gradients and optimizer state of one rank, and the gathering of units.
class States {
 public:
  States(const ReplaySetup& setup, std::vector<UnitTensors> units, Ledger& ledger)
      : profile_(*setup.profile),
        plan_(*setup.plan),
        units_(std::move(units)),
        unit_(units_.size()),
        ledger_(ledger),
        shards_(shard_ranks(plan_)),
        microbatches_(setup.order->microbatches * setup.order->slices),
        gathers_(plan_.zero_stage >= profile_.gather_units_from),
        whole_step_(setup.order->num_rows() > 1) {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (units_[u].kind == SegmentKind::Layer) last_layer_ = u;
      root_left_ += units_[u].kind != SegmentKind::Layer;
    }
  }

  // Model and optimizer are built, moments are not there yet.
  void build() {
    const Precision& bytes = plan_.precision;
    const bool contiguous = plan_.zero_stage >= profile_.contiguous_parameters_from && !gathers_;
    std::vector<Handle> initial;
    for (const UnitTensors& unit : units_) {
      for (const std::int64_t elements : unit.elements) {
        const std::int64_t held = gathers_ ? divide_up(elements, shards_) : elements;
        initial.push_back(ledger_.allocate(held * bytes.parameters, Parameters));
      }
    }
    const std::int64_t total = parameters_of(units_);
    if (contiguous) {
      ledger_.allocate(total * bytes.parameters, Parameters);
    }
    if (profile_.contiguous_gradients && !gathers_) {
      const std::int64_t held = plan_.zero_stage >= 2 ? divide_up(total, shards_) : total;
      ledger_.allocate(held * bytes.gradients, Gradients);
    }
    if (contiguous) ledger_.free(initial);
    if (bytes.parameters < 4) optimizer_tensors(std::min(4, bytes.optimizer));
  }

  void create_moments() {
    const Precision& bytes = plan_.precision;
    const std::int32_t master = bytes.parameters < 4 ? std::min(4, bytes.optimizer) : 0;
    optimizer_tensors(bytes.optimizer - master);
  }

  void begin_step() {
    ledger_.free(step_gradients_);
    for (Unit& unit : unit_) ledger_.free(unit.shard);
    backwards_.assign(units_.size(), 0);
  }

  void optimizer_step(bool first) {
    const Precision& bytes = plan_.precision;
    ledger_.free(gather_buffer_);
    ledger_.free(reduce_buffer_);
    if (profile_.fp32_gradients_at_step && bytes.gradients < 4) {
      for_owned([&](std::int64_t elements) {
        step_gradients_.push_back(ledger_.allocate(4 * elements, Optimizer));
      });
    }
    if (first) create_moments();
    if (gathers_) {  // foreach Adam: one list of square roots
      std::vector<Handle> roots;
      for_owned([&](std::int64_t elements) {
        roots.push_back(ledger_.allocate(4 * elements, Workspace));
      });
      ledger_.free(roots);
    }
  }

  void skip(std::int32_t backwards) {
    for (std::int32_t& count : backwards_) count += backwards;
  }

  // A segment's pass starts: its unit's parameters are there, the next unit's are on the way.
  void enter(std::size_t u, std::ptrdiff_t next) {
    if (!gathers_) return;
    finish_gather(u);
    if (next >= 0) start_gather(static_cast<std::size_t>(next));
  }
  void leave_forward(std::size_t u) {
    const bool reshards = gathers_ && !whole_step_ && plan_.zero_stage >= 3 &&
                          units_[u].kind == SegmentKind::Layer && u != last_layer_;
    if (reshards) ledger_.free(unit_[u].gathered);
  }
  // After the segment's whole backward (B, or W where it is split).
  void leave_backward(std::size_t u) {
    const bool last = ++backwards_[u] == microbatches_;
    if (!gathers_) {
      if (plan_.zero_stage == 2) {  // a bucket of the unit is reduced and dropped
        Handle bucket = ledger_.allocate(units_[u].total * plan_.precision.gradients, Gradients);
        ledger_.free(bucket);
      }
      return;
    }
    Unit& unit = unit_[u];
    std::vector<Handle> gradients;
    for (const std::int64_t elements : units_[u].elements) {
      gradients.push_back(ledger_.allocate(element() * elements, Gradients));
    }
    if (whole_step_) {  // summed unsharded until the last micro-batch
      if (unit.unsharded.empty()) {
        for (const std::int64_t elements : units_[u].elements) {
          unit.unsharded.push_back(
              ledger_.allocate(plan_.precision.gradients * elements, Gradients));
        }
      }
      ledger_.free(gradients);
      if (!last) return;
      reduce(u, unit.unsharded);
    } else if (units_[u].kind == SegmentKind::Layer) {
      reduce(u, gradients);
    } else {  // the root unit is reduced when all of its gradients are there
      for (Handle& handle : gradients) root_gradients_.push_back(handle);
      root_elements_ += units_[u].total;
      if (++root_seen_ < root_left_) return;
      reduce(u, root_gradients_);
      root_seen_ = 0;
      for (std::size_t other = 0; other < units_.size(); ++other) {
        if (units_[other].kind != SegmentKind::Layer) ledger_.free(unit_[other].gathered);
      }
      return;
    }
    ledger_.free(unit.gathered);
  }

 private:
  struct Unit {
    std::vector<Handle> gathered, unsharded, shard;
    Handle in_flight = kNone;
  };

  std::int64_t element() const { return plan_.precision.compute == ComputeType::Fp32 ? 4 : 2; }

  void start_gather(std::size_t u) {
    Unit& unit = unit_[u];
    if (!unit.gathered.empty() || unit.in_flight >= 0) return;
    const std::int64_t padded = divide_up(units_[u].total, shards_) * shards_;
    unit.in_flight = ledger_.allocate(element() * padded, Buffers, kGather);
  }
  void finish_gather(std::size_t u) {
    Unit& unit = unit_[u];
    if (!unit.gathered.empty()) return;
    start_gather(u);
    for (const std::int64_t elements : units_[u].elements) {
      unit.gathered.push_back(ledger_.allocate(element() * elements, Buffers));
    }
    ledger_.free(gather_buffer_);  // held until the next copy-out
    std::swap(gather_buffer_, unit.in_flight);
  }
  void reduce(std::size_t u, std::vector<Handle>& gradients) {
    Unit& unit = unit_[u];
    const bool root = units_[u].kind != SegmentKind::Layer && !whole_step_;
    const std::int64_t elements = root ? root_elements_ : units_[u].total;
    if (root) root_elements_ = 0;
    const std::int64_t shard = divide_up(elements, shards_);
    const Handle input = ledger_.allocate(shard * shards_ * plan_.precision.gradients, Buffers);
    ledger_.free(gradients);
    ledger_.free(reduce_buffer_);  // held until the next reduction
    reduce_buffer_ = input;
    Handle output = ledger_.allocate(shard * plan_.precision.gradients, Gradients, kReduce);
    if (unit.shard.empty()) {
      unit.shard.push_back(output);
    } else {
      ledger_.free(output);  // added to the shard of earlier micro-batches
    }
  }

  // Tensors that this rank updates: all, its share of each (FSDP), or its range of the flat buffer.
  template <class Visit>
  void for_owned(Visit visit) const {
    const bool flat = plan_.zero_stage >= 1 && !gathers_;
    std::int64_t left = flat ? divide_up(parameters_of(units_), shards_) : -1;
    for (const UnitTensors& unit : units_) {
      for (const std::int64_t elements : unit.elements) {
        const std::int64_t owned = gathers_ ? divide_up(elements, shards_)
                                   : flat   ? std::min(elements, left)
                                            : elements;
        if (flat) left -= owned;
        if (owned > 0) visit(owned);
      }
    }
  }
  void optimizer_tensors(std::int32_t bytes_per_parameter) {
    if (plan_.offload == OffloadMode::Optimizer) return;
    for_owned([&](std::int64_t elements) {
      std::int32_t left = bytes_per_parameter;
      for (; left >= 4; left -= 4) ledger_.allocate(4 * elements, Optimizer);
      if (left > 0) ledger_.allocate(left * elements, Optimizer);
    });
  }

  const MemoryProfile& profile_;
  const Plan& plan_;
  std::vector<UnitTensors> units_;
  std::vector<Unit> unit_;
  Ledger& ledger_;
  std::int64_t shards_;
  std::int32_t microbatches_;
  bool gathers_;
  bool whole_step_;  // parameters stay gathered and gradients unsharded for the whole step
  std::size_t last_layer_ = static_cast<std::size_t>(-1);
  std::int32_t root_left_ = 0, root_seen_ = 0;
  std::int64_t root_elements_ = 0;
  std::vector<Handle> root_gradients_, step_gradients_;
  std::vector<std::int32_t> backwards_;
  Handle gather_buffer_ = kNone, reduce_buffer_ = kNone;
};

// A stage as this row runs it: its segments' programs and where their slots stand.
struct StagePlan {
  struct Part {
    const SegmentProgram* program = nullptr;
    std::size_t unit = 0;
    std::size_t slot = 0;  // first slot
  };
  std::vector<Part> parts;
  std::size_t slots = 0;
  bool first = false, last = false;    // of the model
  std::vector<std::int32_t> block_of;  // per micro-batch and slice: block of `handles`
  std::vector<Handle> handles;         // blocks of `slots` handles
  std::vector<std::int32_t> unused;    // blocks
  std::vector<std::int64_t>
      offloaded;  // bytes per slot of what a forward keeps, where it is offloaded
};

class RowReplay {
 public:
  RowReplay(const ReplaySetup& setup, Row row, std::int64_t capacity)
      : setup_(setup),
        row_(row),
        ledger_(capacity),
        steady_(setup.whole_step ? SteadyPhase{} : steady_phase(*setup.order, row)),
        states_(setup,
                row_units(*setup.model, *setup.plan, setup.stages[row.index()],
                          setup.order->placement.stages()),
                ledger_) {
    stage_at_.assign(setup.segments.size(), -1);
    std::size_t unit = 0;
    for (const Stage stage : setup.stages[row.index()]) {
      StagePlan plan;
      for (const SegmentInfo& segment : setup.segments[stage.index()]) {
        const SegmentProgram& program = setup.program(segment);
        plan.parts.push_back({&program, unit++, plan.slots});
        plan.slots += static_cast<std::size_t>(program.slots);
      }
      plan.slots = std::max<std::size_t>(plan.slots, 1);  // a chunk without layers
      plan.first = stage.value == 0;
      plan.last = stage.index() + 1 == setup.segments.size();
      plan.block_of.assign(
          static_cast<std::size_t>(setup.order->microbatches * setup.order->slices), -1);
      stage_at_[stage.index()] = static_cast<std::int32_t>(stages_.size());
      stages_.push_back(std::move(plan));
    }
    quiet_ops_ = std::max(kQuietOps, steady_.period);
    std::size_t work = 0;  // short steps are replayed whole
    for (const StagePlan& stage : stages_) work += stage.parts.size() * stage.block_of.size();
    if (work < kLongStep) steady_.period = 0;
  }

  ReplayResult run() {
    states_.build();
    for (const ByCapability& workspace : setup_.profile->workspaces) {
      ledger_.allocate(workspace.of(setup_.compute_capability), Workspace);
    }
    std::vector<Handle> transfers;
    for (int i = 0; setup_.order->num_rows() > 1 && i < setup_.profile->transfer_buffers; ++i) {
      transfers.push_back(ledger_.allocate(setup_.handover, Buffers));
    }
    if (!setup_.profile->moments_at_first_step) states_.create_moments();
    for (const bool first : {true, false}) {
      if (first && !setup_.profile->moments_at_first_step) continue;
      states_.begin_step();
      step();
      ledger_.op = {};
      states_.optimizer_step(first);
      if (ledger_.out_of_memory()) break;
    }
    ledger_.free(transfers);
    ReplayResult result{.out_of_memory = ledger_.out_of_memory(), .memory = ledger_.result()};
    result.memory.row = row_;
    result.memory.steady_allocated = ledger_.allocator().allocated() + stale_transfers();
    return result;
  }

 private:
  // Ops without growth after which equal ops are taken to bring none.
  static constexpr std::size_t kQuietOps = 48;
  // Passes of segments below which it is not worth leaving any out.
  static constexpr std::size_t kLongStep = 512;

  std::int64_t stale_transfers() const {
    const auto chunks = static_cast<std::int64_t>(stages_.size());
    if (setup_.order->num_rows() < 2) return 0;
    return chunks * setup_.profile->stale_transfers_per_chunk *
           CachingAllocator::round_size(setup_.handover);
  }

  void step() {
    const Schedule& order = *setup_.order;
    const std::size_t begin = order.first_op(row_);
    const auto program = order.program(row_);
    const CachingAllocator& allocator = ledger_.allocator();
    std::int64_t reserved = -1, allocated = -1;
    std::size_t grown_at = 0;  // last op at which a peak grew
    bool skipped = steady_.period == 0;
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (!skipped && i >= std::max(steady_.begin, grown_at) + quiet_ops_ && i < steady_.end) {
        skipped = true;
        const std::size_t periods = (steady_.end - i) / steady_.period;
        skip(static_cast<std::int32_t>(periods) * steady_.microbatches);
        i += periods * steady_.period;
      }
      ledger_.op = {static_cast<std::int32_t>(begin + i)};
      for (const Op& work : work_of(order, program[i])) run_op(work);
      if (ledger_.out_of_memory()) return;
      if (allocator.max_reserved() != reserved || allocator.max_allocated() != allocated) {
        reserved = allocator.max_reserved();
        allocated = allocator.max_allocated();
        grown_at = i;
      }
    }
  }

  // Periods that change nothing are left out: what is in flight is renamed as if they had run.
  void skip(std::int32_t microbatches) {
    for (StagePlan& stage : stages_) {
      const auto by = static_cast<std::size_t>(microbatches * setup_.order->slices);
      std::rotate(stage.block_of.begin(), stage.block_of.end() - static_cast<std::ptrdiff_t>(by),
                  stage.block_of.end());
    }
    states_.skip(microbatches * setup_.order->slices);
  }

  void run_op(const Op& op) {
    if (op.stage.value < 0 || op.microbatch.value < 0) return;
    StagePlan& stage = stages_[static_cast<std::size_t>(stage_at_[op.stage.index()])];
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

  std::int32_t& block_of(StagePlan& stage, const Op& op) const {
    const std::int32_t slice = std::max<std::int32_t>(op.slice, 0);
    return stage
        .block_of[static_cast<std::size_t>(op.microbatch.value * setup_.order->slices + slice)];
  }
  Handle* slots(StagePlan& stage, std::int32_t block) const {
    return stage.handles.data() + static_cast<std::size_t>(block) * stage.slots;
  }

  void forward(StagePlan& stage, const Op& op) {
    if (stage.unused.empty()) {
      stage.unused.push_back(static_cast<std::int32_t>(stage.handles.size() / stage.slots));
      stage.handles.resize(stage.handles.size() + stage.slots, kNone);
    }
    std::int32_t& block = block_of(stage, op);
    block = stage.unused.back();
    stage.unused.pop_back();
    Handle* const handles = slots(stage, block);
    Handle carried = kNone;
    if (!stage.first) carried = ledger_.allocate(setup_.handover, Activations);
    for (std::size_t i = 0; i < stage.parts.size(); ++i) {
      const StagePlan::Part& part = stage.parts[i];
      const bool more = i + 1 < stage.parts.size();
      states_.enter(part.unit, more ? static_cast<std::ptrdiff_t>(stage.parts[i + 1].unit) : -1);
      Handle* const own = handles + part.slot;
      own[kInputSlot] = carried;
      for (const ScriptStep& step : part.program->forward) run_step(step, own);
      carried = own[kOutputSlot];
      own[kOutputSlot] = kNone;
      states_.leave_forward(part.unit);
    }
    ledger_.free(carried);  // sent
    if (setup_.plan->offload == OffloadMode::Activations) offload(stage, handles);
  }

  // What a forward keeps goes to the host and comes back when its backward starts.
  void offload(StagePlan& stage, Handle* handles) {
    stage.offloaded.resize(stage.slots);
    for (std::size_t s = 0; s < stage.slots; ++s) {
      stage.offloaded[s] = ledger_.allocator().block_size(handles[s]);
      ledger_.free(handles[s]);
    }
  }
  void fetch(StagePlan& stage, Handle* handles) {
    for (std::size_t s = 0; s < stage.offloaded.size(); ++s) {
      if (stage.offloaded[s] > 0) handles[s] = ledger_.allocate(stage.offloaded[s], Activations);
    }
  }

  void backward(StagePlan& stage, const Op& op, bool split) {
    const std::int32_t block = block_of(stage, op);
    if (block < 0) return;
    Handle* const handles = slots(stage, block);
    fetch(stage, handles);
    Handle carried = kNone;
    if (!stage.last) carried = ledger_.allocate(setup_.handover, Activations);
    for (std::size_t i = stage.parts.size(); i-- > 0;) {
      const StagePlan::Part& part = stage.parts[i];
      states_.enter(part.unit, i > 0 ? static_cast<std::ptrdiff_t>(stage.parts[i - 1].unit) : -1);
      Handle* const own = handles + part.slot;
      own[kOutputGradientSlot] = carried;
      for (const ScriptStep& step : part.program->backward) {
        if (!split || !step.weight_phase) run_step(step, own);
      }
      ledger_.free(own[kOutputGradientSlot]);
      ledger_.free(own[kInputSlot]);
      carried = own[kInputGradientSlot];
      own[kInputGradientSlot] = kNone;
      if (!split) states_.leave_backward(part.unit);
    }
    ledger_.free(carried);  // sent
    if (!split) release(stage, op);
  }

  void weight_gradient(StagePlan& stage, const Op& op) {
    const std::int32_t block = block_of(stage, op);
    if (block < 0) return;
    Handle* const handles = slots(stage, block);
    for (std::size_t i = stage.parts.size(); i-- > 0;) {
      const StagePlan::Part& part = stage.parts[i];
      for (const ScriptStep& step : part.program->backward) {
        if (step.weight_phase) run_step(step, handles + part.slot);
      }
      states_.leave_backward(part.unit);
    }
    release(stage, op);
  }

  void run_step(const ScriptStep& step, Handle* own) {
    if (step.bytes > 0) {
      own[step.slot] = ledger_.allocate(step.bytes, step.kept ? Activations : Workspace);
    } else {
      ledger_.free(own[step.slot]);
    }
  }

  void release(StagePlan& stage, const Op& op) {
    std::int32_t& block = block_of(stage, op);
    Handle* const handles = slots(stage, block);
    for (std::size_t s = 0; s < stage.slots; ++s) ledger_.free(handles[s]);
    stage.unused.push_back(block);
    block = -1;
  }

  const ReplaySetup& setup_;
  Row row_;
  Ledger ledger_;
  SteadyPhase steady_;
  std::size_t quiet_ops_ = 0;
  States states_;
  std::vector<std::int32_t> stage_at_;  // per stage: index into stages_
  std::vector<StagePlan> stages_;
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
  return model->has_experts(segment.layer) ? expert_layer : dense_layer;
}

ReplaySetup replay_setup(const MemoryProfile& profile, const Transformer& model, const Plan& plan,
                         std::int32_t compute_capability, const Schedule& order) {
  ReplaySetup setup;
  setup.profile = &profile;
  setup.model = &model;
  setup.plan = &plan;
  setup.order = &order;
  setup.embedding = segment_program(profile, model, plan, SegmentShape::Embedding);
  setup.dense_layer = segment_program(profile, model, plan, SegmentShape::DenseLayer);
  if (model.experts.count > 0) {
    setup.expert_layer = segment_program(profile, model, plan, SegmentShape::ExpertLayer);
  }
  setup.head = segment_program(profile, model, plan, SegmentShape::Head);
  setup.segments = stage_segments(plan, order.placement.stages());
  setup.stages = stages_of_rows(order);
  setup.handover = handover_bytes(model, plan);
  setup.compute_capability = compute_capability;
  return setup;
}

SteadyPhase steady_phase(const Schedule& order, Row row) {
  const auto program = order.program(row);
  const auto alike = [&](std::size_t i, std::size_t period, std::int32_t microbatches) {
    const auto now = work_of(order, program[i]), later = work_of(order, program[i + period]);
    if (program[i].kind != program[i + period].kind) return false;
    for (std::size_t w = 0; w < now.size(); ++w) {
      if (now[w].kind != later[w].kind || now[w].stage != later[w].stage ||
          now[w].slice != later[w].slice ||
          now[w].microbatch.value + microbatches != later[w].microbatch.value) {
        return false;
      }
    }
    return true;
  };
  if (order.microbatches < 4 || program.size() % static_cast<std::size_t>(order.microbatches)) {
    return {};
  }
  const std::size_t per_microbatch = program.size() / static_cast<std::size_t>(order.microbatches);
  for (std::int32_t group = 1; 4 * group <= order.microbatches; ++group) {
    const std::size_t period = per_microbatch * static_cast<std::size_t>(group);
    std::size_t begin = (program.size() - period) / 2, end = begin;  // [begin, end): alike
    while (begin > 0 && alike(begin - 1, period, group)) --begin;
    while (end + period < program.size() && alike(end, period, group)) ++end;
    if (end - begin >= 2 * period) {
      return {.begin = begin, .end = end, .period = period, .microbatches = group};
    }
  }
  return {};
}

ReplayResult replay_row(const ReplaySetup& setup, Row row, std::int64_t capacity) {
  return RowReplay(setup, row, capacity).run();
}

}  // namespace rehearse::sim
