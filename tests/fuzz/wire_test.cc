// SPDX-License-Identifier: Apache-2.0
// Two thousand inputs in every test run, seeded: the same however fast the machine is. The same
// function runs for minutes under libFuzzer (wire_fuzz.cc).
#include "tests/fuzz/wire.h"

#include <gtest/gtest.h>

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

TEST(Wire, AnyBytesAreAnswered) {
  std::mt19937_64 random(20260722);
  constexpr std::int64_t kTries = 2000;
  std::int64_t joined = 0;
  for (std::int64_t i = 0; i < kTries; ++i) joined += testing::try_wire(play(random));
  EXPECT_GT(joined, kTries);  // members are heard, not strangers alone
}

}  // namespace
}  // namespace rehearse
