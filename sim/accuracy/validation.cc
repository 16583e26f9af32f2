// SPDX-License-Identifier: Apache-2.0
// Predicts one measured case, by its kind.
#include "sim/accuracy/validation.h"

#include <algorithm>
#include <filesystem>

#include "schedules/body/sizes.h"
#include "schedules/scenario/mesh.h"
#include "schedules/scenario/plan_size.h"
#include "schedules/timing/compute_timing.h"
#include "schedules/timing/metrics.h"
#include "sim/cluster/cluster.h"
#include "sim/compute/body_cost.h"
#include "sim/formulas/closed_form.h"
#include "sim/network/topology.h"
#include "sim/predict/confidence.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

// What is not for this version or contradicts itself is a skipped row.
Result<> settle(ValidationCase& entry, const Error& error) {
  entry.skipped = error.message;
  return {};
}

Figure* figure_of(std::vector<Figure>& figures, std::string_view key) {
  const auto found = std::ranges::find(figures, key, &Figure::key);
  return found == figures.end() ? nullptr : &*found;
}
void fill(std::vector<Figure>& figures, std::string_view key, double value) {
  if (Figure* figure = figure_of(figures, key)) figure->predicted = value;
}

// --- Orders with given durations ---------------------------------------------

Result<> predict_schedule(ValidationCase& entry, const std::string& path) {
  const ScheduleInfo* info = find_schedule(entry.schedule.name);
  if (info == nullptr) {
    entry.skipped = unknown_schedule(entry.schedule.name, "`" + entry.schedule.name + "`");
    return {};
  }
  const auto wrong = [&](const Error& error) {
    return settle(entry, {path + ":" + std::to_string(entry.line) + ": schedule." + error.message});
  };
  Result<ScheduleShape> resolved = resolve_shape(*info, entry.schedule.shape);
  if (!resolved) return wrong(resolved.error());
  if (const Result<> size = check_order_size(*info, resolved.value()); !size) {
    return wrong(size.error());
  }
  ScheduleShape shape = resolved.value();
  // V shapes visit two chunks per position whatever `chunks` says: divisible by both.
  const std::int64_t parts = 2LL * std::max(1, shape.chunks) * std::max(1, shape.slices);
  const Result<Ticks> ticks =
      to_ticks(entry.schedule.times, parts, shape.positions, shape.microbatches);
  if (!ticks) return wrong(ticks.error());
  shape.times = ticks.value().times;
  const Result<Schedule> order = generate(info->name, shape);
  if (!order) return wrong(order.error());
  const Result<ComputeTiming> timing = time_compute(
      order.value(),
      divide(ticks.value().times, visited_chunks(order.value()), std::max(1, shape.slices)));
  if (!timing) return wrong(timing.error());
  const ScheduleMetrics metrics = measure(order.value(), timing.value());
  const double bubble = entry.measure == "span_bubble_ratio" ? metrics.span_bubble_ratio
                        : entry.measure == "bubble_overhead" ? metrics.bubble_overhead
                                                             : metrics.bubble_ratio;
  fill(entry.figures, "bubble_ratio", bubble);
  fill(entry.figures, "bubble_overhead", metrics.bubble_overhead);
  fill(entry.figures, "span_bubble_ratio", metrics.span_bubble_ratio);
  const double makespan = static_cast<double>(metrics.makespan.value) / ticks.value().per_unit;
  fill(entry.figures, "makespan", makespan);
  fill(entry.figures, "step_time_s", makespan);
  fill(entry.figures, "peak_activations", metrics.largest_peak());
  return {};
}

// --- Closed forms ------------------------------------------------------------

// ZeRO: each stage shards one more of optimizer state, gradients and parameters.
void predict_states(ValidationCase& entry) {
  const StatesCase& states = entry.states;
  const double parameters = static_cast<double>(states.parameters);
  const auto bytes = [&](std::int32_t per_parameter, std::int32_t sharded_from) {
    const double shards = states.zero_stage >= sharded_from ? states.data_parallel : 1;
    return per_parameter * parameters / shards;
  };
  fill(entry.figures, "model_state_bytes",
       bytes(states.precision.optimizer, 1) + bytes(states.precision.gradients, 2) +
           bytes(states.precision.parameters, 3));
  fill(entry.figures, "parameters", parameters);
}

