// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/own/body_experts.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rehearse {
namespace {

using H = TensorHome;
using K = Kernel;
using P = ParameterRole;

// C: what an expert takes of one rank's copies where a plan drops.
std::int64_t kept_copies(const Layout& layout, double factor) {
  const double mean = static_cast<double>(layout.shape.experts.copies) /
                      static_cast<double>(layout.model.experts.count);
  return static_cast<std::int64_t>(std::ceil(mean * factor));
}

// Rows that are planned for where sizes do not follow the counts: expert_capacity times the mean.
// Where the plan says none, 1.25 times it, but at least what random routing exceeds less often than
// once in 10^9: mean + t with exp(-t^2 / (2 mean + 2 t / 3)) = 10^-9 (Bernstein; choices of
// different experts spread less than independent ones, Hoeffding 1963, section 6).
std::int64_t slot_of(double mean, const Plan& plan) {
  const double planned = (plan.expert_capacity > 0 ? plan.expert_capacity : 1.25) * mean;
  if (plan.expert_capacity > 0) return static_cast<std::int64_t>(std::ceil(planned));
  const double log_chance = 9 * std::numbers::ln10;
  const double third = log_chance / 3;
  const double beyond = third + std::sqrt(third * third + 2 * log_chance * mean);
  return static_cast<std::int64_t>(std::ceil(std::max(planned, mean + beyond)));
}

// Slots of tokens, of which each has a row at least and `each` at most.
ExpertRoom room_of_visits(const Layout& layout, std::int64_t each) {
  const ExpertShape& x = layout.shape.experts;
  const std::int64_t pairs = layout.plan.expert_parallel;
  ExpertRoom room;
  if (const double factor = layout.plan.expert_drop; factor > 0) {
    room.each = kept_copies(layout, factor);
    room.slot = std::min(room.each * x.per_rank, x.tokens);
    room.rows = pairs * std::min(room.each * x.per_rank, x.tokens * each);
  } else {
    room.slot = std::min(slot_of(x.visits, layout.plan), x.tokens);
    room.rows =
        std::min(slot_of(static_cast<double>(x.rows), layout.plan), pairs * room.slot * each);
  }
  room.arrived = room.sent = pairs * room.slot;
  return room;
}

}  // namespace

// A rank has k/e of a token's k experts on the mean; at most all of its own, or all k.
double most_over_mean(const Layout& layout) {
  const std::int64_t k = layout.model.experts.per_token,
                     each = std::min(k, layout.shape.experts.per_rank);
  return static_cast<double>(each * layout.plan.expert_parallel) / static_cast<double>(k);
}

double reserved_capacity(const Layout& layout) {
  constexpr double kMostUnasked = 4;
  const double asked = layout.plan.expert_capacity;
  return asked > 0 ? asked : std::min(kMostUnasked, most_over_mean(layout));
}

ExpertRoom expert_room(const Layout& layout) {
  const ExpertShape& x = layout.shape.experts;
  const std::int64_t each = std::min(layout.model.experts.per_token, x.per_rank);
  if (layout.plan.expert_slots && x.sends_once) return room_of_visits(layout, each);
  if (const double factor = layout.plan.expert_drop; factor > 0) {
    const std::int64_t most = kept_copies(layout, factor);
    const std::int64_t rows = std::min(most * x.per_rank, x.tokens * each);  // of one rank's tokens
    const std::int64_t arrived = layout.plan.expert_parallel * rows;
    return {.rows = x.block * rows,
            .arrived = arrived,
            .sent = layout.plan.expert_slots ? arrived : x.copies,
            .slot = layout.plan.expert_slots ? rows : 0,
            .each = most};
  }
  if (x.block == 1) return {.rows = x.copies, .arrived = x.copies, .sent = x.copies};
  const auto reserved = [&](std::int64_t mean) {
    return static_cast<std::int64_t>(
        std::ceil(reserved_capacity(layout) * static_cast<double>(mean)));
  };
  if (layout.plan.expert_slots) {
    const std::int64_t pairs = layout.plan.expert_parallel;
    const std::int64_t slot =
        std::min(slot_of(static_cast<double>(x.copies) / static_cast<double>(pairs), layout.plan),
                 x.tokens * each);
    return {.rows = x.block * slot, .arrived = pairs * slot, .sent = pairs * slot, .slot = slot};
  }
  const std::int64_t rows = std::min(reserved(x.rows), x.block * x.tokens * each);
  // Every token that arrives has a row.
  if (x.sends_once) {
    return {.rows = rows, .arrived = std::min(rows, x.block * x.tokens), .sent = x.copies};
  }
  return {
      .rows = rows,
      .arrived = layout.plan.expert_parallel == 1
                     ? x.copies
                     : std::min(reserved(x.copies), layout.plan.expert_parallel * x.tokens * each),
      .sent = x.copies};
}

