// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/pricing.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "schedules/body/sizes.h"
#include "schedules/ir/payload.h"
#include "schedules/ranks/group_key.h"
#include "sim/compute/expert_load.h"
#include "sim/cost/overlap.h"
#include "sim/cost/to_nanoseconds.h"
#include "sim/network/collective_cost.h"
#include "sim/network/dispatch_cost.h"
#include "sim/network/transfer_cost.h"
#include "sim/predict/muon_cost.h"
#include "sim/predict/pair_bodies.h"

namespace rehearse::sim {
namespace {

// The collectives inside bodies, on the groups of row 0: each group placed once, and what is equal
// priced once.
class BodyCollectives {
 public:
  BodyCollectives(const Network& network, const Layout& layout)
      : network_(network),
        dispatcher_(static_cast<Dispatcher>(layout.plan.expert_dispatch)),
        hidden_(layout.shape.hidden),
        tokens_(layout.shape.experts.tokens),
        balance_(balance_of(layout)) {}

  const GroupShape& group(Axis axis) {
    std::optional<GroupShape>& shape = shapes_[static_cast<std::size_t>(axis)];
    if (!shape) shape = network_.group(RankClass{0}, axis);
    return *shape;
  }

  const CollectiveCost& cost(NodeKind kind, Axis axis, Bytes payload) {
    const Key key{static_cast<std::int64_t>(kind), static_cast<std::int64_t>(axis), payload.value};
    const auto [at, fresh] = known_.try_emplace(key);
    if (fresh) {
      at->second = price(kind, group(axis), payload);
    }
    return at->second;
  }

 private:
  using Key = std::array<std::int64_t, 3>;

  CollectiveCost price(NodeKind kind, const GroupShape& group, Bytes payload) const {
    switch (kind) {
      case NodeKind::RingExchange:
        return ring_shift_cost(payload, group, network_);
      case NodeKind::Dispatch:
      case NodeKind::Combine: {
        const double values = static_cast<double>(hidden_ * tokens_ * balance_.routing.per_token);
        return dispatch_cost(dispatcher_,
                             {.tokens = tokens_,
                              .hidden = hidden_,
                              .bytes_per_value = static_cast<double>(payload.value) / values,
                              .routing = balance_.routing,
                              .load = balance_.rows(static_cast<double>(tokens_)).busiest},
                             group, network_)
            .cost;
      }
      default:
        return collective_cost(collective_kind(kind), payload, group, network_);
    }
  }

  const Network& network_;
  Dispatcher dispatcher_;
  std::int64_t hidden_, tokens_;  // h, n
  ExpertBalance balance_;
  std::array<std::optional<GroupShape>, kNumAxes> shapes_;
  std::map<Key, CollectiveCost> known_;
};

// A body with its price and what it sends, once per segment kind, direction, experts and slice.
struct PricedBody {
  BodyCost cost;
  ExpertPieces pieces;  // for where it runs as half of a pair
  std::vector<Traffic> traffic;
};

// What tells costs apart. Compute: kind, stage and part; communication: kind, bytes, row, peer.
using CostKey = std::array<std::int64_t, 7>;

// Key to cost, by open addressing: every op of a schedule is looked up once.
class KnownCosts {
 public:
  // Where the key's cost is written; -1: not known yet. Valid until the next call.
  std::int32_t& operator[](const CostKey& key) {
    if (2 * used_ >= entries_.size()) grow();
    Entry& entry = find(key);
    if (!entry.taken) {
      entry = {.key = key, .cost = -1, .taken = true};
      ++used_;
    }
    return entry.cost;
  }

 private:
  struct Entry {
    CostKey key{};
    std::int32_t cost = -1;
    bool taken = false;
  };
  Entry& find(const CostKey& key) {
    std::uint64_t hash = 0;
    for (const std::int64_t part : key) {
      hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    std::size_t at = hash & (entries_.size() - 1);
    while (entries_[at].taken && entries_[at].key != key) at = (at + 1) & (entries_.size() - 1);
    return entries_[at];
  }
  void grow() {
    std::vector<Entry> old(std::max<std::size_t>(2 * entries_.size(), 256));
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.taken) find(entry.key) = entry;
    }
  }

