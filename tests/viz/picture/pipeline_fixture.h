// SPDX-License-Identifier: Apache-2.0
// Traces for tests, timed by hand: 1F1B with transfers, and random ones. Needs no simulator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "schedules/trace/trace.h"

namespace rehearse::viz::fixture {

struct Durations {
  std::int64_t forward = 1000, backward = 2000, transfer = 100, optimizer = 500;  // [ns]
};

struct Timed {
  Schedule schedule;
  std::vector<Nanoseconds> start, end;
};

// 1F1B on p positions with m micro-batches. Compute starts when the row is free and its input has
// arrived; a transfer starts when its producer ends and takes `transfer`; both ends are ops.
// Every compute op waits for its RECV, every SEND for its compute op.
inline Timed one_f_one_b(std::int32_t p, std::int32_t m, const Durations& d = {}) {
  struct Timing {
    std::int64_t start = 0, end = 0;
  };
  const auto at = [m](std::int32_t s, std::int32_t b) {
    return static_cast<std::size_t>(s * m + b);
  };
  std::vector<Timing> forward(static_cast<std::size_t>(p * m)), backward(forward.size());
  std::vector<std::vector<std::pair<bool, std::int32_t>>> order(static_cast<std::size_t>(p));
  for (std::int32_t s = 0; s < p; ++s) {  // (is forward, micro-batch)
    auto& row = order[static_cast<std::size_t>(s)];
    const std::int32_t warmup = std::min(p - 1 - s, m);
    for (std::int32_t b = 0; b < warmup; ++b) row.push_back({true, b});
    for (std::int32_t b = 0; b < m; ++b) {
      if (warmup + b < m) row.push_back({true, warmup + b});
      row.push_back({false, b});
    }
  }
  // Relaxation over rows until nothing is left: each op needs its neighbour's result.
  std::vector<std::size_t> next(static_cast<std::size_t>(p));
  std::vector<std::int64_t> free(static_cast<std::size_t>(p));
  for (bool moved = true; moved;) {
    moved = false;
    for (std::int32_t s = 0; s < p; ++s) {
      const auto row = static_cast<std::size_t>(s);
      while (next[row] < order[row].size()) {
        const auto [is_forward, b] = order[row][next[row]];
        const std::int32_t from = is_forward ? s - 1 : s + 1;
        std::int64_t ready = 0;
        if (from >= 0 && from < p) {
          const Timing& producer = (is_forward ? forward : backward)[at(from, b)];
          if (producer.end == 0) break;
          ready = producer.end + d.transfer;
        }
        const std::int64_t start = std::max(free[row], ready);
        free[row] = start + (is_forward ? d.forward : d.backward);
        (is_forward ? forward : backward)[at(s, b)] = {start, free[row]};
        ++next[row];
        moved = true;
      }
    }
  }

  Timed out;
  out.schedule.level = Level::Full;
  out.schedule.name = "1f1b(p=" + std::to_string(p) + ",m=" + std::to_string(m) + ")";
  out.schedule.microbatches = m;
  out.schedule.placement = loop_placement(p, 1);
  struct Planned {
    Op op;
    Timing time;
    std::int32_t wait_kind = 0;
  };
  std::vector<OpId> waits;
  for (std::int32_t s = 0; s < p; ++s) {
    std::vector<Planned> ops;
    const auto add = [&](Op op, Timing time) { ops.push_back({op, time}); };
    const auto transfer = [&](OpKind kind, Payload payload, std::int32_t stage, std::int32_t b,
                              std::int64_t when, std::int32_t match) {
      add({.kind = kind,
           .stream = Stream::P2p,
           .payload = payload,
           .stage = {stage},
           .microbatch = {b},
           .peer = {payload == Payload::Activation ? stage + 1 : stage - 1},
           .match = {match}},
          {when, when + d.transfer});
    };
    for (std::int32_t b = 0; b < m; ++b) {
      add(compute_op(OpKind::Forward, {s}, {b}), forward[at(s, b)]);
      add(compute_op(OpKind::Backward, {s}, {b}), backward[at(s, b)]);
      const auto f = [&](std::int32_t stage) { return forward[at(stage, b)].end; };
      const auto g = [&](std::int32_t stage) { return backward[at(stage, b)].end; };
      const auto id = [&](std::int32_t stage) {
        return 2 * static_cast<std::int32_t>(at(stage, b));
      };
      if (s + 1 < p) transfer(OpKind::Send, Payload::Activation, s, b, f(s), id(s));
      if (s > 0) transfer(OpKind::Recv, Payload::Activation, s, b, f(s - 1), id(s - 1));
      if (s > 0) transfer(OpKind::Send, Payload::Gradient, s, b, g(s), id(s) + 1);
      if (s + 1 < p) transfer(OpKind::Recv, Payload::Gradient, s, b, g(s + 1), id(s + 1) + 1);
    }
    std::ranges::stable_sort(ops, {}, [](const Planned& op) { return op.time.start; });
    const std::int64_t last =
        ops.empty() ? 0 : std::max(ops.back().time.end, backward[at(s, m - 1)].end);
    if (d.optimizer > 0) {
      add({.kind = OpKind::OptimizerStep, .stream = Stream::Compute, .stage = {s}},
          {last, last + d.optimizer});
    }
    const auto first = static_cast<std::int32_t>(out.schedule.ops.size());
    for (const Planned& planned : ops) {
      out.schedule.ops.push_back(planned.op);
      out.start.push_back({planned.time.start});
      out.end.push_back({planned.time.end});
      // The op of the other stream of this row that feeds it.
      const bool is_send = planned.op.kind == OpKind::Send;
      const bool is_forward = planned.op.kind == OpKind::Forward;
      const bool is_backward_op = planned.op.kind == OpKind::Backward;
      for (std::int32_t i = 0; i < static_cast<std::int32_t>(ops.size()); ++i) {
        const Op& other = ops[static_cast<std::size_t>(i)].op;
        if (other.microbatch != planned.op.microbatch || !other.microbatch) continue;
        const bool feeds =
            (is_send &&
             other.kind == (planned.op.payload == Payload::Activation ? OpKind::Forward
                                                                      : OpKind::Backward)) ||
            (is_forward && other.kind == OpKind::Recv && other.payload == Payload::Activation) ||
            (is_backward_op && other.kind == OpKind::Recv && other.payload == Payload::Gradient);
        if (feeds) waits.push_back({first + i});
      }
      out.schedule.wait_begin.push_back(static_cast<std::int32_t>(waits.size()));
    }
    out.schedule.end_row();
  }
  out.schedule.waits = waits;
  return out;
}

inline Trace one_f_one_b_trace(std::int32_t p, std::int32_t m, const Durations& d = {},
                               TraceOptions options = {}) {
  const Timed timed = one_f_one_b(p, m, d);
  return make_trace(timed.schedule, timed.start, timed.end, std::move(options));
}

// 1F1B on p positions `copies` times over, each copy on ranks of its own, as a measurement has it; in
// copy `slow` forwards take half as long again.
inline Trace replicas_trace(std::int32_t p, std::int32_t m, std::int32_t copies, std::int32_t slow,
                            const Durations& d = {}) {
  Timed all;
  TraceOptions options{.label = TraceLabel::Measured, .title = "replicas"};
  std::int32_t ops = 0, matches = 0;
  for (std::int32_t copy = 0; copy < copies; ++copy) {
    Durations own = d;
    own.optimizer = 0;
    if (copy == slow) own.forward += own.forward / 2;
    const Timed one = one_f_one_b(p, m, own);
    if (copy == 0) {
      all.schedule.level = one.schedule.level;
      all.schedule.name = one.schedule.name;
      all.schedule.microbatches = m;
      all.schedule.placement = one.schedule.placement;
    }
    for (std::size_t i = 0; i < one.schedule.ops.size(); ++i) {
      Op op = one.schedule.ops[i];
      if (op.match) op.match.value += matches;
      all.schedule.ops.push_back(op);
      all.start.push_back(one.start[i]);
      all.end.push_back(one.end[i]);
      for (auto w = one.schedule.wait_begin[i]; w < one.schedule.wait_begin[i + 1]; ++w)
        all.schedule.waits.push_back({one.schedule.waits[static_cast<std::size_t>(w)].value + ops});
      all.schedule.wait_begin.push_back(static_cast<std::int32_t>(all.schedule.waits.size()));
    }
    for (std::int32_t row = 0; row < p; ++row) {
      all.schedule.row_begin.push_back(ops +
                                       one.schedule.row_begin[static_cast<std::size_t>(row) + 1]);
      options.rows.push_back({.position = {row}, .first_rank = {copy * p + row}});
      options.row_class.push_back(row);
    }
    ops += one.schedule.num_ops();
    matches += 2 * p * m;
  }
  options.schedule_hash = "replicas of " + all.schedule.name;
  return make_trace(all.schedule, all.start, all.end, std::move(options));
}

// `rows` compute lanes of `n` ops each: kinds, durations and gaps drawn with `seed`. Gaps and ops
// of length 0 occur.
inline Trace random_trace(std::int32_t rows, std::int32_t n, std::uint32_t seed,
                          std::int64_t longest = 1000) {
  std::mt19937 random(seed);  // its sequence is fixed by the standard
  static constexpr OpKind kKinds[] = {OpKind::Forward, OpKind::Backward, OpKind::InputGradient,
                                      OpKind::WeightGradient, OpKind::Recompute};
  Timed timed;
  timed.schedule.microbatches = n;
  timed.schedule.placement = loop_placement(rows, 1);
  for (std::int32_t row = 0; row < rows; ++row) {
    std::int64_t now = static_cast<std::int64_t>(random() % 5000);
    for (std::int32_t i = 0; i < n; ++i) {
      if (random() % 3 == 0)
        now += static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(longest));
      timed.schedule.ops.push_back(compute_op(kKinds[random() % 5], {row}, {i}));
      timed.start.push_back({now});
      now += static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(longest));
      timed.end.push_back({now});
    }
    timed.schedule.end_row();
  }
  return make_trace(timed.schedule, timed.start, timed.end);
}

}  // namespace rehearse::viz::fixture