ExpertBody::ExpertBody(BodyBuilder& builder, const Layout& layout, std::int32_t slice)
    : b_(builder),
      layout_(layout),
      x_(layout.shape.experts),
      model_(layout.model.experts),
      h_(layout.shape.hidden),
      overlaps_(layout.plan.overlap_expert_parallel == ExpertOverlap::Shared),
      room_(expert_room(layout)),
      slice_(slice) {
  const std::int64_t element = layout.shape.element, k = model_.per_token;
  const bool full = layout.plan.recompute.is_full(), split = b_.is_split();
  left_ = split ? H::LeftForWgrad : H::Workspace;
  const H for_input = full ? H::Workspace : H::SavedForDgrad;
  const H for_weight = !full ? H::SavedForWgrad : left_;
  const auto number = [&](std::string_view name, H home, std::int64_t count) {
    return b_.tensor(name, home, kScoreBytes * count);
  };
  const auto tensor = [&](std::string_view name, H home, std::int64_t rows, std::int64_t columns) {
    return b_.tensor(name, home, element * rows * columns);
  };
  chosen_ = number("chosen experts", H::SavedForDgrad, x_.copies);
  weights_ = number("weights", H::SavedForDgrad, x_.copies);
  scores_ = number("scores", H::SavedForDgrad, x_.tokens * model_.count);
  logsum_ = number("log of sums", H::SavedForDgrad, x_.tokens);
  weights_all_ =
      brings_tokens() ? number("weights of all", H::SavedForDgrad, tokens() * k) : weights_;
  row_ = number("rows of copies", H::SavedForDgrad, tokens() * k);
  token_ =
      number("tokens of copies", H::SavedForDgrad, x_.sends_copies() ? room_.sent : room_.rows);
  begin_ = number("first rows", H::SavedForWgrad, x_.per_rank + 1);
  if (x_.sends_copies()) {
    sent_ = number("first copies", H::SavedForDgrad, model_.count + 1);
    arrivals_ = number("first copies of all", H::SavedForDgrad, x_.block * (model_.count + 1));
    from_ = number("places of rows", H::SavedForDgrad, room_.rows);
  }
  if (x_.sends_once) {
    sent_ = number("first tokens", H::SavedForDgrad, x_.block + 1);
    arrivals_ = number("first tokens of all", H::SavedForDgrad, x_.block * (x_.block + 1));
    leaving_ = number("leaving tokens", H::SavedForDgrad, visits());
    home_row_ = number("rows at home", H::SavedForDgrad, x_.copies);
    home_weight_ = number("weights at home", H::SavedForDgrad, x_.copies);
  }
  rows_ = tensor("rows", for_weight, room_.rows, h_);
  u_ = tensor("u", for_input, room_.rows, up());
  a_ = tensor("g", for_weight, room_.rows, x_.width);
  y_ = tensor("outputs", model_.weighs_input ? H::Workspace : for_input,
              x_.sends_copies() ? room_.sent : room_.rows, h_);
  if (x_.shared == 0) return;
  shared_u_ = tensor("shared u", for_input, layout.shape.tokens, shared_columns());
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
  const bool gated = layout_.model.mlp == MlpKind::Gated;
  const Kernel kernel = gated ? K::Swiglu : K::Activation;
  if (routed) {
    b_.node(kernel, gated ? "swiglu of experts" : "activation of experts", {u, begin_}, {a}, phase)
        .routed = true;
  } else {
    b_.node(kernel, gated ? "swiglu of shared experts" : "activation of shared experts", {u}, {a},
            phase);
  }
}

