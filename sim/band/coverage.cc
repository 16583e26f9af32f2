// SPDX-License-Identifier: Apache-2.0
#include "sim/band/coverage.h"

#include <algorithm>
#include <cmath>

#include "sim/band/band.h"

namespace rehearse::sim {
namespace {

constexpr double kAlpha = 0.1;  // of a band of nine in ten

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

void forget(StepFeatures& f, const std::string& feature) {
  if (feature == "gpu") f.gpu.clear();
  if (feature == "precision") f.precision.clear();
  if (feature == "runtime") f.runtime = "any";
  if (feature == "attention") f.attention.clear();
  if (feature == "network_share") f.network_share = 0;
  if (feature == "memory_fill") f.memory_fill = 0;
  f.kinds &= ~kinds_of(feature);
}

}  // namespace

std::vector<SourceCoverage> coverage(const ErrorTable& table) {
  std::vector<SourceCoverage> found(table.sources.size());
  std::vector<std::vector<double>> widths(table.sources.size());
  std::vector<std::string> all_given;
  for (const LeftOut& key : table.left_out) all_given.push_back(key.keys.front());
  for (const MeasuredError& row : table.rows) {
    const auto s = static_cast<std::size_t>(row.source);
    SourceCoverage& of = found[s];
    of.source = table.sources[s];
    of.profiled = !row.features.runtime.empty();
    const Band band =
        band_of({.features = row.features, .given = all_given, .without_source = of.source}, table);
    const double low = std::log(band.low), high = std::log(band.high);
    ++of.cases;
    of.below += row.log_error < low ? 1 : 0;
    of.above += row.log_error > high ? 1 : 0;
    of.score +=
        high - low +
        2 / kAlpha * (std::max(low - row.log_error, 0.0) + std::max(row.log_error - high, 0.0));
    widths[s].push_back(band.half_width());
  }
  for (std::size_t s = 0; s < found.size(); ++s) {
    found[s].half_width = median(widths[s]);
    if (found[s].cases > 0) found[s].score /= found[s].cases;
  }
  std::erase_if(found, [](const SourceCoverage& of) { return of.cases == 0; });
  return found;
}

MeanCoverage mean_coverage(const std::vector<SourceCoverage>& sources, std::int32_t fewest) {
  MeanCoverage mean;
  std::vector<double> widths;
  for (const SourceCoverage& of : sources) {
    if (of.cases < fewest) continue;
    ++mean.sources;
    mean.covered += of.covered();
    mean.least = std::min(mean.least, of.covered());
    mean.score += of.score;
    if (of.profiled) widths.push_back(of.half_width);
  }
  if (mean.sources == 0) return mean;
  mean.covered /= mean.sources;
  mean.score /= mean.sources;
  mean.half_width = median(widths);
  return mean;
}

ErrorTable without_feature(ErrorTable table, const std::string& feature) {
  for (MeasuredError& row : table.rows) forget(row.features, feature);
  return table;
}

}  // namespace rehearse::sim
