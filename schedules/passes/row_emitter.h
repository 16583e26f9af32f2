// SPDX-License-Identifier: Apache-2.0
// One row of a schedule while its ops are emitted: what all parts of `emit` share.
//
//   emit.cc             the order of things on a row, compute ops, groups
//   emit_work.cc        ops cut into parts, and what a part does for every micro-batch alike
//   emit_parameters.cc  states of buckets; which parameters are gathered before which part
//   emit_operands.cc    what a compute op reads, writes and keeps; transfers beside it
//   emit_gradients.cc   reductions as gradients become ready, norm and optimizer at the end
//   emit_offload.cc     what lies in host memory: activations between F and B, optimizer state
#pragma once

#include <array>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "schedules/body/body.h"
#include "schedules/passes/draft.h"

namespace rehearse {

struct BodySizes {
  std::int64_t saved_for_input = 0, saved_for_weight = 0, left_for_weight = 0, workspace = 0;
  std::int64_t key_value_gradient = 0;
};
constexpr std::size_t kSegmentKinds = 3, kDirections = 4;

// Slab and workspace sizes by slice, segment kind and direction. Frameworks keep tensors, not
// slabs.
using BodyTable = std::vector<std::array<std::array<BodySizes, kDirections>, kSegmentKinds>>;

// What of a stage's micro-batch is alive on the row, by boundary between parts (0: the stage's
// input, the last: its output).
struct Alive {
  std::span<ValueId> x, d;                                // at part boundaries
  std::span<ValueId> slab_input, slab_weight, left, dkv;  // per part
};

// A gradient that is being accumulated: of a bucket and one use of it (tied tables may have two).
struct Accumulator {
  ValueId whole;          // what backwards add into
  ValueId reduced;        // after the reduction over dp: `whole` itself, or the shard
  std::int32_t open = 0;  // contributions still to come in the step
};

// Emits one row.
class RowEmitter {
 public:
  RowEmitter(Draft& draft, const BodyTable& bodies, const Schedule& order, Row row,
             const std::vector<MatchId>& transfers)
      : d_(draft),
        s_(draft.schedule),
        bodies_(bodies),
        order_(order),
        row_(row),
        position_(s_.rows[row.index()].position),
        transfers_(transfers),
        slices_(std::max(order.slices, 1)),
        m_(order.microbatches * slices_),
        slots_(s_.segments.size() * static_cast<std::size_t>(m_)),
        classes_(s_.rows.size() / static_cast<std::size_t>(s_.placement.positions)),
        replica_(row.index() % classes_),
        shape_(Layout(draft.model, draft.plan).shape),
        activation_(shape_.element * shape_.local * shape_.hidden),
        sent_once_per_(draft.plan.scatters_transfers() ? draft.plan.tensor_parallel : 1),
        pipeline_(s_.group(GroupKind::Pipeline)),
        both_ends_(holds({0}) && holds({s_.placement.stages() - 1})) {}

  void run();

 private:
  // What a part does for every micro-batch alike: found once, looked up per op.
  struct Work {
    std::vector<BucketId> reads;                 // parameters, as operands name them
    std::vector<std::pair<BucketId, int>> adds;  // gradients that it adds to, and the use (0, 1)
    BodySizes sizes;
    std::int64_t duration = 1;  // estimated
    bool has_layers = false;
  };
  struct Part {
    Op op;
    std::size_t index = 0;  // of the stage's parts
    std::size_t work = 0;   // into works_
  };

