// SPDX-License-Identifier: Apache-2.0
// The shared experts of a layer: one dense MLP over tp, of the tokens of all its ranks, with a gate
// where the model has one. With `overlap.expert_parallel` "shared" its products run while tokens
// travel to the routed experts and home; what the ranks of tp exchange comes before and behind.
#include "schedules/body/own/body_experts.h"

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

void ExpertBody::begin_shared(T y2, NodePhase phase) {
  pass_.in = gather(y2, "Y2", phase);
  beside_ = {[=, this] { shared_up(y2, phase); }, [=, this] { shared_down(phase); }};
}

void ExpertBody::shared_up(T y2, NodePhase phase) {
  const RankShape& s = layout_.shape;
  if (model_.shared_gate) {
    b_.gemm(K::Linear, P::SharedGate, "gemm shared gate", x_.tokens, 1, h_, {y2}, {gate_}, phase);
  }
  b_.gemm(K::Linear, P::SharedUp, "gemm shared fc1", s.tokens, shared_columns(), h_, {pass_.in},
          {shared_u_}, phase);
  activation(shared_u_, shared_a_, false, phase);
}

void ExpertBody::shared_down(NodePhase phase) {
  const RankShape& s = layout_.shape;
  pass_.out = !s.gather && model_.shared_gate ? shared_y_ : workspace("shared q", s.tokens * h_);
  b_.gemm(K::Linear, P::SharedDown, "gemm shared fc2", s.tokens, h_, x_.shared, {shared_a_},
          {pass_.out}, phase);
}

void ExpertBody::end_shared(T z) {
  const bool own = !layout_.shape.gather;
  const T out = model_.shared_gate ? shared_y_
                : own              ? pass_.out
                                   : workspace("shared output", x_.tokens * h_);
  sum_shared(pass_.out, out, NodePhase::Main);
  if (!model_.shared_gate) return add(z, out);
  const T gated = workspace("gated output", x_.tokens * h_);
  b_.node(K::Gate, "gate", {gate_, out}, {gated});
  add(z, gated);
}

// A gate's backward reads the output too.
void ExpertBody::recompute_shared(T y2) {
  pass_.in = gather(y2, "Y2", NodePhase::Recompute);
  shared_up(y2, NodePhase::Recompute);
  if (!model_.shared_gate) return;
  shared_down(NodePhase::Recompute);
  sum_shared(pass_.out, shared_y_, NodePhase::Recompute);
}

// A split backward gathers twice: once for I, once for W.
void ExpertBody::begin_shared_backward(T y2, T dz) {
  const RankShape& s = layout_.shape;
  T d_out = dz;
  if (model_.shared_gate) {
    d_out = b_.tensor("d shared output", left_, s.element * x_.tokens * h_);
    pass_.d_gate = b_.tensor("d gate", left_, s.element * x_.tokens);
    b_.node(K::GateBackward, "gate backward", {gate_, shared_y_, dz}, {pass_.d_gate, d_out});
  }
  pass_.d_out = gather(d_out, "D", NodePhase::Main);
  pass_.d_out_late = b_.is_weight_only() ? gather(d_out, "D", NodePhase::Weight) : pass_.d_out;
  pass_.in = BodyBuilder::kNone;
  if (overlaps_) pass_.in = gather(y2, "Y2", NodePhase::Weight);
  beside_ = {[this] { shared_down_backward(); }, [=, this] { shared_up_backward(y2); }};
}

void ExpertBody::shared_down_backward() {
  const RankShape& s = layout_.shape;
  const T da = workspace("d shared g", s.tokens * x_.shared);
  pass_.du = b_.tensor("d shared u", left_, s.element * s.tokens * shared_columns());
  b_.gemm(K::LinearInput, P::SharedDown, "gemm d_shared fc2 input", s.tokens, x_.shared, h_,
          {pass_.d_out}, {da});
  b_.gemm(K::LinearWeight, P::SharedDown, "gemm d_shared fc2 weight", x_.shared, h_, s.tokens,
          {pass_.d_out_late, shared_a_}, {}, NodePhase::Weight);
  activation_backward(da, shared_u_, pass_.du, false);
}

void ExpertBody::shared_up_backward(T y2) {
  const RankShape& s = layout_.shape;
  if (!overlaps_) pass_.in = gather(y2, "Y2", NodePhase::Weight);
  b_.gemm(K::LinearWeight, P::SharedUp, "gemm d_shared fc1 weight", h_, shared_columns(), s.tokens,
          {pass_.du, pass_.in}, {}, NodePhase::Weight);
  pass_.out = workspace("d of shared experts, whole", s.tokens * h_);
  b_.gemm(K::LinearInput, P::SharedUp, "gemm d_shared fc1 input", s.tokens, h_, shared_columns(),
          {pass_.du}, {pass_.out});
}

void ExpertBody::end_shared_backward(T y2, T dy2) {
  if (model_.shared_gate) {
    const T d = workspace("d of the gate", x_.tokens * h_);
    b_.gemm(K::LinearInput, P::SharedGate, "gemm d_gate input", x_.tokens, h_, 1, {pass_.d_gate},
            {d});
    b_.gemm(K::LinearWeight, P::SharedGate, "gemm d_gate weight", h_, 1, x_.tokens,
            {pass_.d_gate, y2}, {}, NodePhase::Weight);
    add(dy2, d);
  }
  const T d = layout_.shape.gather ? workspace("d of shared experts", x_.tokens * h_) : pass_.out;
  sum_shared(pass_.out, d, NodePhase::Main);
  add(dy2, d);
}

}  // namespace rehearse
