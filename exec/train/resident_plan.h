// SPDX-License-Identifier: Apache-2.0
// What a run on the CPU will hold in memory, said before it starts: the arenas that its schedule
// plans, and everything else by what it is. Sizes follow from the schedule, the model and the shape
// of the run; of the program itself they are what the system counts of this very process. Nothing
// is fitted to a measured run.
//
// Deliberately not here: a GPU's memory, and what processes of frameworks hold.
#pragma once

#include <cstdint>

#include "exec/processes/process_memory.h"
#include "schedules/ir/schedule.h"
#include "schedules/scenario/layout.h"
#include "schedules/trace/resident_memory.h"

namespace rehearse::exec {

struct RunShape {
  std::int32_t processes = 1;   // divides the ranks
  bool launched = false;        // by a launcher of ours, a process too
  int workers = 1;              // threads of each process that perform ops
  std::int64_t data_bytes = 0;  // of the mapped file that the run reads, in all processes
  bool checkpoints = false;     // are written
  ProcessMemory program;        // of this process, before it read anything
  ProcessMemory now;            // of this process, when this is asked
};

// REQUIRES: a schedule lowered for the run, with its arenas.
ResidentPlan plan_resident(const Layout& layout, const Schedule& schedule, const RunShape& shape);

}  // namespace rehearse::exec
