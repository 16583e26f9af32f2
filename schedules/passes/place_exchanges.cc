// SPDX-License-Identifier: Apache-2.0
// Collectives that stand on the compute stream beside the parts of a row.
//
// Exchanges of a file's own groups: each behind what stands before it in the file and before what
// stands behind, on data of its own that lie on the ranks from step to step.
//
// Exchanges of DataParallel through one GPU (torch/nn/parallel/data_parallel.py, scatter_gather.py,
// _functions.py), for every micro-batch: tokens and parameters go to all replicas before the
// forward; behind it their outputs come to the root, which computes the loss alone, and their
// gradients go back. Calls of torch on the current stream: nothing runs beside them. The root has
// its own tokens, and the gradients of its outputs, in the array of all.
//
// Invariant behind it: the row has one op for each collective that its position lists, in that
// order; what a member of an own group brings and gets are values that persist; every micro-batch
// through a root has tokens and parameters before its forward, and gradients of its outputs.
#include <algorithm>
#include <utility>

#include "schedules/body/loss_body.h"
#include "schedules/ir/exchange_parts.h"
#include "schedules/passes/row_draft.h"

namespace rehearse {
namespace {

void place_own(RowDraft& row, const OwnExchange& listed) {
  const Group& own = row.draft.order.groups[listed.op.group.index()];
  const auto group = std::ranges::find_if(
      row.s.groups, [&](const Group& one) { return one.name() == own.name(); });
  const MatchId match = row.draft.shared_match(Meeting::Own, listed.op.match.value, row.replica);
  const Carried carried = row.draft.order.carried[listed.op.match.index()];
  row.draft.carried[match.index()] = carried;
  Op op = listed.op;
  op.group = {static_cast<std::int32_t>(group - row.s.groups.begin())};
  op.match = match;
  const std::int32_t at = listed.parts == 0 ? row.start() : row.at(listed.parts - 1, Phase::Reduce);
  row.add(op, row.draft.estimates.other, at);
  const auto member = std::ranges::find(own.rows, RankClass{row.position.value});
  const auto place = static_cast<std::int32_t>(member - own.rows.begin()) % own.size;
  const ExchangeParts parts = exchange_parts(op.kind, place == op.peer.value);
  for (const auto& [portion, access] :
       {std::pair{parts.brings, Access::Read}, std::pair{parts.gets, Access::Update}}) {
    if (portion == Portion::Nothing) continue;
    const std::int64_t bytes = carried.bytes() / (portion == Portion::Part ? own.size : 1);
    const ValueId value = row.value(ValueKind::Workspace, bytes);
    row.of(value).persistent = true;
    row.operand(value, access);
  }
}

class ThroughRootPlacer {
 public:
  explicit ThroughRootPlacer(RowDraft& row)
      : row_(row),
        replicas_(row.draft.plan.replicas()),
        tokens_(row.draft.layout.shape.tokens),
        outputs_{.elements = tokens_ * output_columns(row.draft.layout),
                 .element_bytes = static_cast<std::int32_t>(row.draft.layout.shape.element)} {}

  void run() {
    row_.through_root.resize(static_cast<std::size_t>(row_.draft.order.microbatches));
    if (row_.owner) fetch_batch();
    for (std::size_t part = 0; part < row_.parts.size(); ++part) {
      const Part& at = row_.parts[part];
      if (at.op.kind != OpKind::Forward) continue;
      if (at.index == 0) before_forward(at.op, row_.at(part, Phase::Before));
      if (at.last()) behind_forward(at.op, row_.at(part, Phase::Reduce));
    }
  }

 private:
  ThroughRoot& of(const Op& op) { return row_.through_root[op.microbatch.index()]; }

  // Tokens and targets of all replicas, for the whole step; the targets stay with the root.
  void fetch_batch() {
    const std::int64_t bytes = 4 * row_.plan.microbatches() * replicas_ * tokens_;
    batch_ = row_.fetch_input(0, bytes);
    targets_ = row_.fetch_input(1, bytes);
    for (ThroughRoot& one : row_.through_root) one.tokens = batch_;
  }

