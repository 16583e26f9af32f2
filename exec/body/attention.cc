// SPDX-License-Identifier: Apache-2.0
// Attention: whole, or in parts where a sequence is cut over ranks or slices; rope, and what brings
// q, k, v and their gradients where they are read.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "exec/body/node_rows.h"
#include "exec/body/token_rows.h"
#include "schedules/body/head_share.h"

namespace rehearse::exec {
namespace {

// Tokens of the layer's attention chunks, beyond whose bounds no query looks; 0: it may look at
// all.
std::int64_t attention_chunk(const OpView& op) {
  const std::int64_t tokens = op.shared.model.chunk(op.layer());
  return tokens < op.shared.plan.sequence_length ? tokens : 0;
}

// The first of the rank's heads with which it attends: another where heads are exchanged.
std::int64_t first_head(const OpView& op) {
  return op.context % op.shared.plan.exchanging_ranks() * op.shared.core.heads;
}

// Which of the key_blocks its own keys are.
std::int64_t place_of(const OpView& op) {
  return op.context / op.shared.plan.exchanging_ranks();
}

// The shape of attention in this op and layer.
AttentionShape attention_shape(const OpView& op) {
  const Transformer& m = op.shared.model;
  const std::int64_t sequence = op.shared.plan.sequence_length, layer = op.layer();
  AttentionShape shape = op.shared.core;
  AttentionForm& form = shape.form;
  if (m.attention_scale > 0 || m.attention_scale_by_layer) form.scale = attention_scale(m, layer);
  form.softcap = m.attention_softcap;
  form.window = m.window(layer) < sequence ? m.window(layer) : 0;
  form.alibi_heads = m.positions == PositionKind::Alibi ? m.heads : 0;
  const std::int32_t place = op.shared.shape.grid.any() ? op.grid_column() : op.coordinate;
  form.first_head = place * op.shared.shape.heads + first_head(op);
  if (const std::byte* sinks = op.parameter(ParameterRole::Sinks)) {
    form.sinks = sinks + first_head(op) * op.shared.shape.element;
  }
  if (const double rate = op.shared.plan.dropouts.attention; rate > 0) {
    form.dropout = dropout_of(rate, static_cast<std::uint64_t>(op.facts.seed), op.facts.step, layer,
                              DropoutSite::Attention);
    form.dropout.first = op.compute->first_sample * sequence;
    form.dropout_sequence = sequence;
  }
  return shape;
}

// The shape of attention that is no part. A chunk is as a sample of its own (unperformed_pairs
// keeps what would leave a rest).
AttentionShape whole_shape(const OpView& op) {
  AttentionShape shape = attention_shape(op);
  if (const std::int64_t chunk = attention_chunk(op); chunk > 0) {
    shape.sequence = shape.form.dropout_sequence = chunk;
  }
  return shape;
}

// The first key of qkv(tokens, columns) of the core.
std::byte* keys(const OpView& op, std::byte* qkv) {
  return op.element(qkv, op.shared.core.heads * op.shared.core.head_dim);
}

// The place whose keys a part of attention meets: so many steps before this one round the ring.
std::int64_t owner_of(const OpView& op, const Node& n) {
  const std::int64_t ring = key_blocks(op.shared.plan);
  return (place_of(op) - n.step + ring) % ring;
}

// Elements before the part's keys in the array that has them, or their gradients.
std::int64_t before_keys(const OpView& op, const Node& n) {
  if (n.step == 0 || !gathers_keys(op.shared.plan)) return 0;
  return owner_of(op, n) * op.shared.core.tokens * op.shared.core.kv_columns();
}

// The first key that a part of attention meets: a rank's own keys lie in qkv, others' in a block
// that came.
std::byte* keys_of(const OpView& op, const Node& n) {
  std::byte* block = op.in(n, n.reads.size() - 1);
  return n.step == 0 ? keys(op, block) : op.element(block, before_keys(op, n));
}

// An earlier slice is before all queries, all of it. Of the own slice the own block is causal; at
// step j of the ring it is what rank i - j holds: an earlier rank's first chunk is before all
// queries and its second after, a later rank's both lie between.
AttentionPart part_of(const OpView& op, const Node& n) {
  const std::int64_t rows = op.shared.core.sequence;
  AttentionPart part{.shape = attention_shape(op), .query_end = rows, .key_end = rows};
  part.key_stride = n.step == 0 ? op.shared.core.columns() : op.shared.core.kv_columns();
  part.first = n.first;
  part.query_position = std::max(op.compute->slice, 0) * rows;
  part.key_position = n.slice >= 0 ? n.slice * rows : part.query_position;
  if (n.slice >= 0) return part;
  part.causal = n.step == 0;
  if (n.step > 0) (n.step <= place_of(op) ? part.key_end : part.query_begin) = rows / 2;
  return part;
}

// Rows of a sample of a rank's block of keys or queries that follow one another: a slice, a ring's
// chunk of it, or what an attention chunk cuts off.
struct Run {
  std::int64_t row, rows, position;
};

std::vector<Run> runs_of(const OpView& op, std::int64_t slice, std::int64_t place) {
  const std::int64_t ring = key_blocks(op.shared.plan), pieces = ring > 1 ? 2 : 1;
  const std::int64_t rows = op.shared.core.sequence / pieces, cut = attention_chunk(op);
  std::vector<Run> runs;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const std::int64_t number = piece == 0 ? place : 2 * ring - 1 - place;
    std::int64_t position = (slice * pieces * ring + number) * rows;
    for (std::int64_t row = piece * rows, end = row + rows, count = 0; row < end; row += count) {
      count = cut > 0 ? std::min(end - row, cut - position % cut) : rows;
      runs.push_back({row, count, position});
      position += count;
    }
  }
  return runs;
}

// Calls use(part) for what the node's kernels do one after the other: its one part, or, where
// positions matter, one for each pair of runs.
template <class Use>
void for_parts(const OpView& op, const Node& n, const Use& use) {
  const AttentionPart block = part_of(op, n);
  const std::int64_t ring = key_blocks(op.shared.plan), cut = attention_chunk(op);
  if (cut == 0 && (ring == 1 || !block.shape.form.reads_positions())) return use(block);
  const std::int64_t slice = std::max(op.compute->slice, 0);
  const std::int64_t of_keys = n.slice >= 0 ? n.slice : slice;
  const std::vector<Run> queries = runs_of(op, slice, place_of(op));
  const std::vector<Run> keys = runs_of(op, of_keys, owner_of(op, n));
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

// In place of a rotation, where the layer has none (Llama 4).
void temper(const OpView& op, const Node& n, AttentionShape shape) {
  const RankShape& s = op.shared.shape;
  const Transformer& m = op.shared.model;
  const Temperature temperature{m.temperature_scale, m.temperature_floor};
  if (temperature.scale == 0) return;
  for_runs(op, 0, s.tokens, [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
    shape.tokens = rows;
    shape.first = position;
    op.kernels.temper_queries(op.lane, shape, temperature,
                              op.element(op.out(n), row * shape.columns()));
  });
}

// Where ranks share key heads, calls use(column in dqkv(tokens, qkv), whose last ones they are,
// column among all heads, stride, stride) for keys, values.
template <class Use>
void for_shared_heads(const OpView& op, const Use& use) {
  const RankShape& s = op.shared.shape;
  const std::int64_t all = op.shared.model.kv_heads * s.head_dim;
  for (const std::int64_t part : {0, 1}) {
    use(s.qkv - (2 - part) * s.kv_heads * s.head_dim, part * all + op.key_head() * s.head_dim,
        s.qkv, 2 * all);
  }
}

}  // namespace

// In latent attention the last columns of a head rotate.
void rope(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  const Transformer& m = op.shared.model;
  const std::int64_t column = m.latent.used() ? m.latent.qk_nope_head_dim : 0;
  const Rotary& table = op.shared.rotary[m.window(op.layer()) > 0 ? 1 : 0];
  const RotaryShape rotary{.inverse_frequency = table.inverse_frequency.data(),
                           .rotary_dim = table.rotary_dim,
                           // one of the norm behind, but for its epsilon (head_norms)
                           .attention_factor = m.query_key_unit_norm ? 1 : table.attention_factor,
                           .interleaved = table.interleaved};
  AttentionShape shape = op.shared.attention;
  shape.sequence = op.shared.plan.sequence_length;
  if (!m.rotates(op.layer())) return temper(op, n, shape);
  for_runs(op, 0, s.tokens, [&](std::int64_t row, std::int64_t rows, std::int64_t position) {
    shape.tokens = rows;
    shape.first = position;
    op.kernels.rope(op.lane, shape, rotary, n.kernel == Kernel::RopeBackward,
                    op.element(op.out(n), row * shape.columns() + column));
  });
}

void attention(const OpView& op, const Node& n) {
  if (n.step < 0) {
    return op.kernels.attention(op.lane, whole_shape(op), op.in(n, 0), op.out(n, 0),
                                floats(op.out(n, 1)));
  }
  for_parts(op, n, [&](AttentionPart part) {
    part.first = n.first && part.causal;  // the first that a chunk of queries meets
    op.kernels.attention_part(op.lane, part, op.in(n, 0), keys_of(op, n), floats(op.out(n, 0)),
                              floats(op.out(n, 1)));
  });
}

void attention_backward(const OpView& op, const Node& n) {
  const bool whole = n.step < 0;
  float* d_sinks = op.gradient(ParameterRole::Sinks);
  const float* lse = floats(op.in(n, whole ? 3 : 2));
  float* delta = floats(op.out(n, whole ? 1 : 2));
  if (whole) {
    op.kernels.attention_backward(op.lane, whole_shape(op), op.in(n, 0), op.in(n, 1), op.in(n, 2),
                                  lse, op.out(n, 0), delta);
  } else {
    if (n.step == 1) {  // gradients of a block set out
      op.device.clear(op.lane, op.out(n, 1), op.tensor(n.writes[1]).bytes);
    }
    bool first = n.first;
    for_parts(op, n, [&](AttentionPart part) {
      part.first = std::exchange(first, false);
      op.kernels.attention_part_backward(op.lane, part, op.in(n, 0), op.in(n, 3), keys_of(op, n),
                                         op.in(n, 1), lse, floats(op.out(n, 0)),
                                         floats(op.out(n, 1)) + before_keys(op, n), delta);
    });
  }
  if (d_sinks != nullptr && (whole || n.first)) {
    op.kernels.sink_gradient(op.lane, attention_shape(op), lse, delta, d_sinks + first_head(op));
  }
}

void pack_keys(const OpView& op, const Node& n) {
  const AttentionShape& core = op.shared.core;
  op.kernels.copy_columns(op.lane, core.tokens, core.kv_columns(), keys(op, op.in(n, 0)),
                          core.columns(), op.out(n), core.kv_columns());
}

void store_output(const OpView& op, const Node& n) {
  const AttentionShape& core = op.shared.core;
  op.kernels.cast(op.lane, core.tokens * core.heads * core.value_dim, floats(op.in(n, 0)),
                  op.out(n));
}

void add_key_gradients(const OpView& op, const Node& n) {
  op.kernels.add(op.lane, op.shared.core.tokens * op.shared.core.kv_columns(), floats(op.in(n, 0)),
                 floats(op.out(n)));
}

void store_gradients(const OpView& op, const Node& n) {
  const AttentionShape& core = op.shared.core;
  op.kernels.cast_columns(op.lane, core.tokens, core.heads * core.head_dim, floats(op.in(n, 0)),
                          op.out(n), core.columns());
  op.kernels.cast_columns(op.lane, core.tokens, core.kv_columns(), floats(op.in(n, 1)),
                          keys(op, op.out(n)), core.columns());
}

void spread_heads(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  op.device.clear(op.lane, op.out(n), op.tensor(n.writes[0]).bytes);
  for_shared_heads(op, [&](std::int64_t own_column, std::int64_t column, std::int64_t own_stride,
                           std::int64_t stride) {
    op.kernels.copy_columns(op.lane, s.tokens, s.kv_heads * s.head_dim,
                            op.element(op.in(n, 0), own_column), own_stride,
                            op.element(op.out(n), column), stride);
  });
}

void take_heads(const OpView& op, const Node& n) {
  const RankShape& s = op.shared.shape;
  for_shared_heads(op, [&](std::int64_t own_column, std::int64_t column, std::int64_t own_stride,
                           std::int64_t stride) {
    op.kernels.copy_columns(op.lane, s.tokens, s.kv_heads * s.head_dim,
                            op.element(op.in(n, 0), column), stride,
                            op.element(op.out(n), own_column), own_stride);
  });
}

}  // namespace rehearse::exec
