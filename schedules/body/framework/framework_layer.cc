// SPDX-License-Identifier: Apache-2.0
// The kernels of one transformer layer as Megatron-LM and PyTorch FSDP launch them.
//
// Kernel counts are those of the eager frameworks (views and small copies of an operation are
// counted with it): 27 for a forward with unfused attention. Bytes per element:
// docs/cost_models.md.
#include <algorithm>
#include <array>
#include <cmath>

#include "schedules/body/framework/framework_nodes.h"
#include "schedules/body/head_share.h"
#include "schedules/scenario/memory/recompute_parts.h"

namespace rehearse {
namespace {

using K = Kernel;
using P = NodePhase;

// One linear layer: y[rows, n] = x[rows, k] W[k, n], `batch` independent ones.
struct Product {
  std::string_view forward, input, weight;
  std::int64_t rows = 0, n = 0, k = 0, batch = 1;
  bool from_latent = false;  // of what compressed queries or keys are widened to
};

constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

struct Layer {
  FrameworkNodes& b;
  std::vector<Product> before, up, down;  // what feeds attention; MLP in; MLP out
  Product projection;
  bool experts = false;  // in place of up and down: framework_experts.cc

  const RuntimeTraits& runtime() const { return b.plan.runtime; }
  bool unfused() const { return !is_fused(b.plan.attention_kernel); }
  bool dropout() const { return b.plan.dropouts.residual > 0; }
  bool attention_dropout() const { return b.plan.dropouts.attention > 0; }
  bool gated() const { return b.model.mlp == MlpKind::Gated; }
  bool norm_before() const { return b.model.norm_placement != NormPlacement::After; }
  bool second_norm() const { return norm_before() && b.model.has_mlp && !b.model.one_norm; }
  bool mixes() const { return has_mixer(b.model); }
  bool attends() const { return b.model.has_attention; }
  bool feeds_forward() const { return b.model.has_mlp; }
  bool norm_behind() const { return b.model.norm_placement != NormPlacement::Before; }
};

// A product in front of the attention core, by the part that it multiplies with.
struct NamedProduct {
  ParameterRole role = ParameterRole::None;
  std::string_view forward, input, weight;
  bool from_latent = false;
};
using Role = ParameterRole;
constexpr std::array kBeforeAttention{
    NamedProduct{Role::Qkv, "gemm qkv", "gemm d_qkv input", "gemm d_qkv weight"},
    NamedProduct{Role::QueryDown, "gemm q down", "gemm d_q down input", "gemm d_q down weight"},
    NamedProduct{Role::Query, "gemm q up", "gemm d_q up input", "gemm d_q up weight", true},
    NamedProduct{Role::QueryUp, "gemm q up", "gemm d_q up input", "gemm d_q up weight", true},
    NamedProduct{Role::KeyValueDown, "gemm kv down", "gemm d_kv down input",
                 "gemm d_kv down weight"},
    NamedProduct{Role::KeyValueUp, "gemm kv up", "gemm d_kv up input", "gemm d_kv up weight", true},
};

void add_attention_products(Layer& layer) {
  if (!layer.b.model.has_attention) return;
  const RankShape& s = layer.b.s;
  const std::vector<ModelPart> parts = layer_parts(layer.b.model, 0);
  for (const ModelPart& part : parts) {
    const auto named = std::ranges::find(kBeforeAttention, part.role, &NamedProduct::role);
    if (named == kBeforeAttention.end() || part.bias) continue;
    const std::int64_t rows = part.cut == Cut::Rows ? rows_of_rank(part, s.tensor) : part.out;
    layer.before.push_back({named->forward, named->input, named->weight, s.tokens, rows, part.in,
                            /*batch=*/1, named->from_latent});
  }
  const ModelPart& projection = *find_part(parts, Role::Projection);
  layer.projection = {"gemm proj", "gemm d_proj input", "gemm d_proj weight",
                      s.tokens,    projection.out,      projection.in / s.tensor};
}

Layer describe(FrameworkNodes& nodes, bool experts) {
  Layer layer{.b = nodes, .experts = experts};
  add_attention_products(layer);
  if (experts && !nodes.model.experts.beside_mlp) return layer;
  const RankShape& s = nodes.s;
  const bool split = layer.gated() && layer.runtime().gated_mlp == GatedMlp::Split;
  layer.up.push_back({"gemm fc1", "gemm d_fc1 input", "gemm d_fc1 weight", s.tokens,
                      split ? s.up / 2 : s.up, s.hidden});
  if (split) {
    layer.up.push_back(
        {"gemm gate", "gemm d_gate input", "gemm d_gate weight", s.tokens, s.up / 2, s.hidden});
  }
  layer.down.push_back(
      {"gemm fc2", "gemm d_fc2 input", "gemm d_fc2 weight", s.tokens, s.hidden, s.ffn});
  return layer;
}

void forward_product(Layer& layer, const Product& p, P phase, WrittenBy input = WrittenBy::Other) {
  layer.b.gemm(K::Linear, p.forward, p.rows, p.n, p.k, phase, p.batch, true, input);
}
void input_gradient(Layer& layer, const Product& p) {
  layer.b.gemm(K::LinearInput, p.input, p.rows, p.k, p.n, P::Main, p.batch);
}
void weight_gradient(Layer& layer, const Product& p) {
  layer.b.gemm(K::LinearWeight, p.weight, p.k, p.n, p.rows, P::Weight, p.batch);
  layer.b.accumulate(p.batch * p.k * p.n);
}

// FLOPs of the fused core on the slowest rank: where context parallelism cuts the sequence in
// contiguous blocks, the last of those that the core meets has the most keys to attend to.
double fused_flops(const Layer& layer) {
  const RankShape& s = layer.b.s;
  const LatentAttention& mla = layer.b.model.latent;
  const double widths =
      mla.used() ? static_cast<double>(mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim)
                 : static_cast<double>(2 * s.head_dim);
  const double context = layer.b.plan.context_parallel, blocks = key_blocks(layer.b.plan);
  const double imbalance = layer.runtime().context_parallel_balance ? 1 : (2 * blocks - 1) / blocks;
  const double samples =
      static_cast<double>(s.tokens) * context / static_cast<double>(layer.b.plan.sequence_length);
  return 2 * samples * layer.b.plan.attention_share() * layer.b.pairs / context * imbalance *
         widths * static_cast<double>(s.heads);
}

// Slices of the sequence: the k-th meets k of them, so their mean (S + 1)/2.
double slices_met(const Layer& layer) {
  return (layer.b.plan.sequence_slices + 1) / 2.0;
}
// What a rank attends with.
struct CoreShape {
  std::int64_t queries = 0;  // of a sample
  std::int64_t heads = 0;    // of all samples
};
CoreShape core_shape(const Layer& layer) {
  const Plan& plan = layer.b.plan;
  const RankShape& s = layer.b.s;
  const HeadShare& share = layer.b.share;
  const std::int64_t queries = plan.sequence_length / key_blocks(plan) / plan.sequence_slices;
  CoreShape made{.queries = std::max<std::int64_t>(1, queries)};
  made.heads = share.heads * (s.tokens * share.ranks / made.queries);
  return made;
}

// Ranks that share a sequence come to its keys and values before the core, or to the heads that
// they attend with; and to the gradients behind it. NVIDIA/TransformerEngine@d0067d0
// transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py.
class ContextExchange {
 public:
  ContextExchange(Layer& layer, bool backward, P phase)
      : layer_(layer), s_(layer.b.s), backward_(backward), phase_(phase) {}