  std::vector<Entry> entries_;  // a power of two of them
  std::size_t used_ = 0;
};

class Pricer {
 public:
  Pricer(const Schedule& schedule, const Layout& layout, const ComputeModel& compute,
         const Network& network)
      : s_(schedule),
        layout_(layout),
        plan_(layout.plan),
        compute_(compute),
        network_(network),
        collectives_(network, layout) {
    if (layout.plan.optimizer == Optimizer::Muon) muon_.emplace(schedule, layout, compute, network);
  }

  Pricing run() {
    // A CPU's ranks share its workers: one more resource.
    out_.table.num_resources = network_.num_resources() + (on_workers() ? 1 : 0);
    out_.table.of_op.reserve(s_.ops.size());
    for (std::int32_t r = 0; r < s_.num_rows(); ++r) {
      row_ = {r};
      links_ = network_.counterparts(RankClass{0}, row_);
      recent_.fill({});
      for (std::int32_t i = s_.row_begin[row_.index()]; i < s_.row_begin[row_.index() + 1]; ++i) {
        out_.table.of_op.push_back(cost_of(OpId{i}));
      }
    }
    return std::move(out_);
  }

 private:
  const PricedBody& body(SegmentInfo segment, Direction direction, std::int32_t slice) {
    const BodyShape shape = body_shape(layout_.model, segment, direction, slice);
    const auto [at, fresh] = bodies_.try_emplace(shape);
    PricedBody& made = at->second;
    if (!fresh) return made;
    const Body body = make_body(layout_, shape);
    made.cost = compute_.price(body);
    made.pieces = sends_tokens(body)
                      ? cut_at_experts(body, compute_.price_nodes(body), made.cost.time)
                      : ExpertPieces{.before = static_cast<double>(made.cost.time.value)};
    for (const Node& node : body.nodes) {
      const OpKind kind = collective_kind(node.kind());
      if (kind == OpKind::Forward || node.bytes == 0) continue;
      const CollectiveCost& cost = collectives_.cost(node.kind(), node.axis, {node.bytes});
      if (cost.time.value == 0) continue;
      add_traffic(made.traffic, {.group = kind_along(node.axis),
                                 .kind = kind,
                                 .ranks = collectives_.group(node.axis).ranks,
                                 .count = 1,
                                 .bytes = node.bytes,
                                 .time = cost.time,
                                 .link = cost.link,
                                 .links = kinds_of(collectives_.group(node.axis).links)});
    }
    return made;
  }

  // What an op sends of one kind over one group is one entry.
  static void add_traffic(std::vector<Traffic>& all, const Traffic& sent) {
    for (Traffic& same : all) {
      if (same.kind != sent.kind || same.link != sent.link || same.group != sent.group) continue;
      same.count += sent.count;
      same.bytes += sent.bytes;
      add_time(same.time, sent.time);
      return;
    }
    all.push_back(sent);
  }

  // Bodies that ops run one after another, as one, and what they send.
  struct Sum {
    BodyCost cost;
    std::vector<Traffic> traffic;
  };
  using Bodies = std::vector<const PricedBody*>;

  void collect(const Op& op, Bodies& bodies) {
    const auto& segments = s_.segments[op.stage.index()];
    const std::size_t end =
        op.segment_end < 0 ? segments.size() : static_cast<std::size_t>(op.segment_end);
    for (std::size_t g = static_cast<std::size_t>(op.segment_begin); g < end; ++g) {
      bodies.push_back(&body(segments[g], direction_of(op.kind), op.slice));
    }
  }
  // Most stages run the same bodies: added up once.
  const Sum& sum_of(const Bodies& bodies) {
    const auto [at, fresh] = sums_.try_emplace(bodies);
    Sum& made = at->second;
    if (!fresh) return made;
    std::vector<const BodyCost*> costs;
    for (const PricedBody* one : bodies) {
      costs.push_back(&one->cost);
      for (const Traffic& sent : one->traffic) add_traffic(made.traffic, sent);
    }
    made.cost = sum(costs);
    return made;
  }

  bool on_workers() const { return compute_.sharing().workers > 0; }
  std::int32_t ranks() const { return s_.rows[row_.index()].multiplicity; }
  // Groups of `members` ranks that the row's ranks take part in: inside the row, or across rows.
  static constexpr std::int32_t kAcrossRows = 0;
  std::int32_t groups_of(std::int32_t members) const {
    return members == kAcrossRows ? ranks() : std::max(1, ranks() / members);
  }

