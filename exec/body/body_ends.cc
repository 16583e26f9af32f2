// SPDX-License-Identifier: Apache-2.0
// The two ends of the model: the embedding, and the loss over the rank's part of the vocabulary.
#include "exec/body/body_state.h"

#include <algorithm>
#include <cmath>

namespace rehearse::exec {

void OpCursor::State::add_positions(const Node& n) const {
  const RankShape& s = shared.shape;
  const std::byte* positions = parameter(n);
  for_runs(first_row(), s.local, [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
    kernels.add_positions(lane, rows, s.hidden, position, shared.plan.sequence_length,
                          element(own(n, 0), row * s.hidden), positions,
                          element(w(n), row * s.hidden));
  });
}

void OpCursor::State::position_gradient(const Node& n) const {
  const RankShape& s = shared.shape;
  for_runs(first_row(), s.local, [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
    kernels.position_gradient(lane, rows, s.hidden, position, shared.plan.sequence_length,
                              element(r(n, 0), row * s.hidden), gradient(n));
  });
}

void OpCursor::State::row_maxima(const Node& n) const {
  kernels.row_maxima(lane, chunk_rows(n), vocabulary(), floats(r(n, 0)), floats(w(n)));
}

void OpCursor::State::row_sums(const Node& n) const {
  kernels.row_sums(lane, chunk_rows(n), vocabulary(), floats(r(n, 0)), floats(r(n, 1)),
                   at().targets + chunk, floats(w(n)));
}

void OpCursor::State::whole_loss(const Node& n) {
  const Node &sums = body->nodes[node++], &loss = body->nodes[node++];
  kernels.cross_entropy(lane, chunk_rows(n), vocabulary(), floats(r(n, 0)), at().targets + chunk,
                        scale, floats(w(n)), floats(w(sums)), w(loss), at().loss);
}

VocabularyShape OpCursor::State::vocabulary() const {
  const std::int64_t columns = shared.shape.vocabulary, first = coordinate * columns;
  return {.columns = columns,
          .valid = std::clamp<std::int64_t>(shared.model.vocabulary - first, 0, columns),
          .first = first,
          .frozen = shared.model.padding_token,
          .scale = shared.model.scaled_embedding
                       ? std::sqrt(static_cast<float>(shared.model.hidden))
                       : 1.0F,
          .softcap = static_cast<float>(shared.model.final_softcap)};
}

std::int64_t OpCursor::State::chunk_rows(const Node& n) const {
  return body->tensors[static_cast<std::size_t>(n.reads[0])].bytes / (4 * shared.shape.vocabulary);
}

}  // namespace rehearse::exec
