// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/body_cost.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "schedules/body/framework/body_framework.h"
#include "schedules/body/head_share.h"
#include "schedules/body/sizes.h"
#include "sim/compute/bandwidth_cost.h"
#include "sim/compute/fused_nodes.h"
#include "sim/compute/power.h"
#include "sim/cost/overlap.h"
#include "sim/cost/to_nanoseconds.h"
#include "sim/formulas/expert_load.h"
#include "sim/formulas/packed_documents.h"

namespace rehearse::sim {
namespace {

bool is_collective(NodeKind kind) {
  return collective_kind(kind) != OpKind::Forward;
}

// (a^n + b^n)^(1/n): host-bound and device-bound stretches alternate inside a layer.
double soft_maximum(double a, double b, double exponent) {
  const double larger = std::max(a, b);
  if (larger <= 0) return 0;
  return larger * std::pow(1 + std::pow(std::min(a, b) / larger, exponent), 1 / exponent);
}

// What a hidden collective may run beside: tensor-parallel ones beside the products of the same
// stretch of nodes, the ring of context parallelism beside the attention core that follows.
bool in_stretch(const Node& node, bool ring) {
  if (ring) {
    return node.kind() == NodeKind::Attention || node.kind() == NodeKind::AttentionBackward ||
           node.kind() == NodeKind::Softmax || node.kind() == NodeKind::Dropout ||
           (node.kind() == NodeKind::Gemm && node.role() == GemmRole::None) ||
           node.kind() == NodeKind::Elementwise;
  }
  return (node.kind() == NodeKind::Gemm && node.role() != GemmRole::None && node.pieces == 1 &&
          !is_grouped(node.kernel)) ||
         node.kind() == NodeKind::Elementwise || (is_collective(node.kind()) && node.overlapped);
}

// A node that runs in one pass with a neighbour: what it moves, without a kernel's own time.
NodeCost without_launch(const ComputeCosts& costs, MemoryClass memory_class, std::int64_t bytes) {
  NodeCost cost = memory_bound_cost(costs, memory_class, static_cast<double>(bytes));
  if (bytes > 0) cost.ns -= costs.scalars.kernel_us * 1e3;
  return cost;
}

struct Totals {
  double compute_ns = 0, exposed_ns = 0, contention_ns = 0, collective_ns = 0, host_us = 0;
  double crossing_ns = 0;  // of exposed_ns: over throttled links
  double calls_us = 0;     // of host_us: for single experts or parts, of an assumed time each
  double tensor_ns = 0, flops16 = 0, hbm_bytes = 0, flops = 0;
  double from_idle_ns = 0;   // from an idle device to the end of the last kernel
  double drained_ns = 0;     // the body, where its host waits for the device on the way; else 0
  double imbalanced_ns = 0;  // of compute_ns: what the busiest rank does beyond the mean
  double shared_ns = 0;      // compute_ns while all workers of a CPU compute
  RestsOn rests_on;
  std::vector<Demand> demands;  // share * ns until divided by the body's time
};

// Rows of the busiest rank in a layer, or in the mean layer (-1). Prediction layers are as the
// last.
double busiest_rows(const ComputeCosts& costs, std::int32_t layer) {
  if (layer < 0 || costs.busiest_by_layer.empty()) return costs.busiest_rows;
  const auto last = costs.busiest_by_layer.size() - 1;
  return costs.busiest_by_layer[std::min(static_cast<std::size_t>(layer), last)];
}

class Pricer {
 public:
  Pricer(const ComputeCosts& costs, const CollectiveTimes& collectives, double issue_us,
         std::int32_t layer = -1)
      : costs_(costs),
        collectives_(collectives),
        issue_us_(issue_us),
        busiest_rows_(busiest_rows(costs, layer)) {}

