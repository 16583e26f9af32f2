// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/body_experts.h"

#include <algorithm>
#include <cmath>

namespace rehearse {
namespace {

using H = TensorHome;
using K = Kernel;
using P = ParameterRole;
constexpr std::int64_t kNumber = 4;  // bytes of an index, a score, a weight

}  // namespace

double reserved_capacity(const Plan& plan) {
  return plan.expert_capacity > 0 ? plan.expert_capacity : 1.25;
}

std::int64_t expert_block(const Layout& layout) {
  const ExpertShape& x = layout.shape.experts;
  return std::int64_t{layout.plan.expert_parallel} *
         (x.gathers_rows ? layout.plan.expert_tensor_parallel : 1);
}

bool gathers_tokens(const Layout& layout) {
  return expert_block(layout) > 1 && layout.plan.expert_dispatch == ExpertDispatch::AllGather;
}

ExpertRoom expert_room(const Layout& layout) {
  const ExpertShape& x = layout.shape.experts;
  const std::int64_t block = expert_block(layout);
  const std::int64_t each = std::min(layout.model.experts.per_token, x.per_rank);
  if (const double factor = layout.plan.expert_drop; factor > 0) {
    const double mean =
        static_cast<double>(x.copies) / static_cast<double>(layout.model.experts.count);
    const auto most = static_cast<std::int64_t>(std::ceil(mean * factor));
    const std::int64_t rows = std::min(most * x.per_rank, x.tokens * each);  // of one rank's tokens
    return {block * rows, layout.plan.expert_parallel * rows, most};
  }
  if (block == 1) return {x.copies, x.copies};
  const auto reserved = [&](std::int64_t mean) {
    return static_cast<std::int64_t>(
        std::ceil(reserved_capacity(layout.plan) * static_cast<double>(mean)));
  };
  return {
      .rows = std::min(reserved(x.rows), block * x.tokens * each),
      .arrived = layout.plan.expert_parallel == 1
                     ? x.copies
                     : std::min(reserved(x.copies), layout.plan.expert_parallel * x.tokens * each)};
}

ExpertBody::ExpertBody(BodyBuilder& builder, const Layout& layout)
    : b_(builder),
      layout_(layout),
      x_(layout.shape.experts),
      model_(layout.model.experts),
      h_(layout.shape.hidden),
      block_(expert_block(layout)),
      gathers_(gathers_tokens(layout)),
      room_(expert_room(layout)) {
  const std::int64_t element = layout.shape.element, k = model_.per_token;
  const bool full = layout.plan.recompute == RecomputeMode::Full, split = b_.is_split();
  left_ = split ? H::LeftForWgrad : H::Workspace;
  const H for_input = full ? H::Workspace : H::SavedForDgrad;
  const H for_weight = !full ? H::SavedForWgrad : left_;
  const auto number = [&](std::string_view name, H home, std::int64_t count) {
    return b_.tensor(name, home, kNumber * count);
  };
  const auto tensor = [&](std::string_view name, H home, std::int64_t rows, std::int64_t columns) {
    return b_.tensor(name, home, element * rows * columns);
  };
  chosen_ = number("chosen experts", H::SavedForDgrad, x_.copies);
  weights_ = number("weights", H::SavedForDgrad, x_.copies);
  scores_ = number("scores", H::SavedForDgrad, x_.tokens * model_.count);
  logsum_ = number("log of sums", H::SavedForDgrad, x_.tokens);
  weights_all_ = gathers_ ? number("weights of all", H::SavedForDgrad, tokens() * k) : weights_;
  row_ = number("rows of copies", H::SavedForDgrad, tokens() * k);
  token_ = number("tokens of copies", H::SavedForDgrad, sends() ? x_.copies : room_.rows);
  begin_ = number("first rows", H::SavedForWgrad, x_.per_rank + 1);
  if (sends()) {
    sent_ = number("first copies", H::SavedForDgrad, model_.count + 1);
    arrivals_ = number("first copies of all", H::SavedForDgrad, block_ * (model_.count + 1));
    from_ = number("places of rows", H::SavedForDgrad, room_.rows);
  }
  rows_ = tensor("rows", for_weight, room_.rows, h_);
  u_ = tensor("u", for_input, room_.rows, up());
  a_ = tensor("g", for_weight, room_.rows, x_.width);
  y_ = tensor("outputs", for_input, sends() ? x_.copies : room_.rows, h_);
  if (x_.shared == 0) return;
  shared_u_ = tensor("shared u", for_input, layout.shape.tokens, shared_up());
  shared_a_ = tensor("shared g", for_weight, layout.shape.tokens, x_.shared);
  if (!model_.shared_gate) return;
  shared_y_ = tensor("shared output", for_input, x_.tokens, h_);
  gate_ = tensor("gate", for_input, x_.tokens, 1);
}

ExpertBody::T ExpertBody::workspace(std::string_view name, std::int64_t elements) {
  return b_.tensor(name, H::Workspace, layout_.shape.element * elements);
}

Node& ExpertBody::over(Axis axis, Kernel kernel, std::string_view name, std::int64_t bytes, T in,
                       T out, NodePhase phase) {
  Node& node = b_.collective(kernel, name, bytes, in, out, phase);
  node.axis = axis;
  return node;
}

// Rows of a rank's experts are those of even routing; the busiest rank has more.
void ExpertBody::grouped(Kernel kernel, ParameterRole weight, std::string_view name,
                         std::int64_t out, std::int64_t in, std::initializer_list<T> reads,
                         std::initializer_list<T> writes, NodePhase phase) {
  const std::int64_t each = (x_.rows + x_.per_rank - 1) / x_.per_rank;
  const bool gradient = kernel == K::GroupedLinearWeight;
  const bool forward = kernel == K::GroupedLinear;
  Node& node = b_.gemm(kernel, weight, name, gradient ? in : each, forward || gradient ? out : in,
                       gradient  ? each
                       : forward ? in
                                 : out,
                       reads, writes, phase);
  node.batch = x_.per_rank;
  node.flops *= static_cast<double>(x_.per_rank);
  node.routed = true;
}

void ExpertBody::activation(T u, T a, bool routed, NodePhase phase) {
  if (routed) {
    b_.node(K::Swiglu, "swiglu of experts", {u, begin_}, {a}, phase).routed = true;
  } else {
    b_.node(K::Swiglu, "swiglu of shared experts", {u}, {a}, phase);
  }
}

void ExpertBody::add(T to, T what) {
  b_.node(K::AddOutputs, "add", {to, what}, {to});
}

// In place, where every rank of tp has a part of it.
void ExpertBody::sum_over_tensor(T what, std::int64_t bytes) {
  if (splits_tokens()) return;
  b_.collective(K::AllReduce, "all_reduce tp", bytes, what, what);
}

void ExpertBody::route(T y2) {
  const std::int64_t n = x_.tokens, e = model_.count, k = model_.per_token;
  const T logits = b_.tensor("logits", H::Workspace, kNumber * n * e);
  b_.gemm(K::Linear, P::Router, "gemm router", n, e, h_, {y2}, {logits});
  b_.node(K::Route, "scores, top-k", {logits}, {chosen_, weights_, scores_, logsum_});
  T all = chosen_;
  if (layout_.plan.expert_drop > 0) {
    all = b_.tensor("kept copies", H::Workspace, kNumber * x_.copies);
    b_.node(K::DropCopies, "copies beyond capacity", {chosen_, weights_}, {all});
  }
  if (gathers_) {
    const T own = all;
    all = b_.tensor("chosen experts of all", H::Workspace, kNumber * tokens() * k);
    over(Axis::ExpertBlock, K::AllGather, "chosen experts; all_gather ep", kNumber * tokens() * k,
         own, all, NodePhase::Main);
    over(Axis::ExpertBlock, K::AllGather, "weights; all_gather ep", kNumber * tokens() * k,
         weights_, weights_all_, NodePhase::Main);
  }
  b_.node(K::SortCopies, "copies by expert", {all}, {row_, token_, sends() ? sent_ : begin_});
  if (!sends()) return;
  over(Axis::ExpertBlock, K::AllGather, "counts; all_gather ep", kNumber * block_ * (e + 1), sent_,
       arrivals_, NodePhase::Main);
  b_.node(K::SortRows, "rows by expert", {arrivals_}, {from_, begin_});
}

// Of copies(n, k) in the order of their experts, or of all rows where nothing is sent.
void ExpertBody::rows_to_experts(T from, T rows, std::string_view name, NodePhase phase) {
  const std::int64_t element = layout_.shape.element;
  T arrived = from;
  if (sends_over_ranks()) {
    arrived = workspace("arrived", room_.arrived * h_);
    Node& sent =
        over(Axis::Expert, K::Dispatch, name, element * x_.copies * h_, from, arrived, phase);
    sent.reads.push_back(arrivals_);
    sent.routed = true;
  }
  if (gathers_rows()) {
    const std::int64_t all = layout_.plan.expert_tensor_parallel * room_.arrived * h_;
    const T gathered = workspace("gathered rows", all);
    over(Axis::ExpertTensor, K::AllGather, "rows; all_gather etp", element * all, arrived, gathered,
         phase);
    arrived = gathered;
  }
  b_.node(K::GatherRows, "rows by expert", {arrived, from_, begin_}, {rows}, phase).routed = true;
}

// The reverse: partial sums of q ranks are summed.
void ExpertBody::rows_home(T rows, T home, std::string_view name, NodePhase phase) {
  const std::int64_t element = layout_.shape.element;
  const std::int64_t all =
      (gathers_rows() ? layout_.plan.expert_tensor_parallel : 1) * room_.arrived * h_;
  const bool last = !sends_over_ranks();  // the rows are at home once they are summed
  T leaving = last && !gathers_rows() ? home : workspace("leaving", all);
  b_.node(K::ScatterRows, "rows by source", {rows, from_, begin_}, {leaving}, phase).routed = true;
  if (gathers_rows()) {
    const T own = last ? home : workspace("leaving, summed", room_.arrived * h_);
    over(Axis::ExpertTensor, K::ReduceScatter, "rows; reduce_scatter etp", element * all, leaving,
         own, phase);
    leaving = own;
  }
  if (last) return;
  Node& sent = over(Axis::Expert, K::Combine, name, element * x_.copies * h_, leaving, home, phase);
  sent.reads.push_back(arrivals_);
  sent.routed = true;
}

// From the tokens to the experts' outputs.
void ExpertBody::experts(T y2, NodePhase phase) {
  T x = y2;
  if (gathers_) {
    const std::int64_t all = tokens() * h_;
    x = workspace("tokens of all", all);
    over(Axis::ExpertBlock, K::AllGather, "tokens; all_gather ep", layout_.shape.element * all, y2,
         x, phase);
  }
  const T copies = sends() ? workspace("copies", x_.copies * h_) : rows_;
  b_.node(K::GatherRows, "copies of tokens", {x, token_, sends() ? sent_ : begin_}, {copies},
          phase);
  if (sends()) rows_to_experts(copies, rows_, "dispatch; all_to_all ep", phase);
  grouped(K::GroupedLinear, P::ExpertUp, "grouped gemm fc1", up(), h_, {rows_, begin_}, {u_},
          phase);
  activation(u_, a_, true, phase);
  const T out = sends() ? workspace("outputs of experts", room_.rows * h_) : y_;
  grouped(K::GroupedLinear, P::ExpertDown, "grouped gemm fc2", h_, x_.width, {a_, begin_}, {out},
          phase);
  if (sends()) rows_home(out, y_, "combine; all_to_all ep", phase);
}

void ExpertBody::forward(T y2, T z) {
  route(y2);
  experts(y2, NodePhase::Main);
  const T all = gathers_ ? workspace("outputs of all", tokens() * h_) : z;
  b_.node(K::WeighCopies, "sums of copies", {y_, row_, weights_all_}, {all});
  if (gathers_) {
    over(Axis::ExpertBlock, K::ReduceScatter, "tokens; reduce_scatter ep",
         layout_.shape.element * tokens() * h_, all, z, NodePhase::Main);
  }
  sum_over_tensor(z, layout_.shape.element * x_.tokens * h_);
  if (x_.shared > 0) shared_forward(y2, z);
}

void ExpertBody::recompute(T y2) {
  experts(y2, NodePhase::Recompute);
  if (x_.shared > 0) shared_front(y2, NodePhase::Recompute);
  if (!model_.shared_gate) return;
  const RankShape& s = layout_.shape;
  const T whole = s.gather ? workspace("shared q", s.tokens * h_) : shared_y_;
  b_.gemm(K::Linear, P::SharedDown, "gemm shared fc2", s.tokens, h_, x_.shared, {shared_a_},
          {whole}, NodePhase::Recompute);
  sum_shared(whole, shared_y_, NodePhase::Recompute);
}

void ExpertBody::backward(T y2, T dz, T dy2) {
  const std::int64_t element = layout_.shape.element, k = model_.per_token;
  const NodePhase late = NodePhase::Weight;
  const T d_rows = b_.tensor("d outputs", left_, element * room_.rows * h_);
  const T d_weights = b_.tensor("d weights", H::Workspace, kNumber * x_.copies);
  if (gathers_) {
    const T all = workspace("d outputs of all", tokens() * h_);
    over(Axis::ExpertBlock, K::AllGather, "output gradients; all_gather ep",
         element * tokens() * h_, dz, all, NodePhase::Main);
    const T d_all = b_.tensor("d weights of all", H::Workspace, kNumber * tokens() * k);
    b_.node(K::WeighBackward, "copies of output gradients", {y_, row_, weights_all_, all},
            {d_rows, d_all});
    over(Axis::ExpertBlock, K::ReduceScatter, "weights; reduce_scatter ep", kNumber * tokens() * k,
         d_all, d_weights, NodePhase::Main);
  } else {
    const T copies = sends() ? workspace("d copies", x_.copies * h_) : d_rows;
    b_.node(K::WeighBackward, "copies of output gradients", {y_, row_, weights_, dz},
            {copies, d_weights});
    if (sends())
      rows_to_experts(copies, d_rows, "combine backward; all_to_all ep", NodePhase::Main);
  }
  sum_over_tensor(d_weights, kNumber * x_.copies);
  const T da = workspace("dg", room_.rows * x_.width);
  const T du = b_.tensor("du", left_, element * room_.rows * up());
  grouped(K::GroupedLinearInput, P::ExpertDown, "grouped gemm d_fc2 input", h_, x_.width,
          {d_rows, begin_}, {da}, NodePhase::Main);
  grouped(K::GroupedLinearWeight, P::ExpertDown, "grouped gemm d_fc2 weight", h_, x_.width,
          {d_rows, a_, begin_}, {}, late);
  b_.node(K::SwigluBackward, "swiglu backward of experts", {da, u_, begin_}, {du}).routed = true;
  grouped(K::GroupedLinearWeight, P::ExpertUp, "grouped gemm d_fc1 weight", up(), h_,
          {du, rows_, begin_}, {}, late);
  const T dx = workspace("d rows", room_.rows * h_);
  grouped(K::GroupedLinearInput, P::ExpertUp, "grouped gemm d_fc1 input", up(), h_, {du, begin_},
          {dx}, NodePhase::Main);
  T home = dx;
  if (sends()) {
    home = workspace("d copies", x_.copies * h_);
    rows_home(dx, home, "dispatch backward; all_to_all ep", NodePhase::Main);
  }
  const T all = gathers_ ? workspace("d tokens of all", tokens() * h_) : dy2;
  b_.node(K::SumCopies, "sums of input gradients", {home, row_}, {all});
  if (gathers_) {
    over(Axis::ExpertBlock, K::ReduceScatter, "tokens; reduce_scatter ep", element * tokens() * h_,
         all, dy2, NodePhase::Main);
  }
  sum_over_tensor(dy2, element * x_.tokens * h_);
  router_backward(y2, d_weights, dy2);
  if (x_.shared > 0) shared_backward(y2, dz, dy2);
}

void ExpertBody::router_backward(T y2, T d_weights, T dy2) {
  const std::int64_t n = x_.tokens, e = model_.count;
  const T d_logits = b_.tensor("d logits", left_, kNumber * n * e);
  b_.node(K::RouteBackward, "scores backward", {d_weights, chosen_, weights_, scores_, logsum_},
          {d_logits});
  const T d = workspace("d router", n * h_);
  b_.gemm(K::LinearInput, P::Router, "gemm d_router input", n, h_, e, {d_logits}, {d});
  b_.gemm(K::LinearWeight, P::Router, "gemm d_router weight", h_, e, n, {d_logits, y2}, {},
          NodePhase::Weight);
  add(dy2, d);
}

}  // namespace rehearse
