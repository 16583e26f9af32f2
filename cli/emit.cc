// SPDX-License-Identifier: Apache-2.0
// rehearse emit: a plan as the flags, files and environment that launch it in a framework.
#include <fmt/format.h>

#include <filesystem>

#include "cli/commands.h"
#include "cli/open.h"
#include "schedules/base/shipped.h"
#include "schedules/frameworks/emit_flags.h"
#include "schedules/scenario/open_scenario.h"
#include "sim/search/space/framework.h"

namespace rehearse::cli {
namespace {

struct EmitOptions {
  ScenarioFlags scenario;
  std::string framework, output;
  bool json = false, approximate = false;
};

Json rows_of(const Emitted& emitted) {
  Json rows = Json::array();
  for (const Setting& flag : emitted.flags) {
    rows.push_back({{"flag", flag.flag}, {"values", flag.values}});
  }
  return rows;
}

std::string json_of(const Emitted& emitted, const std::string& framework) {
  Json json{{"schema", "rehearse.emit/1"}, {"framework", framework}, {"flags", rows_of(emitted)}};
  json["environment"] = Json::object();
  for (const auto& [name, value] : emitted.environment) {
    json["environment"][name] = value.empty() ? Json(nullptr) : Json(value);
  }
  json["files"] = Json::object();
  for (const EmittedText& file : emitted.files) json["files"][file.name] = file.text;
  json["refused"] = emitted.refused;
  json["notes"] = emitted.notes;
  return json.dump(2) + "\n";
}

int write_files(const Emitted& emitted, const std::string& folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) return fail(folder + ": " + problem.message());
  std::string names;
  for (const EmittedText& file : emitted.files) {
    const std::string path = (std::filesystem::path(folder) / file.name).string();
    if (const int code = write_file(path, file.text); code != kDone) return code;
    names += (names.empty() ? "" : ", ") + path;
  }
  print_text("wrote " + names + "\n");
  return kDone;
}

// The scenario's model as an object, with what --set says of it; empty: it cannot be read as one.
std::string model_of(std::string path, const std::vector<std::string>& sets) {
  const Result<JsonValue> read = open_scenario(path);
  const JsonValue* model = read ? read.value().given("model") : nullptr;
  if (model == nullptr) return {};
  Json made(*model);
  if (model->is(JsonKind::String)) {
    const std::optional<std::string> file = find_meant_file(model->text, path, "models");
    const Result<JsonValue> inside = file ? read_json(*file) : Result<JsonValue>(Error{});
    if (!inside) return {};
    made = Json(inside.value());
  }
  constexpr std::string_view kModel = "model.";
  for (const std::string& set : sets) {
    const std::size_t equals = set.find('=');
    if (!set.starts_with(kModel) || equals == std::string::npos) continue;
    const Result<JsonValue> value = parse_json(set.substr(equals + 1), "--set");
    made[set.substr(kModel.size(), equals - kModel.size())] =
        value ? Json(value.value()) : Json(set.substr(equals + 1));
  }
  return made.dump();
}

int emit(const EmitOptions& options) {
  const Result<Framework> framework = framework_named(options.framework);
  if (!framework) return fail("emit: --for " + framework.error().message);
  if (framework.value().files.empty()) {
    return fail("emit: --for " + options.framework +
                ": its configurations are read (rehearse import), none are written");
  }
  const ScenarioOptions how = options.scenario.options();
  Result<Opened> opened = open(options.scenario.scenario, how);
  if (!opened) return fail(opened.error());
  const Opened& read = opened.value();
  const Result<std::vector<sim::Framework>> released = sim::shipped_frameworks();
  if (!released) return fail(released.error());
  const std::string not_there =
      sim::runs_not_on(released.value(), options.framework, read.cluster.gpu);
  if (!not_there.empty()) {
    print_error("emit: --for " + options.framework + ": " + not_there);
    if (!options.approximate) return kNo;
  }
  const Result<Emitted> made = emit_flags(framework.value(), read.scenario,
                                          model_of(options.scenario.scenario, options.scenario.set),
                                          read.cluster.gpus_per_node);
  if (!made) return fail(made.error());
  const Emitted& emitted = made.value();
  if (!emitted.refused.empty()) {
    for (const std::string& line : emitted.refused) print_error(line);
    if (!options.approximate) return kNo;
  }
  for (const std::string& note : emitted.notes) print_error(note);
  if (!options.output.empty()) return write_files(emitted, options.output);
  if (options.json) {
    print_text(json_of(emitted, options.framework));
    return kDone;
  }
  std::string text;
  for (const EmittedText& file : emitted.files) {
    text += fmt::format("# {}\n{}", file.name, file.text);
  }
  print_text(text);
  return kDone;
}

}  // namespace

Command emit_command() {
  const auto o = std::make_shared<EmitOptions>();
  Command command{"emit", "flags, files and environment that launch a plan in a framework"};
  command.options = {
      required({"SCENARIO", &o->scenario.scenario, "scenario file, or a shipped one's name"}),
      required({"--for", &o->framework, "megatron, torchtitan, deepspeed, nanotron"}),
      {"-o,--output", &o->output, "write the files into this folder"},
      {"--cluster", &o->scenario.cluster, "in the place of the scenario's"},
      {"--gpus", &o->scenario.gpus, "in the place of the scenario's", Whole{1, 1 << 20}},
      one_each({"--set", &o->scenario.set, "override a key: --set plan.micro_batch=2"}),
      {"--approximate", &o->approximate, "say which keys the framework cannot express, and go on"},
      {"--json", &o->json, "one JSON document on stdout"},
  };
  command.footer = "Example: rehearse emit 3d-8-gpus --for megatron -o launch";
  command.perform = [o](const Given&) { return emit(*o); };
  return command;
}

}  // namespace rehearse::cli
