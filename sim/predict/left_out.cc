// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/left_out.h"

#include <algorithm>

#include "schedules/ir/program_hash.h"
#include "schedules/ir/stage_index.h"
#include "schedules/passes/planned/plan_order.h"

namespace rehearse::sim {
namespace {

// A shorter step has, beside its filling and draining, room for transients to die away, for the
// periods that must be seen (repetition.cc), and for the ops after which a replay of memory takes
// equal ops to bring nothing new (memory_replay.cc).
constexpr std::int32_t kRounds = 6, kRepetitions = 6, kQuietMicrobatches = 56;
// The whole has so many times the micro-batches of the shorter step; the next one is longer by
// that.
constexpr std::int32_t kShorter = 4;

// Where a rule takes longer to fall into its step, the step's times do too.
constexpr std::int32_t kFillings = 2;

std::int64_t shortest_step(const Plan& plan, std::int32_t repeated, std::int32_t least) {
  return kQuietMicrobatches +
         std::max(kRounds * plan.pipeline_parallel + kRepetitions * repeated, kFillings * least);
}

// Per position the first op of `order` that a longer one, by one repetition, might not have or
// lower otherwise: a repetition before they differ, or before one of the last micro-batches.
std::vector<std::size_t> common_ops(const Schedule& order, const Schedule& longer) {
  const std::int32_t directions = order.placement.up.empty() ? 1 : 2;
  const std::int32_t last =
      (2 * order.microbatches - longer.microbatches) / directions;  // of each direction
  std::vector<std::size_t> common;
  for (RankClass row{0}; row.value < order.num_rows(); ++row.value) {
    const auto a = order.program(row), b = longer.program(row);
    const std::size_t block = b.size() - a.size();
    std::size_t i = 0;
    while (i < a.size() && same_work(order, a[i], longer, b[i]) &&
           std::ranges::all_of(work_of(order, a[i]), [&](const Op& op) {
             return numbered(order.placement, op.microbatch).number < last;
           })) {
      ++i;
    }
    common.push_back(i > block ? i - block : 0);
  }
  return common;
}

// The op of the row that does, or begins to do, what an op of an order does, `later` micro-batches
// earlier; none: -1.
std::int32_t lowered_op(const Prediction& p, RankClass row, const Schedule& order, const Op& op,
                        std::int32_t later = 0) {
  const Schedule& s = p.schedule;
  for (std::int32_t i = s.row_begin[row.index()]; i < s.row_begin[row.index() + 1]; ++i) {
    if (same_work(order, op, s, s.ops[static_cast<std::size_t>(i)], later)) return i;
  }
  return -1;
}

// When every rank is fullest, per rank of the memory report: where that is known by its op alone
// (Prediction::memory_ops) -1, else the start of the op of the whole step. Empty: nobody knows.
class FullestMoments {
 public:
  FullestMoments(const Prediction& p, const Repetition& repetition, const Schedule* replayed)
      : p_(p),
        repetition_(repetition),
        order_(replayed != nullptr ? *replayed : p.order),
        directions_(p.order.placement.up.empty() ? 1 : 2) {
    const std::size_t classes =
        p.memory.ranks.empty() ? 1 : p.schedule.rows.size() / p.memory.ranks.size();
    for (std::size_t r = 0; r < p.memory.ranks.size() && known_; ++r) {
      const RankMemory& rank = p.memory.ranks[r];
      row_ = {static_cast<std::int32_t>(r * classes)};
      starts_.push_back(-1);
      if (!rank.at_op) continue;
      const Op& op = order_.ops[rank.at_op.index()];
      if (replayed == nullptr) {  // on the same side of what both leave out
        known_ = stands(op, 0, rank.at_op_behind);
      } else if (!stands(op, 0, false) && !stands(op, left_out(), true)) {
        // Numbers are those of the whole step where nothing has been left out before.
        known_ = (!rank.at_op_behind || is_whole()) && among_left_out(op);
      }
    }
  }
  std::optional<std::vector<std::int64_t>> take() {
    if (!known_) return {};
    return std::move(starts_);
  }

