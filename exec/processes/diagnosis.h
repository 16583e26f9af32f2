// SPDX-License-Identifier: Apache-2.0
// Who is to blame for a run that failed: the one line that a user sees.
//
// A process that died is the culprit; else one whose own work failed; else one that is stopped or
// silent; else follow who waits for whom. Because every edge of a schedule goes forward in its one
// global order, that chain ends at the rank whose next op has the smallest place: nobody else can
// be what it waits for. So the chain itself is never followed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/status/status.h"
#include "exec/store/store.h"
#include "schedules/ir/schedule.h"
#include "schedules/scenario/plan.h"

namespace rehearse::exec {

// What is known of a process when the run has failed.
struct ProcessView {
  enum class How : std::uint8_t {
    Running,
    Finished,
    Absent,   // never joined
    Killed,   // by signal `code`
    Exited,   // with `code`, without a word
    Lost,     // its connection closed without a word
    Stopped,  // by a signal
    Silent,   // no heartbeat for `silent_s`
  };
  How how = How::Running;
  int code = 0;
  double silent_s = 0;
  std::optional<FailureReport> report;
};

struct FailureAttribution {
  std::int32_t rank = -1;
  std::int32_t exit_code = 3;
  std::string line;  // for stderr
};

struct FailedRun {
  const Schedule& schedule;
  std::span<const RankClass> rows;         // by rank
  const StatusBoard& board;                // of all ranks, as far as known
  std::span<const ProcessView> processes;  // ranks are dealt to them in order
  double timeout_s = 0;
};
FailureAttribution diagnose(const FailedRun& run);

// The status of ranks [first, last) as bytes of a heartbeat, and back onto a board: what diagnose()
// reads, without the ring. Bytes that are none, or speak of other ranks, change nothing: a process
// tells of its own ranks alone.
std::string status_bytes(const StatusBoard& board, std::int32_t first, std::int32_t last);
void apply_status(std::string_view bytes, const StatusBoard& board, std::int32_t first,
                  std::int32_t last);

}  // namespace rehearse::exec
