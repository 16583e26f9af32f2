// SPDX-License-Identifier: Apache-2.0
// The schedule while it is being lowered: ops of all rows as the passes made them, and each row's
// program (definitions before uses), before the one global order is known.
#pragma once

#include <array>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "schedules/body/body.h"
#include "schedules/body/sizes.h"
#include "schedules/ir/placed_recompute.h"
#include "schedules/ir/schedule.h"
#include "schedules/passes/lower.h"

namespace rehearse {

// Where a segment's parameters lie, on the position that holds the stage.
struct SegmentBuckets {
  BucketId own;      // the bucket of its own tensors; none: it has none
  BucketId table;    // the tied vocabulary table that it reads; none: not tied, or a layer
  BucketId experts;  // of its routed experts, where these lie otherwise than the rest
  bool operator==(const SegmentBuckets&) const = default;
};

// Collectives whose members are on several rows: what they meet for.
enum class Meeting : std::int32_t {
  Embed,
  Mirror,
  World,
  Own,
  Tokens,
  Parameters,
  Outputs,
  OutputGradients,
  Gradients
};

// In place of an op: the last one of the compute stream that stands before in the row's program,
// whichever that is once all are woven.
inline constexpr OpId kLastCompute{-2};

// An op before its place in the global order is known.
struct DraftOp {
  DraftOp(const Op& what, std::int64_t ns, std::int32_t place, std::size_t operands)
      : op(what), duration(ns), at(place), operand_begin(static_cast<std::int32_t>(operands)) {}
  Op op;
  std::int64_t duration;       // estimated, until price_draft
  std::int32_t at;             // its place in the row's program
  std::int32_t operand_begin;  // its operands: up to those of the op made next
  OpId after = {};             // is placed behind this op of the row
  OpId waits_for = {};         // waits for it too, though it touches nothing of it
  std::int32_t tie = 0;        // breaks ties of equal key and class (rule_of)
  bool holds_compute = false;  // the next part waits for this op
  std::int32_t gap = -1;       // a transfer: behind so many of the row's issued compute ops
};

// What a segment keeps and works in, by slice, body_kind and direction [B]. Frameworks keep
// tensors, not slabs: all zero.
struct BodySizes {
  std::int64_t saved_for_dgrad = 0, saved_for_wgrad = 0, left_for_wgrad = 0, workspace = 0;
  std::int64_t remade_for_dgrad = 0, remade_for_wgrad = 0;
  std::int64_t key_value_gradient = 0;
  bool reads_parameters = false;
};
using BodyTable = std::vector<std::array<std::array<BodySizes, kDirections>, kBodyKinds>>;

struct Draft {
  const Layout& layout;
  const Plan& plan;       // of the layout
  const Schedule& order;  // L0
  Estimates estimates;
  PlacedRecompute placed;
  std::int64_t layer_forward = 0;  // what a layer's forward takes, estimated or priced [ns]
  std::vector<std::int64_t> kept{};
  BodyTable bodies{};
  // By stage: of so many layers what they keep leaves, where that is chosen.
  std::vector<std::int32_t> leaving{};
  Schedule schedule;  // values, buckets, groups, segments, rows; ops filled by `order`
  // Buckets of a segment by [position][stage][segment]; stages not held there are empty.
  std::vector<std::vector<std::vector<SegmentBuckets>>> buckets_of;
  std::vector<std::int32_t> identity_of;  // per bucket: equal on the replicas of a stage
  std::int32_t num_tensors = 0;           // parameter tensors of the whole model

  std::vector<DraftOp> ops;  // row after row, those of a row as its passes made them
  std::vector<Operand> operands;
  // The ops again, those of a row in the order of its program: [row_begin[r], row_begin[r+1]).
  std::vector<OpId> program;
  std::vector<std::int32_t> row_begin{0};
  // (op, what it waits for though it touches nothing of it), as the program lists the ops: what is
  // not overlapped
  std::vector<std::pair<OpId, OpId>> barriers;
  // By match; those of transfers come first, by (payload, stage, micro-batch, slice, rows' class).
  std::vector<Carried> carried;
  std::map<std::array<std::int32_t, 3>, MatchId> meetings;
  // By match: which exchange a transfer belongs to, with those that begin and end with it; -1:
  // none. Empty: there are none.
  std::vector<std::int32_t> exchange_of;
  std::int32_t num_exchanges = 0;

