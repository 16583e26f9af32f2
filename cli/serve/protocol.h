// SPDX-License-Identifier: Apache-2.0
// The Model Context Protocol of a server that has tools alone (modelcontextprotocol.io): what
// answers each message. No processes, no descriptors.
//
// Two eras. Up to 2025-11-25 a client opens with `initialize`; from 2026-07-28 on each request says
// its version in `_meta`, and there is no handshake. Both are answered, message by message.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "cli/serve/message.h"
#include "cli/serve/tools.h"

namespace rehearse::cli {

// A message's answer is one line, a command to perform whose result `complete` finishes, or none.
struct ToolCall {
  Json id;
  const Tool* tool = nullptr;
  CommandLine line;
  std::function<Json(Json)> complete;
};
struct Cancelled {
  Json id;
};
struct Nothing {};
using Reaction = std::variant<std::string, ToolCall, Cancelled, Nothing>;

class Protocol {
 public:
  // `scenario`: scenarios/schema/scenario.json.
  explicit Protocol(Json scenario);
  Reaction react(std::string_view line) const;

 private:
  std::variant<Json, ToolCall, Fault> answer(const Request& request) const;
  std::variant<Json, ToolCall, Fault> call(const Request& request) const;
  std::variant<Json, ToolCall, Fault> initialize(const Request& request) const;

  Json list_;  // the result of tools/list
};

}  // namespace rehearse::cli
