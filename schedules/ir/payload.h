// SPDX-License-Identifier: Apache-2.0
// What an op moves, in one place: prices, traces, listings and the executor read it here.
//
// A collective's and a transfer's payload is a column of the schedule (Schedule::carried), written
// by the lowering: the bytes of the values say it not, since a reduction over tensor ranks carries
// a part of its bucket and a framework's gradients travel narrower than they are summed.
#pragma once

#include "schedules/ir/schedule.h"

namespace rehearse {

// A collective's payload is the whole array, per member; a transfer's what one rank sends; a copy's
// what crosses the link to the host. None for other ops. Where the schedule has no such column (a
// file of somebody's): what the op's first value holds, as bytes.
Carried payload_of(const Schedule& schedule, OpId op);

}  // namespace rehearse
