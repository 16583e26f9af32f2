// SPDX-License-Identifier: Apache-2.0
// rehearse import: a framework's own files become a scenario.
#include <fmt/format.h>

#include <map>

#include "cli/commands.h"
#include "schedules/base/files.h"
#include "schedules/config_files/open_config.h"
#include "schedules/frameworks/import_flags.h"

namespace rehearse::cli {
namespace {

struct ImportOptions {
  std::vector<std::string> files, arguments, variables, set;
  std::string output, cluster, model, base, framework, recipe, stage;
  std::int32_t gpus = 0;
  bool ignore_unknown = false, json = false;
};

Result<std::map<std::string, std::string>> variables_of(const std::vector<std::string>& given) {
  std::map<std::string, std::string> made;
  for (const std::string& one : given) {
    const std::size_t equals = one.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return Error{"--var " + one + ": NAME=VALUE is expected"};
    }
    made[one.substr(0, equals)] = one.substr(equals + 1);
  }
  return made;
}

int import(const ImportOptions& options) {
  const Result<std::map<std::string, std::string>> variables = variables_of(options.variables);
  if (!variables) return fail("import: " + variables.error().message);
  const Result<OpenedConfig> opened = open_config({.files = options.files,
                                                   .arguments = options.arguments,
                                                   .framework = options.framework,
                                                   .variables = variables.value(),
                                                   .recipe = options.recipe,
                                                   .stage = options.stage});
  if (!opened) return fail(opened.error());
  const std::string name = options.files.empty() ? "" : stem_of(options.files.front());
  const Result<Imported> made = import_flags(opened.value().framework, opened.value().settings,
                                             {.gpus = options.gpus,
                                              .cluster = options.cluster,
                                              .model = options.model,
                                              .set = options.set,
                                              .base = options.base,
                                              .name = name,
                                              .runtime = {},
                                              .ignore_unknown = options.ignore_unknown});
  if (!made) return fail(made.error());
  const Imported& imported = made.value();
  if (options.output == "-") {
    for (const std::string& warning : imported.warnings) print_error(warning);
    print_text(imported.text);
    return kDone;
  }
  if (!options.output.empty()) {
    if (const int code = write_file(options.output, imported.text); code != kDone) return code;
  }
  if (options.json) {
    print_text(import_json(imported));
    return kDone;
  }
  std::string text = import_text(imported);
  const bool clusterless = options.cluster.empty() && options.base.empty();
  if (options.output.empty()) {
    text += "\nnext      -o FILE writes it as a scenario, -o - to standard output\n";
  } else {
    text += fmt::format("\nnext      rehearse simulate {}{}\n", options.output,
                        clusterless ? " --cluster h100" : "");
  }
  print_text(text);
  return kDone;
}

}  // namespace

Command import_command() {
  const auto o = std::make_shared<ImportOptions>();
  Command command{"import", "a framework's own configuration becomes a scenario"};
  command.options = {
      {"FILE", &o->files,
       "launch script, arguments, YAML, TOML, JSON; the first is the main one, others lie over it"},
      writes({"-o,--output", &o->output, "write the scenario; -: to standard output"}),
      {"--gpus", &o->gpus, "how many; left out: what the files launch", Whole{1, 1 << 20}},
      {"--cluster", &o->cluster, "cluster of the scenario: a file, or a shipped one's name"},
      {"--model", &o->model, "the model, where the files name none: config.json, or a shipped one"},
      one_each({"--var", &o->variables, "a variable of the script or file: --var SEQ_LEN=4096"}),
      one_each({"--set", &o->set, "a key of the scenario over all else: --set plan.zero_stage=0"}),
      {"--base", &o->base, "a scenario that what is imported is laid over"},
      {"--from", &o->framework, "whose files they are, where it is not plain: megatron, ..."},
      {"--recipe", &o->recipe, "the function of a Python recipe"},
      {"--stage", &o->stage, "the stage of a file that has several, by its name; left out: its first"},
      {"--ignore-unknown", &o->ignore_unknown, "report flags that nobody knows, and go on"},
      {"--json", &o->json, "one JSON document on stdout"},
      {"--", &o->arguments, "arguments of the framework, over the files"},
  };
  command.footer =
      "Behind -- stand arguments of the framework, which lie over the files.\n"
      "Example: rehearse import tests/data/frameworks/megatron-llama3-8b-fp8.sh --cluster dgx-h100 "
      "-o mine.json";
  command.perform = [o](const Given&) { return import(*o); };
  return command;
}

}  // namespace rehearse::cli