  void before_core() {
    if (layer_.b.plan.context_parallel == 1) return;
    switch (layer_.b.plan.context_parallel_algorithm) {
      case ContextParallelAlgorithm::Ring:
        return ring();
      case ContextParallelAlgorithm::AllGather:
        return gather();
      case ContextParallelAlgorithm::AllToAll:
        return bring_heads();
      case ContextParallelAlgorithm::AllToAllAndRing:
        bring_heads();
        return ring();
    }
  }
  void behind_core() {
    if (exchanges_heads(layer_.b.plan)) {
      if (!backward_) return exchange({{"all_to_all cp o", outputs()}});
      return exchange({{"all_to_all cp dq", queries()},
                       {"all_to_all cp dk", keys()},
                       {"all_to_all cp dv", values()}});
    }
    if (backward_ && gathers_keys(layer_.b.plan)) {
      add(K::ReduceScatter, "reduce_scatter cp dk", of_all(s_.head_dim));
      add(K::ReduceScatter, "reduce_scatter cp dv", of_all(s_.value_dim));
    }
  }

 private:
  struct Array {
    std::string_view name;
    std::int64_t bytes = 0;
  };
  std::int64_t of_tokens(std::int64_t columns) const { return s_.element * s_.tokens * columns; }
  std::int64_t of_all(std::int64_t columns) const {
    const auto bytes = static_cast<double>(of_tokens(s_.kv_heads * columns));
    return std::llround(bytes * layer_.b.plan.context_parallel * slices_met(layer_));
  }
  // Key heads that several ranks read travel to each of them.
  std::int64_t key_heads() const { return layer_.b.share.kv_heads * layer_.b.share.ranks; }
  std::int64_t queries() const { return of_tokens(s_.heads * s_.head_dim); }
  std::int64_t keys() const { return of_tokens(key_heads() * s_.head_dim); }
  std::int64_t values() const { return of_tokens(key_heads() * s_.value_dim); }
  std::int64_t outputs() const { return of_tokens(s_.heads * s_.value_dim); }

