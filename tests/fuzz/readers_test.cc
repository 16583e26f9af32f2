// SPDX-License-Identifier: Apache-2.0
// A second of fuzzing of every reader in every test run (a minute in the long form), seeded, so
// that a failure comes back; and every input that once broke one. The same functions run for
// minutes under libFuzzer (readers_fuzz.cc).
#include "tests/fuzz/readers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/fuzz/mutator.h"

namespace rehearse {
namespace {

class Readers : public ::testing::TestWithParam<testing::Reader> {};

TEST_P(Readers, AnswerAnyBytesForASecond) {
  const testing::Reader& reader = GetParam();
  std::vector<std::string> seeds = testing::seeds_of(reader);
  std::int64_t tried = 0, read = 0, sound = 0;
  for (const std::string& seed : seeds) sound += reader.one_input(seed) ? 1 : 0;
  EXPECT_TRUE(sound > 0 || reader.seeds.empty()) << "no seed is a file of this kind";
  std::erase_if(seeds, [](const std::string& seed) { return seed.size() > 200'000; });
  testing::Mutator mutator(std::move(seeds));
  const bool thorough = std::getenv("REHEARSE_TEST_LONG") != nullptr;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(thorough ? 60 : 1);
  while (std::chrono::steady_clock::now() < end) {
    read += reader.one_input(mutator.next()) ? 1 : 0;
    ++tried;
  }
  EXPECT_GT(tried, 5);
  RecordProperty("tried", std::to_string(tried));
  RecordProperty("read", std::to_string(read));
}

INSTANTIATE_TEST_SUITE_P(All, Readers, ::testing::ValuesIn(testing::readers()),
                         [](const auto& reader) { return std::string(reader.param.name); });

}  // namespace
}  // namespace rehearse
