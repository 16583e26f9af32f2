// SPDX-License-Identifier: Apache-2.0
// What predictions rest on, as text and as JSON (schema rehearse.support/1).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "schedules/base/counted.h"
#include "schedules/base/json_document.h"
#include "schedules/scenario/plan_names.h"
#include "sim/accuracy/support.h"

namespace rehearse::sim {
namespace {

constexpr std::array<std::string_view, 4> kLevels{"measured", "interpolated", "formula", "refused"};

// "interpolated 40, formula 4"
std::string counts_text(const std::map<std::string_view, std::int32_t>& counts) {
  std::string text;
  for (const std::string_view level : kLevels) {
    const auto found = counts.find(level);
    if (found == counts.end()) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", level, found->second);
  }
  return text;
}

// "  (12 % measured or between, 7 % on data sheets)"
std::string shares_text(const SupportRow& row) {
  if (row.refused) return {};
  const auto share = [&](CostLevel level) {
    return 100 * row.rests_on.level[static_cast<std::size_t>(level)];
  };
  return fmt::format("  ({:.0f} % measured or between points, {:.0f} % on data sheets)",
                     share(CostLevel::Measured) + share(CostLevel::Interpolated),
                     share(CostLevel::Datasheet));
}

}  // namespace

std::string support_text(const std::vector<SupportRow>& rows, bool each) {
  std::string text;
  std::set<std::string> remarks;
  if (each) {
    for (const SupportRow& row : rows) {
      text += fmt::format("{:<20} {:<36} {:<6} {:<12}{}\n", row.model, row.gpu, name_of(row.precision),
                          row.level(), shares_text(row));
      if (!row.remark.empty()) remarks.insert(row.remark);
    }
  } else {
    struct Line {
      std::map<std::string_view, std::int32_t> counts;
      std::int32_t steps = 0;
    };
    std::map<std::pair<std::string, ComputeType>, Line> lines;
    for (const SupportRow& row : rows) {
      Line& line = lines[{row.gpu, row.precision}];
      ++line.counts[row.level()];
      line.steps = row.validated_steps;
      if (!row.remark.empty()) remarks.insert(row.remark);
    }
    text = fmt::format("{:<36} {:<9}  {:<36} {}\n", "GPU", "precision", "models", "measured steps");
    for (const auto& [key, line] : lines) {
      text += fmt::format("{:<36} {:<9}  {:<36} {}\n", key.first, name_of(key.second),
                          counts_text(line.counts), line.steps > 0 ? std::to_string(line.steps) : "-");
    }
  }
  for (const std::string& remark : remarks) text += "note: " + remark + "\n";
  return text;
}

std::string support_json(const std::vector<SupportRow>& rows) {
  Json json{{"schema", "rehearse.support/1"}};
  Json list = Json::array();
  for (const SupportRow& row : rows) {
    Json one{{"model", row.model},
             {"gpu", row.gpu},
             {"cluster", row.cluster},
             {"precision", name_of(row.precision)},
             {"support", row.level()}};
    Json shares;
    if (!row.refused) {
      shares = Json::object();
      for (std::size_t i = 0; i < kNumCostLevels; ++i) {
        shares[name_of(static_cast<CostLevel>(i))] = row.rests_on.level[i];
      }
    }
    one["rests_on"] = shares;
    one["measured_steps"] = row.validated_steps;
    one["remark"] = row.remark.empty() ? Json() : Json(row.remark);
    list.push_back(std::move(one));
  }
  json["rows"] = std::move(list);
  return json.dump(2) + "\n";
}

}  // namespace rehearse::sim
