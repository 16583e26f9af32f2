// The schedule while it is being lowered: ops of all rows in the order in which they were emitted
// (on every row definitions before uses), before the one global order is known.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "schedules/passes/lower.h"
#include "schedules/schedule.h"
#include "schedules/sizes.h"

namespace rehearse {

// Where a segment's parameters lie, on the position that holds the stage.
struct SegmentBuckets {
  BucketId own;    // the bucket of its own tensors; none: it has none
  BucketId table;  // the tied vocabulary table that it reads; none: not tied, or a layer
};

// Collectives whose members are on several rows: what they meet for.
enum class Meeting : std::int32_t { Embed, Mirror, World, Server, Broadcast };

struct Draft {
  const Transformer& model;
  const Plan& plan;
  Estimates estimates;
  Schedule schedule;  // values, buckets, groups, segments, rows; ops filled by `order`
  // Buckets of a segment by [position][stage][segment]; stages not held there are empty.
  std::vector<std::vector<std::vector<SegmentBuckets>>> buckets_of;

  std::vector<Op> ops;
  std::vector<Row> row;                // per op
  std::vector<std::int64_t> duration;  // per op, estimated
  std::vector<Operand> operands;       // operands[operand_begin[i] .. operand_begin[i+1])
  std::vector<std::int32_t> operand_begin{0};
  std::vector<OpId> after;        // per op: control edge from this op; none: free
  std::vector<std::int32_t> tie;  // per op: breaks ties of equal key and class
  std::int32_t num_matches = 0;
  std::int32_t num_tensors = 0;  // parameter tensors of the whole model

  void reserve(std::size_t num_ops, std::size_t num_operands) {
    ops.reserve(num_ops);
    row.reserve(num_ops);
    duration.reserve(num_ops);
    operand_begin.reserve(num_ops + 1);
    after.reserve(num_ops);
    tie.reserve(num_ops);
    operands.reserve(num_operands);
  }
  OpId add(Row on, const Op& op, std::int64_t estimated) {
    ops.push_back(op);
    row.push_back(on);
    duration.push_back(estimated);
    operand_begin.push_back(static_cast<std::int32_t>(operands.size()));
    after.push_back({});
    tie.push_back(0);
    return {static_cast<std::int32_t>(ops.size()) - 1};
  }
  // Appends an operand to the op added last.
  void operand(ValueId value, Access access) {
    operands.push_back({.value = value, .access = access});
    operand_begin.back() = static_cast<std::int32_t>(operands.size());
  }
  MatchId new_match() { return {num_matches++}; }
  MatchId shared_match(Meeting meeting, std::int32_t what, std::int32_t which) {
    const auto [at, made] = meetings.try_emplace({static_cast<std::int32_t>(meeting), what, which});
    if (made) at->second = new_match();
    return at->second;
  }
  std::map<std::array<std::int32_t, 3>, MatchId> meetings;
  std::vector<std::int32_t> identity_of;  // per bucket: equal on the replicas of a stage
};

void make_buckets(Draft& draft);
// Parts of the op's stage: offsets of the first segments of each part, ascending, starting at 0.
// One part: the op is not cut.
std::vector<std::int16_t> cut(const Draft& draft, Position position, Stage stage,
                              Microbatch microbatch, Microbatch last_backward);
void emit(Draft& draft, const Schedule& order);
Schedule order(Draft&& draft);
void plan_lifetimes(Schedule& schedule, std::int64_t margin,
                    const std::vector<std::int64_t>& duration, bool arena);
void add_waits(Schedule& schedule);

}  // namespace rehearse
