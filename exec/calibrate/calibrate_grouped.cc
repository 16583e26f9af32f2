// SPDX-License-Identifier: Apache-2.0
// Products of several experts at once, each expert with as many rows: a grid of shapes, and those
// of the scenarios that were asked for. On a GPU, where they are one launch; a CPU performs them
// one after another, as dense ones.
#include <algorithm>
#include <set>
#include <vector>

#include "exec/calibrate/calibrate_parts.h"
#include "schedules/body/own/body_rehearse.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kGroupedSlack = 128;  // floats that alignment may cost

// Rows of an expert stand at m, of a weight gradient at k, as in a node.
struct ExpertProduct {
  GemmRole role{};
  std::int64_t m = 0, n = 0, k = 0, experts = 1;
  auto operator<=>(const ExpertProduct&) const = default;
  bool weight() const { return role == GemmRole::WeightGradient; }
  std::int64_t rows() const { return experts * (weight() ? k : m); }
};

void add_grouped_grid(const CalibrateSizes& sizes, std::set<ExpertProduct>& shapes) {
  const std::int64_t narrow = sizes.features.front(), wide = sizes.features.back();
  for (const std::int64_t t : sizes.tokens) {
    const std::int64_t each = std::max<std::int64_t>(1, t / sizes.experts);
    for (const auto& [a, b] : {std::pair{narrow, wide}, {wide, narrow}}) {
      shapes.insert({GemmRole::Forward, each, a, b, sizes.experts});
      shapes.insert({GemmRole::InputGradient, each, a, b, sizes.experts});
      shapes.insert({GemmRole::WeightGradient, a, b, each, sizes.experts});
    }
  }
}

void add_grouped_products(const Scenario& scenario, std::set<ExpertProduct>& shapes) {
  if (scenario.model.experts.count == 0) return;
  for (const Direction direction : {Direction::Forward, Direction::Backward}) {
    const Body body = make_rehearse_body(
        {scenario.model, scenario.plan},
        {.segment = SegmentKind::Layer, .experts = true, .direction = direction});
    for (const Node& node : body.nodes) {
      if (is_grouped(node.kernel)) {
        shapes.insert({node.role(), node.m, node.n, node.k, node.batch});
      }
    }
  }
}

// dx(m, n) = dy(m, k) w(k, n) and dw(n, m) += dy(k, n)^T x(k, m), as perform_gemm has them.
void perform(Calibration& c, const ExpertProduct& s, const GroupedShape& rows, float* in,
             float* out) {
  if (s.role == GemmRole::Forward) {
    c.kernels.grouped_linear(kLane, rows, s.n, s.k, in, c.memory.next(s.experts * s.n * s.k),
                             nullptr, out);
  } else if (s.role == GemmRole::InputGradient) {
    c.kernels.grouped_linear_input(kLane, rows, s.k, s.n, in, c.memory.next(s.experts * s.k * s.n),
                                   out);
  } else {
    const float* x = c.memory.next(s.rows() * s.m);
    c.kernels.grouped_linear_weight(kLane, rows, s.n, s.m, in, x,
                                    c.written.next(s.experts * s.n * s.m));
  }
}

}  // namespace

void measure_grouped(Calibration& c) {
  std::set<ExpertProduct> shapes;
  add_grouped_grid(c.sizes, shapes);
  for (const Scenario& scenario : c.options.scenarios) add_grouped_products(scenario, shapes);
  std::int64_t most = 1;
  for (const ExpertProduct& s : shapes) most = std::max(most, s.experts);
  const Result<std::byte*> memory = c.device.allocate(0, 4 * (most + 1));
  if (!memory) return c.watch.fail(memory.error().message);
  std::size_t done = 0;
  for (const ExpertProduct& s : shapes) {
    c.progress("grouped products",
               static_cast<double>(++done) / static_cast<double>(shapes.size()));
    const std::int64_t ins = s.rows() * (s.weight() ? s.n : s.k);
    const std::int64_t outs = s.weight() ? 0 : s.rows() * s.n;
    const std::int64_t cold = s.weight() ? s.rows() * s.m : s.experts * s.n * s.k;
    if (!c.warm.holds(ins + outs + kGroupedSlack) || !c.memory.holds(cold) ||
        (s.weight() && !c.written.holds(s.experts * s.n * s.m))) {
      continue;  // larger than the device
    }
    std::vector<std::int32_t> begin;
    for (std::int64_t e = 0; e <= s.experts; ++e) {
      begin.push_back(static_cast<std::int32_t>(e * s.rows() / s.experts));
    }
    c.device.write(memory.value(), begin.data(), 4 * (s.experts + 1));
    const GroupedShape rows{s.experts, s.rows(),
                            reinterpret_cast<const std::int32_t*>(memory.value())};
    c.warm.restart();
    float* in = c.warm.next(ins);
    float* out = s.weight() ? nullptr : c.warm.next(outs);
    const double us = c.watch.median_us([&] { perform(c, s, rows, in, out); });
    c.tables.grouped.push_back({s.role, s.m, s.n, s.k, us, s.experts});
  }
}

}  // namespace rehearse::exec