void predict_formula(ValidationCase& entry, const Cluster& cluster) {
  const Transformer& model = entry.scenario->model;
  const Plan& plan = entry.scenario->plan;
  const ActivationShape shape{.sequence = static_cast<double>(plan.sequence_length),
                              .micro_batch = static_cast<double>(plan.micro_batch),
                              .hidden = static_cast<double>(model.hidden),
                              .heads = static_cast<double>(model.heads),
                              .tensor_parallel = static_cast<double>(plan.tensor_parallel)};
  const double layers = static_cast<double>(model.layers);
  const double activations =
      first_position_activation_bytes(shape, plan.recompute, plan.sequence_parallel, layers,
                                      plan.pipeline_parallel, plan.virtual_stages);
  const double states = figure1_state_bytes(static_cast<double>(model.hidden), layers,
                                            plan.tensor_parallel, plan.pipeline_parallel);
  fill(entry.figures, "activation_bytes", activations);
  fill(entry.figures, "parameter_gradient_optimizer_bytes", states);
  fill(entry.figures, "activation_fraction_of_tp_baseline",
       layer_activation_bytes(shape, plan.recompute, plan.sequence_parallel) /
           layer_activation_bytes(shape, {}, false));
  const bool fits = activations + states <= static_cast<double>(cluster.capacity().value);
  entry.verdict = fits ? Verdict::Yes : Verdict::No;
}

// --- One layer, one stage ----------------------------------------------------

// What one micro-batch takes in a segment, in each direction.
using SegmentSeconds = std::function<double(const SegmentInfo&, Direction)>;

void fill_layer(ValidationCase& entry, const SegmentSeconds& seconds) {
  const SegmentInfo last{SegmentKind::Layer,
                         static_cast<std::int32_t>(entry.scenario->model.layers) - 1};
  const double forward = seconds(last, Direction::Forward);
  const double backward = seconds(last, Direction::Backward);
  fill(entry.figures, "forward_s", forward);
  fill(entry.figures, "backward_s", backward);
  fill(entry.figures, "forward_backward_s", forward + backward);
}

// Chunks go round the positions: chunk c lies on c mod p.
void fill_stage(ValidationCase& entry, const Layout& layout, const SegmentSeconds& seconds) {
  const Plan& plan = layout.plan;
  const auto chunks = static_cast<std::int32_t>(plan.stage_layers.size());
  const auto stages = stage_segments(layout, chunks);
  const auto whole = [&](Direction direction) {
    double sum = 0;
    for (std::int32_t c = entry.position; c < chunks; c += plan.pipeline_parallel) {
      for (const SegmentInfo& segment : stages[static_cast<std::size_t>(c)]) {
        sum += seconds(segment, direction);
      }
    }
    return sum;
  };
  fill(entry.figures, "forward_s", whole(Direction::Forward));
  fill(entry.figures, "backward_s", whole(Direction::Backward));
  fill(entry.figures, "input_gradient_s", whole(Direction::InputGradient));
  fill(entry.figures, "weight_gradient_s", whole(Direction::WeightGradient));
}

Result<> predict_part(ValidationCase& entry, const Cluster& cluster, const std::string& path) {
  const Scenario& scenario = *entry.scenario;
  const Layout layout(scenario.model, scenario.plan);
  const Result<CollectiveTables> tables = shipped_collective_tables();
  if (!tables) return tables.error();
  const CollectiveModel collectives = make_collective_model(tables.value(), cluster);
  const Network network(cluster, collectives, scenario.plan, {});
  const Result<ComputeModel> compute =
      ComputeModel::create(cluster, layout, body_collectives(network, layout));
  if (!compute) return settle(entry, {path + ": " + compute.error().message});
  const SegmentSeconds seconds = [&](const SegmentInfo& segment, Direction direction) {
    const BodyCost cost =
        compute.value().price(make_body(layout, body_shape(layout, segment, direction)));
    return static_cast<double>(cost.time.value) * 1e-9;
  };
  entry.kind == CaseKind::Layer ? fill_layer(entry, seconds) : fill_stage(entry, layout, seconds);
  return {};
}