  Totals price(std::span<const Node> nodes) {
    const std::size_t count = nodes.size();
    ns_.assign(count, 0);
    host_ns_.assign(count, 0);
    crossing_ns_.assign(count, 0);
    levels_.assign(count, CostLevel::Formula);
    for (std::size_t i = 0; i < count; ++i) {
      const FusedNode fused = costs_.fuses ? fused_node(nodes, i, costs_.tensor_cores)
                                           : FusedNode{.bytes = nodes[i].bytes};
      if (fused.launched) {
        const double calls = costs_.correction.host * costs_.scalars.expert_call_us() *
                             static_cast<double>(nodes[i].expert_calls);
        host_ns_[i] = (issue_us_ * nodes[i].issued() + calls) * 1e3;
        totals_.host_us += issue_us_ * nodes[i].issued() + calls;
        totals_.calls_us += calls;
      }
      is_collective(nodes[i].kind()) ? collective(nodes[i], i) : compute(nodes, fused, i);
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_collective(nodes[i].kind())) continue;
      if (!nodes[i].overlapped) {
        hide_beside(nodes, i);
      } else if (nodes[i].kind() == NodeKind::RingExchange) {
        hide_ring(nodes, i);
      }
    }
    hide_stretches(nodes);
    begin_idle(nodes);
    return std::move(totals_);
  }

  // After price(): each node alone.
  std::vector<NodePrice> nodes() const {
    std::vector<NodePrice> all;
    for (std::size_t i = 0; i < ns_.size(); ++i)
      all.push_back({to_nanoseconds(ns_[i]), levels_[i]});
    return all;
  }

 private:
  // Hidden collectives take no time of the stream; what they slow is spread over all kernels.
  double of_stream(std::span<const Node> nodes, std::size_t i) const {
    const bool beside_others = nodes[i].overlapped || (nodes[i].pieces > 1 && nodes[i].until > 0);
    return beside_others ? 0 : ns_[i];
  }
  struct Stretch {
    double device = 0, host = 0;
    double from_idle = 0;  // from an idle device to the end of the last kernel
  };
  // Nodes [begin, end). Every kernel waits for the first of its launches; behind it the device
  // works on what is left. `slowed`: time of the stream over that of its kernels alone.
  Stretch stretch(std::span<const Node> nodes, std::size_t begin, std::size_t end,
                  double slowed) const {
    Stretch all;
    for (std::size_t i = begin; i < end; ++i) {
      all.device += slowed * of_stream(nodes, i);
      all.host += host_ns_[i];
    }
    double left = all.device, issued = 0;
    for (std::size_t i = begin; i < end; ++i) {
      // Calls without a kernel of their own precede what follows.
      const double first = nodes[i].launches > 0 ? issue_us_ * 1e3 : host_ns_[i];
      all.from_idle = std::max(all.from_idle, issued + first + left);
      issued += host_ns_[i];
      left -= slowed * of_stream(nodes, i);
    }
    all.from_idle = std::max(all.from_idle, all.host);
    return all;
  }
  void begin_idle(std::span<const Node> nodes) {
    const double device = totals_.compute_ns + totals_.exposed_ns + totals_.contention_ns;
    double alone = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) alone += of_stream(nodes, i);
    const double slowed = alone > 0 ? device / alone : 0;
    totals_.from_idle_ns = stretch(nodes, 0, nodes.size(), slowed).from_idle;
    if (std::ranges::none_of(nodes, &Node::drains)) return;
    // Where the host waits for the device it has no lead left, and what follows begins idle.
    for (std::size_t begin = 0; begin < nodes.size();) {
      std::size_t end = begin + 1;
      while (end < nodes.size() && !nodes[end].drains) ++end;
      const Stretch part = stretch(nodes, begin, end, slowed);
      const double both = soft_maximum(part.device, part.host, costs_.scalars.host_exponent);
      totals_.drained_ns += nodes[begin].drains ? std::max(part.from_idle, both) : both;
      begin = end;
    }
  }

