// SPDX-License-Identifier: Apache-2.0
// Where the kernels of a test run: on a GPU (device_cuda.cc) or in the emulation
// (device_emulated.cc). The tests are the same source, linked with one or the other.
#pragma once

#include <cstddef>
#include <string>

namespace rehearse::exec::cuda::testing {

std::string skip_reason();  // empty: there is a device
bool has_wgmma();
// Runs of a kernel that must give the same bits: pass 0, 1, 2, in the emulation in other orders.
void begin_pass(int pass);
void* allocate(std::size_t bytes);
void release(void* memory);
void to_device(void* to, const void* from, std::size_t bytes);
void from_device(void* to, const void* from, std::size_t bytes);
int synchronise();  // a cudaError_t

}  // namespace rehearse::exec::cuda::testing
