// SPDX-License-Identifier: Apache-2.0
// The two ends of the model: the embedding, and the loss over the rank's part of the vocabulary.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "exec/body/gathered_loss.h"
#include "exec/body/node_rows.h"
#include "exec/body/token_rows.h"
#include "schedules/body/loss_body.h"

namespace rehearse::exec {
namespace {

VocabularyShape vocabulary(const Transformer& m, std::int64_t columns, std::int64_t first) {
  return {.columns = columns,
          .valid = std::clamp<std::int64_t>(m.vocabulary - first, 0, columns),
          .first = first,
          .frozen = m.padding_token,
          .scale = m.scaled_embedding ? std::sqrt(static_cast<float>(m.hidden)) : 1.0F,
          .softcap = static_cast<float>(m.final_softcap)};
}

// The rank's rows of the table.
VocabularyShape vocabulary(const OpView& op) {
  const RankShape& s = op.shared.shape;
  return vocabulary(op.shared.model, s.vocabulary,
                    (s.grid.any() ? op.grid_row() : op.coordinate) * s.vocabulary);
}

// Its columns of the logits, whose rows may be longer.
VocabularyShape logit_shape(const OpView& op) {
  const RankShape& s = op.shared.shape;
  VocabularyShape shape = vocabulary(op.shared.model, s.logits,
                                     (s.grid.any() ? op.grid_column() : op.coordinate) * s.logits);
  shape.columns = op.shared.shape.logit_columns;
  return shape;
}

// Rows of the chunk whose logits the node reads first.
std::int64_t chunk_rows(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  return op.tensor(n.reads[0]).bytes / (s.element * s.logit_columns);
}

// What the rows of the chunk at hand are to be followed by.
const std::int32_t* targets(const OpView& op) {
  const std::int64_t others = op.shared.shape.grid.any() ? op.grid_row() : 0;  // rows of a grid
  return op.compute->at.targets + others * op.shared.shape.tokens + op.carry.chunk;
}

}  // namespace

void lookup(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  op.kernels.embed(op.lane, s.batch_tokens(), s.hidden, op.compute->at.tokens, op.parameter(n),
                   vocabulary(op), op.out(n));
}

void table_gradient(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  op.kernels.embed_backward(op.lane, s.batch_tokens(), s.hidden, op.compute->at.tokens, op.in(n, 0),
                            vocabulary(op), ints(op.in(n, 1)), op.gradient(n));
}

void add_positions(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  const std::byte* positions = n.reads.size() > 1 ? op.in(n, 1) : op.parameter(n);  // gathered
  for_runs(
      op, first_row(op), s.local, [&](std::int64_t row, std::int64_t rows, std::int64_t first) {
        op.kernels.add_positions(op.lane, rows, s.hidden, first, op.shared.plan.sequence_length,
                                 op.element(op.own(n, 0), row * s.hidden), positions,
                                 op.element(op.out(n), row * s.hidden));
      });
}

void position_gradient(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  for_runs(
      op, first_row(op), s.local, [&](std::int64_t row, std::int64_t rows, std::int64_t first) {
        op.kernels.position_gradient(op.lane, rows, s.hidden, first, op.shared.plan.sequence_length,
                                     op.element(op.in(n, 0), row * s.hidden), op.gradient(n));
      });
}

void row_maxima(const OpView& op, const Node& n) {
  op.kernels.row_maxima(op.lane, chunk_rows(op, n), logit_shape(op), op.in(n, 0),
                        floats(op.out(n)));
}

void row_sums(const OpView& op, const Node& n) {
  op.kernels.row_sums(op.lane, chunk_rows(op, n), logit_shape(op), op.in(n, 0), floats(op.in(n, 1)),
                      targets(op), floats(op.out(n)));
}

void loss(const OpView& op, const Node& n) {
  op.kernels.loss_and_gradient(op.lane, chunk_rows(op, n), logit_shape(op), floats(op.in(n, 1)),
                               floats(op.in(n, 2)), targets(op), op.facts.loss_scale, op.out(n),
                               op.compute->at.loss);
}

void whole_loss(const OpView& op, const Node& n) {
  const Node& sums = op.body->nodes[op.carry.next++];
  const Node& gradient = op.body->nodes[op.carry.next++];
  op.kernels.cross_entropy(op.lane, chunk_rows(op, n), logit_shape(op), targets(op),
                           op.facts.loss_scale, floats(op.out(n)), floats(op.out(sums)),
                           op.out(gradient), op.compute->at.loss);
}

void perform(const GatheredLoss& at, const Layout& layout, Kernels& kernels, Lane lane,
             float scale) {
  VocabularyShape shape = vocabulary(layout.model, layout.shape.vocabulary, 0);
  shape.columns = layout.shape.logit_columns;
  const std::int64_t row = layout.shape.element * shape.columns;
  const Body body = make_loss_body(layout);
  const auto tensor = [&](std::int16_t i) { return body.tensors[static_cast<std::size_t>(i)]; };
  std::int64_t done = 0;  // tokens
  for (std::size_t k = 0; k < body.nodes.size(); k += 3) {
    const Node &maxima = body.nodes[k], &sums = body.nodes[k + 1];
    const std::int64_t rows = tensor(maxima.reads[0]).bytes / row;
    const auto work = [&](const Node& node) {
      return reinterpret_cast<float*>(at.workspace + tensor(node.writes[0]).offset);
    };
    kernels.cross_entropy(lane, rows, shape, at.targets + done, scale, work(maxima), work(sums),
                          at.logits + done * row, at.loss);
    done += rows;
  }
}

}  // namespace rehearse::exec