  // Transformer Engine's pipeline: all parts of its product run beside as few SMs as its sums take.
  bool spares_sms(std::span<const Node> nodes, std::size_t i) const {
    return costs_.spares_sms && nodes[i].kind() == NodeKind::Gemm && nodes[i].pieces > 1 &&
           i + 1 < nodes.size() && nodes[i + 1].kind() == NodeKind::ReduceScatter &&
           nodes[i + 1].pieces == nodes[i].pieces;
  }

  void compute(std::span<const Node> nodes, const FusedNode& fused, std::size_t i) {
    const Node& node = nodes[i];
    NodeCost cost = fused.launched
                        ? price_node(costs_, node)
                        : without_launch(costs_, memory_class(costs_, node.kind()), fused.bytes);
    if (spares_sms(nodes, i)) cost.ns = ns_beside(costs_, node, costs_.piece_sms);
    if (node.routed) {
      totals_.imbalanced_ns += cost.ns * (busiest_rows_ - costs_.mean_rows);
      cost.ns *= busiest_rows_;
    }
    ns_[i] = cost.ns;
    levels_[i] = cost.level;
    count(cost);
    totals_.tensor_ns += cost.tensor_ns;
    totals_.flops16 += cost.flops16;
    totals_.hbm_bytes += static_cast<double>(fused.bytes);
    totals_.flops += node.flops;
  }
  void count(const NodeCost& cost) {
    totals_.compute_ns += cost.ns;
    totals_.shared_ns += cost.ns * cost.shared;
    totals_.rests_on.add(cost.level, cost.table, cost.ns);
  }

  void collective(const Node& node, std::size_t i) {
    count(price_before(costs_, node));
    if (!collectives_) return;
    const CollectiveUse use = collectives_(node.kind(), node.axis, Bytes{node.bytes});
    // A dispatch was priced with the busiest rank's rows of the mean layer.
    const bool by_rows =
        node.routed && node.kind() != NodeKind::Dispatch && node.kind() != NodeKind::Combine;
    const double rows = by_rows ? busiest_rows_ : busiest_rows_ / costs_.busiest_rows;
    ns_[i] = static_cast<double>(use.time.value) * (node.routed ? rows : 1);
    levels_[i] = use.level;
    totals_.collective_ns += ns_[i];
    crossing_ns_[i] = static_cast<double>(use.crossing.value) * (node.routed ? rows : 1);
    for (const Demand& demand : use.demands) {
      const auto found = std::ranges::find(totals_.demands, demand.resource, &Demand::resource);
      const double taken = demand.share * ns_[i];
      if (found != totals_.demands.end()) {
        found->share += taken;
      } else {
        totals_.demands.push_back({demand.resource, taken});
      }
    }
  }

  void communicates(std::size_t i, double ns) {
    totals_.rests_on.add(levels_[i], collective_table(levels_[i]), ns);
  }
  void expose(std::size_t i, double ns) {
    totals_.exposed_ns += ns;
    communicates(i, ns);
  }

  // Nodes up to `until` run while the collective is under way: on a device on a stream beside it,
  // where what is hidden slows compute; the workers of a CPU copy themselves, and compute while
  // what they sent crosses a throttled link. Copy engines carry a ring.
  void hide_beside(std::span<const Node> nodes, std::size_t at) {
    const bool piece = nodes[at].pieces > 1 && nodes[at].kind() != NodeKind::RingExchange;
    double room = 0, slowed = 0;
    const auto until = static_cast<std::size_t>(std::max(nodes[at].until, 0));
    for (std::size_t i = at + 1; i < until; ++i) {
      room += ns_[i];
      const bool slows = piece && !spares_sms(nodes, i);
      slowed += slows ? ns_beside(costs_, nodes[i], costs_.piece_sms) : ns_[i];
    }
    if (costs_.sharing.workers > 0) {
      const double crossing = std::max(0.0, crossing_ns_[at] - room);
      totals_.crossing_ns += crossing;
      return expose(at, ns_[at] - crossing_ns_[at] + crossing);
    }
    const double slowdown = nodes[at].axis == Axis::Tensor ? costs_.scalars.hidden_contention
                                                           : costs_.scalars.dispatch_slowdown;
    const Hidden out =
        nodes[at].pieces > 1 ? beside(ns_[at], room, slowed) : hide(ns_[at], room, slowdown);
    expose(at, out.exposed);
    totals_.contention_ns += out.contention;
    communicates(at, out.contention);
  }