void ExpertBody::activation_backward(T da, T u, T du, bool routed) {
  const bool gated = layout_.model.mlp == MlpKind::Gated;
  const Kernel kernel = gated ? K::SwigluBackward : K::ActivationBackward;
  if (routed) {
    b_.node(kernel, gated ? "swiglu backward of experts" : "activation backward of experts",
            {da, u, begin_}, {du})
        .routed = true;
  } else {
    b_.node(kernel,
            gated ? "swiglu backward of shared experts" : "activation backward of shared experts",
            {da, u}, {du});
  }
}

void ExpertBody::add(T to, T what) {
  b_.node(K::AddOutputs, "add", {to, what}, {to});
}

// In place, where every rank of tp has a part of it.
void ExpertBody::sum_over_tensor(T what, std::int64_t bytes, bool fp32) {
  if (splits_tokens()) return;
  b_.collective(K::AllReduce, "all_reduce tp", bytes, what, what).fp32 = fp32;
}

// From the tokens to the experts' outputs.
void ExpertBody::experts(T y2, NodePhase phase) {
  const T x = tokens_here(y2, "tokens; all_gather ep", "dispatch; all_to_all ep", phase);
  const T copies = x_.sends_copies() ? workspace("copies", room_.sent * h_) : rows_;
  if (model_.weighs_input) {
    b_.node(K::SpreadCopies, "weighted copies of tokens", {x, row_, weights_all_}, {copies}, phase);
  } else {
    b_.node(K::GatherRows, "copies of tokens", {x, token_}, {copies}, phase);
  }
  if (x_.sends_copies()) rows_to_experts(copies, rows_, "dispatch; all_to_all ep", phase);
  grouped(K::GroupedLinear, P::ExpertUp, "grouped gemm fc1", up(), h_, {rows_, begin_}, {u_},
          phase);
  activation(u_, a_, true, phase);
  if (phase == NodePhase::Recompute && model_.weighs_input) return;  // nobody reads outputs again
  const T out = x_.sends_copies() ? workspace("outputs of experts", room_.rows * h_) : y_;
  grouped(K::GroupedLinear, P::ExpertDown, "grouped gemm fc2", h_, x_.width, {a_, begin_}, {out},
          phase);
  if (x_.sends_copies()) rows_home(out, y_, "combine; all_to_all ep", phase);
}

void ExpertBody::forward(T y2, T z) {
  route(y2);
  if (overlaps_) begin_shared(y2, NodePhase::Main);
  experts(y2, NodePhase::Main);
  sum_copies(y_, z, !model_.weighs_input, "sums of copies", "combine; all_to_all ep");
  if (x_.shared == 0) return;
  if (!overlaps_) begin_shared(y2, NodePhase::Main);
  run_rest();
  end_shared(z);
}

// (copies, hidden) at home -> (local, hidden), summed over the ranks that have a part of it.
void ExpertBody::sum_copies(T copies, T to, bool weighed, std::string_view name,
                            std::string_view sent) {
  const T all = brings_tokens() ? workspace("outputs of all", tokens() * h_) : to;
  if (weighed) {
    b_.node(K::WeighCopies, name, {copies, row_, weights_all_}, {all});
  } else {
    b_.node(K::SumCopies, name, {copies, row_}, {all});
  }
  if (brings_tokens()) take_home(all, to, sent);
  sum_over_tensor(to, layout_.shape.element * x_.tokens * h_);
}

// The weights' gradients of all tokens that are here; those of the rank's own are theirs, summed.
ExpertBody::T ExpertBody::weights_of_all(T d_weights) {
  if (!brings_tokens()) return d_weights;
  return b_.tensor("d weights of all", H::Workspace, kScoreBytes * tokens() * model_.per_token);
}

