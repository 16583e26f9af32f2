// SPDX-License-Identifier: Apache-2.0
// Products of a framework in pieces beside the tensor-parallel collectives before or behind them
// (overlap.tensor_parallel true).
//
// Cut are the products between an exposed gather and what is no product of its rows, and the
// product before an exposed sum. Collectives that hide behind whole products (the backward of a
// column-parallel layer) stay whole: Transformer Engine's bulk overlap, which is Megatron's too.
//
// | RuntimeTraits::tensor_pieces | gather, product | product, sum |
// |---|---|---|
// | Rows, K pieces | K gathers, products of 1/K of the rows | as many sums |
// | UserBuffers | t - 1 shards from the neighbour, t products of a shard's rows | K of the features
// |
//
// With a of a piece that travels and g of its product both take a + (K - 1) max(a, g) + g; the
// ring, whose first shard lies here, g + (t - 1) max(a, g).
#pragma once

#include <vector>

#include "schedules/body/body.h"

namespace rehearse {

std::vector<Node> in_pieces(std::vector<Node> nodes, const Layout& layout);

// Operands of 8-bit products have a scale for each row.
inline bool scaled_by_rows(const Plan& plan) {
  return plan.precision.compute == ComputeType::Fp8 && plan.runtime.fp8_casts == Fp8Casts::EachRow;
}
// Whether gathers travel in pieces beside products, and whether sums do. Gathers of what is scaled
// by rows do not: torch fuses them with no product (pytorch/pytorch issue 149990).
inline bool gathers_in_pieces(const Plan& plan) {
  return plan.overlap_tensor_parallel == TensorOverlap::Chunked && !scaled_by_rows(plan);
}
inline bool sums_in_pieces(const Plan& plan) {
  return plan.overlap_tensor_parallel == TensorOverlap::Chunked;
}

}  // namespace rehearse
