// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/own/own_attention.h"

#include <algorithm>
#include <utility>

#include "schedules/body/own/own_head_exchange.h"
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
// parts give is merged by log-sum-exp. Blocks are the rank's own keys and those of the others,
// which come round a ring (Liu et al. 2023, arXiv 2310.01889) or are gathered at once (Llama 3,
// arXiv 2407.21783, section 3.3.2), of the op's slice and of every slice before it (Li et al. 2021,
// TeraPipe). Each of the c ranks holds chunks i and 2c - 1 - i of every slice, so that each step
// has equal work under the causal mask. Nothing hides the exchanges: the cursor runs node by node.
// Where neighbours have exchanged heads, a place of the ring is theirs together, and so are its two
// chunks.
class AttentionParts {
 public:
  AttentionParts(BodyBuilder& b, const Context& c, const AttentionTensors& t, NodePhase phase)
      : b_(b),
        c_(c),
        t_(t),
        phase_(phase),
        share_(head_share(c.layout)),
        tokens_(c.s.tokens * share_.ranks),
        kv_(tokens_ * share_.kv_heads * (c.s.head_dim + c.s.value_dim)),
        queries_(tokens_ * share_.heads * c.s.head_dim),
        outputs_(tokens_ * share_.heads * c.s.value_dim) {}

  // The own block comes first: no row is without keys.
  void forward() {
    const T sum = b_.tensor("o sum", H::Workspace, 4 * outputs_);
    if (shared()) make_blocks();
    for (std::int32_t slice = -1; slice < std::max(c_.slice, 0); ++slice) {
      const T own = keys(slice);
      meet(own, sum, 0, slice);
      if (!shared()) continue;
      pack_keys(own);
      for (std::int32_t step = 1; step < places_; ++step) {
        if (!gathers_) shift_keys();
        meet(gathers_ ? next_ : block_, sum, step, slice);
      }
    }
    b_.node(K::StoreOutput, "store o", {sum}, {t_.o}, phase_);
  }