  // On a CPU: what every rank of the row computes, then what groups of `members` of them exchange,
  // each with a thread of every process that it is in.
  WorkerUse use_of(std::int64_t computing, double shared, std::int64_t exchanging,
                   std::int32_t members, std::int32_t processes = 1) const {
    const WorkerSharing& sharing = compute_.sharing();
    return worker_use(sharing, computing + sharing.op_ns, shared, ranks(), exchanging,
                      groups_of(members) * std::min(processes, sharing.workers));
  }
  // `waits`: exchanges are idle time of the op (a body's), not the op itself.
  std::int32_t add_on_workers(const WorkerUse& use, bool waits, CostLevel level,
                              std::array<double, kNumCostLevels> share,
                              std::vector<Traffic> traffic) {
    const Demand workers{ResourceId{out_.table.num_resources - 1}, use.share};
    return add({.time = {use.computing_ns + use.exchanging_ns},
                .communicating = {waits ? use.exchanging_ns : 0},
                .level = level},
               {&workers, 1}, share, std::move(traffic));
  }

  std::int32_t add(Cost cost, std::span<const Demand> demands,
                   std::array<double, kNumCostLevels> share, std::vector<Traffic> traffic) {
    cost.demand_begin = static_cast<std::int32_t>(out_.table.demands.size());
    out_.table.demands.insert(out_.table.demands.end(), demands.begin(), demands.end());
    cost.demand_end = static_cast<std::int32_t>(out_.table.demands.size());
    out_.table.costs.push_back(cost);
    out_.level_share.push_back(share);
    out_.traffic.push_back(std::move(traffic));
    return static_cast<std::int32_t>(out_.table.costs.size()) - 1;
  }
  static std::array<double, kNumCostLevels> all(CostLevel level) {
    std::array<double, kNumCostLevels> share{};
    share[static_cast<std::size_t>(level)] = 1;
    return share;
  }
  std::int32_t add_body(const BodyCost& body, std::vector<Traffic> traffic) {
    std::array<double, kNumCostLevels> share = body.level_ns;
    double sum = 0;
    for (const double part : share) sum += part;
    for (double& part : share) part = sum > 0 ? part / sum : 0;
    if (sum <= 0) share = all(body.level);
    if (on_workers()) {
      const bool tensor = plan_.tensor_parallel > 1;
      const WorkerUse use =
          use_of((body.time - body.communicating).value, body.shared, body.communicating.value,
                 tensor ? plan_.tensor_parallel : plan_.context_parallel,
                 network_.group(row_, tensor ? Axis::Tensor : Axis::Context).processes);
      return add_on_workers(use, true, body.level, share, std::move(traffic));
    }
    // Bodies are priced on row 0's links; every row has links of its own, if it has them at all.
    return add({.time = body.time,
                .communicating = body.communicating,
                .imbalanced = body.imbalanced,
                .level = body.level},
               moved_to(links_, body.demands), share, std::move(traffic));
  }

  std::int32_t compute_cost(const Op& op) {
    Bodies bodies;
    if (op.kind != OpKind::Overlap) {
      collect(op, bodies);
      const Sum& all = sum_of(bodies);
      return add_body(with_clearing(all.cost), all.traffic);
    }
    const auto child = static_cast<std::size_t>(op.child);
    collect(s_.children[child], bodies);
    const std::size_t first = bodies.size();
    collect(s_.children[child + 1], bodies);
    const Sum& pair = sum_of(bodies);
    // The CPU runs one half after the other.
    if (on_workers()) return add_body(with_clearing(pair.cost), pair.traffic);
    const bool forward_first = direction_of(s_.children[child].kind) == Direction::Forward;
    const std::span all{bodies};
    return add_body(forward_first ? paired(pair.cost, all.first(first), all.subspan(first))
                                  : paired(pair.cost, all.subspan(first), all.first(first)),
                    pair.traffic);
  }

