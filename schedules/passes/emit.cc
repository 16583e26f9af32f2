// SPDX-License-Identifier: Apache-2.0
// Every op of every row, with its operands. Rows are emitted one by one in the order of L0, each
// communication beside the op that needs it; `order` then finds the places.
#include <algorithm>

#include "schedules/passes/row_emitter.h"

namespace rehearse {

// One issued op: a part, or an OVERLAP pair of two whole ops.
void RowEmitter::compute(std::size_t begin, std::size_t end) {
  const bool pair = end - begin == 2;
  for (std::size_t i = begin; i < end; ++i) {
    receive_inputs(parts_[i]);
    open_window(i);
    bring_back(i);
  }
  Op op = parts_[begin].op;
  std::int64_t duration = 0;
  for (std::size_t i = begin; i < end; ++i) duration += work(parts_[i]).duration;
  if (pair) {
    op = {.kind = OpKind::Overlap,
          .stage = op.stage,
          .microbatch = op.microbatch,
          .child = static_cast<std::int32_t>(s_.children.size())};
    for (std::size_t i = begin; i < end; ++i) s_.children.push_back(parts_[i].op);
  }
  op.stream = Stream::Compute;
  last_compute_ = d_.add(op, duration);
  for (const OpId reduction : reductions_) d_.wait_for(reduction);
  reductions_.clear();
  for (std::size_t i = begin; i < end; ++i) {
    if (parts_[i].op.kind == OpKind::Forward) {
      forward_operands(parts_[i]);
    } else {
      backward_operands(parts_[i]);
    }
  }
  for (std::size_t i = begin; i < end; ++i) send_outputs(parts_[i]);
  for (std::size_t i = begin; i < end; ++i) leave(i);
  const std::size_t first = d_.ops.size();
  for (std::size_t i = begin; i < end; ++i) contributed(parts_[i]);
  for (std::size_t i = first; i < d_.ops.size(); ++i) {
    const OpId id{static_cast<std::int32_t>(i)};
    if (d_.ops[i].op.stream == Stream::Compute) {
      last_compute_ = id;
    } else if (!d_.plan.overlap_gradient_reduce) {
      reductions_.push_back(id);
    }
  }
}

void RowEmitter::run() {
  held_ = !d_.plan.overlap_gradient_reduce && !reduce_each_microbatch();
  prepare_parts();
  prepare_states();
  prepare_windows();
  prepare_offload();
  const std::int64_t bytes = 4 * static_cast<std::int64_t>(m_) * shape_.tokens;
  for (const bool targets : {false, true}) {
    const Stage stage{targets ? s_.placement.stages() - 1 : 0};
    if (!holds(stage)) continue;
    const std::int32_t instance = targets ? 1 : 0;
    const ValueId host = value(ValueKind::Input, bytes);
    s_.values[host.index()].home = Home::Host;
    s_.values[host.index()].instance = instance;
    const ValueId device = value(ValueKind::Input, bytes);
    s_.values[device.index()].instance = instance;
    (targets ? targets_ : tokens_) = device;
    d_.add({.kind = OpKind::Fetch, .stream = Stream::H2d, .instance = instance},
           d_.estimates.other);
    d_.operand(host, Access::Read);
    d_.operand(device, Access::Write);
  }
  if (d_.plan.overlap_parameter_gather) gather_parameters({});
  const auto program = order_.program(Row{position_.value});
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (program[i].kind == OpKind::Overlap) {
      compute(op_begin_[i], op_begin_[i + 1]);
    } else {
      for (std::size_t p = op_begin_[i]; p < op_begin_[i + 1]; ++p) compute(p, p + 1);
    }
  }
  finish_step();
}

namespace {

BodyTable body_table(const Draft& draft, std::int32_t slices) {
  BodyTable table(static_cast<std::size_t>(slices));
  if (!draft.plan.runtime.own_executor) return table;
  for (std::size_t slice = 0; slice < table.size(); ++slice) {
    for (std::size_t k = 0; k < kSegmentKinds; ++k) {
      for (std::size_t d = 0; d < kDirections; ++d) {
        const Body body =
            make_body({draft.model, draft.plan}, {.segment = static_cast<SegmentKind>(k),
                                                  .direction = static_cast<Direction>(d),
                                                  .slice = static_cast<std::int32_t>(slice)});
        table[slice][k][d] = {body.saved_for_input, body.saved_for_weight, body.left_for_weight,
                              body.workspace, body.key_value_gradient};
      }
    }
  }
  return table;
}

// A group of one rank does not exist.
std::vector<Group> make_groups(const Draft& draft) {
  const Plan& plan = draft.plan;
  const Placement& placement = draft.schedule.placement;
  std::vector<Group> groups;
  std::vector<Row> all;
  for (std::size_t r = 0; r < draft.schedule.rows.size(); ++r) {
    all.push_back({static_cast<std::int32_t>(r)});
  }
  const auto add = [&](GroupKind kind, std::int32_t size, std::vector<Row> rows) {
    if (size > 1) groups.push_back({.kind = kind, .size = size, .rows = std::move(rows)});
  };
  add(GroupKind::Tensor, plan.tensor_parallel, all);
  add(GroupKind::Context, plan.context_parallel, all);
  add(GroupKind::Data, plan.data_parallel * plan.context_parallel, all);
  add(GroupKind::Pipeline, plan.pipeline_parallel, all);
  if (!placement.up.empty()) {
    add(GroupKind::Mirror, 2, all);
  } else if (draft.model.tied_embedding && placement.down.front() != placement.down.back()) {
    std::vector<Row> ends;
    for (const Row row : all) {
      const Position at = draft.schedule.rows[row.index()].position;
      if (at == placement.down.front() || at == placement.down.back()) ends.push_back(row);
    }
    add(GroupKind::Embedding, 2, ends);
  }
  add(GroupKind::World, plan.gpus(), all);
  return groups;
}

}  // namespace

void emit(Draft& draft, const Schedule& order) {
  Schedule& s = draft.schedule;
  const BodyTable bodies = body_table(draft, std::max(order.slices, 1));
  s.groups = make_groups(draft);
  const std::size_t classes = s.rows.size() / static_cast<std::size_t>(s.placement.positions);
  const std::size_t units = static_cast<std::size_t>(order.microbatches) *
                            static_cast<std::size_t>(std::max(order.slices, 1));
  std::vector<MatchId> transfers(2 * s.segments.size() * units * classes);
  for (MatchId& match : transfers) match = draft.new_match();
  // About: two transfers beside every compute op, two operands each, one of them new.
  const std::size_t ops = (3 * order.ops.size() + 16 * s.segments.size() + 64) * classes;
  draft.ops.reserve(ops);
  draft.operands.reserve(5 * ops / 2);
  s.values.reserve(ops);
  for (std::size_t r = 0; r < s.rows.size(); ++r) {
    RowEmitter(draft, bodies, order, Row{static_cast<std::int32_t>(r)}, transfers).run();
    draft.row_begin.push_back(static_cast<std::int32_t>(draft.ops.size()));
  }
}

}  // namespace rehearse
