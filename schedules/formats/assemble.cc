// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/assemble.h"

#include <algorithm>
#include <string>

#include "schedules/ir/text.h"
#include "schedules/transfers/link_transfers.h"

namespace rehearse {
namespace {

// A file may miss ops, but not be nearly empty beside the table that its numbers ask for.
constexpr std::int64_t kSpareKeys = 1 << 16;

template <class Visit>
void each_work(const WrittenSchedule& written, Visit visit) {
  for (std::size_t row = 0; row < written.rows.size(); ++row) {
    for (const ParsedOp& parsed : written.rows[row]) {
      const bool pair = parsed.op.kind == OpKind::Overlap;
      visit(row, pair ? parsed.children[0] : parsed.op);
      if (pair) visit(row, parsed.children[1]);
    }
  }
}

struct Sizes {
  std::int64_t ops = 0;
  std::int32_t stages = 0, microbatches = 0, slices = 1;
};

// Largest stage + 1, unless most of the stages below it are named nowhere: then the stages up to
// the first gap, and what lies beyond is out of range.
std::int32_t count_stages(const std::vector<std::uint8_t>& named) {
  const auto present = std::ranges::count(named, 1);
  if (2 * static_cast<std::size_t>(present) > named.size()) {
    return static_cast<std::int32_t>(named.size());
  }
  const auto gap = std::ranges::find(named, 0);
  return std::max<std::int32_t>(1, static_cast<std::int32_t>(gap - named.begin()));
}

Result<Sizes> measure(const WrittenSchedule& written) {
  Sizes sizes;
  std::int32_t last_stage = -1, last_microbatch = -1;
  each_work(written, [&](std::size_t, const Op& op) {
    ++sizes.ops;
    last_stage = std::max(last_stage, op.stage.value);
    last_microbatch = std::max(last_microbatch, op.microbatch.value);
    sizes.slices = std::max(sizes.slices, op.slice + 1);
  });
  if (sizes.ops == 0) return Error{"there is no op"};
  const auto too_many = [&](const char* what, std::int64_t number) {
    return Error{std::string(what) + " " + std::to_string(number) + " in a file of " +
                 std::to_string(sizes.ops) + " ops: numbers count from 0 without gaps"};
  };
  if (last_stage > sizes.ops + kSpareKeys) return too_many("stage", last_stage);
  if (last_microbatch > sizes.ops + kSpareKeys) return too_many("micro-batch", last_microbatch);
  if (written.slices > 0) sizes.slices = written.slices;

  std::vector<std::uint8_t> named(static_cast<std::size_t>(last_stage) + 1, 0);
  std::vector<std::int32_t> last_of(named.size(), -1);  // last micro-batch per stage
  each_work(written, [&](std::size_t, const Op& op) {
    named[op.stage.index()] = 1;
    last_of[op.stage.index()] = std::max(last_of[op.stage.index()], op.microbatch.value);
  });
  sizes.stages = written.placement ? written.placement->stages() : count_stages(named);
  sizes.microbatches = written.microbatches;
  if (sizes.microbatches == 0) {
    std::erase(last_of, -1);
    std::ranges::sort(last_of);
    sizes.microbatches = last_of.empty() ? 1 : last_of[(last_of.size() - 1) / 2] + 1;
  }
  std::string problem = too_few_ops(sizes.ops, sizes.stages, sizes.microbatches, sizes.slices);
  if (!problem.empty()) return Error{std::move(problem)};
  return sizes;
}

// How many ops of each stage every rank runs, for micro-batches below and from `first_up` on.
class Census {
 public:
  Census(const WrittenSchedule& written, const Sizes& sizes)
      : stages_(static_cast<std::size_t>(sizes.stages)) {
    each_work(written, [&](std::size_t row, const Op& op) {
      if (!is_compute(op.kind) || op.stage.index() >= stages_) return;
      runs_.push_back({op.stage, static_cast<std::int32_t>(row), op.microbatch});
    });
    std::ranges::stable_sort(runs_, {}, [](const Run& run) {
      return static_cast<std::int64_t>(run.stage.value) << 32 | run.rank;
    });
  }

