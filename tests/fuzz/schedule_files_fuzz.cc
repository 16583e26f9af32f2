// SPDX-License-Identifier: Apache-2.0
// libFuzzer target (preset fuzz): ./run fuzz. Seeds: tests/data/schedules, tests/error/schedules.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/schedule_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rehearse::testing::try_schedule_file({reinterpret_cast<const char*>(data), size});
  return 0;
}
