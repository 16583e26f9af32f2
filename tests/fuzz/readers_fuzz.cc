// SPDX-License-Identifier: Apache-2.0
// libFuzzer target (preset fuzz) of every reader: readers_fuzz --reader=cluster CORPUS...
// Without a reader it lists them; --seeds=FOLDER writes what the reader begins with and stops.
// ./run fuzz gives each of them its share of time.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/fuzz/readers.h"

namespace {
const rehearse::testing::Reader* chosen = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  constexpr std::string_view kReader = "--reader=", kSeeds = "--seeds=";
  std::string_view seeds;
  for (int i = 1; i < *count; ++i) {
    const std::string_view argument = (*arguments)[i];
    if (argument.starts_with(kReader)) {
      chosen = rehearse::testing::find_reader(argument.substr(kReader.size()));
    } else if (argument.starts_with(kSeeds)) {
      seeds = argument.substr(kSeeds.size());
    }
  }
  if (chosen != nullptr && !seeds.empty()) {
    std::size_t number = 0;
    for (const std::string& seed : rehearse::testing::seeds_of(*chosen)) {
      std::ofstream(std::string(seeds) + "/seed" + std::to_string(number++), std::ios::binary)
          << seed;
    }
    std::exit(0);
  }
  if (chosen != nullptr) return 0;
  for (const rehearse::testing::Reader& reader : rehearse::testing::readers()) {
    std::printf("%s\n", std::string(reader.name).c_str());  // what --reader= takes
  }
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen->one_input({reinterpret_cast<const char*>(data), size});
  return 0;
}
