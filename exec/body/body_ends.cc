// SPDX-License-Identifier: Apache-2.0
// The two ends of the model: the embedding, and the loss over the rank's part of the vocabulary.
#include "exec/body/body_state.h"

#include <algorithm>

namespace rehearse::exec {

void OpCursor::State::add_positions(const Node& n) const {
  const RankShape& s = shared.shape;
  const std::byte* positions = parameter(roles().positions);
  for_runs(first_row(), s.local, [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
    device.add_positions(lane, rows, s.hidden, position, shared.plan.sequence_length,
                         element(own(r(n, 0)), row * s.hidden), positions,
                         element(w(n), row * s.hidden));
  });
}

void OpCursor::State::embedding_backward(const Node& n) const {
  const Roles& p = roles();
  const RankShape& s = shared.shape;
  if (n.name == "position gradient") {
    for_runs(first_row(), s.local, [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
      device.position_gradient(lane, rows, s.hidden, position, shared.plan.sequence_length,
                               element(r(n, 0), row * s.hidden), gradient(p.positions));
    });
    return;
  }
  device.embed_backward(lane, s.tokens, s.hidden, at().tokens, r(n, 0), vocabulary(),
                        reinterpret_cast<std::int32_t*>(r(n, 1)), gradient(p.table));
}

void OpCursor::State::row_maxima(const Node& n) const {
  device.row_maxima(lane, chunk_rows(n), vocabulary(), floats(r(n, 0)), floats(w(n)));
}

void OpCursor::State::row_sums(const Node& n) const {
  device.row_sums(lane, chunk_rows(n), vocabulary(), floats(r(n, 0)), floats(r(n, 1)),
                  at().targets + chunk, floats(w(n)));
}

void OpCursor::State::cross_entropy(const Node& n) {
  if (n.name == "row maxima") {  // nobody else has logits: the next two nodes at once
    const Node &sums = body->nodes[node++], &loss = body->nodes[node++];
    device.cross_entropy(lane, chunk_rows(n), vocabulary(), floats(r(n, 0)), at().targets + chunk,
                         scale, floats(w(n)), floats(w(sums)), w(loss), at().loss);
  } else {
    device.loss_and_gradient(lane, chunk_rows(n), vocabulary(), floats(r(n, 0)), floats(r(n, 1)),
                             floats(r(n, 2)), at().targets + chunk, scale, w(n), at().loss);
  }
}

VocabularyShape OpCursor::State::vocabulary() const {
  const std::int64_t columns = shared.shape.vocabulary, first = coordinate * columns;
  return {.columns = columns,
          .valid = std::clamp<std::int64_t>(shared.model.vocabulary - first, 0, columns),
          .first = first,
          .frozen = shared.model.padding_token};
}

std::int64_t OpCursor::State::chunk_rows(const Node& n) const {
  return body->tensors[static_cast<std::size_t>(n.reads[0])].bytes / (4 * shared.shape.vocabulary);
}

}  // namespace rehearse::exec
