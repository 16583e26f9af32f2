// SPDX-License-Identifier: Apache-2.0
// So many inputs to every reader in every test run (sixty times as many in the long form), seeded:
// the same in every run, however fast the machine is; and every input that once broke one. The same
// functions run for minutes under libFuzzer (readers_fuzz.cc), in parts that hold each of them.
#include "tests/fuzz/readers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fuzz/mutator.h"

namespace rehearse {
namespace {

class Readers : public ::testing::TestWithParam<testing::Reader> {};

TEST_P(Readers, AnswerAnyBytes) {
  const testing::Reader& reader = GetParam();
  std::vector<std::string> seeds = testing::seeds_of(reader);
  std::int64_t read = 0, sound = 0;
  for (const std::string& seed : seeds) sound += reader.one_input(seed) ? 1 : 0;
  EXPECT_TRUE(sound > 0 || reader.seeds.empty()) << "no seed is a file of this kind";
  std::erase_if(seeds, [](const std::string& seed) { return seed.size() > 200'000; });
  testing::Mutator mutator(std::move(seeds));
  const int tries = reader.inputs * (std::getenv("REHEARSE_TEST_LONG") != nullptr ? 60 : 1);
  for (int i = 0; i < tries; ++i) read += reader.one_input(mutator.next()) ? 1 : 0;
  RecordProperty("read", std::to_string(read));
}

INSTANTIATE_TEST_SUITE_P(All, Readers, ::testing::ValuesIn(testing::readers()),
                         [](const auto& reader) { return std::string(reader.param.name); });

// `./run fuzz PART` reaches every reader, and every program that is a target of its own, once.
TEST(FuzzParts, HoldEveryTargetOnce) {
  std::vector<std::string> wanted, held;
  for (const testing::Reader& reader : testing::readers()) wanted.emplace_back(reader.name);
  std::string line, word;
  for (std::ifstream in("tests/CMakeLists.txt"); std::getline(in, line);) {
    if (std::istringstream words(line); words >> word && word.starts_with("fuzz_target(")) {
      if (word != "fuzz_target(readers_fuzz") wanted.push_back(word.substr(12));
    }
  }
  for (std::ifstream in("tests/fuzz/parts.txt"); std::getline(in, line);) {
    if (!line.starts_with(' ')) continue;
    for (std::istringstream words(line); words >> word;) held.push_back(word);
  }
  std::ranges::sort(wanted);
  std::ranges::sort(held);
  EXPECT_EQ(held, wanted);
}

}  // namespace
}  // namespace rehearse
