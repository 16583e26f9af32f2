// SPDX-License-Identifier: Apache-2.0
#include "cli/trace/step_trace.h"

#include <vector>

#include "exec/step/rendezvous_times.h"
#include "schedules/ranks/unfold.h"
#include "schedules/scenario/mesh.h"
#include "schedules/trace/trace_inside.h"
#include "sim/memory/arena_memory.h"
#include "viz/analysis/two/align.h"
#include "viz/analysis/analysis.h"

namespace rehearse::cli {
namespace {

// The times of the first rank of each class of equal ranks.
std::vector<Nanoseconds> first_ranks(const Schedule& schedule,
                                     const std::vector<RankClass>& row_of_rank,
                                     std::span<const Nanoseconds> times) {
  std::vector<Nanoseconds> out(schedule.ops.size());
  std::vector<bool> known(static_cast<std::size_t>(schedule.num_rows()));
  std::size_t from = 0;
  for (const RankClass row : row_of_rank) {
    const std::size_t first = schedule.first_op(row), ops = schedule.program(row).size();
    for (std::size_t i = 0; i < ops && !known[row.index()]; ++i) out[first + i] = times[from + i];
    known[row.index()] = true;
    from += ops;
  }
  return out;
}

Trace filled(const Scenario& scenario, const Schedule& lowered, const Schedule& schedule,
             std::span<const Nanoseconds> start, std::span<const Nanoseconds> end,
             TraceOptions options) {
  options.label = TraceLabel::Measured;
  options.title = scenario.name;
  Trace trace =
      make_trace(schedule, exec::rendezvous_starts(schedule, start, end), end, std::move(options));
  add_nodes(trace, schedule, {scenario.model, scenario.plan});
  sim::add_arena_memory(trace, lowered, start);
  viz::attribute_idle(trace);
  return trace;
}

}  // namespace

Trace step_trace(const Scenario& scenario, const Schedule& schedule,
                 std::span<const Nanoseconds> start, std::span<const Nanoseconds> end,
                 std::string caption, std::int64_t most_ops) {
  const Plan& plan = scenario.plan;
  const std::vector<RankClass> row_of_rank = rows_of_ranks(plan, schedule);
  TraceOptions options{.caption = std::move(caption)};
  if (ops_of_ranks(schedule, row_of_rank) > most_ops) {
    options.caption += "; of each class of equal ranks the first";
    options.rows = trace_rows(schedule, plan, 0);
    return filled(scenario, schedule, schedule, first_ranks(schedule, row_of_rank, start),
                  first_ranks(schedule, row_of_rank, end), std::move(options));
  }
  for (std::size_t r = 0; r < row_of_rank.size(); ++r) {
    const RankClass row = row_of_rank[r];
    options.rows.push_back(
        {.position = schedule.position_of(row), .first_rank = {static_cast<std::int32_t>(r)}});
    options.row_class.push_back(row.value);
  }
  options.schedule_hash = content_hash(schedule);
  return filled(scenario, schedule, unfold(schedule, plan), start, end, std::move(options));
}

Trace of_every_rank(Trace predicted, const Schedule& schedule, const Plan& plan) {
  const std::vector<RankClass> row_of_rank = rows_of_ranks(plan, schedule);
  if (ops_of_ranks(schedule, row_of_rank) > kMostOpsOfRanks) return predicted;
  std::vector<std::int32_t> lowered;  // per rank
  TraceOptions options{.schedule_hash = predicted.schedule_hash};
  for (std::size_t r = 0; r < row_of_rank.size(); ++r) {
    options.rows.push_back({.position = schedule.position_of(row_of_rank[r]),
                            .first_rank = {static_cast<std::int32_t>(r)}});
    options.row_class.push_back(row_of_rank[r].value);
    lowered.push_back(predicted.row_class[row_of_rank[r].index()]);
  }
  predicted.row_class = {};  // its rows are what ranks are classes of
  const Schedule unfolded = unfold(schedule, plan);
  const std::vector<Nanoseconds> none(unfolded.ops.size());
  Trace ranks = make_trace(unfolded, none, none, std::move(options));
  viz::align_rows(predicted, ranks);
  predicted.row_class = std::move(lowered);
  return predicted;
}

}  // namespace rehearse::cli