 private:
  bool is_whole() const { return order_.microbatches == p_.plan.microbatches(); }
  std::int32_t left_out() const {  // of each direction, of what was replayed
    return (order_.microbatches - p_.order.microbatches) / directions_;
  }
  std::int64_t start(std::int32_t op) const {
    return p_.timeline.start[static_cast<std::size_t>(op)].value;
  }

  bool stands(const Op& op, std::int32_t later, bool behind) const {
    const std::int32_t at = lowered_op(p_, row_, order_, op, later);
    return at >= 0 && (start(at) >= repetition_.until.value) == behind;
  }
  // As its like of the last period before `until`, so many periods later.
  bool among_left_out(const Op& op) {
    const std::int32_t period = repetition_.microbatches / directions_;
    const std::int32_t number =
        numbered(order_.placement, work_of(order_, op).front().microbatch).number;
    const std::int32_t kept = p_.order.microbatches / directions_;
    for (std::int32_t k = std::max(1, (number - kept) / period); k * period <= number; ++k) {
      const std::int32_t at = lowered_op(p_, row_, order_, op, k * period);
      if (at < 0 || start(at) >= repetition_.until.value) continue;
      starts_.back() = start(at) + k * repetition_.period.value;
      return start(at) >= repetition_.until.value - repetition_.period.value;
    }
    return false;
  }

