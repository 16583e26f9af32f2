// SPDX-License-Identifier: Apache-2.0
// What our executor runs inside a compute op. One function per segment kind and direction; a split
// backward runs the nodes of its half (NodePhase), what was gathered over tp is gathered again in
// W.
#include "schedules/body/own/body_rehearse.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "schedules/body/own/body_experts.h"
#include "schedules/body/own/own_attention.h"
#include "schedules/body/own/own_ends.h"
#include "schedules/body/own/own_grid.h"
#include "schedules/body/own/own_head_exchange.h"
#include "schedules/body/own/own_latent.h"
#include "schedules/body/sizes.h"

namespace rehearse {
namespace own {
namespace {

using H = TensorHome;
using K = Kernel;
using P = ParameterRole;

bool keeps_qkv(const Context& c) {
  return c.plan.sequence_slices > 1;
}

bool has_norm_before(const Context& c) {
  return c.model.norm_placement != NormPlacement::After;
}
bool has_norm_behind(const Context& c) {
  return c.model.norm_placement != NormPlacement::Before;
}
bool is_latent(const Context& c) {
  return c.model.latent.used();
}
bool norms_queries(const Context& c) {
  return c.model.query_key_norm || c.model.query_key_norm_whole || c.model.query_key_unit_norm;
}

bool gates_heads(const Context& c) {
  return c.s.gate > 0;
}
// [B] of queries, keys and values, as attention reads them; and as the product gives them.
std::int64_t bytes_of_qkv(const Context& c) {
  return c.s.element * c.s.tokens * (c.s.qkv - c.s.gate);
}
std::int64_t bytes_of_product(const Context& c) {
  return c.s.element * c.s.tokens * c.s.qkv;
}

// [B] of the statistics of q's and k's norms: one number per token and head, or per token where one
// norm has all heads.
std::int64_t query_key_statistics(const Context& c) {
  return 4 * c.s.tokens * (c.model.query_key_norm_whole ? 2 : c.s.heads + c.s.kv_heads);
}

// kNone: the model's layers have none.
struct LayerTensors {
  T x = kNone, y1 = kNone, st1 = kNone;
  T raw = kNone, st_raw = kNone;  // q, k, v before the norms of q and k
  LatentTensors latent;
  AttentionTensors core;
  T gate = kNone, gated = kNone;  // of what heads give; what they give then
  T z1 = kNone, st_z1 = kNone;    // what attention gives, where a norm is behind it
  T x1 = kNone, y2 = kNone, st2 = kNone, u = kNone, g = kNone;
  T z2 = kNone, st_z2 = kNone;  // what the MLP gives
};

// Where the tensors that a layer's forward makes live, seen from `direction`.
LayerTensors layer_tensors(BodyBuilder& b, const Context& c) {
  const RankShape& s = c.s;
  const bool full = c.plan.recompute.is_full();
  const bool core_kept = !c.plan.recomputes(RecomputePart::AttentionCore);
  // Recomputed in I and needed by a later W: left for it. In F under full recomputation: workspace.
  const bool later = c.split && full;
  const H for_input = full ? H::Workspace : H::SavedForDgrad;
  const H for_weight = !full ? H::SavedForWgrad : later ? H::LeftForWgrad : H::Workspace;
  const H output = core_kept ? H::SavedForWgrad : c.split ? H::LeftForWgrad : H::Workspace;
  // Later slices read the keys and values, so they are kept whatever is recomputed.
  const H for_slices = keeps_qkv(c) ? H::SavedForDgrad : for_input;
  const bool before = has_norm_before(c), behind = has_norm_behind(c);
  LayerTensors t{};
  t.x = b.tensor("x", H::Input, c.activation);
  t.y1 = b.tensor("y1", for_weight, c.activation);
  if (before) t.st1 = b.tensor("st1", for_input, c.statistics);
  // Where heads are exchanged, the core reads what came.
  const bool exchanged = exchanges_heads(c.plan);
  t.core.qkv = b.tensor("qkv", exchanged ? H::Workspace : for_slices, bytes_of_qkv(c));
  if (is_latent(c)) t.latent = latent_tensors(b, c, for_input, for_weight);
  if (norms_queries(c)) {
    t.raw = b.tensor("qkv before its norms", for_slices, bytes_of_qkv(c));
    t.st_raw = b.tensor("st_qk", for_slices, query_key_statistics(c));
  }
  const H core_home = core_kept ? H::SavedForDgrad : H::Workspace;
  const bool gates = gates_heads(c);
  t.core.o =
      b.tensor("o", gates ? core_home : output, s.element * s.tokens * s.heads * s.value_dim);
  t.core.lse = b.tensor("lse", core_home, 4 * s.heads * s.tokens);
  if (gates) {
    t.gate = b.tensor("gate of o", for_slices, s.element * s.tokens * s.gate);
    t.gated = b.tensor("gated o", output, s.element * s.tokens * s.gate);
  }
  if (exchanged) {
    t.core.qkv_of_heads =
        b.tensor("qkv of heads", for_input, bytes_of_heads(c, Exchanged::QueriesAndKeys));
    t.core.o_of_heads = b.tensor("o of heads", core_home, bytes_of_heads(c, Exchanged::Outputs));
  }
  if (behind) {
    t.z1 = b.tensor("z1", for_input, c.activation);
    t.st_z1 = b.tensor("st_z1", for_input, c.statistics);
  }
  // Without a norm before it the MLP reads the sum itself; where both blocks read x, nobody reads
  // the sum again.
  const H sum = !before ? for_weight : c.model.parallel_residual ? H::Workspace : for_input;
  t.x1 = b.tensor("x1", sum, c.activation);
  t.y2 = before ? b.tensor("y2", for_weight, c.activation) : t.x1;
  if (before) t.st2 = b.tensor("st2", for_input, c.statistics);
  if (c.experts) return t;
  t.u = b.tensor("u", for_input, s.element * s.tokens * s.up);
  t.g = b.tensor("g", for_weight, s.element * s.tokens * s.ffn);
  if (behind) {  // recomputation ends before them
    t.z2 = b.tensor("z2", H::SavedForDgrad, c.activation);
    t.st_z2 = b.tensor("st_z2", H::SavedForDgrad, c.statistics);
  }
  return t;
}

void norm_node(BodyBuilder& b, const Context& c, P norm, std::string_view name, T x, T y,
               T statistics, NodePhase phase) {
  if (on_grid(c)) return grid_norm(b, c, norm, name, x, y, statistics, phase);
  b.node(K::Norm, name, {x}, {y, statistics}, phase).parameter = norm;
}
void norm_backward_node(BodyBuilder& b, const Context& c, P norm, std::string_view name, T dy, T x,
                        T statistics, T residual, T dx) {
  if (on_grid(c)) return grid_norm_backward(b, c, norm, name, dy, x, statistics, residual, dx);
  b.node(K::NormBackward, name, {dy, x, statistics, residual}, {dx}).parameter = norm;
}

// The weight's gradient of a product of `x` with `in` columns, where its output has `out`. `own`:
// of a row-parallel one, the gradient of this rank's tokens, which the bias's sums up.
struct WeightGradient {
  P weight{};
  std::string_view name;
  std::int64_t in = 0, out = 0;
  T dy = kNone, x = kNone, own = kNone;
};
void weight_gradient(BodyBuilder& b, const Context& c, const WeightGradient& of) {
  if (on_grid(c)) return grid_weight_gradient(b, c, of.weight, of.name, of.in, of.out, of.dy, of.x);
  b.gemm(K::LinearWeight, of.weight, of.name, of.in, of.out, c.s.tokens, {of.dy, of.x, of.own}, {},
         NodePhase::Weight);
}

// One of the two blocks of a layer, behind its last product: what it gives joins the residual.
struct Block {
  P product;  // its last, whose bias and dropout come with the sum
  std::string_view name, given;
  P norm;           // behind it
  T z, statistics;  // what that norm reads, and keeps
};
Block attention_block(const LayerTensors& t) {
  return {P::Projection, "gemm proj", "z", P::OutNorm1, t.z1, t.st_z1};
}
Block mlp_block(const LayerTensors& t) {
  return {P::Down, "gemm fc2", "q", P::OutNorm2, t.z2, t.st_z2};
}

// The last product of a block, of `x` with k columns, and the sum of what it gives and `residual`.
void close_block(BodyBuilder& b, const Context& c, const Block& block, std::int64_t k, T x,
                 T residual, T sum, NodePhase phase) {
  const RankShape& s = c.s;
  const bool behind = has_norm_behind(c);
  // A norm behind it reads this rank's tokens, and needs them again.
  const bool own = behind && !s.gather;
  const T z = own ? block.z : b.tensor(block.given, H::Workspace, c.gathered);
  multiply_and_reduce(b, c, {K::Linear, block.product, block.name, s.hidden, k, z}, x, phase,
                      behind ? block.z : z);
  T given = z;
  if (behind) {
    given = b.tensor("normed", H::Workspace, c.activation);
    norm_node(b, c, block.norm, "norm behind the block", block.z, given, block.statistics, phase);
  }
  // A product on a grid has added its bias.
  b.node(K::AddResidual, on_grid(c) ? "add residual" : "add residual + bias", {residual, given},
         {sum}, phase)
      .parameter = on_grid(c) ? P::None : block.product;
}

// A norm over all heads' columns is over those of all tp ranks.
bool shares_query_norm(const Context& c) {
  return c.model.query_key_norm_whole && c.s.tensor > 1;
}

void query_key_norm(BodyBuilder& b, const Context& c, const LayerTensors& t, NodePhase phase) {
  if (!norms_queries(c)) return;
  if (shares_query_norm(c)) {
    b.collective(K::QueryKeySumsOverRanks, "squares of q, k; all_reduce sum tp",
                 query_key_statistics(c), t.raw, t.st_raw, phase);
  }
  if (c.model.query_key_unit_norm && !c.rotates) {
    b.node(K::Copy, "q, k as they are", {t.raw}, {t.core.qkv}, phase);
    return;
  }
  b.node(K::QueryKeyNorm, "norms of q, k", {t.raw}, {t.core.qkv, t.st_raw}, phase).parameter =
      P::QueryNorm;
}

void query_key_norm_backward(BodyBuilder& b, const Context& c, const LayerTensors& t, T dqkv) {
  if (!norms_queries(c) || (c.model.query_key_unit_norm && !c.rotates)) return;
  const T sums = b.tensor("sums of dq, dk", H::Workspace, query_key_statistics(c));
  if (shares_query_norm(c)) {
    b.collective(K::QueryKeySumsOverRanksBackward, "products of dq, dk; all_reduce sum tp",
                 query_key_statistics(c), dqkv, sums)
        .reads.push_back(t.raw);
  }
  b.node(K::QueryKeyNormBackward, "norms of q, k backward", {dqkv, t.raw, t.st_raw}, {dqkv, sums})
      .parameter = P::QueryNorm;
}

// In layers that do not rotate, llama 4 multiplies the queries by a number for each position.
void rotate(BodyBuilder& b, const Context& c, Kernel kernel, std::string_view name, T qkv,
            NodePhase phase = NodePhase::Main) {
  if (c.model.positions != PositionKind::Rope) return;
  if (c.rotates) {
    b.node(kernel, name, {qkv}, {qkv}, phase);
  } else if (c.model.temperature_scale != 0) {
    b.node(kernel, "temperature of queries", {qkv}, {qkv}, phase).bytes =
        2 * c.s.element * c.s.tokens * c.s.heads * c.s.head_dim;
  }
}

struct ActivationNodes {
  Kernel forward, backward;
  std::string_view name, backward_name;
};
ActivationNodes activation_of(const Transformer& model) {
  if (model.mlp == MlpKind::Gated) {
    return model.activation == ActivationKind::Silu
               ? ActivationNodes{K::Swiglu, K::SwigluBackward, "swiglu", "swiglu backward"}
               : ActivationNodes{K::GatedActivation, K::GatedActivationBackward, "gated activation",
                                 "gated activation backward"};
  }
  return model.activation == ActivationKind::GeluTanh
             ? ActivationNodes{K::Gelu, K::GeluBackward, "gelu", "gelu backward"}
             : ActivationNodes{K::Activation, K::ActivationBackward, "activation",
                               "activation backward"};
}

// q, k, v from the first norm's output.
void project(BodyBuilder& b, const Context& c, const LayerTensors& t, NodePhase phase) {
  const RankShape& s = c.s;
  const T plain = norms_queries(c) ? t.raw : t.core.qkv;
  const T given =
      gates_heads(c) ? b.tensor("q, gate, k, v", H::Workspace, bytes_of_product(c)) : plain;
  gather_and_multiply(b, c, t.y1, "Y1",
                      {K::Linear, P::Qkv, "gemm qkv + bias", s.qkv, s.hidden, given}, phase);
  if (gates_heads(c)) b.node(K::SplitLatent, "split off the gate", {given}, {plain, t.gate}, phase);
  query_key_norm(b, c, t, phase);
  rotate(b, c, K::Rope, "rope", t.core.qkv, phase);
}

// What the heads give to the last product.
T given_by_heads(const LayerTensors& t) {
  return t.gated == kNone ? t.core.o : t.gated;
}

void heads_forward(BodyBuilder& b, const Context& c, const LayerTensors& t, NodePhase phase) {
  attention_forward(b, c, t.core, phase);
  if (gates_heads(c)) b.node(K::Gate, "gate", {t.gate, t.core.o}, {t.gated}, phase);
}

// Nodes 0 ... of the forward up to the second norm.
void attention_front(BodyBuilder& b, const Context& c, const LayerTensors& t, NodePhase phase) {
  const RankShape& s = c.s;
  if (has_norm_before(c)) {
    norm_node(b, c, P::Norm1, "norm1", t.x, t.y1, t.st1, phase);
  } else {
    b.node(K::Copy, "keep x", {t.x}, {t.y1}, phase);  // a later weight gradient has no x
  }
  if (is_latent(c)) {
    latent_forward(b, c, t.latent, t.y1, t.core.qkv, phase);
  } else if (phase != NodePhase::Recompute || !keeps_qkv(c)) {
    project(b, c, t, phase);
  }
  bring_heads(b, c, t.core, phase);
  heads_forward(b, c, t, phase);
  close_block(b, c, attention_block(t), s.heads * s.value_dim, given_by_heads(t),
              c.model.norm_is_residual ? t.y1 : t.x, t.x1, phase);
  if (has_norm_before(c)) {
    norm_node(b, c, P::Norm2, "norm2", c.model.parallel_residual ? t.x : t.x1, t.y2, t.st2, phase);
  }
}

// The dense MLP up to the input of the last product.
void mlp_front(BodyBuilder& b, const Context& c, const LayerTensors& t, NodePhase phase) {
  const RankShape& s = c.s;
  gather_and_multiply(b, c, t.y2, "Y2", {K::Linear, P::Up, "gemm fc1 + bias", s.up, s.hidden, t.u},
                      phase);
  const ActivationNodes activation = activation_of(c.model);
  b.node(activation.forward, activation.name, {t.u}, {t.g}, phase);
}

Body layer_forward(const Context& c) {
  BodyBuilder b(SegmentKind::Layer, c.direction);
  const LayerTensors t = layer_tensors(b, c);
  const T out = b.tensor("out", H::Output, c.activation);
  if (c.experts) {
    ExpertBody experts(b, c.layout, c.slice);
    attention_front(b, c, t, NodePhase::Main);
    const T z = b.tensor("z of experts", H::Workspace, c.activation);
    experts.forward(t.y2, z);
    b.node(K::AddResidual, "add residual", {t.x1, z}, {out}).parameter = P::Down;
    return b.finish();
  }
  attention_front(b, c, t, NodePhase::Main);
  mlp_front(b, c, t, NodePhase::Main);
  close_block(b, c, mlp_block(t), c.s.ffn, t.g, c.model.norm_is_residual ? t.y2 : t.x1, out,
              NodePhase::Main);
  return b.finish();
}

// From the gradient of the sum behind a block to that of its last product, on this rank's tokens.
T open_block(BodyBuilder& b, const Context& c, const Block& block, T gradient) {
  const H keep = c.split ? H::LeftForWgrad : H::Workspace;
  if (c.plan.dropouts.residual > 0) {
    const T dropped = b.tensor("dropped gradient", keep, c.activation);
    b.node(K::DropoutBackward, "dropout backward", {gradient}, {dropped}).parameter = block.product;
    gradient = dropped;
  }
  if (has_norm_behind(c)) {
    const T dz = b.tensor("dz", keep, c.activation);
    norm_backward_node(b, c, block.norm, "norm behind the block backward", gradient, block.z,
                       block.statistics, kNone, dz);
    gradient = dz;
  }
  return gradient;
}

// From the gradient of a block's input, summed over tp, to that of the stream, `residual` with it.
void join_gradients(BodyBuilder& b, const Context& c, std::string_view name, P norm, T gradient,
                    T input, T statistics, T residual, T to) {
  if (!has_norm_before(c)) {
    b.node(K::AddResidual, "add gradients", {residual, gradient}, {to});
    return;
  }
  if (c.model.norm_is_residual) {
    const T both = b.tensor("gradients of the norm", H::Workspace, c.activation);
    b.node(K::AddResidual, "add gradients", {residual, gradient}, {both});
    gradient = both;
    residual = kNone;
  }
  norm_backward_node(b, c, norm, name, gradient, input, statistics, residual, to);
}

// Where several tp ranks hold one key/value head, each has the gradient of its own queries' part.
// All heads are summed over tp, every rank bringing its own among zeros, and then each has the
// whole of its own: the weights' gradients come out equal on the ranks that share a head.
void sum_shared_heads(BodyBuilder& b, const Context& c, T dqkv) {
  const std::int64_t bytes = c.s.element * c.s.tokens * 2 * c.model.kv_heads * c.s.head_dim;
  const NodePhase late = NodePhase::Weight;
  const T all = b.tensor("dkv of all heads", H::Workspace, bytes);
  b.node(K::SpreadHeads, "spread dk, dv", {dqkv}, {all}, late);
  b.collective(K::AllReduce, "all_reduce tp dk, dv", bytes, all, all, late);
  b.node(K::TakeHeads, "take dk, dv", {all}, {dqkv}, late);
}

// In pieces, what a weight's gradient gathers travels beside the product before it, and the last
// piece of an input gradient's sum beside the weight gradient behind it. Else all is waited for
// where it is asked for, and memory is given back first.
bool gathers_ahead(const Context& c) {
  return c.s.gather && pieces_of(c) > 1;
}

// The dense MLP's backward: returns the gradient of the second norm's output from dout, summed
// over tp. A split backward gathers the gradients of both blocks twice: once for I, once for W.
T mlp_backward(BodyBuilder& b, const Context& c, const LayerTensors& t, T dout, T du) {
  const RankShape& s = c.s;
  const NodePhase late = NodePhase::Weight;
  const bool weight = c.direction == Direction::WeightGradient;
  const bool gated = c.model.mlp == MlpKind::Gated;
  const T dq = open_block(b, c, mlp_block(t), dout);
  // Gated: the gradient of g is as wide as g, then becomes that of both halves of u.
  T dg = du;
  if (gated) {
    dg = b.tensor("dg", H::Workspace, s.element * s.tokens * s.ffn);
  }
  const T D = gather_and_multiply(
      b, c, dq, "D", {K::LinearInput, P::Down, "gemm d_fc2 input", s.ffn, s.hidden, dg});
  const T Dw = weight ? gather_input(b, c, dq, "D", late) : D;
  const bool ahead = gathers_ahead(c);
  T Y2 = ahead ? gather_input(b, c, t.y2, "Y2", late) : kNone;
  weight_gradient(b, c, {P::Down, "gemm d_fc2 weight, bias", s.ffn, s.hidden, Dw, t.g, dq});
  const ActivationNodes activation = activation_of(c.model);
  // What is summed along a row of a grid comes behind its products: a pass of its own.
  const bool apart = on_grid(c) && activation.backward == K::GeluBackward;
  b.node(apart ? K::ActivationBackward : activation.backward, activation.backward_name, {dg, t.u},
         {du});
  const T e2 = b.tensor("e2", H::Workspace, c.gathered);
  const auto input = [&] {
    multiply_and_reduce(b, c, {K::LinearInput, P::Up, "gemm d_fc1 input", s.hidden, s.up, e2}, du);
  };
  if (ahead) input();
  if (!ahead) Y2 = gather_input(b, c, t.y2, "Y2", late);
  weight_gradient(b, c, {P::Up, "gemm d_fc1 weight, bias", s.hidden, s.up, du, Y2});
  if (!ahead) input();
  return e2;
}

// Gradients of what the product gives: of q, k, v alone, or of the gate of heads too.
struct ProductGradients {
  T qkv = kNone, gate = kNone, all = kNone;  // all: qkv, where there is no gate
};
ProductGradients product_gradients(BodyBuilder& b, const Context& c, H keep) {
  ProductGradients d;
  const bool apart = is_latent(c) || gates_heads(c);  // another product's gradients are kept
  d.all = d.qkv = b.tensor("dqkv", apart ? H::Workspace : keep, bytes_of_qkv(c));
  if (!gates_heads(c)) return d;
  d.gate = b.tensor("dgate", H::Workspace, c.s.element * c.s.tokens * c.s.gate);
  d.all = b.tensor("dq, dgate, dk, dv", keep, bytes_of_product(c));
  return d;
}

// From the gradients of q, k, v to that of the first norm's output, which it returns, summed over
// tp. `Y1`: what was gathered ahead of t.y1.
T qkv_backward(BodyBuilder& b, const Context& c, const LayerTensors& t, const ProductGradients& d,
               T Y1) {
  const RankShape& s = c.s;
  const NodePhase late = NodePhase::Weight;
  rotate(b, c, K::RopeBackward, "rope backward", d.qkv);
  query_key_norm_backward(b, c, t, d.qkv);
  if (gates_heads(c)) b.node(K::JoinLatent, "join the gate", {d.qkv, d.gate}, {d.all});
  const T dqkv = d.all;
  const T e1 = b.tensor("e1", H::Workspace, c.gathered);
  const auto input = [&] {
    multiply_and_reduce(b, c, {K::LinearInput, P::Qkv, "gemm d_qkv input", s.hidden, s.qkv, e1},
                        dqkv);
  };
  const bool shared = c.layout.key_value_replicas() > 1;
  // e1 is summed over tp: it takes what each rank has alone, the weights' take the sum
  const bool first = shared || Y1 != kNone;
  if (first) input();
  if (shared) sum_shared_heads(b, c, dqkv);
  if (Y1 == kNone) Y1 = gather_input(b, c, t.y1, "Y1", late);
  weight_gradient(b, c, {P::Qkv, "gemm d_qkv weight, bias", s.hidden, s.qkv, dqkv, Y1});
  if (!first) input();
  return e1;
}

// Also of an R, which keeps the nodes of recomputation alone.
Body layer_backward(const Context& c) {
  const RankShape& s = c.s;
  const NodePhase late = NodePhase::Weight;
  const bool weight = c.direction == Direction::WeightGradient;
  const bool parallel = c.model.parallel_residual;
  BodyBuilder b(SegmentKind::Layer, c.direction, c.apart);
  const LayerTensors t = layer_tensors(b, c);
  std::optional<ExpertBody> experts;
  if (c.experts) experts.emplace(b, c.layout, c.slice);
  const H keep = c.split ? H::LeftForWgrad : H::Workspace;
  const T dout = b.tensor("dout", H::OutputGradient, c.activation);
  const T du = experts ? kNone : b.tensor("du", keep, s.element * s.tokens * s.up);
  const T dx1 = b.tensor("dx1", keep, c.activation);
  const ProductGradients d = product_gradients(b, c, keep);
  const T dx = b.tensor("dx", H::InputGradient, c.activation);

  if (c.plan.recompute.is_full()) {
    attention_front(b, c, t, NodePhase::Recompute);
    if (experts) {
      experts->recompute(t.y2);
    } else {
      mlp_front(b, c, t, NodePhase::Recompute);
    }
  } else if (c.plan.recomputes(RecomputePart::AttentionCore)) {
    heads_forward(b, c, t, NodePhase::Recompute);
  }
  T e2;
  if (experts) {
    e2 = b.tensor("e2", H::Workspace, c.activation);
    experts->backward(t.y2, open_block(b, c, mlp_block(t), dout), e2);
  } else {
    e2 = mlp_backward(b, c, t, dout, du);
  }
  join_gradients(b, c, "norm2 backward + residual", P::Norm2, e2, parallel ? t.x : t.x1, t.st2,
                 dout, dx1);
  // Attention. Where both blocks read x, what it gave joined the same sum as what the MLP gave.
  const T dz = open_block(b, c, attention_block(t), parallel ? dout : dx1);
  const std::int64_t output_bytes = s.element * s.tokens * s.heads * s.value_dim;
  const T d_o = b.tensor("do", H::Workspace, output_bytes);
  const T d_given = gates_heads(c) ? b.tensor("d gated o", H::Workspace, output_bytes) : d_o;
  const T D1 = gather_and_multiply(b, c, dz, "D1",
                                   {K::LinearInput, P::Projection, "gemm d_proj input",
                                    s.heads * s.value_dim, s.hidden, d_given});
  const T D1w = weight ? gather_input(b, c, dz, "D1", late) : D1;
  const bool ahead = gathers_ahead(c) && !is_latent(c);
  const T Y1 = ahead ? gather_input(b, c, t.y1, "Y1", late) : kNone;
  weight_gradient(b, c,
                  {P::Projection, "gemm d_proj weight, bias", s.heads * s.value_dim, s.hidden, D1w,
                   given_by_heads(t), dz});
  if (gates_heads(c)) {
    b.node(K::GateBackward, "gate backward", {t.gate, t.core.o, d_given}, {d.gate, d_o});
  }
  const T rs = b.tensor("rs", H::Workspace, 4 * s.heads * s.tokens);
  attention_backward(b, c, t.core, d_o, d.qkv, rs);
  const T e1 =
      is_latent(c) ? latent_backward(b, c, t.latent, t.y1, d.qkv) : qkv_backward(b, c, t, d, Y1);
  join_gradients(b, c, "norm1 backward + residual", P::Norm1, e1, t.x, t.st1, dx1, dx);
  return b.finish();
}

}  // namespace
}  // namespace own

Body make_rehearse_body(const Layout& layout, const BodyShape& shape) {
  using namespace own;
  const Context c = context_of(layout, shape);
  const bool forward = shape.direction == Direction::Forward;
  if (shape.direction == Direction::Recompute && shape.segment != SegmentKind::Layer) {
    return BodyBuilder(shape.segment, shape.direction).finish();  // the ends compute nothing again
  }
  switch (shape.segment) {
    case SegmentKind::Embedding:
      return forward ? embedding_forward(c) : embedding_backward(c);
    case SegmentKind::Layer:
      return forward ? layer_forward(c) : layer_backward(c);
    case SegmentKind::Head:
      if (c.plan.has_parameter_server()) return forward ? logits_forward(c) : logits_backward(c);
      return forward ? head_forward(c) : head_backward(c);
  }
  return {};
}

Body make_rehearse_loss(const Layout& layout) {
  return own::loss_of_logits(
      own::context_of(layout, {.segment = SegmentKind::Head, .direction = Direction::Forward}));
}

}  // namespace rehearse