  // Both bodies at once on one device. Where tokens travel to experts, two streams run side by side
  // in the pair's order (pair_overlap.h). Else kernels run one after another, each waiting for
  // collectives while the other computes: the time is what computes, or what communicates,
  // whichever is longer, and what is hidden costs a share of itself, as any hidden collective does.
  BodyCost paired(BodyCost both, std::span<const PricedBody* const> forward,
                  std::span<const PricedBody* const> backward) const {
    const auto pieces_of = [](std::span<const PricedBody* const> bodies) {
      std::vector<ExpertPieces> pieces;
      for (const PricedBody* one : bodies) pieces.push_back(one->pieces);
      return pieces;
    };
    const std::vector<ExpertPieces> f = pieces_of(forward), b = pieces_of(backward);
    if (std::ranges::any_of(f, &ExpertPieces::travels) ||
        std::ranges::any_of(b, &ExpertPieces::travels)) {
      const KernelScalars& scalars = compute_.scalars();
      const PairCost cost = pair_cost(pair_up(f, b), {.compute = scalars.dispatch_slowdown,
                                                      .communication = scalars.dispatch_stretch});
      both.time = to_nanoseconds(cost.time);
      both.communicating = to_nanoseconds(cost.exposed);
      return both;
    }
    const std::int64_t computing = both.time.value - both.communicating.value;
    const Hidden hidden =
        hide(static_cast<double>(both.communicating.value), static_cast<double>(computing),
             compute_.scalars().hidden_contention);
    both.communicating.value = static_cast<std::int64_t>(hidden.exposed);
    both.time.value =
        computing + both.communicating.value + static_cast<std::int64_t>(hidden.contention);
    return both;
  }

  // Gradients that the op is the first to write: our executor sets them to zero before it adds.
  std::int64_t cleared_bytes() const {
    if (!on_workers()) return 0;
    std::int64_t bytes = 0;
    for (const Operand& operand : s_.operands_of(current_)) {
      const Value& value = s_.values[operand.value.index()];
      if (value.kind == ValueKind::Gradient && operand.access == Access::Write) {
        bytes += value.bytes.value;
      }
    }
    return bytes;
  }
  BodyCost with_clearing(BodyCost body) const {
    const std::int64_t bytes = cleared_bytes();
    if (bytes > 0) add_time(body.time, compute_.clear({bytes}));
    return body;
  }

  std::int32_t transfer(const Op& op) {
    const RankClass to = row_at(op.peer, row_);
    const bool send = op.kind == OpKind::Send;
    const Path path = send ? network_.path(row_, to) : network_.path(to, row_);
    const bool from_before = (op.payload == Payload::Gradient) == send;
    const Bytes whole{layout_.handover_bytes(op.stage.value - (from_before ? 1 : 0))};
    const TransferCost cost =
        handover_cost(plan_, whole, path, network_.group(send ? to : row_, Axis::Tensor), network_);
    std::vector<Traffic> traffic;
    if (send) {
      traffic.push_back({.group = GroupKind::Pipeline,
                         .kind = OpKind::Send,
                         .ranks = 2,
                         .count = 1,
                         .bytes = payload_of(s_, current_).bytes(),
                         .time = cost.time,
                         .link = cost.link,
                         .links = kinds_of(path.out)});
    }
    if (on_workers()) {
      return add_on_workers(use_of(0, 1, cost.time.value, kAcrossRows), false, cost.level,
                            all(cost.level), std::move(traffic));
    }
    return add({.time = cost.time, .level = cost.level}, send ? cost.send : cost.recv,
               all(cost.level), std::move(traffic));
  }

  RankClass row_at(Position position, RankClass like) const {
    const std::int32_t classes = s_.num_rows() / s_.placement.positions;
    return {position.value * classes + like.value % classes};
  }

