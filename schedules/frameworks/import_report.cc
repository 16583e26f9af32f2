// SPDX-License-Identifier: Apache-2.0
// What an import says to scripts and to people.
#include <array>

#include "schedules/base/counted.h"
#include "schedules/frameworks/import_flags.h"
#include "schedules/scenario/plan_line.h"

namespace rehearse {
namespace {

std::string value_of(const Setting& setting) {
  if (setting.null) return "null";
  std::string text;
  for (const std::string& value : setting.values) text += (text.empty() ? "" : " ") + value;
  return text;
}

constexpr std::string_view kUnknown = "unknown";

std::string_view class_of(const FlagReport& report) {
  return report.use ? name_of(*report.use) : kUnknown;
}

Json row_of(const FlagReport& report) {
  const Setting& s = report.setting;
  Json row{{"flag", s.flag},
           {"value", s.null ? Json(nullptr) : Json(value_of(s))},
           {"file", s.file},
           {"line", s.line},
           {"class", class_of(report)}};
  row["key"] = report.key.empty() ? Json(nullptr) : Json(report.key);
  row["note"] = report.note.empty() ? Json(nullptr) : Json(report.note);
  row["source"] = report.source.empty() ? Json(nullptr) : Json(report.source);
  return row;
}

constexpr std::size_t kLongestValue = 60;

std::string line_of(const FlagReport& report) {
  std::string value = value_of(report.setting);
  if (value.size() > kLongestValue) value = value.substr(0, kLongestValue - 3) + "...";
  std::string text = "  " + report.setting.flag + (value.empty() ? "" : " " + value);
  if (!report.key.empty() && report.use == FlagUse::Used) text += "  -> " + report.key;
  if (!report.note.empty()) text += "  (" + report.note + ")";
  return text + "\n";
}

}  // namespace

std::string import_json(const Imported& imported) {
  Json json{{"schema", "rehearse.import/1"},
            {"framework", imported.framework},
            {"flags", Json::array()},
            {"environment", Json::array()},
            {"warnings", imported.warnings},
            {"scenario", Json::parse(imported.text)},
            {"plan", Json::parse(plan_json(imported.scenario.plan, -1))}};
  for (const FlagReport& report : imported.flags) json["flags"].push_back(row_of(report));
  for (const FlagReport& one : imported.environment) json["environment"].push_back(row_of(one));
  return json.dump(2) + "\n";
}

std::string import_text(const Imported& imported) {
  struct Part {
    std::string_view title;
    std::optional<FlagUse> use;
  };
  constexpr std::array<Part, 4> kParts{{
      {"not modelled: what they change is not in the prediction", FlagUse::NotModelled},
      {"unknown here, left out", std::nullopt},
      {"used", FlagUse::Used},
      {"no effect on a step's time or memory", FlagUse::NoEffect},
  }};
  const Plan& plan = imported.scenario.plan;
  std::string text = imported.title + ": " + plan_line(plan) + "\n";
  for (const std::string& warning : imported.warnings) text += "note      " + warning + "\n";
  for (const Part& part : kParts) {
    std::string lines, brief;
    std::int64_t count = 0;
    for (const FlagReport& report : imported.flags) {
      if (report.use != part.use) continue;
      ++count;
      lines += line_of(report);
      brief += " " + report.setting.flag;
    }
    if (count == 0) continue;
    const bool silent = part.use == FlagUse::NoEffect;
    text += "\n" + counted(count, "flag") + " " + std::string(part.title) + "\n";
    text += silent ? " " + brief + "\n" : lines;
  }
  return text;
}

}  // namespace rehearse
