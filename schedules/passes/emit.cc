// Every op of every row, with its operands. Rows are emitted one by one in the order of L0, each
// communication beside the op that needs it; `order` then finds the places.
#include <algorithm>
#include <array>
#include <deque>
#include <span>

#include "schedules/body.h"
#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

struct BodySizes {
  std::int64_t saved_for_input = 0, saved_for_weight = 0, left_for_weight = 0, workspace = 0;
};
constexpr std::size_t kSegmentKinds = 3, kDirections = 4;

// Slab and workspace sizes by slice, segment kind and direction. Frameworks keep tensors, not
// slabs.
using BodyTable = std::vector<std::array<std::array<BodySizes, kDirections>, kSegmentKinds>>;
BodyTable body_table(const Draft& draft, std::int32_t slices) {
  BodyTable table(static_cast<std::size_t>(slices));
  if (draft.plan.runtime != Runtime::Rehearse) return table;
  for (std::size_t slice = 0; slice < table.size(); ++slice) {
    for (std::size_t k = 0; k < kSegmentKinds; ++k) {
      for (std::size_t d = 0; d < kDirections; ++d) {
        const Body body = make_body({.segment = static_cast<SegmentKind>(k),
                                     .direction = static_cast<Direction>(d),
                                     .slice = static_cast<std::int32_t>(slice),
                                     .model = &draft.model,
                                     .plan = &draft.plan});
        table[slice][k][d] = {body.saved_for_input, body.saved_for_weight, body.left_for_weight,
                              body.workspace};
      }
    }
  }
  return table;
}

Direction direction_of(OpKind kind) {
  switch (kind) {
    case OpKind::Backward:
      return Direction::Backward;
    case OpKind::InputGradient:
      return Direction::InputGradient;
    case OpKind::WeightGradient:
      return Direction::WeightGradient;
    default:
      return Direction::Forward;
  }
}

std::int64_t estimated(const Estimates& e, SegmentKind kind, Direction direction) {
  const bool input = direction == Direction::InputGradient;
  const bool weight = direction == Direction::WeightGradient;
  switch (kind) {
    case SegmentKind::Embedding:
      return direction == Direction::Forward ? e.embedding_forward
             : input                         ? 0
                                             : e.embedding_backward;
    case SegmentKind::Layer:
      return direction == Direction::Forward ? e.layer_forward
             : input                         ? e.layer_input
             : weight                        ? e.layer_weight
                                             : e.layer_input + e.layer_weight;
    case SegmentKind::Head:
      return direction == Direction::Forward ? e.head_forward : weight ? 0 : e.head_backward;
  }
  return 1;
}

// What of a stage's micro-batch is alive on the row, by boundary between parts (0: the stage's
// input, the last: its output).
struct Alive {
  std::span<ValueId> x, d;                           // at part boundaries
  std::span<ValueId> slab_input, slab_weight, left;  // per part
};

