// SPDX-License-Identifier: Apache-2.0
// What the emulation's parts know of the block that runs.
#pragma once

#include "tests/cuda/emulation.h"

namespace emulation {

// Shared memory of a block on sm_90 [B]; 163 KiB on sm_80, to which launch_test holds attention.
constexpr std::size_t kSharedLimit = 227 * 1024;

[[noreturn]] void fail(const char* what);
// Shared memory at an address that is a multiple of `bytes`, and inside the block's.
std::byte* checked(std::uint32_t address, std::uint32_t bytes);
long barriers();  // of the block, that all its threads have reached
// As exchange(), between the 128 threads of a warpgroup.
const Slot* exchange_in_warpgroup(const char* name, const void* mine, std::size_t bytes,
                                  void (*combine)(Slot*));

// --- emulation_wgmma.cc ------------------------------------------------------
void begin_products(int threads);  // of a block
void end_products();               // of the thread: it ends
// The thread wrote the 16 bytes around the address, by an ordinary store or a copy that has landed.
void note_write(std::uint32_t address);

}  // namespace emulation
