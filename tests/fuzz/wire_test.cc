// SPDX-License-Identifier: Apache-2.0
// A second of fuzzing in every test run: seeded, so that a failure comes back. The same function
// runs for minutes under libFuzzer (wire_fuzz.cc).
#include "tests/fuzz/wire.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>

namespace rehearse {
namespace {

std::string play(std::mt19937_64& random) {
  std::string script;
  const auto add = [&](std::initializer_list<std::uint64_t> values) {
    for (const std::uint64_t value : values) script += static_cast<char>(value & 255);
  };
  if (random() % 4 != 0) {  // three members, as they should be
    for (std::uint64_t p = 0; p < 3; ++p) add({2, p, 4, p, p, 0, 0});
  }
  for (std::uint64_t i = random() % 60; i > 0; --i) {
    const std::uint64_t act = random() % 12;
    add({act, random() % 8, random() % 4, random()});
    for (std::uint64_t more = random() % 40; more > 0; --more) add({random()});
  }
  for (std::uint64_t edits = random() % 4; edits > 0 && !script.empty(); --edits) {
    script[random() % script.size()] = static_cast<char>(random());
  }
  return script;
}

TEST(Wire, AnyBytesAreAnsweredForASecond) {
  std::mt19937_64 random(20260722);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  std::int64_t tried = 0, joined = 0;
  while (std::chrono::steady_clock::now() < end) {
    joined += testing::try_wire(play(random));
    ++tried;
  }
  EXPECT_GT(tried, 100);
  EXPECT_GT(joined, tried);  // members are heard, not strangers alone
  RecordProperty("tried", std::to_string(tried));
}

}  // namespace
}  // namespace rehearse
