// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/open_scenario.h"

#include <optional>

#include "schedules/base/bytes/standard_input.h"
#include "schedules/base/files.h"
#include "schedules/base/shipped.h"

namespace rehearse {

std::string other_kind(const JsonValue& document, const std::string& path) {
  const auto has = [&](std::string_view key) { return document.find(key) != nullptr; };
  if (has("plan") || has("model") || has("cluster")) return {};
  if (has("architectures") || has("model_type") || has("hidden_size") || has("n_embd")) {
    return "is a model, not a scenario: rehearse plan " + path +
           " --gpus 8 --on dgx-h100 makes one, or rehearse simulate dp-ddp --set model=" + path;
  }
  if (has("gpus_per_node")) {
    return "is a cluster, not a scenario: name it in one, for example rehearse simulate dp-ddp "
           "--cluster " +
           path;
  }
  return {};
}

namespace {

constexpr std::string_view kTrace = "rehtrace";  // how a trace of ours begins (trace_file.cc)

// "-" is standard input.
Result<JsonValue> read_document(std::string& path) {
  if (path == "-") {
    path = "standard input";
    const Result<std::string>& text = standard_input();
    if (!text) return text.error();
    return parse_json(text.value(), path);
  }
  path = scenario_file(path);
  const Result<std::string> text = read_text_file(path, kMostText);
  if (!text) return text.error();
  if (text.value().starts_with(kTrace)) {
    return json_error(path, 0, "",
                      "is a trace, not a scenario: rehearse view " + path +
                          ", or rehearse render " + path + " --text");
  }
  return parse_json(text.value(), path);
}

// What somebody may have meant who named a file that is not there.
std::string instead_of(const std::string& named) {
  if (const std::string nearest = nearest_scenario(named); !nearest.empty()) {
    return "; the nearest shipped scenario is " + nearest;
  }
  if (const std::optional<std::string> model = meant_id(named, "models")) {
    return "; " + *model + " is a model: rehearse plan " + *model + " --gpus 8 --on dgx-h100";
  }
  return "; rehearse list scenarios has the shipped ones";
}

}  // namespace

Result<JsonValue> open_scenario(std::string& path) {
  const std::string named = path;
  Result<JsonValue> root = read_document(path);
  if (!root) {
    Error error = root.error();
    if (error.message.ends_with(": no such file")) error.message += instead_of(named);
    return error;
  }
  if (const std::string kind = other_kind(root.value(), path); !kind.empty()) {
    return json_error(path, 0, "", kind);
  }
  if (root.value().find("orders") != nullptr) {
    return json_error(path, 0, "",
                      "is a schedule, not a scenario: rehearse check " + path +
                          ", or \"schedule\": \"file:" + path + "\" in a plan");
  }
  return root;
}

}  // namespace rehearse