  static std::size_t slice_of(const Op& op) {
    return static_cast<std::size_t>(std::max<int>(op.slice, 0));
  }
  std::size_t unit(const Op& op) const {
    return static_cast<std::size_t>(op.microbatch.value * slices_) + slice_of(op);
  }
  std::size_t slot(const Op& op) const { return slot(op.stage, op); }
  std::size_t slot(Stage stage, const Op& about) const {
    return stage.index() * static_cast<std::size_t>(m_) + unit(about);
  }
  bool first_stage(Stage stage) const { return stage.value == 0; }
  bool last_stage(Stage stage) const { return stage.value + 1 == s_.placement.stages(); }
  bool remote(Stage a, Stage b, Microbatch mb) const {
    return s_.placement.position(a, mb) != s_.placement.position(b, mb);
  }
  std::int32_t shards() const { return d_.plan.data_parallel * d_.plan.context_parallel; }
  // FSDP under a pipeline keeps parameters gathered and reduces once (torch: one gather per step).
  bool keep_gathered() const {
    return d_.plan.runtime.gathers_once_in_pipeline && d_.plan.pipeline_parallel > 1;
  }
  bool sharded_parameters() const { return d_.plan.zero_stage == 3 && shards() > 1; }
  bool reduce_each_microbatch() const {
    return d_.plan.zero_stage >= 2 && shards() > 1 && !keep_gathered();
  }
  bool server() const {
    return d_.plan.data_parallel_algorithm == DataParallelAlgorithm::ParameterServer &&
           shards() > 1;
  }
  // Whether the row's ranks update parameters: with a parameter server only its first replica.
  bool owner() const { return !server() || s_.rows[row_.index()].data_begin == 0; }
  bool rehearse() const { return d_.plan.runtime.own_executor; }
  bool table_gradient_in_forward() const { return rehearse(); }
  bool holds(Stage stage) const {  // in either direction
    return s_.placement.down[stage.index()] == position_ ||
           (!s_.placement.up.empty() && s_.placement.up[stage.index()] == position_);
  }
  // Whether both uses of a tied table add to one gradient, which is reduced once. Our runtime keeps
  // them apart where no replica follows: then the sums are those of a pipeline, whose ends hold a
  // use each, bit for bit.
  bool one_table_gradient() const { return both_ends_ && (!rehearse() || shards() > 1); }
  bool offloads_optimizer() const { return d_.plan.offload == OffloadMode::Optimizer; }
  bool streams_state() const { return offloads_optimizer() && rehearse(); }
  bool updates_on_host() const { return offloads_optimizer() && !rehearse(); }
  // Elements of a bucket that a rank updates.
  std::int64_t owned(BucketId id) const {
    return bucket(id).padded / (d_.plan.zero_stage >= 1 ? shards() : 1);
  }
  ValueKind parameter_kind() const {
    return sharded_parameters() ? ValueKind::ParameterShard : ValueKind::FullParameter;
  }

  ValueId value(ValueKind kind, std::int64_t bytes, const Op& op = {}) {
    return value(kind, bytes, op.stage, op);
  }
  ValueId value(ValueKind kind, std::int64_t bytes, Stage stage, const Op& about) {
    Value& made = s_.values.emplace_back();
    made.kind = kind;
    made.row = row_;
    made.stage = stage;
    made.microbatch = about.microbatch;
    made.instance = about.slice;
    made.bytes = {bytes};
    return {static_cast<std::int32_t>(s_.values.size()) - 1};
  }
  ValueId bucket_value(ValueKind kind, BucketId bucket, std::int64_t bytes, bool persistent) {
    const ValueId id = value(kind, bytes);
    s_.values[id.index()].bucket = bucket;
    s_.values[id.index()].persistent = persistent;
    return id;
  }
  const Bucket& bucket(BucketId id) const { return s_.buckets[id.index()]; }
  // What a collective about a bucket (or, of the world, about the norms) carries.
  Carried carried(OpKind kind, GroupKind over, BucketId about) const;
  OpId collective(OpKind kind, GroupKind over, Stream stream, BucketId about, MatchId match = {}) {
    const Op op{.kind = kind,
                .stream = stream,
                .group = s_.group(over),
                .match = match ? match : d_.new_match(),
                .bucket = about};
    d_.carried[op.match.index()] = carried(kind, over, about);
    const OpId id = d_.add(op, d_.estimates.other);
    // Ties: backward order of the buckets, what belongs to none of them last.
    d_.ops.back().tie = about ? static_cast<std::int32_t>(s_.buckets.size()) - about.value
                              : static_cast<std::int32_t>(s_.buckets.size()) + 1;
    return id;
  }

  void prepare_parts();
  std::size_t interned(const std::vector<std::int16_t>& cuts);
  std::int32_t list_of(Stage stage, AtEnds microbatch);
  void prepare_states();
  void prepare_windows();
  void open_window(std::size_t part);
  void prepare_offload();
  std::vector<ValueId*> kept_of(const Part& part);
  ValueId twin(ValueId value, Home home);
  OpId copy(OpKind kind, const Op& about, std::span<const std::pair<ValueId, ValueId>> pairs);
  void leave(std::size_t part);
  void bring_back(std::size_t part);
  void fetch_states(std::span<const BucketId> mine, OpId after);
  void gradient_to_host(BucketId id, ValueId gradient);
  OpId update(std::span<const ValueId> gradient, ValueId norms, ValueId host_norms,
              OpId before_norm);
  std::vector<BucketId> by_first_use() const;
  void gather_parameters(OpId behind);
  void transfer(OpKind kind, Payload payload, Stage issuing, Stage sender, const Op& about,
                ValueId what);
  void compute(std::size_t begin, std::size_t end);
  void forward_operands(const Part& part);
  void backward_operands(const Part& part);
  void receive_inputs(const Part& part);
  void send_outputs(const Part& part);
  void earlier_slices(const Part& part);
  void parameters(const Part& part);
  std::vector<BucketId> reads_of(const Part& part) const;
  std::size_t first_work(const Op& op, std::size_t list);
  Work work_of(const Part& part) const;
  const Work& work(const Part& part) const { return works_[part.work]; }
  template <class Visit>
  void contributions(const Part& part, Visit visit) const;
  void gradients(const Part& part);
  void contributed(const Part& part);
  void reduce(BucketId about, int use, Microbatch microbatch);
  void finish_step();

