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
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    (tensors[k].bias ? roles.bias : roles.weight)[static_cast<std::size_t>(tensors[k].role)] =
        static_cast<int>(k);
  }
  return roles;
}

// The second number is of slots, or, where copies are sent by their counts, of those that come to
// one of the ranks that share an expert's matrices.
ExpertLimits limits_of(const Layout& layout, const ExpertRoom& room) {
  const ExpertShape& x = layout.shape.experts;
  ExpertLimits limits;
  limits[0] = {.rows = room.rows,
               .mean = static_cast<double>(x.rows),
               .what = " rows for the experts of one rank, room for "};
  if (sends_tokens_once(layout)) {
    limits[1] = {.rows = room.slot, .mean = x.visits, .what = " tokens for one rank, slots of "};
  } else if (room.slot > 0) {
    limits[1] = {.rows = room.slot,
                 .mean = static_cast<double>(x.copies) / layout.plan.expert_parallel,
                 .what = " rows for the experts of one rank, slots of "};
  } else {
    limits[1] = {.rows = room.arrived,
                 .mean = static_cast<double>(x.copies),
                 .what = " rows that come to one rank, room for "};
  }
  return limits;
}

}  // namespace

BodyRunner::BodyRunner(const Layout& layout)
    : shared_(std::make_unique<Shared>(
          Shared{.layout = layout, .model = layout.model, .plan = layout.plan})) {
  Shared& s = *shared_;
  const Plan& plan = layout.plan;
  s.shape = layout.shape;
  s.attention = {.tokens = s.shape.tokens,
                 .sequence = plan.sequence_length / plan.context_parallel / plan.sequence_slices,
                 .heads = s.shape.heads,
                 .kv_heads = s.shape.kv_heads,
                 .head_dim = s.shape.head_dim,
                 .value_dim = s.shape.value_dim};
  const Transformer& model = layout.model;
  const std::int64_t turning = model.rotary_head_dim();
  s.rotary = {rotary_of(model.rotary, turning, model.max_positions, plan.sequence_length),
              rotary_of(model.rotary_by_layer_kind ? model.windowed_rotary : model.rotary, turning,
                        model.max_positions, plan.sequence_length)};
  s.activation = aligned(layout.activation_bytes());
  s.bodies.resize(static_cast<std::size_t>(plan.sequence_slices));
  if (layout.model.experts.count > 0) {
    s.room = expert_room(layout);
    s.sends_copies =
        expert_block(layout) > 1 && !gathers_tokens(layout) && !sends_tokens_once(layout);
    s.limits = limits_of(layout, s.room);
  }
  for (std::size_t k = 0; k < kNumSegmentShapes; ++k) {
    const auto of = static_cast<SegmentShape>(k);
    const SegmentKind kind = kind_of(of);
    const bool experts = of == SegmentShape::ExpertLayer;
    if (experts && layout.model.experts.count == 0) continue;
    if (of == SegmentShape::PredictionLayer) continue;  // only frameworks have them
    for (std::size_t slice = 0; slice < s.bodies.size(); ++slice) {
      for (std::size_t d = 0; d < kDirections; ++d) {
        s.bodies[slice][k][d] =
            make_rehearse_body(layout, {.segment = kind,
                                        .experts = experts,
                                        .direction = static_cast<Direction>(d),
                                        .slice = static_cast<std::int32_t>(slice)});
      }
    }
    // A model that lacks such a layer never asks for its body.
    auto tensors = segment_parameters(layout, kind, first_layer(model, experts));
    // A tied head reads the table as its last parameter (OpAddresses).
    if (kind == SegmentKind::Head && layout.model.tied_embedding)
      tensors.push_back({.name = "table.weight", .role = ParameterRole::Table});
    s.roles[k] = roles_of(tensors);
  }
}
BodyRunner::~BodyRunner() = default;

