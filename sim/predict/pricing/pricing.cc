// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/pricing/pricing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "schedules/body/loss_body.h"
#include "schedules/ir/payload.h"
#include "schedules/scenario/zero/quantized_gather.h"
#include "sim/cost/to_nanoseconds.h"
#include "sim/network/collective_cost.h"
#include "sim/network/transfer_cost.h"
#include "sim/predict/pricing/known_costs.h"
#include "sim/predict/pricing/muon_cost.h"
#include "sim/predict/pricing/priced_bodies.h"

namespace rehearse::sim {
namespace {

// What crosses between processes over throttled links, behind what the workers do.
struct Crosses {
  Nanoseconds time{};
  std::int64_t of = 0;              // [ns] that the demands are averaged over
  std::span<const Demand> demands;  // of links
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
        bodies_(schedule, layout, compute, network) {
    if (row_of(layout.plan.optimizer).newton_schulz)
      muon_.emplace(schedule, layout, compute, network);
  }

  Pricing run() {
    // A CPU's ranks share its workers: one more resource, the last.
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
                              const RestsOn& share, std::vector<Traffic> traffic,
                              const Crosses& crosses = {}) {
    const std::int64_t at_work = use.computing_ns + use.exchanging_ns;
    const std::int64_t time = at_work + crosses.time.value;
    std::vector<Demand> demands{{ResourceId{out_.table.num_resources - 1}, use.share}};
    if (crosses.time.value > 0) {
      const auto whole = static_cast<double>(time);
      demands[0].share *= static_cast<double>(at_work) / whole;
      for (const Demand& demand : crosses.demands) {
        demands.push_back(
            {demand.resource, demand.share * static_cast<double>(crosses.of) / whole});
      }
    }
    return add({.time = {time},
                .communicating = {waits ? use.exchanging_ns + crosses.time.value : 0},
                .level = level},
               demands, share, std::move(traffic));
  }

  std::int32_t add(Cost cost, std::span<const Demand> demands, const RestsOn& share,
                   std::vector<Traffic> traffic) {
    cost.demand_begin = static_cast<std::int32_t>(out_.table.demands.size());
    out_.table.demands.insert(out_.table.demands.end(), demands.begin(), demands.end());
    cost.demand_end = static_cast<std::int32_t>(out_.table.demands.size());
    out_.table.costs.push_back(cost);
    out_.rests_on.push_back(share);
    out_.traffic.push_back(std::move(traffic));
    out_.host_bound.push_back(false);
    return static_cast<std::int32_t>(out_.table.costs.size()) - 1;
  }
  static RestsOn all(CostLevel level, MeasuredTable table = MeasuredTable::None) {
    RestsOn share;
    share.add(level, table, 1);
    return share;
  }
  std::int32_t add_body(const BodyCost& body, std::vector<Traffic> traffic) {
    RestsOn share = all(body.level);
    if (const double sum = body.rests_on.sum(); sum > 0) {
      share = {};
      share.add(body.rests_on, 1 / sum);
    }
    if (on_workers()) {
      const bool tensor = plan_.tensor_parallel > 1;
      const WorkerUse use =
          use_of((body.time - body.communicating).value, body.shared,
                 (body.communicating - body.crossing).value,
                 tensor ? plan_.tensor_parallel : plan_.context_parallel,
                 network_.group(row_, tensor ? Axis::Tensor : Axis::Context).processes);
      const std::vector<Demand> links = moved_to(links_, body.demands);
      return add_on_workers(use, true, body.level, share, std::move(traffic),
                            {body.crossing, body.time.value, links});
    }
    // Bodies are priced on row 0's links; every row has links of its own, if it has them at all.
    const std::int32_t cost = add({.time = body.time,
                                   .communicating = body.communicating,
                                   .imbalanced = body.imbalanced,
                                   .level = body.level},
                                  moved_to(links_, body.demands), share, std::move(traffic));
    out_.host_bound.back() = static_cast<double>(body.host.value) >
                             Pricing::kHostNear * static_cast<double>(body.device.value);
    return cost;
  }

