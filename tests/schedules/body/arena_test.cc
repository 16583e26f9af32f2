// SPDX-License-Identifier: Apache-2.0
// The arena's layout, over random blocks and over the schedules of shipped scenarios: a plain scan
// of all placed blocks, as the planner is described (schedules/body/arena.h), gives the same
// offsets.
#include "schedules/body/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>

#include "schedules/body/sizes.h"
#include "schedules/passes/lower.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/scenario.h"

namespace rehearse {
namespace {

struct Placed {
  std::int64_t offset, end;
  std::int32_t first, last;
};

std::vector<std::int64_t> scanned(const std::vector<ArenaBlock>& blocks) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return blocks[a].bytes != blocks[b].bytes ? blocks[a].bytes > blocks[b].bytes
                                              : blocks[a].begin < blocks[b].begin;
  });
  std::vector<std::int64_t> offsets(blocks.size());
  std::vector<Placed> placed;  // by offset
  for (const std::size_t i : order) {
    const ArenaBlock& block = blocks[i];
    const std::int64_t bytes = aligned(block.bytes);
    std::int64_t end = 0, offset = -1, smallest = 0;
    for (const Placed& other : placed) {
      if (other.last < block.begin || other.first > block.end) continue;
      const std::int64_t gap = other.offset - end;
      if (gap >= bytes && (offset < 0 || gap < smallest)) {
        offset = end;
        smallest = gap;
      }
      end = std::max(end, other.end);
    }
    if (offset < 0) offset = end;
    const auto after = std::ranges::upper_bound(placed, offset, {}, &Placed::offset);
    placed.insert(after, {offset, offset + bytes, block.begin, block.end});
    offsets[i] = offset;
  }
  return offsets;
}

template <class T>
T pick(std::mt19937& random, std::initializer_list<T> choices) {
  return *(choices.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                 0, static_cast<std::ptrdiff_t>(choices.size()) - 1)(random));
}

// Few blocks and many, of few sizes and of all, alive briefly, long and always, on one time and on
// many; times need not be near each other or begin at 0.
TEST(Arena, IsLaidOutAsAScanOfAllPlacedBlocksWould) {
  std::mt19937 random(20241101);
  const auto up_to = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  int many = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const int n = pick(random, {1, 10, 300, 3000, 4096, 4097, 6000});
    const int times = pick(random, {1, 50, n}), life = pick(random, {0, 5, 60, times});
    const int sizes = pick(random, {1, 4, 100'000}), scale = pick(random, {1, 1 << 20});
    const int apart = pick(random, {1, 1000});
    std::vector<ArenaBlock> blocks;
    for (int i = 0; i < n; ++i) {
      const int begin = up_to(times - 1);
      const int end = up_to(19) == 0 ? times : begin + up_to(life);
      blocks.push_back({(std::int64_t{up_to(sizes - 1)} + 1) * scale, begin * apart - 1,
                        end * apart + up_to(2)});
    }
    const ArenaPlan plan = plan_arena(blocks);
    ASSERT_EQ(plan.offset, scanned(blocks)) << "trial " << trial;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      bytes = std::max(bytes, plan.offset[i] + aligned(blocks[i].bytes));
    }
    EXPECT_EQ(plan.bytes, bytes);
    many += n > 4096 ? 1 : 0;
  }
  EXPECT_GT(many, 5);
}

// Shipped scenarios, as they are and with a hundred times their batch.
TEST(Arena, OfShippedScenariosIsWhatAScanGives) {
  int rows = 0;
  std::size_t most = 0;
  for (const auto& file : std::filesystem::directory_iterator("scenarios")) {
    if (file.path().extension() != ".json") continue;
    for (const std::int64_t times : {1, 100}) {
      ScenarioOptions options{.overrides = {"plan.runtime=rehearse", "plan.dropout=0"}};
      Result<Scenario> read = read_scenario(file.path().string(), options);
      if (!read || read.value().plan.micro_batch_auto) continue;  // a search space
      if (read.value().plan.microbatches() > 64 && times > 1) continue;
      if (read.value().plan.schedule.starts_with("file:") && times > 1) continue;  // of as many
      options.overrides.push_back("plan.global_batch=" +
                                  std::to_string(times * read.value().plan.global_batch));
      read = read_scenario(file.path().string(), options);
      ASSERT_TRUE(read) << read.error().message;
      Scenario scenario = std::move(read).value();
      const Result<Schedule> order = order_of(scenario.model, scenario.plan);
      ASSERT_TRUE(order);
      const Result<Schedule> lowered = lower(order.value(), {scenario.model, scenario.plan});
      ASSERT_TRUE(lowered);
      const Schedule& s = lowered.value();
      for (RankClass row{0}; row.value < std::min(s.num_rows(), 2); ++row.value) {
        std::vector<ArenaBlock> blocks;
        std::vector<std::int64_t> offsets;
        for (const Value& value : s.values) {
          if (value.row != row || value.home != Home::Device || value.bytes.value == 0) continue;
          blocks.push_back(
              {value.bytes.value, value.define ? value.define.value : s.row_begin[row.index()] - 1,
               value.hold_until ? value.hold_until.value : s.row_begin[row.index() + 1] - 1});
          offsets.push_back(value.offset.value);
        }
        ASSERT_EQ(offsets, scanned(blocks))
            << file.path() << " x " << times << " row " << row.value;
        ++rows;
        most = std::max(most, blocks.size());
      }
    }
  }
  EXPECT_GT(rows, 40);
  EXPECT_GT(most, 8192U);
}

}  // namespace
}  // namespace rehearse