bool BodyRunner::meets(const ComputeOp& op) const {
  return std::ranges::any_of(op.segments, [&](const SegmentInfo& segment) {
    return shared_->meets(segment, direction_of(op.kind), op.slice);
  });
}
bool BodyRunner::alone(const ComputeOp& op) const {
  return !shared_->plan.dropouts.any() && !meets(op);
}

void OpCursor::State::prepare(const Node& n, CollectiveRequest* request) {
  const bool maxima = n.kernel == Kernel::MaximaOverRanks, sums = n.kernel == Kernel::SumsOverRanks;
  if (maxima) row_maxima(n);
  if (sums) row_sums(n);
  const bool squares = n.kernel == Kernel::QueryKeySumsOverRanks;
  const bool products = n.kernel == Kernel::QueryKeySumsOverRanksBackward;
  if (squares) query_key_squares(n, floats(w(n)));
  if (products) query_key_products(n, floats(w(n)));
  const bool statistics = maxima || sums || squares || products;
  // Statistics are fp32 and stay in place; gradients that go round are fp32 sums.
  const bool weights = n.kernel == Kernel::DispatchWeights || n.kernel == Kernel::CombineWeights;
  const bool wide = statistics || weights || n.fp32 || n.kernel == Kernel::RingKeyGradients ||
                    shared.shape.element == 4;
  const ElementType type = wide ? ElementType::Float32 : ElementType::BFloat16;
  *request = {.axis = n.axis,
              .kind = collective_kind(n.kind()),
              .type = type,
              .maximum = maxima,
              .in = statistics ? w(n) : r(n, 0),
              .out = w(n),
              .elements = n.bytes / bytes_of(type),
              .layer = segments()[segment].layer};
  const bool sent = n.kernel == Kernel::Dispatch || n.kernel == Kernel::Combine;
  if (shared.room.slot > 0 || !(sent || weights)) return;
  split(n, sent ? shared.shape.hidden : shared.model.experts.per_token, request);
}

