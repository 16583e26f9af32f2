// SPDX-License-Identifier: Apache-2.0
// The walk of a cursor over an op's segments and their nodes, and what the ops of a run share.
#include "exec/body/body_runner.h"

#include <algorithm>
#include <cassert>
#include <string_view>
#include <utility>

#include "exec/body/body_state.h"

namespace rehearse::exec {
namespace {

Roles roles_of(const std::vector<ParameterTensor>& tensors) {
  Roles roles;
  const std::pair<std::string_view, int Roles::*> names[] = {
      {"norm1.weight", &Roles::norm1},
      {"norm1.bias", &Roles::norm1_bias},
      {"qkv.weight", &Roles::qkv},
      {"qkv.bias", &Roles::qkv_bias},
      {"projection.weight", &Roles::projection},
      {"projection.bias", &Roles::projection_bias},
      {"norm2.weight", &Roles::norm2},
      {"norm2.bias", &Roles::norm2_bias},
      {"up.weight", &Roles::up},
      {"up.bias", &Roles::up_bias},
      {"down.weight", &Roles::down},
      {"down.bias", &Roles::down_bias},
      {"final_norm.weight", &Roles::final_norm},
      {"final_norm.bias", &Roles::final_bias},
      {"table.weight", &Roles::table},
      {"head.weight", &Roles::table},
      {"positions.weight", &Roles::positions}};
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    for (const auto& [name, role] : names) {
      if (tensors[k].name == name) roles.*role = static_cast<int>(k);
    }
  }
  return roles;
}

}  // namespace

BodyRunner::BodyRunner(const Transformer& model, const Plan& plan)
    : shared_(std::make_unique<Shared>(Shared{.model = model, .plan = plan})) {
  Shared& s = *shared_;
  s.shape = rank_shape(model, plan);
  s.attention = {.tokens = s.shape.tokens,
                 .sequence = plan.sequence_length / plan.context_parallel / plan.sequence_slices,
                 .heads = s.shape.heads,
                 .kv_heads = s.shape.kv_heads,
                 .head_dim = s.shape.head_dim};
  s.activation = aligned(activation_bytes(model, plan));
  s.bodies.resize(static_cast<std::size_t>(plan.sequence_slices));
  for (std::size_t k = 0; k < 3; ++k) {
    const auto kind = static_cast<SegmentKind>(k);
    for (std::size_t slice = 0; slice < s.bodies.size(); ++slice) {
      for (std::size_t d = 0; d < kDirections; ++d) {
        s.bodies[slice][k][d] = make_rehearse_body({.segment = kind,
                                                    .direction = static_cast<Direction>(d),
                                                    .slice = static_cast<std::int32_t>(slice),
                                                    .model = &model,
                                                    .plan = &plan});
      }
    }
    auto tensors = segment_parameters(model, plan, kind, 0);
    // A tied head reads the table as its last parameter (OpAddresses).
    if (kind == SegmentKind::Head && model.tied_embedding)
      tensors.push_back({.name = "table.weight"});
    s.roles[k] = roles_of(tensors);
  }
}
BodyRunner::~BodyRunner() = default;

bool BodyRunner::alone(const ComputeOp& op) const {
  return std::ranges::none_of(op.segments, [&](const SegmentInfo& segment) {
    return shared_->meets(segment.kind, direction_of(op.kind), op.slice);
  });
}

void OpCursor::State::prepare(const Node& n, CollectiveRequest* request) const {
  const bool rows = n.name.starts_with("row ");  // statistics of the loss: fp32, in place
  if (n.name.starts_with("row maxima")) row_maxima(n);
  if (n.name.starts_with("row sums")) row_sums(n);
  const bool wide = rows || n.name == "ring exchange cp dk, dv" || shared.shape.element == 4;
  const ElementType type = wide ? ElementType::Float32 : ElementType::BFloat16;
  *request = {.axis = n.axis,
              .kind = collective_kind(n.kind),
              .type = type,
              .maximum = n.name.starts_with("row maxima"),
              .in = rows ? w(n) : r(n, 0),
              .out = w(n),
              .elements = n.bytes / bytes_of(type)};
}

void OpCursor::State::elementwise(const Node& n) {
  if (n.name == "add residual + bias") {
    add_residual(n);
  } else if (n.name == "add positions") {
    add_positions(n);
  } else {
    arrange_heads(n);
  }
}

void OpCursor::State::run(const Node& n) {
  const Roles& p = roles();
  const RankShape& s = shared.shape;
  switch (n.kind) {
    case NodeKind::Gemm:
      return gemm(n);
    case NodeKind::Norm:
      return n.name == "norm1"   ? norm(n, p.norm1, p.norm1_bias)
             : n.name == "norm2" ? norm(n, p.norm2, p.norm2_bias)
                                 : norm(n, p.final_norm, p.final_bias);
    case NodeKind::NormBackward:
      if (n.name == "final norm backward") {
        return norm_backward(n, r(n, 0), nullptr, p.final_norm, p.final_bias);
      }
      return n.name.starts_with("norm1")
                 ? norm_backward(n, own(r(n, 0)), r(n, 3), p.norm1, p.norm1_bias)
                 : norm_backward(n, own(r(n, 0)), r(n, 3), p.norm2, p.norm2_bias);
    case NodeKind::Activation:
      return device.swiglu(lane, s.tokens, s.ffn, r(n, 0), w(n));  // GELU: in its product
    case NodeKind::ActivationBackward:
      if (!gated()) return;  // with its product
      return device.swiglu_backward(lane, s.tokens, s.ffn, r(n, 0), r(n, 1), w(n));
    case NodeKind::Rope:
      return rope(n);
    case NodeKind::Attention:
      return attention(n);
    case NodeKind::AttentionBackward:
      return attention_backward(n);
    case NodeKind::Elementwise:
      return elementwise(n);
    case NodeKind::Embedding:
      return device.embed(lane, s.tokens, s.hidden, at().tokens, parameter(p.table), vocabulary(),
                          w(n));
    case NodeKind::EmbeddingBackward:
      return embedding_backward(n);
    case NodeKind::CrossEntropy:
      return cross_entropy(n);
    case NodeKind::Dropout:
    case NodeKind::Softmax:
    case NodeKind::AllReduce:
    case NodeKind::AllGather:
    case NodeKind::ReduceScatter:
    case NodeKind::AllToAll:
    case NodeKind::RingExchange:
      assert(false && "no node of a body that is run here");
  }
}

OpCursor::OpCursor(const BodyRunner& runner, Backend& backend, Lane lane, const Coordinates& at,
                   float scale)
    : state_(std::make_unique<State>(State{.shared = runner.shared(),
                                           .device = backend,
                                           .lane = lane,
                                           .coordinate = at.tensor,
                                           .context = at.context,
                                           .scale = scale})) {}
OpCursor::~OpCursor() = default;
OpCursor::OpCursor(OpCursor&&) noexcept = default;
OpCursor& OpCursor::operator=(OpCursor&&) noexcept = default;

void OpCursor::start(const ComputeOp& op) {
  state_->op = &op;
  state_->visited = 0;
  state_->inside = false;
}

Progress OpCursor::run(CollectiveRequest* request) {
  State& s = *state_;
  for (; s.visited < s.segments().size(); ++s.visited, s.inside = false) {
    if (!s.inside) s.enter();
    while (s.node < s.body->nodes.size()) {
      const Node& node = s.body->nodes[s.node++];
      if (collective_kind(node.kind) != OpKind::Forward) {
        s.prepare(node, request);
        return Progress::Collective;
      }
      s.run(node);
    }
  }
  return Progress::Done;
}

}  // namespace rehearse::exec
