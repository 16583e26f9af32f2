// SPDX-License-Identifier: Apache-2.0
// The walk of a cursor over an op's segments and their nodes.
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <memory>

#include "exec/body/body_runner.h"
#include "exec/body/experts.h"
#include "exec/body/grid_panels.h"
#include "exec/body/node_rows.h"

namespace rehearse::exec {

struct OpCursor::State {
  State(const BodyRunner::Shared& shared, Device& device, Kernels& kernels, Lane lane,
        const Coordinates& at)
      : op{.shared = shared,
           .device = device,
           .kernels = kernels,
           .lane = lane,
           .coordinate = at.tensor,
           .context = at.context,
           .folded = Mesh(shared.plan).folded(at),
           .carry = carry} {}

  Carry carry;
  OpView op;
  std::size_t visited = 0;  // segments done
  bool inside = false;      // the view is at the current segment
  bool beside = false;      // another cursor goes on while this one waits
  bool meets = false;       // the collective that was asked for last is under way,
  std::size_t wait_at = 0;  // and the nodes before this one may run
  Lane sent_on;             // its lane: the own one where nothing goes on beside it
  UnequalParts parts;       // of that collective
};

namespace {

bool is_collective(const Node& n) {
  return collective_kind(n.kind()) != OpKind::Forward;
}

// A piece of a collective of products: the rows that these compute (products.cc).
void take_piece(const OpView& op, const Node& n, CollectiveRequest& request) {
  const RankShape& shape = op.shared.shape;
  const std::int64_t each = shape.gather ? request.elements / shape.tensor : request.elements;
  const std::int64_t first = n.piece * each;
  const bool in_place = request.in == request.out;
  request.in = op.element(request.in, first);
  request.out = in_place ? request.in : op.element(request.out, first);
  if (shape.gather) request.pitch = n.pieces * each;
}

// What a collective asks for. Statistics are fp32 and stay in place; gradients that go round are
// fp32 sums.
CollectiveRequest request_of(const OpView& op, const Node& n, UnequalParts* parts) {
  const bool statistics = node_row(n).statistics;
  const bool weights = n.kernel == Kernel::DispatchWeights || n.kernel == Kernel::CombineWeights;
  const bool wide = statistics || weights || n.fp32 || n.kernel == Kernel::RingKeyGradients;
  const ElementType type =
      wide ? ElementType::Float32 : element_of(op.shared.plan.precision.compute);
  CollectiveRequest request{.axis = n.axis,
                            .kind = collective_kind(n.kind()),
                            .type = type,
                            .maximum = n.kernel == Kernel::MaximaOverRanks,
                            .in = statistics        ? op.out(n)
                                  : n.reads.empty() ? brought_of_parameter(op, n)
                                                    : op.in(n, 0),
                            .out = op.out(n),
                            .elements = n.bytes / bytes_of(type),
                            .root = n.owner,
                            .layer = op.info().layer};
  if (n.pieces > 1) take_piece(op, n, request);
  const bool rows = n.kernel == Kernel::Dispatch || n.kernel == Kernel::Combine;
  if (op.shared.room.slot == 0 && (rows || weights)) {
    split(op, n, rows ? op.shared.shape.hidden : op.shared.model.experts.per_token, parts);
    request.sends = parts->sends.data();
    request.receives = parts->receives.data();
  }
  return request;
}

}  // namespace

void with_neighbour(const OpView& /*op*/, const Node& /*n*/) {}
void as_it_lies(const OpView& /*op*/, const Node& /*n*/) {}
void of_frameworks(const OpView& /*op*/, const Node& /*n*/) {
  assert(false && "no node of a body that is run here");
}

OpCursor::OpCursor(const BodyRunner& runner, Device& device, Kernels& kernels, Lane lane,
                   const Coordinates& at)
    : state_(std::make_unique<State>(runner.shared(), device, kernels, lane, at)) {}
OpCursor::~OpCursor() = default;
OpCursor::OpCursor(OpCursor&&) noexcept = default;
OpCursor& OpCursor::operator=(OpCursor&&) noexcept = default;

void OpCursor::start(const ComputeOp& op, const StepFacts& facts, Track track, bool beside) {
  State& s = *state_;
  s.op.compute = &op;
  s.op.facts = facts;
  s.op.lane.track = track;
  s.carry.sum = {};
  s.carry.gelu = false;
  s.carry.failure.clear();
  s.visited = 0;
  s.inside = false;
  s.beside = beside;
  s.meets = false;
}

void OpCursor::hands_on() {
  State& s = *state_;
  if (s.sent_on.track != s.op.lane.track) s.op.device.order(s.op.lane, s.sent_on);
}

void OpCursor::met() {
  State& s = *state_;
  s.meets = false;
  if (s.sent_on.track != s.op.lane.track) s.op.device.order(s.sent_on, s.op.lane);
}

Progress OpCursor::run(CollectiveRequest* request) {
  State& s = *state_;
  OpView& op = s.op;
  std::size_t& next = s.carry.next;
  const std::size_t segments = op.compute->segments.size();
  const bool ascends = op.compute->kind == OpKind::Forward || op.compute->kind == OpKind::Recompute;
  for (; s.visited < segments; ++s.visited, s.inside = false) {
    if (!s.inside) enter(op, ascends ? s.visited : segments - 1 - s.visited);
    s.inside = true;
    while (next < op.body->nodes.size()) {
      if (s.meets && next >= s.wait_at) return Progress::Waits;
      const Node& node = op.body->nodes[next++];
      node_row(node).perform(op, node);
      if (is_collective(node)) {
        *request = request_of(op, node, &s.parts);
        s.meets = true;
        s.wait_at = std::max(next, static_cast<std::size_t>(std::max(node.until, 0)));
        const bool goes_on = s.beside || s.wait_at > next;
        s.sent_on = goes_on ? op.lane.on(Track::Collectives) : op.lane;
        request->lane = s.sent_on;
        return Progress::Collective;
      }
      if (!s.carry.failure.empty()) return Progress::Failed;
    }
    if (s.meets) return Progress::Waits;
  }
  return Progress::Done;
}

const std::string& OpCursor::failure() const {
  return state_->carry.failure;
}

}  // namespace rehearse::exec
