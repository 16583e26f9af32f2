// SPDX-License-Identifier: Apache-2.0
// How large a plan's schedule would be, told before any of it is made.
#pragma once

#include <cstdint>
#include <string>

#include "schedules/base/result.h"
#include "schedules/model/model.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// The plan with `micro_batch` samples per micro-batch, and what follows from it (the number of
// micro-batches, the group size of interleaved orders). Error: "KEY: what is wrong".
// REQUIRES: micro_batch divides global_batch / data_parallel (one of micro_batch_candidates).
Result<Plan> choose_micro_batch(const Plan& plan, std::int32_t micro_batch);

// Ops of the lowered schedule, about: compute, transfers, and what ZeRO and offload add per layer
// of every micro-batch. The rows that stand for equal ranks are counted once.
double lowered_ops(const Transformer& model, const Plan& plan);

// [B] of memory that this process may have: the machine's, or what `ulimit -v` leaves of it; 0: not
// known.
double memory_there();

// Whether the lowered plan is no larger than a schedule may be (2^28 ops) and fits in the memory
// that is there, and the bytes of its tensors can be counted (at most 2^58 for one micro-batch on a
// rank, by a bound from above). Error: one line that names plan.global_batch, or
// plan.micro_batch or plan.sequence_length. The figures are an estimate; what
// passes may still take minutes.
Result<> check_lowered_size(const Transformer& model, const Plan& plan);

// Whether so many ops of a schedule, made and simulated, fit in the memory that is there. Error:
// "WHAT: ... ops, which take ... GB: this machine gives ...".
Result<> check_ops_fit(const std::string& what, double ops);

// The same of an order alone, as rehearse schedule makes, proves and times it: at most 2^24 compute
// ops, 20 seconds of work. Error: "microbatches: ...". REQUIRES: resolve_shape returned the shape.
Result<> check_order_size(const ScheduleInfo& info, const ScheduleShape& shape);

}  // namespace rehearse