// A gradient that is being accumulated: of a bucket and one use of it (tied tables have two).
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
        m_(order.microbatches * std::max(order.slices, 1)),
        shape_(rank_shape(draft.model, draft.plan)),
        activation_(shape_.element * shape_.local * shape_.hidden),
        pipeline_(group("pp")) {}

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
    return static_cast<std::size_t>(op.microbatch.value * std::max(order_.slices, 1)) +
           slice_of(op);
  }
  std::size_t slot(const Op& op) const {
    return op.stage.index() * static_cast<std::size_t>(m_) + unit(op);
  }
  bool first_stage(Stage stage) const { return stage.value == 0; }
  bool last_stage(Stage stage) const { return stage.value + 1 == s_.placement.stages(); }
  bool remote(Stage a, Stage b, Microbatch mb) const {
    return s_.placement.position(a, mb) != s_.placement.position(b, mb);
  }
  std::int32_t shards() const { return d_.plan.data_parallel * d_.plan.context_parallel; }
  // FSDP under a pipeline keeps parameters gathered and reduces once (torch: one gather per step).
  bool keep_gathered() const {
    return d_.plan.runtime == Runtime::Fsdp && d_.plan.pipeline_parallel > 1;
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
  bool table_gradient_in_forward() const { return d_.plan.runtime == Runtime::Rehearse; }

  ValueId value(ValueKind kind, std::int64_t bytes, const Op& op = {}) {
    s_.values.push_back({.kind = kind,
                         .row = row_,
                         .stage = op.stage,
                         .microbatch = op.microbatch,
                         .instance = op.slice,
                         .bytes = {bytes}});
    return {static_cast<std::int32_t>(s_.values.size()) - 1};
  }
  ValueId bucket_value(ValueKind kind, BucketId bucket, std::int64_t bytes, bool persistent) {
    const ValueId id = value(kind, bytes);
    s_.values[id.index()].bucket = bucket;
    s_.values[id.index()].persistent = persistent;
    return id;
  }
  const Bucket& bucket(BucketId id) const { return s_.buckets[id.index()]; }
  GroupId group(std::string_view name) const {
    for (std::size_t g = 0; g < s_.groups.size(); ++g) {
      if (s_.groups[g].name == name) return {static_cast<std::int32_t>(g)};
    }
    return {};
  }
  OpId collective(OpKind kind, std::string_view name, Stream stream, BucketId about,
                  MatchId match = {}) {
    const Op op{.kind = kind,
                .stream = stream,
                .group = group(name),
                .match = match ? match : d_.new_match(),
                .bucket = about};
    const OpId id = d_.add(row_, op, d_.estimates.other);
    // Ties: backward order of the buckets, what belongs to none of them last.
    d_.tie.back() = about ? static_cast<std::int32_t>(s_.buckets.size()) - about.value
                          : static_cast<std::int32_t>(s_.buckets.size()) + 1;
    return id;
  }

  void prepare_parts();
  std::size_t interned(const std::vector<std::int16_t>& cuts);
  void prepare_states();
  void prepare_windows();
  void open_window(std::size_t part);
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
  std::int32_t m_;
  RankShape shape_;
  std::int64_t activation_;  // bytes of (local, hidden)
  GroupId pipeline_;

  std::vector<Part> parts_;                          // the row's compute ops, cut
  std::vector<std::size_t> op_begin_;                // parts of the i-th issued op: [i], [i+1])
  std::vector<std::span<const std::int16_t>> cuts_;  // by slot, into cut_lists_
  std::deque<std::vector<std::int16_t>> cut_lists_;  // each different one once
  std::vector<Work> works_;
  std::vector<std::int32_t> works_at_;  // by (cut list, stage, direction, slice); -1: not made
  std::vector<Alive> alive_;            // by slot, into alive_values_
  std::vector<ValueId> alive_values_;
  std::vector<Accumulator> accumulators_;           // by bucket * 2 + use
  std::vector<std::int32_t> open_of_unit_;          // by (bucket * 2 + use, micro-batch)
  std::vector<ValueId> parameter_, state_, shard_;  // by bucket
  std::vector<std::vector<BucketId>> window_;  // per part: buckets that enter before it (ZeRO-3)
  std::vector<BucketId> deferred_;             // to reduce at the end: bucket, with its use
  std::vector<int> deferred_use_;
  std::vector<ValueId> fresh_;         // gradients that the op under way is the first to write
  std::vector<std::int32_t> gathers_;  // by bucket: times unsharded
  ValueId tokens_, targets_, loss_;
  OpId last_compute_;
  bool held_ = false;  // gradients are reduced after the last compute op
};

BodySizes RowEmitter::sizes_of(const Part& part, Direction direction) const {
  BodySizes sum;
  if (d_.plan.runtime != Runtime::Rehearse) return sum;
  const auto covered = segments(part);
  for (const SegmentInfo& segment : covered) {
    const BodySizes& body = bodies_[slice_of(part.op)][static_cast<std::size_t>(segment.kind)]
                                   [static_cast<std::size_t>(direction)];
    sum.saved_for_input += body.saved_for_input;
    sum.saved_for_weight += body.saved_for_weight;
    sum.left_for_weight += body.left_for_weight;
    sum.workspace = std::max(sum.workspace, body.workspace);
  }
  const std::int64_t activation = aligned(activation_);
  const auto inner = static_cast<std::int64_t>(covered.size()) - 1;
  sum.saved_for_input += inner * activation;  // inputs of the segments after the first
  if (direction == Direction::InputGradient || direction == Direction::WeightGradient) {
    sum.left_for_weight += inner * activation;  // gradients between them, which W reads
  } else if (direction == Direction::Backward && inner > 0) {
    // The running gradient lives in the buffer of the op's own gradient, else of the incoming one;
    // a stage that has neither keeps it in the workspace.
    const bool outgoing = part.index > 0 || !first_stage(part.op.stage);
    const bool incoming = !covers_end(part) || !last_stage(part.op.stage);
    if (!outgoing && !incoming) sum.workspace += activation;
  }
  return sum;
}

RowEmitter::Work RowEmitter::work_of(const Part& part) const {
  Work work;
  const Direction direction = direction_of(part.op.kind);
  if (part.op.kind != OpKind::WeightGradient) work.reads = reads_of(part);
  contributions(part, [&](BucketId about, int use) {  // several segments may lie in one bucket
    const std::pair add(about, use);
    if (std::find(work.adds.begin(), work.adds.end(), add) == work.adds.end()) {
      work.adds.push_back(add);
    }
  });
  work.sizes = sizes_of(part, direction);
  std::int64_t duration = 0;
  for (const SegmentInfo& segment : segments(part)) {
    duration += estimated(d_.estimates, segment.kind, direction);
    work.has_layers |= segment.kind == SegmentKind::Layer;
  }
  work.duration = std::max<std::int64_t>(duration, 1);
  return work;
}

