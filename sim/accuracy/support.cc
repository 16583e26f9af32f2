// SPDX-License-Identifier: Apache-2.0
#include "sim/accuracy/support.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"
#include "schedules/body/kind_plan.h"
#include "schedules/body/sizes.h"
#include "schedules/model/config/hf_config.h"
#include "schedules/model/layer_mix.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/scenario.h"
#include "sim/band/coverage.h"
#include "sim/band/error_table.h"
#include "sim/network/topology.h"
#include "sim/predict/confidence.h"
#include "sim/predict/precision.h"
#include "sim/predict/pricing/pricing.h"

namespace rehearse::sim {
namespace {

constexpr std::int64_t kSequence = 4096;  // or all positions of a model with fewer

// A GPU with what prices it, read once.
struct Hardware {
  const Cluster* cluster = nullptr;
  KernelScalars scalars;
  CollectiveModel collectives;
};

std::string scenario_text(const std::string& model, const std::string& cluster,
                          std::int64_t sequence, ComputeType type) {
  return R"({"model": "models/)" + model + R"(.json", "cluster": )" + json_quoted(cluster) +
         R"(, "gpus": 1, "plan": {"micro_batch": 1, "global_batch": 1, "sequence_length": )" +
         std::to_string(sequence) + R"(, "precision": ")" + std::string(name_of(type)) + R"("}})";
}

// What the kernels of the whole model rest on, as shares of their time.
Result<RestsOn> kernels_rest_on(const Scenario& scenario, const Hardware& hardware) {
  const Layout layout(scenario.model, scenario.plan);
  const Network network(*hardware.cluster, hardware.collectives, scenario.plan, {});
  const Result<ComputeModel> compute = ComputeModel::create(
      *hardware.cluster, layout, body_collectives(network, layout), hardware.scalars);
  if (!compute) return compute.error();
  const std::vector<std::vector<SegmentInfo>> stages = stage_segments(layout, 1);
  std::map<BodyShape, std::int32_t> shapes;  // how often
  for (const SegmentInfo& segment : stages.front()) {
    for (const Direction direction : {Direction::Forward, Direction::Backward}) {
      ++shapes[body_shape(layout, segment, direction)];
    }
  }
  RestsOn time;
  for (const auto& [shape, times] : shapes) {
    time.add(compute.value().price(make_body(layout, shape)).rests_on, times);
  }
  RestsOn shares;
  if (time.sum() > 0) shares.add(time, 1 / time.sum());
  return shares;
}

// The model, or each variant of its layers where they differ.
bool any_layer(const Transformer& model, bool (*question)(const Transformer&)) {
  bool any = question(model);
  for (std::int32_t i = 0; i < variants(model); ++i) any |= question(variant(model, i));
  return any;
}

MeasuredSteps measured_steps(const ErrorTable& errors, const Cluster& cluster, ComputeType type,
                             const Transformer& model) {
  const bool experts =
      any_layer(model, [](const Transformer& layer) { return layer.experts.count > 0; });
  // No measured step has layers of another kind than attention.
  const bool attention_alone =
      !any_layer(model, [](const Transformer& layer) { return !mixers_of(layer).empty(); });
  const std::string gpu = generation_text(cluster.gpu), precision = precision_name(type);
  std::vector<double> all, like;  // relative errors
  for (const MeasuredError& row : errors.rows) {
    if (row.features.gpu != gpu || row.features.precision != precision) continue;
    all.push_back(std::expm1(std::abs(row.log_error)));
    if (attention_alone && row.features.has(StepKind::Experts) == experts) {
      like.push_back(all.back());
    }
  }
  MeasuredSteps steps{.all = static_cast<std::int32_t>(all.size()),
                      .like = static_cast<std::int32_t>(like.size())};
  std::vector<double>& of = like.empty() ? all : like;
  if (of.empty()) return steps;
  std::ranges::sort(of);
  const double place = std::ceil(0.9 * static_cast<double>(of.size())) - 1;
  steps.within = of[static_cast<std::size_t>(place)];
  return steps;
}

void fill(SupportRow& row, const Result<Scenario>& scenario, const Hardware& hardware) {
  const auto refuse = [&row](const Error& error) {
    row.refused = true;
    row.remark = error.message;
  };
  if (!scenario) return refuse(scenario.error());
  const Plan& plan = scenario.value().plan;
  const Cluster& cluster = *hardware.cluster;
  if (const Result<> has = check_precision(plan, cluster); !has) return refuse(has.error());
  const Result<RestsOn> rests_on = kernels_rest_on(scenario.value(), hardware);
  if (!rests_on) return refuse(rests_on.error());
  row.rests_on = rests_on.value();
  for (const std::string& warning : precision_warnings(plan, cluster)) row.remark = warning;
  if (row.remark.empty() && !cluster.multiplies(row.precision)) {
    row.remark = cluster.gpu.name + " has no products in " + std::string(name_of(row.precision)) +
                 ": predicted with those that it has";
  }
}

}  // namespace

std::string_view SupportRow::level() const {
  if (refused) return "refused";
  constexpr double kHalf = 0.5;
  if (steps.like >= kFewestSteps) return name_of(CostLevel::Measured);
  const double tables = rests_on.level[static_cast<std::size_t>(CostLevel::Measured)] +
                        rests_on.level[static_cast<std::size_t>(CostLevel::Interpolated)];
  return name_of(steps.all > 0 || tables >= kHalf ? CostLevel::Interpolated : CostLevel::Formula);
}

Result<std::vector<SupportRow>> support_rows(const std::vector<std::string>& models,
                                             const std::vector<Cluster>& clusters) {
  const Result<ErrorTable> errors = shipped_error_table();
  if (!errors) return errors.error();
  const Result<CollectiveTables> tables = shipped_collective_tables();
  if (!tables) return tables.error();
  std::vector<Hardware> all;
  for (const Cluster& cluster : clusters) {
    Result<KernelScalars> scalars = read_kernel_scalars(cluster);
    if (!scalars) return scalars.error();
    all.push_back({.cluster = &cluster,
                   .scalars = std::move(scalars).value(),
                   .collectives = make_collective_model(tables.value(), cluster)});
  }
  std::vector<SupportRow> rows;
  for (const std::string& model : models) {
    const std::string path = shipped_directory() + "/models/" + model + ".json";
    const Result<ModelFile> read = read_model_file(path);
    if (!read) return read.error();
    const std::int64_t positions = read.value().model.max_positions;
    const std::int64_t sequence = positions > 0 ? std::min(positions, kSequence) : kSequence;
    for (std::size_t i = 0; i < kComputeTypeNames.size(); ++i) {
      const auto type = static_cast<ComputeType>(i);
      // On one GPU nothing of the plan depends on which it is.
      std::optional<Result<Scenario>> scenario;
      for (const Hardware& hardware : all) {
        if (!scenario) {
          scenario = parse_scenario(scenario_text(model, hardware.cluster->path, sequence, type),
                                    model, 1, {});
        }
        SupportRow row{
            .model = model,
            .gpu = hardware.cluster->gpu.name,
            .cluster = stem_of(hardware.cluster->path),
            .precision = type,
            .steps = measured_steps(errors.value(), *hardware.cluster, type, read.value().model)};
        fill(row, *scenario, hardware);
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

Result<std::vector<Cluster>> clusters_by_gpu() {
  std::map<std::string, Cluster> found;
  for (const std::string& id : shipped_names("clusters")) {
    Result<Cluster> read =
        read_cluster({.path = shipped_directory() + "/clusters/" + id + ".json"});
    if (!read) return read.error();
    std::string gpu = read.value().gpu.name;
    if (read.value().workers == 0) found.try_emplace(std::move(gpu), std::move(read).value());
  }
  std::vector<Cluster> clusters;
  for (auto& [gpu, cluster] : found) clusters.push_back(std::move(cluster));
  return clusters;
}

}  // namespace rehearse::sim
