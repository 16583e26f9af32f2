// SPDX-License-Identifier: Apache-2.0
// Attention: whole, or in parts where a sequence is cut over ranks or slices; rope, and what brings
// q, k, v and their gradients where they are read.
#include "exec/body/body_state.h"

namespace rehearse::exec {

void OpCursor::State::rope(const Node& n) const {
  AttentionShape shape = shared.attention;
  shape.sequence = shared.plan.sequence_length;
  const RotaryShape rotary{.inverse_frequency = shared.inverse_frequency.data(),
                           .rotary_dim = shape.head_dim};
  for_runs(0, shared.shape.tokens, [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
    shape.tokens = rows;
    shape.first = position;
    kernels.rope(lane, shape, rotary, n.kernel == Kernel::RopeBackward,
                 element(w(n), row * shared.shape.qkv));
  });
}

AttentionPart OpCursor::State::part_of(const Node& n) const {
  const std::int64_t rows = shared.attention.sequence;
  AttentionPart part{.shape = shared.attention, .query_end = rows, .key_end = rows};
  part.key_stride = n.step == 0 ? shared.shape.qkv : shared.attention.kv_columns();
  part.first = n.first;
  if (n.slice >= 0) return part;
  part.causal = n.step == 0;
  if (n.step > 0) (n.step <= context ? part.key_end : part.query_begin) = rows / 2;
  return part;
}

std::byte* OpCursor::State::keys_of(const Node& n) const {
  std::byte* block = r(n, n.reads.size() - 1);
  return n.step == 0 ? keys(block) : block;
}

void OpCursor::State::attention(const Node& n) const {
  if (n.step < 0)
    return kernels.attention(lane, shared.attention, r(n, 0), w(n, 0), floats(w(n, 1)));
  kernels.attention_part(lane, part_of(n), r(n, 0), keys_of(n), floats(w(n, 0)), floats(w(n, 1)));
}

void OpCursor::State::attention_backward(const Node& n) const {
  if (n.step < 0) {
    return kernels.attention_backward(lane, shared.attention, r(n, 0), r(n, 1), r(n, 2),
                                      floats(r(n, 3)), w(n, 0), floats(w(n, 1)));
  }
  if (n.step == 1) {  // gradients of a block set out
    device.clear(lane, w(n, 1), body->tensors[static_cast<std::size_t>(n.writes[1])].bytes);
  }
  kernels.attention_part_backward(lane, part_of(n), r(n, 0), r(n, 3), keys_of(n), r(n, 1),
                                  floats(r(n, 2)), floats(w(n, 0)), floats(w(n, 1)),
                                  floats(w(n, 2)));
}

template <class Use>
void OpCursor::State::for_shared_heads(const Use& use) const {
  const RankShape& s = shared.shape;
  const std::int64_t all = shared.model.kv_heads * s.head_dim;
  const std::int64_t head = coordinate / Layout(shared.model, shared.plan).key_value_replicas();
  for (const std::int64_t part : {0, 1}) {
    use((s.heads + part * s.kv_heads) * s.head_dim, part * all + head * s.head_dim, s.qkv, 2 * all);
  }
}

void OpCursor::State::store_gradients(const Node& n) const {
  const RankShape& s = shared.shape;
  kernels.cast_columns(lane, s.tokens, s.heads * s.head_dim, floats(r(n, 0)), w(n), s.qkv);
  kernels.cast_columns(lane, s.tokens, shared.attention.kv_columns(), floats(r(n, 1)), keys(w(n)),
                       s.qkv);
}

void OpCursor::State::spread_heads(const Node& n) const {
  const RankShape& s = shared.shape;
  device.clear(lane, w(n), body->tensors[static_cast<std::size_t>(n.writes[0])].bytes);
  for_shared_heads([&](std::int64_t own_column, std::int64_t column, std::int64_t own_stride,
                       std::int64_t stride) {
    kernels.copy_columns(lane, s.tokens, s.kv_heads * s.head_dim, element(r(n, 0), own_column),
                         own_stride, element(w(n), column), stride);
  });
}

void OpCursor::State::take_heads(const Node& n) const {
  const RankShape& s = shared.shape;
  for_shared_heads([&](std::int64_t own_column, std::int64_t column, std::int64_t own_stride,
                       std::int64_t stride) {
    kernels.copy_columns(lane, s.tokens, s.kv_heads * s.head_dim, element(r(n, 0), column), stride,
                         element(w(n), own_column), own_stride);
  });
}

}  // namespace rehearse::exec
