// SPDX-License-Identifier: Apache-2.0
// Private to exec/body: which tokens of the batch a rank's rows are. Tensor parallel ranks may
// split them, context parallel ranks and slices cut each sample's sequence.
#pragma once

#include <algorithm>
#include <cstdint>

#include "exec/body/op_view.h"

namespace rehearse::exec {

// The first of the rank's own rows: under sequence parallelism it has a part of the tokens.
inline std::int64_t first_row(const OpView& op) {
  return op.shared.shape.gather ? op.coordinate * op.shared.shape.local : 0;
}

// A rank's rows lie in the batch one behind the other.
inline bool one_run(const OpView& op) {
  return op.shared.plan.context_parallel == 1 && op.compute->slice < 0;
}

// Calls use(row, rows, position) for runs of the rank's rows [first, first + count), counted over
// the samples of its slice, whose positions follow one another (modulo the sequence).
template <class Use>
void for_runs(const OpView& op, std::int64_t first, std::int64_t count, const Use& use) {
  if (one_run(op)) return use(std::int64_t{0}, count, first);
  // A sample's rows: one slice of it, or chunks i and 2c - 1 - i of the slice's 2c; `earlier` is
  // the number of chunks of the slices before.
  const std::int64_t ring = op.shared.plan.context_parallel, chunks = ring > 1 ? 2 : 1;
  const std::int64_t run = op.shared.attention.sequence / chunks;
  const std::int64_t earlier = std::max(op.compute->slice, 0) * chunks * ring;
  for (std::int64_t row = 0; row < count;) {
    const std::int64_t within = (first + row) % run;
    const std::int64_t rows = std::min(run - within, count - row);
    const bool late = (first + row) / run % chunks == 1;
    const std::int64_t number = late ? 2 * ring - 1 - op.context : op.context;
    use(row, rows, (earlier + number) * run + within);
    row += rows;
  }
}

// The same with the number of the run's first row among the tokens of the step's batch.
template <class Use>
void for_tokens(const OpView& op, std::int64_t first, std::int64_t count, const Use& use) {
  const std::int64_t sequence = op.shared.plan.sequence_length;
  for_runs(op, first, count, [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
    const std::int64_t sample =
        op.compute->first_sample + (first + row) / op.shared.attention.sequence;
    use(row, rows, sample * sequence + position % sequence);
  });
}

}  // namespace rehearse::exec
