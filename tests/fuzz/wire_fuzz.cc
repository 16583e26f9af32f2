// SPDX-License-Identifier: Apache-2.0
// libFuzzer target (preset fuzz) of the store's protocol, both ends: build/fuzz/bin/wire_fuzz.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)rehearse::testing::try_wire({reinterpret_cast<const char*>(data), size});
  return 0;
}