// Works of an op's parts lie one after another, by the parts' index.
std::size_t RowEmitter::first_work(const Op& op, std::size_t list) {
  const std::size_t key = ((list * s_.segments.size() + op.stage.index()) * kDirections +
                           static_cast<std::size_t>(direction_of(op.kind))) *
                              static_cast<std::size_t>(std::max(order_.slices, 1)) +
                          slice_of(op);
  if (works_at_.size() <= key) works_at_.resize(key + 1, -1);
  if (works_at_[key] < 0) {
    works_at_[key] = static_cast<std::int32_t>(works_.size());
    for (std::size_t i = 0; i < cut_lists_[list].size(); ++i) {
      works_.push_back(work_of({.op = op, .index = i}));
    }
  }
  return static_cast<std::size_t>(works_at_[key]);
}

// The row's ops, each divided where `cut` says. OVERLAP pairs stay whole, and so do the ops that
// belong to them.
void RowEmitter::prepare_parts() {
  const std::size_t slots = s_.segments.size() * static_cast<std::size_t>(m_);
  cuts_.assign(slots, {});
  alive_.assign(slots, {});
  const auto program = order_.program(Row{position_.value});
  std::vector<Microbatch> last(s_.segments.size());
  std::vector<bool> whole(slots, false);
  std::vector<std::int32_t> list_of(slots, -1);  // into cut_lists_
  cut_lists_.push_back({0});
  const auto each = [&](const Op& op, auto visit) {
    if (op.kind != OpKind::Overlap) return visit(op, false);
    visit(order_.children[static_cast<std::size_t>(op.child)], true);
    visit(order_.children[static_cast<std::size_t>(op.child) + 1], true);
  };
  for (const Op& op : program) {
    each(op, [&](const Op& leaf, bool paired) {
      if (leaf.kind == OpKind::Backward || leaf.kind == OpKind::WeightGradient) {
        last[leaf.stage.index()] = leaf.microbatch;
      }
      if (paired) whole[slot(leaf)] = true;
    });
  }
  std::size_t alive_count = 0;
  op_begin_.reserve(program.size() + 1);
  parts_.reserve(program.size());
  for (const Op& op : program) {
    op_begin_.push_back(parts_.size());
    each(op, [&](const Op& leaf, bool paired) {
      std::int32_t& list = list_of[slot(leaf)];
      if (list < 0) {
        list = whole[slot(leaf)]
                   ? 0
                   : static_cast<std::int32_t>(interned(cut(
                         d_, position_, leaf.stage, leaf.microbatch, last[leaf.stage.index()])));
        cuts_[slot(leaf)] = cut_lists_[static_cast<std::size_t>(list)];
        alive_count += 5 * cuts_[slot(leaf)].size() + 2;
      }
      const std::span<const std::int16_t> cuts = cuts_[slot(leaf)];
      const std::size_t first = first_work(leaf, static_cast<std::size_t>(list));
      const bool forward = leaf.kind == OpKind::Forward;
      for (std::size_t i = 0; i < cuts.size(); ++i) {
        Part part{.op = leaf, .index = forward ? i : cuts.size() - 1 - i};
        part.work = first + part.index;
        if (!paired && cuts.size() > 1) {
          part.op.segment_begin = static_cast<std::int16_t>(begin_of(part));
          part.op.segment_end = static_cast<std::int16_t>(end_of(part));
        }
        parts_.push_back(part);
      }
    });
  }
  op_begin_.push_back(parts_.size());
  alive_values_.assign(alive_count, {});
  std::span<ValueId> rest = alive_values_;
  const auto take = [&rest](std::size_t count) {
    const std::span<ValueId> taken = rest.first(count);
    rest = rest.subspan(count);
    return taken;
  };
  for (std::size_t k = 0; k < slots; ++k) {
    const std::size_t parts = cuts_[k].size();
    if (parts == 0) continue;
    alive_[k] = {take(parts + 1), take(parts + 1), take(parts), take(parts), take(parts)};
  }
}

// Where the one copy of a list that is equal to `cuts` lies.
std::size_t RowEmitter::interned(const std::vector<std::int16_t>& cuts) {
  auto at = std::find(cut_lists_.begin(), cut_lists_.end(), cuts);
  if (at == cut_lists_.end()) at = cut_lists_.insert(cut_lists_.end(), cuts);
  return static_cast<std::size_t>(at - cut_lists_.begin());
}

