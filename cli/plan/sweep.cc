// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.h"
#include "schedules/base/counted.h"
#include "schedules/base/json_document.h"
#include "schedules/base/json_reader.h"
#include "sim/report/report_units.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/charts/curve.h"
#include "viz/picture/formats/svg.h"

namespace rehearse::cli {
namespace {

// What a value came to; `reason` where it cannot be performed, or does not fit.
struct Swept {
  std::string value, reason;
  double step_s = 0, low_s = 0, high_s = 0, tokens_per_s = 0, bubble = 0;
  std::int64_t peak = 0;
  std::int32_t micro_batch = 0;
  bool predicted = false, fits = false;
  bool chosen = false;  // the micro-batch: the plan leaves it open
};

// Commas inside brackets and strings belong to a value: [1,2],"a,b".
std::vector<std::string> values_of(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '[' || c == '{')) ++depth;
    if (!quoted && (c == ']' || c == '}')) --depth;
    if (c == ',' && depth == 0 && !quoted) {
      values.emplace_back();
    } else {
      values.back() += c;
    }
  }
  return values;
}

Swept predicted(const Sweep& sweep, const std::string& path, const std::string& key,
                const std::string& value) {
  Swept swept{.value = value};
  ScenarioOptions how = sweep.scenario.options();
  how.overrides.push_back(key + "=" + value);
  const Result<Opened> opened = open(sweep.scenario.scenario, how);
  const Result<sim::Prediction> made =
      opened ? predict(sweep.scenario.scenario, opened.value().scenario, opened.value().cluster,
                       {.leave_out = true})
             : Result<sim::Prediction>(opened.error());
  if (!made) {
    // What is wrong, without the place: the sweep's key is named beside it.
    swept.reason = made.error().message;
    if (swept.reason.starts_with(path)) {
      swept.reason.erase(0, swept.reason.find(": ") + 2);
    }
    return swept;
  }
  const sim::Prediction& p = made.value();
  swept.predicted = true;
  swept.fits = p.memory.fits;
  if (!swept.fits) swept.reason = "does not fit in memory";
  swept.step_s = p.step_s;
  swept.low_s = p.low_s();
  swept.high_s = p.high_s();
  swept.tokens_per_s = p.tokens_per_s;
  swept.bubble = p.bubble_ratio();
  swept.peak = p.memory.peak_device;
  swept.micro_batch = p.plan.micro_batch;
  swept.chosen = !p.micro_batches.empty();
  return swept;
}

// "micro_batch auto: 4, 2, 4": which each row took, where the plan leaves it open.
std::string choices_of(const std::vector<Swept>& all) {
  std::string taken;
  bool differ = false, first = true;
  std::int32_t before = 0;
  for (const Swept& one : all) {
    taken += (first ? "" : ", ") + (one.chosen ? std::to_string(one.micro_batch) : "-");
    if (one.chosen) differ = differ || (before != 0 && before != one.micro_batch);
    if (one.chosen) before = one.micro_batch;
    first = false;
  }
  if (before == 0) return {};
  return "plan.micro_batch is chosen for each row: " + taken +
         (differ ? "; --set plan.micro_batch=N compares like with like\n" : "\n");
}

std::string text_of(const std::string& key, const std::vector<Swept>& all) {
  std::size_t width = key.size();
  for (const Swept& one : all) width = std::max(width, one.value.size());
  std::string text = fmt::format("{:<{}}  {:>10}  {:>23}  {:>12}  {:>7}  {:>10}\n", key, width,
                                 "step", "likely between", "tokens/s", "bubble", "memory");
  for (const Swept& one : all) {
    text += fmt::format("{:<{}}  ", one.value, width);
    if (one.predicted) {
      text += fmt::format("{:>10}  {:>10} {:>12}  {:>12}  {:>5.1f} %  {:>10}",
                          sim::report::seconds(one.step_s), sim::report::seconds(one.low_s),
                          sim::report::seconds(one.high_s), with_commas(one.tokens_per_s),
                          100 * one.bubble, viz::bytes_text(one.peak));
    }
    if (!one.reason.empty()) text += (one.predicted ? "  " : "") + one.reason;
    text += "\n";
  }
  return text + choices_of(all);
}

