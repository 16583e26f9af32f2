// SPDX-License-Identifier: Apache-2.0
// Errors of predictions against measurements.
#include <algorithm>
#include <cmath>
#include <map>

#include "sim/accuracy/validation.h"

namespace rehearse::sim {
namespace {

// Ratios and fractions are compared by their difference: relative errors of small ones say nothing.
bool is_ratio(std::string_view key) {
  return key == "mfu" || key == "hfu" || key.find("ratio") != std::string_view::npos ||
         key.find("fraction") != std::string_view::npos || key == "bubble_overhead";
}

class Stats {
 public:
  void add(double error) {
    ++stats_.cases;
    sum_abs_ += std::abs(error);
    sum_ += error;
    stats_.max_abs_error = std::max(stats_.max_abs_error, std::abs(error));
  }
  std::optional<ErrorStats> get() const {
    if (stats_.cases == 0) return std::nullopt;
    ErrorStats stats = stats_;
    stats.mean_abs_error = sum_abs_ / stats.cases;
    stats.bias = sum_ / stats.cases;
    return stats;
  }

 private:
  ErrorStats stats_;
  double sum_abs_ = 0, sum_ = 0;
};

constexpr std::string_view kMemoryKeys[] = {"peak_allocated_bytes", "peak_reserved_bytes",
                                            "peak_device_bytes"};

const Figure* find(const std::vector<Figure>& figures, std::string_view key) {
  const auto found = std::ranges::find(figures, key, &Figure::key);
  return found == figures.end() ? nullptr : &*found;
}

// The largest over the ranks listed, measured and predicted each on its own.
std::optional<Figure> over_ranks(const ValidationCase& entry, std::string_view key) {
  std::optional<Figure> largest;
  for (const RankFigures& rank : entry.ranks) {
    const Figure* figure = find(rank.figures, key);
    if (figure == nullptr) continue;
    if (!largest) {
      largest = *figure;
      continue;
    }
    if (figure->measured)
      largest->measured = std::max(largest->measured.value_or(0), *figure->measured);
    if (figure->predicted) {
      largest->predicted = std::max(largest->predicted.value_or(0), *figure->predicted);
    }
  }
  return largest;
}

// A figure of the case, else of the ranks that it lists.
std::optional<Figure> figure_of(const ValidationCase& entry, std::string_view key) {
  if (const Figure* figure = find(entry.figures, key)) return *figure;
  return over_ranks(entry, key);
}

std::vector<std::string> keys_of(const ValidationCase& entry) {
  std::vector<std::string> keys;
  for (const Figure& figure : entry.figures) keys.push_back(figure.key);
  for (const RankFigures& rank : entry.ranks) {
    for (const Figure& figure : rank.figures) keys.push_back(figure.key);
  }
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());  // clang 14 lacks ranges::unique's
  return keys;
}

std::int32_t missed(const std::vector<Figure>& figures) {
  std::int32_t count = 0;
  for (const Figure& figure : figures) {
    if (!figure.tolerance || !figure.measured || !figure.predicted) continue;
    // A rounding of the last printed digit is not a miss.
    const double slack = 1e-9 * std::abs(*figure.measured);
    count += std::abs(*figure.predicted - *figure.measured) > *figure.tolerance + slack ? 1 : 0;
  }
  return count;
}

std::vector<double> ranks_of(std::vector<double> values) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) {
      ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
    }
    begin = end;
  }
  return ranks;
}

}  // namespace

std::optional<double> error_of(const Figure& figure) {
  if (!figure.measured || !figure.predicted) return std::nullopt;
  if (is_ratio(figure.key)) return *figure.predicted - *figure.measured;
  if (*figure.measured == 0) return std::nullopt;
  return *figure.predicted / *figure.measured - 1;
}

std::optional<Figure> memory_figure(const ValidationCase& entry) {
  for (const std::string_view key : kMemoryKeys) {
    const std::optional<Figure> figure = figure_of(entry, key);
    if (figure && figure->measured) return figure;
  }
  return std::nullopt;
}

std::optional<double> rank_correlation(const std::vector<std::pair<double, double>>& pairs) {
  if (pairs.size() < 3) return std::nullopt;
  std::vector<double> first, second;
  for (const auto& [a, b] : pairs) {
    first.push_back(a);
    second.push_back(b);
  }
  const std::vector<double> a = ranks_of(std::move(first)), b = ranks_of(std::move(second));
  const double mean = (static_cast<double>(pairs.size()) - 1) / 2;
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  if (aa <= 0 || bb <= 0) return std::nullopt;
  return ab / std::sqrt(aa * bb);
}

namespace {

std::optional<BandScore> score_bands(const std::vector<const ValidationCase*>& cases) {
  BandScore score;
  std::vector<double> widths;
  for (const ValidationCase* entry : cases) {
    const Figure* step = find(entry->figures, "step_time_s");
    if (step == nullptr || !step->measured || !step->predicted || !entry->low_s) continue;
    ++score.cases;
    score.inside += *entry->low_s <= *step->measured && *step->measured <= *entry->high_s ? 1 : 0;
    widths.push_back((*entry->high_s - *entry->low_s) / 2 / *step->predicted);
  }
  if (widths.empty()) return std::nullopt;
  const auto middle = widths.begin() + static_cast<std::ptrdiff_t>(widths.size() / 2);
  std::ranges::nth_element(widths, middle);
  score.half_width = *middle;
  return score;
}

}  // namespace

namespace {

void count_decision(FitDecisions& fit, bool ran, Verdict said) {
  switch (said) {
    case Verdict::Yes:
      ++(ran ? fit.right : fit.false_fits);
      return;
    case Verdict::Tight:
      ++(ran ? fit.tight_ran : fit.tight_broke);
      return;
    case Verdict::No:
      ++(ran ? fit.false_refusals : fit.right);
      return;
  }
}

}  // namespace

FileScore score(const std::vector<const ValidationCase*>& cases, const ErrorTable& errors) {
  FileScore result;
  Stats step_time, memory;
  std::map<std::string, Stats> other;
  std::vector<std::pair<double, double>> steps;
  for (const ValidationCase* entry : cases) {
    ++result.cases;
    if (!entry->skipped.empty()) {
      ++result.skipped;
      continue;
    }
    result.missed_tolerances += missed(entry->figures);
    for (const RankFigures& rank : entry->ranks) result.missed_tolerances += missed(rank.figures);
    const bool formula = entry->kind == CaseKind::Formula;
    if (!formula && entry->measured_fits && entry->verdict) {
      count_decision(result.fit, *entry->measured_fits, *entry->verdict);
    }
    const std::optional<Figure> in_memory = formula ? std::nullopt : memory_figure(*entry);
    for (const std::string& key : keys_of(*entry)) {
      const std::optional<Figure> figure = figure_of(*entry, key);
      const std::optional<double> error = figure ? error_of(*figure) : std::nullopt;
      if (!error) continue;
      if (key == "step_time_s" && !formula) {
        step_time.add(*error);
        steps.emplace_back(*figure->predicted, *figure->measured);
      } else if (in_memory && in_memory->key == key) {
        memory.add(*error);
      } else {
        other[key].add(*error);
      }
    }
  }
  result.step_time = step_time.get();
  if (result.step_time) result.step_time->spearman = rank_correlation(steps);
  result.memory = memory.get();
  result.groups = score_groups(cases, errors);
  result.band = score_bands(cases);
  for (const auto& [key, stats] : other) {
    if (const std::optional<ErrorStats> got = stats.get()) result.other.emplace_back(key, *got);
  }
  return result;
}

}  // namespace rehearse::sim
