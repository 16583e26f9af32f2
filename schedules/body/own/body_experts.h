// SPDX-License-Identifier: Apache-2.0
// What our executor runs behind the second norm of a layer with experts: router, dispatch, the
// experts' products, combine, shared experts.
//
// Per rank and micro-batch, n tokens that the rank brings (the shard of sequence parallelism), each
// to the k experts with the largest scores, of equal scores to the lower expert. Rows of an expert
// lie in the order of their source rank, then of their token, and a token's outputs are summed in
// the order of its experts, each times the router's weight: so an expert sees the same product
// whatever `expert_parallel` is (with q = 1), and its output is the same bit for bit.
// e ranks share the experts, q ranks each expert's matrices. By dispatcher:
//   all_to_all: copies go to the ranks of their experts, are gathered over q ranks, and come back
//               (NVIDIA/Megatron-LM megatron/core/transformer/moe/token_dispatcher.py,
//               MoEAlltoAllTokenDispatcher);
//   all_gather: every rank gets all tokens of the e q ranks, computes the rows of its experts, and
//               what ranks have of a token is summed (MoEAllGatherTokenDispatcher);
//   deduplicated: every rank that has experts of a token gets it once, and its weights with it,
//               sums what these make of it, weighted, in their order, and sends one row home, where
//               rows are summed by rank (MoEFlexTokenDispatcher, deepseek-ai/DeepEP). Which node
//               hands on to which is the wire's matter, not the body's.
// Without sequence parallelism the ranks of tp bring the same tokens, each to its columns of all
// experts: what they have is summed over tp.
// Memory is planned: a rank has room for expert_capacity times its mean rows (where the plan says
// none, for all that can come where that is at most 4 times the mean, else for these); more rows
// than that fail the run. By `expert_slots` every pair of ranks exchanges a
// slot of so many times the mean rows (deduplicated: tokens, of random routing) of a pair, full or
// not: sizes are known before the step, and no host reads counts. The slots' first rows are used,
// in the same order. A plan that drops
// (expert_drop f) has an expert take C = ceil(n k / E f) copies of each rank, those with the
// largest weights: room is for what can come. What is dropped adds nothing, and a token's other
// weights stay as they are. Weights multiply the experts' outputs, which are kept for the weights'
// gradient; or, where the model says so, what experts read. What the router chose is kept in every
// mode of recomputation.
// An auxiliary loss of the routers (Fedus et al. 2022, arXiv 2101.03961) weighs a token's scores by
// how often each expert was chosen in the micro-batch, or in the token's sequence (DeepSeek-V3,
// arXiv 2412.19437, section 2.1.2), before copies are dropped. A backward counts that and sums it
// over the ranks that split the tokens: nothing more is kept. Of a sliced sequence the last slice,
// whose backward comes first, counts for all, since every forward of a micro-batch stands before;
// its counts lie beside the keys' gradients of the first slice.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>

#include "schedules/body/body_builder.h"
#include "schedules/model/parts.h"
#include "schedules/scenario/layout.h"

namespace rehearse {

inline constexpr std::int64_t kScoreBytes = 4;  // bytes of an index, a score, a weight

// Rows of a rank's experts that memory is planned for: factor x mean, at most all that there are.
struct ExpertRoom {
  std::int64_t rows = 0;  // of its experts
  // That one rank of `etp` gets from the ranks of `ep`; deduplicated: tokens.
  std::int64_t arrived = 0;
  std::int64_t sent = 0;  // that it sends
  std::int64_t slot = 0;  // to each of them; 0: as many as are routed there
  std::int64_t each = 0;  // of an expert from one rank, where copies are dropped; 0: all
};
ExpertRoom expert_room(const Layout& layout);
// The factor of it, of sizes that follow the counts.
double reserved_capacity(const Layout& layout);
// The most of it that can be needed: every token of the ranks that share the experts chooses as
// many of one rank as it may.
double most_over_mean(const Layout& layout);

class ExpertBody {
 public:
  using T = BodyBuilder::T;
  // Declares what a forward keeps. slice: of the sequence; -1: the whole.
  ExpertBody(BodyBuilder& builder, const Layout& layout, std::int32_t slice);
  // y2(local, hidden) -> z(local, hidden)
  void forward(T y2, T z);
  // Full recomputation: makes what `backward` reads again, by the router's recorded choice.
  void recompute(T y2);
  // dz(local, hidden) -> dy2(local, hidden)
  void backward(T y2, T dz, T dy2);

 private:
  // Whose experts' rows are computed here.
  std::int64_t tokens() const {
    return x_.gathers_tokens ? x_.block * x_.tokens : x_.sends_once ? room_.arrived : x_.tokens;
  }
  std::int64_t up() const { return matrices_up(layout_.model) * x_.width; }
  std::int64_t shared_columns() const { return matrices_up(layout_.model) * x_.shared; }
  bool brings_tokens() const { return x_.gathers_tokens || x_.sends_once; }
  // Rows that leave: pairs of an own token and a rank that has experts of it, at most, or slots.
  std::int64_t visits() const {
    return room_.slot > 0 ? room_.sent : x_.tokens * std::min(model_.per_token, x_.block);
  }
  // Rows of hidden that a price goes by: what dispatchers send of them is the price's matter, of
  // slots all.
  std::int64_t travelling() const { return room_.slot > 0 ? room_.sent : x_.copies; }
  bool sends_over_ranks() const { return x_.sends_copies() && layout_.plan.expert_parallel > 1; }
  bool gathers_rows() const { return x_.sends_copies() && x_.gathers_rows(); }