// dz -> the gradients of the experts' outputs, and those of the weights where these multiply them.
void ExpertBody::output_gradients(T dz, T d_rows, T d_weights) {
  const T all = tokens_here(dz, "output gradients; all_gather ep",
                            "combine backward; all_to_all ep", NodePhase::Main);
  const T copies = x_.sends_copies() ? workspace("d copies", room_.sent * h_) : d_rows;
  const std::string_view name = "copies of output gradients";
  if (model_.weighs_input) {
    b_.node(K::GatherRows, name, {all, token_}, {copies});
  } else {
    const T d_all = weights_of_all(d_weights);
    b_.node(K::WeighBackward, name, {y_, row_, weights_all_, all}, {copies, d_all});
    weights_home(d_all, d_weights);
  }
  if (x_.sends_copies())
    rows_to_experts(copies, d_rows, "combine backward; all_to_all ep", NodePhase::Main);
}

void ExpertBody::recompute(T y2) {
  experts(y2, NodePhase::Recompute);
  if (x_.shared > 0) recompute_shared(y2);
}

void ExpertBody::backward(T y2, T dz, T dy2) {
  const std::int64_t element = layout_.shape.element;
  const NodePhase late = NodePhase::Weight;
  const T d_rows = b_.tensor("d outputs", left_, element * room_.rows * h_);
  const T d_weights = b_.tensor("d weights", H::Workspace, kScoreBytes * x_.copies);
  if (overlaps_) begin_shared_backward(y2, dz);
  output_gradients(dz, d_rows, d_weights);
  if (!model_.weighs_input) sum_over_tensor(d_weights, kScoreBytes * x_.copies, true);
  const T da = workspace("dg", room_.rows * x_.width);
  const T du = b_.tensor("du", left_, element * room_.rows * up());
  grouped(K::GroupedLinearInput, P::ExpertDown, "grouped gemm d_fc2 input", h_, x_.width,
          {d_rows, begin_}, {da}, NodePhase::Main);
  grouped(K::GroupedLinearWeight, P::ExpertDown, "grouped gemm d_fc2 weight", h_, x_.width,
          {d_rows, a_, begin_}, {}, late);
  activation_backward(da, u_, du, true);
  grouped(K::GroupedLinearWeight, P::ExpertUp, "grouped gemm d_fc1 weight", up(), h_,
          {du, rows_, begin_}, {}, late);
  const T dx = workspace("d rows", room_.rows * h_);
  grouped(K::GroupedLinearInput, P::ExpertUp, "grouped gemm d_fc1 input", up(), h_, {du, begin_},
          {dx}, NodePhase::Main);
  T home = dx;
  if (x_.sends_copies()) {
    home = workspace("d copies", room_.sent * h_);
    rows_home(dx, home, "dispatch backward; all_to_all ep", NodePhase::Main);
  }
  if (model_.weighs_input) input_weights_backward(y2, home, d_weights);
  sum_copies(home, dy2, model_.weighs_input, "sums of input gradients",
             "dispatch backward; all_to_all ep");
  router_backward(y2, d_weights, dy2);
  if (x_.shared == 0) return;
  if (!overlaps_) begin_shared_backward(y2, dz);
  run_rest();
  end_shared_backward(y2, dy2);
}

// Gradients of weights that multiply what experts read: products of tokens and their copies'
// gradients.
void ExpertBody::input_weights_backward(T y2, T d_copies, T d_weights) {
  const T x =
      tokens_here(y2, "tokens; all_gather ep", "tokens again; all_to_all ep", NodePhase::Main);
  const T d_all = weights_of_all(d_weights);
  b_.node(K::SpreadWeights, "weights' gradients", {d_copies, row_, x}, {d_all});
  weights_home(d_all, d_weights);
  sum_over_tensor(d_weights, kScoreBytes * x_.copies, true);
}

}  // namespace rehearse
