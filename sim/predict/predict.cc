// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "schedules/ir/listing.h"
#include "schedules/ir/text.h"
#include "schedules/passes/lower.h"
#include "schedules/passes/plan_order.h"
#include "schedules/ranks/unfold.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/plan_size.h"
#include "sim/cost/to_nanoseconds.h"
#include "sim/engine/event_engine.h"
#include "sim/engine/program.h"
#include "sim/engine/sweep.h"
#include "sim/memory/host_memory.h"
#include "sim/memory/memory_script.h"
#include "sim/network/collective_cost.h"
#include "sim/predict/confidence.h"
#include "sim/predict/planned_times.h"
#include "sim/predict/remapping.h"
#include "sim/predict/variation.h"

namespace rehearse::sim {
namespace {

// FLOPs that recomputation really runs again, all ranks, in the convention of model_flops: the
// attention square in full, or the half of it that is computed. Counted on the nodes of the
// backward bodies.
double recomputed_flops(const Layout& layout, FlopsConvention convention) {
  const Transformer& model = layout.model;
  const Plan& plan = layout.plan;
  const double square = convention == FlopsConvention::Megatron ? 2 : 1;
  double flops = 0;
  for (const bool experts : {false, true}) {
    const bool predict = model.has_experts(model.layers - 1) == experts;
    std::int64_t layers = predict ? layout.prediction_layers() : 0;
    for (std::int64_t l = 0; l < model.layers; ++l)
      layers += model.has_experts(l) == experts ? 1 : 0;
    if (layers == 0) continue;
    const Body body = make_body(
        layout,
        {.segment = SegmentKind::Layer, .experts = experts, .direction = Direction::Backward});
    double layer = 0;
    for (const Node& node : body.nodes) {
      if (node.phase != NodePhase::Recompute) continue;
      layer += node.flops * (node.kind() == NodeKind::Attention ? square : 1);
    }
    flops += layer * static_cast<double>(layers);
  }
  return flops * plan.microbatches() * plan.tensor_parallel * plan.context_parallel *
         plan.data_parallel;
}

void count_flops(Prediction& p, const Layout& layout, FlopsConvention convention) {
  p.flops_convention = convention;
  p.model_flops =
      model_flops(layout.model, layout.plan.global_batch, layout.plan.sequence_length, convention);
  p.recomputed_flops = recomputed_flops(layout, convention);
}

void add_communication(Prediction& p) {
  const Schedule& s = p.schedule;
  const std::size_t num_rows = static_cast<std::size_t>(s.num_rows());
  // Ops of one cost send the same: count them and what was exposed, per row.
  struct Use {
    std::int64_t count = 0, exposed = 0;
  };
  std::vector<Use> uses(p.pricing.traffic.size() * num_rows);
  for (std::size_t r = 0; r < num_rows; ++r) {
    for (std::int32_t i = s.row_begin[r]; i < s.row_begin[r + 1]; ++i) {
      const auto op = static_cast<std::size_t>(i);
      Use& use = uses[static_cast<std::size_t>(p.pricing.table.of_op[op]) * num_rows + r];
      ++use.count;
      use.exposed += p.bubbles.exposed[op];
    }
  }
  std::map<std::pair<std::string_view, OpKind>, CommunicationRow> rows;  // by the group's name
  std::map<std::pair<std::string_view, OpKind>, std::vector<Traffic>> per_row;
  for (std::size_t cost = 0; cost < p.pricing.traffic.size(); ++cost) {
    const auto& traffic = p.pricing.traffic[cost];
    double total = 0;
    for (const Traffic& t : traffic) total += static_cast<double>(t.time.value);
    for (const Traffic& t : traffic) {
      const std::pair key{traits(t.group).name, t.kind};
      CommunicationRow& row = rows[key];
      auto& mine = per_row[key];
      if (mine.empty()) mine.resize(num_rows);
      for (std::size_t r = 0; r < num_rows; ++r) {
        const Use& use = uses[cost * num_rows + r];
        if (use.count == 0) continue;
        Traffic& sum = mine[r];
        sum.group = t.group;
        sum.kind = t.kind;
        sum.ranks = t.ranks;
        sum.link = t.link;
        for (std::size_t k = 0; k < kNumLinkKinds; ++k) sum.links[k] |= t.links[k];
        sum.count += use.count * t.count;
        sum.bytes += use.count * t.bytes;
        sum.time += use.count * t.time;
        if (total > 0) {
          row.exposed_s += static_cast<double>(use.exposed) * static_cast<double>(t.time.value) /
                           total * 1e-9 / static_cast<double>(p.bubbles.ranks);
        }
      }
    }
  }
  for (auto& [key, row] : rows) {
    const auto& mine = per_row[key];
    row.traffic =
        *std::max_element(mine.begin(), mine.end(),
                          [](const Traffic& a, const Traffic& b) { return a.time < b.time; });
    row.bus_bandwidth_gb_per_s =
        bus_bandwidth(key.second, {row.traffic.bytes}, row.traffic.ranks, row.traffic.time).value *
        1e-9;
    p.communication.push_back(std::move(row));
  }
}

// Whether all times and their sums over ops and ranks are what integers of nanoseconds can count.
Result<> countable(const Prediction& p) {
  constexpr double kLongest = 0x1p59;  // of all ops of all rows together, 18 years
  std::vector<double> ns(p.pricing.table.costs.size());
  for (std::size_t cost = 0; cost < ns.size(); ++cost) {
    const Cost& of = p.pricing.table.costs[cost];
    const bool forever = std::max({of.time, of.host, of.communicating}) >= kForever;
    ns[cost] = forever ? INFINITY : static_cast<double>((of.time + of.host).value);
    for (const Traffic& sent : p.pricing.traffic[cost]) {
      ns[cost] += static_cast<double>(sent.time.value);
    }
  }
  double sum = 0;
  for (std::size_t op = 0; op < p.schedule.ops.size(); ++op) {
    const double of = ns[static_cast<std::size_t>(p.pricing.table.of_op[op])];
    sum += of;
    if (sum <= kLongest) continue;
    return Error{"the step would take years: " + op_label(p.schedule, {static_cast<int>(op)}) +
                 " alone " +
                 (of < kLongest ? std::to_string(std::llround(of * 1e-9)) + " s"
                                : std::string("more than 13 days")) +
                 "; are the cluster's rates right?"};
  }
  return {};
}

// The same of idle and busy times, which are added up over ranks.
Result<> countable(const Timeline& timeline, std::int32_t gpus) {
  if (static_cast<double>(timeline.step().value) * gpus < 0x1p62) return {};
  return Error{"the step would take " + std::to_string(timeline.step().value / 1'000'000'000) +
               " s on " + std::to_string(gpus) + " GPUs: are the cluster's rates right?"};
}

// What a prediction says where data leaves a node over a NIC without a benchmark.
std::string network_note(const Prediction& p, const Cluster& cluster, const NicConstants& nic) {
  const auto on_nic = [](const CommunicationRow& row) {
    return row.traffic.link == LinkKind::Nic || row.traffic.link == LinkKind::Leaf ||
           row.traffic.link == LinkKind::Pod;
  };
  if (nic.benchmarked || std::ranges::none_of(p.communication, on_nic)) return {};
  const std::string kind = cluster.nics.kind.empty() ? "of no kind" : '"' + cluster.nics.kind + '"';
  return fmt::format(
      "cluster.nics.kind: NICs {} have no published benchmark here; {:.0f} % of their line rate is "
      "assumed, and counts as datasheet",
      kind, 100 * nic.achievable_fraction);
}

// Measured curves of groups inside a node, as if its links were `factor` times as fast.
void scale_links(CollectiveModel& model, double factor) {
  for (CollectiveFit& fit : model.fits) {
    if (fit.nodes == 1) fit.bus_bandwidth *= factor;
  }
  model.system.small_bandwidth *= factor;
  model.system.send_recv_bandwidth *= factor;
  for (CollectivePoint& point : model.measured) {
    if (point.nodes == 1) point.time_us /= factor;
  }
}

// What a framework's forward keeps of each segment, for the copies to the host.
std::array<std::int64_t, kNumSegmentShapes> kept_by_shape(const MemoryProfile& profile,
                                                          const Layout& layout) {
  const SegmentPrograms programs = segment_programs(profile, layout);
  std::array<std::int64_t, kNumSegmentShapes> kept{};
  for (std::size_t shape = 0; shape < kept.size(); ++shape) {
    if (programs[shape].slots == 0) continue;  // the model has none
    const bool first = static_cast<SegmentShape>(shape) == SegmentShape::Embedding;
    kept[shape] = kept_bytes(programs[shape], first ? 0 : layout.activation_bytes());
  }
  return kept;
}

void add_host_memory(Prediction& p, const Cluster& cluster) {
  MemoryReport& memory = p.memory;
  const std::vector<std::int64_t> rows = host_bytes(p.schedule);
  for (std::size_t row = 0; row < rows.size() && !memory.ranks.empty(); ++row) {
    RankMemory& rank = memory.ranks[row * memory.ranks.size() / rows.size()];
    rank.host = std::max(rank.host, rows[row]);
    memory.host = std::max(memory.host, rank.host);
  }
  if (cluster.host.memory_gib <= 0) return;
  const std::int32_t ranks = std::min(p.gpus, cluster.gpus_per_node);
  memory.host_capacity =
      static_cast<std::int64_t>(cluster.host.memory_gib * 1073741824.0) / std::max(ranks, 1);
  for (RankMemory& rank : memory.ranks) {
    rank.fits &= rank.host <= *memory.host_capacity;
    memory.fits &= rank.fits;
  }
}

// Gives replicas that differ rows of their own, and the engine their speeds.
void vary(Prediction& p, const Variation& variation, EngineOptions& engine) {
  const ReplicaClasses classes = replica_classes(variation, p.plan);
  if (classes.split()) p.schedule = split_replicas(p.schedule, p.plan, classes.begins);
  for (const RankClassInfo& row : p.schedule.rows) {
    const auto range = std::ranges::find(classes.begins, row.data_begin) - classes.begins.begin();
    const std::size_t of =
        static_cast<std::size_t>(range) * static_cast<std::size_t>(classes.positions) +
        row.position.index();
    engine.row_factor.push_back(classes.factor[of]);
    engine.row_waits.push_back(classes.waits[of]);
  }
  engine.op_sigma = variation.jitter_sigma;
  engine.op_draws = p.plan.tensor_parallel * p.plan.context_parallel;
  engine.seed = static_cast<std::uint64_t>(variation.seed);
  p.variation_note = variation_note(variation, classes, p.plan);
}

// Products with a scale per block need tensor cores that read them.
Result<> check_precision(const Plan& plan, const Cluster& cluster) {
  if (!is_block_scaled(plan.precision.compute)) return {};
  if (cluster.peak_flops(plan.precision.compute) && cluster.gpu.compute_capability >= 100)
    return {};
  return Error{.message = "plan.precision: " + cluster.gpu.name + " has no products in " +
                          std::string(name_of(plan.precision.compute)) +
                          ": they need compute capability 10.0 and a peak rate",
               .unsupported = true};
}

// REQUIRES: options.tables.
Result<Prediction> predict_plan(const Scenario& scenario, Plan plan, const Cluster& machine,
                                const PredictOptions& options) {
  const auto models = std::make_shared<CostModels>();
  models->cluster = with_places(machine, plan.gpus());
  const Cluster& cluster = models->cluster;
  const HardwareTables& tables = *options.tables;
  const Transformer& model = scenario.model;
  if (const Result<> size = check_lowered_size(model, plan); !size) return size.error();
  if (const Result<> has = check_precision(plan, cluster); !has) return has.error();
  if (plan.runtime.own_executor && model.prediction_layers > 0) {
    return Error{.message = "plan.runtime: " + plan.runtime.name +
                            " runs no prediction layers (model.num_nextn_predict_layers): the time "
                            "would be that of a model without; leave it out, or megatron or fsdp",
                 .unsupported = true};
  }
  Result<Schedule> order = order_of(model, plan);
  if (!order) return order.error();
  const Layout layout(model, plan);  // of the plan with what the order's file says
  Prediction p{.plan = plan, .order = std::move(order).value(), .gpus = plan.gpus()};
  const bool arena = plan.runtime.own_executor;
  const auto enough = [&] {
    return options.memory_limit && p.memory.peak_device > *options.memory_limit;
  };
  if (!arena && options.memory) {
    p.memory = predict_memory(tables.profile(plan), layout, cluster, p.order);
    if (enough()) return p;
  }
  LowerOptions lowering{.plan_arena = arena, .lifetimes = arena || options.lifetimes};
  if (!arena && plan.offload == OffloadMode::Activations) {
    lowering.kept = kept_by_shape(tables.profile(plan), layout);
  }
  Result<Schedule> lowered = lower(p.order, layout, lowering);
  if (!lowered) return lowered.error();
  p.schedule = std::move(lowered).value();
  EngineOptions engine{.record_load = options.record_load};
  if (scenario.variation.any()) {
    if (plan.has_parameter_server()) {
      return Error{.message =
                       "variation: replicas that differ are not priced with a parameter "
                       "server (plan.data_parallel_algorithm)",
                   .unsupported = true};
    }
    if (plan.shard_group > 0) {
      return Error{.message =
                       "variation: replicas that differ are not priced with shard groups "
                       "(plan.shard_group)",
                   .unsupported = true};
    }
    vary(p, scenario.variation, engine);
  }
  if (arena) p.memory = arena_memory(p.schedule, cluster, Bytes{0}, Bytes{0});
  if (plan.offload != OffloadMode::None) add_host_memory(p, cluster);
  for (const RankMemory& rank : p.memory.ranks) {
    p.memory_ops.push_back(!rank.at_op ? std::string(traits(OpKind::OptimizerStep).name)
                           : arena     ? op_label(p.schedule, rank.at_op)
                                       : to_text(p.order, rank.at_op));
  }
  if (!options.timeline || enough()) return p;

  models->collectives = tables.collectives;
  if (options.scale_up_factor != 1) scale_links(models->collectives, options.scale_up_factor);
  const Network& network =
      models->network.emplace(cluster, models->collectives, plan, p.schedule.rows);
  Result<ComputeModel> compute =
      ComputeModel::create(cluster, layout, body_collectives(network, layout), tables.scalars);
  if (!compute) return compute.error();
  models->compute.emplace(std::move(compute).value());
  p.models = models;
  p.pricing = price(p.schedule, layout, *models->compute, network);
  if (remaps(p.memory)) {
    const std::int32_t us_per_gb = tables.profile(plan).remap_us_per_gb;
    price_remapping(p.memory, us_per_gb, p.order, p.schedule, p.pricing);
    p.remap_s = remap_seconds(p.memory, us_per_gb);
  }
  if (const Result<> good = countable(p); !good) return good.error();
  for (const Link& link : network.links()) {
    p.link_names.push_back(std::string(name_of(link.kind)) + (link.outward ? " out" : " in"));
  }
  if (cluster.workers > 0) p.link_names.emplace_back("workers");
  const Program program = compile(p.schedule);
  const bool events =
      needs_events(p.pricing.table) || options.record_load || scenario.variation.any();
  Result<Timeline> timeline =
      events ? simulate(program, p.pricing.table, engine) : sweep(program, p.pricing.table);
  if (!timeline) return timeline.error();
  p.timeline = std::move(timeline).value();
  if (const Result<> good = countable(p.timeline, p.gpus); !good) return good.error();
  p.bubbles = attribute(program, p.pricing.table, p.timeline);
  p.step_s = static_cast<double>(p.timeline.step().value) * 1e-9;
  p.tokens_per_s = static_cast<double>(plan.global_batch * plan.sequence_length) / p.step_s;
  p.parameters = total_parameters(model);
  p.has_experts = model.experts.count > 0;
  p.peak_flops = cluster.peak_flops(plan.precision.compute);
  count_flops(p, layout, FlopsConvention::Megatron);
  // The square is most of a long sequence's work, and causal attention computes half of it: counted
  // whole it would be more than the GPU can do.
  if (p.hfu().value_or(0) > 1) count_flops(p, layout, FlopsConvention::MegatronCausal);
  p.usd_per_gpu_hour = cluster.price_usd_per_gpu_hour;
  p.energy_j = cluster.gpu.tdp_w * 1e-9 *
               (static_cast<double>(p.bubbles.busy) +
                tables.scalars.idle_share_of_tdp * static_cast<double>(p.bubbles.idle));
  add_communication(p);
  p.network_note = network_note(p, cluster, models->collectives.nic);
  add_confidence(p, scenario, cluster, tables.errors, options.without_source);
  return p;
}

// Compute ops of the longest step that orders are compared on; of a longer one they are compared on
// fewer micro-batches. All orders of one plan together then take seconds.
constexpr std::int64_t kMostCompared = 1 << 16;
constexpr std::int64_t kMostComparedPerMicroBatch = 1 << 13;  // with micro_batch auto

// What an order that was tried came to.
struct Tried {
  Plan plan;
  double step_s = 0;
  std::int64_t peak = 0;  // [B] on the fullest device
  bool fits = false;

  // Those that fit by time; where nothing fits, what needs least is nearest to it.
  bool better_than(const Tried& other) const {
    if (fits != other.fits) return fits;
    return fits ? step_s < other.step_s : peak < other.peak;
  }
};

// Fewer micro-batches than the plan's, where its step is long: as many as leave the same rest of
// twice the positions, at least four times the positions.
std::int32_t compared_microbatches(const Plan& plan, std::int64_t most_ops) {
  const std::int64_t m = plan.microbatches(), step = 2 * std::int64_t{plan.pipeline_parallel};
  const std::int64_t per_microbatch = 3 * static_cast<std::int64_t>(plan.stage_layers.size());
  const std::int64_t enough = std::max(most_ops / per_microbatch, 2 * step);
  if (m <= enough + step) return static_cast<std::int32_t>(m);
  return static_cast<std::int32_t>(m - (m - enough) / step * step);
}

// Time and memory of an order. A long step is told from two shorter ones: each further micro-batch
// takes as long as those in which they differ.
Result<Tried> try_order(const Scenario& scenario, const Plan& plan, const Cluster& cluster,
                        const PredictOptions& options, std::int64_t most_ops) {
  const auto of = [&](std::int64_t microbatches) {
    Plan shorter = plan;
    shorter.global_batch = microbatches * plan.data_parallel * plan.micro_batch;
    return predict_plan(scenario, shorter, cluster, options);
  };
  const std::int64_t m = plan.microbatches(), compared = compared_microbatches(plan, most_ops);
  const Result<Prediction> made = of(compared);
  if (!made) return made.error();
  Tried tried{.plan = plan,
              .step_s = made.value().step_s,
              .peak = made.value().memory.peak_device,
              .fits = made.value().memory.fits && made.value().step_s > 0};
  if (compared == m || !tried.fits) return tried;
  const std::int64_t fewer = 2 * std::int64_t{plan.pipeline_parallel};
  const Result<Prediction> before = of(compared - fewer);
  if (!before) return before.error();
  tried.step_s += (tried.step_s - before.value().step_s) * static_cast<double>(m - compared) /
                  static_cast<double>(fewer);
  PredictOptions whole = options;
  whole.timeline = false;
  const Result<Prediction> memory = predict_plan(scenario, plan, cluster, whole);
  if (!memory) return memory.error();
  tried.peak = memory.value().memory.peak_device;
  tried.fits = memory.value().memory.fits;
  return tried;
}

// Takes the best of the plan's orders, where it has several: by predicted time among those that
// fit. REQUIRES: options.tables.
Result<Prediction> predict_best_order(const Scenario& scenario, const Plan& plan,
                                      const Cluster& cluster, const PredictOptions& options,
                                      std::int64_t most_ops) {
  if (!leaves_order_open(plan)) return predict_plan(scenario, plan, cluster, options);
  PredictOptions trial = options;
  trial.timeline = trial.memory = true;
  trial.record_load = trial.lifetimes = false;
  // What is fuller than the device is not worth a timeline.
  const std::int64_t capacity = cluster.capacity().value;
  trial.memory_limit = std::min(capacity, options.memory_limit.value_or(capacity));
  std::optional<Tried> best;
  std::optional<Error> failed;
  OrderChoice choice;
  const Cluster placed = with_places(cluster, plan.gpus());
  for (Plan& candidate : order_candidates(scenario.model, plan)) {
    if (find_schedule(candidate.order)->planned) {
      const Result<> timed =
          price_planned_times(scenario.model, placed, *options.tables, candidate);
      if (!timed) return timed.error();
    }
    Result<Tried> tried = try_order(scenario, candidate, cluster, trial, most_ops);
    if (!tried) {
      if (!failed) failed = tried.error();
      continue;
    }
    ++choice.considered;
    choice.fitting += tried.value().fits ? 1 : 0;
    if (!best || tried.value().better_than(*best)) best = std::move(tried).value();
  }
  if (!best) {
    return failed ? *failed
                  : Error{.message = "plan.memory_limit: no order keeps to " +
                                     std::to_string(plan.memory_limit) +
                                     " times the activations of 1F1B",
                          .infeasible = true};
  }
  Result<Prediction> made = predict_plan(scenario, best->plan, cluster, options);
  if (!made) return made;
  Prediction prediction = std::move(made).value();
  prediction.choice = choice;
  return prediction;
}

}  // namespace

Result<HardwareTables> read_hardware_tables(const Cluster& cluster,
                                            const std::vector<std::string>& runtimes) {
  const Result<CollectiveTables> collectives = shipped_collective_tables();
  if (!collectives) return collectives.error();
  Result<KernelScalars> scalars = read_kernel_scalars(cluster);
  if (!scalars) return scalars.error();
  Result<ErrorTable> errors = shipped_error_table();
  if (!errors) return errors.error();
  HardwareTables tables{.collectives = make_collective_model(collectives.value(), cluster),
                        .scalars = std::move(scalars).value(),
                        .errors = std::move(errors).value()};
  for (const std::string& runtime : runtimes) {
    Result<MemoryProfile> profile = read_memory_profile(runtime);
    if (!profile) return profile.error();
    tables.memory.emplace(runtime, std::move(profile).value());
  }
  return tables;
}

// micro_batch auto: the best predicted throughput among those that fit, the smallest where none
// does. Throughput at a fixed global batch is the inverse of the step time.
Result<Prediction> predict(const Scenario& scenario, const Cluster& cluster,
                           const PredictOptions& asked) {
  PredictOptions options = asked;
  std::optional<HardwareTables> read;
  if (options.tables == nullptr) {
    std::vector<std::string> runtimes;
    if (!scenario.plan.runtime.own_executor) runtimes.push_back(profile_runtime(scenario.plan));
    Result<HardwareTables> tables = read_hardware_tables(cluster, runtimes);
    if (!tables) return tables.error();
    read = std::move(tables).value();
    options.tables = &*read;
  }
  if (!scenario.plan.micro_batch_auto) {
    return predict_best_order(scenario, scenario.plan, cluster, options, kMostCompared);
  }
  std::optional<Prediction> best;
  std::vector<MicroBatchTried> tried;
  std::optional<Error> failed, too_large;
  PredictOptions plain = options;
  plain.record_load = false;
  plain.memory_limit = cluster.capacity().value;  // what is fuller gets no timeline yet
  for (const std::int32_t candidate : micro_batch_candidates(scenario.plan)) {
    Plan open = scenario.plan;
    open.micro_batch = candidate;
    if (const Result<> size = check_lowered_size(scenario.model, open); !size) {
      if (!too_large) too_large = size.error();
      continue;
    }
    const Result<Plan> plan = choose_micro_batch(scenario.plan, candidate);
    if (!plan) {
      if (!failed) failed = plan.error();
      continue;
    }
    Result<Prediction> made =
        predict_best_order(scenario, plan.value(), cluster, plain, kMostComparedPerMicroBatch);
    if (!made) {
      if (!failed) failed = made.error();
      continue;
    }
    // Smaller ones, which may fit, are too many: nothing can be said of this batch.
    if (too_large && !best && !made.value().memory.fits) return *too_large;
    tried.push_back({candidate, made.value().memory.fits, made.value().step_s});
    const bool first_of_none = !best && !made.value().memory.fits;
    const bool better = made.value().memory.fits &&
                        (!best || !best->memory.fits || made.value().step_s < best->step_s);
    if (first_of_none || better) best = std::move(made).value();
  }
  if (!best && too_large) return *too_large;
  if (!best) return failed ? *failed : Error{"plan.micro_batch: nothing divides the global batch"};
  best->micro_batches = std::move(tried);
  if (!options.record_load && best->memory.fits) return std::move(*best);
  Result<Prediction> whole = predict_plan(scenario, best->plan, cluster, options);
  if (!whole) return whole;
  Prediction prediction = std::move(whole).value();
  prediction.choice = best->choice;
  prediction.micro_batches = std::move(best->micro_batches);
  return prediction;
}

}  // namespace rehearse::sim
