// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/framework/body_framework.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "schedules/body/framework/framework_nodes.h"
#include "schedules/body/framework/framework_pieces.h"

namespace rehearse {
namespace {

using K = Kernel;
using P = NodePhase;

std::vector<Node> embedding_forward(FrameworkNodes b) {
  b.add(K::Lookup, "lookup", 4 * b.s.tokens * b.s.hidden, P::Main, 3);
  b.reduce_output(Hiding::Exposed);
  if (b.model.scaled_embedding) b.add(K::Elementwise, "scale", 4 * b.local_elements());
  if (b.model.embedding_norm) b.norm("embedding norm");
  if (b.plan.dropouts.embedding > 0) {
    b.add(K::Dropout, "embedding dropout", 5 * b.local_elements());
  }
  if (streams(b.model) > 1) {
    b.add(K::Elementwise, "copy to all streams",
          b.s.element * b.s.local * b.s.hidden * (1 + streams(b.model)));
  }
  kinds_forward(b, kinds_at_embedding(b.model), P::Main);
  return b.take();
}

std::vector<Node> embedding_backward(FrameworkNodes b) {
  kinds_backward(b, kinds_at_embedding(b.model));
  if (streams(b.model) > 1) {
    b.add(K::Elementwise, "sum of all streams",
          b.s.element * b.s.local * b.s.hidden * (1 + streams(b.model)));
  }
  if (b.plan.dropouts.embedding > 0) {
    b.add(K::Dropout, "embedding dropout backward", 5 * b.local_elements(), P::Weight);
  }
  if (b.model.embedding_norm) b.norm_backward("embedding norm backward", 2);
  if (b.model.scaled_embedding) b.add(K::Elementwise, "scale backward", 4 * b.local_elements());
  b.gather_input(Hiding::Exposed, P::Weight);
  b.add(K::TableGradient, "row sums into the table gradient", 10 * b.s.tokens * b.s.hidden,
        P::Weight, 3);
  return b.take();
}

// [B] that the loss moves per logit. Fused: a logit is read and its gradient written in its place,
// which the backward scales (Transformer Engine triton/cross_entropy.py; llm.c fused_classifier).
struct LossBytes {
  std::int64_t forward = 0, backward = 0;
};
// Megatron's own fusion (NVIDIA/Megatron-LM@7b4a6d76c9
// megatron/core/fusions/fused_cross_entropy.py): cast and maxima in one pass (2 + 4), exponentials
// and their sums (4 + 4), division (4 + 4); the gradient in its place, then cast (4 + 4 + 2).
LossBytes loss_bytes(const RuntimeTraits& runtime) {
  if (runtime.cross_entropy == CrossEntropy::Fused) return {4, 2};
  if (runtime.cross_entropy == CrossEntropy::Native) return {22, 10};
  return {runtime.cross_entropy_forward_bytes, runtime.cross_entropy_backward_bytes};
}
bool gathers_logits(const FrameworkNodes& b) {
  return b.plan.runtime.cross_entropy == CrossEntropy::Gathered;
}

// Every rank computes the loss of all columns: what it gathers is also put together (4 B).
void gathered_loss(FrameworkNodes& b) {
  const std::int64_t whole = b.s.tokens * b.s.vocabulary * b.s.tensor;
  b.collective(K::AllGather, "logits; all_gather tp", b.s.element * whole, Hiding::Exposed);
  b.add(K::Loss, "cross entropy",
        (loss_bytes(b.plan.runtime).forward + (b.s.tensor > 1 ? 4 : 0)) * whole, P::Main, 8);
}

void logits_and_loss(FrameworkNodes& b) {
  const RankShape& s = b.s;
  b.gemm(K::Logits, "gemm logits", s.tokens, s.vocabulary, s.hidden, P::Main, 1, false);
  if (b.model.final_softcap > 0) {  // division, tanh, product
    b.add(K::Elementwise, "soft cap", 12 * s.tokens * s.vocabulary, P::Main, 3);
  }
  if (b.plan.has_parameter_server()) return;  // the loss is one rank's
  if (gathers_logits(b)) return gathered_loss(b);
  b.add(K::Loss, "cross entropy", loss_bytes(b.plan.runtime).forward * s.tokens * s.vocabulary,
        P::Main, 8);
  const std::int64_t row = 4 * s.tokens;  // one fp32 per token
  b.collective(K::MaximaOverRanks, "row maxima; all_reduce tp", row, Hiding::Exposed);
  b.collective(K::AllReduce, "target logits; all_reduce tp", row, Hiding::Exposed);
  b.collective(K::SumsOverRanks, "row sums; all_reduce tp", row, Hiding::Exposed);
}

void loss_backward(FrameworkNodes& b) {
  const RankShape& s = b.s;
  // Where logits are gathered, every rank makes all gradients, and casts its own part of them (4
  // B).
  const std::int64_t own = s.tokens * s.vocabulary;
  const std::int64_t moved = loss_bytes(b.plan.runtime).backward;
  if (!b.plan.has_parameter_server()) {
    b.add(K::Loss, "cross entropy backward",
          gathers_logits(b) ? moved * own * s.tensor + 4 * own : moved * own, P::Main, 4);
  }
  if (b.model.final_softcap > 0) {
    b.add(K::Elementwise, "soft cap backward", 16 * s.tokens * s.vocabulary, P::Main, 3);
  }
}

void logits_input(FrameworkNodes& b) {
  b.gemm(K::LogitsInput, "gemm d_logits input", b.s.tokens, b.s.hidden, b.s.vocabulary, P::Main, 1,
         false);
}
void logits_weight(FrameworkNodes& b) {
  b.gemm(K::LogitsWeight, "gemm d_logits table", b.s.hidden, b.s.vocabulary, b.s.tokens, P::Weight,
         1, false);
  b.accumulate(b.s.hidden * b.s.vocabulary);
}

// In chunks, of which each makes its logits, their loss and its gradients before the next one does.
std::vector<Node> chunked_head_forward(FrameworkNodes b) {
  const std::int64_t tokens = b.s.tokens, chunk = b.s.loss_chunk;
  kinds_forward(b, kinds_at_head(b.model), P::Main);
  b.norm("final norm");
  b.gather_input(Hiding::Exposed);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    b.s.tokens = std::min(chunk, tokens - begin);
    logits_and_loss(b);
    loss_backward(b);
    logits_input(b);
    logits_weight(b);
  }
  b.s.tokens = tokens;
  b.reduce_output(Hiding::Exposed);
  return b.take();
}

std::vector<Node> head_forward(FrameworkNodes b) {
  if (b.plan.loss_chunks > 1) return chunked_head_forward(std::move(b));
  kinds_forward(b, kinds_at_head(b.model), P::Main);
  b.norm("final norm");
  b.gather_input(Hiding::Exposed);
  logits_and_loss(b);
  return b.take();
}

std::vector<Node> head_backward(FrameworkNodes b) {
  if (b.plan.loss_chunks == 1) {
    loss_backward(b);
    b.gather_again();
    logits_input(b);
    b.reduce_output(Hiding::Plain);
    logits_weight(b);
  }
  b.norm_backward("final norm backward", 1);
  kinds_backward(b, kinds_at_head(b.model));
  return b.take();
}

// The input of a prediction layer: the hidden state and the embedding of the next token, normed,
// side by side, projected to h (DeepSeek-V3, arXiv 2412.19437, section 2.2; NVIDIA/Megatron-LM
// megatron/core/transformer/multi_token_prediction.py).
std::vector<Node> prediction_input(FrameworkNodes b, bool forward) {
  const RankShape& s = b.s;
  const std::int64_t columns = s.hidden / s.tensor;
  if (forward) {
    b.add(K::Lookup, "lookup of the next token", 4 * s.tokens * s.hidden, P::Main, 3);
    b.norm("norm of the embedding");
    b.norm("norm of the hidden state");
    b.gather_input(Hiding::Exposed);
    b.gemm(K::Linear, "gemm prediction projection", s.tokens, columns, 2 * s.hidden);
    return b.take();
  }
  b.gather_again();
  b.gemm(K::LinearInput, "gemm d_prediction projection input", s.tokens, 2 * s.hidden, columns);
  b.reduce_output(Hiding::Plain);
  b.gemm(K::LinearWeight, "gemm d_prediction projection weight", 2 * s.hidden, columns, s.tokens,
         P::Weight);
  b.accumulate(2 * s.hidden * columns);
  b.norm_backward("norm of the embedding backward", 1);
  b.norm_backward("norm of the hidden state backward", 1);
  b.add(K::TableGradient, "row sums into the table gradient", 10 * s.tokens * s.hidden, P::Weight,
        3);
  return b.take();
}

void append(std::vector<Node>& nodes, std::vector<Node> more) {
  std::ranges::move(more, std::back_inserter(nodes));
}

// The model's head, and once more for what each prediction layer hands it.
std::vector<Node> heads(const Layout& layout, bool forward) {
  const FrameworkNodes nodes(layout);
  std::vector<Node> all;
  for (std::int64_t i = 0; i <= layout.prediction_layers(); ++i) {
    append(all, forward ? head_forward(nodes) : head_backward(nodes));
  }
  return all;
}

std::vector<Node> layer(const Layout& layout, const BodyShape& shape, bool forward) {
  const FrameworkNodes nodes(layout, shape.reach, shape.rotates);
  std::vector<Node> all;
  if (shape.prediction && forward) append(all, prediction_input(nodes, true));
  append(all, forward ? framework_layer_forward(nodes, shape.experts)
                      : framework_layer_backward(nodes, shape.experts));
  if (shape.prediction && !forward) append(all, prediction_input(nodes, false));
  return all;
}

std::vector<Node> nodes_of(const Layout& layout, const BodyShape& shape) {
  const FrameworkNodes nodes(layout);
  const bool forward = shape.direction == Direction::Forward;
  switch (shape.segment) {
    case SegmentKind::Embedding:
      return forward ? embedding_forward(nodes) : embedding_backward(nodes);
    case SegmentKind::Layer:
      return layer(layout, shape, forward);
    case SegmentKind::Head:
      return heads(layout, forward);
  }
  return {};
}

std::vector<ParameterTensor> unit_tensors(const Layout& layout, const BodyShape& shape) {
  const Transformer& model = layout.model;
  const std::int64_t layer = shape.prediction ? model.layers : first_layer(model, shape.experts);
  return segment_parameters(layout, shape.segment, layer);
}

// Parameters of one unit on this rank before it is sharded, with those of experts or without.
std::int64_t unit_parameters(const Layout& layout, const BodyShape& shape, bool experts = true) {
  std::int64_t sum = 0;
  for (const ParameterTensor& tensor : unit_tensors(layout, shape)) {
    if (experts || !tensor.expert) sum += tensor.elements;
  }
  return sum;
}

// Whether a body of what is computed again apart from its backward multiplies with parameters.
bool multiplies_again(const Body& body) {
  return std::ranges::any_of(body.nodes,
                             [](const Node& node) { return node.role() == GemmRole::Forward; });
}

// [B] that copying a unit's parameters out of their gather reads and writes: before every forward,
// and before a backward, or an R, where what was gathered has been dropped. The root, embedding and
// head, stays until its backward; experts that lie on one rank alone are not gathered.
std::int64_t gather_copy_bytes(const Layout& layout, const BodyShape& shape) {
  const Plan& plan = layout.plan;
  if (!plan.runtime.gather_copies || !plan.gathers_each_microbatch()) return 0;
  if (shape.direction == Direction::WeightGradient) return 0;
  const bool again = plan.gathers_twice() && shape.segment == SegmentKind::Layer;
  if (shape.direction != Direction::Forward && !again) return 0;
  const bool experts = !plan.folds_experts() || plan.expert_replicas() > 1;
  return 2 * layout.shape.element * unit_parameters(layout, shape, experts);
}

// What a unit's gathers and reductions by lists cost beside the collectives. Each part is a view
// and a copy: a gather clears its buffer and copies the parts home (2 and 4 B of a 16-bit element),
// a reduction copies them into one array (4 B). A forward that runs again drops what it gathered,
// unless its backward, behind the forwards and backwards of what follows, reads it soon.
std::optional<Node> list_node(const Layout& layout, const BodyShape& shape) {
  const Plan& plan = layout.plan;
  const RuntimeTraits& runtime = plan.runtime;
  if (runtime.listed_elements == 0 || !plan.gathers_each_microbatch()) return {};
  const bool forward =
      shape.direction == Direction::Forward || shape.direction == Direction::Recompute;
  const bool again = shape.direction != Direction::WeightGradient && !shape.keeps && !shape.apart &&
                     plan.recompute.is_full();
  const bool reads = forward || shape.segment != SegmentKind::Embedding;
  const bool reduces = !forward && shape.direction != Direction::InputGradient;
  const std::vector<ParameterTensor> tensors = unit_tensors(layout, shape);
  std::int64_t parts = 0, bytes = 0, behind = 0;
  for (auto tensor = tensors.rbegin(); tensor != tensors.rend(); ++tensor) {
    if (tensor->elements <= runtime.listed_elements) continue;
    const bool dropped = !forward && again && 2 * behind >= runtime.kept_elements;
    const std::int64_t gathers = reads ? 1 + (dropped ? 1 : 0) : 0;
    behind += tensor->elements;
    parts += gathers + (reduces ? 1 : 0);
    bytes += layout.shape.element * tensor->elements * (3 * gathers + (reduces ? 2 : 0));
  }
  if (parts == 0) return {};
  return Node{.kernel = K::Elementwise,
              .bytes = bytes,
              .launches = 0,
              .expert_calls = static_cast<std::int32_t>(parts * plan.shards()),
              .drains = true,
              .name = "views and copies of listed parts"};
}

void put_first(Node node, std::vector<Node>& nodes) {
  nodes.insert(nodes.begin(), std::move(node));
  for (Node& other : nodes) {
    if (other.until >= 0) ++other.until;  // an index
  }
}

// Keeps of a backward what it computes again, or what is left behind an R. Together they are the
// backward that does both, node by node, in pieces and merged launches as there.
void take_apart(std::vector<Node>& nodes, bool again) {
  const auto stays = [&](const Node& node) { return (node.phase == P::Recompute) == again; };
  std::vector<std::int32_t> place{0};  // of every node, and of the end, among those that stay
  for (const Node& node : nodes) place.push_back(place.back() + (stays(node) ? 1 : 0));
  for (Node& node : nodes) {
    if (node.until >= 0) node.until = place[static_cast<std::size_t>(node.until)];
  }
  std::erase_if(nodes, [&](const Node& node) { return !stays(node); });
}

bool is_memory_bound(const Node& node) {
  return collective_kind(node.kind()) == OpKind::Forward && node.flops == 0;
}

bool captures(const CudaGraphs& graphs, GraphPart part) {
  switch (part) {
    case GraphPart::None:
      return graphs.whole;
    case GraphPart::Attention:
      return graphs.whole || graphs.attention;
    case GraphPart::Router:
      return graphs.whole || graphs.router;
    case GraphPart::Preprocess:
      return graphs.whole || graphs.preprocess;
    case GraphPart::Mlp:
      return graphs.whole || graphs.mlp;
  }
  return false;
}

// What the host launches of a program that is not eager. Compiled: memory-bound neighbours are one
// kernel, and a product is one launch without views and copies. A graph, neighbours that are
// captured, is one launch.
void merge_launches(const RuntimeTraits& runtime, std::vector<Node>& nodes) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const bool follows = i > 0 && is_memory_bound(nodes[i]) && is_memory_bound(nodes[i - 1]);
    if (captures(runtime.cuda_graphs, nodes[i].part)) {
      const bool begun = i > 0 && captures(runtime.cuda_graphs, nodes[i - 1].part);
      nodes[i].launches = begun ? 0 : 1;
      nodes[i].expert_calls = 0;
    } else if (runtime.compiled && nodes[i].bytes > 0 && nodes[i].piece == 0) {
      // hooks between segments stay
      nodes[i].launches = follows ? 0 : 1;
    }
  }
}

}  // namespace