  void hide_ring(std::span<const Node> nodes, std::size_t at) {
    double room = 0;
    for (std::size_t i = at + 1; i < nodes.size() && in_stretch(nodes[i], true); ++i)
      room += ns_[i];
    expose(at, std::max(0.0, ns_[at] - room));
  }

  // Hidden collectives of one stretch and the products that they run beside. What is hidden costs a
  // share of itself (it takes SMs and bandwidth from the products); what does not fit is exposed.
  void hide_stretches(std::span<const Node> nodes) {
    for (std::size_t begin = 0; begin < nodes.size();) {
      if (!in_stretch(nodes[begin], false) || nodes[begin].kind() == NodeKind::RingExchange) {
        ++begin;
        continue;
      }
      std::size_t end = begin, last = nodes.size();
      double room = 0, hidden = 0;
      for (; end < nodes.size() && in_stretch(nodes[end], false) &&
             nodes[end].kind() != NodeKind::RingExchange;
           ++end) {
        if (nodes[end].kind() == NodeKind::Gemm) room += ns_[end];
        if (!is_collective(nodes[end].kind())) continue;
        last = end;
        hidden += ns_[end];
      }
      if (last < nodes.size()) {
        const Hidden out = hide(hidden, room, costs_.scalars.hidden_contention);
        expose(last, out.exposed);
        totals_.contention_ns += out.contention;
        communicates(last, out.contention);
      }
      begin = end;
    }
  }

  const ComputeCosts& costs_;
  const CollectiveTimes& collectives_;
  double issue_us_;
  double busiest_rows_;  // of the body's layer
  Totals totals_;
  std::vector<double> ns_, host_ns_;
  std::vector<double> crossing_ns_;  // of ns_: over throttled links
  std::vector<CostLevel> levels_;
};

double issue_us(const ComputeCosts& costs, const Plan& plan) {
  if (costs.sharing.workers > 0) return 0;  // who issues computes: inside the measured times
  const KernelScalars& scalars = costs.scalars;
  return costs.correction.host *
         (plan.runtime.performer().own_kernels ? scalars.executor_issue_us : scalars.issue_us);
}

// What was measured of our executor: all kernels of a CPU; of a GPU its attention in 16 bit (its
// products and bandwidths are among the scalars).
void use_measured(const Cluster& cluster, const Layout& layout, ComputeCosts& costs) {
  const auto& [model, plan, shape] = layout;
  const std::int64_t sequence = std::max<std::int64_t>(
      1, plan.sequence_length / plan.context_parallel / std::max(1, plan.sequence_slices));
  const HeadShare share = head_share(layout);
  costs.attention_size = {.samples = shape.tokens / sequence,
                          .heads = share.heads,
                          .head_dim = shape.head_dim,
                          .sequence = sequence * share.ranks,
                          .kv_heads = share.kv_heads};
  if (plan.dropouts.attention > 0) costs.drops_scores_of = shape.head_dim + shape.value_dim;
  costs.vocabulary = shape.logits;
  costs.rms_norms = model.norm == NormKind::RmsNorm;
  const bool fp32 = plan.precision.compute == ComputeType::Fp32, cpu = cluster.workers > 0;
  if (!cluster.calibration || (fp32 && !cpu)) return;
  costs.measured_attention.emplace(*cluster.calibration, cpu ? 1 : cluster.gpu.sm_count);
  if (cpu) costs.measured.emplace(*cluster.calibration);
  costs.widens = cpu && !fp32;
  if (cpu && plan.precision.compute == ComputeType::Bf16) {
    costs.products_over_fp32 =
        cluster.calibration->scalar("workers.products_in_bf16").value_or(1.0);
  }
}

