// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/body_cost.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "schedules/body/framework/body_framework.h"
#include "schedules/body/head_share.h"
#include "schedules/body/sizes.h"
#include "sim/compute/bandwidth_cost.h"
#include "sim/compute/body_pricer.h"
#include "sim/compute/power.h"
#include "sim/cost/to_nanoseconds.h"
#include "sim/formulas/expert_load.h"
#include "sim/formulas/packed_documents.h"

namespace rehearse::sim {
namespace {

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

// Takes the rates of torch's own function, where a GPU runs another kernel for it than those of its
// libraries.
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
    const BodyTotals totals =
        BodyPricer(costs, collectives, issue_us(costs, plan)).price(body.nodes);
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

const Body& ComputeModel::body(const Layout& layout, const BodyShape& shape,
                               std::optional<Body>& made) const {
  assert(layout.plan == plan_);
  const auto found = std::ranges::find(bodies_, shape, &std::pair<BodyShape, Body>::first);
  return found != bodies_.end() ? found->second : made.emplace(make_body(layout, shape));
}

BodyCost ComputeModel::price(const Body& body, std::int32_t layer) const {
  BodyTotals totals =
      BodyPricer(costs_, collectives_, issue_us(costs_, plan_), layer).price(body.nodes);
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
  BodyPricer pricer(costs_, collectives_, issue_us(costs_, plan_), layer);
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
