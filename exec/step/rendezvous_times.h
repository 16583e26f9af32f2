// SPDX-License-Identifier: Apache-2.0
// From when on an op that meets others really runs.
#pragma once

#include <span>
#include <vector>

#include "schedules/ir/schedule.h"

namespace rehearse::exec {

// A rank's clock says when it was ready for a SEND, a RECV or a collective; the transfer begins
// when the last of those that meet is. Per op: the later start, as the prediction counts it; an op
// that ended before the others were there (a copy that the sender left behind) keeps its own.
// REQUIRES: start and end have one entry per op.
std::vector<Nanoseconds> rendezvous_starts(const Schedule& schedule,
                                           std::span<const Nanoseconds> start,
                                           std::span<const Nanoseconds> end);

}  // namespace rehearse::exec