  std::span<const OpId> program_of(std::size_t row) const {
    return {program.data() + row_begin[row], program.data() + row_begin[row + 1]};
  }
  std::span<Operand> operands_of(const DraftOp& op) {
    Operand* const end = &op == &ops.back() ? operands.data() + operands.size()
                                            : operands.data() + (&op)[1].operand_begin;
    return {operands.data() + op.operand_begin, end};
  }
  MatchId new_match() {
    carried.emplace_back();
    return {static_cast<std::int32_t>(carried.size()) - 1};
  }
  MatchId shared_match(Meeting meeting, std::int32_t what, std::int32_t which) {
    const auto [at, made] = meetings.try_emplace({static_cast<std::int32_t>(meeting), what, which});
    if (made) at->second = new_match();
    return at->second;
  }

  // Numbers of the vector that all ranks sum as a step ends: squares of the tensors, the loss, and
  // what is counted, the rows of every layer's experts and the copies that they drop.
  std::int64_t metrics() const {
    const Transformer& model = layout.model;
    const std::int64_t experts =
        plan.runtime.performer().counts_expert_rows ? model.layers * model.experts.count : 0;
    return num_tensors + 1 + (plan.expert_drop > 0 ? 2 : 1) * experts;
  }

  // Whether ranks hold a shard of the bucket's parameters and gather them (ZeRO-3, FSDP); whether
  // its gradients are reduced within every micro-batch, into their shards or to one GPU. Experts
  // without a replica have nothing to share.
  bool shards(BucketId id) const { return plan.gathers_units() && replicas(id) > 1; }
  bool reduces_each_microbatch(BucketId id) const {
    if (plan.has_parameter_server()) return true;
    return plan.zero_stage >= 2 && replicas(id) > 1 && !plan.keeps_gathered();
  }
  std::int32_t replicas(BucketId id) const {
    return schedule.replicas(schedule.buckets[id.index()]);
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

// By op of the draft: the ops that it follows.
struct Dependencies {
  struct Range {
    std::int32_t begin = 0, end = 0;  // into `from`
  };
  std::vector<Range> ranges;
  std::vector<OpId> from;
  std::span<const OpId> of(OpId id) const {
    const Range& range = ranges[id.index()];
    return {from.data() + range.begin, static_cast<std::size_t>(range.end - range.begin)};
  }
};
// By operands and barriers and on the compute stream, on the op's own row.
Dependencies dependencies_of(Draft& draft);

// Fills the columns of the draft's schedule that are its ops'. REQUIRES: `in_order` names each
// once.
void fill_columns(Draft& draft, std::span<const OpId> in_order);
// Gives the ops of all rows, woven, what they take on a machine in place of the estimates.
Result<> price_draft(Draft& draft, const PriceOps& price);
// In a draft in which everything leaves: how many layers of each stage do so for nothing
// (OffloadedActivations::Chosen).
std::vector<std::int32_t> chosen_leaving(const Draft& draft);

// Where transfers are grouped: which of them are one exchange. REQUIRES: all rows are woven.
void group_transfers(Draft& draft);

// When every op of the draft starts [ns]; empty: the compute order waits for itself.
std::vector<std::int64_t> starts_of(const Draft& draft, const Dependencies& dependencies);
// Which of two ops goes first where both could: any rule is one, since producers end before their
// consumers start.
std::int64_t rule_of(const DraftOp& op);

// The schedule in its order, with what only the passes after it need.
struct Ordered {
  Schedule schedule;                   // no rows: the compute order itself cannot run
  std::vector<std::int64_t> duration;  // per op of the schedule
  Dependencies dependencies;           // of the draft's ops
  std::vector<OpId> made;              // per op of the schedule: which it was in the draft
  std::vector<OpId> drafted;           // and its place in Draft::program
};
Ordered order(Draft&& draft);
// Estimated time that a value stays alive beyond its last use on a communication stream [ns];
// behind a copy to the host, where there is one, once more as long as the copy takes, too.
struct Margins {
  std::int64_t transfers = 0, reductions = 0, copies = 0;  // streams p2p, dp and d2h
};
void plan_lifetimes(Schedule& schedule, const Margins& margins,
                    const std::vector<std::int64_t>& duration, bool arena);
void add_waits(Ordered& ordered);

}  // namespace rehearse
