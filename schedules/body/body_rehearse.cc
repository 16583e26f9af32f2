// SPDX-License-Identifier: Apache-2.0
// What our executor runs inside a compute op. One function per segment kind and direction; a split
// backward runs the nodes of its half (NodePhase), what was gathered over tp is gathered again in
// W.
#include "schedules/body/body_rehearse.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "schedules/body/body_builder.h"
#include "schedules/body/body_experts.h"
#include "schedules/body/sizes.h"

namespace rehearse {
namespace {

using T = BodyBuilder::T;
using H = TensorHome;
using K = Kernel;
using P = ParameterRole;
constexpr T kNone = BodyBuilder::kNone;

struct Context {
  const Layout& layout;
  const Transformer& model;
  const Plan& plan;
  const RankShape& s;
  Direction direction;
  bool experts = false;         // in place of the dense MLP
  std::int32_t slice = -1;      // of the sequence; -1: not sliced, or the mean of the slices
  std::int64_t activation = 0;  // bytes of (local, hidden)
  std::int64_t gathered = 0;    // bytes of (tokens, hidden)
  std::int64_t statistics = 0;  // bytes of a norm's saved statistics, fp32
  bool split = false;           // I or W instead of B
};

Context context_of(const Layout& layout, const BodyShape& shape) {
  Context c{.layout = layout,
            .model = layout.model,
            .plan = layout.plan,
            .s = layout.shape,
            .direction = shape.direction,
            .experts = shape.experts,
            .slice = layout.plan.sequence_slices > 1 ? shape.slice : -1};
  c.activation = c.layout.activation_bytes();
  c.gathered = c.s.element * c.s.tokens * c.s.hidden;
  c.statistics = 4 * c.s.local * (c.model.norm == NormKind::LayerNorm ? 2 : 1);
  c.split =
      shape.direction == Direction::InputGradient || shape.direction == Direction::WeightGradient;
  return c;
}

// FLOPs of the causal attention core, forward: half of 4 s^2 d per head and sample.
double attention_flops(const Context& c) {
  const double keys = attention_pairs(c.model, c.plan.sequence_length) /
                      static_cast<double>(c.plan.sequence_length);  // of a query, in the mean
  return 4.0 * static_cast<double>(c.s.tokens) * keys * static_cast<double>(c.s.heads) *
         static_cast<double>(c.s.head_dim) * c.plan.attention_share();
}

// Sum over the tp ranks of a row-parallel product: (tokens, hidden) partial -> (local, hidden).
// `own`: where, under sequence parallelism, this rank's tokens go; left out: they stay in place.
void reduce_output(BodyBuilder& b, const Context& c, T partial, NodePhase phase = NodePhase::Main,
                   T own = kNone) {
  if (c.s.tensor == 1) return;
  b.collective(c.s.gather ? K::ReduceScatter : K::AllReduce,
               c.s.gather ? "reduce_scatter tp" : "all_reduce tp", c.gathered, partial,
               own == kNone ? partial : own, phase);
}

// (local, hidden) -> (tokens, hidden): a gather under sequence parallelism, else the tensor itself.
T gather_input(BodyBuilder& b, const Context& c, T local, std::string_view name,
               NodePhase phase = NodePhase::Main) {
  if (!c.s.gather) return local;
  const T whole = b.tensor(name, H::Workspace, c.gathered);
  b.collective(K::AllGather, "all_gather tp", c.gathered, local, whole, phase);
  return whole;
}

bool keeps_qkv(const Context& c) {
  return c.plan.sequence_slices > 1;
}

bool has_norm_before(const Context& c) {
  return c.model.norm_placement != NormPlacement::After;
}
bool has_norm_behind(const Context& c) {
  return c.model.norm_placement != NormPlacement::Before;
}
bool norms_queries(const Context& c) {
  return c.model.query_key_norm || c.model.query_key_norm_whole;
}

// Of the norms of q and k: a number per token and head, or per token where one norm has all heads.
std::int64_t query_key_statistics(const Context& c) {
  return 4 * c.s.tokens * (c.model.query_key_norm_whole ? 2 : c.s.heads + c.s.kv_heads);
}

// kNone: the model's layers have none.
struct LayerTensors {
  T x = kNone, y1 = kNone, st1 = kNone;
  T raw = kNone, st_raw = kNone;  // q, k, v before the norms of q and k
  T qkv = kNone, o = kNone, lse = kNone;
  T z1 = kNone, st_z1 = kNone;  // what attention gives, where a norm is behind it
  T x1 = kNone, y2 = kNone, st2 = kNone, u = kNone, g = kNone;
  T z2 = kNone, st_z2 = kNone;  // what the MLP gives
};

// Where the tensors that a layer's forward makes live, seen from `direction`.
LayerTensors layer_tensors(BodyBuilder& b, const Context& c) {
  const RankShape& s = c.s;
  const RecomputeMode mode = c.plan.recompute;
  const bool full = mode == RecomputeMode::Full;
  // Recomputed in I and needed by a later W: left for it. In F under full recomputation: workspace.
  const bool later = c.split && full;
  const H for_input = full ? H::Workspace : H::SavedForDgrad;
  const H for_weight = !full ? H::SavedForWgrad : later ? H::LeftForWgrad : H::Workspace;
  const H output = mode == RecomputeMode::None ? H::SavedForWgrad
                   : c.split                   ? H::LeftForWgrad
                                               : H::Workspace;
  // Later slices read the keys and values, so they are kept whatever is recomputed.
  const H for_slices = keeps_qkv(c) ? H::SavedForDgrad : for_input;
  const bool before = has_norm_before(c), behind = has_norm_behind(c);
  LayerTensors t{};
  t.x = b.tensor("x", H::Input, c.activation);
  t.y1 = b.tensor("y1", for_weight, c.activation);
  if (before) t.st1 = b.tensor("st1", for_input, c.statistics);
  t.qkv = b.tensor("qkv", for_slices, s.element * s.tokens * s.qkv);
  if (norms_queries(c)) {
    t.raw = b.tensor("qkv before its norms", for_slices, s.element * s.tokens * s.qkv);
    t.st_raw = b.tensor("st_qk", for_slices, query_key_statistics(c));
  }
  t.o = b.tensor("o", output, s.element * s.tokens * s.heads * s.head_dim);
  t.lse = b.tensor("lse", mode == RecomputeMode::None ? H::SavedForDgrad : H::Workspace,
                   4 * s.heads * s.tokens);
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

// The attention core in parts: a rank's queries meet the keys of one block at a time, what the
// parts give is merged by log-sum-exp. Blocks are the rank's own keys and, round the ring, those of
// the others (Liu et al. 2023, arXiv 2310.01889), of the op's slice and of every slice before it
// (Li et al. 2021, TeraPipe). Each of the c ranks holds chunks i and 2c - 1 - i of every slice, so
// that each step has equal work under the causal mask. Nothing hides the shifts: the cursor runs
// node by node.
class AttentionParts {
 public:
  AttentionParts(BodyBuilder& b, const Context& c, const LayerTensors& t, NodePhase phase)
      : b_(b),
        c_(c),
        t_(t),
        phase_(phase),
        kv_(c.s.tokens * 2 * c.s.kv_heads * c.s.head_dim),
        queries_(c.s.tokens * c.s.heads * c.s.head_dim) {}

  // The own block comes first: no row is without keys.
  void forward() {
    const T sum = b_.tensor("o sum", H::Workspace, 4 * queries_);
    if (ring()) make_blocks();
    for (std::int32_t slice = -1; slice < std::max(c_.slice, 0); ++slice) {
      const T own = keys(slice);
      meet(own, sum, 0, slice);
      if (!ring()) continue;
      b_.node(K::PackKeys, "pack k, v", {own}, {block_}, phase_);
      for (std::int32_t step = 1; step < c_.plan.context_parallel; ++step) {
        shift_keys();
        meet(block_, sum, step, slice);
      }
    }
    b_.node(K::StoreOutput, "store o", {sum}, {t_.o}, phase_);
  }

  // K/V blocks go round again, and behind them their gradients (fp32), to which every rank adds:
  // they arrive at home after c - 1 shifts, where the own part comes last. Slices come in reverse:
  // each adds to dK, dV of all before it, and finds its own with what the later ones have added.
  void backward(T d_o, T dqkv, T delta) {
    const T sum = b_.tensor("dq sum", H::Workspace, 4 * queries_);
    const T kept = c_.slice < 0 ? kNone : b_.tensor("dkv", H::KeyValueGradient, 4 * kv_);
    if (ring()) {
      make_blocks();
      d_block_ = b_.tensor("dkv ring", H::Workspace, 4 * kv_);
      d_next_ = b_.tensor("dkv ring", H::Workspace, 4 * kv_);
    }
    const auto slice_backward = [&](std::int32_t slice) {
      const T own = keys(slice);
      T home = slice < 0 ? kept : b_.earlier("dkv of an earlier slice", kept, slice, 4 * kv_);
      if (ring()) {
        b_.node(K::PackKeys, "pack k, v", {own}, {block_});
        for (std::int32_t step = 1; step < c_.plan.context_parallel; ++step) {
          shift_keys();
          if (step > 1) shift_gradients();
          meet_backward(d_o, block_, {sum, d_block_, delta}, step, slice);
        }
        shift_gradients();
        if (home == kNone) {
          home = d_block_;
        } else {
          b_.node(K::AddKeyGradients, "add dk, dv", {d_block_}, {home});
        }
      }
      meet_backward(d_o, own, {sum, home, delta}, 0, slice);
      return home;
    };
    for (std::int32_t slice = 0; slice < c_.slice; ++slice) slice_backward(slice);
    const T dkv = slice_backward(-1);
    b_.node(K::StoreGradients, "store dq, dk, dv", {sum, dkv}, {dqkv});
  }

 private:
  bool ring() const { return c_.plan.context_parallel > 1; }
  void make_blocks() {
    block_ = b_.tensor("kv ring", H::Workspace, c_.s.element * kv_);
    next_ = b_.tensor("kv ring", H::Workspace, c_.s.element * kv_);
  }
  // What holds this rank's keys and values of a slice; -1: the op's own.
  T keys(std::int32_t slice) {
    if (slice < 0) return t_.qkv;
    return b_.earlier("k, v of an earlier slice", t_.qkv, slice, c_.s.element * kv_);
  }

  void shift(Kernel kernel, std::string_view name, T& from, T& to, std::int64_t bytes) {
    b_.collective(kernel, name, bytes, from, to, phase_).axis = Axis::Context;
    std::swap(from, to);
  }
  void shift_keys() {
    shift(K::RingKeys, "ring exchange cp k, v", block_, next_, c_.s.element * kv_);
  }
  void shift_gradients() {
    shift(K::RingKeyGradients, "ring exchange cp dk, dv", d_block_, d_next_, 4 * kv_);
  }

  void meet(T block, T sum, std::int32_t step, std::int32_t slice) {
    const std::string_view name = slice >= 0  ? "attention (earlier slice)"
                                  : step == 0 ? "attention (causal, own block)"
                                              : "attention (block of the ring)";
    part(b_.node(K::Attention, name, {t_.qkv, other(block)}, {sum, t_.lse}, phase_), step, slice);
  }
  void meet_backward(T d_o, T block, std::initializer_list<T> writes, std::int32_t step,
                     std::int32_t slice) {
    const std::string_view name = slice >= 0  ? "attention backward (earlier slice)"
                                  : step == 0 ? "attention backward (own block)"
                                              : "attention backward (block of the ring)";
    part(b_.node(K::AttentionBackward, name, {d_o, t_.o, t_.lse, t_.qkv, other(block)}, writes),
         step, slice);
  }
  // The own keys are read with the queries.
  T other(T block) const { return block == t_.qkv ? kNone : block; }
  void part(Node& node, std::int32_t step, std::int32_t slice) {
    node.step = step;
    node.slice = slice;
    node.first = std::exchange(first_, false);
    node.flops = (node.kernel == K::Attention ? 1 : 2.5) *  // 2 products forward, 5 backward
                 attention_flops(c_) / c_.plan.context_parallel;
    // A slice's own blocks are half of the square that it has in common with an earlier slice.
    if (c_.slice >= 0) node.flops *= (slice < 0 ? 1.0 : 2.0) / c_.plan.sequence_slices;
    node.parallel = c_.s.heads * ((c_.s.tokens + 127) / 128);
  }

  BodyBuilder& b_;
  const Context& c_;
  const LayerTensors& t_;
  NodePhase phase_;
  std::int64_t kv_, queries_;                                          // elements of k and v, of q
  T block_ = kNone, next_ = kNone, d_block_ = kNone, d_next_ = kNone;  // going round the ring
  bool first_ = true;
};

bool in_parts(const Context& c) {
  return c.plan.context_parallel > 1 || c.slice >= 0;
}

void attention_forward(BodyBuilder& b, const Context& c, const LayerTensors& t, NodePhase phase) {
  if (in_parts(c)) return AttentionParts(b, c, t, phase).forward();
  Node& core = b.node(K::Attention, "attention (causal, tiled)", {t.qkv}, {t.o, t.lse}, phase);
  core.flops = attention_flops(c);
  core.parallel = c.s.heads * ((c.s.tokens + 127) / 128);
}

void attention_backward(BodyBuilder& b, const Context& c, const LayerTensors& t, T d_o, T dqkv,
                        T delta) {
  if (in_parts(c)) return AttentionParts(b, c, t, NodePhase::Main).backward(d_o, dqkv, delta);
  Node& core =
      b.node(K::AttentionBackward, "attention backward", {d_o, t.qkv, t.o, t.lse}, {dqkv, delta});
  core.flops = 2.5 * attention_flops(c);  // 5 products instead of 2
  core.parallel = c.s.heads * ((c.s.tokens + 127) / 128);
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
  b.gemm(K::Linear, block.product, block.name, s.tokens, s.hidden, k, {x}, {z}, phase);
  reduce_output(b, c, z, phase, behind ? block.z : z);
  T given = z;
  if (behind) {
    given = b.tensor("normed", H::Workspace, c.activation);
    b.node(K::Norm, "norm behind the block", {block.z}, {given, block.statistics}, phase)
        .parameter = block.norm;
  }
  b.node(K::AddResidual, "add residual + bias", {residual, given}, {sum}, phase).parameter =
      block.product;
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
  b.node(K::QueryKeyNorm, "norms of q, k", {t.raw}, {t.qkv, t.st_raw}, phase).parameter =
      P::QueryNorm;
}

void query_key_norm_backward(BodyBuilder& b, const Context& c, const LayerTensors& t, T dqkv) {
  if (!norms_queries(c)) return;
  const T sums = b.tensor("sums of dq, dk", H::Workspace, query_key_statistics(c));
  if (shares_query_norm(c)) {
    b.collective(K::QueryKeySumsOverRanksBackward, "products of dq, dk; all_reduce sum tp",
                 query_key_statistics(c), dqkv, sums)
        .reads.push_back(t.raw);
  }
  b.node(K::QueryKeyNormBackward, "norms of q, k backward", {dqkv, t.raw, t.st_raw}, {dqkv, sums})
      .parameter = P::QueryNorm;
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

// Nodes 0 ... of the forward up to the second norm.
void attention_front(BodyBuilder& b, const Context& c, const LayerTensors& t, NodePhase phase) {
  const RankShape& s = c.s;
  if (has_norm_before(c)) {
    b.node(K::Norm, "norm1", {t.x}, {t.y1, t.st1}, phase).parameter = P::Norm1;
  } else {
    b.node(K::Copy, "keep x", {t.x}, {t.y1}, phase);  // a later weight gradient has no x
  }
  if (phase != NodePhase::Recompute || !keeps_qkv(c)) {
    const T Y1 = gather_input(b, c, t.y1, "Y1", phase);
    b.gemm(K::Linear, P::Qkv, "gemm qkv + bias", s.tokens, s.qkv, s.hidden, {Y1},
           {norms_queries(c) ? t.raw : t.qkv}, phase);
    query_key_norm(b, c, t, phase);
    if (c.model.positions == PositionKind::Rope) {
      b.node(K::Rope, "rope", {t.qkv}, {t.qkv}, phase);
    }
  }
  attention_forward(b, c, t, phase);
  close_block(b, c, attention_block(t), s.heads * s.head_dim, t.o,
              c.model.norm_is_residual ? t.y1 : t.x, t.x1, phase);
  if (has_norm_before(c)) {
    b.node(K::Norm, "norm2", {c.model.parallel_residual ? t.x : t.x1}, {t.y2, t.st2}, phase)
        .parameter = P::Norm2;
  }
}

// The dense MLP up to the input of the last product.
void mlp_front(BodyBuilder& b, const Context& c, const LayerTensors& t, NodePhase phase) {
  const RankShape& s = c.s;
  const T Y2 = gather_input(b, c, t.y2, "Y2", phase);
  b.gemm(K::Linear, P::Up, "gemm fc1 + bias", s.tokens, s.up, s.hidden, {Y2}, {t.u}, phase);
  const ActivationNodes activation = activation_of(c.model);
  b.node(activation.forward, activation.name, {t.u}, {t.g}, phase);
}

Body layer_forward(const Context& c) {
  BodyBuilder b(SegmentKind::Layer, c.direction);
  const LayerTensors t = layer_tensors(b, c);
  const T out = b.tensor("out", H::Output, c.activation);
  if (c.experts) {
    ExpertBody experts(b, c.layout);
    attention_front(b, c, t, NodePhase::Main);
    const T z = b.tensor("z of experts", H::Workspace, c.activation);
    experts.forward(t.y2, z);
    b.node(K::AddResidual, "add residual", {t.x1, z}, {out});
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
    b.node(K::NormBackward, "norm behind the block backward", {gradient, block.z, block.statistics},
           {dz})
        .parameter = block.norm;
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
  b.node(K::NormBackward, name, {gradient, input, statistics, residual}, {to}).parameter = norm;
}

// Of key/value heads that several tp ranks hold, each has the gradient of its own queries' part.
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

// Of the dense MLP: from dout to the gradient of the second norm's output, which it returns, summed
// over tp. A split backward gathers the gradients of both blocks twice: once for I, once for W.
T mlp_backward(BodyBuilder& b, const Context& c, const LayerTensors& t, T dout, T du) {
  const RankShape& s = c.s;
  const NodePhase late = NodePhase::Weight;
  const bool weight = c.direction == Direction::WeightGradient;
  const bool gated = c.model.mlp == MlpKind::Gated;
  const T dq = open_block(b, c, mlp_block(t), dout);
  const T D = gather_input(b, c, dq, "D");
  const T Dw = weight ? gather_input(b, c, dq, "D", late) : D;
  // Gated: the gradient of g is as wide as g, then becomes that of both halves of u.
  T dg = du;
  if (gated) {
    dg = b.tensor("dg", H::Workspace, s.element * s.tokens * s.ffn);
  }
  b.gemm(K::LinearInput, P::Down, "gemm d_fc2 input", s.tokens, s.ffn, s.hidden, {D}, {dg});
  b.gemm(K::LinearWeight, P::Down, "gemm d_fc2 weight, bias", s.ffn, s.hidden, s.tokens,
         {Dw, t.g, dq}, {}, late);
  const ActivationNodes activation = activation_of(c.model);
  b.node(activation.backward, activation.backward_name, {dg, t.u}, {du});
  const T Y2 = gather_input(b, c, t.y2, "Y2", late);
  b.gemm(K::LinearWeight, P::Up, "gemm d_fc1 weight, bias", s.hidden, s.up, s.tokens, {du, Y2}, {},
         late);
  const T e2 = b.tensor("e2", H::Workspace, c.gathered);
  b.gemm(K::LinearInput, P::Up, "gemm d_fc1 input", s.tokens, s.hidden, s.up, {du}, {e2});
  reduce_output(b, c, e2);
  return e2;
}

Body layer_backward(const Context& c) {
  const RankShape& s = c.s;
  const NodePhase late = NodePhase::Weight;
  const bool weight = c.direction == Direction::WeightGradient;
  const bool parallel = c.model.parallel_residual;
  BodyBuilder b(SegmentKind::Layer, c.direction);
  const LayerTensors t = layer_tensors(b, c);
  std::optional<ExpertBody> experts;
  if (c.experts) experts.emplace(b, c.layout);
  const H keep = c.split ? H::LeftForWgrad : H::Workspace;
  const T dout = b.tensor("dout", H::OutputGradient, c.activation);
  const T du = experts ? kNone : b.tensor("du", keep, s.element * s.tokens * s.up);
  const T dx1 = b.tensor("dx1", keep, c.activation);
  const T dqkv = b.tensor("dqkv", keep, s.element * s.tokens * s.qkv);
  const T dx = b.tensor("dx", H::InputGradient, c.activation);

  if (c.plan.recompute == RecomputeMode::Full) {
    attention_front(b, c, t, NodePhase::Recompute);
    if (experts) {
      experts->recompute(t.y2);
    } else {
      mlp_front(b, c, t, NodePhase::Recompute);
    }
  } else if (c.plan.recompute == RecomputeMode::Selective) {
    attention_forward(b, c, t, NodePhase::Recompute);
  }
  T e2;
  if (experts) {
    e2 = b.tensor("e2", H::Workspace, c.activation);
    experts->backward(t.y2, dout, e2);
  } else {
    e2 = mlp_backward(b, c, t, dout, du);
  }
  join_gradients(b, c, "norm2 backward + residual", P::Norm2, e2, parallel ? t.x : t.x1, t.st2,
                 dout, dx1);
  // Attention. Where both blocks read x, what it gave joined the same sum as what the MLP gave.
  const T dz = open_block(b, c, attention_block(t), parallel ? dout : dx1);
  const T D1 = gather_input(b, c, dz, "D1");
  const T D1w = weight ? gather_input(b, c, dz, "D1", late) : D1;
  const T d_o = b.tensor("do", H::Workspace, s.element * s.tokens * s.heads * s.head_dim);
  b.gemm(K::LinearInput, P::Projection, "gemm d_proj input", s.tokens, s.heads * s.head_dim,
         s.hidden, {D1}, {d_o});
  b.gemm(K::LinearWeight, P::Projection, "gemm d_proj weight, bias", s.heads * s.head_dim, s.hidden,
         s.tokens, {D1w, t.o, dz}, {}, late);
  const T rs = b.tensor("rs", H::Workspace, 4 * s.heads * s.tokens);
  attention_backward(b, c, t, d_o, dqkv, rs);
  if (c.model.positions == PositionKind::Rope) {
    b.node(K::RopeBackward, "rope backward", {dqkv}, {dqkv});
  }
  query_key_norm_backward(b, c, t, dqkv);
  const T e1 = b.tensor("e1", H::Workspace, c.gathered);
  const auto input = [&] {
    b.gemm(K::LinearInput, P::Qkv, "gemm d_qkv input", s.tokens, s.hidden, s.qkv, {dqkv}, {e1});
    reduce_output(b, c, e1);
  };
  const bool shared = c.layout.key_value_replicas() > 1;
  // e1 is summed over tp: it takes what each rank has alone, the weights' take the sum
  if (shared) {
    input();
    sum_shared_heads(b, c, dqkv);
  }
  const T Y1 = gather_input(b, c, t.y1, "Y1", late);
  b.gemm(K::LinearWeight, P::Qkv, "gemm d_qkv weight, bias", s.hidden, s.qkv, s.tokens, {dqkv, Y1},
         {}, late);
  if (!shared) input();
  join_gradients(b, c, "norm1 backward + residual", P::Norm1, e1, t.x, t.st1, dx1, dx);
  return b.finish();
}

struct EmbeddingNorm {
  T rows = kNone, statistics = kNone;
  T weight = kNone;  // an embedding's backward reads no parameters, so the forward keeps it
};
EmbeddingNorm embedding_norm(BodyBuilder& b, const Context& c) {
  if (!c.model.embedding_norm) return {};
  return {.rows = b.tensor("e", H::SavedForWgrad, c.activation),
          .statistics = b.tensor("st", H::SavedForWgrad, c.statistics),
          .weight = b.tensor("weight of the norm", H::SavedForWgrad, c.s.element * c.s.hidden)};
}

Body embedding_forward(const Context& c) {
  BodyBuilder b(SegmentKind::Embedding, c.direction);
  const T tokens = b.tensor("tokens", H::Tokens, 4 * c.s.tokens);
  const T out = b.tensor("out", H::Output, c.activation);
  const EmbeddingNorm norm = embedding_norm(b, c);
  const T own = c.model.embedding_norm ? norm.rows : out;  // of this rank's tokens
  const T rows = c.s.tensor > 1 ? b.tensor("p", H::Workspace, c.gathered) : own;
  b.node(K::Lookup, "lookup of own vocabulary rows", {tokens}, {rows}).parameter = P::Table;
  reduce_output(b, c, rows);
  if (c.model.positions == PositionKind::Learned || rows != own) {
    b.node(K::AddPositions, "add positions", {rows}, {own}).parameter = P::Positions;
  }
  if (c.model.embedding_norm) {
    b.node(K::Norm, "embedding norm", {norm.rows}, {out, norm.statistics, norm.weight}).parameter =
        P::EmbeddingNorm;
  }
  if (c.plan.dropouts.embedding > 0) {
    b.node(K::Dropout, "embedding dropout", {out}, {out}).parameter = P::Table;
  }
  return b.finish();
}

Body embedding_backward(const Context& c) {
  const NodePhase late = NodePhase::Weight;
  BodyBuilder b(SegmentKind::Embedding, c.direction);
  const T tokens = b.tensor("tokens", H::Tokens, 4 * c.s.tokens);
  T dx = b.tensor("dx", H::OutputGradient, c.activation);
  const EmbeddingNorm norm = embedding_norm(b, c);
  if (c.plan.dropouts.embedding > 0) {
    const T dropped = b.tensor("dropped gradient", H::Workspace, c.activation);
    b.node(K::DropoutBackward, "embedding dropout backward", {dx}, {dropped}, late).parameter =
        P::Table;
    dx = dropped;
  }
  if (c.model.embedding_norm) {
    const T de = b.tensor("de", H::Workspace, c.activation);
    b.node(K::NormBackward, "embedding norm backward",
           {dx, norm.rows, norm.statistics, norm.weight}, {de}, late)
        .parameter = P::EmbeddingNorm;
    dx = de;
  }
  if (c.model.positions == PositionKind::Learned) {
    b.node(K::PositionGradient, "position gradient", {dx}, {}, late).parameter = P::Positions;
  }
  const T G = gather_input(b, c, dx, "G", late);
  const T order = b.tensor("order", H::Workspace, 4 * c.s.tokens);
  b.node(K::SortTokens, "sort tokens", {tokens}, {order}, late);
  b.node(K::TableGradient, "row sums into the table gradient", {G, order}, {}, late).parameter =
      P::Table;
  return b.finish();
}

// The loss and the gradient of the logits, chunk by chunk: no logits are kept, and the gradient
// chain up to the final norm runs with the forward. d_logits carry 1/(m d n).
Body head_forward(const Context& c) {
  const RankShape& s = c.s;
  BodyBuilder b(SegmentKind::Head, c.direction);
  const P table = c.model.tied_embedding ? P::Table : P::Head;
  const T x = b.tensor("x", H::Input, c.activation);
  const T targets = b.tensor("targets", H::Tokens, 4 * s.tokens);
  const T y = b.tensor("y", H::Workspace, c.activation);
  const T st = b.tensor("st", H::SavedForDgrad, c.statistics);
  const T dY = b.tensor("dY", H::SavedForDgrad, c.activation);
  const T loss = b.tensor("loss", H::Loss, 4);
  b.node(K::Norm, "final norm", {x}, {y, st}).parameter = P::FinalNorm;
  const T Y = gather_input(b, c, y, "Y");
  const T partial = s.gather ? b.tensor("dYp", H::Workspace, c.gathered) : dY;
  for (std::int64_t begin = 0; begin < s.tokens; begin += s.loss_chunk) {
    const std::int64_t rows = std::min(s.loss_chunk, s.tokens - begin);
    const T lg = b.tensor("lg", H::Workspace, 4 * rows * s.vocabulary);
    const T mx = b.tensor("mx", H::Workspace, 4 * rows);
    const T se = b.tensor("se", H::Workspace, 8 * rows);
    const T dl = b.tensor("dl", H::Workspace, s.element * rows * s.vocabulary);
    b.gemm(K::Logits, table, "gemm logits", rows, s.vocabulary, s.hidden, {Y}, {lg});
    if (s.tensor > 1) {
      b.collective(K::MaximaOverRanks, "row maxima; all_reduce max tp", 4 * rows, lg, mx);
      Node& sums =
          b.collective(K::SumsOverRanks, "row sums, targets; all_reduce sum tp", 8 * rows, lg, se);
      sums.reads.push_back(mx);
    } else {
      b.node(K::RowMaxima, "row maxima", {lg}, {mx});
      b.node(K::RowSums, "row sums, targets", {lg, mx, targets}, {se});
    }
    b.node(K::Loss, "loss, d_logits", {lg, mx, se, targets}, {dl, loss});
    b.gemm(K::LogitsInput, table, "gemm d_input", rows, s.hidden, s.vocabulary, {dl}, {partial});
    b.gemm(K::LogitsWeight, table, "gemm d_table", s.hidden, s.vocabulary, rows, {dl, Y}, {});
  }
  if (s.tensor > 1) {
    b.collective(s.gather ? K::ReduceScatter : K::AllReduce,
                 s.gather ? "reduce_scatter tp" : "all_reduce tp", c.gathered, partial, dY);
  }
  return b.finish();
}

Body head_backward(const Context& c) {
  BodyBuilder b(SegmentKind::Head, c.direction);
  const T x = b.tensor("x", H::Input, c.activation);
  const T st = b.tensor("st", H::SavedForDgrad, c.statistics);
  const T dY = b.tensor("dY", H::SavedForDgrad, c.activation);
  const T dx = b.tensor("dx", H::InputGradient, c.activation);
  b.node(K::NormBackward, "final norm backward", {dY, x, st}, {dx}).parameter = P::FinalNorm;
  return b.finish();
}

}  // namespace

Body make_rehearse_body(const Layout& layout, const BodyShape& shape) {
  const Context c = context_of(layout, shape);
  const bool forward = shape.direction == Direction::Forward;
  switch (shape.segment) {
    case SegmentKind::Embedding:
      return forward ? embedding_forward(c) : embedding_backward(c);
    case SegmentKind::Layer:
      return forward ? layer_forward(c) : layer_backward(c);
    case SegmentKind::Head:
      return forward ? head_forward(c) : head_backward(c);
  }
  return {};
}

}  // namespace rehearse
