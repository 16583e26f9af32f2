// SPDX-License-Identifier: Apache-2.0
// A search's answer as text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "schedules/base/counted.h"
#include "schedules/scenario/plan_line.h"
#include "sim/search/report/found_parts.h"
#include "sim/search/report/search_report.h"
#include "sim/search/report/why_text.h"

namespace rehearse::sim {
namespace {

std::string energy(double joules) {
  return joules >= 1e5   ? fmt::format("{:.2f} MJ", joules * 1e-6)
         : joules >= 1e2 ? fmt::format("{:.1f} kJ", joules * 1e-3)
                         : fmt::format("{:.2f} J", joules);
}
std::string days(double s) {
  if (s >= 86400) return fmt::format("{:.1f} d", s / 86400);
  return fmt::format("{:.1f} h", s / 3600);
}

// Behind a plan: how far its order may be from the best, how many it stands for, and who else is
// needed to launch it.
std::string marks_of(const FoundPlan& plan) {
  std::string text;
  if (plan.above_bound) {
    text += fmt::format("  [its order: at most {:.1f} % longer than any]", 100 * *plan.above_bound);
  }
  if (!plan.equal.empty()) {
    const double fastest = std::ranges::min_element(plan.equal, {}, &EqualPlan::step_s)->step_s;
    text += fmt::format("  [and {} equal, from {}]", plan.equal.size(),
                        seconds_text(std::min(fastest, plan.step_s)));
  }
  if (!plan.launched_elsewhere.empty()) {
    text += fmt::format("  [launched by: {}]", plan.launched_elsewhere);
  }
  return text;
}

// Which day the marked plans break on.
std::string tight_text(const std::vector<FoundPlan>& plans) {
  constexpr std::array<std::string_view, 4> kDays{
      "", "the busiest rank has more rows than the mean", "the longest sample comes",
      "holes in the allocator or anything else take 5 % of the capacity"};
  std::string days;
  for (std::size_t cause = 1; cause < kDays.size(); ++cause) {
    const auto breaks = [&](const FoundPlan& plan) {
      return plan.bad_day == static_cast<BadDayCause>(cause);
    };
    if (std::ranges::none_of(plans, breaks)) continue;
    days += (days.empty() ? "" : ", or when ") + std::string(kDays[cause]);
  }
  if (days.empty()) return {};
  return "  ~ tight: fits at even load, not on the day when " + days + "\n";
}

std::string table(const SearchResult& result) {
  const bool priced = !result.best.empty() && result.best.front().usd_per_step.has_value();
  std::string text = fmt::format(
      "{:>3} {:>11} {:>6} {:>10} {:>7} {:>11} {}{:>9}  {}\n", "", "step", "MFU", "headroom",
      "bubble", "tokens/s", priced ? fmt::format("{:>11} ", "tokens/USD") : "", "energy", "plan");
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const FoundPlan& plan = result.best[i];
    text += fmt::format("{:>3} {:>11} {:>6} {:>10}{}{:>5.1f} % {:>11} {}{:>9}  {}\n", i + 1,
                        seconds_text(plan.step_s),
                        plan.mfu ? fmt::format("{:.1f} %", *plan.mfu * 100) : "-",
                        gigabytes_text(plan.capacity - plan.peak_device),
                        plan.verdict == Verdict::Tight ? '~' : ' ', plan.bubble_ratio * 100,
                        with_commas(plan.tokens_per_s),
                        priced ? fmt::format("{:>11} ", with_commas(tokens_per_usd(plan))) : "",
                        energy(plan.energy_j), plan_line(plan.plan) + marks_of(plan));
  }
  return text + tight_text(result.best);
}

// Rows that the prediction does not tell from the first: "  2 and 3 are within ...".
std::string near_text(const SearchResult& result) {
  if (result.near.empty()) return {};
  double widest = 0;
  for (const NearPlan& near : result.near) widest = std::max(widest, near.band);
  return fmt::format(
      "  {} behind the first {} within the band of their difference from it (up to {:.1f} %: "
      "errors "
      "that both\n  share cancel): the prediction does not tell them apart, a measured step of "
      "each "
      "would\n",
      counted(static_cast<std::int64_t>(result.near.size()), "row"),
      result.near.size() == 1 ? "lies" : "lie", 100 * std::expm1(widest));
}

// What the list says of its own certainty.
std::string certainty_text(const SearchResult& result) {
  const FoundPlan& best = result.best.front();
  std::string text = fmt::format("\n  the first row's step: 9 in 10 between {} and {}\n",
                                 seconds_text(best.low_s), seconds_text(best.high_s));
  if (result.equal_within > 0) {
    text += fmt::format(
        "  plans less than {:.1f} % apart are one row, of which the simplest is shown (--all lists "
        "them): of measured\n  plans so near, more than one pair in three is in the other order; "
        "from {:.1f} % on nine in ten are in this one\n",
        100 * std::expm1(result.equal_within), 100 * std::expm1(result.ordered_from));
  }
  text += near_text(result);
  std::string sources;
  for (const NearCases& near : best.nearest) {
    sources +=
        fmt::format("{}{} ({:.0f} %)", sources.empty() ? "" : ", ", near.source, 100 * near.share);
  }
  if (!sources.empty()) text += "  all of it rests on measured steps near to it: " + sources + "\n";
  return text;
}

std::string front_text(const SearchResult& result) {
  if (result.front.size() < 2) return {};
  std::string text = "\nmemory against time: the fastest plan for each amount of memory\n";
  for (const FoundPlan& plan : result.front) {
    text += fmt::format("  {:>10} {:>11}  {}\n", gigabytes_text(plan.peak_device),
                        seconds_text(plan.step_s), plan_line(plan.plan));
  }
  return text;
}

std::string one_text(const SearchCase& one) {
  const SearchResult& result = one.result;
  if (result.best.empty()) {
    if (result.interrupted) return "interrupted before any plan was confirmed\n";
    return "no plan fits in memory\n" +
           (result.situation ? "  " + situation_text(*result.situation) + "\n" : std::string());
  }
  return table(result) + certainty_text(result) +
         (result.situation ? why_text(result) + front_text(result) : "");
}

std::string cases_text(const SearchReport& report) {
  std::string text =
      fmt::format("{:<28} {:>5} {:>11} {:>6} {:>12}", "cluster", "GPUs", "step", "MFU", "tokens/s");
  if (report.tokens > 0) text += fmt::format(" {:>9} {:>9} {:>14}", "goodput", "training", "cost");
  text += "  plan\n";
  for (const SearchCase& one : report.cases) {
    text += fmt::format("{:<28} {:>5} ", one.cluster.substr(0, 28), one.gpus);
    if (one.result.best.empty()) {
      text += one.result.interrupted ? "(interrupted)\n" : "no plan fits\n";
      continue;
    }
    const FoundPlan& best = one.result.best.front();
    text += fmt::format("{:>11} {:>6} {:>12}", seconds_text(best.step_s),
                        best.mfu ? fmt::format("{:.1f} %", *best.mfu * 100) : "-",
                        with_commas(best.tokens_per_s));
    if (report.tokens > 0) {
      text +=
          fmt::format(" {:>9} {:>9} {:>14}",
                      one.goodput ? fmt::format("{:.2f} %", one.goodput->share * 100) : "not known",
                      days(one.train->seconds),
                      one.train->usd ? with_commas(*one.train->usd) + " USD" : "not known");
    }
    text += "  " + plan_line(best.plan) + "\n";
  }
  return text;
}

}  // namespace

