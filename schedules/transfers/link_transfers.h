// SPDX-License-Identifier: Apache-2.0
// What a list of ops with transfers implies: who meets whom, and which op waits for which.
#pragma once

#include "schedules/ir/schedule.h"

namespace rehearse {

// Fills in, for a schedule whose rows list their transfers (read from a file, or just lowered):
//   Op::peer    position of the other end, from the placement (where it is none)
//   Op::match   the k-th SEND, counted row after row, and the RECV of the same payload, micro-batch
//               and slice on the neighbouring stage; an end without the other keeps none
//   instance    groups of transfers are numbered from 0 as they stand, each row's own
//   waits       op <- transfer that brings its input; SEND <- op that made it; op <- UNSHARD of its
//               stage. Left out where an earlier op of the same stream already waited for as much,
//               transfers being in one stream (p2p). Also what its own stream has only later: then
//               the schedule hangs in a circle that this wait closes
// So an engine needs stream order, waits and match, and no knowledge of stages. It repairs nothing:
// a transfer that is missing, doubled or out of order is what the validator reports.
Schedule link_transfers(Schedule schedule);

// Where the stage that a transfer goes to, or comes from, lies; none where there is no such stage.
Position other_end(const Schedule& schedule, const Op& transfer);

}  // namespace rehearse
