// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "tests/cuda/device.h"
#include "tests/cuda/emulation.h"

namespace rehearse::exec::cuda::testing {

std::string skip_reason() {
  return "";
}
bool has_wgmma() {
  return true;
}
void begin_pass(int pass) {
  emulation::set_order(pass == 0   ? emulation::Order::Forward
                       : pass == 1 ? emulation::Order::Backward
                                   : emulation::Order::Shuffled);
}
void* allocate(std::size_t bytes) {
  return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
}
void release(void* memory) {
  std::free(memory);
}
void to_device(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
void from_device(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
int synchronise() {
  return 0;
}

}  // namespace rehearse::exec::cuda::testing
