// SPDX-License-Identifier: Apache-2.0
// Time of a matrix product: measured point -> interpolated efficiency -> tiles and waves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "schedules/body/body.h"
#include "sim/compute/compute_cost.h"

namespace rehearse::sim {

// Share of the sustained rate that tiles and waves leave: the output is cut in tiles, one per SM at
// a time; the last wave is partly empty; short k does not fill the pipeline. The best tile counts.
// NVIDIA, Matrix Multiplication Background User's Guide (unverified); docs/cost_models.md.
double tile_wave_efficiency(const KernelScalars& scalars, std::int32_t sms, std::int64_t m,
                            std::int64_t n, std::int64_t k, std::int64_t batch);

// Efficiency read from measured points of `table` of the node's role; `fraction` 0: none near.
struct TableEfficiency {
  double fraction = 0;
  bool exact = false;
};
// The four nearest points in (ln m, ln n, ln k) within near_distance, weights 1 / (d^2 + 0.02).
TableEfficiency table_efficiency(const KernelScalars& scalars, const Node& node,
                                 MeasuredTable table);

// What products reach of the peak, as it was found for some: one plan's products are mostly those
// of another. Of one GPU's scalars, for one thread.
class KnownProducts {
 public:
  struct Reached {
    double fraction = 0;
    bool of_table = false, exact = false;  // read from measured points; at one of them
  };
  // m, n, k, products at once, and in one number table, role and SMs.
  using Product = std::array<std::int64_t, 5>;
  // New: its fraction is 0.
  Reached& of(const Product& product) { return reached_[product]; }

 private:
  struct Hash {
    std::size_t operator()(const Product& product) const {
      std::uint64_t hash = 0;
      for (const std::int64_t number : product) {
        hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9e3779b97f4a7c15U;
        hash ^= hash >> 29U;
      }
      return static_cast<std::size_t>(hash);
    }
  };
  std::unordered_map<Product, Reached, Hash> reached_;
};

// `taken`: of the SMs, by somebody else.
NodeCost gemm_cost(const ComputeCosts& costs, const Node& node, std::int32_t taken = 0);

}  // namespace rehearse::sim