  void before_forward(const Op& forward, std::int32_t at) {
    exchange(OpKind::Scatter, Meeting::Tokens, forward, Payload::None,
             {.elements = tokens_, .element_bytes = 4}, at);
    if (row_.owner) {
      row_.operand(batch_, Access::Read);
    } else {
      of(forward).tokens = row_.value(ValueKind::Input, 4 * tokens_, forward);
      row_.of(of(forward).tokens).instance = 0;
      row_.operand(of(forward).tokens, Access::Write);
    }
    of(forward).parameter.assign(row_.s.buckets.size(), {});
    for (std::size_t b = 0; b < row_.s.buckets.size(); ++b) {
      const BucketId id{static_cast<std::int32_t>(b)};
      row_.collective(
              OpKind::Broadcast, row_.bucket(id).replicas, Stream::Compute, id, at,
              row_.draft.shared_match(Meeting::Parameters, id.value, forward.microbatch.value))
          .op.instance = forward.microbatch.value;
      ValueId& copy = of(forward).parameter[b];
      copy = row_.owner
                 ? row_.parameter[b]
                 : row_.bucket_value(ValueKind::FullParameter, id,
                                     row_.draft.layout.shape.element * row_.bucket(id).padded);
      if (!row_.owner) row_.of(copy).instance = forward.microbatch.value;
      row_.operand(copy, row_.owner ? Access::Read : Access::Write);
    }
  }

  void behind_forward(const Op& forward, std::int32_t at) {
    ThroughRoot& here = of(forward);
    const Stage behind{forward.stage.value + 1};  // the loss's, whose gradient it hands back
    here.outputs = row_.value(ValueKind::Activation, outputs_.bytes(), forward);
    here.gradient = row_.value(ValueKind::ActivationGradient,
                               outputs_.bytes() * (row_.owner ? replicas_ : 1), behind, forward);
    exchange(OpKind::Gather, Meeting::Outputs, forward, Payload::Activation, outputs_, at);
    row_.operand(here.outputs, Access::Read);
    if (row_.owner) {
      row_.operand(here.gradient, Access::Write);
      loss(forward, at);
    }
    exchange(OpKind::Scatter, Meeting::OutputGradients, forward, Payload::Gradient, outputs_, at);
    row_.operand(here.gradient, row_.owner ? Access::Read : Access::Write);
  }

  // Makes the gradients of the outputs where these lie.
  void loss(const Op& forward, std::int32_t at) {
    row_.add({.kind = OpKind::Loss,
              .stream = Stream::Compute,
              .stage = forward.stage,
              .microbatch = forward.microbatch},
             row_.draft.estimates.other, at);
    row_.operand(of(forward).gradient, Access::Update);
    row_.operand(targets_, Access::Read);
    if (row_.loss) row_.operand(row_.loss, Access::Update);
    const std::int64_t workspace = make_loss_body(row_.draft.layout).workspace;
    if (workspace > 0) {
      row_.operand(row_.value(ValueKind::Workspace, workspace, forward), Access::Workspace);
    }
    if (row_.loss) return;
    row_.loss = row_.value(ValueKind::Metrics, 4);
    row_.operand(row_.loss, Access::Write);
  }

  // `each`: what a replica brings or gets.
  void exchange(OpKind kind, Meeting meeting, const Op& about, Payload payload, Carried each,
                std::int32_t at) {
    const MatchId match = row_.draft.shared_match(meeting, 0, about.microbatch.value);
    each.elements *= replicas_;
    row_.draft.carried[match.index()] = each;
    row_.add({.kind = kind,
              .stream = Stream::Compute,
              .payload = payload,
              .stage = about.stage,
              .microbatch = about.microbatch,
              .group = row_.s.group(GroupKind::Data),
              .match = match},
             row_.draft.estimates.other, at);
  }

  RowDraft& row_;
  std::int64_t replicas_, tokens_;
  Carried outputs_;  // of a replica
  ValueId batch_, targets_;
};

}  // namespace

void place_exchanges(RowDraft& row) {
  for (const OwnExchange& listed : row.exchanges) place_own(row, listed);
  if (row.draft.plan.has_parameter_server()) ThroughRootPlacer(row).run();
}

}  // namespace rehearse