  std::int32_t collective(const Op& op) {
    const GroupShape shape = network_.group(row_, s_, op.group);
    OpKind kind = op.kind == OpKind::Unshard ? OpKind::AllGather : op.kind;
    const Bytes payload{payload_of(s_, current_).bytes()};
    std::int64_t bytes = payload.value;
    // A parameter server receives every replica's gradients, and sends every replica the
    // parameters: all of it through the links of one GPU (Li et al., OSDI 2014).
    if (!on_workers() && plan_.data_parallel_algorithm == DataParallelAlgorithm::ParameterServer &&
        (kind == OpKind::Reduce || kind == OpKind::Broadcast)) {
      kind = kind == OpKind::Reduce ? OpKind::Gather : OpKind::Scatter;
      bytes *= shape.ranks;
    }
    OpKind sent = op.kind == OpKind::Unshard ? OpKind::AllGather : op.kind;
    CollectiveCost cost;
    if (kind == OpKind::ReduceScatter &&
        plan_.runtime.gradient_reduction == GradientReduction::AllReduceFp32) {
      sent = OpKind::AllReduce;
      cost = whole_fp32_sum(payload, shape);
    } else {
      cost = collective_cost(kind, {bytes}, shape, network_);
    }
    std::vector<Traffic> traffic{{.group = s_.group_of(op).kind,
                                  .kind = sent,
                                  .ranks = shape.ranks,
                                  .count = 1,
                                  .bytes = payload.value,
                                  .time = cost.time,
                                  .link = cost.link,
                                  .links = kinds_of(shape.links)}};
    if (on_workers()) {
      const RowMembers in_row = traits(s_.group_of(op).kind).row_members;
      const std::int32_t members = in_row == RowMembers::One     ? kAcrossRows
                                   : in_row == RowMembers::Ranks ? ranks()
                                                                 : shape.ranks;
      return add_on_workers(use_of(0, 1, cost.time.value, members, shape.processes), false,
                            cost.level, all(cost.level), std::move(traffic));
    }
    const bool beside = op.stream != Stream::Compute;
    return add({.time = cost.time,
                .slowdown = beside ? compute_.scalars().overlap_slowdown : 0.0,
                .level = cost.level},
               cost.demands, all(cost.level), std::move(traffic));
  }

  // Gradients are flattened, cast to fp32, divided, summed whole and copied back: 24 B per
  // parameter beside the collective.
  CollectiveCost whole_fp32_sum(Bytes sum, const GroupShape& shape) const {
    CollectiveCost cost = collective_cost(OpKind::AllReduce, sum, shape, network_);
    const Nanoseconds wire = cost.time;
    cost.time += compute_.elementwise({6 * sum.value});
    for (Demand& demand : cost.demands) {
      demand.share *= static_cast<double>(wire.value) / static_cast<double>(cost.time.value);
    }
    return cost;
  }

  std::int64_t updated_elements(const Bucket& bucket) const {
    return s_.owned_elements(bucket, plan_.zero_stage);
  }

  std::int32_t ranks_per_node() const {
    return std::min(plan_.gpus(), network_.cluster().gpus_per_node);
  }

  std::int32_t local(const Op& op) {
    Nanoseconds time{};
    if (op.kind == OpKind::OptimizerStep && op.stream != Stream::Compute) {
      const Bytes moved = compute_.optimizer_bytes(updated_elements(s_.buckets[op.bucket.index()]));
      return add({.time = host_update_time(moved, ranks_per_node(), network_)}, {},
                 all(CostLevel::Formula), {});
    }
    if (op.kind == OpKind::OptimizerStep) {
      time = compute_.optimizer_step(updated_elements(s_.buckets[op.bucket.index()]));
      if (muon_) time += muon_->of(op.bucket, row_);
    } else if (op.kind == OpKind::GradNorm) {
      std::int64_t elements = 0;
      for (const Operand& operand : s_.operands_of(current_)) {
        const Value& value = s_.values[operand.value.index()];
        if (value.bucket) elements += updated_elements(s_.buckets[value.bucket.index()]);
      }
      time = compute_.gradient_norm(elements);
    } else if (op.kind == OpKind::Add) {
      const std::int64_t bytes = s_.values[s_.operands_of(current_)[0].value.index()].bytes.value;
      time = compute_.elementwise({3 * bytes});
    } else {
      const Path path = network_.to_host(row_);
      const bool out = op.kind == OpKind::Offload;
      const TransferCost copy =
          host_copy_cost({payload_of(s_, current_).bytes()}, out, path, network_);
      if (on_workers()) {
        return add_on_workers(use_of(copy.time.value, 1, 0, kAcrossRows), false, copy.level,
                              all(copy.level), {});
      }
      return add({.time = copy.time, .level = copy.level}, out ? copy.send : copy.recv,
                 all(copy.level), {});
    }
    if (on_workers()) {
      return add_on_workers(use_of(time.value, compute_.sharing().memory_bound, 0, kAcrossRows),
                            false, CostLevel::Interpolated, all(CostLevel::Interpolated), {});
    }
    return add({.time = time}, {}, all(CostLevel::Formula), {});
  }

