// SPDX-License-Identifier: Apache-2.0
// What a training run came to, before anybody says it in words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exec/backend/gpu_facts.h"
#include "exec/processes/process_memory.h"
#include "exec/step/exchanges/exchange_counts.h"
#include "exec/step/exchanges/own_exchanges.h"
#include "exec/train/train.h"
#include "schedules/scenario/scenario.h"
#include "schedules/trace/resident_memory.h"

namespace rehearse::exec {

struct Measurement {
  const Scenario* scenario = nullptr;  // with the plan that ran; REQUIRES: outlives it
  const Schedule* schedule = nullptr;
  std::vector<StepReport> steps;
  std::vector<std::int64_t> counted;  // per row: largest live sum over its ops' addresses [B]
  std::string backend = "cpu";        // or "cuda"
  std::string device;                 // the instruction set; the GPU and its libraries
  int workers = 1;                    // threads of each process
  int processes = 1;
  int cores = 1;  // of all machines of the run
  // When the ops of the last step ran, of every rank, rank after rank [ns since the first rank
  // began it].
  std::vector<Nanoseconds> start, end;

  // In what collectives the ranks met in the last step.
  std::vector<CollectiveCount> collectives;
  // What every rank held for the exchanges of a file's own groups, rank after rank.
  std::vector<HeldExchange> exchanges;

  double step_seconds() const;  // mean of the steps after the first (of the only one)
  // What the first process's GPU said after the last step; empty on the CPU.
  std::optional<GpuFacts> gpu;
  std::optional<ResidentPlan> resident;  // what was planned to be in memory; none on a GPU
  std::vector<ProcessMemory> memory;     // of every process, a launcher's last, at the end
  std::int64_t peak_counted() const;     // the largest over rows [B]
  std::int64_t peak_planned() const;
  // Resident memory of all processes, as the system counts it; 0: it does not say [B].
  std::int64_t peak_measured() const { return peak_together(memory); }
  // Ranks for each core that computes for them; above 1 they take turns. On a GPU 1.
  double ranks_per_core() const;
};

}  // namespace rehearse::exec