Result<> predict_experts(ValidationCase& entry, const std::string& path) {
  const Result<ExpertLayerCost> cost = predict_moe_layer(*entry.moe_layer);
  if (!cost) return settle(entry, {path + ": " + cost.error().message});
  const double forward = total_ns(cost.value().forward) * 1e-9;
  const double backward = total_ns(cost.value().backward) * 1e-9;
  fill(entry.figures, "forward_s", forward);
  fill(entry.figures, "backward_s", backward);
  fill(entry.figures, "forward_backward_s", forward + backward);
  return {};
}

// --- A whole step ------------------------------------------------------------

const RankMemory* memory_of(const Prediction& prediction, std::int32_t rank) {
  const Coordinates at = Mesh(prediction.plan).coordinates(Rank{rank});
  const auto& rows = prediction.schedule.rows;
  for (const RankMemory& memory : prediction.memory.ranks) {
    if (memory.row.index() >= rows.size()) continue;
    const RankClassInfo& row = rows[memory.row.index()];
    if (row.position.value == at.pipeline && row.data_begin <= at.data && at.data < row.data_end) {
      return &memory;
    }
  }
  return nullptr;
}

template <class Memory>
void fill_memory(std::vector<Figure>& figures, const Memory& memory) {
  fill(figures, "peak_allocated_bytes", static_cast<double>(memory.peak_allocated));
  fill(figures, "peak_reserved_bytes", static_cast<double>(memory.peak_reserved));
  fill(figures, "peak_device_bytes", static_cast<double>(memory.peak_device));
  fill(figures, "steady_allocated_bytes", static_cast<double>(memory.steady_allocated));
}

// A source is no witness of its own cases.
Result<> predict_step(ValidationCase& entry, const Cluster& cluster, const std::string& path) {
  const std::string source = std::filesystem::path(path).stem().string();
  Result<Prediction> predicted = predict(*entry.scenario, cluster, {.without_source = source});
  if (!predicted) return settle(entry, predicted.error());
  const Prediction& p = predicted.value();
  fill(entry.figures, "step_time_s", p.step_s);
  fill(entry.figures, "tokens_per_s", p.tokens_per_s);
  fill(entry.figures, "tokens_per_s_per_gpu", p.tokens_per_s / p.gpus);
  fill(entry.figures, "bubble_ratio", p.bubble_ratio());
  fill(entry.figures, "model_tflops_per_gpu", p.tflops(p.model_flops));
  fill(entry.figures, "hardware_tflops_per_gpu", p.tflops(p.model_flops + p.recomputed_flops));
  if (p.peak_flops) {
    const double whole = *p.peak_flops * 1e-12;
    fill(entry.figures, "mfu", p.tflops(p.model_flops) / whole);
    fill(entry.figures, "hfu", p.tflops(p.model_flops + p.recomputed_flops) / whole);
  }
  fill(entry.figures, "parameters", static_cast<double>(p.parameters));
  fill_memory(entry.figures, p.memory);
  entry.verdict = p.memory.verdict();
  entry.features = features_of(p, cluster);
  entry.source = source;
  entry.low_s = p.low_s();
  entry.high_s = p.high_s();
  for (RankFigures& rank : entry.ranks) {
    if (const RankMemory* memory = memory_of(p, rank.rank)) fill_memory(rank.figures, *memory);
  }
  return {};
}

}  // namespace

Result<> predict_case(ValidationCase& entry, const std::string& path) {
  if (!entry.skipped.empty()) return {};
  switch (entry.kind) {
    case CaseKind::Schedule:
      return predict_schedule(entry, path);
    case CaseKind::States:
      predict_states(entry);
      return {};
    case CaseKind::MoeLayer:
      return predict_experts(entry, path);
    case CaseKind::Step:
    case CaseKind::Formula:
    case CaseKind::Layer:
    case CaseKind::Stage:
      break;
  }
  const Result<Cluster> cluster = read_cluster(entry.scenario->cluster);
  if (!cluster) return settle(entry, cluster.error());
  if (entry.kind == CaseKind::Formula) {
    predict_formula(entry, cluster.value());
    return {};
  }
  return entry.kind == CaseKind::Step ? predict_step(entry, cluster.value(), path)
                                      : predict_part(entry, cluster.value(), path);
}

}  // namespace rehearse::sim