// Calls visit(bucket, use) for every gradient that the part adds to. Use 1: a tied table's use by
// the head; all else is use 0.
template <class Visit>
void RowEmitter::contributions(const Part& part, Visit visit) const {
  const OpKind kind = part.op.kind;
  const bool backward =
      kind == OpKind::Backward || kind == OpKind::InputGradient || kind == OpKind::WeightGradient;
  const auto covered = segments(part);
  for (std::size_t i = 0; i < covered.size(); ++i) {
    const SegmentBuckets& of = buckets(part, begin_of(part) + i);
    switch (covered[i].kind) {
      case SegmentKind::Embedding:
        if (kind != OpKind::Backward && kind != OpKind::WeightGradient) break;
        if (of.own) visit(of.own, 0);
        if (of.table) visit(of.table, 0);
        break;
      case SegmentKind::Layer:
        if (backward) visit(of.own, 0);
        break;
      case SegmentKind::Head: {
        // Our loss computes the table's gradient with the forward, frameworks in the backward.
        const bool table = table_gradient_in_forward()
                               ? kind == OpKind::Forward
                               : kind == OpKind::Backward || kind == OpKind::WeightGradient;
        if (table && of.table) visit(of.table, 1);
        const bool own = kind == OpKind::Backward || kind == OpKind::InputGradient ||
                         (table && !of.table);  // an untied table lies in the head's own bucket
        if (own && of.own) visit(of.own, 0);
        break;
      }
    }
  }
}

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
    if (owner())
      state_[i] = bucket_value(ValueKind::OptimizerState, id,
                               precision.optimizer * elements / sharding, true);
  }
  if (reduce_each_microbatch()) open_of_unit_.assign(2 * n * static_cast<std::size_t>(m_), 0);
  for (const Part& part : parts_) {
    for (const auto& [about, use] : work(part).adds) {
      ++(reduce_each_microbatch() ? open_of_unit(about, use, part.op)
                                  : accumulator(about, use).open);
    }
  }
}

// ZeRO-3: alive at a part are the buckets that it reads and that the next `prefetch` reading parts
// read; window_[i] are those that enter before part i.
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
  const std::size_t ahead =
      keep_gathered() ? reading.size() : static_cast<std::size_t>(d_.plan.prefetch);
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
    const OpId op = collective(OpKind::Unshard, "dp", Stream::Dp, id);
    d_.ops[op.index()].instance = ++gathers_[id.index()];
    d_.after[op.index()] = last_compute_;
    d_.tie[op.index()] = op.value;  // as they enter
    const ValueId whole =
        bucket_value(ValueKind::FullParameter, id, element * bucket(id).padded, false);
    s_.values[whole.index()].instance = gathers_[id.index()];
    parameter_[id.index()] = whole;
    d_.operand(shard_[id.index()], Access::Read);
    d_.operand(whole, Access::Write);
  }
}

void RowEmitter::transfer(OpKind kind, Payload payload, Stage issuing, Stage sender,
                          const Op& about, ValueId what) {
  const bool gradient = payload == Payload::Gradient;
  const std::size_t slots = s_.segments.size() * static_cast<std::size_t>(m_);
  const std::size_t classes = s_.rows.size() / static_cast<std::size_t>(s_.placement.positions);
  const std::size_t at = sender.index() * static_cast<std::size_t>(m_) + unit(about);
  const std::size_t replica = row_.index() % classes;
  const Stage other = kind == OpKind::Send
                          ? (gradient ? Stage{sender.value - 1} : Stage{sender.value + 1})
                          : sender;
  Op op{.kind = kind,
        .stream = Stream::P2p,
        .payload = payload,
        .slice = about.slice,
        .stage = issuing,
        .microbatch = about.microbatch,
        .peer = s_.placement.position(other, about.microbatch),
        .group = pipeline_,
        .match = transfers_[((gradient ? slots : 0) + at) * classes + replica]};
  d_.add(row_, op, d_.estimates.transfer);
  d_.tie.back() = static_cast<std::int32_t>((gradient ? slots : 0) + at);
  d_.operand(what, kind == OpKind::Send ? Access::Read : Access::Write);
}

void RowEmitter::receive_inputs(const Part& part) {
  const Op& op = part.op;
  const std::int64_t bytes = activation_;
  if (op.kind == OpKind::Forward && part.index == 0 && !first_stage(op.stage)) {
    const Stage before{op.stage.value - 1};
    Op sent = op;
    sent.stage = before;
    if (remote(before, op.stage, op.microbatch)) {
      alive(op).x[0] = value(ValueKind::Activation, bytes, sent);
      transfer(OpKind::Recv, Payload::Activation, op.stage, before, op, alive(op).x[0]);
    } else {
      alive(op).x[0] = alive(sent).x.back();
    }
  }
  if (is_backward(op.kind) && covers_end(part) && !last_stage(op.stage)) {
    const Stage next{op.stage.value + 1};
    Op sent = op;
    sent.stage = next;
    if (remote(next, op.stage, op.microbatch)) {
      alive(op).d.back() = value(ValueKind::ActivationGradient, bytes, sent);
      transfer(OpKind::Recv, Payload::Gradient, op.stage, next, op, alive(op).d.back());
    } else {
      alive(op).d.back() = alive(sent).d[0];
    }
  }
}

void RowEmitter::send_outputs(const Part& part) {
  const Op& op = part.op;
  if (op.kind == OpKind::Forward && covers_end(part) && !last_stage(op.stage) &&
      remote(op.stage, {op.stage.value + 1}, op.microbatch)) {
    transfer(OpKind::Send, Payload::Activation, op.stage, op.stage, op, alive(op).x.back());
  }
  if (is_backward(op.kind) && part.index == 0 && !first_stage(op.stage) &&
      remote(op.stage, {op.stage.value - 1}, op.microbatch)) {
    transfer(OpKind::Send, Payload::Gradient, op.stage, op.stage, op, alive(op).d[0]);
  }
}

