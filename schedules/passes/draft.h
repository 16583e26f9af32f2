// SPDX-License-Identifier: Apache-2.0
// The schedule while it is being lowered: ops of all rows as they are woven (on every row
// definitions before uses), before the one global order is known.
#pragma once

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "schedules/body/body.h"
#include "schedules/body/sizes.h"
#include "schedules/ir/schedule.h"
#include "schedules/passes/lower.h"

namespace rehearse {

// Where a segment's parameters lie, on the position that holds the stage.
struct SegmentBuckets {
  BucketId own;    // the bucket of its own tensors; none: it has none
  BucketId table;  // the tied vocabulary table that it reads; none: not tied, or a layer
};

// Collectives whose members are on several rows: what they meet for.
enum class Meeting : std::int32_t { Embed, Mirror, World, Server, Broadcast };

// An op before its place is known.
struct DraftOp {
  Op op;
  std::int64_t duration = 0;     // estimated
  OpId after;                    // is placed behind this op; none: free
  std::int32_t tie = 0;          // breaks ties of equal key and class
  std::int32_t operand_end = 0;  // its operands: from the end of the op before
};

// What a segment keeps and works in, by slice, segment kind and direction [B]. Frameworks keep
// tensors, not slabs: all zero.
struct BodySizes {
  std::int64_t saved_for_dgrad = 0, saved_for_wgrad = 0, left_for_wgrad = 0, workspace = 0;
  std::int64_t key_value_gradient = 0;
};
inline constexpr std::size_t kSegmentKinds = 3, kDirections = 4;
using BodyTable = std::vector<std::array<std::array<BodySizes, kDirections>, kSegmentKinds>>;

struct Draft {
  const Layout& layout;
  const Plan& plan;       // of the layout
  const Schedule& order;  // L0
  Estimates estimates;
  std::array<std::int64_t, kNumSegmentShapes> kept{};
  BodyTable bodies;
  Schedule schedule;  // values, buckets, groups, segments, rows; ops filled by `order`
  // Buckets of a segment by [position][stage][segment]; stages not held there are empty.
  std::vector<std::vector<std::vector<SegmentBuckets>>> buckets_of;
  std::vector<std::int32_t> identity_of;  // per bucket: equal on the replicas of a stage
  std::int32_t num_tensors = 0;           // parameter tensors of the whole model
  std::vector<MatchId> transfers;         // by (payload, stage, micro-batch, slice, rows' class)

  std::vector<DraftOp> ops;
  std::vector<std::int32_t> row_begin{0};  // ops of row r: [row_begin[r], row_begin[r+1])
  std::vector<Operand> operands;
  // (op, what it waits for though it touches nothing of it), ascending by op: what is not
  // overlapped
  std::vector<std::pair<OpId, OpId>> barriers;
  std::vector<Carried> carried;  // by match
  std::map<std::array<std::int32_t, 3>, MatchId> meetings;

  std::int32_t operand_begin(std::size_t op) const { return op == 0 ? 0 : ops[op - 1].operand_end; }
  MatchId new_match() {
    carried.emplace_back();
    return {static_cast<std::int32_t>(carried.size()) - 1};
  }
  MatchId shared_match(Meeting meeting, std::int32_t what, std::int32_t which) {
    const auto [at, made] = meetings.try_emplace({static_cast<std::int32_t>(meeting), what, which});
    if (made) at->second = new_match();
    return at->second;
  }

  // Elements of a bucket that a rank updates.
  std::int64_t owned(BucketId id) const {
    return schedule.owned_elements(schedule.buckets[id.index()], plan.zero_stage);
  }
};

// An order before its rows are lowered: shapes, the rows with their groups, matches of transfers.
Draft make_draft(const Schedule& order, const Layout& layout, const LowerOptions& options);
// Whole segments' parameters into flat buckets.
void make_buckets(Draft& draft);
// Whether gradients are reduced into their shards bucket by bucket within every micro-batch, so
// that only one bucket's is whole at a time: ZeRO-2 and 3 as our runtime performs them.
bool cuts_for_gradients(const Plan& plan);
// Whether a micro-batch is the first of its stage to run forward on the row, or the last backward.
struct AtEnds {
  bool first = false, last = false;
};
// Parts of the op's stage: offsets of the first segments of each part, ascending, starting at 0.
// One part: the op is not cut.
std::vector<std::int16_t> cut(const Draft& draft, Position position, Stage stage,
                              AtEnds microbatch);

// Ops that op i follows: from[begin[i]] ... from[begin[i+1] - 1].
struct Dependencies {
  std::vector<std::int32_t> begin{0}, from;
};
// By operands and barriers and on the compute stream, on the op's own row; ops as woven.
Dependencies dependencies_of(const Draft& draft);

// The schedule in its order, with what only the passes after it need.
struct Ordered {
  Schedule schedule;                   // no rows: the compute order itself cannot run
  std::vector<std::int64_t> duration;  // per op of the schedule
  Dependencies dependencies;           // of ops as woven
  std::vector<std::int32_t> woven;     // per op of the schedule: which it was as woven
};
Ordered order(Draft&& draft);
// Estimated time that a value stays alive beyond its last use on a communication stream [ns].
struct Margins {
  std::int64_t transfers = 0, reductions = 0;  // streams p2p and dp
};
void plan_lifetimes(Schedule& schedule, const Margins& margins,
                    const std::vector<std::int64_t>& duration, bool arena);
void add_waits(Ordered& ordered);

}  // namespace rehearse
