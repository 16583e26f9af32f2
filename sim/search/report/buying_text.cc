// SPDX-License-Identifier: Apache-2.0
// When a training run is done, what it costs and what it takes from the grid.
#include <fmt/format.h>

#include <algorithm>

#include "schedules/base/counted.h"
#include "sim/search/report/search_report.h"

namespace rehearse::sim {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", share * 100); }

std::string days(double s) { return fmt::format("{:.1f} d", s / 86400); }

std::string megawatt_hours(const std::optional<double>& kwh) {
  return kwh ? fmt::format("{:.1f} MWh", *kwh * 1e-3) : "not known";
}

}  // namespace

std::string buying_text(const SearchReport& report) {
  if (!report.buys) return {};
  std::string text = fmt::format(
      "\n{:<28} {:>5}  {:>8}  {:>23}  {:>9}  {:>10}  {:>14}  {:>11}  {:>11}  {:>9}\n", "to train",
      "GPUs", "goodput:", "P10     P50     P90", "late", "done by", "cost, late", "GPUs' energy",
      "of the site", "CO2");
  for (const SearchCase& one : report.cases) {
    if (!one.late) continue;
    const auto spread = one.spread ? fmt::format("{:>7} {:>7} {:>7}", percent(one.spread->p10),
                                                 percent(one.spread->p50), percent(one.spread->p90))
                                   : std::string("not known");
    text += fmt::format(
        "{:<28} {:>5}  {:>8}  {:>23}  {:>9}  {:>10}  {:>14}  {:>11}  {:>11}  {:>9}{}\n",
        one.cluster.substr(0, 28), one.gpus, one.goodput ? percent(one.goodput->share) : "-", spread,
        days(one.late->seconds), one.done_by.empty() ? "-" : one.done_by,
        one.late->usd ? with_commas(*one.late->usd) + " USD" : "not known",
        megawatt_hours(one.energy->gpu_kwh), megawatt_hours(one.energy->facility_kwh),
        one.energy->co2_t ? fmt::format("{:.1f} t", *one.energy->co2_t) : "-",
        one.meets ? "" : "  too late or too dear");
  }
  text +=
      "  goodput: Young and Daly's formula, then failures played through; nine runs in ten have P10 "
      "or more,\n  and so are done within `late`\n";
  if (report.by.empty() && !report.budget_usd) return text;
  std::string asked;
  if (!report.by.empty()) asked += " by " + report.by;
  if (report.budget_usd) asked += fmt::format(" for {} USD", with_commas(*report.budget_usd));
  if (!report.chosen) return text + "  none of these is done" + asked + "\n";
  const SearchCase& chosen = report.cases[*report.chosen];
  return text + fmt::format("  done{}: {} GPUs, {}\n", asked, chosen.gpus, chosen.cluster);
}

}  // namespace rehearse::sim
