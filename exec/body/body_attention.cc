// SPDX-License-Identifier: Apache-2.0
// Attention: whole, or in parts where a sequence is cut over ranks or slices; rope, and what brings
// q, k, v and their gradients where they are read.
#include "exec/body/body_state.h"

#include <algorithm>
#include <utility>

namespace rehearse::exec {

AttentionShape OpCursor::State::attention_shape() const {
  const Transformer& m = shared.model;
  const std::int64_t sequence = shared.plan.sequence_length;
  AttentionShape shape = shared.attention;
  AttentionForm& form = shape.form;
  if (m.attention_scale > 0 || m.attention_scale_by_layer) {
    form.scale = attention_scale(m, layer());
  }
  form.softcap = m.attention_softcap;
  form.window = m.window(layer()) < sequence ? m.window(layer()) : 0;
  form.alibi_heads = m.positions == PositionKind::Alibi ? m.heads : 0;
  form.first_head = coordinate * shared.shape.heads;
  form.sinks = parameter_at(role(&Roles::weight, ParameterRole::Sinks));
  if (const double rate = shared.plan.dropouts.attention; rate > 0) {
    form.dropout =
        dropout_of(rate, static_cast<std::uint64_t>(seed), step, layer(), DropoutSite::Attention);
    form.dropout.first = op->first_sample * sequence;
    form.dropout_sequence = sequence;
  }
  return shape;
}

// In latent attention the last columns of a head rotate.
void OpCursor::State::rope(const Node& n) const {
  const bool latent = shared.model.latent.used();
  const std::int64_t column = latent ? shared.model.latent.qk_nope_head_dim : 0;
  const Rotary& table = shared.rotary[shared.model.window(layer()) > 0 ? 1 : 0];
  const RotaryShape rotary{
      .inverse_frequency = table.inverse_frequency.data(),
      .rotary_dim = table.rotary_dim,
      // one of the norm behind, but for its epsilon (head_norms)
      .attention_factor = shared.model.query_key_unit_norm ? 1 : table.attention_factor,
      .interleaved = table.interleaved};
  AttentionShape shape = shared.attention;
  shape.sequence = shared.plan.sequence_length;
  if (!shared.model.rotates(layer())) return temper(n, shape);
  for_runs(0, shared.shape.tokens, [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
    shape.tokens = rows;
    shape.first = position;
    kernels.rope(lane, shape, rotary, n.kernel == Kernel::RopeBackward,
                 element(w(n), row * shared.shape.qkv + column));
  });
}

void OpCursor::State::temper(const Node& n, AttentionShape shape) const {
  const Temperature temperature{shared.model.temperature_scale, shared.model.temperature_floor};
  if (temperature.scale == 0) return;
  for_runs(0, shared.shape.tokens, [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
    shape.tokens = rows;
    shape.first = position;
    kernels.temper_queries(lane, shape, temperature, element(w(n), row * shared.shape.qkv));
  });
}

AttentionPart OpCursor::State::part_of(const Node& n) const {
  const std::int64_t rows = shared.attention.sequence;
  AttentionPart part{.shape = attention_shape(), .query_end = rows, .key_end = rows};
  part.key_stride = n.step == 0 ? shared.shape.qkv : shared.attention.kv_columns();
  part.first = n.first;
  part.query_position = std::max(op->slice, 0) * rows;
  part.key_position = n.slice >= 0 ? n.slice * rows : part.query_position;
  if (n.slice >= 0) return part;
  part.causal = n.step == 0;
  if (n.step > 0) (n.step <= context ? part.key_end : part.query_begin) = rows / 2;
  return part;
}

std::int64_t OpCursor::State::attention_chunk() const {
  const std::int64_t tokens = shared.model.chunk(layer());
  return tokens < shared.plan.sequence_length ? tokens : 0;
}

std::vector<OpCursor::State::Run> OpCursor::State::runs_of(std::int64_t slice,
                                                           std::int64_t rank) const {
  const std::int64_t ring = shared.plan.context_parallel, pieces = ring > 1 ? 2 : 1;
  const std::int64_t rows = shared.attention.sequence / pieces, cut = attention_chunk();
  std::vector<Run> runs;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const std::int64_t number = piece == 0 ? rank : 2 * ring - 1 - rank;
    std::int64_t position = (slice * pieces * ring + number) * rows;
    for (std::int64_t row = piece * rows, end = row + rows, count = 0; row < end; row += count) {
      count = cut > 0 ? std::min(end - row, cut - position % cut) : rows;
      runs.push_back({row, count, position});
      position += count;
    }
  }
  return runs;
}

