// SPDX-License-Identifier: Apache-2.0
// A long step predicted from a shorter one: docs/steady_state.md. What the long one has more are
// repetitions of its middle, which change no figure but sums.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/passes/planned/shorter_orders.h"
#include "schedules/scenario/scenario.h"
#include "sim/engine/program.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {

// Why the plan's step is performed whole, whatever its times are; empty: a shorter one may stand
// for it.
std::string performed_whole(const Scenario& scenario, const Plan& plan,
                            const PredictOptions& options);

// No shorter step would be worth a try, whatever its order repeats.
bool has_few_microbatches(const Plan& plan);

// Micro-batches of the shorter steps that are worth a try, in the order in which to try them: each
// less by a multiple of what an order's middle repeats, and so much shorter that all that fail
// together cost less than a third of the whole.
std::vector<std::int32_t> shorter_steps(const Plan& plan, const ShorterOrders& shorter);

// Memory of a framework's plan for who asks how much and not when: over a shorter order where that
// tells it. Errors: those of order_of.
Result<MemoryReport> memory_of_plan(const MemoryProfile& profile, const Transformer& model,
                                    Plan plan, const Cluster& cluster);

// Where a shorter step stands for the plan's: the repetition that its performance has. Empty: none,
// or nobody knows when memory is fullest. REQUIRES: the prediction's order is
// one of `shorter`, and its schedule, costs and timeline are of it; `replayed` is the plan's order
// where its memory is of that, else null.
struct Shortened {
  Repetition repetition;
  std::vector<std::uint64_t> relative;  // relative_ops of the schedule
  std::vector<std::int64_t> fullest_at;
};
std::optional<Shortened> find_left_out(const Prediction& p, const ShorterOrders& shorter,
                                       const Schedule* replayed);

// Makes the prediction of the shorter step that of the plan's: times and numbers of micro-batches
// behind what is left out, idle times, the hash. Then Omitted::times_of says how often an op
// happens. REQUIRES: the micro-batches left out are a multiple of the repetition's.
void leave_out(Prediction& p, const Program& program, Shortened shortened,
               std::optional<Schedule> replayed);

}  // namespace rehearse::sim
