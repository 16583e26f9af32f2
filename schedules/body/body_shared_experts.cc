// SPDX-License-Identifier: Apache-2.0
// The shared experts of a layer: one dense MLP over tp, of the tokens of all its ranks, with a gate
// where the model has one.
#include "schedules/body/body_experts.h"

namespace rehearse {
namespace {

using K = Kernel;
using P = ParameterRole;

}  // namespace

// (tokens, hidden), partial over tp -> (local, hidden).
void ExpertBody::sum_shared(T whole, T local, NodePhase phase) {
  const RankShape& s = layout_.shape;
  const std::int64_t bytes = s.element * s.tokens * h_;
  if (s.gather) {
    over(Axis::Tensor, K::ReduceScatter, "reduce_scatter tp", bytes, whole, local, phase);
  } else if (s.tensor > 1) {
    over(Axis::Tensor, K::AllReduce, "all_reduce tp", bytes, whole, local, phase);
  }
}

// (local, hidden) -> (tokens, hidden), over tp.
ExpertBody::T ExpertBody::gather(T local, std::string_view name, NodePhase phase) {
  const RankShape& s = layout_.shape;
  if (!s.gather) return local;
  const T whole = workspace(name, s.tokens * h_);
  over(Axis::Tensor, K::AllGather, "all_gather tp", s.element * s.tokens * h_, local, whole, phase);
  return whole;
}

// The shared experts are one dense MLP over tp, of the tokens of all its ranks.
void ExpertBody::shared_front(T y2, NodePhase phase) {
  const RankShape& s = layout_.shape;
  if (model_.shared_gate) {
    b_.gemm(K::Linear, P::SharedGate, "gemm shared gate", x_.tokens, 1, h_, {y2}, {gate_}, phase);
  }
  const T whole = gather(y2, "Y2", phase);
  b_.gemm(K::Linear, P::SharedUp, "gemm shared fc1", s.tokens, shared_up(), h_, {whole},
          {shared_u_}, phase);
  activation(shared_u_, shared_a_, false, phase);
}

void ExpertBody::shared_forward(T y2, T z) {
  const RankShape& s = layout_.shape;
  shared_front(y2, NodePhase::Main);
  const T out = model_.shared_gate ? shared_y_ : workspace("shared output", x_.tokens * h_);
  const T whole = s.gather ? workspace("shared q", s.tokens * h_) : out;
  b_.gemm(K::Linear, P::SharedDown, "gemm shared fc2", s.tokens, h_, x_.shared, {shared_a_},
          {whole});
  sum_shared(whole, out, NodePhase::Main);
  if (!model_.shared_gate) return add(z, out);
  const T gated = workspace("gated output", x_.tokens * h_);
  b_.node(K::Gate, "gate", {gate_, out}, {gated});
  add(z, gated);
}

void ExpertBody::shared_backward(T y2, T dz, T dy2) {
  const RankShape& s = layout_.shape;
  const NodePhase late = NodePhase::Weight;
  T d_out = dz;
  if (model_.shared_gate) {
    d_out = b_.tensor("d shared output", left_, s.element * x_.tokens * h_);
    const T d_gate = b_.tensor("d gate", left_, s.element * x_.tokens);
    b_.node(K::GateBackward, "gate backward", {gate_, shared_y_, dz}, {d_gate, d_out});
    const T d = workspace("d of the gate", x_.tokens * h_);
    b_.gemm(K::LinearInput, P::SharedGate, "gemm d_gate input", x_.tokens, h_, 1, {d_gate}, {d});
    b_.gemm(K::LinearWeight, P::SharedGate, "gemm d_gate weight", h_, 1, x_.tokens, {d_gate, y2},
            {}, late);
    add(dy2, d);
  }
  // A split backward gathers twice: once for I, once for W.
  const T whole = gather(d_out, "D", NodePhase::Main);
  const T whole_late = b_.is_weight_only() ? gather(d_out, "D", late) : whole;
  const T da = workspace("d shared g", s.tokens * x_.shared);
  const T du = b_.tensor("d shared u", left_, s.element * s.tokens * shared_up());
  b_.gemm(K::LinearInput, P::SharedDown, "gemm d_shared fc2 input", s.tokens, x_.shared, h_,
          {whole}, {da});
  b_.gemm(K::LinearWeight, P::SharedDown, "gemm d_shared fc2 weight", x_.shared, h_, s.tokens,
          {whole_late, shared_a_}, {}, late);
  activation_backward(da, shared_u_, du, false);
  const T y2_whole = gather(y2, "Y2", late);
  b_.gemm(K::LinearWeight, P::SharedUp, "gemm d_shared fc1 weight", h_, shared_up(), s.tokens,
          {du, y2_whole}, {}, late);
  const T d = workspace("d of shared experts", x_.tokens * h_);
  const T partial = s.gather ? workspace("d of shared experts, partial", s.tokens * h_) : d;
  b_.gemm(K::LinearInput, P::SharedUp, "gemm d_shared fc1 input", s.tokens, h_, shared_up(), {du},
          {partial});
  sum_shared(partial, d, NodePhase::Main);
  add(dy2, d);
}

}  // namespace rehearse
