// SPDX-License-Identifier: Apache-2.0
// When a training run is done, what it costs and what it takes from the grid.
#include <fmt/format.h>

#include <algorithm>

#include "schedules/base/counted.h"
#include "sim/search/report/search_report.h"

namespace rehearse::sim {
namespace {

std::string percent(double share) {
  return fmt::format("{:.1f} %", share * 100);
}

std::string amount(const std::optional<double>& value) {
  return value ? with_commas(*value) : "-";
}

std::string row(const SearchCase& one) {
  const auto share = [&](double GoodputSpread::*of) {
    return one.spread ? percent((*one.spread).*of) : std::string("-");
  };
  return fmt::format(
      "{:<24} {:>6}  {:>9} {:>8} {:>8} {:>8}  {:>9} {:>11} {:>12}  {:>11} {:>11} {:>9}{}\n",
      one.cluster.substr(0, 24), one.gpus, one.goodput ? percent(one.goodput->share) : "-",
      share(&GoodputSpread::p10), share(&GoodputSpread::p50), share(&GoodputSpread::p90),
      fmt::format("{:.1f} d", one.late->seconds / 86400), one.done_by, amount(one.late->usd),
      amount(one.energy->gpu_kwh), amount(one.energy->facility_kwh),
      one.energy->co2_t ? fmt::format("{:.2f}", *one.energy->co2_t) : "-",
      one.meets ? "" : "  too late or too dear");
}

// What the columns mean, and where their figures come from.
std::string notes(const SearchReport& report) {
  std::string text =
      "  goodput: Young and Daly's formula, then failures played through: nine runs in ten have "
      "P10 "
      "or more,\n  so are done by that day, for no more\n";
  const auto known = [&](auto question) { return std::ranges::any_of(report.cases, question); };
  if (known([](const SearchCase& one) { return one.late && !one.spread; })) {
    text +=
        "  without goodput nothing fails and no checkpoint is written: --set "
        "cluster.failures_per_million_gpu_hours=...,\n  --set cluster.checkpoint_gb_per_s=...\n";
  }
  const Site& site = *report.site;
  if (known([](const SearchCase& one) { return one.energy && one.energy->facility_kwh; })) {
    text += fmt::format(
        "  site: GPUs, what else a node takes, {:g} W of network a NIC ({}),\n  times a PUE of "
        "{:g} "
        "({});\n  CO2: {:g} g a kWh ({})\n",
        site.network_w_per_nic.value, site.network_w_per_nic.source, site.pue.value,
        site.pue.source, site.co2_g_per_kwh.value, site.co2_g_per_kwh.source);
  }
  return text;
}

}  // namespace

std::string buying_text(const SearchReport& report) {
  if (!report.site) return {};
  std::string text = fmt::format(
      "\n{:<24} {:>6}  {:>9} {:>8} {:>8} {:>8}  {:>9} {:>11} {:>12}  {:>11} {:>11} {:>9}\n",
      "the whole training", "GPUs", "goodput", "P10", "P50", "P90", "at P10", "done by", "USD",
      "GPU kWh", "site kWh", "CO2 t");
  for (const SearchCase& one : report.cases) {
    if (one.late) text += row(one);
  }
  text += notes(report);
  if (report.by.empty() && !report.budget_usd) return text;
  std::string asked;
  if (!report.by.empty()) asked += " by " + report.by;
  if (report.budget_usd) asked += fmt::format(" for {} USD", with_commas(*report.budget_usd));
  if (!report.chosen) return text + "  none of these is done" + asked + "\n";
  const SearchCase& chosen = report.cases[*report.chosen];
  return text + fmt::format("  done{}: {} GPUs, {}\n", asked, chosen.gpus, chosen.cluster);
}

}  // namespace rehearse::sim
