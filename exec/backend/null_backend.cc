// SPDX-License-Identifier: Apache-2.0
#include "exec/backend/null_backend.h"

#include <cstring>

namespace rehearse::exec {

// Far apart and never touched.
Result<std::byte*> NullDevice::allocate(std::int32_t rank, std::int64_t) {
  return reinterpret_cast<std::byte*>((static_cast<std::uintptr_t>(rank) + 1) << 40);
}

Result<std::byte*> NullDevice::allocate_host(std::int32_t rank, std::int64_t) {
  return reinterpret_cast<std::byte*>((static_cast<std::uintptr_t>(rank) + 1) << 40 |
                                      std::uintptr_t{1} << 39);
}

void NullDevice::read(void* to, const std::byte*, std::int64_t bytes) {
  std::memset(to, 0, static_cast<std::size_t>(bytes));
}

void NullDevice::begin_step() {
  if (calls_ != nullptr) calls_->clear();
}

}  // namespace rehearse::exec
