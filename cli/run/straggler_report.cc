// SPDX-License-Identifier: Apache-2.0
#include "cli/run/straggler_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "schedules/base/json_document.h"
#include "viz/analysis/ranks/stragglers.h"
#include "viz/analysis/units_text.h"

namespace rehearse::cli {
namespace {

std::string time_text(const Json& seconds) {
  std::string text = viz::time_text(std::llround(seconds.number() * 1e9));
  if (const std::size_t micro = text.find("µ"); micro != std::string::npos)
    text.replace(micro, 2, "u");
  return text;
}

}  // namespace

Json stragglers_json(const Trace& trace) {
  Json all = Json::array();
  for (const viz::Straggler& one : viz::stragglers(trace)) {
    const TraceRow& row = trace.rows[one.slowest.index()];
    all.push_back({{"position", row.position.value},
                   {"ranks", one.ranks},
                   {"rank", row.first_rank.value},
                   {"busy_s", static_cast<double>(one.time) * 1e-9},
                   {"median_s", static_cast<double>(one.median) * 1e-9},
                   {"excess", one.median > 0 ? Json(one.excess()) : Json(nullptr)}});
  }
  return all;
}

std::string straggler_text(const Json& stragglers) {
  const auto behind = [](const Json& one) {
    return one["busy_s"].number() - one["median_s"].number();
  };
  const std::vector<Json>& all = stragglers.items();
  const auto worst = std::max_element(
      all.begin(), all.end(), [&](const Json& a, const Json& b) { return behind(a) < behind(b); });
  if (worst == all.end()) return {};
  const Json& one = *worst;
  return fmt::format(
      "slowest of equal ranks: rank {} computes {}, the median of the {} at position {} {}{}\n",
      one["rank"].integer(), time_text(one["busy_s"]), one["ranks"].integer(),
      one["position"].integer(), time_text(one["median_s"]),
      one["excess"].is_null() ? ""
                              : fmt::format(" (+{})", viz::percent_text(one["excess"].number())));
}

std::string straggler_text(const Trace& trace) {
  return straggler_text(stragglers_json(trace));
}

}  // namespace rehearse::cli