  // K/V blocks go round again, and behind them their gradients (fp32), to which every rank adds:
  // they arrive at home after c - 1 shifts, where the own part comes last. Gathered blocks'
  // gradients come home in one sum over the ranks. Slices come in reverse: each adds to dK, dV of
  // all before it, and finds its own with what the later ones have added.
  void backward(T d_o, T dqkv, T delta) {
    const T sum = b_.tensor("dq sum", H::Workspace, 4 * queries_);
    const T kept = c_.slice < 0 ? kNone : b_.tensor("dkv", H::KeyValueGradient, 4 * kv_);
    if (shared()) {
      make_blocks();
      d_block_ = b_.tensor(gathers_ ? "dkv" : "dkv ring", H::Workspace, 4 * kv_);
      d_next_ =
          b_.tensor(gathers_ ? "dkv of all ranks" : "dkv ring", H::Workspace, 4 * kv_ * blocks());
    }
    const auto slice_backward = [&](std::int32_t slice) {
      const T own = keys(slice);
      T home = slice < 0 ? kept : b_.earlier("dkv of an earlier slice", kept, slice, 4 * kv_);
      if (shared()) {
        pack_keys(own);
        for (std::int32_t step = 1; step < places_; ++step) {
          if (!gathers_) shift_keys();
          if (!gathers_ && step > 1) shift_gradients();
          meet_backward(d_o, gathers_ ? next_ : block_, {sum, gathers_ ? d_next_ : d_block_, delta},
                        step, slice);
        }
        gathers_ ? sum_gradients() : shift_gradients();
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
  bool shared() const { return places_ > 1; }
  // Blocks of keys that the second array of them has room for, and that of their gradients.
  std::int64_t blocks() const { return gathers_ ? places_ : 1; }
  void make_blocks() {
    block_ = b_.tensor(gathers_ ? "kv" : "kv ring", H::Workspace, c_.s.element * kv_);
    next_ = b_.tensor(gathers_ ? "kv of all ranks" : "kv ring", H::Workspace,
                      c_.s.element * kv_ * blocks());
  }
  void pack_keys(T own) {
    b_.node(K::PackKeys, "pack k, v", {own}, {block_}, phase_);
    if (!gathers_) return;
    b_.collective(K::AllGather, "all_gather cp k, v", c_.s.element * kv_ * blocks(), block_, next_,
                  phase_)
        .axis = axis_of_keys(c_.plan);
  }
  void sum_gradients() {
    Node& node = b_.collective(K::ReduceScatter, "reduce_scatter cp dk, dv", 4 * kv_ * blocks(),
                               d_next_, d_block_, phase_);
    node.axis = axis_of_keys(c_.plan);
    node.fp32 = true;
  }
  // What holds this rank's keys and values of a slice; -1: the op's own.
  T keys(std::int32_t slice) {
    if (slice < 0) return t_.qkv;
    return b_.earlier("k, v of an earlier slice", t_.qkv, slice, c_.s.element * kv_);
  }

  void shift(Kernel kernel, std::string_view name, T& from, T& to, std::int64_t bytes) {
    b_.collective(kernel, name, bytes, from, to, phase_).axis = axis_of_keys(c_.plan);
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
                                  : gathers_  ? "attention (gathered block)"
                                              : "attention (block of the ring)";
    part(b_.node(K::Attention, name, {t_.qkv, other(block)}, {sum, t_.lse}, phase_), step, slice);
  }
  void meet_backward(T d_o, T block, std::initializer_list<T> writes, std::int32_t step,
                     std::int32_t slice) {
    const std::string_view name = slice >= 0  ? "attention backward (earlier slice)"
                                  : step == 0 ? "attention backward (own block)"
                                  : gathers_  ? "attention backward (gathered block)"
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
    node.flops = (node.kernel == K::Attention ? forward_flops(c_) : backward_flops(c_)) / places_;
    // A slice's own blocks are half of the square that it has in common with an earlier slice.
    if (c_.slice >= 0) node.flops *= (slice < 0 ? 1.0 : 2.0) / c_.plan.sequence_slices;
    node.parallel = share_.heads * ((tokens_ + 127) / 128);
  }

  BodyBuilder& b_;
  const Context& c_;
  const AttentionTensors& t_;
  NodePhase phase_;
  HeadShare share_;
  std::int64_t tokens_;                  // with which this rank attends
  std::int64_t kv_, queries_, outputs_;  // elements: k and v, q, o
  std::int32_t places_ = key_blocks(c_.plan);
  bool gathers_ = gathers_keys(c_.plan);
  // Going round the ring; or a rank's own, and what is gathered of all.
  T block_ = kNone, next_ = kNone, d_block_ = kNone, d_next_ = kNone;
  bool first_ = true;
};

bool in_parts(const Context& c) {
  return key_blocks(c.plan) > 1 || c.slice >= 0;
}

// Tiles of a core that is whole: all tokens of the heads that this rank attends with.
std::int64_t tiles(const Context& c) {
  const HeadShare share = head_share(c.layout);
  return share.heads * ((c.s.tokens * share.ranks + 127) / 128);
}

}  // namespace

void bring_heads(BodyBuilder& b, const Context& c, const AttentionTensors& t, NodePhase phase) {
  if (!exchanges_heads(c.plan)) return;
  take_heads(b, c, Exchanged::QueriesAndKeys, t.qkv, t.qkv_of_heads, phase);
}

void attention_forward(BodyBuilder& b, const Context& c, const AttentionTensors& t,
                       NodePhase phase) {
  const bool exchanged = exchanges_heads(c.plan);
  AttentionTensors core = t;  // what the core reads and writes
  if (exchanged) {
    core.qkv = t.qkv_of_heads;
    core.o = t.o_of_heads;
  }
  if (in_parts(c)) {
    AttentionParts(b, c, core, phase).forward();
  } else {
    Node& node =
        b.node(K::Attention, "attention (causal, tiled)", {core.qkv}, {core.o, t.lse}, phase);
    node.flops = forward_flops(c);
    node.parallel = tiles(c);
  }
  if (exchanged) give_heads(b, c, Exchanged::Outputs, core.o, t.o, phase);
}

void attention_backward(BodyBuilder& b, const Context& c, const AttentionTensors& t, T d_o, T dqkv,
                        T delta) {
  const bool exchanged = exchanges_heads(c.plan);
  AttentionTensors core = t;
  T d_out = d_o, d_in = dqkv;
  if (exchanged) {
    core.qkv = t.qkv_of_heads;
    core.o = t.o_of_heads;
    d_out = b.tensor("do of heads", H::Workspace, bytes_of_heads(c, Exchanged::Outputs));
    d_in = b.tensor("dqkv of heads", H::Workspace, bytes_of_heads(c, Exchanged::QueriesAndKeys));
    take_heads(b, c, Exchanged::Outputs, d_o, d_out, NodePhase::Main);
  }
  if (in_parts(c)) {
    AttentionParts(b, c, core, NodePhase::Main).backward(d_out, d_in, delta);
  } else {
    Node& node = b.node(K::AttentionBackward, "attention backward",
                        {d_out, core.qkv, core.o, t.lse}, {d_in, delta});
    node.flops = backward_flops(c);
    node.parallel = tiles(c);
  }
  if (exchanged) give_heads(b, c, Exchanged::QueriesAndKeys, d_in, dqkv, NodePhase::Main);
}

}  // namespace rehearse::own
