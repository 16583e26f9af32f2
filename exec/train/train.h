// SPDX-License-Identifier: Apache-2.0
// The training loop over an executor: batches, learning rate, and what every step came to.
//
// Not here: checkpoints and processes (exec/run), progress and reports (cli).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "exec/step/interpreter.h"
#include "exec/train/data.h"
#include "exec/train/loss_scale.h"
#include "schedules/base/result.h"
#include "schedules/ir/schedule.h"
#include "schedules/model/model.h"
#include "schedules/passes/lower.h"
#include "schedules/scenario/plan.h"

namespace rehearse::exec {

// The schedule that the executor performs, with its arena; the simulator's, op for op. An order
// from a file (plan.schedule "file:PATH") fills in what the plan left to it. What a planned
// schedule leaves open is the caller's to choose before (plan.order,
// schedules/passes/planned/plan_order.h). `order_by`: what ops take, by which their order is
// decided (LowerOptions::price); none: estimates.
Result<Schedule> lower_for_run(const Transformer& model, Plan& plan, const PriceOps& order_by = {});
// The arenas of all ranks together, on device and host [B].
std::int64_t arena_bytes(const Schedule& schedule);

// Tokens of one step, of the replicas that a process has ranks of (Interpreter::inputs); of the
// others nothing.
struct Batch {
  std::vector<std::vector<std::int32_t>> inputs, targets;  // by replica
};

// The samples of the step that begins with `first`. Sample first + j d b + r b + i is number i of
// micro-batch j of data-parallel replica r: which samples a step has does not depend on the layout.
// Slices of a sequence lie apart: all samples' first ones come first. Rank i of c context-parallel
// ones gets chunks i and 2c - 1 - i of the 2c of each slice. Reads what does not change: may be
// called while a step runs.
Batch make_batch(const Interpreter& process, const Plan& plan, const Data& data,
                 std::int64_t first);
// Makes that step's, and puts it into `process`.
void load_batch(Interpreter& process, const Plan& plan, const Data& data, std::int64_t first);

struct StepReport {
  std::int64_t step = 0;  // 0, 1, ...
  double loss = 0, grad_norm = 0, learning_rate = 0;
  double loss_scale = 0;  // of this step; 0: there was none
  bool skipped = false;   // StepResult's
  LossScale next_scale;   // what the next step goes on with
  // From the end of the step before to its own, what the caller does between them too, but for what
  // is no part of training (AfterStep::aside_s).
  double seconds = 0, tokens_per_s = 0;
  std::vector<std::int64_t> expert_rows, expert_dropped;  // StepResult's
};

// Rows of the busiest of `expert_parallel` ranks over the mean, on average over the layers that
// have experts: what plan.expert_routing takes as a number. Rows are those of a whole step:
// micro-batch by micro-batch the busiest rank changes, and has more.
double expert_imbalance(const Layout& layout, std::span<const std::int64_t> expert_rows);

// Where a run begins, or goes on.
struct TrainFrom {
  std::int64_t step = 0;
  std::int64_t samples = 0;  // the first of that step
  LossScale scale;           // as a checkpoint has it
};

// What a caller says after a step: to go on, and how long what was no part of training took, as a
// checkpoint.
struct AfterStep {
  bool go_on = true;
  double aside_s = 0;
};

// Runs steps [from.step, options.steps); `after_step` sees each. A step that overflowed in fp16 has
// no update, and counts for none: not in the optimizer, not in the learning rate's schedule. While
// an asynchronous device works on a step, a thread makes the next one's batch. Error: diverged
// (`infeasible`), the executor's own failure, or that of `after_step`; steps that were reported
// before it have run.
Result<std::vector<StepReport>> train(
    Interpreter& process, const Plan& plan, const TrainOptions& options, const Data& data,
    const std::function<Result<AfterStep>(const StepReport&)>& after_step,
    const TrainFrom& from = {});

}  // namespace rehearse::exec
