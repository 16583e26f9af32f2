// SPDX-License-Identifier: Apache-2.0
// rehearse export: a trace for other tools.
#include "viz/export/export.h"
#include "cli/commands.h"
#include "viz/analysis/analysis.h"
#include "viz/import/import.h"

namespace rehearse::cli {
namespace {

struct ExportOptions {
  std::string trace, to, file;
  bool inside = false;
};

int export_trace(const ExportOptions& options) {
  Result<Trace> loaded = viz::load_trace(options.trace);
  if (!loaded) return fail(loaded.error().message);
  Trace trace = std::move(loaded).value();
  if (options.inside && trace.meetings.empty()) {
    return fail(options.trace + ": --inside: the trace does not say what is inside its ops");
  }
  if (trace.idle.empty()) viz::attribute_idle(trace);
  const Result<> written =
      options.to == "perfetto" ? viz::export_perfetto(trace, options.file, options.inside)
      : options.to == "chrome" ? viz::export_chrome(trace, options.file, options.inside)
                               : viz::export_csv(trace, options.file, options.inside);
  return written ? kDone : fail(written.error());
}

}  // namespace

Command export_command() {
  const auto o = std::make_shared<ExportOptions>();
  Command command{"export", "write a trace for other tools"};
  command.options = {
      required({"TRACE", &o->trace, "trace of simulate or run, or Chrome JSON"}),
      required({"--to", &o->to, "perfetto, chrome or csv", Choices{"perfetto", "chrome", "csv"}}),
      required({"FILE", &o->file, "where to write"}),
      {"--inside", &o->inside, "the collectives inside compute ops too, on a lane of their own"},
  };
  command.footer =
      "Example: rehearse simulate 3d-8-gpus --trace step.trace; rehearse export step.trace --to "
      "perfetto step.pftrace";
  command.perform = [o](const Given&) { return export_trace(*o); };
  return command;
}

}  // namespace rehearse::cli
