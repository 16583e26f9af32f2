// SPDX-License-Identifier: Apache-2.0
// Sessions and scripts of the window's tests.
#pragma once

#include <gtest/gtest.h>

#include "tests/viz/picture/full_trace.h"
#include "viz/window/script.h"
#include "viz/window/session.h"

namespace rehearse::viz::fixture {

inline Session one(Trace trace) {
  std::vector<Document> documents;
  documents.emplace_back(std::move(trace));
  return Session(std::move(documents));
}

inline Session two(Trace a, Trace b) {
  std::vector<Document> documents;
  documents.emplace_back(std::move(a));
  documents.emplace_back(std::move(b));
  return Session(std::move(documents));
}

// Two traces of one schedule, and why the second step is longer. The differences are the test's
// own: what they are is sim/explain's matter.
inline Session two_explained() {
  std::vector<Document> documents;
  documents.emplace_back(one_f_one_b_trace(5, 9));
  documents.emplace_back(one_f_one_b_trace(5, 9, {.forward = 1090, .backward = 1950},
                                           {.label = TraceLabel::Measured}));
  const std::int64_t first = documents[0].trace().step().value,
                     longer = documents[1].trace().step().value - first;
  Waterfall fall{.title =
                     "B takes longer than A: most of it is compute, which waits for longer "
                     "forwards; backwards are shorter",
                 .from = "A: predicted",
                 .to = "B: measured",
                 .begin = first,
                 .steps = {{"forward", 1200}, {"backward", -900}, {"communication", 420}}};
  fall.steps.push_back({"dependency", longer - 720});
  return Session(std::move(documents), std::move(fall));
}

// 48 ranks of a measurement: 12 replicas of a pipeline of four, of which one is slow.
inline Trace many_ranks() {
  return replicas_trace(4, 9, 12, 5, {.forward = 1000, .backward = 2000, .transfer = 90});
}

// Tokens of 8 experts in three layers over 24 steps, the third of which grows busier.
inline Trace with_experts(Trace trace) {
  constexpr std::int32_t kSteps = 24, kExperts = 8;
  std::vector<std::int32_t> steps, layers{1, 2, 5};
  std::vector<std::int64_t> rows;
  for (std::int32_t step = 0; step < kSteps; ++step) {
    steps.push_back(step);
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      for (std::int32_t expert = 0; expert < kExperts; ++expert)
        rows.push_back(100 + (expert == 3 ? 12 * step : (expert * 37 + step * 11) % 40));
    }
  }
  trace.expert_shape = std::vector<std::int32_t>{kExperts, 4};
  trace.expert_layers = std::move(layers);
  trace.expert_steps = std::move(steps);
  trace.expert_rows = std::move(rows);
  return trace;
}

