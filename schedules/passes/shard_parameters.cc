// SPDX-License-Identifier: Apache-2.0
// Parameters of which every replica holds a shard, or has updated one: when they are gathered.
//
// Invariant behind it: where parameters lie in shards (Plan::gathers_units) no part reads one: it
// reads what an UNSHARD of its bucket has gathered, which lives for a window of parts, for a
// micro-batch or for the step; of a bucket with a second copy what was gathered of the shards last,
// or of that copy. Else, under ZeRO-1 and 2, every bucket is gathered once per step.
#include <algorithm>
#include <map>
#include <utility>

#include "schedules/passes/row_draft.h"
#include "schedules/scenario/secondary_shards.h"

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
    const bool forward = part.op.kind == OpKind::Forward;
    const auto covered = row.segments(part);
    for (std::size_t g = 0; g < covered.size(); ++g) {
      if (!forward && covered[g].kind == SegmentKind::Embedding) continue;
      const SegmentBuckets& of = row.buckets(part, row.begin_of(part) + g);
      add(row, of.own);
      add(row, of.experts);
      if (forward || !row.plan.runtime.performer().loss_gradient_with_forward) add(row, of.table);
    }
  }
  // Experts may have no replicas to shard them over.
  void add(const RowDraft& row, BucketId id) {
    if (!id || !row.draft.shards(id)) return;
    const auto first = buckets.begin() + static_cast<std::ptrdiff_t>(begin.back());
    if (std::find(first, buckets.end(), id) == buckets.end()) buckets.push_back(id);
  }
};

struct Entry {
  std::size_t part;  // before which the bucket enters the window
  BucketId bucket;
  std::size_t reader;  // the part that reads it first
  // Of a second copy: whether what is gathered makes one; the entry that made the one it reads.
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
      if (!stays) entering.push_back({reads.parts[r], id, reads.parts[reading]});
      left[id.index()] = r + 2;
      held[id.index()] = about;
    }
  }
  return entering;
}

// Who makes a second copy, and who gathers from it: what the step has gathered before, or this
// micro-batch's forward.
void choose_copies(const RowDraft& row, std::vector<Entry>& entering) {
  if (!row.s.group(GroupKind::Shard) || row.draft.plan.secondary_shard_group == 0) return;
  const bool for_step = keeps_secondary_shards(row.draft.plan);
  std::map<std::pair<BucketId, Microbatch>, std::size_t> made;
  for (std::size_t i = 0; i < entering.size(); ++i) {
    Entry& entry = entering[i];
    const Op& reader = row.parts[entry.reader].op;
    const std::pair of(entry.bucket, for_step ? Microbatch{} : reader.microbatch);
    const auto found = made.find(of);
    if (found == made.end() || (!for_step && reader.kind == OpKind::Forward)) {
      made[of] = i;
      continue;
    }
    entry.copy = static_cast<std::ptrdiff_t>(found->second);
    entering[found->second].copies = true;
  }
}

void gather_windows(RowDraft& row) {
  std::vector<Entry> entering = entries(row);
  choose_copies(row, entering);
  auto next = entering.begin();
  std::vector<ValueId> copies(entering.size());
  std::vector<ValueId> gathered(row.s.buckets.size());
  std::vector<std::int32_t> times(row.s.buckets.size(), 0);
  for (std::size_t step = 0; step + 1 < row.step_begin.size(); ++step) {
    for (; next != entering.end() && next->part < row.step_begin[step + 1]; ++next) {
      const BucketId id = next->bucket;
      DraftOp& gather = row.collective(
          OpKind::Unshard, next->copy < 0 ? row.bucket(id).replicas : GroupKind::Shard, Stream::Dp,
          id, row.at(next->part, Phase::Before));
      gather.op.instance = ++times[id.index()];
      gather.after = kLastCompute;
      if (!row.plan.runtime.performer().gathers_wait_for_memory ||
          !row.plan.overlap_parameter_gather) {
        gather.waits_for = kLastCompute;
      }
      gather.tie = row.last_op().value;  // as they enter
      const std::int64_t bytes = row.draft.layout.shape.element * row.bucket(id).padded;
      const ValueId whole = row.bucket_value(ValueKind::FullParameter, id, bytes);
      row.of(whole).instance = times[id.index()];
      gathered[id.index()] = whole;
      row.operand(next->copy < 0 ? row.parameter[id.index()]
                                 : copies[static_cast<std::size_t>(next->copy)],
                  Access::Read);
      row.operand(whole, Access::Write);
      if (!next->copies) continue;
      const ValueId copy = row.bucket_value(ValueKind::ParameterShard, id,
                                            bytes / row.draft.plan.secondary_shard_group);
      row.of(copy).instance = times[id.index()];
      row.operand(copy, Access::Write);
      copies[static_cast<std::size_t>(next - entering.begin())] = copy;
    }
    for (Operand& operand : row.operands_of(row.compute_op(step))) {
      const Value& read = row.of(operand.value);
      if (read.kind == ValueKind::ParameterShard) operand.value = gathered[read.bucket.index()];
    }
  }
}

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
  if (row.plan.gathers_units()) gather_windows(row);
  if (row.plan.overlap_parameter_gather) gather_updated(row, {}, row.start());
}

}  // namespace rehearse
