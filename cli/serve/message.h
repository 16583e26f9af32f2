// SPDX-License-Identifier: Apache-2.0
// JSON-RPC 2.0 (jsonrpc.org/specification) as the Model Context Protocol uses it: one message a
// line, no batches, an id that is a text or a whole number.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "schedules/base/json_document.h"
#include "schedules/base/json_reader.h"

namespace rehearse::cli {

// Errors of the specification, and the one of MCP 2026-07-28 that a server without HTTP and without
// questions of its own needs.
enum class RpcError : int {
  Parse = -32700,
  InvalidRequest = -32600,
  MethodNotFound = -32601,
  InvalidParams = -32602,
  Internal = -32603,
  UnsupportedVersion = -32022,
};

// Why a message gets no result.
struct Fault {
  RpcError code = RpcError::InvalidRequest;
  std::string message;
  Json id;    // null where the message's could not be read
  Json data;  // null: none
};

struct Request {
  Json id;  // null: a notification, which nothing answers
  std::string method;
  JsonValue params;  // an object, or Null: none
};
// What answers something that was never asked: a server that asks nothing drops it.
struct Response {};

std::variant<Request, Response, Fault> read_message(std::string_view line);

// One line each, with its end.
std::string result_line(const Json& id, const Json& result);
std::string fault_line(const Fault& fault);

}  // namespace rehearse::cli
