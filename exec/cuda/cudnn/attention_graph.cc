// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cudnn/attention_graph.h"

#include <utility>

namespace rehearse::exec::cuda::cudnn {
namespace {

using Tensor = Graph::Tensor;
using Four = Graph::Four;

cudnnDataType_t type_of(Type type) {
  return type == Type::BFloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

// The strides of what lies in rows of `columns` elements, `width` to a head.
Four rows(const AttentionShape& s, std::int64_t columns, std::int64_t width) {
  return {s.sequence * columns, width, columns, 1};
}
Four transposed(Four of) {
  std::swap(of[2], of[3]);
  return of;
}

// Scores that a query may not see are `hidden`.
Tensor causal(Graph& g, const AttentionShape& s, Tensor scores, const Four& size,
              const AttentionTensors& at) {
  const auto masked = [&](Tensor of, cudnnPointwiseMode_t mode, Tensor x, Tensor b) {
    const Tensor seen = g.between(CUDNN_DATA_BOOLEAN, size), y = g.between(CUDNN_DATA_FLOAT, size);
    g.apply(mode, x, b, seen, CUDNN_DATA_BOOLEAN);
    g.select(of, at.hidden, seen, y);
    return y;
  };
  const auto indices = [&](Tensor of) {
    const Tensor row = g.between(CUDNN_DATA_INT32, size),
                 column = g.between(CUDNN_DATA_INT32, size);
    g.index(2, of, row);
    g.index(3, of, column);
    return std::pair(row, column);
  };
  const auto [row, column] = indices(scores);
  const Tensor past = masked(scores, CUDNN_POINTWISE_CMP_GE, row, column);
  if (s.form.window == 0) return past;
  const auto [query, key] = indices(past);
  const Tensor last = g.between(CUDNN_DATA_FLOAT, size);
  g.apply(CUDNN_POINTWISE_ADD, key, at.window, last);
  return masked(past, CUDNN_POINTWISE_CMP_GT, last, query);
}

}  // namespace

AttentionTensors forward_graph(Graph& g, Type type, const AttentionShape& s) {
  const cudnnDataType_t t = type_of(type);
  const std::int64_t samples = s.tokens / s.sequence, n = s.sequence, h = s.heads, kv = s.kv_heads;
  const Four scores{samples, h, n, n}, per_row{samples, h, n, 1};
  AttentionTensors at;
  at.q = g.array(t, {samples, h, n, s.head_dim}, rows(s, s.columns(), s.head_dim));
  at.k = g.array(t, {samples, kv, s.head_dim, n}, transposed(rows(s, s.columns(), s.head_dim)));
  at.v = g.array(t, {samples, kv, n, s.values()}, rows(s, s.columns(), s.values()));
  at.o = g.array(t, {samples, h, n, s.values()}, rows(s, h * s.values(), s.values()));
  at.lse = g.array(CUDNN_DATA_FLOAT, per_row, {n, s.tokens, 1, 1});
  at.scale = g.number();
  at.hidden = g.number();
  if (s.form.window > 0) at.window = g.number();
  const auto fresh = [&](const Four& size) { return g.between(CUDNN_DATA_FLOAT, size); };

  const Tensor product = fresh(scores), scaled = fresh(scores);
  g.product(at.q, at.k, product);
  g.apply(CUDNN_POINTWISE_MUL, product, at.scale, scaled);
  const Tensor masked = causal(g, s, scaled, scores, at);
  const Tensor most = fresh(per_row), less = fresh(scores), raised = fresh(scores),
               sum = fresh(per_row), logarithm = fresh(per_row), p = g.between(t, scores);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, masked, most);
  g.apply(CUDNN_POINTWISE_SUB, masked, most, less);
  g.apply(CUDNN_POINTWISE_EXP, less, raised);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, raised, sum);
  g.apply(CUDNN_POINTWISE_LOG, sum, logarithm);
  g.apply(CUDNN_POINTWISE_ADD, most, logarithm, at.lse);
  g.apply(CUDNN_POINTWISE_DIV, raised, sum, p);
  g.product(p, at.v, at.o);
  return at;
}

AttentionTensors backward_graph(Graph& g, Type type, const AttentionShape& s) {
  const cudnnDataType_t t = type_of(type);
  const std::int64_t samples = s.tokens / s.sequence, n = s.sequence, h = s.heads, kv = s.kv_heads;
  const std::int64_t d = s.head_dim, values = s.values();
  const Four scores{samples, h, n, n}, per_row{samples, h, n, 1};
  const Four in_qkv = rows(s, s.columns(), d), v_in_qkv = rows(s, s.columns(), values),
             in_o = rows(s, h * values, values);
  AttentionTensors at;
  at.q = g.array(t, {samples, h, n, d}, in_qkv);
  at.k = g.array(t, {samples, kv, d, n}, transposed(in_qkv));
  at.v = g.array(t, {samples, kv, values, n}, transposed(v_in_qkv));
  at.o = g.array(t, {samples, h, n, values}, in_o);
  at.d_o = g.array(t, {samples, h, n, values}, in_o);
  at.lse = g.array(CUDNN_DATA_FLOAT, per_row, {n, s.tokens, 1, 1});
  at.delta = g.array(CUDNN_DATA_FLOAT, per_row, {n, s.tokens, 1, 1});
  at.d_q = g.array(t, {samples, h, n, d}, in_qkv);
  at.d_k = g.array(t, {samples, kv, n, d}, in_qkv);
  at.d_v = g.array(t, {samples, kv, n, values}, v_in_qkv);
  at.scale = g.number();
  at.hidden = g.number();
  if (s.form.window > 0) at.window = g.number();
  at.one = g.number();
  const auto fresh = [&](const Four& size) { return g.between(CUDNN_DATA_FLOAT, size); };
  // Of all heads of queries: those that share one of keys are summed.
  const auto gradient = [&](Tensor weights, Tensor other, std::int64_t width, Tensor to) {
    const Tensor turned = g.transposed(weights, t);
    if (h == kv) return g.product(turned, other, to);
    const Tensor whole = g.between(t, {samples, h, n, width});
    g.product(turned, other, whole);
    g.reduce(CUDNN_REDUCE_TENSOR_ADD, whole, to);
  };

  const Tensor both = fresh({samples, h, n, values}), sum = fresh(per_row);
  g.apply(CUDNN_POINTWISE_MUL, at.d_o, at.o, both);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, both, sum);
  g.apply(CUDNN_POINTWISE_MUL, sum, at.one, at.delta);

  const Tensor product = fresh(scores), scaled = fresh(scores), less = fresh(scores),
               p = fresh(scores);
  g.product(at.q, at.k, product);
  g.apply(CUDNN_POINTWISE_MUL, product, at.scale, scaled);
  g.apply(CUDNN_POINTWISE_SUB, scaled, at.lse, less);
  g.apply(CUDNN_POINTWISE_EXP, causal(g, s, less, scores, at), p);
  gradient(p, at.d_o, values, at.d_v);

  const Tensor d_p = fresh(scores), from_delta = fresh(scores), weighted = fresh(scores),
               d_s = fresh(scores);
  g.product(at.d_o, at.v, d_p);
  g.apply(CUDNN_POINTWISE_SUB, d_p, at.delta, from_delta);
  g.apply(CUDNN_POINTWISE_MUL, from_delta, p, weighted);
  g.apply(CUDNN_POINTWISE_MUL, weighted, at.scale, d_s);
  gradient(d_s, at.q, d, at.d_k);
  g.product(d_s, g.transposed(at.k, t), at.d_q);
  return at;
}

}  // namespace rehearse::exec::cuda::cudnn