void OpCursor::State::run(const Node& n) {
  const RankShape& s = shared.shape;
  switch (n.kernel) {
    case Kernel::Linear:
      return linear(n);
    case Kernel::LinearInput:
      return linear_input(n);
    case Kernel::LinearWeight:
      return linear_weight(n);
    case Kernel::Logits:
    case Kernel::LogitsInput:
    case Kernel::LogitsWeight:
      return logits(n);
    case Kernel::Norm:
      return norm(n);
    case Kernel::NormBackward:
      return norm_backward(n);
    case Kernel::AddResidual:
      return add_residual(n);
    case Kernel::Gelu:
    case Kernel::GeluBackward:
      return;  // with its product
    case Kernel::Swiglu:
    case Kernel::GatedActivation: {
      const auto [rows, width] = mlp_shape(n, 1);
      if (shared.model.experts.glu_limit > 0 && n.routed) {
        return kernels.clamped_glu(lane, clamped_glu(rows, width), r(n, 0), w(n));
      }
      return kernels.gated(lane, shared.model.activation, rows, width, r(n, 0), w(n));
    }
    case Kernel::SwigluBackward:
    case Kernel::GatedActivationBackward: {
      const auto [rows, width] = mlp_shape(n, 2);
      if (shared.model.experts.glu_limit > 0 && n.routed) {
        return kernels.clamped_glu_backward(lane, clamped_glu(rows, width), r(n, 0), r(n, 1), w(n));
      }
      return kernels.gated_backward(lane, shared.model.activation, rows, width, r(n, 0), r(n, 1),
                                    w(n));
    }
    case Kernel::Activation: {
      const auto [rows, width] = mlp_shape(n, 1);
      return kernels.activation(lane, shared.model.activation, rows * width, r(n, 0), w(n));
    }
    case Kernel::ActivationBackward: {
      const auto [rows, width] = mlp_shape(n, 2);
      return kernels.activation_backward(lane, shared.model.activation, rows * width, r(n, 0),
                                         r(n, 1), w(n));
    }
    case Kernel::Dropout:
    case Kernel::DropoutBackward:
      return dropout(n);
    case Kernel::Copy:
      return kernels.copy_columns(lane, s.local, s.hidden, r(n, 0), s.hidden, w(n), s.hidden);
    case Kernel::QueryKeyNorm:
      return query_key_norm(n);
    case Kernel::QueryKeyNormBackward:
      return query_key_norm_backward(n);
    case Kernel::Rope:
    case Kernel::RopeBackward:
      return rope(n);
    case Kernel::SplitLatent:
      return split_latent(n);
    case Kernel::JoinLatent:
      return join_latent(n);
    case Kernel::JoinHeads:
      return kernels.join_heads(lane, latent_shape(), r(n, 0), r(n, 1), r(n, 2), w(n));
    case Kernel::SplitHeads:
      return kernels.split_heads(lane, latent_shape(), r(n, 0), w(n, 0), w(n, 1), w(n, 2));
    case Kernel::Attention:
      return attention(n);
    case Kernel::AttentionBackward:
      return attention_backward(n);
    case Kernel::PackKeys:
      return kernels.copy_columns(lane, s.tokens, shared.attention.kv_columns(), keys(r(n, 0)),
                                  s.qkv, w(n), shared.attention.kv_columns());
    case Kernel::StoreOutput:
      return kernels.cast(lane, s.tokens * s.heads * s.value_dim, floats(r(n, 0)), w(n));
    case Kernel::AddKeyGradients:
      return kernels.add(lane, s.tokens * shared.attention.kv_columns(), floats(r(n, 0)),
                         floats(w(n)));
    case Kernel::StoreGradients:
      return store_gradients(n);
    case Kernel::SpreadHeads:
      return spread_heads(n);
    case Kernel::TakeHeads:
      return take_heads(n);
    case Kernel::Lookup:
      return kernels.embed(lane, s.tokens, s.hidden, at().tokens, parameter(n), vocabulary(), w(n));
    case Kernel::AddPositions:
      return add_positions(n);
    case Kernel::PositionGradient:
      return position_gradient(n);
    case Kernel::SortTokens:
      return;  // with the sums into the table
    case Kernel::TableGradient:
      return kernels.embed_backward(lane, s.tokens, s.hidden, at().tokens, r(n, 0), vocabulary(),
                                    reinterpret_cast<std::int32_t*>(r(n, 1)), gradient(n));
    case Kernel::RowMaxima:  // nobody else has logits: the next two nodes at once
      return whole_loss(n);
    case Kernel::Loss:
      return kernels.loss_and_gradient(lane, chunk_rows(n), vocabulary(), floats(r(n, 0)),
                                       floats(r(n, 1)), floats(r(n, 2)), at().targets + chunk,
                                       scale, w(n), at().loss);
    case Kernel::Route:
      return route(n);
    case Kernel::RouteBackward:
      return route_backward(n);
    case Kernel::CountChosen:
      return count_chosen(n);
    case Kernel::DropCopies:
      return drop_copies(n);
    case Kernel::SortCopies:
      return sort_copies(n);
    case Kernel::SortRows:
      return sort_rows(n);
    case Kernel::SortVisits:
      return sort_visits(n);
    case Kernel::GatherWeights:
      return gather_weights(n);
    case Kernel::GatherRows:
      return kernels.gather_rows(lane, tensor(n, 1).bytes / 4, s.hidden, ints(r(n, 1)), r(n, 0),
                                 w(n));
    case Kernel::ScatterRows:
      return kernels.scatter_rows(lane, tensor(n, 1).bytes / 4, s.hidden, ints(r(n, 1)), r(n, 0),
                                  w(n));
    case Kernel::WeighCopies:
    case Kernel::SumCopies:
    case Kernel::WeighBackward:
    case Kernel::SpreadCopies:
    case Kernel::SpreadWeights:
      return sum_copies(n);
    case Kernel::GroupedLinear:
    case Kernel::GroupedLinearInput:
    case Kernel::GroupedLinearWeight:
      return grouped(n);
    case Kernel::AddOutputs:
      return kernels.add_residual(lane, s.local, s.hidden, r(n, 0), r(n, 1), nullptr, {}, w(n));
    case Kernel::Gate:
      return kernels.gate(lane, s.local, s.hidden, r(n, 0), r(n, 1), w(n));
    case Kernel::GateBackward:
      return kernels.gate_backward(lane, s.local, s.hidden, r(n, 0), r(n, 1), r(n, 2), w(n, 0),
                                   w(n, 1));
    case Kernel::RowSums:  // done with the maxima
    case Kernel::Product:
    case Kernel::Permute:
    case Kernel::AllToAll:
    case Kernel::Dispatch:
    case Kernel::Combine:
    case Kernel::DispatchWeights:
    case Kernel::CombineWeights:
    case Kernel::Scores:
    case Kernel::Elementwise:
    case Kernel::AllReduce:
    case Kernel::AllGather:
    case Kernel::ReduceScatter:
    case Kernel::RingKeys:
    case Kernel::RingKeyGradients:
    case Kernel::MaximaOverRanks:
    case Kernel::SumsOverRanks:
    case Kernel::QueryKeySumsOverRanks:
    case Kernel::QueryKeySumsOverRanksBackward:
      assert(false && "no node of a body that is run here");
  }
}

