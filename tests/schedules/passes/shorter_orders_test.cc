// SPDX-License-Identifier: Apache-2.0
// Repetitions cut out of a whole order: what is left is the order of fewer micro-batches.
#include "schedules/passes/planned/shorter_orders.h"

#include <gtest/gtest.h>

#include "schedules/ir/stage_index.h"
#include "schedules/ir/text.h"
#include "schedules/order/registry.h"
#include "schedules/timing/compute_timing.h"

namespace rehearse {
namespace {

std::vector<std::string> rows_of(const Schedule& schedule) {
  std::vector<std::string> rows;
  for (RankClass row{0}; row.value < schedule.num_rows(); ++row.value) {
    std::string text;
    for (const Op& op : schedule.program(row)) {
      for (const Op& work : work_of(schedule, op)) text += to_text(work) + " ";
    }
    rows.push_back(text);
  }
  return rows;
}

Result<Schedule> order_with(const ScheduleInfo& info, const ScheduleShape& like,
                            std::int32_t microbatches) {
  ScheduleShape shape = like;
  shape.microbatches = microbatches;
  return generate(info.name, shape);
}

// Where the schedule is known to grow, what is cut out of its order is what it makes of fewer
// micro-batches, op by op.
TEST(ShorterOrders, CutOutOfAnOrderAreThoseOfItsSchedule) {
  std::int32_t compared = 0;
  for (const ScheduleInfo& info : schedule_table()) {
    for (const std::int32_t p : {2, 3, 4, 6, 8}) {
      for (const std::int32_t m : {20 * p, 20 * p + 2, 60 * p}) {
        const Result<ScheduleShape> shape =
            resolve_shape(info, {.positions = p, .microbatches = m});
        if (!shape) continue;
        if (info.growing != nullptr) continue;
        const std::int32_t repeated = growing_of(info, shape.value()).repeated;
        if (repeated == 0) continue;
        const Result<Schedule> whole = generate(info.name, shape.value());
        ASSERT_TRUE(whole);
        const ShorterOrders shorter = ShorterOrders::cut_from(whole.value());
        ASSERT_GT(shorter.repeated(), 0) << whole.value().name;
        EXPECT_EQ(repeated % shorter.repeated(), 0) << whole.value().name;
        // Down to the shortest that a prediction takes for the whole (shorter_steps).
        const std::int32_t most = (m - 6 * p - 6 * repeated - 56) / repeated;
        for (const std::int32_t less : {1, 3, std::max(most, 4)}) {
          const std::int32_t fewer = m - less * repeated;
          const std::optional<Schedule> cut = shorter.with(fewer);
          ASSERT_TRUE(cut) << whole.value().name;
          const Result<Schedule> made = order_with(info, shape.value(), fewer);
          ASSERT_TRUE(made);
          EXPECT_EQ(rows_of(*cut), rows_of(made.value())) << whole.value().name;
          EXPECT_EQ(cut->placement, made.value().placement);
          ++compared;
        }
      }
    }
  }
  EXPECT_GE(compared, 100);
}

// Where nobody knows: each is whole work that does not wait for itself, has one repetition more
// than the next, and is equal to it up to there.
TEST(ShorterOrders, AreFoundInOrdersThatNobodyKnowsToGrow) {
  for (const char* name : {"v_half", "1f1b_v", "hanayo", "bitpipe", "chimera_forward_doubling"}) {
    const ScheduleInfo& info = *find_schedule(name);
    const std::int32_t p = 4, m = 240;
    const Result<ScheduleShape> shape = resolve_shape(info, {.positions = p, .microbatches = m});
    ASSERT_TRUE(shape);
    const Result<Schedule> whole = generate(name, shape.value());
    ASSERT_TRUE(whole);
    const ShorterOrders shorter = ShorterOrders::cut_from(whole.value());
    ASSERT_GT(shorter.repeated(), 0) << name;
    const std::int32_t step = shorter.repeated();
    std::optional<Schedule> last;
    for (std::int32_t fewer = m - 100 / step * step; fewer < m; fewer += step) {
      std::optional<Schedule> cut = shorter.with(fewer);
      ASSERT_TRUE(cut) << name << ", " << fewer;
      ASSERT_TRUE(time_compute(*cut, {})) << name << ", " << fewer;
      if (last) {
        for (RankClass row{0}; row.value < cut->num_rows(); ++row.value) {
          const auto a = last->program(row), b = cut->program(row);
          const std::size_t block = b.size() - a.size();
          std::size_t common = 0;
          while (common < a.size() && same_work(*last, a[common], *cut, b[common])) ++common;
          EXPECT_GE(common, block) << name << ", " << fewer;
          for (std::size_t i = common; i < a.size(); ++i) {
            EXPECT_TRUE(same_work(*cut, b[i + block], *last, a[i],
                                  step / (whole.value().placement.up.empty() ? 1 : 2)))
                << name << ", " << fewer;
          }
        }
      }
      last = std::move(cut);
    }
    EXPECT_EQ(rows_of(*shorter.with(m)), rows_of(whole.value()));
  }
}

// All forwards, then all backwards: cut out of one half alone they would be no step.
TEST(ShorterOrders, AreNotInOrdersWithSeveralPartsThatGrow) {
  for (const char* name : {"gpipe", "looped_bfs"}) {
    const Result<ScheduleShape> shape =
        resolve_shape(*find_schedule(name), {.positions = 4, .microbatches = 64});
    const Result<Schedule> whole = generate(name, shape.value());
    EXPECT_EQ(ShorterOrders::cut_from(whole.value()).repeated(), 0) << name;
  }
}

}  // namespace
}  // namespace rehearse