  // Ops of a row come in few kinds: most cost what the last one like it did.
  struct Recent {
    const Op* op = nullptr;
    std::int32_t cost = -1;
  };
  static bool repeats(OpKind kind) {
    const OpClass op_class = traits(kind).op_class;
    return (op_class == OpClass::Compute && kind != OpKind::Overlap) ||
           op_class == OpClass::Transfer;
  }
  static bool costs_the_same(const Op& a, const Op& b) {
    return a.kind == b.kind && a.payload == b.payload && a.stage == b.stage && a.slice == b.slice &&
           a.segment_begin == b.segment_begin && a.segment_end == b.segment_end && a.peer == b.peer;
  }

  std::int32_t cost_of(OpId id) {
    const Op& op = s_.ops[id.index()];
    if (on_workers() || !repeats(op.kind)) return known_cost_of(id);  // operands count there
    Recent& recent = recent_[(static_cast<std::size_t>(op.kind) * 4 +
                              static_cast<std::size_t>(op.payload) + op.stage.index() * 32) %
                             recent_.size()];
    if (recent.op == nullptr || !costs_the_same(*recent.op, op)) {
      recent = {&op, known_cost_of(id)};
    }
    return recent.cost;
  }

  std::int32_t known_cost_of(OpId id) {
    current_ = id;
    const Op& op = s_.ops[id.index()];
    CostKey key{static_cast<std::int64_t>(op.kind) * 8 + static_cast<std::int64_t>(op.payload),
                row_.value};
    switch (traits(op.kind).op_class) {
      case OpClass::Compute:
        key[2] = op.segment_begin;
        key[3] = op.segment_end;
        key[4] = op.stage.value;
        key[5] = op.slice;
        key[6] = cleared_bytes();
        if (op.kind == OpKind::Overlap) {
          const auto child = static_cast<std::size_t>(op.child);
          const Op &a = s_.children[child], &b = s_.children[child + 1];
          key[2] = b.stage.value;
          key[3] = static_cast<std::int64_t>(a.kind) * 32 + static_cast<std::int64_t>(b.kind);
          key[4] = a.stage.value;
        }
        break;
      case OpClass::Transfer:
        key[2] = op.peer.value;
        break;
      case OpClass::Collective:
        key[2] = op.group.value;
        key[3] = payload_of(s_, id).bytes();
        key[4] = static_cast<std::int64_t>(op.stream);
        break;
      default:
        key[2] = id.value;
        break;  // few per step: priced one by one
    }
    std::int32_t& cost = known_[key];
    if (cost < 0) cost = priced(op);
    return cost;
  }

  std::int32_t priced(const Op& op) {
    switch (traits(op.kind).op_class) {
      case OpClass::Compute:
        return compute_cost(op);
      case OpClass::Transfer:
        return transfer(op);
      case OpClass::Collective:
        return collective(op);
      default:
        return local(op);
    }
  }

  const Schedule& s_;
  const Layout& layout_;
  const Plan& plan_;
  const ComputeModel& compute_;
  const Network& network_;
  BodyCollectives collectives_;
  std::optional<MuonCost> muon_;
  Pricing out_;
  RankClass row_{0};
  OpId current_{};
  std::vector<Counterpart> links_;  // of row 0 on this row
  std::array<Recent, 256> recent_;
  std::map<BodyShape, PricedBody> bodies_;
  std::map<Bodies, Sum> sums_;
  KnownCosts known_;
};

}  // namespace

CollectiveTimes body_collectives(const Network& network, const Layout& layout) {
  return
      [known = BodyCollectives(network, layout)](NodeKind kind, Axis axis, Bytes payload) mutable {
        const CollectiveCost& cost = known.cost(kind, axis, payload);
        return CollectiveUse{cost.time, cost.demands, cost.level};
      };
}

Pricing price(const Schedule& schedule, const Layout& layout, const ComputeModel& compute,
              const Network& network) {
  return Pricer(schedule, layout, compute, network).run();
}

}  // namespace rehearse::sim
