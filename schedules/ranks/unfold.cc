// SPDX-License-Identifier: Apache-2.0
#include "schedules/ranks/unfold.h"

#include <algorithm>
#include <map>

#include "schedules/ranks/group_key.h"
#include "schedules/scenario/mesh.h"

namespace rehearse {
namespace {

// What tells those apart who meet under one match of the folded schedule: a transfer's column of
// the mesh, a collective's instance, each as its first rank. `asked`: the ranks that are asked for,
// of a million ranks those of a few rows.
class Meetings {
 public:
  Meetings(const Schedule& schedule, const Mesh& mesh, std::span<const std::int32_t> asked) {
    for (std::int32_t r = 0; r < mesh.ranks(); ++r) {
      Coordinates at = mesh.coordinates({r});
      at.pipeline = 0;
      column_.push_back(mesh.rank(at).value);
    }
    for (const Group& group : schedule.groups) {
      std::map<std::array<std::int32_t, 3>, std::int32_t> first;
      std::vector<std::int32_t> of(column_);
      for (std::int32_t r = 0; r < mesh.ranks(); ++r) {
        const auto key = group_key(schedule, group, mesh.coordinates({r}), mesh);
        if (key[0] >= 0) of[static_cast<std::size_t>(r)] = first.try_emplace(key, r).first->second;
      }
      instance_.push_back(std::move(of));
    }
    std::size_t matches = 0;
    for (const Op& op : schedule.ops) {
      if (op.match) matches = std::max(matches, op.match.index() + 1);
    }
    place_.assign(static_cast<std::size_t>(mesh.ranks()), -1);
    const auto keep = [this](std::int32_t first) {
      std::int32_t& place = place_[static_cast<std::size_t>(first)];
      if (place < 0) place = static_cast<std::int32_t>(places_++);
    };
    for (const std::int32_t rank : asked) {
      keep(column_[static_cast<std::size_t>(rank)]);
      for (const auto& of : instance_) keep(of[static_cast<std::size_t>(rank)]);
    }
    number_.assign(matches * places_, -1);
  }

  // The op's match where `rank` performs it, counted in order of first use. REQUIRES: it was asked.
  MatchId of(const Op& op, std::size_t rank) {
    const std::int32_t first = op.group ? instance_[op.group.index()][rank] : column_[rank];
    const auto place = static_cast<std::size_t>(place_[static_cast<std::size_t>(first)]);
    std::int32_t& number = number_[op.match.index() * places_ + place];
    if (number < 0) number = next_++;
    return {number};
  }

 private:
  std::vector<std::int32_t> column_;                 // per rank
  std::vector<std::vector<std::int32_t>> instance_;  // per group and rank
  std::vector<std::int32_t> place_;                  // per first rank; -1: nobody asks for it
  std::size_t places_ = 0;
  std::vector<std::int32_t> number_;  // per match and place; -1: not yet
  std::int32_t next_ = 0;
};

// A row to be made: what it stands for, which row it does, and a rank of its own.
struct NewRow {
  RankClassInfo info;
  RankClass of;
  std::int32_t rank = 0;
};

std::vector<std::int32_t> ranks_of(const std::vector<NewRow>& rows) {
  std::vector<std::int32_t> ranks;
  for (const NewRow& row : rows) ranks.push_back(row.rank);
  return ranks;
}

class Unfolding {
 public:
  Unfolding(const Schedule& folded, const Mesh& mesh, std::vector<NewRow> rows)
      : s_(folded), rows_(std::move(rows)), meetings_(folded, mesh, ranks_of(rows_)) {
    values_of_.resize(static_cast<std::size_t>(s_.num_rows()));
    place_.resize(s_.values.size());
    for (std::size_t v = 0; v < s_.values.size(); ++v) {
      auto& mine = values_of_[s_.values[v].row.index()];
      place_[v] = static_cast<std::int32_t>(mine.size());
      mine.push_back(v);
    }
  }

  Schedule run() {
    out_.level = s_.level;
    out_.name = s_.name;
    out_.microbatches = s_.microbatches;
    out_.slices = s_.slices;
    out_.placement = s_.placement;
    out_.children = s_.children;
    out_.buckets = s_.buckets;
    out_.tensors = s_.tensors;
    out_.segments = s_.segments;
    std::size_t ops = 0;
    for (const NewRow& row : rows_) ops += s_.program(row.of).size();
    out_.ops.reserve(ops);
    for (const NewRow& row : rows_) add_row(row);
    for (const Group& group : s_.groups) {
      Group& made = out_.groups.emplace_back(group);
      made.rows.clear();
      for (std::size_t r = 0; r < rows_.size(); ++r) {
        if (std::ranges::find(group.rows, rows_[r].of) != group.rows.end())
          made.rows.push_back({static_cast<std::int32_t>(r)});
      }
    }
    return std::move(out_);
  }

