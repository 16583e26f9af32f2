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

// "36 + 57 + 7 %": tables, formulas, data sheets.
std::string shares_text(const SupportRow& row) {
  if (row.refused) return {};
  const auto share = [&](CostLevel level) {
    return 100 * row.rests_on.level[static_cast<std::size_t>(level)];
  };
  return fmt::format("{:>3.0f} + {:>3.0f} + {:>3.0f} %",
                     share(CostLevel::Measured) + share(CostLevel::Interpolated),
                     share(CostLevel::Formula), share(CostLevel::Datasheet));
}

// "143, 9 in 10 within 14 %"; of the other kind of model: "12 others, ...".
std::string steps_text(const SupportRow& row) {
  const MeasuredSteps& steps = row.steps;
  if (row.refused || steps.all == 0) return "-";
  return fmt::format(
      "{}, 9 in 10 within {:.0f} %",
      steps.like > 0 ? std::to_string(steps.like) : std::to_string(steps.all) + " of other models",
      100 * steps.within);
}

}  // namespace

std::string support_text(const std::vector<SupportRow>& rows, bool each) {
  std::string text;
  std::set<std::string> remarks;
  if (each) {
    text = fmt::format("{:<24} {:<36} {:<6} {:<12} {:<38} {}\n", "model", "GPU", "type", "rests on",
                       "measured steps like it", "kernels: tables + formulas + data sheets");
    std::vector<SupportRow> by_gpu = rows;
    std::ranges::stable_sort(by_gpu, {}, &SupportRow::gpu);
    for (const SupportRow& row : by_gpu) {
      text += fmt::format("{:<24} {:<36} {:<6} {:<12}", row.model, row.gpu, name_of(row.precision),
                          row.level());
      if (!row.refused) text += fmt::format(" {:<38} {}", steps_text(row), shares_text(row));
      text += "\n";
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
      line.steps = row.steps.all;
      if (!row.remark.empty()) remarks.insert(row.remark);
    }
    text = fmt::format("{:<36} {:<9}  {:<36} {}\n", "GPU", "precision", "models", "measured steps");
    for (const auto& [key, line] : lines) {
      text +=
          fmt::format("{:<36} {:<9}  {:<36} {}\n", key.first, name_of(key.second),
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
    one["measured_steps"] = row.steps.all;
    one["measured_steps_like_it"] = row.steps.like;
    one["nine_in_ten_within"] = row.steps.all > 0 ? Json(row.steps.within) : Json();
    one["remark"] = row.remark.empty() ? Json() : Json(row.remark);
    list.push_back(std::move(one));
  }
  json["rows"] = std::move(list);
  return json.dump(2) + "\n";
}

}  // namespace rehearse::sim