  // The rank that runs most of each stage (the lowest of equals); exact: nobody else runs any.
  std::vector<Position> majority(Microbatch from, Microbatch to, bool& exact) const {
    std::vector<Position> map(stages_, Position{0});
    std::vector<std::int32_t> most(stages_, 0);
    for (auto run = runs_.begin(); run != runs_.end();) {
      std::int32_t count = 0;
      const Run& first = *run;
      for (; run != runs_.end() && run->stage == first.stage && run->rank == first.rank; ++run) {
        count += run->microbatch >= from && run->microbatch < to ? 1 : 0;
      }
      std::int32_t& best = most[first.stage.index()];
      exact &= best == 0 || count == 0;
      if (count <= best) continue;
      best = count;
      map[first.stage.index()] = {first.rank};
    }
    return map;
  }
  // First micro-batch that runs stage 0 elsewhere than micro-batch 0.
  std::int32_t first_elsewhere() const {
    std::int32_t home = -1, first = -1, lowest = INT32_MAX;
    for (const Run& run : runs_) {
      if (run.stage.value == 0 && run.microbatch.value < lowest) {
        lowest = run.microbatch.value;
        home = run.rank;
      }
    }
    for (const Run& run : runs_) {
      if (run.stage.value != 0 || run.rank == home) continue;
      if (first < 0 || run.microbatch.value < first) first = run.microbatch.value;
    }
    return first;
  }

 private:
  struct Run {
    Stage stage{};
    std::int32_t rank = 0;
    Microbatch microbatch{};
  };
  std::size_t stages_;
  std::vector<Run> runs_;  // by stage, then rank
};

Placement infer_placement(const WrittenSchedule& written, const Sizes& sizes) {
  const Census census(written, sizes);
  const Microbatch all{INT32_MAX};
  Placement placement{.positions = static_cast<std::int32_t>(written.rows.size())};
  bool exact = true;
  placement.down = census.majority({0}, all, exact);
  const std::int32_t first_up = exact ? -1 : census.first_elsewhere();
  if (first_up <= 0) return placement;
  bool two_ways = true;
  const std::vector<Position> down = census.majority({0}, {first_up}, two_ways);
  const std::vector<Position> up = census.majority({first_up}, all, two_ways);
  if (!two_ways) return placement;
  placement.down = down;
  placement.up = up;
  placement.first_up = first_up;
  return placement;
}

}  // namespace

std::string too_few_ops(std::int64_t ops, std::int64_t stages, std::int64_t microbatches,
                        std::int64_t slices) {
  const std::int64_t keys = stages * microbatches * slices;
  if (keys <= 4 * ops + kSpareKeys) return "";
  return std::to_string(stages) + " stages and " + std::to_string(microbatches) +
         " micro-batches need at least " + std::to_string(keys) + " ops: the file has " +
         std::to_string(ops);
}

Result<Schedule> assemble(const WrittenSchedule& written) {
  const Result<Sizes> sizes = measure(written);
  if (!sizes) return sizes.error();
  Schedule schedule;
  schedule.name = written.name;
  schedule.microbatches = sizes.value().microbatches;
  schedule.slices = sizes.value().slices;
  schedule.placement =
      written.placement ? *written.placement : infer_placement(written, sizes.value());
  for (const std::vector<ParsedOp>& row : written.rows) {
    for (const ParsedOp& parsed : row) {
      Op op = parsed.op;
      if (op.kind == OpKind::Overlap) {
        op.child = static_cast<std::int32_t>(schedule.children.size());
        schedule.children.insert(schedule.children.end(), parsed.children.begin(),
                                 parsed.children.end());
      }
      if (op.kind == OpKind::Send || op.kind == OpKind::Recv) schedule.level = Level::Full;
      schedule.ops.push_back(op);
    }
    schedule.end_row();
  }
  return schedule.level == Level::Full ? link_transfers(std::move(schedule))
                                       : Result<Schedule>(std::move(schedule));
}

}  // namespace rehearse
