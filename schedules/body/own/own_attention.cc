// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/own/own_attention.h"

#include <algorithm>
#include <utility>

#include "schedules/body/sizes.h"

namespace rehearse::own {
namespace {

using H = TensorHome;
using K = Kernel;

// FLOPs of the causal attention core: of products as wide as a head's keys, and as its
// values. The forward has one of each: half of 4 s^2 d per head and sample.
double attention_flops(const Context& c, std::int64_t key_products, std::int64_t value_products) {
  const std::int64_t s = c.plan.sequence_length;
  const double pairs = c.reach ? attention_pairs(*c.reach, s) : attention_pairs(c.model, s);
  const double keys = pairs / static_cast<double>(s);  // of a query, in the mean
  return 2.0 * static_cast<double>(c.s.tokens) * keys * static_cast<double>(c.s.heads) *
         static_cast<double>(key_products * c.s.head_dim + value_products * c.s.value_dim) *
         c.plan.attention_share();
}
double forward_flops(const Context& c) {
  return attention_flops(c, 1, 1);
}
double backward_flops(const Context& c) {
  return attention_flops(c, 3, 2);
}

// The attention core in parts: a rank's queries meet the keys of one block at a time, what the
// parts give is merged by log-sum-exp. Blocks are the rank's own keys and, round the ring, those of
// the others (Liu et al. 2023, arXiv 2310.01889), of the op's slice and of every slice before it
// (Li et al. 2021, TeraPipe). Each of the c ranks holds chunks i and 2c - 1 - i of every slice, so
// that each step has equal work under the causal mask. Nothing hides the shifts: the cursor runs
// node by node.
class AttentionParts {
 public:
  AttentionParts(BodyBuilder& b, const Context& c, const AttentionTensors& t, NodePhase phase)
      : b_(b),
        c_(c),
        t_(t),
        phase_(phase),
        kv_(c.s.tokens * c.s.kv_heads * (c.s.head_dim + c.s.value_dim)),
        queries_(c.s.tokens * c.s.heads * c.s.head_dim),
        outputs_(c.s.tokens * c.s.heads * c.s.value_dim) {}

  // The own block comes first: no row is without keys.
  void forward() {
    const T sum = b_.tensor("o sum", H::Workspace, 4 * outputs_);
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
    node.flops = (node.kernel == K::Attention ? forward_flops(c_) : backward_flops(c_)) /
                 c_.plan.context_parallel;
    // A slice's own blocks are half of the square that it has in common with an earlier slice.
    if (c_.slice >= 0) node.flops *= (slice < 0 ? 1.0 : 2.0) / c_.plan.sequence_slices;
    node.parallel = c_.s.heads * ((c_.s.tokens + 127) / 128);
  }

  BodyBuilder& b_;
  const Context& c_;
  const AttentionTensors& t_;
  NodePhase phase_;
  std::int64_t kv_, queries_, outputs_;                                // elements: k and v, q, o
  T block_ = kNone, next_ = kNone, d_block_ = kNone, d_next_ = kNone;  // going round the ring
  bool first_ = true;
};

bool in_parts(const Context& c) {
  return c.plan.context_parallel > 1 || c.slice >= 0;
}

}  // namespace

void attention_forward(BodyBuilder& b, const Context& c, const AttentionTensors& t,
                       NodePhase phase) {
  if (in_parts(c)) return AttentionParts(b, c, t, phase).forward();
  Node& core = b.node(K::Attention, "attention (causal, tiled)", {t.qkv}, {t.o, t.lse}, phase);
  core.flops = forward_flops(c);
  core.parallel = c.s.heads * ((c.s.tokens + 127) / 128);
}

void attention_backward(BodyBuilder& b, const Context& c, const AttentionTensors& t, T d_o, T dqkv,
                        T delta) {
  if (in_parts(c)) return AttentionParts(b, c, t, NodePhase::Main).backward(d_o, dqkv, delta);
  Node& core =
      b.node(K::AttentionBackward, "attention backward", {d_o, t.qkv, t.o, t.lse}, {dqkv, delta});
  core.flops = backward_flops(c);
  core.parallel = c.s.heads * ((c.s.tokens + 127) / 128);
}

}  // namespace rehearse::own