  T workspace(std::string_view name, std::int64_t elements);
  T gather(T local, std::string_view name, NodePhase phase);
  void sum_over_tensor(T what, std::int64_t bytes, bool fp32 = false);
  void run_rest();  // of what would run beside
  void sum_shared(T whole, T local, NodePhase phase);
  bool splits_tokens() const { return layout_.shape.tensor == 1 || layout_.shape.gather; }
  Node& over(Axis axis, Kernel kernel, std::string_view name, std::int64_t bytes, T in, T out,
             NodePhase phase);
  void grouped(Kernel kernel, ParameterRole weight, std::string_view name, std::int64_t out,
               std::int64_t in, std::initializer_list<T> reads, std::initializer_list<T> writes,
               NodePhase phase);
  void activation(T u, T a, bool routed, NodePhase phase);
  void activation_backward(T da, T u, T du, bool routed);
  void add(T to, T what);

  // body_router.cc
  void route(T y2);
  T counts_of_microbatch();
  void router_backward(T y2, T d_weights, T dy2);
  // body_dispatch.cc. Tokens, rows or what became of them go over ranks, and the next of what runs
  // beside: as many as the counts of all ranks say, or slots.
  void travel(Axis axis, Kernel kernel, std::string_view name, std::int64_t bytes, T from, T to,
              NodePhase phase);
  void rows_to_experts(T from, T rows, std::string_view name, NodePhase phase);
  void rows_home(T rows, T home, std::string_view name, NodePhase phase);
  // (local, hidden) -> (tokens, hidden) and back, summed over the ranks; what the
  // router chose, and the weights and their gradients, by the same ways. tokens_here: the own ones
  // where copies are sent.
  T tokens_here(T local, std::string_view gathered, std::string_view sent, NodePhase phase);
  T bring_tokens(T local, std::string_view gathered, std::string_view sent, NodePhase phase);
  void take_home(T all, T local, std::string_view sent);
  T bring_choice(T own);
  void weights_home(T all, T local);
  void experts(T y2, NodePhase phase);
  void sum_copies(T copies, T to, bool weighed, std::string_view name, std::string_view sent);
  void output_gradients(T dz, T d_rows, T d_weights);
  void input_weights_backward(T y2, T d_copies, T d_weights);
  T weights_of_all(T d_weights);
  // body_shared_experts.cc: what comes before the products, behind them, and for a recomputation.
  void begin_shared(T y2, NodePhase phase);
  void shared_up(T y2, NodePhase phase);
  void shared_down(NodePhase phase);
  void end_shared(T z);
  void recompute_shared(T y2);
  void begin_shared_backward(T y2, T dz);
  void shared_down_backward();
  void shared_up_backward(T y2);
  void end_shared_backward(T y2, T dy2);

  BodyBuilder& b_;
  const Layout& layout_;
  const ExpertShape& x_;
  const Experts& model_;
  std::int64_t h_;
  bool overlaps_;  // shared experts run while tokens travel
  ExpertRoom room_;
  std::int32_t slice_;
  TensorHome left_;
  // Router: chosen(n, k), weights(n, k), scores(n, E), logsum(n); of all tokens that are here:
  // weights_all, row(tokens, k). token: of the copies; begin: of the experts here. Where copies are
  // sent: sent, arrivals(e q, E + 1), from: begins of the copies by expert, of all ranks; where a
  // row arrived. Where tokens are sent once: the same by rank; leaving: whose row is sent;
  // home_row, home_weight(n, k): where what comes back of a copy lies.
  T chosen_, weights_, scores_, logsum_, weights_all_, row_, token_, begin_;
  T sent_ = BodyBuilder::kNone, arrivals_ = BodyBuilder::kNone, from_ = BodyBuilder::kNone;
  T leaving_ = BodyBuilder::kNone, home_row_ = BodyBuilder::kNone;
  T home_weight_ = BodyBuilder::kNone;
  T rows_, u_, a_, y_;  // of the experts; y: of the copies where these are sent
  T shared_u_ = BodyBuilder::kNone, shared_a_ = BodyBuilder::kNone;
  T shared_y_ = BodyBuilder::kNone, gate_ = BodyBuilder::kNone;
  // Tensors of the pass that is being built: what the shared experts' products read and make for
  // all tokens of tp, and the gradients of the gate and behind it.
  struct SharedPass {
    T in = BodyBuilder::kNone, out = BodyBuilder::kNone;
    T d_gate = BodyBuilder::kNone, d_out = BodyBuilder::kNone, d_out_late = BodyBuilder::kNone;
    T du = BodyBuilder::kNone;
  } pass_;
  // Its products, in two parts: while tokens travel to the experts, and home.
  std::deque<std::function<void()>> beside_;
};

}  // namespace rehearse