// The rate at `head_dim`: straight in its logarithm between measured sizes, the nearest beyond.
double head_rate(const std::vector<HeadDimRate>& rates, double head_dim) {
  if (rates.empty() || head_dim <= 0) return 1;
  const auto above = std::ranges::lower_bound(rates, head_dim, {}, &HeadDimRate::head_dim);
  if (above == rates.begin()) return above->rate;
  const auto below = above - 1;
  if (above == rates.end()) return below->rate;
  const double share =
      std::log(head_dim / below->head_dim) / std::log(above->head_dim / below->head_dim);
  return below->rate + share * (above->rate - below->rate);
}

// Of a GPU where torch's own function runs another kernel than those of its libraries.
void use_torch_attention(ComputeCosts& costs) {
  KernelScalars& scalars = costs.scalars;
  if (scalars.torch_forward <= 0) return;
  scalars.attention_forward.fill(scalars.torch_forward);
  scalars.attention_backward.fill(scalars.torch_backward);
  scalars.attention_assumed.fill(false);
}

ComputeCosts costs_of(const Cluster& cluster, const Layout& layout, KernelScalars scalars) {
  const Plan& plan = layout.plan;
  ComputeCosts costs{.scalars = std::move(scalars)};
  costs.sharing = worker_sharing(cluster);
  if (plan.runtime.performer().own_kernels) use_measured(cluster, layout, costs);
  costs.fuses = cluster.workers == 0 && plan.runtime.performer().own_kernels;
  const ComputeType type = plan.precision.compute;
  costs.fp8 = is_quantized(type) && cluster.gpu.peaks.fp8.has_value();
  if (type == ComputeType::Nvfp4 && cluster.gpu.peaks.nvfp4 && costs.fp8) {
    costs.fp8_factor = *cluster.gpu.peaks.nvfp4 / *cluster.gpu.peaks.fp8;
  }
  costs.quantised = type == ComputeType::Nvfp4   ? MeasuredTable::Nvfp4Products
                    : type == ComputeType::Mxfp8 ? MeasuredTable::BlockFp8Products
                                                 : MeasuredTable::Fp8Products;
  if (costs.fp8) costs.quantised_peak_flops = cluster.peak_flops(type).value_or(0);
  // 8-bit products without a table are priced as a multiple of the 16-bit ones, as is attention.
  const ComputeType priced = is_quantized(type) ? ComputeType::Bf16 : type;
  std::optional<double> peak = cluster.peak_flops(priced);
  if (!peak) peak = cluster.peak_flops(ComputeType::Fp16);
  if (!peak) peak = cluster.gpu.peaks.fp32_vector;
  costs.peak_flops = peak.value_or(0);
  costs.tensor_cores = type != ComputeType::Fp32;
  costs.memory_bytes_per_s = cluster.gpu.memory_bandwidth.value;
  costs.sms = std::max(1, cluster.gpu.sm_count);
  costs.piece_sms = plan.runtime.piece_sms;
  costs.spares_sms = plan.runtime.tensor_pieces == TensorPieces::UserBuffers;
  costs.attention = plan.attention_kernel;
  if (plan.runtime.torch_attention) use_torch_attention(costs);
  costs.sequence = plan.sequence_length;
  // Scores go over head_dim columns, their sums over value_dim: half of the work each.
  const std::int64_t columns = layout.shape.head_dim + layout.shape.value_dim;
  costs.head_rate =
      head_rate(costs.scalars.head_dims[static_cast<std::size_t>(plan.attention_kernel)],
                static_cast<double>(columns) / 2);
  costs.busiest_attention = busiest_documents(
      plan.document_scale(), plan.sequence_length, plan.data_parallel,
      std::int64_t{plan.microbatches()} * plan.micro_batch, plan.document_maximum);
  costs.correction = cluster.correction;
  const RowsOfExperts rows =
      balance_of(layout).rows(static_cast<double>(layout.shape.experts.tokens));
  costs.busiest_rows = rows.busiest;
  costs.mean_rows = rows.mean;
  costs.busiest_by_layer = rows_by_layer(layout);
  return costs;
}