std::string search_text(const SearchReport& report) {
  std::int64_t plans = 0, possible = 0, replayed = 0, confirmed = 0;
  bool complete = true, interrupted = false;
  for (const SearchCase& one : report.cases) {
    plans += one.result.plans;
    possible += one.result.possible;
    replayed += one.result.replayed;
    confirmed += one.result.confirmed;
    complete &= one.result.complete;
    interrupted |= one.result.interrupted;
  }
  std::string text = report.name + "\n";
  const bool single = report.cases.size() == 1;
  if (single) {
    text +=
        fmt::format("  on {} GPUs ({})\n", report.cases.front().gpus, report.cases.front().cluster);
  }
  if (!report.fixed.empty()) text += "  fixed by the scenario: " + report.fixed + "\n";
  text += fmt::format(
      "  {} plans, {} within the memory bound, {} replayed, {} simulated",
      with_commas(static_cast<double>(plans)), with_commas(static_cast<double>(possible)),
      with_commas(static_cast<double>(replayed)), with_commas(static_cast<double>(confirmed)));
  if (report.wall_s > 0) {
    text += fmt::format("; {:.1f} s, {} plans/s", report.wall_s, with_commas(report.plans_per_s));
  }
  text += "\n";
  if (interrupted) text += "  interrupted: the best so far\n";
  const std::vector<std::string>& left_out = report.cases.front().result.left_out;
  if (!left_out.empty()) {
    text +=
        "  left out, for no released framework runs them with the overlap that a prediction "
        "assumes\n  (name them in plan.schedule, or see --framework): ";
    for (const std::string& name : left_out) text += (&name == left_out.data() ? "" : ", ") + name;
    text += "\n";
  }
  if (!complete) text += "  ended at its limit of work: a better plan may be left\n";
  text += "\n";
  if (!single) return text + cases_text(report) + buying_text(report) + reasons_text(report);
  text += one_text(report.cases.front());
  const SearchCase& one = report.cases.front();
  if (report.tokens > 0 && one.train) text += "\n" + cases_text(report);
  return text + buying_text(report);
}

}  // namespace rehearse::sim
