// SPDX-License-Identifier: Apache-2.0
// Random schedules for property tests: any rows, streams, transfers, collectives and waits, legal
// because every op is appended in one global order. And random costs for them.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "schedules/ir/schedule.h"
#include "sim/cost/cost.h"

namespace rehearse::sim {

// std::mt19937_64's numbers are the same everywhere; the distributions of <random> are not.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  std::int32_t below(std::int32_t n) {
    return static_cast<std::int32_t>(engine_() % static_cast<std::uint64_t>(n));
  }
  bool one_in(std::int32_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

// Rows of ops that are being written, each with its waits.
class ScheduleWriter {
 public:
  struct Wait {
    std::size_t op = 0;  // in its row
    bool reuse = false;
  };

  explicit ScheduleWriter(std::int32_t num_rows) : rows_(static_cast<std::size_t>(num_rows)) {}

  // Returns its number in the row.
  std::size_t add(std::size_t row, Op op, std::vector<Wait> waits = {}) {
    rows_[row].push_back({op, std::move(waits)});
    return rows_[row].size() - 1;
  }
  std::size_t size(std::size_t row) const { return rows_[row].size(); }
  const Op& op(std::size_t row, std::size_t i) const { return rows_[row][i].op; }

  Schedule finish() const {
    Schedule schedule;
    schedule.level = Level::Full;
    schedule.placement = loop_placement(static_cast<std::int32_t>(rows_.size()), 1);
    for (const std::vector<Entry>& row : rows_) {
      const std::size_t first = schedule.ops.size();
      for (const Entry& entry : row) {
        schedule.ops.push_back(entry.op);
        for (const Wait& wait : entry.waits) {
          schedule.waits.push_back({static_cast<std::int32_t>(first + wait.op)});
          schedule.wait_is_reuse.push_back(wait.reuse);
        }
        schedule.wait_begin.push_back(static_cast<std::int32_t>(schedule.waits.size()));
      }
      schedule.end_row();
    }
    return schedule;
  }

 private:
  struct Entry {
    Op op{};
    std::vector<Wait> waits;
  };
  std::vector<std::vector<Entry>> rows_;
};

inline std::vector<ScheduleWriter::Wait> random_waits(Dice& dice, const ScheduleWriter& writer,
                                                      std::size_t row, Stream stream) {
  std::vector<ScheduleWriter::Wait> waits;
  for (std::int32_t k = dice.below(3); k-- > 0 && writer.size(row) > 0;) {
    const auto size = static_cast<std::int32_t>(writer.size(row));
    const auto op = static_cast<std::size_t>(size - 1 - dice.below(std::min(size, 6)));
    if (writer.op(row, op).stream == stream) continue;
    waits.push_back({op, dice.one_in(4)});
  }
  return waits;
}

inline Schedule random_schedule(std::uint64_t seed, std::int32_t num_rows, std::int32_t num_steps) {
  Dice dice(seed);
  ScheduleWriter writer(num_rows);
  std::int32_t matches = 0;
  const auto put = [&](std::size_t row, Op op) {
    writer.add(row, op, random_waits(dice, writer, row, op.stream));
  };
  for (std::int32_t step = 0; step < num_steps; ++step) {
    const auto row = static_cast<std::size_t>(dice.below(num_rows));
    const std::int32_t what = dice.below(10);
    if (what < 5 || (num_rows == 1 && what < 7)) {
      constexpr std::array kKinds{OpKind::Forward, OpKind::Backward, OpKind::WeightGradient,
                                  OpKind::Recompute, OpKind::OptimizerStep};
      put(row, {.kind = kKinds[static_cast<std::size_t>(what % 5)],
                .stage = {static_cast<std::int32_t>(row)},
                .microbatch = {step}});
    } else if (what < 8) {
      const auto other = static_cast<std::size_t>(
          (static_cast<std::int32_t>(row) + 1 + dice.below(std::max(1, num_rows - 1))) % num_rows);
      if (other == row) continue;
      Op send{.kind = OpKind::Send,
              .stream = Stream::P2p,
              .payload = Payload::Activation,
              .stage = {static_cast<std::int32_t>(row)},
              .microbatch = {step},
              .peer = {static_cast<std::int32_t>(other)},
              .match = {matches}};
      Op recv = send;
      recv.kind = OpKind::Recv;
      recv.peer = {static_cast<std::int32_t>(row)};
      put(row, send);
      put(other, recv);
      ++matches;
    } else if (what == 8) {
      const Stream stream = dice.one_in(3) ? Stream::Compute : Stream::Dp;
      for (std::size_t r = 0; r < static_cast<std::size_t>(num_rows); ++r) {
        if (r != row && dice.one_in(2)) continue;
        put(r, {.kind = OpKind::AllReduce, .stream = stream, .group = {0}, .match = {matches}});
      }
      ++matches;
    } else {
      const bool to_host = dice.one_in(2);
      put(row, {.kind = to_host ? OpKind::Offload : OpKind::Fetch,
                .stream = to_host ? Stream::D2h : Stream::H2d});
    }
  }
  return writer.finish();
}

struct CostTraits {
  bool host = false, demands = false, slowdown = false, communicating = false;
};

// 12 costs; computing and communicating ops draw from different ones.
inline CostTable random_costs(std::uint64_t seed, const Schedule& schedule, CostTraits with) {
  Dice dice(seed);
  CostTable table;
  table.num_resources = 4;
  for (std::int32_t c = 0; c < 12; ++c) {
    const bool computes = c < 6;
    Cost cost{.time = {dice.one_in(8) ? 0 : 1 + dice.below(1000)}};
    if (with.host) cost.host = {dice.below(60)};
    if (with.communicating && computes && dice.one_in(2)) {
      cost.communicating = {cost.time.value / (2 + dice.below(4))};
    }
    if (with.slowdown && !computes) cost.slowdown = 0.05 * dice.below(7);
    cost.demand_begin = static_cast<std::int32_t>(table.demands.size());
    if (with.demands && (!computes || dice.one_in(3))) {
      for (std::int32_t k = 0; k < table.num_resources; ++k) {
        if (dice.one_in(2)) table.demands.push_back({{k}, 0.1 * (1 + dice.below(10))});
      }
    }
    cost.demand_end = static_cast<std::int32_t>(table.demands.size());
    table.costs.push_back(cost);
  }
  for (const Op& op : schedule.ops) {
    const OpClass op_class = traits(op.kind).op_class;
    const bool computes = op_class == OpClass::Compute || op_class == OpClass::Local;
    table.of_op.push_back((computes ? 0 : 6) + dice.below(6));
  }
  return table;
}

}  // namespace rehearse::sim
