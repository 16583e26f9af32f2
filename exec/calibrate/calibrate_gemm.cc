// SPDX-License-Identifier: Apache-2.0
// Matrix products: a grid of shapes in each of the three forms of a linear layer, and the very
// products of the scenarios that were asked for.
#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "exec/backend/element.h"
#include "exec/calibrate/calibrate_parts.h"
#include "exec/cpu/cpu_backend.h"
#include "schedules/body/own/body_rehearse.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kSlack = 128;  // floats that alignment may cost
constexpr GemmRole kRoles[] = {GemmRole::Forward, GemmRole::InputGradient,
                               GemmRole::WeightGradient};

struct Shape {
  GemmRole role{};
  std::int64_t m = 0, n = 0, k = 0;
  auto operator<=>(const Shape&) const = default;
};

// The tokens of a product stand at m, of a weight gradient at k; the others are features.
void add_grid(const CalibrateSizes& sizes, std::set<Shape>& shapes) {
  for (const GemmRole role : kRoles) {
    for (const std::int64_t t : sizes.tokens) {
      for (const std::int64_t a : sizes.features) {
        for (const std::int64_t b : sizes.features) {
          shapes.insert(role == GemmRole::WeightGradient ? Shape{role, a, b, t}
                                                         : Shape{role, t, a, b});
        }
      }
    }
  }
}

void add_products(const Scenario& scenario, std::set<Shape>& shapes) {
  for (const SegmentKind segment :
       {SegmentKind::Embedding, SegmentKind::Layer, SegmentKind::Head}) {
    for (const Direction direction : {Direction::Forward, Direction::Backward}) {
      const Body body = make_rehearse_body({scenario.model, scenario.plan},
                                           {.segment = segment, .direction = direction});
      for (const Node& node : body.nodes) {
        if (node.kind() == NodeKind::Gemm) shapes.insert({node.role(), node.m, node.n, node.k});
      }
    }
  }
}

}  // namespace

void perform_gemm(Kernels& kernels, GemmRole role, std::int64_t m, std::int64_t n, std::int64_t k,
                  RotatingMemory& cold, RotatingMemory& written, float* warm_in, float* warm_out) {
  if (role == GemmRole::Forward) {
    const float* weight = cold.next(n * k + n);
    kernels.linear(kLane, m, n, k, warm_in, weight, weight + n * k, warm_out);
  } else if (role == GemmRole::InputGradient) {  // dx(m, n) = dy(m, k) w(k, n)
    kernels.linear_input(kLane, m, k, n, warm_in, cold.next(k * n), warm_out);
  } else {  // dw(n, m) += dy(k, n)^T x(k, m): x was saved long ago, and so was dw
    const float* x = cold.next(k * m);
    float* gradient = written.next(n * m + n);
    kernels.linear_weight(kLane, k, n, m, warm_in, x, gradient);
    kernels.add_column_sums(kLane, k, n, warm_in, gradient + n * m);
  }
}

// In a machine whose speed does not change it always takes the same time.
void measure_round(Calibration& c) {
  const std::int64_t m = c.sizes.tokens.back(), n = c.sizes.features[c.sizes.features.size() / 2];
  if (!c.warm.holds(2 * m * n + kSlack) || !c.memory.holds(n * n + n)) return;
  c.warm.restart();
  float *in = c.warm.next(m * n), *out = c.warm.next(m * n);
  c.rounds_us.push_back(c.watch.median_us(
      [&] { perform_gemm(c.kernels, GemmRole::Forward, m, n, n, c.memory, c.written, in, out); }));
}

namespace {

// [us] of a product of a role, of numbers that are neither huge nor below what types have.
template <class E>
double product_us(Stopwatch& watch, Kernels& kernels, GemmRole role, std::int64_t tokens,
                  std::int64_t features) {
  const auto numbers = [](std::int64_t count) {
    std::vector<E> values;
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(E(0.25F + static_cast<float>(i * 37 % 101) / 128.0F));
    }
    return values;
  };
  const std::vector<E> rows = numbers(tokens * features), weight = numbers(features * features);
  std::vector<E> out(rows.size());
  std::vector<float> gradient(weight.size());
  return watch.median_us([&] {
    if (role == GemmRole::Forward) {
      kernels.linear(kLane, tokens, features, features, rows.data(), weight.data(), nullptr,
                     out.data());
    } else if (role == GemmRole::InputGradient) {
      kernels.linear_input(kLane, tokens, features, features, rows.data(), weight.data(),
                           out.data());
    } else {
      kernels.linear_weight(kLane, tokens, features, features, rows.data(), rows.data(),
                            gradient.data());
    }
  });
}

// Where a processor multiplies bf16 itself, or widens: the median over roles and a few sizes. The
// table's own grid would take as long again.
double products_in_bf16(Calibration& c) {
  const Backend narrow = make_cpu_backend(ElementType::BFloat16);
  std::vector<double> ratios;
  const std::vector<std::int64_t>& sizes = c.sizes.features;
  for (const std::int64_t features : {sizes[sizes.size() / 2], sizes.back()}) {
    for (const GemmRole role : kRoles) {
      const std::int64_t tokens = c.sizes.tokens.back();
      const double wide = product_us<float>(c.watch, c.kernels, role, tokens, features);
      ratios.push_back(product_us<BFloat16>(c.watch, *narrow.kernels, role, tokens, features) /
                       wide);
    }
  }
  std::ranges::sort(ratios);
  return (ratios[ratios.size() / 2 - 1] + ratios[ratios.size() / 2]) / 2;
}

}  // namespace

void measure_gemm(Calibration& c) {
  constexpr std::size_t kRounds = 8;  // meanwhile
  std::set<Shape> shapes;
  add_grid(c.sizes, shapes);
  for (const Scenario& scenario : c.options.scenarios) add_products(scenario, shapes);
  std::size_t done = 0;
  for (const Shape& s : shapes) {
    if (done % (shapes.size() / kRounds + 1) == 0) measure_round(c);
    c.progress("matrix products", static_cast<double>(++done) / static_cast<double>(shapes.size()));
    const bool weight = s.role == GemmRole::WeightGradient;
    const std::int64_t ins = weight ? s.k * s.n : s.m * s.k, outs = weight ? 0 : s.m * s.n;
    const std::int64_t cold = weight ? s.k * s.m : s.n * s.k + s.n;
    if (!c.warm.holds(ins + outs + kSlack) || !c.memory.holds(cold) ||
        (weight && !c.written.holds(s.n * s.m + s.n))) {
      continue;  // larger than the device
    }
    c.warm.restart();
    float* in = c.warm.next(ins);
    float* out = weight ? nullptr : c.warm.next(outs);
    const double us = c.watch.median_us(
        [&] { perform_gemm(c.kernels, s.role, s.m, s.n, s.k, c.memory, c.written, in, out); });
    c.tables.gemm.push_back({s.role, s.m, s.n, s.k, us});
  }
  if (!c.gpu() && c.options.type == ElementType::Float32) {
    c.tables.products_in_bf16 = products_in_bf16(c);
  }
}

}  // namespace rehearse::exec
