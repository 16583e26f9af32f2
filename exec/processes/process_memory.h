// SPDX-License-Identifier: Apache-2.0
// What the system counts of a process's memory, and of several processes together.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace rehearse::exec {

// All 0 where the system does not say [B].
struct ProcessMemory {
  std::int64_t peak = 0;      // most that was resident at once (VmHWM)
  std::int64_t resident = 0;  // now (VmRSS)
  // Parts of `resident`: pages of files (the program, its libraries, mapped files) and of memory
  // that processes share. Other processes of the run have the same pages.
  std::int64_t files = 0, shared = 0;
  std::int64_t machine = 0;  // processes of one machine have one number

  std::int64_t own() const { return resident - files - shared; }
};

// `process`: its number; 0: this one.
ProcessMemory process_memory(int process = 0);

// Peaks of all processes, added up; what processes of one machine share, pages of files among it,
// counts once, with the one that has most of it. At least what was resident at one moment, at most
// a little more: the processes' peaks need not fall together.
std::int64_t peak_together(std::span<const ProcessMemory> processes);

}  // namespace rehearse::exec
