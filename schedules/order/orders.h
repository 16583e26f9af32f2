// SPDX-License-Identifier: Apache-2.0
// Every order generator: shape in, compute order (L0) out. Order only: no bytes, no transfers, and
// no times but where a schedule is planned for given durations.
//
// REQUIRES of all: a shape that resolve_shape returned (every default filled in, constraints met).
// Notation in the files: p positions, r this position, m micro-batches, v chunks per position,
// F forward, B = I + W backward, I for the input, W for the weights.
#pragma once

#include "schedules/base/result.h"
#include "schedules/ir/schedule.h"
#include "schedules/order/registry.h"

namespace rehearse::order {

Result<Schedule> naive(const ScheduleShape& shape);
Result<Schedule> gpipe(const ScheduleShape& shape);
Result<Schedule> one_f_one_b(const ScheduleShape& shape);
Result<Schedule> eager_one_f_one_b(const ScheduleShape& shape);
Result<Schedule> interleaved_one_f_one_b(const ScheduleShape& shape);
Result<Schedule> looped_breadth_first(const ScheduleShape& shape);
Result<Schedule> sequence_one_f_one_b(const ScheduleShape& shape);
Result<Schedule> sequence_zero_bubble_h1(const ScheduleShape& shape);
Result<Schedule> zero_bubble_h1(const ScheduleShape& shape);
Result<Schedule> zero_bubble_h2(const ScheduleShape& shape);
Result<Schedule> interleaved_zero_bubble(const ScheduleShape& shape);
Result<Schedule> zero_bubble_1p(const ScheduleShape& shape);
Result<Schedule> zero_bubble_2p(const ScheduleShape& shape);
Result<Schedule> automatic(const ScheduleShape& shape);
Result<Schedule> zero_bubble_v(const ScheduleShape& shape);
Result<Schedule> v_half(const ScheduleShape& shape);
Result<Schedule> v_min(const ScheduleShape& shape);
Result<Schedule> one_f_one_b_v(const ScheduleShape& shape);
Result<Schedule> dual_pipe(const ScheduleShape& shape);
Result<Schedule> dual_pipe_v(const ScheduleShape& shape);
Result<Schedule> chimera(const ScheduleShape& shape);
Result<Schedule> chimera_doubled(const ScheduleShape& shape);
Result<Schedule> hanayo(const ScheduleShape& shape);
Result<Schedule> bitpipe(const ScheduleShape& shape);

// Of those whose orders are known to grow by what their rules do again and again.
Growing v_half_growing(const ScheduleShape& shape);
Growing one_f_one_b_v_growing(const ScheduleShape& shape);
Growing chimera_doubled_growing(const ScheduleShape& shape);
Growing hanayo_growing(const ScheduleShape& shape);
Growing bitpipe_growing(const ScheduleShape& shape);

}  // namespace rehearse::order