  Node& add(Kernel kernel, std::string_view name, std::int64_t bytes, std::int32_t launches = 1) {
    Node& node = layer_.b.add(kernel, name, bytes, phase_, launches);
    node.axis = axis_of_keys(layer_.b.plan);
    return node;
  }
  void bring_heads() {
    if (backward_) return exchange({{"all_to_all cp do", outputs()}});
    exchange({{"all_to_all cp q", queries()},
              {"all_to_all cp k", keys()},
              {"all_to_all cp v", values()}});
  }
  void ring() {
    const std::int32_t ranks = key_blocks(layer_.b.plan);
    const std::int64_t element = backward_ ? s_.element + 4 : s_.element;
    const double block = static_cast<double>(element * s_.tokens * 2 * key_heads() * s_.head_dim);
    add(K::RingKeys, "ring exchange cp", std::llround(block * (ranks - 1) * slices_met(layer_)),
        ranks)
        .overlapped = true;
  }
  void gather() {
    add(K::AllGather, "all_gather cp k", of_all(s_.head_dim));
    add(K::AllGather, "all_gather cp v", of_all(s_.value_dim));
  }
  // Rows are laid out by receiver, and what came in the order of the sequence.
  void exchange(std::initializer_list<Array> arrays) {
    for (const Array& array : arrays) {
      layer_.b.add(K::Elementwise, "heads by rank", 2 * array.bytes, phase_);
      add(K::AllToAll, array.name, array.bytes).axis = axis_of_heads(layer_.b.plan);
      layer_.b.add(K::Elementwise, "tokens in order", 2 * array.bytes, phase_);
    }
  }

