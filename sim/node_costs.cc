#include "sim/node_costs.h"

#include <algorithm>
#include <cmath>

#include "sim/sweep.h"

namespace rehearse::sim {
namespace {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): a number
// that depends on its arguments alone.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Mean 0, variance 1: 12 uniforms less 6. Sums of integers, so the same on every machine.
double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t number) {
  std::uint64_t state = mix(mix(seed) ^ mix(stream * 0x100000001u) ^ number);
  std::int64_t sum = 0;
  for (int i = 0; i < 6; ++i) {
    state = mix(state);
    sum += static_cast<std::int64_t>(state >> 32) + static_cast<std::int64_t>(state & 0xffffffffu);
  }
  constexpr double kUnit = 4294967296.0;
  return static_cast<double>(sum - 6 * (std::int64_t{1} << 32) + 6) / kUnit;
}

double factor(double sigma, std::uint64_t seed, std::uint64_t stream, std::uint64_t number) {
  if (sigma <= 0) return 1;
  return std::clamp(1 + sigma * normal(seed, stream, number), 0.5, 2.0);
}

void add_jitter(const Program& program, const CostTable& costs, const EngineOptions& options,
                NodeCosts& result) {
  if (options.row_factor.empty() && options.row_sigma <= 0 && options.op_sigma <= 0) return;
  result.late.resize(result.time.size());
  for (std::int32_t r = 0; r < program.num_rows; ++r) {
    const auto row = static_cast<std::size_t>(r);
    const double own = row < options.row_factor.size() ? options.row_factor[row] : 1;
    const double of_row =
        own * factor(options.row_sigma, options.seed, 1, static_cast<std::uint64_t>(r));
    for (std::int32_t i = program.row_begin[row]; i < program.row_begin[row + 1]; ++i) {
      if (!program.computes({i})) continue;
      // Numbered in its row: an op keeps its luck when other rows change.
      const auto number = static_cast<std::uint64_t>(r) << 32 |
                          static_cast<std::uint64_t>(i - program.row_begin[row]);
      const double of_op = of_row * factor(options.op_sigma, options.seed, 2, number);
      const std::int64_t alone = costs.cost({i}).time.value;
      const auto time = static_cast<std::int64_t>(std::llround(static_cast<double>(alone) * of_op));
      const std::size_t n = program.node_of[static_cast<std::size_t>(i)].index();
      result.time[n].value = time;
      result.late[n].value = std::max<std::int64_t>(0, time - alone);
    }
  }
}

// Lists of a node's demands. Most nodes have one cost with demands and share its list; the lists of
// others are merged, and kept by their first two costs for the next node like them.
class Merger {
 public:
  Merger(const Program& program, const CostTable& costs, NodeCosts& result)
      : program_(program), costs_(costs), result_(result), pairs_(costs.costs.size()) {}

  void run() {
    result_.demands = costs_.demands;
    result_.demand_begin.resize(static_cast<std::size_t>(program_.num_nodes));
    result_.demand_end.resize(static_cast<std::size_t>(program_.num_nodes));
    for (std::int32_t n = 0; n < program_.num_nodes; ++n) {
      const Range range = merge({n});
      result_.demand_begin[static_cast<std::size_t>(n)] = range.begin;
      result_.demand_end[static_cast<std::size_t>(n)] = range.end;
    }
  }

 private:
  struct Range {
    std::int32_t begin = 0, end = 0;
  };
  struct Pair {
    std::int32_t second = -1;
    Range range;
  };

  Range merge(NodeId node) {
    distinct_.clear();
    for (const OpId op : program_.members_of(node)) {
      const std::int32_t cost = costs_.of_op[op.index()];
      const Cost& c = costs_.costs[static_cast<std::size_t>(cost)];
      if (c.demand_begin == c.demand_end) continue;
      if (std::ranges::find(distinct_, cost) == distinct_.end()) distinct_.push_back(cost);
    }
    if (distinct_.empty()) return {};
    const Cost& first = costs_.costs[static_cast<std::size_t>(distinct_.front())];
    if (distinct_.size() == 1) return {first.demand_begin, first.demand_end};
    Pair& known = pairs_[static_cast<std::size_t>(distinct_.front())];
    if (distinct_.size() == 2 && known.second == distinct_.back()) return known.range;
    Range merged{.begin = static_cast<std::int32_t>(result_.demands.size())};
    for (const std::int32_t cost : distinct_) {
      for (const Demand& demand : costs_.demands_of(costs_.costs[static_cast<std::size_t>(cost)])) {
        const auto mine = result_.demands.begin() + merged.begin;
        const auto same = std::find_if(mine, result_.demands.end(), [&](const Demand& d) {
          return d.resource == demand.resource;
        });
        if (same == result_.demands.end()) {
          result_.demands.push_back(demand);
        } else {
          same->share = std::max(same->share, demand.share);
        }
      }
    }
    merged.end = static_cast<std::int32_t>(result_.demands.size());
    if (distinct_.size() == 2) known = {distinct_.back(), merged};
    return merged;
  }

  const Program& program_;
  const CostTable& costs_;
  NodeCosts& result_;
  std::vector<Pair> pairs_;  // per first cost
  std::vector<std::int32_t> distinct_;
};

}  // namespace

NodeCosts node_costs(const Program& program, const CostTable& costs, const EngineOptions& options) {
  NodeTimes times = bind(program, costs);
  NodeCosts result;
  result.time = std::move(times.time);
  result.issued = std::move(times.issued);
  add_jitter(program, costs, options, result);
  if (options.share && !costs.demands.empty()) Merger(program, costs, result).run();
  return result;
}

}  // namespace rehearse::sim
