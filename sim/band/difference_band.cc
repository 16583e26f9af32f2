// SPDX-License-Identifier: Apache-2.0
#include "sim/band/difference_band.h"

#include <bit>
#include <cmath>

#include "sim/band/source_weights.h"

namespace rehearse::sim {
namespace {

constexpr double kCovered = 0.9;

// In what two plans differ.
struct Gap {
  std::uint32_t kinds = 0;
  double network = 0, memory = 0;
};
Gap gap_of(const StepFeatures& a, const StepFeatures& b) {
  return {a.kinds ^ b.kinds, std::abs(a.network_share - b.network_share),
          std::abs(a.memory_fill - b.memory_fill)};
}

double alike(const Gap& a, const Gap& b, const BandRule& rule) {
  return std::pow(rule.difference, std::popcount(a.kinds ^ b.kinds)) *
         std::exp(-std::abs(a.network - b.network) / rule.network_scale -
                  std::abs(a.memory - b.memory) / rule.memory_scale);
}

}  // namespace

double difference_band(const StepFeatures& a, const StepFeatures& b, const ErrorTable& table,
                       const std::string& without_source) {
  const Gap gap = gap_of(a, b);
  std::vector<SourceWeight> sources(table.sources.size());
  struct Pair {
    std::size_t source = 0;
    Weighted error;
  };
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const MeasuredError& one = table.rows[i];
    const auto source = static_cast<std::size_t>(one.source);
    if (one.group == 0 || table.sources[source] == without_source) continue;
    // Rows of one source stand together.
    for (std::size_t j = i + 1; j < table.rows.size() && table.rows[j].source == one.source; ++j) {
      const MeasuredError& other = table.rows[j];
      if (other.group != one.group || other.plan == one.plan) continue;
      const double weight = alike(gap, gap_of(one.features, other.features), table.rule);
      sources[source].add(weight);
      pairs.push_back({source, {std::abs(one.log_error - other.log_error), weight}});
    }
  }
  std::vector<Weighted> errors;
  errors.reserve(pairs.size());
  for (const Pair& pair : pairs) {
    const SourceWeight& of = sources[pair.source];
    errors.push_back({pair.error.value, of.weight(table.rule.few) * pair.error.weight / of.sum});
  }
  sort_by_value(errors);
  return weighted_quantile(errors, kCovered);
}

}  // namespace rehearse::sim
