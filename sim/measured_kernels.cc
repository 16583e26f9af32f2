#include "sim/measured_kernels.h"

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

// Where x stands on an axis: the points below and above, and the share of the upper one.
struct Bracket {
  std::int64_t below = 1, above = 1;
  double share = 0;
  bool outside = false;
};
Bracket bracket(const std::vector<std::int64_t>& axis, std::int64_t x) {
  if (x <= axis.front()) return {axis.front(), axis.front(), 0, x < axis.front()};
  if (x >= axis.back()) return {axis.back(), axis.back(), 0, x > axis.back()};
  const auto above = std::ranges::lower_bound(axis, x);
  if (*above == x) return {x, x, 0, false};
  const std::int64_t low = *(above - 1);
  return {low, *above, (log_of(x) - log_of(low)) / (log_of(*above) - log_of(low)), false};
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
  for (const AttentionPoint& point : calibration.attention) {
    const auto heads = static_cast<double>(point.batch * point.heads);
    Curve& curve = attention_[{point.backward, point.causal}][point.head_dim];
    insert(curve, point.sequence, point.time_us / heads);
  }
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
  const Products& products = products_[node.role == GemmRole::InputGradient    ? 1
                                       : node.role == GemmRole::WeightGradient ? 2
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

std::optional<CurveTime> MeasuredKernels::attention(AttentionForm form,
                                                    const AttentionSize& size) const {
  const auto curves = attention_.find(form);
  if (curves == attention_.end()) return std::nullopt;
  std::vector<std::int64_t> dims;
  for (const auto& [dim, curve] : curves->second) dims.push_back(dim);
  const Bracket at = bracket(dims, size.head_dim);
  const auto read = [&](std::int64_t dim) {
    const Curve& curve = curves->second.at(dim);
    CurveTime time = *read_curve(curve.at, curve.time_us, size.sequence);
    if (size.sequence > curve.at.back()) {  // work grows with the square
      time.seconds *= static_cast<double>(size.sequence) / static_cast<double>(curve.at.back());
    }
    return time;
  };
  CurveTime time = read(at.below);
  if (at.above != at.below) {
    const CurveTime above = read(at.above);
    time.seconds =
        std::exp(std::log(time.seconds) * (1 - at.share) + std::log(above.seconds) * at.share);
    time.level = std::max({time.level, above.level, CostLevel::Interpolated});
  } else if (at.outside) {
    time.seconds *= static_cast<double>(size.head_dim) / static_cast<double>(at.below);
    time.level = CostLevel::Formula;
  }
  time.seconds *= static_cast<double>(size.samples * size.heads);
  return time;
}

std::optional<CurveTime> MeasuredKernels::attention(const Node& node,
                                                    const AttentionSize& size) const {
  AttentionForm form{.backward = node.kind == NodeKind::AttentionBackward,
                     .causal = node.step <= 0 && node.slice < 0};
  if (!attention_.contains(form)) form.causal = true;
  std::optional<CurveTime> time = attention(form, size);
  // A block of the ring is half a square, a sequence of slices as their mean more than one.
  if (time) time->seconds *= node.flops / form.flops(size);
  return time;
}

std::optional<CurveTime> MeasuredKernels::memory_bound(std::string_view op, bool backward,
                                                       std::int64_t bytes) const {
  const auto curve = memory_.find(std::pair(std::string(op), backward));
  if (curve == memory_.end()) return std::nullopt;
  return read_curve(curve->second.at, curve->second.time_us, bytes);
}

std::string_view MeasuredKernels::memory_op(const Node& node, bool rms) {
  switch (node.kind) {
    case NodeKind::Norm:
    case NodeKind::NormBackward:
      return rms ? "rms_norm" : "norm";
    case NodeKind::Activation:
    case NodeKind::ActivationBackward:
      return node.name.starts_with("swiglu") ? "swiglu" : "activation";
    case NodeKind::Dropout:
      return "dropout";
    case NodeKind::Rope:
      return "rope";
    case NodeKind::Softmax:
      return "softmax";
    case NodeKind::CrossEntropy:
      return node.name.starts_with("row maxima") ? "row_maxima"
             : node.name.starts_with("row sums") ? "row_sums"
                                                 : "cross_entropy";
    case NodeKind::Embedding:
      return "embedding";
    case NodeKind::EmbeddingBackward:
      return node.name == "position gradient" ? "position" : "embedding";
    default:
      if (node.name == "sort tokens") return {};  // with the sums into the table
      return node.name == "add positions" ? "position" : "add";
  }
}

}  // namespace rehearse::sim
