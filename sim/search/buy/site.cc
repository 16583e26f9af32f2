// SPDX-License-Identifier: Apache-2.0
#include "sim/search/buy/site.h"

#include <array>

#include "schedules/base/files.h"
#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"

namespace rehearse::sim {
namespace {

constexpr std::array<std::string_view, 1> kSiteSchema{"site/1"};
constexpr std::array kFigureKeys{
    KeySpec{.name = "value", .types = kNumber, .min = 0, .max = 1e6, .required = true},
    KeySpec{.name = "source", .types = kString, .required = true},
};
constexpr KeyTable kFigure{.title = "figure", .keys = kFigureKeys};
constexpr KeySpec figure_key(std::string_view name) {
  return {.name = name, .types = kObject, .members = &kFigure, .required = true};
}
constexpr std::array kSiteKeys{
    KeySpec{.name = "schema", .types = kString, .choices = kSiteSchema, .required = true},
    figure_key("pue"),
    figure_key("co2_g_per_kwh"),
    figure_key("network_w_per_nic"),
};
constexpr KeyTable kSite{.title = "What building, grid and network add", .keys = kSiteKeys};

}  // namespace

Result<Site> average_site() {
  const std::string path = shipped_directory() + "/site/average.json";
  const Result<JsonValue> root = read_json(path);
  if (!root) return root.error();
  JsonReport report(path);
  check_keys(root.value(), kSite, "", report);
  if (!report.ok()) return report.error();
  const auto figure = [&](std::string_view key) {
    const JsonValue& value = *root.value().given(key);
    return SourcedFigure{value.given("value")->number, value.given("source")->text};
  };
  return Site{.pue = figure("pue"),
              .co2_g_per_kwh = figure("co2_g_per_kwh"),
              .network_w_per_nic = figure("network_w_per_nic")};
}

}  // namespace rehearse::sim
