// SPDX-License-Identifier: Apache-2.0
// Parameters, shards and optimizer state of a row's buckets, and under ZeRO-3 the windows in which
// parameters are gathered.
#include <algorithm>

#include "schedules/passes/row_emitter.h"

namespace rehearse {

// Parameters, shards and optimizer state in backward order, then counts of contributions.
void RowEmitter::prepare_states() {
  const Precision& precision = d_.plan.precision;
  const std::int64_t element = shape_.element;
  const std::size_t n = s_.buckets.size();
  parameter_.assign(n, {});
  shard_.assign(n, {});
  state_.assign(n, {});
  gathers_.assign(n, 0);
  accumulators_.assign(2 * n, {});
  const std::int64_t sharding = d_.plan.zero_stage >= 1 ? shards() : 1;
  for (std::size_t i = n; i-- > 0;) {
    const BucketId id{static_cast<std::int32_t>(i)};
    if (bucket(id).position != position_) continue;
    const std::int64_t elements = bucket(id).padded;
    if (sharded_parameters()) {
      shard_[i] = bucket_value(ValueKind::ParameterShard, id,
                               precision.parameters * elements / shards(), true);
    } else {
      parameter_[i] =
          bucket_value(ValueKind::FullParameter, id,
                       (d_.plan.zero_stage == 3 ? precision.parameters : element) * elements, true);
    }
    if (owner()) {
      state_[i] = bucket_value(ValueKind::OptimizerState, id,
                               precision.optimizer * elements / sharding, true);
      if (offloads_optimizer()) s_.values[state_[i].index()].home = Home::Host;
    }
  }
  if (reduce_each_microbatch()) open_of_unit_.assign(2 * n * static_cast<std::size_t>(m_), 0);
  for (const Part& part : parts_) {
    for (const auto& [about, use] : work(part).adds) {
      ++(reduce_each_microbatch() ? open_of_unit(about, use, part.op)
                                  : accumulator(about, use).open);
    }
  }
}

// The row's buckets, in the order in which its parts first read them.
std::vector<BucketId> RowEmitter::by_first_use() const {
  std::vector<BucketId> order;
  const auto add = [&](BucketId id) {
    if (id && std::find(order.begin(), order.end(), id) == order.end()) order.push_back(id);
  };
  const auto mine = std::count_if(s_.buckets.begin(), s_.buckets.end(),
                                  [&](const Bucket& b) { return b.position == position_; });
  for (std::size_t i = 0; i < parts_.size() && std::ssize(order) < mine; ++i) {
    if (parts_[i].op.kind != OpKind::Forward) continue;
    const auto covered = segments(parts_[i]);
    for (std::size_t g = 0; g < covered.size(); ++g) {
      const SegmentBuckets& of = buckets(parts_[i], begin_of(parts_[i]) + g);
      add(of.table);
      add(of.own);
    }
  }
  return order;
}

// ZeRO-1 and 2: every rank gathers what the others have updated. At the start of the step the first
// forward waits for what it reads alone; behind the update (of `behind`), for all of it.
void RowEmitter::gather_parameters(OpId behind) {
  if (d_.plan.zero_stage < 1 || d_.plan.zero_stage > 2 || shards() == 1) return;
  auto tie = -static_cast<std::int32_t>(s_.buckets.size());
  for (const BucketId id : by_first_use()) {
    collective(OpKind::AllGather, GroupKind::Data, Stream::Dp, id);
    d_.ops.back().tie = tie++;
    d_.operand(parameter_[id.index()], Access::Update);
    d_.wait_for(behind);
  }
}

// ZeRO-3: alive at a part are the buckets that it reads and that the next `prefetch` reading parts
// read (none of these where gathers are not overlapped); window_[i] are those that enter before
// part i.
void RowEmitter::prepare_windows() {
  if (!sharded_parameters()) return;
  window_.assign(parts_.size(), {});
  std::vector<std::size_t> reading;  // parts that read parameters
  std::vector<std::vector<BucketId>> reads;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const bool forward = part.op.kind == OpKind::Forward;
    if (part.op.kind == OpKind::WeightGradient) continue;
    std::vector<BucketId> list;
    const auto covered = segments(part);
    for (std::size_t g = 0; g < covered.size(); ++g) {
      if (!forward && covered[g].kind == SegmentKind::Embedding) continue;
      const SegmentBuckets& of = buckets(part, begin_of(part) + g);
      const bool table = of.table && (forward || !table_gradient_in_forward());
      for (const BucketId id : {of.own, table ? of.table : BucketId{}}) {
        if (id && std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
      }
    }
    if (list.empty()) continue;
    reading.push_back(i);
    reads.push_back(std::move(list));
  }
  const std::size_t ahead = keep_gathered() ? reading.size()
                            : d_.plan.overlap_parameter_gather
                                ? static_cast<std::size_t>(d_.plan.prefetch)
                                : 0;
  std::vector<BucketId> alive;
  for (std::size_t r = 0; r < reading.size(); ++r) {
    std::vector<BucketId> now;
    for (std::size_t k = r; k < std::min(r + ahead + 1, reading.size()); ++k) {
      for (const BucketId id : reads[k]) {
        if (std::find(now.begin(), now.end(), id) == now.end()) now.push_back(id);
      }
    }
    if (keep_gathered()) {
      for (const BucketId id : alive) {
        if (std::find(now.begin(), now.end(), id) == now.end()) now.push_back(id);
      }
    }
    for (const BucketId id : now) {
      if (std::find(alive.begin(), alive.end(), id) == alive.end()) {
        window_[reading[r]].push_back(id);
      }
    }
    alive = std::move(now);
  }
}

void RowEmitter::open_window(std::size_t part) {
  if (window_.empty()) return;
  for (const BucketId id : window_[part]) {
    const std::int64_t element = shape_.element;
    const OpId op = collective(OpKind::Unshard, GroupKind::Data, Stream::Dp, id);
    DraftOp& gather = d_.ops[op.index()];
    gather.op.instance = ++gathers_[id.index()];
    gather.after = last_compute_;
    // Our runtime's gathers wait for memory that the arena gives on; a framework's, for the compute
    // before their window: FSDP2 copies out one unit before it gathers the one after the next.
    if (!rehearse() || !d_.plan.overlap_parameter_gather) d_.wait_for(last_compute_);
    gather.tie = op.value;  // as they enter
    const ValueId whole =
        bucket_value(ValueKind::FullParameter, id, element * bucket(id).padded, false);
    s_.values[whole.index()].instance = gathers_[id.index()];
    parameter_[id.index()] = whole;
    d_.operand(shard_[id.index()], Access::Read);
    d_.operand(whole, Access::Write);
  }
}

}  // namespace rehearse