// One layer forward and backward with its share of the idle time, gathers of ZeRO-3 slowing it.
// `made`: filled with the bodies.
double clock_of(const Cluster& cluster, const Layout& layout, const ComputeCosts& costs,
                const CollectiveTimes& collectives, std::vector<std::pair<BodyShape, Body>>& made) {
  const Transformer& model = layout.model;
  const Plan& plan = layout.plan;
  if (costs.scalars.pj_per_flop <= 0 || model.layers == 0) return 1;
  PowerUse use;
  double busy_ns = 0;
  const auto add = [&](const BodyShape& shape, double share) {
    const Body& body = made.emplace_back(shape, make_body(layout, shape)).second;
    const Totals totals = Pricer(costs, collectives, issue_us(costs, plan)).price(body.nodes);
    use.flops16 += share * totals.flops16;
    use.hbm_bytes += share * totals.hbm_bytes;
    use.tensor_ns += share * totals.tensor_ns;
    busy_ns += share * (totals.compute_ns + totals.exposed_ns + totals.contention_ns);
  };
  const bool experts = model.has_experts(model.layers - 1);
  for (const Direction direction : {Direction::Forward, Direction::Backward}) {
    if (segment_classes(model) == kNumSegmentShapes && plan.recompute_layers == 0) {
      add({.segment = SegmentKind::Layer, .experts = experts, .direction = direction}, 1);
      continue;
    }
    // The mean of layers that differ.
    for (const auto& [segment, layers] : layers_by_class(layout)) {
      add(body_shape(layout, segment, direction),
          static_cast<double>(layers) / static_cast<double>(model.layers));
    }
  }
  // Closed form of the pipeline's idle share, (p-1)/(m v): what depends on the clock only weakly.
  const double idle = static_cast<double>(plan.pipeline_parallel - 1) /
                      (std::max(1, plan.microbatches()) * std::max(1, plan.virtual_stages));
  use.other_ns = busy_ns * (1 + idle) - use.tensor_ns;
  if (plan.gathers_each_microbatch() && collectives) {
    std::int64_t parameters = 0;
    for (const ParameterTensor& tensor :
         segment_parameters(layout, SegmentKind::Layer, model.layers - 1)) {
      parameters += tensor.elements;
    }
    const int gathers = plan.gathers_twice() ? 2 : 1;
    const auto ns = [&](NodeKind kind, std::int64_t bytes) {
      return static_cast<double>(collectives(kind, Axis::Data, Bytes{bytes}).time.value);
    };
    use.other_ns +=
        costs.scalars.overlap_slowdown * (gathers * ns(NodeKind::AllGather, 2 * parameters) +
                                          ns(NodeKind::ReduceScatter, 4 * parameters));
  }
  return sustained_clock(costs.scalars, use, cluster.gpu.tdp_w);
}

CostLevel main_level(const RestsOn& times) {
  return static_cast<CostLevel>(std::ranges::max_element(times.level) - times.level.begin());
}

}  // namespace