OpCursor::OpCursor(const BodyRunner& runner, Device& device, Kernels& kernels, Lane lane,
                   const Coordinates& at, float scale)
    : state_(std::make_unique<State>(State{.shared = runner.shared(),
                                           .device = device,
                                           .kernels = kernels,
                                           .lane = lane,
                                           .coordinate = at.tensor,
                                           .context = at.context,
                                           .folded = Mesh(runner.shared().plan).folded(at),
                                           .scale = scale})) {}
OpCursor::~OpCursor() = default;
OpCursor::OpCursor(OpCursor&&) noexcept = default;
OpCursor& OpCursor::operator=(OpCursor&&) noexcept = default;

void OpCursor::start(const ComputeOp& op, const StepFacts& facts, Track track, bool beside) {
  state_->op = &op;
  state_->lane.track = track;
  state_->beside = beside;
  state_->seed = facts.seed;
  state_->step = facts.step;
  state_->losses = facts.losses;
  state_->counts = facts.expert_counts;
  state_->correction = facts.correction;
  state_->failure.clear();
  state_->visited = 0;
  state_->inside = false;
  state_->meets = false;
}

void OpCursor::hands_on() {
  if (state_->sent_on.track != state_->lane.track) {
    state_->device.order(state_->lane, state_->sent_on);
  }
}

void OpCursor::met() {
  state_->meets = false;
  if (state_->sent_on.track != state_->lane.track) {
    state_->device.order(state_->sent_on, state_->lane);
  }
}

Progress OpCursor::run(CollectiveRequest* request) {
  State& s = *state_;
  for (; s.visited < s.segments().size(); ++s.visited, s.inside = false) {
    if (!s.inside) s.enter();
    while (s.node < s.body->nodes.size()) {
      if (s.meets && s.node >= s.wait_at) return Progress::Waits;
      const Node& node = s.body->nodes[s.node++];
      if (collective_kind(node.kind()) != OpKind::Forward) {
        s.prepare(node, request);
        s.meets = true;
        s.wait_at = std::max(s.node, static_cast<std::size_t>(std::max(node.until, 0)));
        const bool goes_on = s.beside || s.wait_at > s.node;
        s.sent_on = goes_on ? s.lane.on(Track::Collectives) : s.lane;
        request->lane = s.sent_on;
        return Progress::Collective;
      }
      s.run(node);
      if (!s.failure.empty()) return Progress::Failed;
    }
    if (s.meets) return Progress::Waits;
  }
  return Progress::Done;
}

const std::string& OpCursor::failure() const {
  return state_->failure;
}

}  // namespace rehearse::exec
