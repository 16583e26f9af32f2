// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/corrected/fit_correction.h"

#include <algorithm>
#include <cmath>

#include "sim/predict/predict.h"
#include "sim/predict/predicted_trace.h"

namespace rehearse::sim {
namespace {

constexpr double kMostFactor = 100;  // what a cluster file may say
// A kind of work that differs by more was measured as something else: its launches, its waiting.
constexpr double kMostOfKind = 4;

// Multiplies the factors of the kinds of work whose predicted and measured times are both there.
// Returns the largest change.
double approach(const StepWork& measured, const StepWork& predicted, Correction& factor) {
  double most = 0;
  const auto move = [&](double is, double was, double& to) {
    if (is <= 0 || was <= 0) return;
    const double before = to;
    to = std::clamp(to * is / was, 1 / kMostOfKind, kMostOfKind);
    most = std::max(most, std::abs(to / before - 1));
  };
  if (measured.has_kernels()) {
    move(measured.products, predicted.products, factor.products);
    move(measured.attention, predicted.attention, factor.attention);
    move(measured.memory_bound, predicted.memory_bound, factor.memory_bound);
  } else {
    for (const auto part :
         {&Correction::products, &Correction::attention, &Correction::memory_bound}) {
      move(measured.computing, predicted.computing, factor.*part);
    }
  }
  move(measured.collectives, predicted.collectives, factor.collectives);
  move(measured.transfers, predicted.transfers, factor.transfers);
  return most;
}

void multiply(Correction& by, const Correction& factor) {
  for (const CorrectionRow& row : kCorrections) by.*row.field *= factor.*row.field;
}
void multiply(Correction& by, double factor) {
  for (const CorrectionRow& row : kCorrections) by.*row.field *= factor;
}

// What is hidden and what shares a GPU depends on the rates themselves, so both searches take a few
// steps; each at least halves what is left.
constexpr int kMostSteps = 20;

Result<> fit_kinds(const Scenario& scenario, const Cluster& cluster, const StepWork& measured,
                   Cluster& corrected) {
  Correction factor;
  for (int i = 0; i < kMostSteps; ++i) {
    const Result<Prediction> made = predict(scenario, corrected);
    if (!made) return made.error();
    const StepWork predicted = step_work(predicted_trace(made.value(), scenario, corrected));
    const double change = approach(measured, predicted, factor);
    corrected.correction = cluster.correction;
    multiply(corrected.correction, factor);
    if (change < 1e-3) break;
  }
  return {};
}

bool possible(const Correction& correction) {
  return std::ranges::all_of(kCorrections, [&](const CorrectionRow& row) {
    const double factor = correction.*row.field;
    return factor <= kMostFactor && factor >= 1 / kMostFactor;
  });
}

}  // namespace

Result<CorrectionFit> fit_correction(const Scenario& scenario, const Cluster& cluster,
                                     const MeasuredStep& measured) {
  Result<Prediction> made = predict(scenario, cluster);
  if (!made) return made.error();
  CorrectionFit fit{.before_s = made.value().step_s,
                    .after_s = made.value().step_s,
                    .schedule_hash = made.value().schedule_hash()};
  const bool remaps = made.value().remap_s > 0;
  Cluster corrected = cluster;
  if (measured.work) {
    const Result<> fitted = fit_kinds(scenario, cluster, *measured.work, corrected);
    if (!fitted) return fitted.error();
  }
  for (int i = 0; i < kMostSteps; ++i) {
    made = predict(scenario, corrected, {.memory = remaps});
    if (!made) return made.error();
    fit.after_s = made.value().step_s;
    const double rest = measured.step_s / fit.after_s;
    if (std::abs(rest - 1) < 1e-6) break;
    multiply(corrected.correction, rest);
    if (!possible(corrected.correction)) {
      return Error{"the measured step and its prediction, " + std::to_string(fit.before_s) +
                   " s, are too far apart for a correction: is it this scenario's?"};
    }
  }
  fit.correction = corrected.correction;
  return fit;
}

}  // namespace rehearse::sim
