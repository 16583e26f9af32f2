// SPDX-License-Identifier: Apache-2.0
// Plans that compete: are they in the measured order, and what does it cost to take the one that
// is predicted fastest?
#include <algorithm>
#include <map>

#include "sim/accuracy/validation.h"

namespace rehearse::sim {
namespace {

constexpr std::size_t kFewestPlans = 3;  // a pair says little about an order

// Repeated runs of one plan.
struct Runs {
  double predicted = 0, measured = 0;  // sums [s]
  std::int32_t count = 0;
};
using Plans = std::map<std::string, Runs>;  // by the plan's text

GroupScore score_plans(const std::string& name, const Plans& plans) {
  GroupScore score{.name = name, .plans = static_cast<std::int32_t>(plans.size())};
  std::vector<std::pair<double, double>> times;  // predicted, measured
  for (const auto& [text, runs] : plans) {
    times.emplace_back(runs.predicted / runs.count, runs.measured / runs.count);
  }
  score.spearman = rank_correlation(times);
  const double best =
      std::ranges::min_element(times, {}, &std::pair<double, double>::second)->second;
  score.regret = std::ranges::min_element(times)->second / best - 1;
  return score;
}

}  // namespace

std::vector<GroupScore> score_groups(const std::vector<const ValidationCase*>& cases) {
  std::map<std::string, Plans> groups;
  for (const ValidationCase* entry : cases) {
    if (entry->kind != CaseKind::Step || !entry->skipped.empty() || entry->group.empty()) continue;
    const auto step = std::ranges::find(entry->figures, "step_time_s", &Figure::key);
    if (step == entry->figures.end() || !step->measured || !step->predicted) continue;
    Runs& runs = groups[entry->group][plan_json(entry->scenario->plan, 0)];
    runs.predicted += *step->predicted;
    runs.measured += *step->measured;
    ++runs.count;
  }
  std::vector<GroupScore> scores;
  for (const auto& [name, plans] : groups) {
    if (plans.size() >= kFewestPlans) scores.push_back(score_plans(name, plans));
  }
  return scores;
}

}  // namespace rehearse::sim
