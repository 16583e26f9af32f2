// SPDX-License-Identifier: Apache-2.0
// L0 to L1: everything that is simulated and executed, from a compute order, a model and a plan.
//
// The passes in order, each a function of its own file that begins with its invariant. On the
// whole:
//   make_buckets      whole segments' parameters into flat buckets of one layout
// row by row (row_draft.h), each adding ops to the row:
//   split_parts       divides an op only where something must start, wait or be freed (cut.cc)
//   hold_parameters   what lies on the ranks from step to step
//   place_exchanges   collectives that a file lists over groups of its own, with their data
//   compute_parts     the compute ops: what each reads, writes and keeps
//   place_transfers   a RECV before, a SEND behind what another position makes or takes
//   shard_parameters  gathers of what is sharded
//   sync_gradients    sums over replicas, once gradients are ready
//   offload           copies to the host and back
//   end_step          norm, optimizer, what brings the update to all
//   weave             a row's program: its ops in the order of their places
// and on the whole again:
//   order             one global order by the times of ops, each row restricted to it
//   plan_lifetimes    versions, last uses, holds, arena
//   add_waits         events across streams, memory reuse included
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/body/body.h"
#include "schedules/ir/schedule.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/layout.h"

namespace rehearse {

// Estimated durations that decide the order where nobody prices the ops [ns, each >= 1].
struct Estimates {
  std::int64_t embedding_forward = 1, embedding_backward = 1;
  std::int64_t layer_forward = 4, layer_input = 4, layer_weight = 4;  // B = I + W
  std::int64_t layer_again = 0;  // of layer_input: what an R takes out of it
  std::int64_t head_forward = 3, head_backward = 1;
  std::int64_t transfer = 1;  // a SEND with its RECV
  std::int64_t other = 1;     // collectives, norm, optimizer, copies of a few numbers
  std::int64_t copy(std::int64_t bytes) const { return other + bytes / copied_per_ns; }
  std::int64_t copied_per_ns = std::int64_t{1} << 40;  // [B] between device and host
  std::int64_t of(SegmentKind kind, Direction direction) const;
  bool operator==(const Estimates&) const = default;
};
// By FLOP counts at a round rate: orders need ratios only.
Estimates estimate_by_flops(const Layout& layout);

// What a planned schedule (zb_1p, zb_2p, auto) is planned for: the estimates, summed over the
// segments of every stage. From model and plan alone, so that simulate and run plan the same order.
void fill_planned_times(const Layout& layout, ScheduleShape& shape);

// What every op takes on some machine [ns], in the order of `drafted`: the schedule before its
// global order is known, each row's ops as its program lists them, with operands, payloads and
// groups, without versions, lifetimes and waits. Empty: nobody knows, the estimates hold.
using PriceOps =
    std::function<Result<std::vector<std::int64_t>>(const Schedule& drafted, const Layout& layout)>;

struct LowerOptions {
  std::optional<Estimates> estimates;  // none: estimate_by_flops
  PriceOps price;                      // decides the order in place of the estimates
  bool plan_arena = true;  // false: no offsets and no reuse edges (frameworks have an allocator)
  // false: no versions, last uses and holds either, for who asks how long a step takes and no more
  bool lifetimes = true;
  // Where activations go to the host, and the runtime is a framework's: bytes that its forward
  // keeps of a segment, by segment_class. Our bodies say it themselves.
  std::vector<std::int64_t> kept{};
};

struct Lowered {
  Schedule schedule;
  std::vector<OpId> drafted;  // per op: which it was of those that LowerOptions::price saw
};

// REQUIRES: `order` is a valid L0 schedule of the plan's name and shape, or a shorter one
// (shorter_order, plan_order.h): then all is lowered as in the middle of the plan's step.
// Errors: what a plan asks for and this version cannot lower, in one line; that of `price`.
Result<Lowered> lower_priced(const Schedule& order, const Layout& layout,
                             const LowerOptions& options);
// The schedule alone.
Result<Schedule> lower(const Schedule& order, const Layout& layout,
                       const LowerOptions& options = {});

}  // namespace rehearse
