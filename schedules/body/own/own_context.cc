// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/own/own_context.h"

#include "schedules/body/own/own_grid.h"
#include "schedules/body/sizes.h"

namespace rehearse::own {
namespace {

using H = TensorHome;
using K = Kernel;

}  // namespace

Context context_of(const Layout& layout, const BodyShape& shape) {
  Context c{.layout = layout,
            .model = layout.model,
            .plan = layout.plan,
            .s = layout.shape,
            .direction = shape.direction,
            .experts = shape.experts,
            .slice = layout.plan.sequence_slices > 1 ? shape.slice : -1,
            .reach = shape.reach,
            .rotates = shape.rotates,
            .apart = shape.apart};
  c.activation = c.layout.activation_bytes();
  c.gathered = c.s.element * c.s.tokens * c.s.hidden;
  c.statistics = 4 * c.s.local * (c.model.norm == NormKind::LayerNorm ? 2 : 1);
  c.split =
      shape.direction == Direction::InputGradient || shape.direction == Direction::WeightGradient;
  return c;
}

namespace {

// The `piece`-th of so many of the product.
void multiply(BodyBuilder& b, const Context& c, const Product& product, T in, NodePhase phase,
              std::int32_t piece = 0, std::int32_t pieces = 1) {
  // Under sequence parallelism a piece has rows of every rank's shard, which lie apart: a batch.
  const std::int64_t shards = c.s.gather && pieces > 1 ? c.s.tensor : 1;
  Node& node = b.gemm(product.kernel, product.weight, product.name, c.s.tokens / pieces, product.n,
                      product.k, {in}, {product.out}, phase);
  node.bytes /= pieces;
  node.m /= shards;
  node.batch = shards;
  node.piece = static_cast<std::int16_t>(piece);
  node.pieces = static_cast<std::int16_t>(pieces);
}

void multiply_on_grid(BodyBuilder& b, const Context& c, const Product& product, T in,
                      NodePhase phase) {
  return product.kernel == K::Linear ? grid_product(b, c, product, in, phase)
                                     : grid_input_gradient(b, c, product, in, phase);
}

// One piece of a collective of `bytes`.
void meet(BodyBuilder& b, Kernel kernel, std::string_view name, std::int64_t bytes, T in, T out,
          NodePhase phase, std::int32_t piece, std::int32_t pieces) {
  Node& node = b.collective(kernel, name, bytes / pieces, in, out, phase);
  node.piece = static_cast<std::int16_t>(piece);
  node.pieces = static_cast<std::int16_t>(pieces);
  BodyBuilder::runs_beside(node);
}

}  // namespace

std::int32_t pieces_of(const Context& c) {
  const bool cut = c.s.tensor > 1 && c.plan.overlap_tensor_parallel == TensorOverlap::Chunked;
  return cut ? c.plan.tensor_parallel_chunks : 1;
}

T gather_and_multiply(BodyBuilder& b, const Context& c, T local, std::string_view gathered,
                      const Product& product, NodePhase phase) {
  if (on_grid(c)) {
    multiply_on_grid(b, c, product, local, phase);
    return local;
  }
  const std::int32_t pieces = pieces_of(c);
  if (!c.s.gather || pieces == 1) {
    const T whole = gather_input(b, c, local, gathered, phase);
    multiply(b, c, product, whole, phase);
    return whole;
  }
  const T whole = b.tensor(gathered, H::Workspace, c.gathered);
  const auto gather = [&](std::int32_t piece) {
    if (piece == pieces) return;
    meet(b, K::AllGather, "all_gather tp", c.gathered, local, whole, phase, piece, pieces);
  };
  gather(0);
  for (std::int32_t piece = 0; piece < pieces; ++piece) {
    gather(piece + 1);
    multiply(b, c, product, whole, phase, piece, pieces);
  }
  return whole;
}

void multiply_and_reduce(BodyBuilder& b, const Context& c, const Product& product, T in,
                         NodePhase phase, T own) {
  if (on_grid(c)) return multiply_on_grid(b, c, product, in, phase);
  const std::int32_t pieces = pieces_of(c);
  if (pieces == 1) {
    multiply(b, c, product, in, phase);
    return reduce_output(b, c, product.out, phase, own);
  }
  for (std::int32_t piece = 0; piece < pieces; ++piece) {
    multiply(b, c, product, in, phase, piece, pieces);
    meet(b, c.s.gather ? K::ReduceScatter : K::AllReduce,
         c.s.gather ? "reduce_scatter tp" : "all_reduce tp", c.gathered, product.out,
         own == kNone ? product.out : own, phase, piece, pieces);
  }
}

void reduce_output(BodyBuilder& b, const Context& c, T partial, NodePhase phase, T own) {
  if (c.s.tensor == 1) return;
  b.collective(c.s.gather ? K::ReduceScatter : K::AllReduce,
               c.s.gather ? "reduce_scatter tp" : "all_reduce tp", c.gathered, partial,
               own == kNone ? partial : own, phase);
}

T gather_input(BodyBuilder& b, const Context& c, T local, std::string_view name, NodePhase phase) {
  if (!c.s.gather) return local;
  const T whole = b.tensor(name, H::Workspace, c.gathered);
  Node& node = b.collective(K::AllGather, "all_gather tp", c.gathered, local, whole, phase);
  if (pieces_of(c) > 1) BodyBuilder::runs_beside(node);
  return whole;
}

}  // namespace rehearse::own
