// SPDX-License-Identifier: Apache-2.0
// rehearse explain: why one step takes longer than another.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/commands.h"
#include "cli/open.h"
#include "cli/trace/waterfall_of.h"
#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"
#include "sim/explain/explanation.h"
#include "viz/analysis/analysis.h"
#include "viz/import/import.h"
#include "viz/import/json_scanner.h"
#include "viz/picture/charts/waterfall.h"
#include "viz/picture/formats/svg.h"

namespace rehearse::cli {
namespace {

struct ExplainOptions {
  std::string a, b, svg;
  std::vector<std::string> set;
  bool json = false;
};

enum class Kind : std::uint8_t { Scenario, Report, Trace };

// What a document is, by the first of its keys that tells; only its beginning is read, for a
// profile may be large.
Kind kind_of_text(std::string_view text) {
  viz::JsonScanner in(text);
  if (in.peek() == '[') return Kind::Trace;
  bool first = true;
  std::string_view key;
  if (in.peek() != '{' || !in.enter('{')) return Kind::Scenario;
  while (in.next_key(first, key)) {
    if (key == "schema") return Kind::Report;
    if (key == "traceEvents" || key == "schemaVersion" || key == "deviceProperties") {
      return Kind::Trace;
    }
    if (key == "model" || key == "cluster" || key == "plan") return Kind::Scenario;
    in.skip();
  }
  return Kind::Scenario;
}

Kind kind_of(const std::string& path) {
  constexpr std::size_t kBeginning = 1 << 20;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return Kind::Trace;
  if (!std::filesystem::is_regular_file(path, ignored)) return Kind::Scenario;
  if (is_trace_file(path)) return Kind::Trace;
  std::ifstream file(path, std::ios::binary);
  std::string text(kBeginning, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.starts_with("\x1f\x8b")) return Kind::Trace;  // gzip
  return kind_of_text(text);
}

Result<sim::Explained> predicted(const std::string& path, const std::vector<std::string>& set) {
  const Result<Opened> opened = open(path, {.overrides = set});
  if (!opened) return opened.error();
  const auto& [scenario, cluster] = opened.value();
  const Result<> enough = sim::check_gpus(cluster, scenario.gpus);
  if (!enough) return enough.error();
  const Result<sim::Prediction> made = predict(path, scenario, cluster, {.leave_out = true});
  if (!made) return made.error();
  return sim::explained(made.value(), scenario, cluster);
}

Result<sim::Explained> side_of(const std::string& path, const std::vector<std::string>& set) {
  const Kind kind = kind_of(path);
  if (kind == Kind::Scenario) return predicted(path, set);
  if (!set.empty()) {
    return Error{path + ": --set changes a scenario; this is a " +
                 (kind == Kind::Report ? "report" : "trace")};
  }
  if (kind == Kind::Report) {
    const Result<JsonValue> report = read_json(path);
    if (!report) return report.error();
    return sim::explained(report.value(), path);
  }
  Result<Trace> loaded = viz::load_trace(path);
  if (!loaded) return loaded.error();
  Trace trace = std::move(loaded).value();
  if (trace.step().value <= 0) return Error{path + ": holds no step"};
  if (trace.idle.empty()) viz::attribute_idle(trace);
  return sim::explained(trace);
}

int explain(const ExplainOptions& options) {
  if (!ends_as(options.svg, "--svg", ".svg")) return kBadInput;
  Result<sim::Explained> a = side_of(options.a, {});
  if (!a) return fail(a.error());
  Result<sim::Explained> b = side_of(options.b, options.set);
  if (!b) return fail(b.error());
  const sim::Explanation explanation = sim::explain(std::move(a).value(), std::move(b).value());
  if (!options.svg.empty()) {
    const int code =
        write_file(options.svg, viz::svg(viz::waterfall_scene(waterfall_of(explanation))));
    if (code != kDone) return code;
  }
  print_text(options.json ? explanation_json(explanation) : explanation_text(explanation));
  return kDone;
}

}  // namespace

Command explain_command() {
  const auto o = std::make_shared<ExplainOptions>();
  Command command{"explain", "why one step takes longer than another: a waterfall of causes"};
  command.options = {
      required({"A", &o->a, "scenario, report (simulate --json, run --json) or trace"}),
      required({"B", &o->b, "the other one"}),
      writes({"--svg", &o->svg, "draw the waterfall to FILE"}),
      one_each({"--set", &o->set, "change a key of B: --set plan.schedule=gpipe"}),
      {"--json", &o->json, "one JSON document on stdout"},
  };
  command.footer =
      "Example: rehearse explain 3d-8-gpus 3d-8-gpus --set plan.tensor_parallel=1 --set "
      "plan.pipeline_parallel=4 --svg why.svg";
  command.perform = [o](const Given&) { return explain(*o); };
  return command;
}

}  // namespace rehearse::cli
