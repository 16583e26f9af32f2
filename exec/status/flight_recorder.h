// SPDX-License-Identifier: Apache-2.0
// The flight recorder's dump: the last ops of every rank as JSON, one file per rank, written when a
// run fails. The ring itself lies in the status board (exec/status/status.h), so that a launcher
// can write the record of a rank that was killed.
//
// A file: {"schema": "rehearse.flight/1", "rank", "step", "last_finished", "events": [{"step",
// "op", "id", "stream", "began_ns", "ended_ns", "waited_for"}]}, oldest event first; ended_ns null:
// it was under way; waited_for: a rank, "group" or null. Times are CLOCK_MONOTONIC of the rank's
// machine.
#pragma once

#include <cstdint>
#include <string>

#include "exec/status/status.h"
#include "schedules/ir/schedule.h"

namespace rehearse::exec {

std::string temporary_folder();  // $TMPDIR, or /tmp
// Where flight records go if the user names no folder: rehearse-flight-<pid> in $TMPDIR, or /tmp.
std::string default_flight_folder();

// Writes rank-<r>.json of ranks [first, last) into `folder`, which is made where it is missing.
// Ops are named as in `schedule`.
Result<> dump_flight(const StatusBoard& board, std::int32_t first, std::int32_t last,
                     const Schedule& schedule, const std::string& folder);

}  // namespace rehearse::exec
