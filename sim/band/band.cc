// SPDX-License-Identifier: Apache-2.0
#include "sim/band/band.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/band/source_weights.h"

namespace rehearse::sim {
namespace {

// C libraries differ in the last bit of exp and pow; a band is the same bytes with each.
double billionths(double value) {
  return std::round(value * 1e9) / 1e9;
}

constexpr double kLeastShare = 0.05;  // of a source that is named

// Kinds of steps that make a prediction wrong in their own way: until a validated step has one,
// nobody measured it.
struct Condition {
  StepKind kind;
  std::string_view words;
  bool same_architecture = false, same_runtime = false;  // as the step must have, to be seen
  bool slow_alone = false;                               // it can only make a step slower
};
constexpr Condition kConditions[]{
    {.kind = StepKind::HostBound, .words = "steps that the host bounds"},
    {.kind = StepKind::LearnedRouting, .words = "routing that is learned", .slow_alone = true},
    {.kind = StepKind::AssumedNetwork, .words = "networks that nobody printed", .slow_alone = true},
    {.kind = StepKind::BlockedHost, .words = "hosts that wait at transfers"},
    {.kind = StepKind::Experts, .words = "experts", .same_architecture = true},
    {.kind = StepKind::WideShards, .words = "ZeRO over more than 128 ranks", .same_runtime = true},
};

// What a source's rows weigh, and which of them is the most alike.
struct Source : SourceWeight {
  std::int32_t cases = 0;
  const MeasuredError* nearest = nullptr;
};

class BandMaker {
 public:
  BandMaker(const BandQuery& query, const ErrorTable& table) : query_(query), table_(table) {
    for (std::size_t n = 0; n < powers_.size(); ++n)
      powers_[n] = std::pow(table.rule.difference, static_cast<double>(n));
  }

  Band make() {
    // Any framework may be as wrong as whichever of the known ones: no band is wider than its.
    Sides sides = sides_as(query_.features);
    name_nearest();
    if (query_.features.runtime.empty()) {
      for (const std::string& runtime : runtimes()) {
        StepFeatures known = query_.features;
        known.runtime = runtime;
        const Sides other = sides_as(known);
        sides = {std::min(sides.lower, other.lower), std::max(sides.upper, other.upper)};
      }
    }
    const Squares widened = widening();
    band_.low = billionths(std::exp(-std::sqrt(sides.lower * sides.lower + widened.faster)));
    band_.high = billionths(std::exp(std::sqrt(sides.upper * sides.upper + widened.slower)));
    return std::move(band_);
  }

 private:
  struct Sides {
    double lower = 0, upper = 0;  // of log errors, <= 0 <= upper
  };
  // Where nine in ten of the errors lie, of steps as like to these features as they are.
  Sides sides_as(const StepFeatures& features) {
    weigh(features);
    std::vector<Weighted> errors;
    errors.reserve(table_.rows.size());
    for (std::size_t r = 0; r < table_.rows.size(); ++r) {
      const Source& of = sources_[source(r)];
      if (weights_[r] <= 0) continue;
      errors.push_back(
          {table_.rows[r].log_error, of.weight(table_.rule.few) * weights_[r] / of.sum});
    }
    sort_by_value(errors);
    return {std::min(weighted_quantile(errors, table_.rule.lower), 0.0),
            std::max(weighted_quantile(errors, table_.rule.upper), 0.0)};
  }

  std::vector<std::string> runtimes() const {
    std::vector<std::string> names;
    for (const MeasuredError& row : table_.rows) {
      const std::string& name = row.features.runtime;
      if (!left_out(row) && !name.empty() && std::ranges::find(names, name) == names.end()) {
        names.push_back(name);
      }
    }
    return names;
  }

  std::size_t source(std::size_t row) const {
    return static_cast<std::size_t>(table_.rows[row].source);
  }
  bool left_out(const MeasuredError& row) const {
    return table_.sources[static_cast<std::size_t>(row.source)] == query_.without_source;
  }

  double alike(const StepFeatures& f, const StepFeatures& other) const {
    const BandRule& rule = table_.rule;
    return powers_[static_cast<std::size_t>(num_differences(f, other))] *
           std::exp(-std::abs(f.network_share - other.network_share) / rule.network_scale -
                    std::abs(f.memory_fill - other.memory_fill) / rule.memory_scale);
  }

  void weigh(const StepFeatures& features) {
    weights_.assign(table_.rows.size(), 0);
    sources_.assign(table_.sources.size(), {});
    for (std::size_t r = 0; r < table_.rows.size(); ++r) {
      const MeasuredError& row = table_.rows[r];
      if (left_out(row)) continue;
      const double weight = weights_[r] = alike(features, row.features);
      Source& of = sources_[source(r)];
      ++of.cases;
      if (weight > of.largest) of.nearest = &row;
      of.add(weight);
    }
  }