// Backwards: a weight gradient reads none.
std::vector<BucketId> RowEmitter::reads_of(const Part& part) const {
  const bool forward = part.op.kind == OpKind::Forward;
  std::vector<BucketId> list;
  const auto add = [&](BucketId id) {
    if (id && std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
  };
  const auto covered = segments(part);
  for (std::size_t g = covered.size(); g-- > 0;) {
    const SegmentBuckets& of = buckets(part, begin_of(part) + g);
    const bool table = forward || !table_gradient_in_forward();
    if (covered[g].kind == SegmentKind::Embedding) {
      if (!forward) continue;  // an embedding's backward reads no parameters
      add(of.own);
      add(of.table);
    } else {
      if (table) add(of.table);
      add(of.own);
    }
  }
  return list;
}

void RowEmitter::parameters(const Part& part) {
  for (const BucketId id : work(part).reads) d_.operand(parameter_[id.index()], Access::Read);
}

// Gradients that exist are updated, new ones are listed in fresh_ (written, after the outputs).
void RowEmitter::gradients(const Part& part) {
  fresh_.clear();
  for (const auto& [about, use] : work(part).adds) {
    Accumulator& to = accumulator(about, use);
    if (to.whole) {
      d_.operand(to.whole, Access::Update);
      continue;
    }
    to.whole = bucket_value(ValueKind::Gradient, about, 4 * bucket(about).padded, false);
    Value& made = s_.values[to.whole.index()];
    if (reduce_each_microbatch()) made.microbatch = part.op.microbatch;
    // Both uses of a tied table on one row: the head's is kept apart until they are added.
    if (use == 1 && tokens_ && targets_) made.instance = 1;
    fresh_.push_back(to.whole);
  }
}

// A slice's attention reads the keys and values that the slices before it have saved; its backward
// also adds to the gradients that are left for them. The last slice's backward, the first to run,
// makes these for all.
void RowEmitter::earlier_slices(const Part& part) {
  const Op& op = part.op;
  if (op.slice < 0 || !work(part).has_layers || d_.plan.runtime != Runtime::Rehearse) return;
  Op other = op;
  for (other.slice = 0; other.slice < op.slice; ++other.slice) {
    d_.operand(alive(other).slab_input[part.index], Access::Read);
  }
  if (op.kind != OpKind::Backward) return;
  const std::int64_t bytes = work(part).sizes.left_for_weight;
  for (other.slice = 0; other.slice <= op.slice; ++other.slice) {
    ValueId& left = alive(other).left[part.index];
    const bool made = static_cast<bool>(left);
    if (!made) {
      left = value(ValueKind::LeftForWeight, bytes, other);
      s_.values[left.index()].segment_begin = op.segment_begin;
      s_.values[left.index()].segment_end = op.segment_end;
    }
    d_.operand(left, made ? Access::Update : Access::Write);
  }
}

void RowEmitter::forward_operands(const Part& part) {
  const Op& op = part.op;
  Alive& state = alive(op);
  const bool loss = covers_end(part) && last_stage(op.stage);
  if (part.index == 0 && first_stage(op.stage)) {
    d_.operand(tokens_, Access::Read);
  } else {
    d_.operand(state.x[part.index], Access::Read);
  }
  if (loss) d_.operand(targets_, Access::Read);
  earlier_slices(part);
  parameters(part);
  gradients(part);
  const BodySizes& bytes = work(part).sizes;
  if (loss && loss_) d_.operand(loss_, Access::Update);
  if (!loss) {
    state.x[part.index + 1] = value(ValueKind::Activation, activation_, op);
    if (!covers_end(part)) {
      s_.values[state.x[part.index + 1].index()].segment_begin =
          static_cast<std::int16_t>(end_of(part));
    }
    d_.operand(state.x[part.index + 1], Access::Write);
  }
  const auto slab = [&](ValueKind kind, std::int64_t size) {
    if (size == 0) return ValueId{};
    const ValueId id = value(kind, size, op);
    s_.values[id.index()].segment_begin = op.segment_begin;
    s_.values[id.index()].segment_end = op.segment_end;
    d_.operand(id, Access::Write);
    return id;
  };
  state.slab_input[part.index] = slab(ValueKind::SavedForInput, bytes.saved_for_input);
  state.slab_weight[part.index] = slab(ValueKind::SavedForWeight, bytes.saved_for_weight);
  if (bytes.workspace > 0) {
    d_.operand(value(ValueKind::Workspace, bytes.workspace, op), Access::Workspace);
  }
  for (const ValueId id : fresh_) d_.operand(id, Access::Write);
  if (loss && !loss_) {
    loss_ = value(ValueKind::Metrics, 4);
    d_.operand(loss_, Access::Write);
  }
}

void RowEmitter::backward_operands(const Part& part) {
  const Op& op = part.op;
  Alive& state = alive(op);
  const bool weight = op.kind == OpKind::WeightGradient, input = op.kind == OpKind::InputGradient;
  const bool embedding = part.index == 0 && first_stage(op.stage);
  const auto read = [&](ValueId id) {
    if (id) d_.operand(id, Access::Read);
  };
  if (!(covers_end(part) && last_stage(op.stage))) read(state.d[part.index + 1]);
  if (embedding) {
    if (!input) d_.operand(tokens_, Access::Read);
  } else if (!weight) {
    read(state.x[part.index]);
  }
  if (!weight) read(state.slab_input[part.index]);
  // The attention output may lie in the slab for W and is read by I too.
  read(state.slab_weight[part.index]);
  if (weight) read(state.left[part.index]);
  earlier_slices(part);
  parameters(part);
  gradients(part);
  const BodySizes& bytes = work(part).sizes;
  if (!weight && !embedding) {
    state.d[part.index] = value(ValueKind::ActivationGradient, activation_, op);
    if (part.index > 0) {
      s_.values[state.d[part.index].index()].segment_begin =
          static_cast<std::int16_t>(begin_of(part));
    }
    d_.operand(state.d[part.index], Access::Write);
  }
  if (input && bytes.left_for_weight > 0) {
    state.left[part.index] = value(ValueKind::LeftForWeight, bytes.left_for_weight, op);
    s_.values[state.left[part.index].index()].segment_begin = op.segment_begin;
    s_.values[state.left[part.index].index()].segment_end = op.segment_end;
    d_.operand(state.left[part.index], Access::Write);
  }
  if (bytes.workspace > 0) {
    d_.operand(value(ValueKind::Workspace, bytes.workspace, op), Access::Workspace);
  }
  for (const ValueId id : fresh_) d_.operand(id, Access::Write);
}

// Sum over tp of the range that is partial, then over dp: all-reduce, or reduce-scatter into the
// own shard; per micro-batch the shard is added to what earlier ones left.
void RowEmitter::reduce(BucketId about, int use, Microbatch microbatch) {
  Accumulator& sum = accumulator(about, use);
  const Bucket& of = bucket(about);
  const bool each = reduce_each_microbatch();
  if (of.partial > 0) {
    collective(OpKind::AllReduce, "tp", Stream::Compute, about);
    d_.operand(sum.whole, Access::Update);
  }
  if (shards() == 1) {
    sum.reduced = sum.whole;
    return;
  }
  if (server()) {
    collective(OpKind::Reduce, "dp", Stream::Dp, about,
               d_.shared_match(Meeting::Server, about.value, use));
    d_.operand(sum.whole, Access::Update);
    sum.reduced = sum.whole;
    return;
  }
  const bool scatter = d_.plan.zero_stage >= 1;
  collective(scatter ? OpKind::ReduceScatter : OpKind::AllReduce, "dp", Stream::Dp, about);
  if (!each) {
    d_.operand(sum.whole, Access::Update);
    sum.reduced = sum.whole;
    return;
  }
  d_.ops.back().instance = microbatch.value;
  const ValueId part = bucket_value(ValueKind::Gradient, about, 4 * of.padded / shards(), false);
  s_.values[part.index()].shard = true;
  s_.values[part.index()].instance = s_.values[sum.whole.index()].instance;
  d_.operand(sum.whole, Access::Read);
  d_.operand(part, Access::Write);
  sum.whole = {};
  if (!sum.reduced) {
    sum.reduced = part;
    return;
  }
  s_.values[part.index()].microbatch = microbatch;
  Op add{.kind = OpKind::Add, .stream = Stream::Dp, .bucket = about, .instance = microbatch.value};
  d_.add(row_, add, d_.estimates.other);
  d_.tie.back() = static_cast<std::int32_t>(s_.buckets.size()) - about.value;
  d_.operand(part, Access::Read);
  d_.operand(sum.reduced, Access::Update);
}

void RowEmitter::contributed(const Part& part) {
  std::vector<std::pair<BucketId, int>> ready;
  for (const auto& [about, use] : work(part).adds) {
    std::int32_t& open =
        reduce_each_microbatch() ? open_of_unit(about, use, part.op) : accumulator(about, use).open;
    if (--open == 0) ready.emplace_back(about, use);
  }
  std::sort(ready.begin(), ready.end(), [](const auto& a, const auto& b) {  // forward order
    return a.first != b.first ? a.first < b.first : a.second < b.second;
  });
  for (const auto& [about, use] : ready) {
    if (held_) {
      deferred_.push_back(about);
      deferred_use_.push_back(use);
    } else {
      reduce(about, use, part.op.microbatch);
    }
  }
}

// One issued op: a part, or an OVERLAP pair of two whole ops.
void RowEmitter::compute(std::size_t begin, std::size_t end) {
  const bool pair = end - begin == 2;
  for (std::size_t i = begin; i < end; ++i) {
    receive_inputs(parts_[i]);
    open_window(i);
  }
  Op op = parts_[begin].op;
  std::int64_t duration = 0;
  for (std::size_t i = begin; i < end; ++i) duration += work(parts_[i]).duration;
  if (pair) {
    op = {.kind = OpKind::Overlap,
          .stage = op.stage,
          .microbatch = op.microbatch,
          .child = static_cast<std::int32_t>(s_.children.size())};
    for (std::size_t i = begin; i < end; ++i) s_.children.push_back(parts_[i].op);
  }
  op.stream = Stream::Compute;
  last_compute_ = d_.add(row_, op, duration);
  for (std::size_t i = begin; i < end; ++i) {
    if (parts_[i].op.kind == OpKind::Forward) {
      forward_operands(parts_[i]);
    } else {
      backward_operands(parts_[i]);
    }
  }
  for (std::size_t i = begin; i < end; ++i) send_outputs(parts_[i]);
  const std::size_t first = d_.ops.size();
  for (std::size_t i = begin; i < end; ++i) contributed(parts_[i]);
  for (std::size_t i = first; i < d_.ops.size(); ++i) {
    if (d_.ops[i].stream == Stream::Compute) last_compute_ = {static_cast<std::int32_t>(i)};
  }
}

// Norm, clipping, optimizer; what is reduced after all compute; gathers that are not overlapped.
void RowEmitter::finish_step() {
  for (std::size_t i = 0; i < deferred_.size(); ++i) reduce(deferred_[i], deferred_use_[i], {});
  const std::size_t n = s_.buckets.size();
  const std::int32_t replica = s_.rows[row_.index()].data_begin;
  std::vector<ValueId> gradient(n);
  for (std::size_t i = n; i-- > 0;) {
    const BucketId id{static_cast<std::int32_t>(i)};
    if (bucket(id).position != position_) continue;
    Accumulator& own = accumulator(id, 0);
    Accumulator& head = accumulator(id, 1);
    if (own.reduced && head.reduced) {  // both uses of a tied table: added in order of use
      d_.add(row_, {.kind = OpKind::Add, .stream = Stream::Dp, .bucket = id}, d_.estimates.other);
      d_.tie.back() = static_cast<std::int32_t>(n) - id.value;
      d_.operand(head.reduced, Access::Read);
      d_.operand(own.reduced, Access::Update);
    }
    gradient[i] = own.reduced ? own.reduced : head.reduced;
    if (server() && !owner()) continue;
    if (!s_.placement.up.empty()) {  // the stage's other replica
      collective(OpKind::AllReduce, "mirror", Stream::Dp, id,
                 d_.shared_match(Meeting::Mirror, d_.identity_of[i], replica));
      d_.operand(gradient[i], Access::Update);
    } else if (bucket(id).tied && group("embed")) {
      collective(OpKind::AllReduce, "embed", Stream::Dp, id,
                 d_.shared_match(Meeting::Embed, 0, replica));
      d_.operand(gradient[i], Access::Update);
    }
  }
  const std::int32_t tensors = d_.num_tensors + 1;  // a slot each, one more for the loss
  d_.add(row_, {.kind = OpKind::GradNorm, .stream = Stream::Compute}, d_.estimates.other);
  last_compute_ = {static_cast<std::int32_t>(d_.ops.size()) - 1};
  if (owner()) {
    for (std::size_t i = n; i-- > 0;) {
      if (gradient[i]) d_.operand(gradient[i], Access::Read);
    }
  }
  if (loss_) d_.operand(loss_, Access::Read);
  const ValueId norms = value(ValueKind::Metrics, 8 * tensors);
  s_.values[norms.index()].instance = 0;
  d_.operand(norms, Access::Write);
  if (d_.plan.gpus() > 1) {
    collective(OpKind::AllReduce, "world", Stream::Dp, {}, d_.shared_match(Meeting::World, 0, 0));
    d_.operand(norms, Access::Update);
  }
  const ValueId host = value(ValueKind::Metrics, 8 * tensors);
  s_.values[host.index()].home = Home::Host;
  s_.values[host.index()].instance = 0;
  d_.add(row_, {.kind = OpKind::Offload, .stream = Stream::D2h}, d_.estimates.other);
  d_.operand(norms, Access::Read);
  d_.operand(host, Access::Write);
  for (std::size_t i = 0; i < n; ++i) {
    const BucketId id{static_cast<std::int32_t>(i)};
    if (bucket(id).position != position_ || !owner()) continue;
    d_.add(row_, {.kind = OpKind::OptimizerStep, .stream = Stream::Compute, .bucket = id},
           d_.estimates.other);
    d_.operand(gradient[i], Access::Read);
    d_.operand(norms, Access::Read);
    d_.operand(state_[i], Access::Update);
    d_.operand(sharded_parameters() ? shard_[i] : parameter_[i], Access::Update);
    const bool gathered = (d_.plan.zero_stage == 1 || d_.plan.zero_stage == 2) && shards() > 1;
    if (gathered && !d_.plan.overlap_parameter_gather) {
      collective(OpKind::AllGather, "dp", Stream::Dp, id);
      d_.operand(parameter_[i], Access::Update);
    }
  }
  if (server()) {
    for (std::size_t i = 0; i < n; ++i) {
      const BucketId id{static_cast<std::int32_t>(i)};
      if (bucket(id).position != position_) continue;
      collective(OpKind::Broadcast, "dp", Stream::Dp, id,
                 d_.shared_match(Meeting::Broadcast, id.value, 0));
      d_.operand(parameter_[i], Access::Update);
    }
  }
}

void RowEmitter::run() {
  held_ = !d_.plan.overlap_gradient_reduce && !reduce_each_microbatch();
  prepare_parts();
  prepare_states();
  prepare_windows();
  const std::int64_t bytes = 4 * static_cast<std::int64_t>(m_) * shape_.tokens;
  for (const bool targets : {false, true}) {
    const Stage stage{targets ? s_.placement.stages() - 1 : 0};
    const bool here = s_.placement.down[stage.index()] == position_ ||
                      (!s_.placement.up.empty() && s_.placement.up[stage.index()] == position_);
    if (!here) continue;
    const std::int32_t instance = targets ? 1 : 0;
    const ValueId host = value(ValueKind::Input, bytes);
    s_.values[host.index()].home = Home::Host;
    s_.values[host.index()].instance = instance;
    const ValueId device = value(ValueKind::Input, bytes);
    s_.values[device.index()].instance = instance;
    (targets ? targets_ : tokens_) = device;
    d_.add(row_, {.kind = OpKind::Fetch, .stream = Stream::H2d, .instance = instance},
           d_.estimates.other);
    d_.operand(host, Access::Read);
    d_.operand(device, Access::Write);
  }
  const bool gathered = (d_.plan.zero_stage == 1 || d_.plan.zero_stage == 2) && shards() > 1;
  if (gathered && d_.plan.overlap_parameter_gather) {  // in order of first use
    for (std::size_t i = 0; i < s_.buckets.size(); ++i) {
      const BucketId id{static_cast<std::int32_t>(i)};
      if (bucket(id).position != position_) continue;
      collective(OpKind::AllGather, "dp", Stream::Dp, id);
      d_.tie.back() = -static_cast<std::int32_t>(s_.buckets.size()) + id.value;
      d_.operand(parameter_[i], Access::Update);
    }
  }
  const auto program = order_.program(Row{position_.value});
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (program[i].kind == OpKind::Overlap) {
      compute(op_begin_[i], op_begin_[i + 1]);
    } else {
      for (std::size_t p = op_begin_[i]; p < op_begin_[i + 1]; ++p) compute(p, p + 1);
    }
  }
  finish_step();
}

