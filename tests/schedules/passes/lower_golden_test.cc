// SPDX-License-Identifier: Apache-2.0
// docs/ir.md's example, op by op and byte by byte. The files under tests/data/ir began as those of
// a prototype: rows as `listing` prints them, values with sizes and offsets, bytes alive per op.
// UPDATE_GOLDEN=1 rewrites them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "schedules/body/sizes.h"
#include "schedules/ir/listing.h"
#include "schedules/order/registry.h"
#include "schedules/passes/lower.h"
#include "schedules/scenario/plan_shape.h"
#include "tests/schedules/ir/example_case.h"

namespace rehearse {
namespace {

// The durations of the example: embedding 1, layer F 4, head F 3, layer B 8, head B 1, else 1.
Schedule lowered(std::int32_t zero_stage, ComputeType type, std::int32_t microbatches = 2) {
  static const Transformer model = example_model();
  const Plan plan = example_plan(zero_stage, type, microbatches);
  const Result<Schedule> order = generate("interleaved_1f1b", shape_of(plan).value());
  EXPECT_TRUE(order);
  const Result<Schedule> result = lower(order.value(), {model, plan}, {.estimates = Estimates{}});
  EXPECT_TRUE(result) << result.error().message;
  return result.value();
}

std::string read(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

bool rewrites() {
  return std::getenv("UPDATE_GOLDEN") != nullptr;
}

// Blanks between words do not count, and `last` lists a set: its members are sorted by name.
std::string normal(const std::string& line) {
  std::istringstream in(line);
  std::string text;
  std::vector<std::string> last;
  bool in_last = false;
  for (std::string word; in >> word;) {
    if (in_last && word == "|") {
      std::sort(last.begin(), last.end());
      for (const std::string& item : last) text += ' ' + item;
      last.clear();
      in_last = false;
    }
    if (!in_last) {
      text += (text.empty() ? "" : " ") + word;
      in_last = word == "last";
    } else if (word == "(to" || word.back() == ')') {
      last.back() += ' ' + word;
    } else {
      last.push_back(word);
    }
  }
  std::sort(last.begin(), last.end());
  for (const std::string& item : last) text += ' ' + item;
  return text;
}

void expect_listing(const Schedule& schedule, const std::string& path) {
  std::string text;
  for (std::int32_t r = 0; r < schedule.num_rows(); ++r) {
    text += "position " + std::to_string(r) + '\n' + listing(schedule, RankClass{r});
  }
  if (rewrites()) std::ofstream(path) << text;
  const auto expected = lines_of(read(path)), actual = lines_of(text);
  for (std::size_t i = 0; i < std::max(expected.size(), actual.size()); ++i) {
    EXPECT_EQ(i < actual.size() ? normal(actual[i]) : "",
              i < expected.size() ? normal(expected[i]) : "");
  }
}

TEST(LowerGolden, ZeroOneIsTheListingOpByOp) {
  expect_listing(lowered(1, ComputeType::Bf16), "tests/data/ir/z1.txt");
}

TEST(LowerGolden, ZeroThreeIsTheListingOpByOp) {
  expect_listing(lowered(3, ComputeType::Bf16), "tests/data/ir/z3.txt");
}

TEST(LowerGolden, EveryValueHasItsSizeAndItsOffset) {
  std::map<std::string, std::array<std::int64_t, 3>> expected;  // bf16, fp32, offset in bf16
  std::vector<std::string> names;
  std::istringstream in(read("tests/data/ir/z1_values.txt"));
  std::string comment;
  std::getline(in, comment);
  std::string position, name;
  for (std::int64_t a = 0, b = 0, c = 0; in >> position >> name >> a >> b >> c;) {
    names.push_back(position + ' ' + name);
    expected[names.back()] = {a, b, c};
  }
  ASSERT_EQ(expected.size(), 90U);
  for (const ComputeType type : {ComputeType::Bf16, ComputeType::Fp32}) {
    const bool fp32 = type == ComputeType::Fp32;
    const Schedule s = lowered(1, type);
    std::size_t seen = 0;
    for (std::size_t v = 0; v < s.values.size(); ++v) {
      const Value& value = s.values[v];
      if (value.home == Home::Host) continue;
      const ValueId id{static_cast<std::int32_t>(v)};
      std::string key = std::to_string(value.row.value) + ' ' + value_name(s, id);
      if (value.kind == ValueKind::Workspace) key += ':' + op_label(s, value.define);
      ASSERT_TRUE(expected.contains(key)) << key;
      EXPECT_EQ(value.bytes.value, expected[key][fp32 ? 1 : 0]) << key;
      if (!fp32 && rewrites()) expected[key][2] = value.offset.value;
      if (!fp32) {
        EXPECT_EQ(value.offset.value, expected[key][2]) << key;
      }
      ++seen;
    }
    EXPECT_EQ(seen, expected.size());
  }
  if (!rewrites()) return;
  std::ofstream out("tests/data/ir/z1_values.txt");
  out << comment << '\n';
  for (const std::string& key : names) {
    const auto& [bf16, fp32, offset] = expected[key];
    out << key << ' ' << bf16 << ' ' << fp32 << ' ' << offset << '\n';
  }
}

TEST(LowerGolden, AsManyBytesAreAliveAtEveryOp) {
  const Schedule s = lowered(1, ComputeType::Bf16);
  const auto rows = lines_of(read("tests/data/ir/z1_alive.txt"));
  ASSERT_EQ(rows.size(), 2U);
  std::string all;
  for (std::int32_t r = 0; r < 2; ++r) {
    std::string text;
    const std::int32_t first = s.row_begin[static_cast<std::size_t>(r)];
    for (std::int32_t i = first; i < s.row_begin[static_cast<std::size_t>(r) + 1]; ++i) {
      std::int64_t alive = 0;
      for (const Value& value : s.values) {
        if (value.row.value != r || value.home == Home::Host) continue;
        const bool begun = !value.define || value.define.value <= i;
        const bool held = !value.hold_until || value.hold_until.value >= i;
        if (begun && held) alive += aligned(value.bytes.value);
      }
      text += (text.empty() ? "" : " ") + std::to_string(i - first) + ':' + std::to_string(alive);
    }
    all += text + '\n';
    if (!rewrites()) {
      EXPECT_EQ(text, rows[static_cast<std::size_t>(r)]);
    }
  }
  if (rewrites()) std::ofstream("tests/data/ir/z1_alive.txt") << all;
}

// Largest live sum and arena of positions 0 and 1 (docs/ir.md, "Values, arena, peak").
TEST(LowerGolden, TheArenaIsNoLargerThanTheDesigns) {
  struct Row4 {
    std::int32_t zero;
    ComputeType type;
    std::int64_t live[2], arena[2];
  };
  const Row4 rows[] = {
      {1, ComputeType::Bf16, {811520, 790528}, {811520, 790528}},
      {1, ComputeType::Fp32, {893440, 874496}, {893440, 874496}},
      {3, ComputeType::Bf16, {891648, 867328}, {891648, 867328}},
      {3, ComputeType::Fp32, {944384, 1003776}, {957440, 1004800}},
  };
  for (const Row4& row : rows) {
    const Schedule s = lowered(row.zero, row.type);
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(s.live_peak_bytes[r].value, row.live[r]) << "zero " << row.zero << " row " << r;
      EXPECT_LE(s.arena_bytes[r].value, row.arena[r]) << "zero " << row.zero << " row " << r;
    }
  }
}

// With m = 8 the prototype's arenas are 910,336 and 850,432 (Z1), 1,089,536 and 1,002,496 (Z3).
TEST(LowerGolden, TheArenaOfEightMicrobatchesIsNoLargerThanThePrototypes) {
  const Schedule z1 = lowered(1, ComputeType::Bf16, 8), z3 = lowered(3, ComputeType::Bf16, 8);
  EXPECT_LE(z1.arena_bytes[0].value, 910336);
  EXPECT_LE(z1.arena_bytes[1].value, 850432);
  EXPECT_LE(z3.arena_bytes[0].value, 1089536);
  EXPECT_LE(z3.arena_bytes[1].value, 1002496);
}

// The design has 23 and 22 of ZeRO-1, 32 and 33 of ZeRO-3.
TEST(LowerGolden, EventsAreAboutAsFewAsTheDesigns) {
  for (const auto& [zero, expected] : {std::pair{1, std::array{24, 22}}, {3, std::array{32, 33}}}) {
    const Schedule s = lowered(zero, ComputeType::Bf16);
    for (std::size_t r = 0; r < 2; ++r) {
      const auto begin = static_cast<std::size_t>(s.row_begin[r]),
                 end = static_cast<std::size_t>(s.row_begin[r + 1]);
      EXPECT_EQ(s.wait_begin[end] - s.wait_begin[begin], expected[r]);
    }
  }
}

}  // namespace
}  // namespace rehearse
