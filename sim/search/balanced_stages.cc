// SPDX-License-Identifier: Apache-2.0
#include "sim/search/balanced_stages.h"

#include <algorithm>
#include <limits>
#include <map>

#include "schedules/body/sizes.h"
#include "sim/network/topology.h"
#include "sim/predict/pricing/pricing.h"

namespace rehearse::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

bool layers_differ(const Transformer& model) {
  return segment_classes(model) > kNumSegmentShapes ||
         (model.experts.count > 0 && model.has_dense_layers());
}

}  // namespace

std::vector<std::int32_t> deal_layers(std::span<const double> layers, double first, double last,
                                      std::int32_t stages) {
  const std::size_t l = layers.size(), k = static_cast<std::size_t>(stages);
  std::vector<double> sum(l + 1, 0);
  for (std::size_t i = 0; i < l; ++i) sum[i + 1] = sum[i] + layers[i];
  const auto time = [&](std::size_t stage, std::size_t from, std::size_t to) {
    const bool outer = stage == 0 || stage + 1 == k;
    if (from == to && !outer) return kNever;
    return sum[to] - sum[from] + (stage == 0 ? first : 0) + (stage + 1 == k ? last : 0);
  };
  // best[s][i]: of the first i layers on the first s stages; from[s][i]: where the last of them
  // begins.
  const auto deal = [&](auto cost, auto joined) {
    std::vector<std::vector<double>> best(k + 1, std::vector<double>(l + 1, kNever));
    std::vector<std::vector<std::size_t>> from(k + 1, std::vector<std::size_t>(l + 1, 0));
    best[0][0] = 0;
    for (std::size_t s = 1; s <= k; ++s) {
      for (std::size_t i = 0; i <= l; ++i) {
        for (std::size_t j = 0; j <= i; ++j) {
          const double with = joined(best[s - 1][j], cost(time(s - 1, j, i)));
          if (with >= best[s][i]) continue;
          best[s][i] = with;
          from[s][i] = j;
        }
      }
    }
    return std::pair(best[k][l], std::move(from));
  };
  const double least =
      deal([](double t) { return t; }, [](double a, double b) { return std::max(a, b); }).first;
  if (least == kNever) return {};
  const double limit = least * (1 + 1e-12);
  const auto from = deal([&](double t) { return t <= limit ? t * t : kNever; },
                         [](double a, double b) { return a + b; })
                        .second;
  std::vector<std::int32_t> shares(k);
  for (std::size_t s = k, i = l; s > 0; --s) {
    shares[s - 1] = static_cast<std::int32_t>(i - from[s][i]);
    i = from[s][i];
  }
  return shares;
}

std::vector<std::int32_t> balanced_stage_layers(const Transformer& model, const Plan& plan,
                                                const Cluster& cluster,
                                                const HardwareTables& tables) {
  if (plan.pipeline_parallel == 1 || !layers_differ(model)) return {};
  if (!plan.planned_stages.empty() || plan.prediction_stage >= 0) return {};
  const Layout layout(model, plan);
  const Network network(cluster, tables.collectives, plan, {});
  const Result<ComputeModel> compute =
      ComputeModel::create(cluster, layout, body_collectives(network, layout), tables.scalars);
  if (!compute) return {};
  std::map<BodyShape, double> known;
  const auto time = [&](const SegmentInfo& segment) {
    double sum = 0;
    for (const Direction direction : {Direction::Forward, Direction::Backward}) {
      const BodyShape shape = body_shape(layout, segment, direction);
      const auto [at, fresh] = known.try_emplace(shape);
      if (fresh) {
        std::optional<Body> own;
        const BodyCost one = compute.value().price(compute.value().body(layout, shape, own));
        at->second = static_cast<double>(one.time.value);
      }
      sum += at->second;
    }
    return sum;
  };
  std::vector<double> layers;
  double first = 0, last = 0;
  const auto stages = static_cast<std::int32_t>(plan.stage_layers.size());
  for (const std::vector<SegmentInfo>& stage : stage_segments(layout, stages)) {
    for (const SegmentInfo& segment : stage) {
      const bool of_model = segment.kind == SegmentKind::Layer && segment.layer < model.layers;
      if (of_model) {
        layers.push_back(time(segment));
      } else {
        (layers.empty() ? first : last) += time(segment);
      }
    }
  }
  return deal_layers(layers, first, last, stages);
}

}  // namespace rehearse::sim
