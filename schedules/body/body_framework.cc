// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/body_framework.h"

#include <algorithm>

#include "schedules/body/framework_nodes.h"

namespace rehearse {
namespace {

using K = Kernel;
using P = NodePhase;

std::vector<Node> embedding_forward(FrameworkNodes b) {
  b.add(K::Lookup, "lookup", 4 * b.s.tokens * b.s.hidden, P::Main, 3);
  b.reduce_output(Hiding::Exposed);
  if (b.plan.dropout > 0) b.add(K::Dropout, "embedding dropout", 5 * b.local_elements());
  return b.take();
}

std::vector<Node> embedding_backward(FrameworkNodes b) {
  if (b.plan.dropout > 0) {
    b.add(K::Dropout, "embedding dropout backward", 5 * b.local_elements(), P::Weight);
  }
  b.gather_input(Hiding::Exposed, P::Weight);
  b.add(K::TableGradient, "row sums into the table gradient", 10 * b.s.tokens * b.s.hidden,
        P::Weight, 3);
  return b.take();
}

std::vector<Node> head_forward(FrameworkNodes b) {
  const RankShape& s = b.s;
  b.add(K::Norm, "final norm", 4 * b.local_elements());
  b.gather_input(Hiding::Exposed);
  b.gemm(K::Logits, "gemm logits", s.tokens, s.vocabulary, s.hidden, P::Main, 1, false);
  b.add(K::Loss, "cross entropy",
        b.plan.runtime.cross_entropy_forward_bytes * s.tokens * s.vocabulary, P::Main, 8);
  const std::int64_t row = 4 * s.tokens;  // one fp32 per token
  b.collective(K::MaximaOverRanks, "row maxima; all_reduce tp", row, Hiding::Exposed);
  b.collective(K::AllReduce, "target logits; all_reduce tp", row, Hiding::Exposed);
  b.collective(K::SumsOverRanks, "row sums; all_reduce tp", row, Hiding::Exposed);
  return b.take();
}

std::vector<Node> head_backward(FrameworkNodes b) {
  const RankShape& s = b.s;
  b.add(K::Loss, "cross entropy backward",
        b.plan.runtime.cross_entropy_backward_bytes * s.tokens * s.vocabulary, P::Main, 4);
  b.gather_input(Hiding::Plain, P::Weight);
  b.gemm(K::LogitsInput, "gemm d_logits input", s.tokens, s.hidden, s.vocabulary, P::Main, 1,
         false);
  b.reduce_output(Hiding::Plain);
  b.gemm(K::LogitsWeight, "gemm d_logits table", s.hidden, s.vocabulary, s.tokens, P::Weight, 1,
         false);
  if (b.plan.runtime.gradient_accumulation == GradientAccumulation::Separate) {
    b.add(K::Elementwise, "accumulate gradient", 4 * s.hidden * s.vocabulary, P::Weight);
  }
  b.add(K::NormBackward, "final norm backward", 8 * b.local_elements());
  return b.take();
}

std::vector<Node> nodes_of(const Layout& layout, const BodyShape& shape) {
  const FrameworkNodes nodes(layout);
  const bool forward = shape.direction == Direction::Forward;
  switch (shape.segment) {
    case SegmentKind::Embedding:
      return forward ? embedding_forward(nodes) : embedding_backward(nodes);
    case SegmentKind::Layer:
      return forward ? framework_layer_forward(nodes, shape.experts)
                     : framework_layer_backward(nodes, shape.experts);
    case SegmentKind::Head:
      return forward ? head_forward(nodes) : head_backward(nodes);
  }
  return {};
}

// Parameters of one unit on this rank before it is sharded.
std::int64_t unit_parameters(const Layout& layout, const BodyShape& shape) {
  const Transformer& model = layout.model;
  std::int64_t layer = 0;
  if (shape.segment == SegmentKind::Layer) {
    while (layer + 1 < model.layers && model.has_experts(layer) != shape.experts) ++layer;
  }
  std::int64_t sum = 0;
  for (const ParameterTensor& tensor : segment_parameters(layout, shape.segment, layer)) {
    sum += tensor.elements;
  }
  return sum;
}

}  // namespace

Body make_framework_body(const Layout& layout, const BodyShape& shape) {
  Body body{
      .segment = shape.segment, .direction = shape.direction, .nodes = nodes_of(layout, shape)};
  const bool backward = shape.direction != Direction::Forward;
  if (backward && layout.plan.runtime.gradient_reduction_cast) {
    body.nodes.push_back({.kernel = K::Elementwise,
                          .phase = P::Weight,
                          .bytes = 6 * unit_parameters(layout, shape),
                          .launches = shape.segment == SegmentKind::Layer ? 13 : 2,
                          .name = "cast gradients for reduction"});
  }
  if (shape.direction == Direction::InputGradient) {
    std::erase_if(body.nodes, [](const Node& n) { return n.phase == P::Weight; });
  } else if (shape.direction == Direction::WeightGradient) {
    std::erase_if(body.nodes, [](const Node& n) { return n.phase != P::Weight; });
  }
  body.reads_parameters = !(shape.direction == Direction::WeightGradient ||
                            (backward && shape.segment == SegmentKind::Embedding));
  return body;
}

std::int64_t optimizer_bytes_per_parameter(const Plan& plan) {
  return plan.precision.compute == ComputeType::Fp32 ? plan.runtime.optimizer_bytes_fp32
                                                     : plan.runtime.optimizer_bytes;
}
std::int64_t gradient_norm_bytes_per_parameter(const Plan&) {
  return 4;
}

}  // namespace rehearse
