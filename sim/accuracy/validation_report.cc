// SPDX-License-Identifier: Apache-2.0
// The result of a validation, for scripts and for people.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "schedules/base/json_reader.h"
#include "sim/accuracy/validation.h"

namespace rehearse::sim {
namespace {

std::string number(const std::optional<double>& value) {
  return value ? json_number(*value) : "null";
}
std::string boolean(const std::optional<bool>& value) {
  return !value ? "null" : *value ? "true" : "false";
}

std::string stats_json(const std::optional<ErrorStats>& stats, bool spearman) {
  if (!stats) return "null";
  std::string text =
      fmt::format(R"({{"cases": {}, "mean_abs_error": {}, "max_abs_error": {}, "bias": {})",
                  stats->cases, json_number(stats->mean_abs_error),
                  json_number(stats->max_abs_error), json_number(stats->bias));
  if (spearman) text += ", \"spearman\": " + number(stats->spearman);
  return text + "}";
}

std::string band_json(const std::optional<BandScore>& band) {
  if (!band) return "null";
  return fmt::format(R"({{"cases": {}, "inside": {}, "coverage": {}, "median_half_width": {}}})",
                     band->cases, band->inside, json_number(band->coverage()),
                     json_number(band->half_width));
}

// One side of a row. Members of `measured` in the order of the file.
std::string side_json(const ValidationCase& entry, bool predicted) {
  std::string text = "{";
  const auto member = [&](const std::string& key, const std::string& value) {
    text += (text.size() > 1 ? ", " : "") + json_quoted(key) + ": " + value;
  };
  const bool none = predicted && !entry.skipped.empty();
  for (const Figure& figure : entry.figures) {
    member(figure.key, number(predicted ? figure.predicted : figure.measured));
  }
  if (!entry.ranks.empty()) {
    std::string list = "[";
    for (const RankFigures& rank : entry.ranks) {
      list += fmt::format("{}{{\"rank\": {}", list.size() > 1 ? ", " : "", rank.rank);
      for (const Figure& figure : rank.figures) {
        list += ", " + json_quoted(figure.key) + ": " +
                number(predicted ? figure.predicted : figure.measured);
      }
      list += "}";
    }
    member("ranks", list + "]");
  }
  if (entry.measured_fits) {
    member("fits", boolean(predicted ? entry.predicted_fits() : entry.measured_fits));
    if (predicted && entry.verdict) member("verdict", json_quoted(name_of(*entry.verdict)));
  }
  return none ? "null" : text + "}";
}

std::string score_json(const FileScore& score, const std::string& indent) {
  std::string text =
      fmt::format("{0}\"cases\": {1},\n{0}\"skipped\": {2},\n", indent, score.cases, score.skipped);
  text += indent + "\"step_time\": " + stats_json(score.step_time, true) + ",\n";
  text += indent + "\"band\": " + band_json(score.band) + ",\n";
  text += indent + "\"memory\": " + stats_json(score.memory, false) + ",\n";
  text += indent + "\"other\": {";
  for (std::size_t i = 0; i < score.other.size(); ++i) {
    text += (i > 0 ? ", " : "") + json_quoted(score.other[i].first) + ": " +
            stats_json(score.other[i].second, false);
  }
  text += "},\n";
  text += indent + "\"groups\": [";
  for (std::size_t i = 0; i < score.groups.size(); ++i) {
    const GroupScore& group = score.groups[i];
    text += fmt::format(
        R"({}{{"group": {}, "plans": {}, "spearman": {}, "regret": {}, "near": {}, )"
        R"("best_is_near": {}, "near_regret": {}}})",
        i > 0 ? ", " : "", json_quoted(group.name), group.plans, number(group.spearman),
        json_number(group.regret), group.near, group.best_is_near, json_number(group.near_regret));
  }
  text += fmt::format(
      "],\n{0}\"fit_errors\": {1},\n{0}\"fit\": {{\"right\": {2}, \"false_fits\": {3}, "
      "\"false_refusals\": {4}, \"tight_ran\": {5}, \"tight_broke\": {6}}},\n"
      "{0}\"fit_wrong\": {7},\n{0}\"missed_tolerances\": {8}",
      indent, score.fit.differ(), score.fit.right, score.fit.false_fits, score.fit.false_refusals,
      score.fit.tight_ran, score.fit.tight_broke, json_number(score.fit.wrong()),
      score.missed_tolerances);
  return text;
}

std::vector<const ValidationCase*> pointers(const ValidationFile& file) {
  std::vector<const ValidationCase*> cases;
  for (const ValidationCase& entry : file.cases) cases.push_back(&entry);
  return cases;
}
std::vector<const ValidationCase*> pointers(const std::vector<ValidationFile>& files) {
  std::vector<const ValidationCase*> cases;
  for (const ValidationFile& file : files) {
    for (const ValidationCase& entry : file.cases) cases.push_back(&entry);
  }
  return cases;
}

std::string percent(double value) {
  return fmt::format("{:.1f} %", 100 * value);
}
std::string signed_percent(double value) {
  return fmt::format("{:+.1f} %", 100 * value);
}

std::string stats_text(const std::string& name, const ErrorStats& stats) {
  std::string text = fmt::format("  {:<34} {:>4} cases   mean {:>7}   max {:>7}   bias {:>8}", name,
                                 stats.cases, percent(stats.mean_abs_error),
                                 percent(stats.max_abs_error), signed_percent(stats.bias));
  if (stats.spearman) text += fmt::format("   rank correlation {:.3f}", *stats.spearman);
  return text + "\n";
}

// Means over the groups.
std::string groups_text(const std::vector<GroupScore>& groups) {
  double spearman = 0, regret = 0, largest = 0;
  std::int32_t ranked = 0, held = 0;
  for (const GroupScore& group : groups) {
    if (group.spearman) ++ranked;
    held += group.best_is_near ? 1 : 0;
    spearman += group.spearman.value_or(0);
    regret += group.regret;
    largest = std::max(largest, group.regret);
  }
  return fmt::format(
      "  plans in {} groups: rank correlation {:.2f}, regret {} (largest {}); in {} the fastest is "
      "one "
      "of\n    those that the prediction does not tell from its own\n",
      groups.size(), ranked > 0 ? spearman / ranked : 0,
      percent(regret / static_cast<double>(groups.size())), percent(largest), held);
}

std::string score_text(const std::string& name, const FileScore& score) {
  std::string text = fmt::format("{}: {} cases", name, score.cases);
  if (score.skipped > 0) text += fmt::format(", {} skipped", score.skipped);
  text += "\n";
  if (score.step_time) text += stats_text("step time", *score.step_time);
  if (score.band) {
    text +=
        fmt::format("  {} of {} steps between low and high ({:.0f} %), half-width {} (median)\n",
                    score.band->inside, score.band->cases, 100 * score.band->coverage(),
                    percent(score.band->half_width));
  }
  if (score.memory) text += stats_text("memory", *score.memory);
  for (const auto& [key, stats] : score.other) text += stats_text(key, stats);
  if (!score.groups.empty()) text += groups_text(score.groups);
  if (score.fit.wrong() > 0) {
    const FitDecisions& fit = score.fit;
    text += fmt::format(
        "  {:g} of {} fit decisions wrong: {} predicted not to fit, {} predicted to; {} called "
        "tight\n    (a half each): {} of them ran\n",
        fit.wrong(), fit.decided(), fit.false_refusals, fit.false_fits,
        fit.tight_ran + fit.tight_broke, fit.tight_ran);
  }
  if (score.missed_tolerances > 0) {
    text += fmt::format("  {} tolerances missed\n", score.missed_tolerances);
  }
  return text;
}

// 12.3 ms, 61.2 GB: a value with the unit that its key names.
std::string quantity(const std::string& key, const std::optional<double>& value) {
  if (!value) return "-";
  if (key.ends_with("_bytes")) return fmt::format("{:.3f} GB", *value * 1e-9);
  if (key.ends_with("_s") && *value < 1) return fmt::format("{:.3f} ms", *value * 1e3);
  if (key.ends_with("_s")) return fmt::format("{:.3f} s", *value);
  return fmt::format("{:.4g}", *value);
}

std::string figure_text(const std::string& id, const Figure& figure) {
  const std::optional<double> error = error_of(figure);
  return fmt::format("  {:<52} {:<22} {:>12} {:>12} {:>9}\n", id, figure.key,
                     quantity(figure.key, figure.predicted), quantity(figure.key, figure.measured),
                     error ? signed_percent(*error) : "-");
}

std::string case_text(const ValidationCase& entry) {
  if (!entry.skipped.empty()) return fmt::format("  {:<52} skipped: {}\n", entry.id, entry.skipped);
  std::string text;
  for (const Figure& figure : entry.figures) text += figure_text(entry.id, figure);
  for (const RankFigures& rank : entry.ranks) {
    for (const Figure& figure : rank.figures) {
      text += figure_text(fmt::format("{} rank {}", entry.id, rank.rank), figure);
    }
  }
  if (entry.measured_fits && entry.verdict && entry.measured_fits != entry.predicted_fits()) {
    text += fmt::format("  {:<52} {}\n", entry.id,
                        *entry.measured_fits              ? "fitted, predicted not to"
                        : entry.verdict == Verdict::Tight ? "did not fit, predicted tight"
                                                          : "did not fit, predicted to");
  }
  return text;
}

}  // namespace

std::string validation_json(const std::vector<ValidationFile>& files, const ErrorTable& errors) {
  std::string text = "{\n  \"schema\": \"rehearse.validation/1\",\n  \"files\": [";
  for (std::size_t i = 0; i < files.size(); ++i) {
    text += i > 0 ? ",\n    {\n" : "\n    {\n";
    text += "      \"file\": " + json_quoted(files[i].path) + ",\n";
    text += score_json(score(pointers(files[i]), errors), "      ");
    text += ",\n      \"rows\": [";
    for (std::size_t c = 0; c < files[i].cases.size(); ++c) {
      const ValidationCase& entry = files[i].cases[c];
      text += c > 0 ? ",\n        {" : "\n        {";
      text += "\"id\": " + json_quoted(entry.id);
      if (!entry.skipped.empty()) text += ", \"skipped\": " + json_quoted(entry.skipped);
      text += ", \"predicted\": " + side_json(entry, true);
      text += ", \"measured\": " + side_json(entry, false);
      if (entry.features) {
        text += ", \"low_s\": " + number(entry.low_s) + ", \"high_s\": " + number(entry.high_s);
        text += ", \"group\": " + json_quoted(entry.group) +
                ", \"plan\": " + json_quoted(plan_json(entry.scenario->plan, 0));
        text += ", \"features\": " + features_json(*entry.features);
      }
      text += "}";
    }
    text += "\n      ]\n    }";
  }
  text +=
      "\n  ],\n  \"all\": {\n" + score_json(score(pointers(files), errors), "    ") + "\n  }\n}\n";
  return text;
}

std::string validation_text(const std::vector<ValidationFile>& files, const ErrorTable& errors) {
  std::string text;
  for (const ValidationFile& file : files)
    text += score_text(file.path, score(pointers(file), errors));
  if (files.size() > 1) text += score_text("all files", score(pointers(files), errors));
  text += fmt::format("\n  {:<52} {:<22} {:>12} {:>12} {:>9}\n", "case", "figure", "predicted",
                      "measured", "error");
  for (const ValidationFile& file : files) {
    for (const ValidationCase& entry : file.cases) text += case_text(entry);
  }
  return text;
}

}  // namespace rehearse::sim
