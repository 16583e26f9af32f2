// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/message.h"

namespace rehearse::cli {
namespace {

constexpr std::size_t kMostMessageValues = 500'000;  // beyond any scenario

Fault invalid(const std::string& what, Json id = {}) {
  return {.code = RpcError::InvalidRequest, .message = what, .id = std::move(id)};
}

}  // namespace

std::variant<Request, Response, Fault> read_message(std::string_view line) {
  Result<JsonValue> read = parse_json(line, "message", 1, kMostMessageValues);
  if (!read) return Fault{.code = RpcError::Parse, .message = read.error().message};
  const JsonValue& message = read.value();
  if (message.is(JsonKind::Array)) {
    return invalid("batches left the protocol with version 2025-06-18: send one message a line");
  }
  if (!message.is(JsonKind::Object)) {
    return invalid(
        "a message is an object with \"jsonrpc\", \"method\" and, for an answer, \"id\"");
  }
  const JsonMember* id = message.find("id");
  const bool named =
      id != nullptr && (id->value.is(JsonKind::String) || id->value.is(JsonKind::Integer));
  const Json known = named ? Json(id->value) : Json();
  const JsonMember *method = message.find("method"), *version = message.find("jsonrpc");
  if (version == nullptr || version->value.text != "2.0") {
    return invalid("\"jsonrpc\" must be \"2.0\"", known);
  }
  if (method == nullptr) {
    const bool answers = message.find("result") != nullptr || message.find("error") != nullptr;
    if (answers) return Response{};
    return invalid("\"method\" is missing: initialize, ping, tools/list or tools/call", known);
  }
  if (!method->value.is(JsonKind::String)) return invalid("\"method\" must be a text", known);
  if (id != nullptr && !named) return invalid("\"id\" must be a text or a whole number");
  Request request{.id = known, .method = method->value.text};
  if (const JsonMember* params = message.find("params")) {
    if (!params->value.is(JsonKind::Object)) {
      return Fault{
          .code = RpcError::InvalidParams, .message = "\"params\" must be an object", .id = known};
    }
    request.params = params->value;
  }
  return request;
}

std::string result_line(const Json& id, const Json& result) {
  return Json{{"jsonrpc", "2.0"}, {"id", id}, {"result", result}}.dump() + "\n";
}

std::string fault_line(const Fault& fault) {
  Json error{{"code", static_cast<int>(fault.code)}, {"message", fault.message}};
  if (!fault.data.is_null()) error["data"] = fault.data;
  return Json{{"jsonrpc", "2.0"}, {"id", fault.id}, {"error", error}}.dump() + "\n";
}

}  // namespace rehearse::cli