  Alive& alive(const Op& op) { return alive_[slot(op)]; }
  std::size_t boundary_begin(const Part& part) const { return part.index; }
  std::span<const std::int16_t> cuts(const Op& op) const { return cuts_[slot(op)]; }
  bool covers_end(const Part& part) const { return part.index + 1 == cuts(part.op).size(); }
  std::span<const SegmentInfo> segments(const Part& part) const {
    const auto& all = s_.segments[part.op.stage.index()];
    const std::size_t begin = begin_of(part), end = end_of(part);
    return std::span{all}.subspan(begin, end - begin);
  }
  std::size_t begin_of(const Part& part) const {
    return static_cast<std::size_t>(cuts(part.op)[part.index]);
  }
  std::size_t end_of(const Part& part) const {
    return covers_end(part) ? s_.segments[part.op.stage.index()].size()
                            : static_cast<std::size_t>(cuts(part.op)[part.index + 1]);
  }
  const SegmentBuckets& buckets(const Part& part, std::size_t segment) const {
    return d_.buckets_of[position_.index()][part.op.stage.index()][segment];
  }
  BodySizes sizes_of(const Part& part, Direction direction) const;
  // Contributions of one micro-batch still to come, where gradients are reduced per micro-batch.
  std::int32_t& open_of_unit(BucketId about, int use, const Op& op) {
    return open_of_unit_[(about.index() * 2 + static_cast<std::size_t>(use)) *
                             static_cast<std::size_t>(m_) +
                         unit(op)];
  }
  Accumulator& accumulator(BucketId about, int use) {
    return accumulators_[about.index() * 2 + static_cast<std::size_t>(use)];
  }

  Draft& d_;
  Schedule& s_;
  const BodyTable& bodies_;
  const Schedule& order_;
  Row row_;
  Position position_;
  const std::vector<MatchId>& transfers_;
  std::int32_t slices_, m_;        // m_: micro-batches, by slice
  std::size_t slots_;              // (stage, micro-batch, slice)
  std::size_t classes_, replica_;  // rows per position, and which of them this is
  RankShape shape_;
  std::int64_t activation_;  // bytes of (local, hidden)
  // Megatron's scatter/gather: without sequence parallelism every tensor-parallel rank holds all of
  // an activation, and sends its part.
  std::int32_t sent_once_per_;
  GroupId pipeline_;
  bool both_ends_;  // of the model are on this row

  std::vector<Part> parts_;                           // the row's compute ops, cut
  std::vector<std::size_t> op_begin_;                 // parts of the i-th issued op: [i], [i+1])
  std::vector<std::span<const std::int16_t>> cuts_;   // by slot, into cut_lists_
  std::deque<std::vector<std::int16_t>> cut_lists_;   // each different one once
  std::vector<std::array<std::int32_t, 4>> list_at_;  // by stage and AtEnds; -1: not made
  std::vector<Work> works_;
  std::vector<std::int32_t> works_at_;  // by (cut list, stage, direction, slice); -1: not made
  std::vector<Alive> alive_;            // by slot, into alive_values_
  std::vector<ValueId> alive_values_;
  std::vector<Accumulator> accumulators_;           // by bucket * 2 + use
  std::vector<std::int32_t> open_of_unit_;          // by (bucket * 2 + use, micro-batch)
  std::vector<ValueId> parameter_, state_, shard_;  // by bucket
  std::vector<std::vector<BucketId>> window_;  // per part: buckets that enter before it (ZeRO-3)
  // Per part: does what it keeps go to the host, and what of which parts comes back before it?
  std::vector<bool> leaves_;
  std::vector<std::vector<std::size_t>> returns_;
  std::vector<ValueId> passing_state_, host_gradient_;  // by bucket
  std::vector<BucketId> deferred_;  // to reduce at the end: bucket, with its use
  std::vector<int> deferred_use_;
  std::vector<ValueId> fresh_;         // gradients that the op under way is the first to write
  std::vector<std::int32_t> gathers_;  // by bucket: times unsharded
  ValueId tokens_, targets_, loss_;
  OpId last_compute_;
  // Of the last compute op; the next one waits for them (ZeRO-2 and 3, not overlapped).
  std::vector<OpId> reductions_;
  bool held_ = false;  // gradients are reduced after the last compute op
};

}  // namespace rehearse
