// SPDX-License-Identifier: Apache-2.0
// What a rank counts of its experts' rows, the room that it has for them, and what a run says where
// they are too many. Where a device is asynchronous the counts stay there until the step has ended.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include "exec/body/experts.h"

namespace rehearse::exec {
namespace {

double* most(const OpView& op, std::size_t limit) {
  return op.facts.expert_counts.most + static_cast<std::int64_t>(limit) * op.shared.model.layers +
         op.layer();
}

}  // namespace

// The second number is of slots, or, where copies are sent by their counts, of those that come to
// one of the ranks that share an expert's matrices.
ExpertLimits limits_of(const Layout& layout, const ExpertRoom& room) {
  const ExpertShape& x = layout.shape.experts;
  ExpertLimits limits;
  limits[0] = {.rows = room.rows,
               .mean = static_cast<double>(x.rows),
               .what = " rows for the experts of one rank, room for "};
  if (x.sends_once) {
    limits[1] = {.rows = room.slot, .mean = x.visits, .what = " tokens for one rank, slots of "};
  } else if (room.slot > 0) {
    limits[1] = {.rows = room.slot,
                 .mean = static_cast<double>(x.copies) / layout.plan.expert_parallel,
                 .what = " rows for the experts of one rank, slots of "};
  } else {
    limits[1] = {.rows = room.arrived,
                 .mean = static_cast<double>(x.copies),
                 .what = " rows that come to one rank, room for "};
  }
  return limits;
}

std::string too_many_rows(std::span<const RankCounts> ranks, std::int64_t layers,
                          const ExpertLimits& limits) {
  double factor = 0, worst = 0;
  std::string line;
  for (const auto& [rank, counts] : ranks) {
    for (std::size_t k = 0; k < limits.size(); ++k) {
      for (std::int64_t l = 0; l < layers; ++l) {
        const double came = counts.most[static_cast<std::int64_t>(k) * layers + l];
        const double ratio = came / limits[k].mean;
        factor = std::max(factor, ratio);
        if (came <= static_cast<double>(limits[k].rows) || ratio <= worst) continue;
        worst = ratio;
        line = "rank " + std::to_string(rank) + ", layer " + std::to_string(l) + ": " +
               std::to_string(static_cast<std::int64_t>(came)) + std::string(limits[k].what) +
               std::to_string(limits[k].rows);
      }
    }
  }
  if (line.empty()) return "";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", std::ceil(100 * factor) / 100);
  return line + ": plan.expert_capacity " + text.data() + " would hold them";
}

std::string lost_scores(std::span<const RankCounts> ranks, std::int64_t layers) {
  for (std::int64_t l = 0; l < layers; ++l) {
    for (const auto& [rank, counts] : ranks) {
      if (counts.lost[l] == 0) continue;
      return "rank " + std::to_string(rank) + ", layer " + std::to_string(l) +
             ": the router's scores are not numbers";
    }
  }
  return "";
}

// Ranks that share an expert's matrices have equal rows: the first counts them.
void count_rows(const OpView& op, const std::int32_t* begin) {
  double* rows = op.facts.expert_counts.rows;
  if (rows == nullptr || op.folded.tensor != 0) return;
  const std::int64_t here = op.shared.shape.experts.per_rank;
  const std::int64_t first = op.layer() * op.shared.model.experts.count + op.folded.expert * here;
  op.kernels.count_rows(op.lane, {.experts = here, .together = here}, begin, rows + first, nullptr);
}

void count_most_rows(const OpView& op, std::int64_t copies, const std::int32_t* chosen) {
  if (op.facts.expert_counts.most == nullptr) return;
  const CountShape shape{.experts = op.shared.model.experts.count,
                         .together = op.shared.shape.experts.per_rank};
  op.kernels.count_choices(op.lane, shape, copies, chosen, most(op, 0));
}

void count_most_here(const OpView& op, const std::int32_t* begin) {
  if (op.facts.expert_counts.most == nullptr) return;
  const std::int64_t here = op.shared.shape.experts.per_rank;
  op.kernels.count_rows(op.lane, {.experts = here, .together = here}, begin, nullptr, most(op, 0));
}

void count_most_of_slots(const OpView& op, const CountShape& shape, const std::int32_t* begins) {
  if (op.facts.expert_counts.most == nullptr) return;
  op.kernels.count_rows(op.lane, shape, begins, nullptr, most(op, 1));
}

void count_most_sent(const OpView& op, const ArrivedShape& shape, const std::int32_t* begins) {
  if (op.facts.expert_counts.most == nullptr) return;
  // What the sources from `member` on, every `stride`-th, send to the experts of one rank, at most.
  const auto most_from = [&](std::int64_t member, std::int64_t stride) {
    std::int64_t largest = 0;
    for (std::int64_t first = 0; first < shape.experts; first += shape.per_source) {
      std::int64_t rows = 0;
      for (std::int64_t source = member; source < shape.sources; source += stride) {
        const std::int32_t* begin = begins + source * (shape.experts + 1) + first;
        rows += begin[shape.per_source] - begin[0];
      }
      largest = std::max(largest, rows);
    }
    return static_cast<double>(largest);
  };
  *most(op, 0) = std::max(*most(op, 0), most_from(0, 1));
  // Each of the ranks that share an expert's matrices can overflow on its own.
  for (std::int64_t member = 0; member < shape.members; ++member) {
    *most(op, 1) = std::max(*most(op, 1), most_from(member, shape.members));
  }
}

void check_room(const OpView& op) {
  const ExpertCounts& counts = op.facts.expert_counts;
  if (counts.most == nullptr || op.device.asynchronous() || !op.carry.failure.empty()) return;
  const RankCounts here{.rank = op.lane.rank, .counts = counts};
  op.carry.failure = too_many_rows({&here, 1}, op.shared.model.layers, op.shared.limits);
}

}  // namespace rehearse::exec