Body make_framework_body(const Layout& layout, const BodyShape& shape) {
  Body body{
      .segment = shape.segment, .direction = shape.direction, .nodes = nodes_of(layout, shape)};
  const bool backward = shape.direction != Direction::Forward;
  if (backward && layout.plan.runtime.gradient_reduction_cast) {
    body.nodes.push_back(
        {.kernel = K::Elementwise,
         .phase = P::Weight,
         .bytes = (2 + layout.plan.gradient_wire_bytes()) * unit_parameters(layout, shape),
         .launches = shape.segment == SegmentKind::Layer ? 13 : 2,
         .name = "cast gradients for reduction"});
  }
  if (shape.direction == Direction::InputGradient) {
    std::erase_if(body.nodes, [](const Node& n) { return n.phase == P::Weight; });
  } else if (shape.direction == Direction::WeightGradient) {
    std::erase_if(body.nodes, [](const Node& n) { return n.phase != P::Weight; });
  }
  body.nodes = in_pieces(std::move(body.nodes), layout);
  merge_launches(layout.plan.runtime, body.nodes);
  const bool again = shape.direction == Direction::Recompute;
  if (again || shape.apart) take_apart(body.nodes, again);
  if (again && !multiplies_again(body)) {
    body.reads_parameters = false;
    return body;
  }
  if (const std::int64_t bytes = gather_copy_bytes(layout, shape); bytes > 0) {
    // Its launches are counted with those of the hooks.
    put_first({.kernel = K::Elementwise,
               .bytes = bytes,
               .launches = 0,
               .name = "copy gathered parameters"},
              body.nodes);
  }
  if (std::optional<Node> lists = list_node(layout, shape)) {
    put_first(std::move(*lists), body.nodes);
  }
  body.reads_parameters = !(shape.direction == Direction::WeightGradient ||
                            (backward && shape.segment == SegmentKind::Embedding));
  return body;
}

Body make_framework_loss(const Layout& layout) {
  FrameworkNodes b(layout);
  const std::int64_t logits = b.s.tokens * b.s.vocabulary;
  const LossBytes moved = loss_bytes(layout.plan.runtime);
  b.add(K::Loss, "cross entropy", moved.forward * logits, P::Main, 8);
  b.add(K::Loss, "cross entropy backward", moved.backward * logits, P::Main, 4);
  Body body{.segment = SegmentKind::Head, .direction = Direction::Forward, .nodes = b.take()};
  merge_launches(layout.plan.runtime, body.nodes);
  return body;
}

std::int64_t optimizer_bytes_per_parameter(const Plan& plan) {
  const std::int64_t adamw = plan.precision.compute == ComputeType::Fp32
                                 ? plan.runtime.optimizer_bytes_fp32
                                 : plan.runtime.optimizer_bytes;
  return std::max<std::int64_t>(adamw - row_of(plan.optimizer).spared_bytes, 1);
}
std::int64_t gradient_norm_bytes_per_parameter(const Plan&) {
  return 4;
}

}  // namespace rehearse
