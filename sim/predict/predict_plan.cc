// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/predict_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedules/ir/listing.h"
#include "schedules/ir/text.h"
#include "schedules/passes/lower.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/ranks/unfold.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/plan_shape.h"
#include "schedules/scenario/plan_size.h"
#include "sim/engine/event_engine.h"
#include "sim/engine/program.h"
#include "sim/engine/sweep.h"
#include "sim/memory/host_memory.h"
#include "sim/memory/memory_script.h"
#include "sim/predict/confidence.h"
#include "sim/predict/corrected/remapping.h"
#include "sim/predict/corrected/variation.h"
#include "sim/predict/countable.h"
#include "sim/predict/left_out.h"
#include "sim/predict/order_prices.h"
#include "sim/predict/precision.h"
#include "sim/predict/step_counts.h"

namespace rehearse::sim {
namespace {

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
std::vector<std::int64_t> kept_by_class(const MemoryProfile& profile, const Layout& layout) {
  const std::vector<SegmentProgram> programs = segment_programs(profile, layout).rotating;
  std::vector<std::int64_t> kept(programs.size(), 0);
  for (std::size_t of = 0; of < kept.size(); ++of) {
    if (programs[of].slots == 0) continue;  // the model has none
    const bool first = of == static_cast<std::size_t>(SegmentShape::Embedding);
    kept[of] = kept_bytes(programs[of], first ? 0 : layout.activation_bytes());
  }
  return kept;
}

void add_host_memory(Prediction& p, const Cluster& cluster) {
  MemoryReport& memory = p.memory;
  const std::vector<std::int64_t> host = host_bytes(p.schedule), nvme = nvme_bytes(p.schedule);
  std::vector<std::int64_t> updated(host.size(), 0);
  for (std::int32_t i = 0; i < p.schedule.num_ops(); ++i) {
    const Op& op = p.schedule.ops[static_cast<std::size_t>(i)];
    if (op.kind != OpKind::OptimizerStep) continue;
    updated[p.schedule.row_of({i}).index()] +=
        p.schedule.owned_elements(p.schedule.buckets[op.bucket.index()], p.plan.zero_stage);
  }
  for (std::size_t row = 0; row < host.size() && !memory.ranks.empty(); ++row) {
    RankMemory& rank = memory.ranks[row * memory.ranks.size() / host.size()];
    rank.host = std::max(rank.host, host[row] + swap_buffers(p.plan, updated[row]));
    rank.nvme = std::max(rank.nvme, nvme[row]);
    memory.host = std::max(memory.host, rank.host);
    memory.nvme = std::max(memory.nvme, rank.nvme);
  }
  const std::int64_t ranks = std::max(1, std::min(p.gpus, cluster.gpus_per_node));
  if (cluster.host.memory_gib > 0) {
    memory.host_capacity =
        static_cast<std::int64_t>(cluster.host.memory_gib * 1073741824.0) / ranks;
  }
  if (cluster.nvme.capacity_gb > 0) {
    memory.nvme_capacity = static_cast<std::int64_t>(cluster.nvme.capacity_gb * 1e9) / ranks;
  }
  for (RankMemory& rank : memory.ranks) {
    rank.fits &= rank.host <= memory.host_capacity.value_or(rank.host);
    rank.fits &= rank.nvme <= memory.nvme_capacity.value_or(rank.nvme);
    memory.fits &= rank.fits;
  }
}

// Time on drives follows from what the cluster's file says of them. A machine's own tables have
// copies to its memory, through which its files go.
Result<> check_drives(const Plan& plan, const Cluster& cluster) {
  if (plan.offload_to != OffloadTarget::Nvme || cluster.nvme.known() || cluster.workers > 0) {
    return {};
  }
  return Error{"plan." + path_of(&Plan::offload_to) + ": nvme: " + cluster.id +
               " does not say how fast its drives are (cluster.nvme.read_gb_per_s, "
               "write_gb_per_s)"};
}

// Gives replicas that differ rows of their own, and the engine their speeds.
Result<> vary(Prediction& p, const Variation& variation, EngineOptions& engine) {
  const ReplicaClasses classes = replica_classes(variation, p.plan);
  if (classes.split()) {
    const double ops =
        static_cast<double>(p.schedule.num_ops()) * static_cast<double>(classes.begins.size());
    const Result<> fits = check_ops_fit("variation: replicas that differ", ops);
    if (!fits) return fits.error();
    p.lowered_hash = hash_of(p.schedule, p.plan);
    p.schedule = split_replicas(p.schedule, p.plan, classes.begins);
    for (const RankClassInfo& row : p.schedule.rows) p.row_class.push_back(row.position.value);
  }
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
  return {};
}

// The costs of ops in an order, which were priced in another.
void reorder(std::vector<std::int32_t>& of_op, const std::vector<OpId>& priced) {
  std::vector<std::int32_t> ordered;
  ordered.reserve(of_op.size());
  for (const OpId id : priced) ordered.push_back(of_op[id.index()]);
  of_op = std::move(ordered);
}

// The op at which each rank is fullest, by name.
void name_memory_ops(Prediction& p) {
  const bool arena = p.plan.runtime.performer().plans_arena;
  p.memory_ops.clear();
  for (const RankMemory& rank : p.memory.ranks) {
    p.memory_ops.push_back(rank.at_building ? std::string()
                           : !rank.at_op    ? std::string(traits(OpKind::OptimizerStep).name)
                           : arena          ? op_label(p.schedule, rank.at_op)
                                            : to_text(p.order, rank.at_op));
  }
}

// Memory over the prediction's order, or where it does not repeat itself there, over the first
// longer one in which it does, at last the plan's. `shorter`, `replayed`: as of perform.
Result<> replay_memory(Prediction& p, std::optional<Schedule>& replayed, const Scenario& scenario,
                       const Layout& layout, const Cluster& cluster, const PredictOptions& options,
                       const ShorterOrders* shorter) {
  const MemoryProfile& profile = options.tables->profile(p.plan);
  const MemoryNeed* need = options.need ? &*options.need : nullptr;
  const auto found = [&](const Schedule& order) {
    p.memory = predict_memory(profile, layout, cluster, order, need);
    return p.memory.left_out || p.memory.ruled_out;
  };
  if (found(p.order) || shorter == nullptr) return {};
  for (const std::int32_t length : shorter_steps(p.plan, *shorter)) {
    if (length <= p.order.microbatches) continue;
    replayed = shorter->with(length);
    if (replayed && found(*replayed)) return {};
  }
  Plan whole = p.plan;
  Result<Schedule> order = order_of(scenario.model, whole);
  if (!order) return order.error();
  replayed = std::move(order).value();
  found(*replayed);
  return {};
}

// How a step is performed, op by op: memory, program, costs and times of the prediction's order.
// False: no times, as memory alone was asked for or is too much. `shorter`: whence the prediction's
// order is; null: that is the plan's. `replayed`: filled with a longer one of them, or the plan's,
// where memory does not repeat itself in the prediction's.
Result<bool> perform(Prediction& p, Program& program, std::optional<Schedule>& replayed,
                     const Scenario& scenario, const Layout& layout,
                     const std::shared_ptr<CostModels>& models, const PredictOptions& options,
                     const ShorterOrders* shorter) {
  const Plan& plan = p.plan;
  const Cluster& cluster = models->cluster;
  const HardwareTables& tables = *options.tables;
  const bool arena = plan.runtime.performer().plans_arena;
  const auto enough = [&] {
    return options.memory_limit && p.memory.even_peak_device > *options.memory_limit;
  };
  if (!arena && options.memory) {
    const Result<> replayed_all =
        replay_memory(p, replayed, scenario, layout, cluster, options, shorter);
    if (!replayed_all) return replayed_all.error();
    if (p.memory.ruled_out) return false;
    if (p.memory.beyond_count) {
      return Error{"plan.global_batch: a GPU would keep more than 2^62 bytes for its backwards"};
    }
    if (shorter != nullptr && remaps(p.memory)) return false;
    if (enough()) return false;
  }
  LowerOptions lowering{.plan_arena = arena, .lifetimes = arena || options.lifetimes};
  if (!arena && plan.offload.activations) {
    lowering.kept = kept_by_class(tables.profile(plan), layout);
  }
  models->collectives = tables.collectives;
  if (options.scale_up_factor != 1) scale_links(models->collectives, options.scale_up_factor);
  const auto price_here = [&](const Schedule& schedule) -> Result<> {
    const Result<> made = make_models(*models, layout, schedule.rows, tables.scalars);
    if (made) p.pricing = price(schedule, layout, *models->compute, *models->network);
    return made;
  };
  // Ops are priced before they are ordered, and keep the prices: unless others order them, or
  // nobody asks for times and the memory does not depend on the order.
  lowering.price = options.order_by;
  if (!lowering.price && (arena || options.timeline)) {
    lowering.price = [&](const Schedule& drafted,
                         const Layout&) -> Result<std::vector<std::int64_t>> {
      if (const Result<> priced = price_here(drafted); !priced) return priced.error();
      return times_of(p.pricing);
    };
  }
  Result<Lowered> lowered = lower_priced(p.order, layout, lowering);
  if (!lowered) return lowered.error();
  p.schedule = std::move(lowered.value().schedule);
  if (models->compute) reorder(p.pricing.table.of_op, lowered.value().drafted);
  const std::size_t rows = p.schedule.rows.size();
  EngineOptions engine{.record_load = options.record_load};
  if (scenario.variation.any()) {
    if (plan.has_parameter_server()) {
      return Error{.message =
                       "variation: replicas that differ are not priced with a parameter "
                       "server (plan.data_parallel_algorithm)",
                   .unsupported = true};
    }
    for (const auto group : {&Plan::shard_group, &Plan::secondary_shard_group}) {
      if (plan.*group == 0) continue;
      return Error{.message = fmt::format("variation: replicas that differ are not priced with "
                                          "shard groups (plan.{})",
                                          path_of(group)),
                   .unsupported = true};
    }
    if (const Result<> varied = vary(p, scenario.variation, engine); !varied) return varied.error();
  }
  if (arena) p.memory = arena_memory(p.schedule, cluster, Bytes{0}, Bytes{0});
  if (plan.offload.any()) add_host_memory(p, cluster);
  if (shorter == nullptr) name_memory_ops(p);
  if (!options.timeline || enough()) return false;

  if (!models->compute || p.schedule.rows.size() != rows) {  // not priced, or not with these rows
    if (const Result<> priced = price_here(p.schedule); !priced) return priced.error();
  }
  p.models = models;
  const Network& network = *models->network;
  if (remaps(p.memory)) {
    const std::int32_t us_per_gb = tables.profile(plan).remap_us_per_gb;
    price_remapping(p.memory, us_per_gb, p.order, p.schedule, p.pricing);
    p.remap_s = remap_seconds(p.memory, us_per_gb);
  }
  if (const Result<> good = countable(p); !good) return good.error();
  for (const Link& link : network.links()) p.link_names.push_back(name_of(link));
  const auto links = static_cast<std::int32_t>(network.links().size());
  for (std::int32_t pair = 0; pair < network.num_resources() - links; ++pair) {
    p.link_names.push_back(
        fmt::format("process {} to {}", pair / cluster.processes, pair % cluster.processes));
  }
  if (cluster.workers > 0) p.link_names.emplace_back("workers");
  program = compile(p.schedule);
  const bool events =
      needs_events(p.pricing.table) || options.record_load || scenario.variation.any();
  Result<Timeline> timeline =
      events ? simulate(program, p.pricing.table, engine) : sweep(program, p.pricing.table);
  if (!timeline) return timeline.error();
  p.timeline = std::move(timeline).value();
  return true;
}

// What is said of the whole step.
Result<> summarize(Prediction& p, const Scenario& scenario, const Layout& layout,
                   const PredictOptions& options) {
  const Plan& plan = p.plan;
  const CostModels& models = *p.models;
  const Cluster& cluster = models.cluster;
  const HardwareTables& tables = *options.tables;
  if (const Result<> good = countable(p.timeline, p.gpus); !good) return good.error();
  p.step_s = static_cast<double>(p.timeline.step().value) * 1e-9;
  p.tokens_per_s = static_cast<double>(plan.global_batch * plan.sequence_length) / p.step_s;
  p.parameters = total_parameters(scenario.model);
  p.has_experts = scenario.model.experts.count > 0;
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
  p.network_note = network_note(p, cluster, models.collectives.nic);
  if (options.confidence) {
    add_confidence(p, scenario, cluster, tables.errors, options.without_source);
  }
  return {};
}

constexpr std::size_t kMostAttempts = 4;

// A shorter step of the plan, which stands for it; none: no such step does.
std::optional<Prediction> predict_shorter(const Scenario& scenario, const Plan& plan,
                                          const Cluster& machine, const PredictOptions& options,
                                          const ShorterOrders& shorter) {
  const Layout layout(scenario.model, plan);
  std::vector<std::int32_t> lengths = shorter_steps(plan, shorter);
  for (std::size_t attempt = 0; attempt < std::min(lengths.size(), kMostAttempts); ++attempt) {
    const auto models = std::make_shared<CostModels>();
    models->cluster = with_places(machine, plan.gpus());
    std::optional<Schedule> order = shorter.with(lengths[attempt]);
    if (!order) continue;
    Prediction p{.plan = plan, .order = std::move(*order), .gpus = plan.gpus()};
    p.warnings = precision_warnings(plan, models->cluster);
    Program program;
    std::optional<Schedule> replayed;
    const Result<bool> performed =
        perform(p, program, replayed, scenario, layout, models, options, &shorter);
    if (p.memory.ruled_out) return p;
    if (!performed || !performed.value())
      return {};  // no length mends that, and the whole says why
    std::optional<Shortened> shortened = find_left_out(p, shorter, replayed ? &*replayed : nullptr);
    if (!shortened) continue;
    const std::int32_t rest =
        (plan.microbatches() - lengths[attempt]) % shortened->repetition.microbatches;
    if (rest != 0) {  // once more, so that whole periods are left out
      lengths.insert(lengths.begin() + static_cast<std::ptrdiff_t>(attempt) + 1,
                     lengths[attempt] + rest);
      continue;
    }
    p.bubbles = attribute(program, p.pricing.table, p.timeline, &shortened->repetition);
    leave_out(p, program, std::move(*shortened), std::move(replayed));
    if (!countable(p)) return {};  // the whole step says at which op
    name_memory_ops(p);
    if (!summarize(p, scenario, layout, options)) return {};
    return p;
  }
  return {};
}

// The same, or why there is none. `whole`: filled with the plan's order where its repetitions are
// looked for in that; the plan has then what the order's file says.
Result<std::optional<Prediction>> predict_from_shorter(const Scenario& scenario, Plan& plan,
                                                       const Cluster& machine,
                                                       const PredictOptions& options,
                                                       std::optional<Schedule>& whole,
                                                       std::string& because) {
  because = performed_whole(scenario, plan, options);
  if (!because.empty()) return std::optional<Prediction>();
  const auto predicted = [&](const ShorterOrders& shorter) {
    because = shorter_steps(plan, shorter).empty() ? "its micro-batches are few"
                                                   : "no shorter step of it repeats itself";
    return predict_shorter(scenario, plan, machine, options, shorter);
  };
  const bool few = has_few_microbatches(plan);
  const ShorterOrders grown = few ? ShorterOrders() : ShorterOrders::of_plan(plan);
  if (grown.repeated() > 0) return predicted(grown);
  because = "its order is searched for, or has no middle that repeats itself";
  const ScheduleInfo* info = find_schedule(name_of_order(plan));
  if (info != nullptr && info->planned) return std::optional<Prediction>();
  Result<Schedule> order = order_of(scenario.model, plan);
  if (!order) return order.error();
  whole = std::move(order).value();
  if (few) {
    because = "its micro-batches are few";
    return std::optional<Prediction>();
  }
  const ShorterOrders cut = ShorterOrders::cut_from(*whole);
  if (cut.repeated() == 0) return std::optional<Prediction>();
  return predicted(cut);
}

}  // namespace

Result<Prediction> predict_plan(const Scenario& scenario, Plan plan, const Cluster& machine,
                                const PredictOptions& options) {
  const auto models = std::make_shared<CostModels>();
  models->cluster = with_places(machine, plan.gpus());
  if (const Result<> size = check_lowered_size(scenario.model, plan); !size) return size.error();
  if (const Result<> has = check_precision(plan, models->cluster); !has) return has.error();
  if (const Result<> has = check_drives(plan, models->cluster); !has) return has.error();
  std::string whole_because;
  std::optional<Schedule> whole;  // the plan's order, as soon as somebody needs it
  if (options.leave_out && options.timeline) {
    Result<std::optional<Prediction>> shorter =
        predict_from_shorter(scenario, plan, machine, options, whole, whole_because);
    if (!shorter) return shorter.error();
    if (shorter.value()) return std::move(*shorter.value());
  }
  if (!whole) {
    Result<Schedule> order = order_of(scenario.model, plan);
    if (!order) return order.error();
    whole = std::move(order).value();
  }
  const Layout layout(scenario.model, plan);  // of the plan with what the order's file says
  Prediction p{.plan = plan, .order = std::move(*whole), .gpus = plan.gpus()};
  p.left_out.whole_because = std::move(whole_because);
  p.warnings = precision_warnings(plan, models->cluster);
  Program program;
  std::optional<Schedule> unused;
  const Result<bool> timed =
      perform(p, program, unused, scenario, layout, models, options, /*shorter=*/nullptr);
  if (!timed) return timed.error();
  if (!timed.value()) return p;
  p.bubbles = attribute(program, p.pricing.table, p.timeline);
  if (const Result<> summed = summarize(p, scenario, layout, options); !summed) {
    return summed.error();
  }
  return p;
}

}  // namespace rehearse::sim
