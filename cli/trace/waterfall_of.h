// SPDX-License-Identifier: Apache-2.0
// The causes between two steps (sim/explain) as the waterfall that is drawn: what explain, render
// and view show alike.
#pragma once

#include <optional>

#include "schedules/trace/trace.h"
#include "sim/explain/explanation.h"
#include "viz/picture/charts/waterfall.h"

namespace rehearse::cli {

viz::Waterfall waterfall_of(const sim::Explanation& explanation);
// None where a trace holds no step. REQUIRES: idle time has its causes (attribute_idle), and no
// rows were repeated (align_rows).
std::optional<viz::Waterfall> waterfall_of(const Trace& a, const Trace& b);

}  // namespace rehearse::cli
