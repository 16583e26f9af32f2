// SPDX-License-Identifier: Apache-2.0
// Time of a matrix product: measured point -> interpolated efficiency -> tiles and waves.
#pragma once

#include <cstdint>

#include "schedules/body/body.h"
#include "sim/compute/compute_cost.h"

namespace rehearse::sim {

// Share of the sustained rate that tiles and waves leave: the output is cut in tiles, one per SM at
// a time; the last wave is partly empty; short k does not fill the pipeline. The best tile counts.
// NVIDIA, Matrix Multiplication Background User's Guide (unverified); cost-models of docs/.
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

// `taken`: of the SMs, by somebody else.
NodeCost gemm_cost(const ComputeCosts& costs, const Node& node, std::int32_t taken = 0);

}  // namespace rehearse::sim