std::string csv_quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_of(const std::string& key, const std::vector<Swept>& all) {
  std::string text = csv_quoted(key) +
                     ",step_time_s,low_s,high_s,tokens_per_s,bubble_ratio,peak_bytes,fits,reason,"
                     "micro_batch\n";
  for (const Swept& one : all) {
    text += csv_quoted(one.value) + ",";
    text += one.predicted ? fmt::format("{:.9g},{:.9g},{:.9g},{:.9g},{:.6g},{},{}", one.step_s,
                                        one.low_s, one.high_s, one.tokens_per_s, one.bubble,
                                        one.peak, one.fits ? "true" : "false")
                          : std::string(",,,,,,false");
    text += "," + (one.reason.empty() ? "" : csv_quoted(one.reason));
    text += "," + (one.predicted ? std::to_string(one.micro_batch) : "") + "\n";
  }
  return text;
}

Json json_of(const std::string& key, const std::vector<Swept>& all) {
  Json json{{"schema", "rehearse.sweep/1"}, {"key", key}};
  json["values"] = Json::array();
  for (const Swept& one : all) {
    Json row{{"value", one.value}, {"fits", one.fits}};
    if (one.predicted) {
      row["step_time_s"] = one.step_s;
      row["low_s"] = one.low_s;
      row["high_s"] = one.high_s;
      row["tokens_per_s"] = one.tokens_per_s;
      row["bubble_ratio"] = one.bubble;
      row["peak_bytes"] = one.peak;
      row["micro_batch"] = one.micro_batch;
    }
    if (!one.reason.empty()) row["reason"] = one.reason;
    json["values"].push_back(std::move(row));
  }
  return json;
}

bool is_number(const std::string& value) {
  const Result<JsonValue> json = parse_json(value, "");
  return json && json.value().is_number();
}

std::string svg_of(const std::string& title, const std::string& key,
                   const std::vector<Swept>& all) {
  viz::Curve curve{.title = title,
                   .x_title = key,
                   .y_title = "step time [s]; bars: the truth lies within, nine times in ten",
                   .connected = std::ranges::all_of(all, is_number, &Swept::value)};
  for (const Swept& one : all) {
    curve.points.push_back({.label = one.value,
                            .value = one.step_s,
                            .low = one.low_s,
                            .high = one.high_s,
                            .reason = one.reason});
    if (!one.reason.empty()) {
      curve.points.back().value = curve.points.back().low = curve.points.back().high = 0;
    }
  }
  return viz::svg(viz::curve_scene(curve));
}

}  // namespace

int sweep(const Sweep& sweep) {
  if (!ends_as(sweep.svg, "--svg", ".svg")) return kBadInput;
  const std::size_t equals = sweep.key_values.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == sweep.key_values.size()) {
    return fail("--sweep " + sweep.key_values + ": must be KEY=VALUE,VALUE,...");
  }
  const std::string key = sweep.key_values.substr(0, equals);
  const Result<Opened> base = open(sweep.scenario.scenario, sweep.scenario.options());
  if (!base) return fail(base.error().message);
  std::vector<Swept> all;
  for (const std::string& value : values_of(sweep.key_values.substr(equals + 1))) {
    all.push_back(predicted(sweep, base.value().scenario.path, key, value));
  }
  const bool any = std::ranges::any_of(all, &Swept::predicted);
  if (!any && all.size() == 1) return fail(all.front().reason);
  print_text(sweep.json  ? json_of(key, all).dump(2) + "\n"
             : sweep.csv ? csv_of(key, all)
                         : text_of(key, all));
  if (!sweep.svg.empty()) {
    const int code = write_file(sweep.svg, svg_of(base.value().scenario.name, key, all));
    if (code != kDone) return code;
  }
  return any ? kDone : kNo;
}

}  // namespace rehearse::cli
