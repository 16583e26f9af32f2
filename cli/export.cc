// SPDX-License-Identifier: Apache-2.0
// rehearse export: a trace for other tools.
#include "viz/export/export.h"
#include "cli/commands.h"
#include "viz/analysis/analysis.h"
#include "viz/import/import.h"

namespace rehearse::cli {
namespace {

struct Options {
  std::string trace, to, file;
};

int export_trace(const Options& options) {
  Result<Trace> loaded = viz::load_trace(options.trace);
  if (!loaded) {
    print_error(loaded.error().message);
    return kBadInput;
  }
  Trace trace = std::move(loaded).value();
  if (trace.idle.empty()) viz::attribute_idle(trace);
  const Result<> written = options.to == "perfetto" ? viz::export_perfetto(trace, options.file)
                           : options.to == "chrome" ? viz::export_chrome(trace, options.file)
                                                    : viz::export_csv(trace, options.file);
  if (written) return kDone;
  print_error(written.error().message);
  return kBadInput;
}

}  // namespace

void add_export(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("export", "write a trace for other tools");
  auto options = std::make_shared<Options>();
  command->add_option("TRACE", options->trace, "trace of simulate or run, or Chrome JSON")
      ->required();
  command->add_option("--to", options->to, "perfetto, chrome or csv")
      ->required()
      ->check(CLI::IsMember({"perfetto", "chrome", "csv"}));
  command->add_option("FILE", options->file, "where to write")->required();
  command->footer(
      "Example: rehearse simulate 3d-8-gpus --trace step.trace; rehearse export step.trace --to "
      "perfetto step.pftrace");
  command->callback([options, &exit_code] { exit_code = export_trace(*options); });
}

}  // namespace rehearse::cli