  std::int32_t compute_cost(const Op& op) {
    PricedBodies::Bodies bodies;
    if (op.kind != OpKind::Overlap) {
      bodies_.collect(op, bodies);
      const PricedBodies::Sum& all = bodies_.sum_of(bodies);
      return add_body(with_clearing(all.cost), all.traffic);
    }
    const auto child = static_cast<std::size_t>(op.child);
    bodies_.collect(s_.children[child], bodies);
    const std::size_t first = bodies.size();
    bodies_.collect(s_.children[child + 1], bodies);
    const PricedBodies::Sum& pair = bodies_.sum_of(bodies);
    // On a CPU the halves take turns on one worker: both times.
    if (on_workers()) return add_body(with_clearing(pair.cost), pair.traffic);
    const bool forward_first = direction_of(s_.children[child].kind) == Direction::Forward;
    const std::span all{bodies};
    return add_body(forward_first ? bodies_.paired(pair.cost, all.first(first), all.subspan(first))
                                  : bodies_.paired(pair.cost, all.subspan(first), all.first(first)),
                    pair.traffic);
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
    const Path& path = send ? path_between(row_, to) : path_between(to, row_);
    const bool from_before = (op.payload == Payload::Gradient) == send;
    const Bytes whole{layout_.handover_bytes(op.stage.value - (from_before ? 1 : 0))};
    const TransferCost cost =
        handover_cost(plan_, whole, path, tensor_group(send ? to : row_), network_);
    std::vector<Traffic> traffic;
    if (send) {
      traffic.push_back({.group = GroupKind::Pipeline,
                         .kind = OpKind::Send,
                         .ranks = 2,
                         .count = 1,
                         .bytes = payload_of(s_, current_).bytes(),
                         .time = cost.time,
                         .waits = cost.waits,
                         .link = cost.link,
                         .links = kinds_of(path.out)});
    }
    if (on_workers()) {
      return add_on_workers(use_of(0, 1, (cost.time - cost.crossing).value, kAcrossRows), false,
                            cost.level, all(cost.level), std::move(traffic),
                            {cost.crossing, cost.time.value, cost.send});
    }
    return add({.time = cost.time, .level = cost.level}, send ? cost.send : cost.recv,
               all(cost.level), std::move(traffic));
  }

  // One path for both ends of a transfer, and for all transfers between the same rows.
  const Path& path_between(RankClass from, RankClass to) {
    const auto [at, fresh] = paths_.try_emplace({from, to});
    if (fresh) at->second = network_.path(from, to);
    return at->second;
  }
  const GroupShape& tensor_group(RankClass row) {
    const auto [at, fresh] = tensor_groups_.try_emplace(row);
    if (fresh) at->second = network_.group(row, Axis::Tensor);
    return at->second;
  }

  RankClass row_at(Position position, RankClass like) const {
    const std::int32_t classes = s_.num_rows() / s_.placement.positions;
    return {position.value * classes + like.value % classes};
  }

  std::int32_t collective(const Op& op) {
    const GroupShape shape = network_.group(row_, s_, op.group);
    const OpKind kind = op.kind == OpKind::Unshard ? OpKind::AllGather : op.kind;
    const Bytes payload{payload_of(s_, current_).bytes()};
    OpKind sent = kind;
    CollectiveCost cost;
    if (kind == OpKind::ReduceScatter && op.bucket &&
        plan_.runtime.gradient_reduction == GradientReduction::AllReduceFp32) {
      sent = OpKind::AllReduce;
      cost = whole_fp32_sum(payload, shape);
    } else if (kind == OpKind::ReduceScatter && op.bucket &&
               plan_.runtime.gradient_reduction == GradientReduction::AllReduce) {
      sent = OpKind::AllReduce;
      cost = collective_cost(sent, payload, shape, network_);
    } else if (kind == OpKind::AllGather && op.bucket && plan_.updates_by_broadcast()) {
      sent = OpKind::Broadcast;
      cost =
          tensor_broadcasts_cost(payload, s_.buckets[op.bucket.index()].tensors, shape, network_);
    } else {
      // A file's own leave what they sum as it was.
      cost = collective_cost(kind, payload, shape, network_, s_.is_on(op, GroupKind::Other));
    }
    const Nanoseconds beside = beside_gather(op, shape.ranks);
    if (!on_workers()) lengthen(cost, beside);
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
      const std::int64_t copying = (cost.time - cost.crossing).value;
      // What every rank does for itself its own thread does.
      const double shared = beside.value > 0 ? compute_.sharing().memory_bound : 1;
      return add_on_workers(use_of(beside.value, shared, copying, members, shape.processes), false,
                            cost.level, all(cost.level, collective_table(cost.level)),
                            std::move(traffic), {cost.crossing, cost.time.value, cost.demands});
    }
    const bool hidden = op.stream != Stream::Compute;
    return add({.time = cost.time,
                .slowdown = hidden ? compute_.scalars().overlap_slowdown : 0.0,
                .level = cost.level},
               cost.demands, all(cost.level, collective_table(cost.level)), std::move(traffic));
  }

