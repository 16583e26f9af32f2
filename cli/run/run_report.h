// SPDX-License-Identifier: Apache-2.0
// What a training run came to: its timeline, for scripts (rehearse.measurement/1) and for people.
#pragma once

#include <string>

#include "exec/run/measurement.h"
#include "schedules/passes/lower.h"
#include "schedules/trace/trace.h"

namespace rehearse::cli {

// The last step: step_trace.h.
Trace measured_trace(const exec::Measurement& measurement);

// `order_by`: what the schedule was ordered by.
std::string measurement_json(const exec::Measurement& measurement, const Trace& trace,
                             const PriceOps& order_by);
std::string measurement_text(const exec::Measurement& measurement, const Trace& trace,
                             const PriceOps& order_by);
// One object per line: step, loss, grad_norm, lr, step_time_s, tokens_per_s, peak_allocated_bytes.
std::string metrics_line(const Layout& layout, const exec::StepReport& step,
                         std::int64_t peak_bytes);
// What a terminal shows while it runs, without a line's end.
std::string progress_line(const exec::StepReport& step, std::int64_t steps,
                          std::int64_t peak_bytes);

}  // namespace rehearse::cli