// Groups by name; a group of one rank does not exist.
std::vector<Group> make_groups(const Draft& draft) {
  const Plan& plan = draft.plan;
  const Placement& placement = draft.schedule.placement;
  std::vector<Group> groups;
  std::vector<Row> all;
  for (std::size_t r = 0; r < draft.schedule.rows.size(); ++r) {
    all.push_back({static_cast<std::int32_t>(r)});
  }
  const auto add = [&](std::string name, std::int32_t size, std::vector<Row> rows) {
    if (size > 1) groups.push_back({std::move(name), size, std::move(rows)});
  };
  add("tp", plan.tensor_parallel, all);
  add("cp", plan.context_parallel, all);
  add("dp", plan.data_parallel * plan.context_parallel, all);
  add("pp", plan.pipeline_parallel, all);
  if (!placement.up.empty()) {
    add("mirror", 2, all);
  } else if (draft.model.tied_embedding && placement.down.front() != placement.down.back()) {
    std::vector<Row> ends;
    for (const Row row : all) {
      const Position at = draft.schedule.rows[row.index()].position;
      if (at == placement.down.front() || at == placement.down.back()) ends.push_back(row);
    }
    add("embed", 2, ends);
  }
  add("world", plan.gpus(), all);
  return groups;
}

}  // namespace

void emit(Draft& draft, const Schedule& order) {
  Schedule& s = draft.schedule;
  const BodyTable bodies = body_table(draft, std::max(order.slices, 1));
  s.groups = make_groups(draft);
  const std::size_t classes = s.rows.size() / static_cast<std::size_t>(s.placement.positions);
  const std::size_t units = static_cast<std::size_t>(order.microbatches) *
                            static_cast<std::size_t>(std::max(order.slices, 1));
  std::vector<MatchId> transfers(2 * s.segments.size() * units * classes);
  for (MatchId& match : transfers) match = draft.new_match();
  // About: two transfers beside every compute op, two operands each, one of them new.
  const std::size_t ops = (3 * order.ops.size() + 16 * s.segments.size() + 64) * classes;
  draft.reserve(ops, 5 * ops / 2);
  s.values.reserve(ops);
  for (std::size_t r = 0; r < s.rows.size(); ++r) {
    RowEmitter(draft, bodies, order, Row{static_cast<std::int32_t>(r)}, transfers).run();
  }
}

}  // namespace rehearse
