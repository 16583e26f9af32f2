// SPDX-License-Identifier: Apache-2.0
// How long a pipeline order takes, in units of its own work: the closed form that every schedule
// has without anybody writing it down.
//
// Each order is generated and timed once for its shape at two numbers of micro-batches, with and
// without a transfer time; beyond them it is periodic, so the rest is a straight line. Stages are
// taken as equal here; the caller knows which position is the slowest. An estimate for ranking.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/plan.h"
#include "schedules/timing/compute_timing.h"

namespace rehearse::sim {

// What a position spends on one micro-batch, any unit. `pair`: a forward with another's backward
// at once (orders with OVERLAP ops), of forward + input + weight.
struct PipelineWork {
  double forward = 1, input = 1, weight = 1;
  double pair_saving = 0;  // share of F + B that a pair saves, [0, 1)
};

// Makespan of m micro-batches = (turns * busiest + fill * mean) + hops * transfer, where busiest
// and mean are F + I + W of positions.
struct PipelineTime {
  double turns = 1, fill = 0, hops = 0;
};

class PipelineTimes {
 public:
  // REQUIRES: a plan of named schedule whose micro-batch has been chosen. Thread safe.
  PipelineTime of(const Plan& plan, const PipelineWork& work);

 private:
  // Schedule row, positions, v, group, extra, slices, m1, the work rounded, far
  using Key = std::array<std::int32_t, 11>;
  struct Line {  // makespan at m1 and per further micro-batch, in units of F + I + W
    std::int32_t m1 = 1;
    double at = 1, slope = 1, hops_at = 0, hops_slope = 0;
  };
  // The order of a key's shape at m micro-batches; null where the shape is not legal.
  using Order = std::shared_ptr<const Schedule>;
  Order order_of(const Plan& plan, const Key& key, std::int32_t m, const PositionTimes& times);
  Line measure(const Plan& plan, const Key& key);

  std::mutex mutex_;
  std::map<Key, Line> lines_;
  // Orders that are the same for any times: by a key's shape, and m.
  std::map<std::array<std::int32_t, 7>, Order> orders_;
  std::size_t ops_ = 0;  // in orders_
};

}  // namespace rehearse::sim
