// SPDX-License-Identifier: Apache-2.0
#include "viz/analysis/bubble.h"

#include <algorithm>
#include <limits>

namespace rehearse::viz {
namespace {

OpClass class_of(const Trace& trace, OpId op) {
  return traits(trace.class_of(op).kind).op_class;
}
// What brings data, and so waits for another op itself.
bool brings(OpClass op_class) {
  return op_class == OpClass::Transfer || op_class == OpClass::Collective ||
         op_class == OpClass::Copy;
}

// The op before `op` that ended last; `elsewhere`: on another lane, if there is one.
OpId last_before(const Trace& trace, const Causality& causes, OpId op, bool elsewhere) {
  OpId last, other;
  std::int64_t latest = -1, latest_other = -1;
  const std::int32_t lane = trace.lane_of(op);
  causes.for_each_before_op(op, [&](OpId before) {
    const std::int64_t end = trace.end_ns[before.index()];
    if (end > latest) {
      latest = end;
      last = before;
    }
    if (end > latest_other && trace.lane_of(before) != lane) {
      latest_other = end;
      other = before;
    }
  });
  return elsewhere && other ? other : last;
}

std::int64_t ready_at(const Trace& trace, const Causality& causes, OpId op) {
  const OpId last = last_before(trace, causes, op, false);
  return last ? trace.end_ns[last.index()] : 0;
}

}  // namespace

OpId other_end(const Trace& trace, const Causality& causes, OpId via) {
  const auto members = causes.members(causes.node_of(via));
  if (class_of(trace, via) == OpClass::Transfer) {
    for (const std::int32_t member : members) {
      if (trace.class_of({member}).kind == OpKind::Send) return {member};
    }
    return via;
  }
  OpId last = via;
  std::int64_t latest = -1;
  for (const std::int32_t member : members) {
    const std::int64_t ready = ready_at(trace, causes, {member});
    if (ready > latest) {
      latest = ready;
      last = {member};
    }
  }
  return last;
}

Wait waited_for(const Trace& trace, const Causality& causes, OpId op, LastMembers* known) {
  const OpId last = last_before(trace, causes, op, class_of(trace, op) == OpClass::Compute);
  if (!last) return {};
  if (!brings(class_of(trace, last))) return {.source = last};
  Wait wait{.via = last};
  if (known == nullptr) {
    wait.sent = other_end(trace, causes, last);
  } else {
    OpId& sent = known->try_emplace(causes.node_of(last)).first->second;
    wait.sent = sent = sent ? sent : other_end(trace, causes, last);
  }
  // What computed: other transfers of the same stream may stand between.
  OpId at = wait.sent;
  for (int steps = 0; steps < 64; ++steps) {
    const OpId before = last_before(trace, causes, at, true);
    if (!before || trace.end_ns[before.index()] > trace.end_ns[at.index()]) break;
    wait.source = before;
    if (!brings(class_of(trace, before))) break;
    at = before;
  }
  return wait;
}

Bubble bubble_at(const Trace& trace, const Causality& causes, std::int32_t idle) {
  const std::int64_t* rows_end = trace.idle_begin.data() + trace.idle_begin.size();
  const auto row = static_cast<std::size_t>(
      std::upper_bound(trace.idle_begin.data(), rows_end, std::int64_t{idle}) -
      trace.idle_begin.data() - 1);
  const auto span = [&](std::int32_t i) -> const IdleSpan& {
    return trace.idle[static_cast<std::size_t>(i)];
  };
  Bubble bubble{.row = {static_cast<std::int32_t>(row)}, .first = idle, .last = idle + 1};
  while (bubble.first > trace.idle_begin[row] &&
         span(bubble.first - 1).end == span(bubble.first).begin) {
    --bubble.first;
  }
  while (bubble.last < trace.idle_begin[row + 1] &&
         span(bubble.last).begin == span(bubble.last - 1).end) {
    ++bubble.last;
  }
  bubble.begin = span(bubble.first).begin;
  bubble.end = span(bubble.last - 1).end;
  bubble.op = span(bubble.last - 1).op;
  for (std::int32_t i = bubble.first; i < bubble.last; ++i)
    bubble.causes[static_cast<std::size_t>(span(i).cause)] += span(i).end - span(i).begin;
  if (bubble.op) {
    bubble.wait = waited_for(trace, causes, bubble.op);
  } else {
    bubble.wait.source = causes.last();
  }
  return bubble;
}

}  // namespace rehearse::viz
