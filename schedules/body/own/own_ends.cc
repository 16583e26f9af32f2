// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/own/own_ends.h"

#include <algorithm>

#include "schedules/body/own/own_grid.h"
#include "schedules/body/sizes.h"

namespace rehearse::own {
namespace {

using H = TensorHome;
using K = Kernel;
using P = ParameterRole;

struct EmbeddingNorm {
  T rows = kNone, statistics = kNone;
  T weight = kNone;  // an embedding's backward reads no parameters, so the forward keeps it
};
EmbeddingNorm embedding_norm(BodyBuilder& b, const Context& c) {
  if (!c.model.embedding_norm) return {};
  return {.rows = b.tensor("e", H::SavedForWgrad, c.activation),
          .statistics = b.tensor("st", H::SavedForWgrad, c.statistics),
          .weight = b.tensor("weight of the norm", H::SavedForWgrad, c.s.element * c.s.hidden)};
}

// The loss of a chunk of logits, and their gradient in their place.
void loss_of_chunk(BodyBuilder& b, const Context& c, T lg, std::int64_t rows, T targets, T loss) {
  const T mx = b.tensor("mx", H::Workspace, 4 * rows);
  const T se = b.tensor("se", H::Workspace, 8 * rows);
  if (on_grid(c) ? c.s.grid.columns > 1 : c.s.tensor > 1) {
    const Axis axis = on_grid(c) ? Axis::TensorRow : Axis::Tensor;
    b.collective(K::MaximaOverRanks, "row maxima; all_reduce max tp", 4 * rows, lg, mx).axis = axis;
    Node& sums =
        b.collective(K::SumsOverRanks, "row sums, targets; all_reduce sum tp", 8 * rows, lg, se);
    sums.reads.push_back(mx);
    sums.axis = axis;
  } else {
    b.node(K::RowMaxima, "row maxima", {lg}, {mx});
    b.node(K::RowSums, "row sums, targets", {lg, mx, targets}, {se});
  }
  b.node(K::Loss, "loss, d_logits", {lg, mx, se, targets}, {lg, loss}).n = c.s.logit_columns;
}

P table_of(const Context& c) {
  return c.model.tied_embedding ? P::Table : P::Head;
}

// All tokens of the micro-batch meet the rank's rows of the table; ranks of a column sum what they
// found and keep their own tokens.
Body embedding_on_grid(const Context& c) {
  const RankShape& s = c.s;
  BodyBuilder b(SegmentKind::Embedding, c.direction);
  const T tokens = b.tensor("tokens", H::Tokens, 4 * s.tokens * s.grid.rows);
  const T out = b.tensor("out", H::Output, c.activation);
  const bool whole = s.grid.rows == 1;
  const T found = whole ? out : b.tensor("p", H::Workspace, c.activation * s.grid.rows);
  b.node(K::Lookup, "lookup of own vocabulary rows", {tokens}, {found}).parameter = P::Table;
  if (!whole) {
    b.collective(K::ReduceScatter, "reduce_scatter along the column", c.activation * s.grid.rows,
                 found, out)
        .axis = Axis::TensorColumn;
  }
  if (c.model.positions == PositionKind::Learned) {
    const T positions =
        gather_vector(b, c, P::Positions, false, c.model.max_positions * s.hidden, NodePhase::Main);
    b.node(K::AddPositions, "add positions", {out, positions}, {out});
  }
  return b.finish();
}

Body embedding_backward_on_grid(const Context& c) {
  const RankShape& s = c.s;
  const NodePhase late = NodePhase::Weight;
  BodyBuilder b(SegmentKind::Embedding, c.direction);
  const T tokens = b.tensor("tokens", H::Tokens, 4 * s.tokens * s.grid.rows);
  const T dx = b.tensor("dx", H::OutputGradient, c.activation);
  if (c.model.positions == PositionKind::Learned) {
    const std::int64_t elements = c.model.max_positions * s.hidden;
    const T sums = b.tensor("sums of positions", H::Workspace, 4 * elements);
    b.node(K::PositionSums, "position gradient", {dx}, {sums}, late).n = elements;
    scatter_vector(b, c, P::Positions, false, elements, sums, late);
  }
  T all = dx;
  if (s.grid.rows > 1) {
    all = b.tensor("G", H::Workspace, c.activation * s.grid.rows);
    b.collective(K::AllGather, "all_gather along the column", c.activation * s.grid.rows, dx, all,
                 late)
        .axis = Axis::TensorColumn;
  }
  const T order = b.tensor("order", H::Workspace, 4 * s.tokens * s.grid.rows);
  b.node(K::SortTokens, "sort tokens", {tokens}, {order}, late);
  b.node(K::TableGradient, "row sums into the table gradient", {all, order}, {}, late).parameter =
      P::Table;
  return b.finish();
}

Body head_on_grid(const Context& c) {
  const RankShape& s = c.s;
  BodyBuilder b(SegmentKind::Head, c.direction);
  const P table = table_of(c);
  const T x = b.tensor("x", H::Input, c.activation);
  const T targets = b.tensor("targets", H::Tokens, 4 * s.tokens);
  const T y = b.tensor("y", H::Workspace, c.activation);
  const T st = b.tensor("st", H::SavedForDgrad, c.statistics);
  const T dY = b.tensor("dY", H::SavedForDgrad, c.activation);
  const T loss = b.tensor("loss", H::Loss, 4);
  const T lg = b.tensor("lg", H::Workspace, s.element * s.tokens * s.logit_columns);
  grid_norm(b, c, P::FinalNorm, "final norm", x, y, st);
  grid_logits(b, c, table, y, lg);
  loss_of_chunk(b, c, lg, s.tokens, targets, loss);
  grid_logits_input(b, c, table, lg, dY);
  grid_logits_weight(b, c, table, lg, y);
  return b.finish();
}

}  // namespace

Body embedding_forward(const Context& c) {
  if (on_grid(c)) return embedding_on_grid(c);
  BodyBuilder b(SegmentKind::Embedding, c.direction);
  const T tokens = b.tensor("tokens", H::Tokens, 4 * c.s.tokens);
  const T out = b.tensor("out", H::Output, c.activation);
  const EmbeddingNorm norm = embedding_norm(b, c);
  const T own = c.model.embedding_norm ? norm.rows : out;  // of this rank's tokens
  const T rows = c.s.tensor > 1 ? b.tensor("p", H::Workspace, c.gathered) : own;
  b.node(K::Lookup, "lookup of own vocabulary rows", {tokens}, {rows}).parameter = P::Table;
  reduce_output(b, c, rows);
  if (c.model.positions == PositionKind::Learned || rows != own) {
    b.node(K::AddPositions, "add positions", {rows}, {own}).parameter = P::Positions;
  }
  if (c.model.embedding_norm) {
    b.node(K::Norm, "embedding norm", {norm.rows}, {out, norm.statistics, norm.weight}).parameter =
        P::EmbeddingNorm;
  }
  if (c.plan.dropouts.embedding > 0) {
    b.node(K::Dropout, "embedding dropout", {out}, {out}).parameter = P::Table;
  }
  return b.finish();
}

Body embedding_backward(const Context& c) {
  if (on_grid(c)) return embedding_backward_on_grid(c);
  const NodePhase late = NodePhase::Weight;
  BodyBuilder b(SegmentKind::Embedding, c.direction);
  const T tokens = b.tensor("tokens", H::Tokens, 4 * c.s.tokens);
  T dx = b.tensor("dx", H::OutputGradient, c.activation);
  const EmbeddingNorm norm = embedding_norm(b, c);
  if (c.plan.dropouts.embedding > 0) {
    const T dropped = b.tensor("dropped gradient", H::Workspace, c.activation);
    b.node(K::DropoutBackward, "embedding dropout backward", {dx}, {dropped}, late).parameter =
        P::Table;
    dx = dropped;
  }
  if (c.model.embedding_norm) {
    const T de = b.tensor("de", H::Workspace, c.activation);
    b.node(K::NormBackward, "embedding norm backward",
           {dx, norm.rows, norm.statistics, norm.weight}, {de}, late)
        .parameter = P::EmbeddingNorm;
    dx = de;
  }
  if (c.model.positions == PositionKind::Learned) {
    b.node(K::PositionGradient, "position gradient", {dx}, {}, late).parameter = P::Positions;
  }
  const T G = gather_input(b, c, dx, "G", late);
  const T order = b.tensor("order", H::Workspace, 4 * c.s.tokens);
  b.node(K::SortTokens, "sort tokens", {tokens}, {order}, late);
  b.node(K::TableGradient, "row sums into the table gradient", {G, order}, {}, late).parameter =
      P::Table;
  return b.finish();
}

// The loss and the gradient of the logits in their place, chunk by chunk: no logits are kept, and
// the gradient chain up to the final norm runs with the forward. The gradient carries 1/(m d n).
Body head_forward(const Context& c) {
  if (on_grid(c)) return head_on_grid(c);
  const RankShape& s = c.s;
  BodyBuilder b(SegmentKind::Head, c.direction);
  const P table = table_of(c);
  const T x = b.tensor("x", H::Input, c.activation);
  const T targets = b.tensor("targets", H::Tokens, 4 * s.tokens);
  const T y = b.tensor("y", H::Workspace, c.activation);
  const T st = b.tensor("st", H::SavedForDgrad, c.statistics);
  const T dY = b.tensor("dY", H::SavedForDgrad, c.activation);
  const T loss = b.tensor("loss", H::Loss, 4);
  b.node(K::Norm, "final norm", {x}, {y, st}).parameter = P::FinalNorm;
  const T Y = gather_input(b, c, y, "Y");
  const T partial = s.gather ? b.tensor("dYp", H::Workspace, c.gathered) : dY;
  for (std::int64_t begin = 0; begin < s.tokens; begin += s.loss_chunk) {
    const std::int64_t rows = std::min(s.loss_chunk, s.tokens - begin);
    const T lg = b.tensor("lg", H::Workspace, s.element * rows * s.logit_columns);
    const std::int64_t others = s.element * s.hidden * (s.tokens - rows);  // of Y, of its gradient
    b.gemm(K::Logits, table, "gemm logits", rows, s.vocabulary, s.hidden, {Y}, {lg}).bytes -=
        others;
    loss_of_chunk(b, c, lg, rows, targets, loss);
    b.gemm(K::LogitsInput, table, "gemm d_input", rows, s.hidden, s.vocabulary, {lg}, {partial})
        .bytes -= others;
    b.gemm(K::LogitsWeight, table, "gemm d_table", s.hidden, s.vocabulary, rows, {lg, Y}, {})
        .bytes -= others;
  }
  if (s.tensor > 1) {
    b.collective(s.gather ? K::ReduceScatter : K::AllReduce,
                 s.gather ? "reduce_scatter tp" : "all_reduce tp", c.gathered, partial, dY);
  }
  return b.finish();
}

Body head_backward(const Context& c) {
  BodyBuilder b(SegmentKind::Head, c.direction);
  const T x = b.tensor("x", H::Input, c.activation);
  const T st = b.tensor("st", H::SavedForDgrad, c.statistics);
  const T dY = b.tensor("dY", H::SavedForDgrad, c.activation);
  const T dx = b.tensor("dx", H::InputGradient, c.activation);
  if (on_grid(c)) {
    grid_norm_backward(b, c, P::FinalNorm, "final norm backward", dY, x, st, kNone, dx);
  } else {
    b.node(K::NormBackward, "final norm backward", {dY, x, st}, {dx}).parameter = P::FinalNorm;
  }
  return b.finish();
}

Body logits_forward(const Context& c) {
  const RankShape& s = c.s;
  BodyBuilder b(SegmentKind::Head, c.direction);
  const T x = b.tensor("x", H::Input, c.activation);
  const T y = b.tensor("y", H::SavedForWgrad, c.activation);
  const T st = b.tensor("st", H::SavedForDgrad, c.statistics);
  const T lg = b.tensor("lg", H::Output, s.element * s.tokens * s.logit_columns);
  b.node(K::Norm, "final norm", {x}, {y, st}).parameter = P::FinalNorm;
  b.gemm(K::Logits, table_of(c), "gemm logits", s.tokens, s.vocabulary, s.hidden, {y}, {lg});
  return b.finish();
}

Body logits_backward(const Context& c) {
  const RankShape& s = c.s;
  BodyBuilder b(SegmentKind::Head, c.direction);
  const T x = b.tensor("x", H::Input, c.activation);
  const T y = b.tensor("y", H::SavedForWgrad, c.activation);
  const T st = b.tensor("st", H::SavedForDgrad, c.statistics);
  const T lg = b.tensor("lg", H::OutputGradient, s.element * s.tokens * s.logit_columns);
  const T dY = b.tensor("dY", H::Workspace, c.activation);
  const T dx = b.tensor("dx", H::InputGradient, c.activation);
  b.gemm(K::LogitsInput, table_of(c), "gemm d_input", s.tokens, s.hidden, s.vocabulary, {lg}, {dY});
  b.gemm(K::LogitsWeight, table_of(c), "gemm d_table", s.hidden, s.vocabulary, s.tokens, {lg, y},
         {}, NodePhase::Weight);
  b.node(K::NormBackward, "final norm backward", {dY, x, st}, {dx}).parameter = P::FinalNorm;
  return b.finish();
}

Body loss_of_logits(const Context& c) {
  const RankShape& s = c.s;
  BodyBuilder b(SegmentKind::Head, c.direction);
  const T targets = b.tensor("targets", H::Tokens, 4 * s.tokens);
  const T loss = b.tensor("loss", H::Loss, 4);
  for (std::int64_t begin = 0; begin < s.tokens; begin += s.loss_chunk) {
    const std::int64_t rows = std::min(s.loss_chunk, s.tokens - begin);
    const T lg = b.tensor("lg", H::Output, s.element * rows * s.logit_columns);
    loss_of_chunk(b, c, lg, rows, targets, loss);
  }
  return b.finish();
}

}  // namespace rehearse::own
