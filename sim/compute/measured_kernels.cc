// SPDX-License-Identifier: Apache-2.0
#include "sim/compute/measured_kernels.h"

#include <algorithm>
#include <cmath>

namespace rehearse::sim {
namespace {

double log_of(std::int64_t x) {
  return std::log(static_cast<double>(x));
}

double flops_of(const std::array<std::int64_t, 3>& shape) {
  return 2.0 * static_cast<double>(shape[0]) * static_cast<double>(shape[1]) *
         static_cast<double>(shape[2]);
}

std::size_t role_of(const GemmPoint& point) {
  return point.accumulate ? 2 : point.layout == "NN" ? 1 : 0;
}

}  // namespace

MeasuredKernels::MeasuredKernels(const Calibration& calibration) {
  for (const GemmPoint& point : calibration.gemm) {
    if (point.type != ComputeType::Fp32 || point.batch != 1 || point.time_us <= 0) continue;
    products_[role_of(point)].time_us.try_emplace({point.m, point.n, point.k}, point.time_us);
  }
  for (Products& products : products_) find_grid(products);

  const auto insert = [](Curve& curve, std::int64_t at, double time_us) {
    const auto place = std::ranges::lower_bound(curve.at, at);
    if (place != curve.at.end() && *place == at) return;  // a size twice: the first
    curve.time_us.insert(curve.time_us.begin() + (place - curve.at.begin()), time_us);
    curve.at.insert(place, at);
  };
  for (const MemoryBoundPoint& point : calibration.memory_bound) {
    insert(memory_[{point.op, point.backward}], point.bytes, point.time_us);
  }
}

// Values of m, n and k that have at least half as many points as the most frequent one, if every
// combination of them was measured. Single shapes beside the grid do not disturb it.
void MeasuredKernels::find_grid(Products& products) {
  std::array<std::map<std::int64_t, std::size_t>, 3> counts;
  for (const auto& [shape, time] : products.time_us) {
    for (std::size_t d = 0; d < 3; ++d) ++counts[d][shape[d]];
  }
  auto axes = products.axes;
  for (std::size_t d = 0; d < 3; ++d) {
    std::size_t most = 0;
    for (const auto& [value, count] : counts[d]) most = std::max(most, count);
    for (const auto& [value, count] : counts[d]) {
      if (2 * count >= most) axes[d].push_back(value);
    }
  }
  for (const std::int64_t m : axes[0]) {
    for (const std::int64_t n : axes[1]) {
      for (const std::int64_t k : axes[2]) {
        if (!products.time_us.contains({m, n, k})) return;
      }
    }
  }
  products.axes = std::move(axes);
}

// log(FLOP/s) straight in log m, log n, log k, so log(time) is too; outside the nearest rate.
CurveTime MeasuredKernels::on_grid(const Products& products,
                                   const std::array<std::int64_t, 3>& shape) {
  std::array<Bracket, 3> at;
  bool outside = false;
  for (std::size_t d = 0; d < 3; ++d) {
    at[d] = bracket(products.axes[d], shape[d]);
    outside = outside || at[d].outside;
  }
  double log_rate = 0;
  for (unsigned corner = 0; corner < 8; ++corner) {
    std::array<std::int64_t, 3> point{};
    double weight = 1;
    for (std::size_t d = 0; d < 3; ++d) {
      const bool above = (corner >> d & 1U) != 0;
      point[d] = above ? at[d].above : at[d].below;
      weight *= above ? at[d].share : 1 - at[d].share;
    }
    if (weight <= 0) continue;
    log_rate += weight * std::log(flops_of(point) / (products.time_us.at(point) * 1e-6));
  }
  return {.seconds = flops_of(shape) / std::exp(log_rate),
          .level = outside ? CostLevel::Formula : CostLevel::Interpolated};
}

std::optional<CurveTime> MeasuredKernels::gemm(const Node& node) const {
  std::optional<CurveTime> one = product(node);
  if (one) one->seconds *= static_cast<double>(node.batch);
  return one;
}

std::optional<CurveTime> MeasuredKernels::product(const Node& node) const {
  const Products& products = products_[node.role() == GemmRole::InputGradient    ? 1
                                       : node.role() == GemmRole::WeightGradient ? 2
                                                                                 : 0];
  const std::array<std::int64_t, 3> shape{node.m, node.n, node.k};
  const auto exact = products.time_us.find(shape);
  if (exact != products.time_us.end()) {
    return CurveTime{exact->second * 1e-6, CostLevel::Measured};
  }
  if (products.time_us.empty()) return std::nullopt;
  if (!products.axes[0].empty()) return on_grid(products, shape);
  // No grid: the rate of the nearest point.
  const auto distance = [&](const auto& entry) {
    double sum = 0;
    for (std::size_t d = 0; d < 3; ++d) {
      sum += std::pow(log_of(entry.first[d]) - log_of(shape[d]), 2);
    }
    return sum;
  };
  const auto& [point, time_us] = *std::ranges::min_element(products.time_us, {}, distance);
  return CurveTime{time_us * 1e-6 * flops_of(shape) / flops_of(point), CostLevel::Formula};
}

std::optional<CurveTime> MeasuredKernels::memory_bound(std::string_view op, bool backward,
                                                       std::int64_t bytes) const {
  const auto curve = memory_.find(std::pair(std::string(op), backward));
  if (curve == memory_.end()) return std::nullopt;
  return read_curve(curve->second.at, curve->second.time_us, bytes);
}

std::string_view MeasuredKernels::memory_op(const Node& node, bool rms) {
  const bool norm = node.kind() == NodeKind::Norm || node.kind() == NodeKind::NormBackward;
  return norm && rms ? "rms_norm" : traits_of(node.kernel).measured;
}

}  // namespace rehearse::sim