// What ops are made of, and memory that is the sum of values, which lie in an arena: parameters,
// gradients and optimizer at its foot, above them what each forward keeps for its backward.
inline Trace with_inside(Trace trace) {
  constexpr std::int64_t kMega = 1 << 20;
  const auto name = [&trace](const char* text) {
    trace.strings.emplace_back(text);
    return static_cast<TraceString>(trace.strings.size()) - 1;
  };
  const TraceString unit = name("A");
  const auto n = static_cast<std::size_t>(trace.num_ops());
  std::vector<TraceValue> values;
  std::vector<std::vector<TraceOperand>> touched(n);
  std::vector<std::int64_t> memory_begin{0}, time, bytes;
  trace.memory_parts = {"parameters",  "gradients", "optimizer",
                        "activations", "buffers",   "workspace"};
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
    const std::int64_t first = trace.row_begin[static_cast<std::size_t>(row)],
                       last = trace.row_begin[static_cast<std::size_t>(row) + 1];
    std::int64_t offset = 0;
    const std::size_t own = values.size();
    for (const auto& [kind, size] : {std::pair{ValueKind::OptimizerState, 48 * kMega},
                                     {ValueKind::FullParameter, 24 * kMega},
                                     {ValueKind::Gradient, 24 * kMega}}) {
      values.push_back({.kind = kind,
                        .persistent = 1,
                        .row = {row},
                        .bucket = unit,
                        .bytes = size,
                        .offset = offset});
      offset += size;
    }
    std::vector<std::int32_t> of_microbatch(static_cast<std::size_t>(trace.microbatches), -1);
    std::vector<bool> taken(of_microbatch.size());
    std::vector<std::size_t> place(of_microbatch.size());
    std::int64_t alive = 0;
    if (first < last && trace.start_ns[static_cast<std::size_t>(first)] > 0) {  // before its ops
      time.push_back(0);
      for (const std::int64_t part : {24 * kMega, 24 * kMega, 48 * kMega, alive, alive, alive})
        bytes.push_back(part);
    }
    for (std::int64_t i = first; i < last; ++i) {
      const auto op = static_cast<std::size_t>(i);
      const OpId id{static_cast<std::int32_t>(i)};
      const OpKind kind = trace.class_of(id).kind;
      const auto mb = static_cast<std::size_t>(std::max(0, trace.microbatch[op]));
      std::int64_t work = 0;
      if (kind == OpKind::Forward) {
        const auto slot = static_cast<std::size_t>(std::ranges::find(taken, false) - taken.begin());
        taken[slot] = true;
        place[mb] = slot;
        of_microbatch[mb] = static_cast<std::int32_t>(values.size());
        const std::int64_t size = (6 + row) * kMega;
        values.push_back({.kind = ValueKind::SavedForDgrad,
                          .row = {row},
                          .stage = {row},
                          .microbatch = {static_cast<std::int32_t>(mb)},
                          .define = id,
                          .bytes = size,
                          .offset = offset + static_cast<std::int64_t>(slot) * size});
        alive += size;
        touched[op].push_back({.value = of_microbatch[mb], .access = Access::Write});
        touched[op].push_back(
            {.value = static_cast<std::int32_t>(own) + 1, .access = Access::Read});
      } else if (kind == OpKind::Backward) {
        TraceValue& saved = values[static_cast<std::size_t>(of_microbatch[mb])];
        saved.last_use = saved.hold_until = id;
        taken[place[mb]] = false;
        touched[op].push_back({.value = of_microbatch[mb], .access = Access::Read, .last = 1});
        touched[op].push_back(
            {.value = static_cast<std::int32_t>(own) + 2, .access = Access::Update});
      } else if (kind == OpKind::OptimizerStep) {
        work = 4 * kMega;
        values.push_back({.kind = ValueKind::Workspace,
                          .row = {row},
                          .define = id,
                          .last_use = id,
                          .hold_until = id,
                          .bytes = work,
                          .offset = offset});
      }
      // What an op frees is alive until the next one is issued.
      time.push_back(trace.start_ns[op]);
      for (const std::int64_t part : {24 * kMega, 24 * kMega, 48 * kMega, alive, 0 * kMega, work})
        bytes.push_back(part);
      if (kind == OpKind::Backward)
        alive -= values[static_cast<std::size_t>(of_microbatch[mb])].bytes;
    }
    memory_begin.push_back(static_cast<std::int64_t>(time.size()));
  }
  std::vector<std::int32_t> operand_begin{0};
  std::vector<TraceOperand> operands;
  for (const std::vector<TraceOperand>& of : touched) {
    operands.insert(operands.end(), of.begin(), of.end());
    operand_begin.push_back(static_cast<std::int32_t>(operands.size()));
  }
  const TraceString gemm = name("gemm fc1"), norm = name("norm"), gather = name("all_gather tp");
  trace.nodes = std::vector<TraceNode>{
      {.name = norm, .bytes = 12 * kMega, .time_ns = 40},
      {.name = gather, .collective = 1, .bytes = 6 * kMega, .time_ns = 60},
      {.name = gemm, .m = 2048, .n = 6144, .k = 12288, .flops = 309'237'645'312, .time_ns = 300},
      {.name = norm, .recompute = 1, .bytes = 12 * kMega, .time_ns = 40},
      {.name = gemm, .m = 2048, .n = 12288, .k = 6144, .flops = 309'237'645'312, .time_ns = 700}};
  trace.bodies = std::vector<TraceBody>{{.name = name("layer F"), .node_begin = 0, .node_end = 3},
                                        {.name = name("layer B"), .node_begin = 3, .node_end = 5}};
  std::vector<TraceBodyRun> runs;
  std::vector<std::int32_t> run_begin{0};
  for (const TraceClass& c : trace.classes) {
    if (c.kind == OpKind::Forward) runs.push_back({.body = 0, .count = 2});
    if (c.kind == OpKind::Backward) runs.push_back({.body = 1, .count = 2});
    run_begin.push_back(static_cast<std::int32_t>(runs.size()));
  }
  trace.run_begin = std::move(run_begin);
  trace.runs = std::move(runs);
  trace.values = std::move(values);
  trace.operand_begin = std::move(operand_begin);
  trace.operands = std::move(operands);
  trace.memory_begin = std::move(memory_begin);
  trace.memory_time = std::move(time);
  trace.memory_bytes = std::move(bytes);
  std::vector<TraceRow> rows(trace.rows.begin(), trace.rows.end());
  for (TraceRow& row : rows) row.capacity_bytes = 80'000'000'000;
  trace.rows = std::move(rows);
  return trace;
}

inline ViewState run(const Session& session, ViewState state, std::string_view script) {
  const Result<std::vector<Event>> events = parse_script(script, "script");
  EXPECT_TRUE(events) << events.error().message;
  for (const Event& event : events.value()) state = reduce(session, std::move(state), event);
  return state;
}

inline ViewState start(const Session& session) {
  return initial_state(session, 1280, 800);
}

}  // namespace rehearse::viz::fixture
