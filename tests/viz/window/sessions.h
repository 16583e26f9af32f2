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