BodyCost sum(const std::vector<const BodyCost*>& bodies) {
  BodyCost total;
  double time = 0, computing = 0, shared = 0;
  bool drains = false;
  for (const BodyCost* body : bodies) {
    total.from_idle = std::max(total.from_idle + body->device, total.host + body->from_idle);
    drains = drains || body->from_idle.value > 0;
    add_time(total.time, body->time);
    add_time(total.device, body->device);
    add_time(total.communicating, body->communicating);
    add_time(total.crossing, body->crossing);
    add_time(total.imbalanced, body->imbalanced);
    add_time(total.host, body->host);
    add_time(total.collectives, body->collectives);
    total.flops += body->flops;
    const auto computes = static_cast<double>((body->time - body->communicating).value);
    computing += computes;
    shared += computes * body->shared;
    total.rests_on.add(body->rests_on, 1);
    const double ns = static_cast<double>(body->time.value);
    time += ns;
    for (const Demand& demand : body->demands) {
      const auto found = std::ranges::find(total.demands, demand.resource, &Demand::resource);
      if (found != total.demands.end()) {
        found->share += demand.share * ns;
      } else {
        total.demands.push_back({demand.resource, demand.share * ns});
      }
    }
  }
  if (computing > 0) total.shared = shared / computing;
  if (drains) {
    total.time = total.from_idle;
    time = static_cast<double>(total.time.value);
  } else {
    total.from_idle = {};
  }
  for (Demand& demand : total.demands) {
    demand.share = time > 0 ? std::min(1.0, demand.share / time) : 0;
  }
  total.level = main_level(total.rests_on);
  return total;
}

Result<ComputeModel> ComputeModel::create(const Cluster& cluster, const Layout& layout,
                                          const CollectiveTimes& collectives) {
  Result<KernelScalars> scalars = read_kernel_scalars(cluster);
  if (!scalars) return scalars.error();
  return create(cluster, layout, collectives, std::move(scalars).value());
}

Result<ComputeModel> ComputeModel::create(const Cluster& cluster, const Layout& layout,
                                          const CollectiveTimes& collectives, KernelScalars scalars,
                                          KnownProducts* known) {
  ComputeModel made;
  made.costs_ = costs_of(cluster, layout, std::move(scalars));
  made.costs_.known_products = known;
  if (made.costs_.peak_flops <= 0 || made.costs_.memory_bytes_per_s <= 0) {
    return Error{cluster.path + ": gpu.peak_dense_tflops: no peak for the plan's precision"};
  }
  made.collectives_ = collectives;
  made.plan_ = layout.plan;
  made.costs_.clock = clock_of(cluster, layout, made.costs_, collectives, made.bodies_);
  return made;
}

const Body* ComputeModel::made(const BodyShape& shape) const {
  const auto found = std::ranges::find(bodies_, shape, &std::pair<BodyShape, Body>::first);
  return found == bodies_.end() ? nullptr : &found->second;
}

BodyCost ComputeModel::price(const Body& body, std::int32_t layer) const {
  Totals totals = Pricer(costs_, collectives_, issue_us(costs_, plan_), layer).price(body.nodes);
  const double device = totals.compute_ns + totals.exposed_ns + totals.contention_ns;
  const double host = totals.host_us * 1e3;
  const auto with = [&](double host_ns) {
    return plan_.runtime.synchronous_launch
               ? device + host_ns
               : soft_maximum(device, host_ns, costs_.scalars.host_exponent);
  };
  const bool drains = plan_.runtime.drains_at_transfer && plan_.pipeline_parallel > 1 &&
                      !plan_.runtime.synchronous_launch;
  const bool waits = totals.drained_ns > 0 && !plan_.runtime.synchronous_launch;
  const double time = drains ? totals.from_idle_ns : waits ? totals.drained_ns : with(host);
  if (totals.calls_us > 0) {
    const double calls = totals.calls_us * 1e3;
    const double shown = (waits ? time : with(host)) - with(host - calls);
    totals.rests_on.add(CostLevel::Datasheet, MeasuredTable::None, std::min(shown, calls));
  }
  BodyCost cost{.time = to_nanoseconds(time),
                .device = to_nanoseconds(device),
                .communicating = to_nanoseconds(totals.exposed_ns),
                .crossing = to_nanoseconds(std::min(totals.crossing_ns, totals.exposed_ns)),
                .imbalanced = to_nanoseconds(totals.imbalanced_ns),
                .host = to_nanoseconds(host),
                .from_idle = to_nanoseconds(drains ? totals.from_idle_ns : 0),
                .collectives = to_nanoseconds(totals.collective_ns),
                .level = main_level(totals.rests_on),
                .rests_on = totals.rests_on,
                .flops = totals.flops,
                .shared = totals.compute_ns > 0 ? totals.shared_ns / totals.compute_ns : 1,
                .demands = std::move(totals.demands)};
  for (Demand& demand : cost.demands) {
    demand.share = time > 0 ? std::min(1.0, demand.share / time) : 0;
  }
  return cost;
}

