// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/protocol.h"

#include <algorithm>
#include <array>

namespace rehearse::cli {
namespace {

// With a handshake, the newest first; 2025-03-26 is left out, for it asks for batches.
constexpr std::array<std::string_view, 3> kWithHandshake{"2025-11-25", "2025-06-18", "2024-11-05"};
constexpr std::string_view kStateless = "2026-07-28";
constexpr std::string_view kVersionKey = "io.modelcontextprotocol/protocolVersion";
constexpr std::string_view kCapabilitiesKey = "io.modelcontextprotocol/clientCapabilities";
constexpr std::string_view kServerKey = "io.modelcontextprotocol/serverInfo";
constexpr std::int64_t kFresh = 3'600'000;  // [ms]: tools change with the program alone

constexpr std::string_view kInstructions =
    "Rehearse predicts a training step of a transformer on described hardware: time, memory, "
    "bubbles, communication; it finds layouts and proves schedules. Ask `list` for the ids of "
    "models and clusters; `plan` for a layout; `simulate` with `set` for one change; `explain` for "
    "why two differ. Say the band (low_s to high_s) with every time, and what was assumed.";

// Which requests there are, and in which era.
struct Method {
  std::string_view name;
  bool with_handshake, stateless;
};
constexpr std::array kMethods{Method{"initialize", true, false}, Method{"ping", true, false},
                              Method{"server/discover", false, true},
                              Method{"tools/list", true, true}, Method{"tools/call", true, true}};

Json server_info() {
  return {{"name", "rehearse"}, {"title", "Rehearse"}, {"version", REHEARSE_VERSION}};
}

Json capabilities() {
  return {{"tools", Json::object()}};
}

Json supported() {
  Json versions = Json::array({kStateless});
  for (const std::string_view version : kWithHandshake) versions.push_back(version);
  return versions;
}

// The version that a request of the stateless era says; null: it is of the other.
const JsonValue* stateless_version(const Request& request) {
  const JsonValue* meta = request.params.given("_meta");
  return meta == nullptr || !meta->is(JsonKind::Object) ? nullptr : meta->given(kVersionKey);
}

Fault params_fault(const Request& request, const std::string& what) {
  return {.code = RpcError::InvalidParams, .message = what, .id = request.id};
}

// Why a request of the stateless era is not taken; a fault without a message: it is.
Fault check_stateless(const Request& request, const JsonValue& version) {
  if (!version.is(JsonKind::String)) {
    return params_fault(request, "_meta." + std::string(kVersionKey) + " must be a text");
  }
  if (version.text != kStateless) {
    return {.code = RpcError::UnsupportedVersion,
            .message = "Unsupported protocol version",
            .id = request.id,
            .data = {{"supported", supported()}, {"requested", version.text}}};
  }
  const JsonValue* client = request.params.given("_meta")->given(kCapabilitiesKey);
  if (client == nullptr || !client->is(JsonKind::Object)) {
    return params_fault(request, "_meta." + std::string(kCapabilitiesKey) +
                                     " is missing: an object, {} where the client has none");
  }
  return {};
}

Json complete(Json result, bool stateless) {
  if (!stateless) return result;
  result["resultType"] = "complete";
  result["_meta"] = {{kServerKey, server_info()}};
  return result;
}

Json with_cache(Json result) {
  result["ttlMs"] = kFresh;
  result["cacheScope"] = "public";
  return result;
}

}  // namespace

Protocol::Protocol(Json scenario) {
  list_["tools"] = Json::array();
  for (const Tool& tool : tools()) list_["tools"].push_back(tool_json(tool, scenario));
}

Reaction Protocol::react(std::string_view line) const {
  std::variant<Request, Response, Fault> message = read_message(line);
  if (const auto* fault = std::get_if<Fault>(&message)) return fault_line(*fault);
  const auto* request = std::get_if<Request>(&message);
  if (request == nullptr) return Nothing{};
  if (request->id.is_null()) {
    const JsonValue* id = request->params.given("requestId");
    const bool cancels = request->method == "notifications/cancelled" && id != nullptr;
    return cancels ? Reaction(Cancelled{Json(*id)}) : Reaction(Nothing{});
  }
  std::variant<Json, ToolCall, Fault> answered = answer(*request);
  if (auto* call = std::get_if<ToolCall>(&answered)) return std::move(*call);
  if (const auto* fault = std::get_if<Fault>(&answered)) return fault_line(*fault);
  return result_line(request->id, std::get<Json>(answered));
}

std::variant<Json, ToolCall, Fault> Protocol::answer(const Request& request) const {
  const JsonValue* version = stateless_version(request);
  const bool stateless = version != nullptr;
  if (stateless) {
    Fault fault = check_stateless(request, *version);
    if (!fault.message.empty()) return fault;
  }
  const auto method = std::ranges::find(kMethods, request.method, &Method::name);
  if (method == kMethods.end() || !(stateless ? method->stateless : method->with_handshake)) {
    std::vector<std::string_view> known;
    for (const Method& one : kMethods) {
      if (stateless ? one.stateless : one.with_handshake) known.push_back(one.name);
    }
    return Fault{.code = RpcError::MethodNotFound,
                 .message = "there is no method " + json_excerpt(request.method) +
                            what_is_known(request.method, known),
                 .id = request.id};
  }
  if (request.method == "initialize") return initialize(request);
  if (request.method == "ping") return Json::object();
  if (request.method == "tools/list") {
    return complete(stateless ? with_cache(list_) : list_, stateless);
  }
  if (request.method == "server/discover") {
    return complete(with_cache({{"supportedVersions", supported()},
                                {"capabilities", capabilities()},
                                {"serverInfo", server_info()},
                                {"instructions", kInstructions}}),
                    true);
  }
  return call(request);
}

std::variant<Json, ToolCall, Fault> Protocol::initialize(const Request& request) const {
  const JsonValue* version = request.params.given("protocolVersion");
  if (version == nullptr || !version->is(JsonKind::String)) {
    return params_fault(request, "protocolVersion is missing: a text, \"" +
                                     std::string(kWithHandshake.front()) + "\" is the newest");
  }
  const auto known = std::ranges::find(kWithHandshake, version->text);
  return Json{{"protocolVersion", known == kWithHandshake.end() ? kWithHandshake.front() : *known},
              {"capabilities", capabilities()},
              {"serverInfo", server_info()},
              {"instructions", kInstructions}};
}

std::variant<Json, ToolCall, Fault> Protocol::call(const Request& request) const {
  const bool stateless = stateless_version(request) != nullptr;
  const JsonValue* name = request.params.given("name");
  std::vector<std::string_view> known;
  for (const Tool& tool : tools()) known.push_back(tool.name);
  if (name == nullptr || !name->is(JsonKind::String)) {
    return params_fault(request, "name is missing: a tool's" + what_is_known("", known));
  }
  const Tool* tool = find_tool(name->text);
  if (tool == nullptr) {
    return params_fault(
        request, "Unknown tool: " + json_excerpt(name->text) + what_is_known(name->text, known));
  }
  static const JsonValue kNone{.kind = JsonKind::Object};
  const JsonValue* arguments = request.params.given("arguments");
  if (arguments == nullptr) arguments = &kNone;
  if (!arguments->is(JsonKind::Object)) {
    return params_fault(request, "arguments must be an object");
  }
  const auto finish = [stateless](Json result) { return complete(std::move(result), stateless); };
  Result<CommandLine> line = command_line(*tool, *arguments);
  if (!line) {
    // For the model that asked, which can do better: no fault of the protocol.
    const Json content{{"type", "text"}, {"text", line.error().message}};
    return finish({{"content", Json::array({content})}, {"isError", true}});
  }
  return ToolCall{
      .id = request.id, .tool = tool, .line = std::move(line).value(), .complete = finish};
}

}  // namespace rehearse::cli