  Layer& layer_;
  const RankShape& s_;
  bool backward_;
  P phase_;
};

void fused_core(Layer& layer, bool backward, P phase) {
  const RankShape& s = layer.b.s;
  Node& core = layer.b.add(backward ? K::AttentionBackward : K::Attention,
                           backward ? "attention backward" : "attention (flash)",
                           s.element * s.tokens * (2 * s.heads + 2 * s.kv_heads) * s.head_dim,
                           phase, backward ? 6 : 4);
  core.flops = fused_flops(layer) * (backward ? 2.5 : 1);
  const CoreShape shape = core_shape(layer);
  core.parallel = shape.heads * ceil_divide(shape.queries, 128);
}

// Two (backward: four) batched products over the full square (of slices: over all keys that their
// mean one sees), softmax and dropout on it.
// Eager: softmax and its mask op by op in fp32, as torch code without a kernel for it.
void unfused_core(Layer& layer, bool backward, P phase) {
  FrameworkNodes& b = layer.b;
  const RankShape& s = b.s;
  const auto [queries, batch] = core_shape(layer);
  const std::int64_t keys = std::llround(
      static_cast<double>(b.plan.sequence_length / b.plan.sequence_slices) * slices_met(layer));
  const std::int64_t scores = batch * queries * keys;
  const bool eager = b.plan.attention_kernel == AttentionKernel::Eager;
  const LatentAttention& mla = b.model.latent;
  const std::int64_t key_dim =
      mla.used() ? mla.qk_nope_head_dim + mla.qk_rope_head_dim : s.head_dim;
  const std::int64_t value_dim = mla.used() ? mla.v_head_dim : s.head_dim;
  if (!backward) {
    b.gemm(K::Product, "scores", queries, keys, key_dim, phase, batch, false);
    if (b.model.attention_softcap > 0) b.add(K::Elementwise, "soft cap", 12 * scores, phase, 3);
    b.add(K::Scores, "scale, mask, softmax", (eager ? 29 : 4) * scores, phase, eager ? 6 : 3);
    if (layer.attention_dropout()) b.add(K::Dropout, "attention dropout", 5 * scores, phase);
    b.gemm(K::Product, "context", queries, value_dim, keys, phase, batch, false);
    b.add(K::Elementwise, "transpose heads", 4 * s.tokens * s.heads * value_dim, phase, 3);
    return;
  }
  b.add(K::Elementwise, "transpose heads", 4 * s.tokens * s.heads * value_dim, phase, 3);
  b.gemm(K::Product, "d_context scores", queries, keys, value_dim, phase, batch, false);
  b.gemm(K::Product, "d_context values", keys, value_dim, queries, phase, batch, false);
  if (layer.attention_dropout()) {
    b.add(K::Dropout, "attention dropout backward", 5 * scores, phase);
  }
  b.add(K::Scores, "softmax backward", (eager ? 33 : 6) * scores, phase, eager ? 6 : 3);
  if (b.model.attention_softcap > 0)
    b.add(K::Elementwise, "soft cap backward", 16 * scores, phase, 3);
  b.gemm(K::Product, "d_scores queries", queries, key_dim, keys, phase, batch, false);
  b.gemm(K::Product, "d_scores keys", keys, key_dim, queries, phase, batch, false);
}

void core(Layer& layer, bool backward, P phase) {
  ContextExchange exchange(layer, backward, phase);
  exchange.before_core();
  layer.unfused() ? unfused_core(layer, backward, phase) : fused_core(layer, backward, phase);
  exchange.behind_core();
}

// Where queries do not rotate, llama 4 multiplies them by a number for each position.
void temper(Layer& layer, P phase) {
  const RankShape& s = layer.b.s;
  if (layer.b.model.temperature_scale == 0) return;
  layer.b.add(K::Elementwise, "temperature of queries", 4 * s.tokens * s.heads * s.head_dim, phase);
}

// Eager: neg, cat, two products, sum and their copies, for queries and keys.
void rope(Layer& layer, Kernel kernel, std::string_view name, P phase) {
  if (layer.b.model.positions != PositionKind::Rope) return;
  if (!layer.b.rotates) return temper(layer, phase);
  const RankShape& s = layer.b.s;
  const std::int64_t width =
      layer.b.model.latent.used() ? s.head_dim : rotary_dim(layer.b.model.rotary, s.head_dim);
  const std::int64_t rotated = s.tokens * (s.heads + s.kv_heads) * width;
  if (layer.b.eager(&EagerKernels::rope)) {
    layer.b.add(K::Elementwise, name, (kernel == K::Rope ? 26 : 28) * rotated, phase, 10);
  } else {
    layer.b.add(kernel, name, 4 * rotated, phase, 2);
  }
}
// Where a model has several streams, kinds of the layer mix them in place of the sum.
void residual(Layer& layer, P phase) {
  if (streams(layer.b.model) > 1) return;
  const std::int64_t e = layer.b.local_elements();
  if (layer.dropout()) {
    layer.b.add(K::Dropout, "bias, dropout, residual", 7 * e, phase, 2);
  } else {
    layer.b.add(K::Elementwise, "bias, residual", 6 * e, phase, 2);
  }
}
void activation(Layer& layer, P phase) {
  layer.b.activation(layer.b.s.tokens * layer.b.s.ffn, phase);
}

// Queries and keys, each by a kernel of its own.
void query_key_norms(Layer& layer, P phase, bool backward) {
  const Transformer& model = layer.b.model;
  const bool unit = model.query_key_unit_norm && layer.b.rotates;
  if (!model.query_key_norm && !model.query_key_norm_whole && !unit) return;
  const RankShape& s = layer.b.s;
  for (const std::int64_t heads : {s.heads, s.kv_heads}) {
    const std::int64_t elements = s.tokens * heads * s.head_dim;
    if (backward) {
      layer.b.norm_of_backward("norm of q or k backward", elements, 2);
    } else {
      layer.b.norm_of("norm of q or k", elements, phase);
    }
  }
}
// What a block gives, before it joins the residual.
void norm_behind(Layer& layer, P phase) {
  if (layer.norm_behind()) layer.b.norm("norm behind the block", phase);
}

// What the norm before the MLP goes with.
GraphPart mlp_part(const Layer& layer) {
  return layer.experts ? GraphPart::Router : GraphPart::Mlp;
}

// The output of attention times the sigmoid of its gate: both read, the product written.
void gate(Layer& layer, P phase) {
  const RankShape& s = layer.b.s;
  if (s.gate > 0) layer.b.add(K::Elementwise, "gate of attention", 6 * s.tokens * s.gate, phase);
}
// Output gradient, output and gate read; the gradients of both written.
void gate_backward(Layer& layer) {
  const RankShape& s = layer.b.s;
  if (s.gate > 0) {
    layer.b.add(K::Elementwise, "gate of attention backward", 10 * s.tokens * s.gate, P::Main, 2);
  }
}

// What a forward runs up to (and with) the first, up to the second part.
void attention_part(Layer& layer, P phase) {
  layer.b.begin(GraphPart::Attention);
  if (!layer.mixes()) return layer.b.begin(mlp_part(layer));
  if (layer.norm_before()) layer.b.norm("norm1", phase);
  kinds_forward(layer.b, mixers_of(layer.b.model), phase);
  if (layer.attends()) {
    layer.b.gather_input(Hiding::Exposed, phase);
    for (const Product& p : layer.before) forward_product(layer, p, phase, WrittenBy::Norm);
    query_key_norms(layer, phase, false);
    rope(layer, K::Rope, "rope", phase);
    core(layer, false, phase);
    gate(layer, phase);
    forward_product(layer, layer.projection, phase);
    layer.b.reduce_output(Hiding::Exposed, phase);
  }
  norm_behind(layer, phase);
  residual(layer, phase);
  layer.b.begin(mlp_part(layer));
}
void mlp_front(Layer& layer, P phase) {
  if (!layer.feeds_forward()) return;
  if (layer.experts) experts_front(layer.b, phase);
  if (layer.up.empty()) return;
  layer.b.gather_input(Hiding::Exposed, phase);
  for (const Product& p : layer.up) forward_product(layer, p, phase, WrittenBy::Norm);
  activation(layer, phase);
}
void mlp_back(Layer& layer, P phase) {
  if (!layer.feeds_forward()) return;
  if (layer.experts) experts_back(layer.b, phase);
  if (layer.up.empty()) return;
  for (const Product& p : layer.down) forward_product(layer, p, phase, WrittenBy::Activation);
  layer.b.reduce_output(Hiding::Exposed, phase);
}
// Parts that were dropped, each as the forward ran it. What is gathered for them again is part of
// the backward anyway.
void recompute_parts(Layer& layer) {
  using R = RecomputePart;
  const P phase = P::Recompute;
  const auto again = [&](R part) { return layer.b.plan.recomputes(part); };
  const bool streams_too = recomputes_streams(layer.b.model, layer.b.plan);  // norms with them
  if (streams_too) streams_again(layer.b);
  if ((again(R::Norm) || streams_too) && layer.norm_before()) {
    if (layer.mixes()) layer.b.norm("norm1", phase);
    if (layer.second_norm()) layer.b.norm("norm2", phase);
  }
  if (again(R::LatentUp)) {
    for (const Product& p : layer.before) {
      if (p.from_latent) forward_product(layer, p, phase);
    }
    if (layer.attends()) rope(layer, K::Rope, "rope", phase);
    latent_up_again(layer.b);
  }
  if (again(R::AttentionCore) && layer.unfused() && layer.attends()) core(layer, false, phase);
  if (again(R::DeltaNormOut)) delta_norm_again(layer.b);
  if (!layer.feeds_forward()) return;
  if (again(layer.experts ? R::Experts : R::Mlp)) {
    mlp_front(layer, phase);
    mlp_back(layer, phase);
  }
  if (!layer.experts) {
    if (again(R::MlpActivation)) activation(layer, phase);
    return;
  }
  if (again(R::ExpertActivation)) experts_activation(layer.b, phase);
  if (again(R::SharedExperts)) shared_experts(layer.b, phase);
}

// torchtitan's operator-level selective checkpointing (models/../parallelize_llama.py): outputs of
// attention, of reduce-scatters and of every second matrix product are kept. In q k v o w1 w3 w2
// the second, fourth and sixth are run again: k, o and w3; and all memory-bound operations.
void recompute_operator_selective(Layer& layer) {
  const P phase = P::Recompute;
  const RankShape& s = layer.b.s;
  if (layer.norm_before()) layer.b.norm("norm1", phase);
  layer.b.gather_input(Hiding::Exposed, phase);
  if (!layer.b.model.latent.used()) {
    layer.b.gemm(K::Linear, "gemm k", s.tokens, s.kv_heads * s.head_dim, s.hidden, phase);
  }
  query_key_norms(layer, phase, false);
  rope(layer, K::Rope, "rope", phase);
  forward_product(layer, layer.projection, phase);
  if (!s.gather)
    layer.b.reduce_output(Hiding::Exposed, phase);  // kept where it is a reduce-scatter
  norm_behind(layer, phase);
  residual(layer, phase);
  if (layer.norm_before()) layer.b.norm("norm2", phase);
  if (layer.experts) {  // of experts the activation alone
    layer.b.activation(s.experts.rows * s.experts.width, phase);
    return;
  }
  layer.b.gather_input(Hiding::Exposed, phase);
  if (layer.gated()) {
    for (Product p : layer.up) {
      p.n = ceil_divide(p.n, 2);
      forward_product(layer, p, phase);
    }
  }
  activation(layer, phase);
}

void recompute(Layer& layer) {
  const P phase = P::Recompute;
  if (layer.b.plan.recompute.is_full()) {
    attention_part(layer, phase);
    if (layer.second_norm()) layer.b.norm("norm2", phase);
    mlp_front(layer, phase);
    if (layer.runtime().checkpoint_early_stop || !layer.feeds_forward()) return;
    mlp_back(layer, phase);
    norm_behind(layer, phase);
    residual(layer, phase);
  } else if (layer.b.plan.recomputes(RecomputePart::Operators)) {
    recompute_operator_selective(layer);
  } else {
    recompute_parts(layer);
  }
}

void residual_backward(Layer& layer) {
  const std::int64_t e = layer.b.local_elements();
  const bool summed = streams(layer.b.model) == 1;
  if (layer.dropout() && summed) layer.b.add(K::Dropout, "dropout backward", 5 * e);
  if (summed) layer.b.add(K::Elementwise, "add gradients", 6 * e);
  if (layer.norm_behind()) layer.b.norm_backward("norm behind the block backward", 2);
}
// The output gradient of a row-parallel product comes whole to every rank: the gather is exposed.
void row_parallel_backward(Layer& layer, const std::vector<Product>& products) {
  layer.b.gather_input(Hiding::Exposed, P::Main, 5);
  for (const Product& p : products) {
    input_gradient(layer, p);
    weight_gradient(layer, p);
  }
}
// The saved input is gathered beside the input gradient, which is reduced beside the weight's. A
// layer of its own for the gate: each reduces its input gradient, and their sum reads 4 and writes
// 2 B (under sequence parallelism the sum comes first).
void column_parallel_backward(Layer& layer, const std::vector<Product>& products,
                              bool split = false) {
  layer.b.gather_again(5);
  for (auto p = products.rbegin(); p != products.rend(); ++p) {
    input_gradient(layer, *p);
    if (!split || p + 1 == products.rend()) continue;
    if (!layer.b.s.gather) layer.b.reduce_output(Hiding::Plain, P::Main, 5);
    layer.b.add(K::Elementwise, "add input gradients", 6 * layer.b.s.tokens * layer.b.s.hidden);
  }
  layer.b.reduce_output(Hiding::Plain, P::Main, 5);
  for (auto p = products.rbegin(); p != products.rend(); ++p) weight_gradient(layer, *p);
}

void mlp_backward(Layer& layer) {
  if (layer.experts) experts_backward(layer.b);
  if (layer.up.empty()) return;
  row_parallel_backward(layer, layer.down);
  layer.b.activation_backward(layer.b.s.tokens * layer.b.s.ffn);
  column_parallel_backward(layer, layer.up, layer.runtime().gated_mlp == GatedMlp::Split);
}

}  // namespace

std::vector<Node> framework_layer_forward(FrameworkNodes nodes, bool experts) {
  Layer layer = describe(nodes, experts);
  const std::int32_t hooks = layer.runtime().fsdp_hook_launches;
  if (hooks > 0) nodes.add(K::Elementwise, "fsdp hooks", 0, P::Main, hooks);
  attention_part(layer, P::Main);
  if (!layer.feeds_forward()) return nodes.take();
  if (layer.second_norm()) nodes.norm("norm2", P::Main);
  mlp_front(layer, P::Main);
  mlp_back(layer, P::Main);
  norm_behind(layer, P::Main);
  residual(layer, P::Main);
  return nodes.take();
}

std::vector<Node> framework_layer_backward(FrameworkNodes nodes, bool experts) {
  Layer layer = describe(nodes, experts);
  recompute(layer);
  nodes.begin(experts ? GraphPart::None : GraphPart::Mlp);
  if (layer.feeds_forward()) {
    residual_backward(layer);
    mlp_backward(layer);
    if (layer.second_norm()) nodes.norm_backward("norm2 backward", 2);
  }
  nodes.begin(GraphPart::Attention);
  if (!layer.mixes()) return nodes.take();
  residual_backward(layer);
  if (layer.attends()) {
    row_parallel_backward(layer, {layer.projection});
    gate_backward(layer);
    core(layer, true, P::Main);
    rope(layer, K::RopeBackward, "rope backward", P::Main);
    query_key_norms(layer, P::Main, true);
    column_parallel_backward(layer, layer.before);
  }
  kinds_backward(layer.b, mixers_of(layer.b.model));
  if (layer.norm_before()) nodes.norm_backward("norm1 backward", 2);
  return nodes.take();
}

}  // namespace rehearse