  // What every rank does before and behind an UNSHARD's exchange: its shard goes in 8 bit, what
  // comes back, and a part of it is left in a second copy.
  Nanoseconds beside_gather(const Op& op, std::int32_t ranks) const {
    Nanoseconds time{};
    if (op.kind == OpKind::Unshard && quantizes_gathers(plan_)) {
      const std::int64_t whole = s_.buckets[op.bucket.index()].padded, shard = whole / ranks;
      time += compute_.quantize(shard, /*back=*/false, {bytes_of(current_, 0) + shard}) +
              compute_.quantize(whole, /*back=*/true, {whole + bytes_of(current_, 1)});
    }
    const std::int64_t copy = copied_bytes(current_);
    return copy > 0 ? time + compute_.elementwise({2 * copy}) : time;
  }

  // Gradients are flattened, cast to fp32, divided, summed whole and copied back: 24 B per
  // parameter beside the collective.
  CollectiveCost whole_fp32_sum(Bytes sum, const GroupShape& shape) const {
    CollectiveCost cost = collective_cost(OpKind::AllReduce, sum, shape, network_);
    lengthen(cost, compute_.elementwise({6 * sum.value}));
    return cost;
  }
  // By what runs beside the links, of which the whole then asks for less on the average.
  static void lengthen(CollectiveCost& cost, Nanoseconds more) {
    const Nanoseconds wire = cost.time;
    cost.time += more;
    for (Demand& demand : cost.demands) {
      demand.share *= static_cast<double>(wire.value) / static_cast<double>(cost.time.value);
    }
  }
  // What a gather keeps in a second copy of shards.
  std::int64_t copied_bytes(OpId gather) const {
    std::int64_t bytes = 0;
    for (const Operand& operand : s_.operands_of(gather)) {
      const Value& value = s_.values[operand.value.index()];
      const bool kept = value.kind == ValueKind::ParameterShard && operand.access == Access::Write;
      bytes += kept ? value.bytes.value : 0;
    }
    return bytes;
  }

  std::int64_t updated_elements(const Bucket& bucket) const {
    return s_.owned_elements(bucket, plan_.zero_stage);
  }

  std::int32_t ranks_per_node() const {
    return std::min(plan_.gpus(), network_.cluster().gpus_per_node);
  }

  std::int64_t bytes_of(OpId op, std::size_t operand) const {
    return s_.values[s_.operands_of(op)[operand].value.index()].bytes.value;
  }
  std::int64_t summed_bytes(OpId add) const { return bytes_of(add, 0); }