 private:
  void add_row(const NewRow& made) {
    const RankClass row = made.of;
    const std::size_t first = s_.first_op(row), last = s_.first_op({row.value + 1});
    const auto by = static_cast<std::int32_t>(out_.ops.size()) - static_cast<std::int32_t>(first);
    const auto moved = [by](OpId op) { return op ? OpId{op.value + by} : op; };
    const auto value_base = static_cast<std::int32_t>(out_.values.size());
    for (std::size_t i = first; i < last; ++i) {
      Op op = s_.ops[i];
      if (op.match) {
        op.match = meetings_.of(op, static_cast<std::size_t>(made.rank));
        if (!s_.carried.empty()) {
          out_.carried.resize(std::max(out_.carried.size(), op.match.index() + 1));
          out_.carried[op.match.index()] = s_.carried[s_.ops[i].match.index()];
        }
      }
      out_.ops.push_back(op);
      const OpId id{static_cast<std::int32_t>(i)};
      if (s_.wait_begin.size() > 1) {
        for (auto w = static_cast<std::size_t>(s_.wait_begin[i]);
             w < static_cast<std::size_t>(s_.wait_begin[i + 1]); ++w) {
          out_.waits.push_back(moved(s_.waits[w]));
          if (!s_.wait_is_reuse.empty()) out_.wait_is_reuse.push_back(s_.wait_is_reuse[w]);
        }
        out_.wait_begin.push_back(static_cast<std::int32_t>(out_.waits.size()));
      }
      if (s_.operand_begin.size() < 2) continue;
      for (Operand operand : s_.operands_of(id)) {
        if (operand.value) operand.value = {value_base + place_[operand.value.index()]};
        out_.operands.push_back(operand);
      }
      out_.operand_begin.push_back(static_cast<std::int32_t>(out_.operands.size()));
    }
    for (const std::size_t v : values_of_[row.index()]) {
      Value& value = out_.values.emplace_back(s_.values[v]);
      value.row = {static_cast<std::int32_t>(out_.rows.size())};
      value.define = moved(value.define);
      value.last_use = moved(value.last_use);
      value.hold_until = moved(value.hold_until);
    }
    for (const auto column : {&Schedule::arena_bytes, &Schedule::live_peak_bytes,
                              &Schedule::host_bytes, &Schedule::nvme_bytes}) {
      if (!(s_.*column).empty()) (out_.*column).push_back((s_.*column)[row.index()]);
    }
    out_.rows.push_back(made.info);
    out_.end_row();
  }

  const Schedule& s_;
  const std::vector<NewRow> rows_;
  Meetings meetings_;
  std::vector<std::vector<std::size_t>> values_of_;  // per row of the folded schedule
  std::vector<std::int32_t> place_;                  // per value: which of its row's it is
  Schedule out_;
};

}  // namespace

std::vector<RankClass> rows_of_ranks(const Plan& plan, const Schedule& schedule) {
  const Mesh mesh(plan);
  std::vector<RankClass> rows(static_cast<std::size_t>(mesh.ranks()), RankClass{0});
  for (std::int32_t r = 0; r < mesh.ranks(); ++r) {
    const Coordinates at = mesh.coordinates({r});
    const std::int32_t replica = mesh.replica(at);
    for (std::int32_t row = 0; row < static_cast<std::int32_t>(schedule.rows.size()); ++row) {
      const RankClassInfo& info = schedule.rows[static_cast<std::size_t>(row)];
      if (info.position.value == at.pipeline && replica >= info.data_begin &&
          replica < info.data_end) {
        rows[static_cast<std::size_t>(r)] = {row};
      }
    }
  }
  return rows;
}

std::int64_t ops_of_ranks(const Schedule& schedule, const std::vector<RankClass>& row_of_rank) {
  std::int64_t ops = 0;
  for (const RankClass row : row_of_rank)
    ops += static_cast<std::int64_t>(schedule.program(row).size());
  return ops;
}

Schedule unfold(const Schedule& schedule, const Plan& plan) {
  const Mesh mesh(plan);
  std::vector<NewRow> rows;
  const std::vector<RankClass> of = rows_of_ranks(plan, schedule);
  for (std::int32_t r = 0; r < mesh.ranks(); ++r) {
    const Coordinates at = mesh.coordinates({r});
    const std::int32_t column = mesh.column(at);
    const RankClass row = of[static_cast<std::size_t>(r)];
    rows.push_back({.info = {.position = schedule.position_of(row),
                             .multiplicity = 1,
                             .data_begin = column,
                             .data_end = column + 1},
                    .of = row,
                    .rank = r});
  }
  return Unfolding(schedule, mesh, std::move(rows)).run();
}

Schedule split_replicas(const Schedule& schedule, const Plan& plan,
                        std::span<const std::int32_t> begins) {
  const Mesh mesh(plan);
  std::vector<NewRow> rows;
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    for (std::size_t i = 0; i < begins.size(); ++i) {
      const std::int32_t begin = begins[i];
      const std::int32_t end = i + 1 < begins.size() ? begins[i + 1] : plan.replicas();
      const Position position = schedule.position_of(row);
      const Rank first = mesh.rank(mesh.of_replica(begin, position.value));
      rows.push_back({.info = {.position = position,
                               .multiplicity = (end - begin) * plan.tensor_parallel,
                               .data_begin = begin,
                               .data_end = end},
                      .of = row,
                      .rank = first.value});
    }
  }
  return Unfolding(schedule, mesh, std::move(rows)).run();
}

}  // namespace rehearse
