// SPDX-License-Identifier: Apache-2.0
// What a plan leaves open, order and micro-batch, is chosen by predicting each.
#include "sim/predict/predict.h"

#include <algorithm>

#include "schedules/ir/program_hash.h"
#include "schedules/order/registry.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/plan_size.h"
#include "sim/predict/order_prices.h"
#include "sim/predict/planned_times.h"
#include "sim/predict/predict_plan.h"

namespace rehearse::sim {
namespace {

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

// Whether the plan is ours and predicted for another cluster than that by which its run is ordered.
bool ordered_as_filed(const Scenario& scenario) {
  return scenario.file_cluster && scenario.plan.runtime.own_executor;
}

// On the cluster that the file names.
Result<Prediction> predict_as_filed(const Scenario& scenario, const Plan& plan) {
  Scenario filed = scenario;
  filed.plan = plan;
  filed.cluster = *scenario.file_cluster;
  filed.file_cluster.reset();
  const Result<Cluster> cluster = read_cluster(filed.cluster);
  if (!cluster) return cluster.error();
  return predict(filed, cluster.value());
}

// Takes the best of the plan's orders, where it has several: by predicted time among those that
// fit. REQUIRES: options.tables.
Result<Prediction> predict_best_order(const Scenario& scenario, const Plan& plan,
                                      const Cluster& cluster, const PredictOptions& options,
                                      std::int64_t most_ops) {
  if (!leaves_order_open(plan)) return predict_plan(scenario, plan, cluster, options);
  if (ordered_as_filed(scenario)) {
    const Result<Prediction> filed = predict_as_filed(scenario, plan);
    if (!filed) return filed.error();
    Result<Prediction> made = predict_plan(scenario, filed.value().plan, cluster, options);
    if (!made) return made;
    Prediction prediction = std::move(made).value();
    prediction.choice = filed.value().choice;
    return prediction;
  }
  PredictOptions trial = options;
  trial.timeline = trial.memory = true;
  trial.record_load = trial.lifetimes = trial.confidence = false;
  trial.need.reset();  // what fits nowhere is compared by what it needs
  // What is fuller than the device is not worth a timeline.
  const std::int64_t capacity = cluster.capacity().value;
  trial.memory_limit = std::min(capacity, options.memory_limit.value_or(capacity));
  std::optional<Tried> best;
  std::optional<Error> failed;
  OrderChoice choice;
  const Cluster placed = with_places(cluster, plan.gpus());
  std::vector<Plan> candidates = order_candidates(scenario.model, plan);
  if (!find_schedule(plan.schedule)->planned) {  // one order, which waits for prices
    const Result<> timed =
        price_planned_times(scenario.model, placed, *options.tables, candidates.front());
    if (!timed) return timed.error();
    return predict_plan(scenario, candidates.front(), cluster, options);
  }
  for (Plan& candidate : candidates) {
    if (find_schedule(candidate.order)->planned || candidate.places_recompute) {
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

// micro_batch auto: the best predicted throughput among those that fit, the smallest where none
// does. Throughput at a fixed global batch is the inverse of the step time.
// REQUIRES: options.tables.
Result<Prediction> predict_best(const Scenario& scenario, const Cluster& cluster,
                                const PredictOptions& options) {
  if (!scenario.plan.micro_batch_auto) {
    return predict_best_order(scenario, scenario.plan, cluster, options, kMostCompared);
  }
  std::optional<Prediction> best;
  std::vector<MicroBatchTried> tried;
  std::optional<Error> failed, too_large;
  PredictOptions plain = options;
  plain.record_load = false;
  plain.memory_limit = cluster.capacity().value;  // what is fuller gets no timeline yet
  plain.need.reset();
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

}  // namespace

std::string hash_of(const Schedule& schedule, const Plan& plan) {
  return plan.runtime.performer().plans_arena ? content_hash(schedule)
                                              : program_hash(schedule, relative_ops(schedule));
}

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

Result<Prediction> predict(const Scenario& scenario, const Cluster& cluster,
                           const PredictOptions& asked) {
  PredictOptions options = asked;
  if (ordered_as_filed(scenario)) {
    Result<PriceOps> priced = order_prices(scenario);
    options.order_by = priced ? std::move(priced).value() : by_flops();
  }
  if (options.tables != nullptr) return predict_best(scenario, cluster, options);
  std::vector<std::string> runtimes;
  if (!scenario.plan.runtime.performer().plans_arena) {
    runtimes.push_back(scenario.plan.runtime.name);
  }
  Result<HardwareTables> read = read_hardware_tables(cluster, runtimes);
  if (!read) return read.error();
  const auto tables = std::make_shared<const HardwareTables>(std::move(read).value());
  options.tables = tables.get();
  Result<Prediction> made = predict_best(scenario, cluster, options);
  if (!made) return made;
  Prediction prediction = std::move(made).value();
  prediction.hardware = tables;
  return prediction;
}

}  // namespace rehearse::sim