  const Prediction& p_;
  const Repetition& repetition_;
  const Schedule& order_;
  const std::int32_t directions_;
  RankClass row_{};
  bool known_ = true;
  std::vector<std::int64_t> starts_;
};

// The number of a micro-batch in the whole step.
void renumber(Op& op, const Placement& shorter, std::int32_t first_up, std::int32_t more,
              bool behind) {
  if (!op.microbatch) return;
  const Numbered at = numbered(shorter, op.microbatch);
  op.microbatch.value = (at.up ? first_up : 0) + at.number + (behind ? more : 0);
}
void renumber(Schedule& schedule, Op& op, std::int32_t first_up, std::int32_t more, bool behind) {
  if (op.kind == OpKind::Overlap && op.child >= 0) {
    for (std::int32_t c = op.child; c < op.child + 2; ++c) {
      renumber(schedule.children[static_cast<std::size_t>(c)], schedule.placement, first_up, more,
               behind);
    }
  }
  renumber(op, schedule.placement, first_up, more, behind);
}

}  // namespace

std::string performed_whole(const Scenario& scenario, const Plan& plan,
                            const PredictOptions& options) {
  if (options.record_load) return "the load of every link was asked for";
  if (scenario.variation.any()) return "variation gives every op a time of its own";
  if (plan.runtime.performer().plans_arena) return "its memory is planned whole";
  if (plan.overlap_pipeline && plan.transfers != TransferForm::TimeSorted) {
    return "its transfers are not time_sorted";
  }
  if (plan.offload.any()) return "plan.offload moves data to the host";
  return {};
}

bool has_few_microbatches(const Plan& plan) {
  return kShorter * shortest_step(plan, 1, 0) > plan.microbatches();
}

std::vector<std::int32_t> shorter_steps(const Plan& plan, const ShorterOrders& shorter) {
  const std::int32_t m = plan.microbatches(), repeated = shorter.repeated();
  if (repeated == 0) return {};
  std::vector<std::int32_t> steps;
  for (std::int64_t length = shortest_step(plan, repeated, shorter.least()); kShorter * length <= m;
       length *= kShorter) {
    const auto at_least = static_cast<std::int32_t>(length);
    steps.push_back(at_least + (m - at_least) % repeated);
  }
  return steps;
}

Result<MemoryReport> memory_of_plan(const MemoryProfile& profile, const Transformer& model,
                                    Plan plan, const Cluster& cluster) {
  const ShorterOrders shorter =
      has_few_microbatches(plan) ? ShorterOrders() : ShorterOrders::of_plan(plan);
  for (const std::int32_t microbatches : shorter_steps(plan, shorter)) {
    const std::optional<Schedule> order = shorter.with(microbatches);
    if (!order) break;
    MemoryReport memory = predict_memory(profile, {model, plan}, cluster, *order);
    if (memory.left_out) return memory;
  }
  const Result<Schedule> order = order_of(model, plan);
  if (!order) return order.error();
  return predict_memory(profile, {model, plan}, cluster, order.value());
}

std::optional<Shortened> find_left_out(const Prediction& p, const ShorterOrders& shorter,
                                       const Schedule* replayed) {
  const std::int32_t repeated = shorter.repeated();
  const std::optional<Schedule> longer = shorter.with(p.order.microbatches + repeated);
  if (!longer) return {};
  const std::vector<std::size_t> common = common_ops(p.order, *longer);
  std::vector<std::int32_t> until;
  for (RankClass row{0}; row.value < p.schedule.num_rows(); ++row.value) {
    const RankClass position{p.schedule.position_of(row).value};
    const auto program = p.order.program(position);
    if (common[position.index()] >= program.size()) return {};
    until.push_back(lowered_op(p, row, p.order, program[common[position.index()]]));
  }
  Shortened shortened{.relative = relative_ops(p.schedule)};
  std::optional<Repetition> found =
      find_repetition(p.schedule, shortened.relative, p.pricing.table, p.timeline, until, repeated);
  if (!found) return {};
  std::optional<std::vector<std::int64_t>> fullest = FullestMoments(p, *found, replayed).take();
  if (!fullest) return {};
  shortened.fullest_at = std::move(*fullest);
  shortened.repetition = std::move(*found);
  return shortened;
}

void leave_out(Prediction& p, const Program& program, Shortened shortened,
               std::optional<Schedule> replayed) {
  Repetition& repetition = shortened.repetition;
  const std::int32_t m = p.plan.microbatches(), left_out = m - p.order.microbatches;
  const std::int64_t times = left_out / repetition.microbatches;
  const Nanoseconds later = times * repetition.period;
  const std::int32_t directions = p.schedule.placement.up.empty() ? 1 : 2;
  const std::int32_t more = left_out / directions, first_up = m / directions;
  if (replayed) p.order = std::move(*replayed);
  const std::int32_t unseen = (m - p.order.microbatches) / directions;  // by the replay of memory
  for (const RankMemory& rank : p.memory.ranks) {
    if (!rank.at_op || unseen == 0) continue;
    renumber(p.order, p.order.ops[rank.at_op.index()], first_up, unseen, rank.at_op_behind);
  }
  for (std::size_t i = 0; i < p.schedule.ops.size(); ++i) {
    const bool behind = p.timeline.start[i] >= repetition.until;
    renumber(p.schedule, p.schedule.ops[i], first_up, more, behind);
    if (!behind) continue;
    p.timeline.start[i] += later;
    p.timeline.end[i] += later;
  }
  p.timeline.finish += later;
  for (Schedule* schedule : {&p.schedule, &p.order}) {
    schedule->microbatches = m;
    if (directions == 2) schedule->placement.first_up = first_up;
  }
  std::vector<RepeatedOps> parts;
  for (std::size_t r = 0; r < repetition.begin.size(); ++r) {
    parts.push_back({repetition.begin[r], repetition.begin[r] + repetition.length[r], times});
  }
  p.lowered_hash = program_hash(p.schedule, shortened.relative, parts);
  add_periods(p.bubbles, program.multiplicity, times);
  p.left_out = {.times = times,
                .repetition = std::move(repetition),
                .fullest_at = std::move(shortened.fullest_at)};
}

}  // namespace rehearse::sim
