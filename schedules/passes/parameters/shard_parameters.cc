// SPDX-License-Identifier: Apache-2.0
// Parameters of which every replica holds a shard, or has updated one: when they are gathered.
//
// Invariant behind it: where parameters lie in shards (Plan::gathers_units) no part reads one: it
// reads what an UNSHARD of its bucket has gathered, which lives for a window of parts, for a
// micro-batch or for the step. It gathers the shards, which a FETCH brings where they lie in host
// memory, or those of a second copy that an earlier UNSHARD has made. Else, under ZeRO-1 and 2,
// every bucket is gathered once per step.
#include <algorithm>
#include <map>
#include <utility>

#include "schedules/passes/row_draft.h"
#include "schedules/scenario/zero/quantized_gather.h"
#include "schedules/scenario/zero/shard_groups.h"

namespace rehearse {
namespace {

void add_once(std::vector<BucketId>& list, BucketId id) {
  if (id && std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
}

// The row's buckets, in the order in which its parts first read them.
std::vector<BucketId> by_first_use(const RowDraft& row) {
  std::vector<BucketId> order;
  const auto mine = std::count_if(row.s.buckets.begin(), row.s.buckets.end(),
                                  [&](const Bucket& b) { return b.position == row.position; });
  for (std::size_t i = 0; i < row.parts.size() && std::ssize(order) < mine; ++i) {
    const Part& part = row.parts[i];
    if (part.op.kind != OpKind::Forward) continue;
    for (std::size_t g = row.begin_of(part); g < row.end_of(part); ++g) {
      const SegmentBuckets& of = row.buckets(part, g);
      add_once(order, of.table);
      add_once(order, of.own);
      add_once(order, of.experts);
    }
  }
  return order;
}

// The parts that read parameters, each with the buckets that it reads in the order of its segments.
struct Readings {
  std::vector<std::size_t> parts;
  std::vector<std::size_t> begin{0};  // reading i: buckets [begin[i], begin[i+1])
  std::vector<BucketId> buckets;

  explicit Readings(const RowDraft& row) {
    for (std::size_t i = 0; i < row.parts.size(); ++i) {
      read(row, row.parts[i]);
      if (buckets.size() == begin.back()) continue;
      parts.push_back(i);
      begin.push_back(buckets.size());
    }
  }

 private:
  void read(const RowDraft& row, const Part& part) {
    if (part.op.kind == OpKind::WeightGradient) return;
    if (part.op.kind == OpKind::Recompute) {
      const std::vector<BucketId>& again = row.work(part).reads;  // from the last segment on
      for (std::size_t i = again.size(); i-- > 0;) add(row, again[i]);
      return;
    }
    const bool forward = part.op.kind == OpKind::Forward;
    const auto covered = row.segments(part);
    for (std::size_t g = 0; g < covered.size(); ++g) {
      if (!forward && covered[g].kind == SegmentKind::Embedding) continue;
      const SegmentBuckets& of = row.buckets(part, row.begin_of(part) + g);
      add(row, of.own);
      add(row, of.experts);
      if (forward || !loss_gradient_with_forward(row.plan)) add(row, of.table);
    }
  }
  // Experts may have no replicas to shard them over.
  void add(const RowDraft& row, BucketId id) {
    if (!id || !(row.draft.shards(id) || row.plan.offload.parameters)) return;
    const auto first = buckets.begin() + static_cast<std::ptrdiff_t>(begin.back());
    if (std::find(first, buckets.end(), id) == buckets.end()) buckets.push_back(id);
  }
};

struct Entry {
  std::size_t part;  // before which the bucket enters the window
  BucketId bucket;
  Microbatch about;  // whose part reads it first
  // The second copy: whether what is gathered makes one; the entry that made the one it reads.
  bool copies = false;
  std::ptrdiff_t copy = -1;
};

// Alive at a part are the buckets that it reads and that the next `prefetch` reading parts read
// (none of these where gathers are not overlapped; all where they are kept). What is gathered once
// for a micro-batch stays from its forward to its backward.
std::vector<Entry> entries(const RowDraft& row) {
  const Readings reads(row);
  const std::size_t n = reads.parts.size();
  const bool keep = row.draft.plan.keeps_gathered();
  const std::size_t ahead = keep ? n
                            : row.plan.overlap_parameter_gather
                                ? static_cast<std::size_t>(row.plan.prefetch)
                                : 0;
  const bool again = row.draft.plan.gathers_twice();
  std::vector<Entry> entering;
  std::vector<Microbatch> held(row.s.buckets.size());      // the one that it was gathered for
  std::vector<std::size_t> left(row.s.buckets.size(), 0);  // the reading at which it has left
  for (std::size_t r = 0; r < (keep ? std::min<std::size_t>(n, 1) : n); ++r) {
    const std::size_t end = reads.begin[std::min(r + ahead + 1, n)];
    std::size_t reading = r;
    for (std::size_t k = reads.begin[r]; k < end; ++k) {
      while (k >= reads.begin[reading + 1]) ++reading;
      const BucketId id = reads.buckets[k];
      const Microbatch about = row.parts[reads.parts[reading]].op.microbatch;
      const bool stays = keep || again ? left[id.index()] > r : held[id.index()] == about;
      if (!stays) entering.push_back({reads.parts[r], id, about});
      left[id.index()] = r + 2;
      held[id.index()] = about;
    }
  }
  return entering;
}

// Who makes a second copy, and who gathers from it: what the step, or the micro-batch, has gathered
// before.
void choose_copies(const RowDraft& row, std::vector<Entry>& entering) {
  if (!row.s.group(GroupKind::Shard) || row.draft.plan.secondary_shard_group == 0) return;
  const bool for_step = keeps_secondary_shards(row.draft.plan);
  std::map<std::pair<BucketId, Microbatch>, std::size_t> made;
  for (std::size_t i = 0; i < entering.size(); ++i) {
    Entry& entry = entering[i];
    const auto [found, first] =
        made.try_emplace({entry.bucket, for_step ? Microbatch{} : entry.about}, i);
    if (first) continue;
    entry.copy = static_cast<std::ptrdiff_t>(found->second);
    entering[found->second].copies = true;
  }
}

// Where an op that brings parameters stands, and what it waits for.
void place_bringing(RowDraft& row, DraftOp& made) {
  made.after = kLastCompute;
  if (!row.plan.runtime.performer().gathers_wait_for_memory || !row.plan.overlap_parameter_gather) {
    made.waits_for = kLastCompute;
  }
  made.tie = row.last_op().value;  // as they enter
}

class Gatherer {
 public:
  explicit Gatherer(RowDraft& row)
      : row_(row),
        entering_(entries(row)),
        copies_(entering_.size()),
        gathered_(row.s.buckets.size()),
        times_(row.s.buckets.size(), 0) {
    choose_copies(row, entering_);
  }

  void run() {
    std::size_t next = 0;
    for (std::size_t step = 0; step + 1 < row_.step_begin.size(); ++step) {
      for (; next < entering_.size() && entering_[next].part < row_.step_begin[step + 1]; ++next) {
        bring(next);
      }
      for (Operand& operand : row_.operands_of(row_.compute_op(step))) {
        const BucketId bucket = row_.of(operand.value).bucket;
        if (!bucket || operand.value != row_.parameter[bucket.index()]) continue;
        if (const ValueId whole = gathered_[bucket.index()]) operand.value = whole;
      }
    }
  }

 private:
  // From the host, where it lies there, to the device; from its shards, where it has some, whole.
  void bring(std::size_t k) {
    const Entry& entry = entering_[k];
    const BucketId id = entry.bucket;
    ValueId here = row_.parameter[id.index()];
    if (entry.copy >= 0) {
      here = copies_[static_cast<std::size_t>(entry.copy)];
    } else if (row_.of(here).home != Home::Device) {
      const std::pair pair(here, add_twin(row_, here, Home::Device));
      DraftOp& fetch = add_copy(row_, OpKind::Fetch, {.bucket = id},
                                row_.at(entry.part, Phase::Before), {&pair, 1});
      place_bringing(row_, fetch);
      here = pair.second;
    }
    gathered_[id.index()] = row_.draft.shards(id) ? gather(k, here) : here;
  }

  ValueId gather(std::size_t k, ValueId shard) {
    const Entry& entry = entering_[k];
    const BucketId id = entry.bucket;
    DraftOp& made = row_.collective(OpKind::Unshard,
                                    entry.copy < 0 ? row_.bucket(id).replicas : GroupKind::Shard,
                                    Stream::Dp, id, row_.at(entry.part, Phase::Before));
    made.op.instance = ++times_[id.index()];
    place_bringing(row_, made);
    const std::int64_t bytes = row_.draft.layout.shape.element * row_.bucket(id).padded;
    const ValueId whole = row_.bucket_value(ValueKind::FullParameter, id, bytes);
    row_.of(whole).instance = times_[id.index()];
    row_.operand(shard, Access::Read);
    row_.operand(whole, Access::Write);
    if (quantizes_gathers(row_.draft.plan)) {  // what all have quantized, as it comes
      const std::int64_t bytes_there = row_.draft.carried[made.op.match.index()].bytes();
      row_.operand(row_.bucket_value(ValueKind::Workspace, id, bytes_there), Access::Workspace);
    }
    if (!entry.copies) return whole;
    const ValueId copy = row_.bucket_value(ValueKind::ParameterShard, id,
                                           bytes / row_.draft.plan.secondary_shard_group);
    row_.of(copy).instance = times_[id.index()];
    row_.operand(copy, Access::Write);
    copies_[k] = copy;
    return whole;
  }

  RowDraft& row_;
  std::vector<Entry> entering_;
  std::vector<ValueId> copies_;    // by entry: the second copy that it makes
  std::vector<ValueId> gathered_;  // by bucket: what parts read
  std::vector<std::int32_t> times_;
};

}  // namespace

void gather_updated(RowDraft& row, OpId updated, std::int32_t at) {
  if (row.plan.zero_stage < 1 || row.plan.gathers_units()) return;
  auto tie = -static_cast<std::int32_t>(row.s.buckets.size());
  for (const BucketId id : by_first_use(row)) {
    if (row.draft.replicas(id) == 1) continue;
    DraftOp& gather =
        row.collective(OpKind::AllGather, row.bucket(id).replicas, Stream::Dp, id, at);
    gather.tie = tie++;
    gather.waits_for = updated;
    row.operand(row.parameter[id.index()], Access::Update);
  }
}

void shard_parameters(RowDraft& row) {
  if (row.plan.gathers_units()) Gatherer(row).run();
  if (row.plan.overlap_parameter_gather) gather_updated(row, {}, row.start());
}

}  // namespace rehearse
