// SPDX-License-Identifier: Apache-2.0
#include "schedules/passes/parameters/summed_gradients.h"

#include <algorithm>

namespace rehearse {
namespace {

bool any_reduced_each(const RowDraft& row) {
  for (std::size_t i = 0; i < row.s.buckets.size(); ++i) {
    const BucketId id{static_cast<std::int32_t>(i)};
    if (row.here(id) && row.draft.reduces_each_microbatch(id)) return true;
  }
  return false;
}

}  // namespace

SummedGradients::SummedGradients(RowDraft& row)
    : row_(row),
      each_(any_reduced_each(row)),
      gradient_(2 * row.s.buckets.size()),
      open_(2 * row.s.buckets.size() * (each_ ? static_cast<std::size_t>(row.units) : 1), 0) {
  for (const Part& part : row_.parts) {
    for (const auto& [about, use] : row_.work(part).adds) ++open(part, about, use);
  }
}

void SummedGradients::add_each(const Part& part) {
  for (const auto& [about, use] : row_.work(part).adds) {
    ValueId& gradient = gradient_of(about, use);
    if (gradient) {
      row_.operand(gradient, Access::Update);
      continue;
    }
    gradient = row_.bucket_value(ValueKind::Gradient, about, 4 * row_.bucket(about).padded);
    if (each(about)) row_.of(gradient).microbatch = part.op.microbatch;
    // Both uses of a tied table on one row: the head's is kept apart until they are added.
    if (use == 1 && row_.both_ends) row_.of(gradient).instance = 1;
    new_.push_back(gradient);
  }
}

void SummedGradients::list_ready(const Part& part, std::size_t at) {
  const auto first = static_cast<std::ptrdiff_t>(row_.ready.size());
  for (const auto& [about, use] : row_.work(part).adds) {
    if (--open(part, about, use) > 0) continue;
    ValueId& gradient = gradient_of(about, use);
    if (!gradient) continue;  // an OVERLAP's halves finish two micro-batches: reduced together
    row_.ready.push_back({at, about, use, part.op.microbatch, gradient});
    if (each(about)) gradient = {};
  }
  std::sort(row_.ready.begin() + first, row_.ready.end(), [](const auto& a, const auto& b) {
    return a.about != b.about ? a.about < b.about : a.use < b.use;
  });
}

}  // namespace rehearse