  void name_nearest() {
    double all = 0;
    for (const Source& of : sources_) all += of.weight(table_.rule.few);
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      const double share = all > 0 ? sources_[s].weight(table_.rule.few) / all : 0;
      if (share < kLeastShare) continue;
      NearCases near{
          .source = table_.sources[s], .cases = sources_[s].cases, .share = billionths(share)};
      for (const std::string_view what :
           differences(query_.features, sources_[s].nearest->features)) {
        near.differs.emplace_back(what);
      }
      band_.nearest.push_back(std::move(near));
    }
    std::ranges::stable_sort(band_.nearest, std::ranges::greater{}, &NearCases::share);
  }

  template <class Like>
  bool any(const Like& like) const {
    return std::ranges::any_of(table_.rows, [&](const MeasuredError& row) {
      return !left_out(row) && like(row.features);
    });
  }

  // More than a few steps of other sources are under it: `few` give a source half of its weight.
  bool is_seen(const Condition& condition) const {
    const StepFeatures& f = query_.features;
    const auto seen = std::ranges::count_if(table_.rows, [&](const MeasuredError& row) {
      const StepFeatures& o = row.features;
      return !left_out(row) && o.has(condition.kind) &&
             (!condition.same_architecture || o.architecture() == f.architecture()) &&
             (!condition.same_runtime || o.runtime == f.runtime);
    });
    return static_cast<double>(seen) > table_.rule.few;
  }

  // In quadrature: what no validated step shows, and what was left to defaults.
  struct Squares {
    double faster = 0, slower = 0;  // of ln
    void add(double widens) {
      faster += widens * widens;
      slower += widens * widens;
    }
  };
  Squares widening() {
    const StepFeatures& f = query_.features;
    Squares squares;
    squares.add(table_.unseen * query_.assumed_share);
    const auto unseen = [&](const std::string& what, double share) {
      band_.unseen.push_back(what);
      squares.add(table_.unseen * share);
    };
    const auto hardware = [&](const StepFeatures& o) {
      return o.gpu == f.gpu && o.precision == f.precision;
    };
    const auto software = [&](const StepFeatures& o) {
      return !f.runtime.empty() && o.runtime == f.runtime;
    };
    const bool new_hardware = !any(hardware), new_software = !any(software);
    if (new_hardware) unseen(f.gpu + " in " + f.precision, 1);
    if (new_software) unseen(f.runtime.empty() ? "this framework" : "runtime " + f.runtime, 1);
    if (!new_hardware && !new_software &&
        !any([&](const StepFeatures& o) { return hardware(o) && software(o); })) {
      unseen("runtime " + f.runtime + " on " + f.gpu + " in " + f.precision, 1);
    }
    if (!f.nic.empty() && !any([&](const StepFeatures& o) { return o.nic == f.nic; })) {
      unseen("NICs of the kind " + f.nic, f.network_share);
    }
    if (!any([&](const StepFeatures& o) { return o.gpus >= f.gpus; })) {
      unseen("so many GPUs", f.network_share);
    }
    for (const Condition& condition : kConditions) {
      if (!f.has(condition.kind) || is_seen(condition)) continue;
      std::string what(condition.words);
      if (condition.same_architecture) what += " on " + std::string(f.architecture());
      if (condition.same_runtime) {
        what += f.runtime.empty() ? " with this framework" : " with runtime " + f.runtime;
      }
      band_.unseen.push_back(what);
      const double square = table_.unseen * table_.unseen;
      squares.slower += square;
      if (!condition.slow_alone) squares.faster += square;
    }
    for (const LeftOut& key : table_.left_out) {
      if (std::ranges::find_first_of(key.keys, query_.given) != key.keys.end()) continue;
      band_.defaulted.push_back(key.keys.front());
      squares.add(key.move);
    }
    return squares;
  }

  const BandQuery& query_;
  const ErrorTable& table_;
  // Powers of rule.difference: what n differences multiply a weight by.
  std::array<double, 4 + kStepKindNames.size() + 1> powers_;
  std::vector<double> weights_;  // per row
  std::vector<Source> sources_;
  Band band_;
};

}  // namespace

Band band_of(const BandQuery& query, const ErrorTable& table) {
  return BandMaker(query, table).make();
}

Band even_band(double error) {
  return {.low = 1 / (1 + error), .high = 1 + error};
}

}  // namespace rehearse::sim