template <class Use>
void OpCursor::State::for_parts(const Node& n, const Use& use) const {
  const AttentionPart block = part_of(n);
  const std::int64_t ring = shared.plan.context_parallel, cut = attention_chunk();
  if (cut == 0 && (ring == 1 || !block.shape.form.reads_positions())) return use(block);
  const std::int64_t slice = std::max(op->slice, 0), of_keys = n.slice >= 0 ? n.slice : slice;
  const std::vector<Run> queries = runs_of(slice, context);
  const std::vector<Run> keys = runs_of(of_keys, (context - n.step + ring) % ring);
  bool none = true;
  const auto meet = [&](const Run& query, const Run& key) {
    AttentionPart part = block;
    part.query_begin = query.row;
    part.query_end = query.row + query.rows;
    part.key_begin = key.row;
    part.key_end = key.row + key.rows;
    part.causal = key.position == query.position;
    // In chunks positions count from the chunk's first, its rows among the batch's tokens.
    const std::int64_t chunk_begin = cut > 0 ? query.position / cut * cut : 0;
    part.query_position = query.position - query.row - chunk_begin;
    part.key_position = key.position - key.row - chunk_begin;
    part.shape.form.dropout.first += chunk_begin;
    if (cut > 0 && query.position / cut != key.position / cut) {
      if (!n.first || !none) return;
      part.shape.form.window = 1;  // sees nothing: the first part begins the sums of all rows
    }
    none = false;
    use(part);
  };
  for (const bool causal : {true, false}) {  // first what gives every row a key
    for (const Run& query : queries) {
      for (const Run& key : keys) {
        const bool earlier = key.position < query.position;
        if (causal ? key.position == query.position : earlier) meet(query, key);
      }
    }
  }
}

std::byte* OpCursor::State::keys_of(const Node& n) const {
  std::byte* block = r(n, n.reads.size() - 1);
  return n.step == 0 ? keys(block) : block;
}

// A chunk is as a sample of its own (unperformed_pairs keeps what would leave a rest).
AttentionShape OpCursor::State::whole_shape() const {
  AttentionShape shape = attention_shape();
  if (attention_chunk() > 0) shape.sequence = shape.form.dropout_sequence = attention_chunk();
  return shape;
}

void OpCursor::State::attention(const Node& n) const {
  if (n.step < 0) return kernels.attention(lane, whole_shape(), r(n, 0), w(n, 0), floats(w(n, 1)));
  for_parts(n, [&](AttentionPart part) {
    part.first = n.first && part.causal;  // the first that a chunk of queries meets
    kernels.attention_part(lane, part, r(n, 0), keys_of(n), floats(w(n, 0)), floats(w(n, 1)));
  });
}

void OpCursor::State::attention_backward(const Node& n) const {
  const bool whole = n.step < 0;
  float* d_sinks = gradient_at(role(&Roles::weight, ParameterRole::Sinks));
  const float* lse = floats(r(n, whole ? 3 : 2));
  float* delta = floats(w(n, whole ? 1 : 2));
  if (whole) {
    kernels.attention_backward(lane, whole_shape(), r(n, 0), r(n, 1), r(n, 2), lse, w(n, 0), delta);
  } else {
    if (n.step == 1) {  // gradients of a block set out
      device.clear(lane, w(n, 1), body->tensors[static_cast<std::size_t>(n.writes[1])].bytes);
    }
    bool first = n.first;
    for_parts(n, [&](AttentionPart part) {
      part.first = std::exchange(first, false);
      kernels.attention_part_backward(lane, part, r(n, 0), r(n, 3), keys_of(n), r(n, 1), lse,
                                      floats(w(n, 0)), floats(w(n, 1)), delta);
    });
  }
  if (d_sinks != nullptr && (whole || n.first)) {
    kernels.sink_gradient(lane, attention_shape(), lse, delta, d_sinks);
  }
}

template <class Use>
void OpCursor::State::for_shared_heads(const Use& use) const {
  const RankShape& s = shared.shape;
  const std::int64_t all = shared.model.kv_heads * s.head_dim;
  for (const std::int64_t part : {0, 1}) {
    use((s.heads + part * s.kv_heads) * s.head_dim, part * all + key_head() * s.head_dim, s.qkv,
        2 * all);
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