std::vector<NodePrice> ComputeModel::price_nodes(const Body& body, std::int32_t layer) const {
  Pricer pricer(costs_, collectives_, issue_us(costs_, plan_), layer);
  pricer.price(body.nodes);
  return pricer.nodes();
}

double ComputeModel::memory_bound_ns(std::string_view op, MemoryClass otherwise,
                                     double bytes) const {
  if (costs_.measured) {
    const auto time = costs_.measured->memory_bound(op, false, std::llround(bytes));
    if (time) return costs_.correction.memory_bound * time->seconds * 1e9;
  }
  return costs_.correction.memory_bound * memory_bound_cost(costs_, otherwise, bytes).ns;
}

Bytes ComputeModel::optimizer_bytes(std::int64_t parameters) const {
  return {optimizer_bytes_per_parameter(plan_) * parameters};
}

Nanoseconds ComputeModel::optimizer_step(std::int64_t parameters) const {
  const auto bytes = static_cast<double>(optimizer_bytes(parameters).value);
  return to_nanoseconds(memory_bound_ns("optimizer", MemoryClass::Optimizer, bytes));
}

Nanoseconds ComputeModel::orthogonalize(std::int64_t rows, std::int64_t columns) const {
  const std::int64_t m = std::min(rows, columns), n = std::max(rows, columns);
  const auto product = [&](std::int64_t a, std::int64_t b, std::int64_t k) {
    Node node{.kernel = Kernel::Linear, .m = a, .n = b, .k = k};
    node.flops = 2.0 * static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(k);
    node.bytes = 2 * (a * k + k * b + a * b);
    return price_node(costs_, node).ns;
  };
  return to_nanoseconds(kNewtonSchulzSteps *
                        (product(m, m, n) + product(m, m, m) + product(m, n, m)));
}

Nanoseconds ComputeModel::gradient_norm(std::int64_t parameters) const {
  const double bytes = static_cast<double>(gradient_norm_bytes_per_parameter(plan_)) *
                       static_cast<double>(parameters);
  return to_nanoseconds(memory_bound_ns("gradient_norm", MemoryClass::Optimizer, bytes));
}

Nanoseconds ComputeModel::clear(Bytes bytes) const {
  return to_nanoseconds(
      memory_bound_ns("clear", MemoryClass::Elementwise, static_cast<double>(bytes.value)));
}

Nanoseconds ComputeModel::quantize(std::int64_t values, bool back, Bytes moved) const {
  constexpr std::int64_t kMeasuredBytes = 5;  // of a value: in fp32 and in 8 bit
  if (costs_.measured) {
    const auto time = costs_.measured->memory_bound("quantize", back, kMeasuredBytes * values);
    if (time) return to_nanoseconds(costs_.correction.memory_bound * time->seconds * 1e9);
  }
  return elementwise(moved);
}

Nanoseconds ComputeModel::elementwise(Bytes moved) const {
  return to_nanoseconds(
      memory_bound_ns("add", MemoryClass::Elementwise, static_cast<double>(moved.value)));
}

}  // namespace rehearse::sim
