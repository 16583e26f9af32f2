// SPDX-License-Identifier: Apache-2.0
// The router: what it chooses, how its losses are counted, its gradients.
#include "schedules/body/own/body_experts.h"

namespace rehearse {
namespace {

using H = TensorHome;
using K = Kernel;
using P = ParameterRole;

}  // namespace

void ExpertBody::route(T y2) {
  const std::int64_t n = x_.tokens, e = model_.count;
  const T logits = b_.tensor("logits", H::Workspace, kScoreBytes * n * e);
  b_.gemm(K::Linear, P::Router, "gemm router", n, e, h_, {y2}, {logits});
  b_.node(K::Route, "scores, top-k", {logits}, {chosen_, weights_, scores_, logsum_});
  T own = chosen_;
  if (layout_.plan.expert_drop > 0) {
    own = b_.tensor("kept copies", H::Workspace, kScoreBytes * x_.copies);
    b_.node(K::DropCopies, "copies beyond capacity", {chosen_, weights_}, {own});
  }
  const T all = brings_tokens() ? bring_choice(own) : own;
  b_.node(K::SortCopies, "copies by expert", {all},
          {row_, token_, x_.sends_copies() ? sent_ : begin_});
  if (!x_.sends_copies()) return;
  over(Axis::ExpertBlock, K::AllGather, "counts; all_gather ep", kScoreBytes * x_.block * (e + 1),
       sent_, arrivals_, NodePhase::Main);
  b_.node(K::SortRows, "rows by expert", {arrivals_}, {from_, begin_});
}

// kNone: no loss asks for them.
ExpertBody::T ExpertBody::counts_of_microbatch() {
  const Plan& plan = layout_.plan;
  if (plan.router_balance == RouterBalance::None) return BodyBuilder::kNone;
  const std::int64_t bytes = kScoreBytes * plan.balanced_groups() * model_.count;
  T counts = b_.tensor("counts", slice_ < 0 ? H::Workspace : H::KeyValueGradient, bytes);
  if (slice_ > 0) counts = b_.earlier("counts of all slices", counts, 0, bytes);
  if (slice_ >= 0 && slice_ + 1 < plan.sequence_slices) return counts;
  Node& node = b_.node(K::CountChosen, "counts of experts", {chosen_}, {counts});
  for (std::int32_t slice = 0; slice < slice_; ++slice) {
    node.reads.push_back(
        b_.earlier("chosen by an earlier slice", chosen_, slice, kScoreBytes * x_.copies));
    node.bytes += kScoreBytes * x_.copies;
  }
  const auto sum = [&](Axis axis, std::string_view name) {
    over(axis, K::AllReduce, name, bytes, counts, counts, NodePhase::Main).fp32 = true;
  };
  if (layout_.shape.gather) sum(Axis::Tensor, "counts; all_reduce tp");
  if (plan.context_parallel > 1) sum(Axis::Context, "counts; all_reduce cp");
  return counts;
}

void ExpertBody::router_backward(T y2, T d_weights, T dy2) {
  const std::int64_t n = x_.tokens, e = model_.count;
  const T counts = counts_of_microbatch();
  const T d_logits = b_.tensor("d logits", left_, layout_.shape.element * n * e);
  b_.node(K::RouteBackward, "scores backward",
          {d_weights, chosen_, weights_, scores_, logsum_, counts}, {d_logits});
  const T d = workspace("d router", n * h_);
  b_.gemm(K::LinearInput, P::Router, "gemm d_router input", n, h_, e, {d_logits}, {d});
  b_.gemm(K::LinearWeight, P::Router, "gemm d_router weight", h_, e, n, {d_logits, y2}, {},
          NodePhase::Weight);
  add(dy2, d);
}

}  // namespace rehearse
