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
