// SPDX-License-Identifier: Apache-2.0
#include "schedules/formats/assemble.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "schedules/ir/exchange_parts.h"
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
      if (!parsed.group.empty()) continue;  // about no stage
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

// Makes the exchanges of the file's own groups meet.
class Exchanges {
 public:
  Exchanges(const WrittenSchedule& written, Schedule& schedule)
      : written_(written), schedule_(schedule) {
    for (const Op& op : schedule.ops) next_ = std::max(next_, op.match.value + 1);
  }

  Result<> link() {
    for (const WrittenGroup& group : written_.groups) {
      Group made{.kind = GroupKind::Other, .other_name = group.name};
      made.size = static_cast<std::int32_t>(group.instances.front().size());
      for (const std::vector<Position>& instance : group.instances) {
        for (const Position rank : instance) made.rows.push_back({rank.value});
      }
      schedule_.groups.push_back(std::move(made));
    }
    auto op = schedule_.ops.begin();
    for (std::size_t row = 0; row < written_.rows.size(); ++row) {
      std::map<Key, std::int32_t> before;
      for (const ParsedOp& parsed : written_.rows[row]) {
        if (!parsed.group.empty()) {
          const Result<> linked = link(static_cast<std::int32_t>(row), parsed, *op, before);
          if (!linked) return linked;
        }
        ++op;
      }
    }
    return {};
  }

 private:
  // Group, its instance, kind, number, how many of these the row has listed before.
  using Key = std::array<std::int32_t, 5>;
  struct Met {
    MatchId match;
    std::int32_t row = 0;
    std::int64_t bytes = 0;
    Position root;
  };

  Result<> link(std::int32_t row, const ParsedOp& parsed, Op& op,
                std::map<Key, std::int32_t>& before) {
    const auto fail = [&](const std::string& what) {
      return Error{"rank " + std::to_string(row) + ": " + std::to_string(op.instance) +
                   std::string(traits(op.kind).name) + "[" + parsed.group + "]" + what};
    };
    const auto named = std::ranges::find(written_.groups, parsed.group, &WrittenGroup::name);
    if (named == written_.groups.end()) return fail(": `groups` has no such group");
    const auto number = static_cast<std::int32_t>(named - written_.groups.begin());
    op.group = {number};
    const Group& group = schedule_.groups[op.group.index()];
    if (parsed.bytes == 0) {
      return fail(" has no `bytes`: write {\"op\": ..., \"bytes\": 4096}");
    }
    const std::int64_t unit = is_parted(op.kind) ? std::int64_t{4} * group.size : 4;
    if (parsed.bytes % unit != 0) {
      return fail(" of " + std::to_string(parsed.bytes) + " bytes: of " +
                  std::to_string(group.size) + " ranks they must be a multiple of " +
                  std::to_string(unit));
    }
    if (has_root(op.kind) && !op.peer) op.peer = {0};
    if (op.peer && (!has_root(op.kind) || op.peer.value >= group.size)) {
      return fail(has_root(op.kind) ? ": `root` is a place in the group, from 0 to " +
                                          std::to_string(group.size - 1)
                                    : " has no root");
    }
    const auto at = std::ranges::find(group.rows, RankClass{row});
    if (at == group.rows.end()) return {};  // V5 says so
    Key key{number, static_cast<std::int32_t>(at - group.rows.begin()) / group.size,
            static_cast<std::int32_t>(op.kind), op.instance, 0};
    key[4] = before[key]++;
    const auto [found, fresh] = met_.try_emplace(key, Met{{next_}, row, parsed.bytes, op.peer});
    const Met& met = found->second;
    if (fresh) {
      ++next_;
      schedule_.carried.resize(met.match.index() + 1);
      schedule_.carried[met.match.index()] = {.elements = parsed.bytes / 4, .element_bytes = 4};
    } else if (met.bytes != parsed.bytes) {
      return fail(" of " + std::to_string(parsed.bytes) + " bytes: rank " +
                  std::to_string(met.row) + " lists it with " + std::to_string(met.bytes));
    } else if (met.root != op.peer) {
      return fail(" with root " + std::to_string(op.peer.value) + ": rank " +
                  std::to_string(met.row) + " lists it with root " +
                  std::to_string(met.root.value));
    }
    op.match = met.match;
    return {};
  }

  const WrittenSchedule& written_;
  Schedule& schedule_;
  std::map<Key, Met> met_;
  std::int32_t next_ = 0;
};

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
  if (schedule.level == Level::Full) schedule = link_transfers(std::move(schedule));
  if (const Result<> linked = Exchanges(written, schedule).link(); !linked) return linked.error();
  return schedule;
}

}  // namespace rehearse
