// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/corrected/remapping.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

#include "sim/cost/to_nanoseconds.h"

namespace rehearse::sim {
namespace {

double nanoseconds(std::int64_t bytes, std::int32_t us_per_gb) {
  return static_cast<double>(bytes) * us_per_gb * 1e-6;
}

// The ops of a row may be cut in L1: the first part has what the whole did.
bool same_work(const Op& lowered, const Op& op) {
  return lowered.kind == op.kind && lowered.stage == op.stage &&
         lowered.microbatch == op.microbatch && lowered.slice == op.slice;
}

// Costs that are `extra` longer than those of the table; equal ones once.
class LongerCosts {
 public:
  explicit LongerCosts(Pricing& pricing) : pricing_(pricing) {}

  std::int32_t longer(std::int32_t than, Nanoseconds extra) {
    const auto [at, fresh] = known_.try_emplace({than, extra.value});
    if (fresh) at->second = add(static_cast<std::size_t>(than), extra);
    return at->second;
  }

 private:
  std::int32_t add(std::size_t than, Nanoseconds extra) {
    CostTable& table = pricing_.table;
    Cost cost = table.costs[than];
    const auto begin = static_cast<std::size_t>(cost.demand_begin);
    const auto end = static_cast<std::size_t>(cost.demand_end);
    const auto before = static_cast<double>(cost.time.value);
    add_time(cost.time, extra);
    cost.demand_begin = static_cast<std::int32_t>(table.demands.size());
    for (std::size_t d = begin; d < end; ++d) {  // as many bytes over a longer time
      Demand demand = table.demands[d];
      demand.share *= before / static_cast<double>(cost.time.value);
      table.demands.push_back(demand);
    }
    cost.demand_end = static_cast<std::int32_t>(table.demands.size());
    table.costs.push_back(cost);
    pricing_.rests_on.push_back(RestsOn(pricing_.rests_on[than]));
    pricing_.traffic.push_back(std::vector(pricing_.traffic[than]));
    pricing_.host_bound.push_back(bool{pricing_.host_bound[than]});
    return static_cast<std::int32_t>(table.costs.size()) - 1;
  }

  Pricing& pricing_;
  std::map<std::pair<std::int32_t, std::int64_t>, std::int32_t> known_;
};

}  // namespace

bool remaps(const MemoryReport& memory) {
  return std::ranges::any_of(memory.ranks,
                             [](const RankMemory& rank) { return !rank.remapped.empty(); });
}

double remap_seconds(const MemoryReport& memory, std::int32_t us_per_gb) {
  double most = 0;
  for (const RankMemory& rank : memory.ranks) {
    most = std::max(most, nanoseconds(rank.remapped_bytes(), us_per_gb) * 1e-9);
  }
  return most;
}

void price_remapping(const MemoryReport& memory, std::int32_t us_per_gb, const Schedule& order,
                     const Schedule& schedule, Pricing& pricing) {
  if (us_per_gb == 0 || !remaps(memory)) return;
  LongerCosts costs(pricing);
  const std::size_t rows = schedule.rows.size();
  for (std::size_t row = 0; row < rows; ++row) {  // replicas that differ have rows of their own
    const RankMemory& rank = memory.ranks[row * memory.ranks.size() / rows];
    const auto begin = schedule.ops.begin() + schedule.row_begin[row];
    const auto end = schedule.ops.begin() + schedule.row_begin[row + 1];
    for (const Mapping& mapping : rank.remapped) {
      const auto found = std::find_if(begin, end, [&](const Op& op) {
        return mapping.op ? same_work(op, order.ops[mapping.op.index()])
                          : op.kind == OpKind::OptimizerStep;
      });
      assert(found != end);
      const auto op = static_cast<std::size_t>(found - schedule.ops.begin());
      std::int32_t& cost = pricing.table.of_op[op];
      cost = costs.longer(cost, to_nanoseconds(nanoseconds(mapping.bytes, us_per_gb)));
    }
  }
}

}  // namespace rehearse::sim
