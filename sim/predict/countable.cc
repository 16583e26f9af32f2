// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/countable.h"

#include <algorithm>
#include <cmath>

#include "schedules/ir/listing.h"
#include "sim/cost/to_nanoseconds.h"

namespace rehearse::sim {

Result<> countable(const Prediction& p) {
  constexpr double kLongest = 0x1p59;  // of all ops of all rows together, 18 years
  std::vector<double> ns(p.pricing.table.costs.size());
  for (std::size_t cost = 0; cost < ns.size(); ++cost) {
    const Cost& of = p.pricing.table.costs[cost];
    const bool forever = std::max({of.time, of.host, of.communicating}) >= kForever;
    ns[cost] = forever ? INFINITY : static_cast<double>((of.time + of.host).value);
    for (const Traffic& sent : p.pricing.traffic[cost]) {
      ns[cost] += static_cast<double>(sent.time.value);
    }
  }
  double sum = 0;
  for (RankClass row{0}; row.value < p.schedule.num_rows(); ++row.value) {
    for (std::int32_t op = p.schedule.row_begin[row.index()];
         op < p.schedule.row_begin[row.index() + 1]; ++op) {
      const double of =
          ns[static_cast<std::size_t>(p.pricing.table.of_op[static_cast<std::size_t>(op)])];
      sum += of * static_cast<double>(p.left_out.times_of(row, {op}));
      if (sum <= kLongest) continue;
      return Error{"the step would take years: " + op_label(p.schedule, {op}) + " alone " +
                   (of < kLongest ? std::to_string(std::llround(of * 1e-9)) + " s"
                                  : std::string("more than 13 days")) +
                   "; are the cluster's rates right?"};
    }
  }
  return {};
}

Result<> countable(const Timeline& timeline, std::int32_t gpus) {
  if (static_cast<double>(timeline.step().value) * gpus < 0x1p62) return {};
  return Error{"the step would take " + std::to_string(timeline.step().value / 1'000'000'000) +
               " s on " + std::to_string(gpus) + " GPUs: are the cluster's rates right?"};
}

}  // namespace rehearse::sim
