// SPDX-License-Identifier: Apache-2.0
// Plans that compete: are they in the measured order, and what does it cost to take the one that
// is predicted fastest?
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "sim/accuracy/validation.h"
#include "sim/band/difference_band.h"

namespace rehearse::sim {
namespace {

constexpr std::size_t kFewestPlans = 3;  // a pair says little about an order

// Repeated runs of one plan.
struct Runs {
  double predicted = 0, measured = 0;  // sums [s]
  std::int32_t count = 0;
  const ValidationCase* first = nullptr;
};
using Plans = std::map<std::string, Runs>;  // by the plan's text

// Whether the prediction does not tell two plans apart.
bool is_near(const Runs& a, const Runs& b, const ErrorTable& errors) {
  if (&a == &b) return true;
  if (!a.first->features || !b.first->features) return false;
  const double apart = std::log(a.predicted / a.count) - std::log(b.predicted / b.count);
  return std::abs(apart) <
         difference_band(*a.first->features, *b.first->features, errors, a.first->source);
}

void score_near(GroupScore& score, const Plans& plans, double best, const ErrorTable& errors) {
  const auto predicted = [](const auto& plan) { return plan.second.predicted / plan.second.count; };
  const Runs& fastest = std::ranges::min_element(plans, {}, predicted)->second;
  score.near = 0;
  double reached = std::numeric_limits<double>::infinity();
  for (const auto& [text, runs] : plans) {
    if (!is_near(fastest, runs, errors)) continue;
    ++score.near;
    reached = std::min(reached, runs.measured / runs.count);
  }
  score.near_regret = reached / best - 1;
  score.best_is_near = reached <= best;
}

GroupScore score_plans(const std::string& name, const Plans& plans, const ErrorTable& errors) {
  GroupScore score{.name = name, .plans = static_cast<std::int32_t>(plans.size())};
  std::vector<std::pair<double, double>> times;  // predicted, measured
  for (const auto& [text, runs] : plans) {
    times.emplace_back(runs.predicted / runs.count, runs.measured / runs.count);
  }
  score.spearman = rank_correlation(times);
  const double best =
      std::ranges::min_element(times, {}, &std::pair<double, double>::second)->second;
  score.regret = std::ranges::min_element(times)->second / best - 1;
  score_near(score, plans, best, errors);
  return score;
}

}  // namespace

std::vector<GroupScore> score_groups(const std::vector<const ValidationCase*>& cases,
                                     const ErrorTable& errors) {
  std::map<std::string, Plans> groups;
  for (const ValidationCase* entry : cases) {
    if (entry->kind != CaseKind::Step || !entry->skipped.empty() || entry->group.empty()) continue;
    const auto step = std::ranges::find(entry->figures, "step_time_s", &Figure::key);
    if (step == entry->figures.end() || !step->measured || !step->predicted) continue;
    Runs& runs = groups[entry->group][plan_json(entry->scenario->plan, 0)];
    runs.predicted += *step->predicted;
    runs.measured += *step->measured;
    ++runs.count;
    runs.first = entry;
  }
  std::vector<GroupScore> scores;
  for (const auto& [name, plans] : groups) {
    if (plans.size() >= kFewestPlans) scores.push_back(score_plans(name, plans, errors));
  }
  return scores;
}

}  // namespace rehearse::sim
