// SPDX-License-Identifier: Apache-2.0
// One rank's training step, tensor by tensor, through the caching allocator.
//
// The program is the order of compute ops (L0); what an op allocates and frees is its segments'
// scripts; around them stand what the rank holds all the time and, under ZeRO-3 / FSDP, gathers
// and reductions of units. Where moments are born at the end of the first step, two are replayed.
// Long steps are replayed until the steady phase changes nothing any more, and from its end on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/layout.h"
#include "sim/memory/memory.h"
#include "sim/memory/memory_profile.h"
#include "sim/memory/memory_script.h"
#include "sim/memory/replay/caching_allocator.h"
#include "sim/memory/replay/memory_parts.h"

namespace rehearse::sim {

// What all rows of a plan share.
struct ReplaySetup {
  Layout layout;
  const MemoryProfile* profile = nullptr;
  const Schedule* order = nullptr;
  SegmentPrograms programs;
  std::vector<std::string> kinds;                  // memory_kinds, where they are told apart
  std::vector<std::vector<SegmentInfo>> segments;  // per stage
  std::vector<std::vector<Stage>> stages;          // per row
  std::int64_t handover = 0;                       // [B] of an activation
  std::int32_t compute_capability = 80;
  ReplicaRole role = ReplicaRole::Alike;
  // The load of the step before, where that had another one: what it leaves cached is there. Null:
  // every step is alike.
  const ReplaySetup* usual = nullptr;
  bool whole_step = false;  // replay every op, though the steady phase repeats
  bool samples = false;     // record memory op by op; REQUIRES whole_step
  // How many samples of a row's step are wanted: inside ops as many as that leaves for each.
  std::size_t most_samples = 4096;
};
// The setup of the fullest replica, where they differ.
ReplaySetup replay_setup(const MemoryProfile& profile, const Layout& layout,
                         std::int32_t compute_capability, const Schedule& order);
// The same of another one. REQUIRES: plan.has_parameter_server().
ReplaySetup with_role(const ReplaySetup& setup, ReplicaRole role);

// What an op makes of a rank's memory.
struct MemorySample {
  OpId op{};           // none: the optimizer step
  MemoryBytes most{};  // alive when the most was alive at once, while the op ran
  MemoryBytes after{};
  // The op's changes in equal runs, of each what was alive when the most was; the greatest of all
  // is `most`.
  std::vector<MemoryBytes> inside;
};

struct ReplayResult {
  bool out_of_memory = false;  // under the capacity; then the figures are those until then
  std::int64_t refused = 0;    // [B] CachingAllocator::refused
  std::size_t left_out = 0;    // ops of the last step that changed nothing and were not replayed
  RankMemory memory;           // allocator figures alone: no context, no communicators
  std::vector<std::int64_t> kinds;  // [B] of its activations at the peak, by ReplaySetup::kinds
  // Samples of every step that was replayed: in the order of the program, then the optimizer step.
  std::vector<MemorySample> samples;
  std::size_t last_step = 0;  // its first sample
};
ReplayResult replay_row(const ReplaySetup& setup, RankClass row, const AllocatorOptions& allocator);

}  // namespace rehearse::sim
