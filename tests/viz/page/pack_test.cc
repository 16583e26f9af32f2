// SPDX-License-Identifier: Apache-2.0
// A packed trace is the trace, to the byte, predicted or measured; what is cut short or made up is
// refused.
#include "viz/page/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

namespace rehearse::viz {
namespace {

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// The trace file that the command writes.
std::string trace_of(const std::string& arguments) {
  const std::string path = testing::TempDir() + "/pack_test.trace";
  const std::string line =
      REHEARSE_COMMAND " " + arguments + " --trace " + path + " >/dev/null 2>&1";
  EXPECT_EQ(std::system(line.c_str()), 0) << line;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string unpacked(const std::string& packed) {
  std::string file(unpacked_bytes(bytes(packed)), 'x');
  const Result<> done = unpack_trace(bytes(packed), std::as_writable_bytes(std::span(file)));
  return done ? file : done.error().message;
}

TEST(Pack, KeepsEveryByte) {
  for (const char* of : {"simulate tiny-pp-4", "simulate 3d-8-gpus", "run tiny-pp-2 --steps 1"}) {
    const std::string file = trace_of(of);
    const std::string packed = pack_trace(bytes(file));
    EXPECT_EQ(unpacked(packed), file) << of;
    EXPECT_LE(packed.size(), file.size() + 8) << of;
  }
}

TEST(Pack, WhatIsCutShortIsSaid) {
  const std::string packed = pack_trace(bytes(trace_of("simulate tiny-pp-4")));
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{40}, packed.size() / 2, packed.size() - 1}) {
    EXPECT_EQ(unpacked(packed.substr(0, size)), "the packed trace is cut short") << size;
  }
}

// A waterfall comes back as it was; lines that are cut short or none are nothing.
TEST(Pack, AWaterfallComesBack) {
  const Waterfall fall{.title = "B takes 3 ms longer than A: communication",
                       .from = "A: one",
                       .to = "B: two, with a\nline",
                       .begin = 1'234'567'890'123,
                       .steps = {{"communication", 4'000'000}, {"compute", -1'000'000}}};
  const std::string lines = pack_waterfall(fall);
  const std::optional<Waterfall> back = unpack_waterfall(lines);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->title, fall.title);
  EXPECT_EQ(back->from, fall.from);
  EXPECT_EQ(back->to, "B: two, with a line");
  EXPECT_EQ(back->begin, fall.begin);
  ASSERT_EQ(back->steps.size(), 2u);
  EXPECT_EQ(back->steps[1].label, "compute");
  EXPECT_EQ(back->steps[1].difference, -1'000'000);
  for (const std::string& broken :
       {std::string(), std::string("a title\n"), lines.substr(0, lines.find("123456")),
        std::string("t\nf\nt\nmany\n"), lines + "no number\n", lines + "5\n"})
    EXPECT_FALSE(unpack_waterfall(broken)) << broken;
}

TEST(Pack, BrokenBytesEndInAnAnswer) {
  std::mt19937 random(1);
  const std::string packed = pack_trace(bytes(trace_of("simulate tiny-pp-4")));
  for (int round = 0; round < 2000; ++round) {
    std::string broken = packed;
    for (int change = 0; change < 3; ++change) {
      broken[random() % std::min<std::size_t>(broken.size(), 1200)] = static_cast<char>(random());
    }
    if (unpacked_bytes(bytes(broken)) > std::size_t{1} << 24)
      continue;  // more memory than a test has
    (void)unpacked(broken);
  }
}

}  // namespace
}  // namespace rehearse::viz
