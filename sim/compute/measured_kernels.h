// SPDX-License-Identifier: Apache-2.0
// Kernel times of one machine, read from its own tables: what a CPU's ranks are priced with.
//
// A CPU has no tiles, waves or launches to reason about; `rehearse calibrate` measured the very
// kernels that our executor runs, so everything here is a look-up: a measured point as it is,
// between points straight lines in log(time) over log(size), beyond them the nearest rate.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/body/body.h"
#include "sim/cluster/calibration.h"
#include "sim/cost/cost.h"
#include "sim/cost/measured_curve.h"

namespace rehearse::sim {

class MeasuredKernels {
 public:
  // The points of `calibration` for fp32.
  explicit MeasuredKernels(const Calibration& calibration);

  // REQUIRES: node.kind() is Gemm. Forward products are layout TN, input gradients NN, weight
  // gradients NT into an output that is read first (column-major words, as cuBLAS has them). Those
  // of a batch (one per expert) run one after another: each takes its own time.
  // Empty: no such product was measured.
  std::optional<CurveTime> gemm(const Node& node) const;
  std::optional<CurveTime> memory_bound(std::string_view op, bool backward,
                                        std::int64_t bytes) const;
  // The word that a node's kernel has in the tables; empty: it has none. `rms`: RMS norms.
  static std::string_view memory_op(const Node& node, bool rms);

 private:
  // Products of one role: the points as measured, and the grid that most of them form.
  struct Products {
    std::map<std::array<std::int64_t, 3>, double> time_us;  // by (m, n, k)
    std::array<std::vector<std::int64_t>, 3> axes;          // empty: no grid
  };
  struct Curve {
    std::vector<std::int64_t> at;  // ascending
    std::vector<double> time_us;
  };
  std::optional<CurveTime> product(const Node& node) const;  // one of the batch
  static void find_grid(Products& products);
  static CurveTime on_grid(const Products& products, const std::array<std::int64_t, 3>& shape);

  std::array<Products, 3> products_;  // Forward, InputGradient, WeightGradient
  std::map<std::pair<std::string, bool>, Curve, std::less<>> memory_;
};

}  // namespace rehearse::sim
