// SPDX-License-Identifier: Apache-2.0
// What a step takes longer where PyTorch's caching allocator has to empty its cache in every step.
//
// An allocation that finds neither a cached block nor room on the device makes the allocator wait
// for the device, give every cached segment back (cudaFree) and ask anew (cudaMalloc):
// pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp, release_cached_blocks. In a settled step as
// much is given back as is mapped anew, and the compute stream stands still meanwhile. Deliberately
// absent: that gathers are not issued ahead while the host waits.
#pragma once

#include <cstdint>

#include "schedules/ir/schedule.h"
#include "sim/memory/memory.h"
#include "sim/predict/pricing/pricing.h"

namespace rehearse::sim {

// Whether some rank does so in every step.
bool remaps(const MemoryReport& memory);
// [s] what that takes on the rank that maps most; us_per_gb: MemoryProfile::remap_us_per_gb.
double remap_seconds(const MemoryReport& memory, std::int32_t us_per_gb);

// Makes the ops during which it happens longer by it. `order` is what the memory was replayed from,
// `schedule` is lowered from it and priced.
void price_remapping(const MemoryReport& memory, std::int32_t us_per_gb, const Schedule& order,
                     const Schedule& schedule, Pricing& pricing);

}  // namespace rehearse::sim