  std::int32_t local(const Op& op) {
    Nanoseconds time{};
    if (op.kind == OpKind::Loss) return add_body(compute_.price(make_loss_body(layout_)), {});
    if (op.kind == OpKind::OptimizerStep && op.stream != Stream::Compute) {
      const Bytes moved = compute_.optimizer_bytes(updated_elements(s_.buckets[op.bucket.index()]));
      return add({.time = swapped(host_update_time(moved, ranks_per_node(), network_))}, {},
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
      time = compute_.elementwise({3 * summed_bytes(current_)});
    } else {
      const Path path = network_.to_host(row_);
      const bool out = op.kind == OpKind::Offload;
      const Bytes bytes{payload_of(s_, current_).bytes()};
      const TransferCost copy = swaps()
                                    ? nvme_copy_cost(bytes, out, ranks_per_node(), path, network_)
                                    : host_copy_cost(bytes, out, path, network_);
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

  bool swaps() const {
    return std::ranges::any_of(s_.operands_of(current_), [&](const Operand& operand) {
      return s_.values[operand.value.index()].home == Home::Nvme;
    });
  }
  // An update by the host, with what it reads of drives before it and writes behind it
  // (RuntimeTraits::swap_pipeline). Parameters are made of the master copy, and not read; each part
  // waits until its own are written.
  Nanoseconds swapped(Nanoseconds update) {
    Bytes read{0}, written{0}, parameters{0};
    for (const Operand& operand : s_.operands_of(current_)) {
      const Value& value = s_.values[operand.value.index()];
      if (value.home != Home::Nvme) continue;
      const bool parameter =
          value.kind == ValueKind::ParameterShard || value.kind == ValueKind::FullParameter;
      if (!parameter) read += value.bytes;
      if (operand.access != Access::Read) (parameter ? parameters : written) += value.bytes;
    }
    const auto drives = [&](Bytes from, Bytes to) {
      return nvme_time(from, to, ranks_per_node(), network_);
    };
    return swapped_update_time({.read = drives(read, {0}),
                                .update = update + drives({0}, parameters),
                                .written = drives({0}, written),
                                .pipeline = plan_.runtime.swap_pipeline,
                                .parts = swapped_parts()});
  }
  // Of all that a rank of the row updates.
  double swapped_parts() const {
    std::int64_t updated = 0;
    for (std::int32_t i = s_.row_begin[row_.index()]; i < s_.row_begin[row_.index() + 1]; ++i) {
      const Op& op = s_.ops[static_cast<std::size_t>(i)];
      if (op.kind == OpKind::OptimizerStep)
        updated += updated_elements(s_.buckets[op.bucket.index()]);
    }
    return std::ceil(static_cast<double>(updated) /
                     static_cast<double>(plan_.runtime.swap_elements));
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
  bool costs_the_same(const Op& a, const Op& b) const {
    return a.kind == b.kind && a.payload == b.payload && a.stage == b.stage && a.slice == b.slice &&
           a.segment_begin == b.segment_begin && a.segment_end == b.segment_end &&
           a.peer == b.peer && bodies_.apart(a) == bodies_.apart(b);
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
        key[7] = bodies_.apart(op) ? 1 : 0;
        if (op.kind == OpKind::Overlap) {
          const auto child = static_cast<std::size_t>(op.child);
          const Op &a = s_.children[child], &b = s_.children[child + 1];
          key[2] = b.stage.value;
          key[3] = static_cast<std::int64_t>(a.kind) * 32 + static_cast<std::int64_t>(b.kind);
          key[4] = a.stage.value;
          key[7] = bodies_.apart(b) ? 1 : 0;
        }
        break;
      case OpClass::Transfer:
        key[2] = op.peer.value;
        break;
      case OpClass::Collective:
        key[2] = op.group.value;
        key[3] = payload_of(s_, id).bytes();
        key[4] = static_cast<std::int64_t>(op.stream);
        key[5] = copied_bytes(id);
        break;
      default:
        if (op.kind == OpKind::Loss) break;
        if (op.kind == OpKind::Add) {
          key[3] = summed_bytes(id);
          break;
        }
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
  PricedBodies bodies_;
  std::optional<MuonCost> muon_;
  Pricing out_;
  RankClass row_{0};
  OpId current_{};
  std::vector<Counterpart> links_;  // of row 0 on this row
  std::map<std::pair<RankClass, RankClass>, Path> paths_;
  std::map<RankClass, GroupShape> tensor_groups_;
  std::array<Recent, 256> recent_;
  KnownCosts known_;
};

}  // namespace

CollectiveTimes body_collectives(const Network& network, const Layout& layout) {
  return
      [known = BodyCollectives(network, layout)](NodeKind kind, Axis axis, Bytes payload) mutable {
        const CollectiveCost& cost = known.cost(kind, axis, payload);
        return CollectiveUse{cost.time, cost.demands, cost.level, cost.crossing};
      };
}

Pricing price(const Schedule& schedule, const Layout& layout, const ComputeModel& compute,
              const Network& network) {
  return Pricer(schedule, layout, compute, network).run();
}

}  // namespace rehearse::sim
