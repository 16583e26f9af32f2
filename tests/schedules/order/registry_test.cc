// SPDX-License-Identifier: Apache-2.0
// The table of schedules: names and spellings, defaults, what a shape must satisfy, and what holds
// for every row of it.
#include "schedules/order/registry.h"

#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <set>
#include <string>
#include <tuple>

#include "schedules/ir/stage_index.h"
#include "schedules/ir/text.h"
#include "schedules/proof/validate.h"
#include "schedules/timing/compute_timing.h"

namespace rehearse {

void PrintTo(const ScheduleInfo& info, std::ostream* out) {
  *out << info.name;
}

namespace {

std::string error_of(std::string_view name, const ScheduleShape& shape) {
  const Result<Schedule> made = generate(name, shape);
  return made ? "made" : made.error().message;
}

TEST(Registry, HasTheNamesOfTheInterface) {
  const std::set<std::string_view> expected{"none",
                                            "naive",
                                            "gpipe",
                                            "1f1b",
                                            "eager_1f1b",
                                            "interleaved_1f1b",
                                            "looped_bfs",
                                            "zb_h1",
                                            "zb_h2",
                                            "zb_v",
                                            "v_half",
                                            "v_min",
                                            "dualpipe",
                                            "dualpipev",
                                            "chimera",
                                            "interleaved_zb1p",
                                            "1f1b_v",
                                            "seq_1f1b",
                                            "zb_1p",
                                            "zb_2p",
                                            "seq_zb_h1",
                                            "auto",
                                            "hanayo",
                                            "bitpipe",
                                            "chimera_forward_doubling"};
  std::set<std::string_view> names;
  for (const ScheduleInfo& info : schedule_table()) EXPECT_TRUE(names.insert(info.name).second);
  EXPECT_EQ(names, expected);
}

TEST(Registry, TakesTheSpellingsOfTheLiterature) {
  for (const auto& [spelling, name] :
       std::map<std::string_view, std::string_view>{{"1F1B", "1f1b"},
                                                    {"GPipe", "gpipe"},
                                                    {"ZB-H1", "zb_h1"},
                                                    {"ZB-H2", "zb_h2"},
                                                    {"ZBV", "zb_v"},
                                                    {"V-Half", "v_half"},
                                                    {"DualPipeV", "dualpipev"},
                                                    {"ZB-2p", "zb_2p"},
                                                    {"Interleaved 1F1B", "interleaved_1f1b"},
                                                    {"1F1B-V", "1f1b_v"},
                                                    {"Seq1F1B", "seq_1f1b"},
                                                    {"Seq1F1B-ZBH1", "seq_zb_h1"},
                                                    {"Chimera", "chimera"}}) {
    const ScheduleInfo* info = find_schedule(spelling);
    ASSERT_NE(info, nullptr) << spelling;
    EXPECT_EQ(info->name, name);
  }
  EXPECT_EQ(find_schedule(""), nullptr);
  EXPECT_EQ(find_schedule("1f2b3"), nullptr);
  // No spelling leads to two rows.
  std::set<std::string_view> spellings;
  for (const ScheduleInfo& info : schedule_table()) {
    spellings.insert(info.name);
    for (const std::string_view alias : info.aliases) {
      if (alias.empty()) continue;
      EXPECT_TRUE(spellings.insert(alias).second) << alias;
    }
  }
}

TEST(Registry, NamesTheNearestOrAllWhereANameIsUnknown) {
  EXPECT_EQ(error_of("zb_h3", {.positions = 2, .microbatches = 2}),
            "schedule: unknown schedule \"zb_h3\", the nearest known one is zb_h1");
  EXPECT_TRUE(
      error_of("xylophone", {.positions = 2, .microbatches = 2})
          .starts_with("schedule: unknown schedule \"xylophone\", known are none, naive, gpipe, "));
}

TEST(Registry, SaysWhatAShapeMustBe) {
  EXPECT_EQ(error_of("1f1b", {.positions = 0, .microbatches = 2}), "stages: 0 is less than 1");
  EXPECT_EQ(error_of("1f1b", {.positions = 2, .microbatches = 0}),
            "microbatches: 0 is less than 1");
  EXPECT_EQ(error_of("none", {.positions = 2, .microbatches = 2}),
            "stages: \"none\" has one stage, not 2");
  EXPECT_EQ(error_of("1f1b", {.positions = 2, .microbatches = 2, .chunks = 2}),
            "chunks: 1f1b has 1, not 2");
  EXPECT_EQ(error_of("zb_v", {.positions = 2, .microbatches = 4, .chunks = 3}),
            "chunks: zb_v has 2, not 3");
  EXPECT_EQ(error_of("dualpipe", {.positions = 3, .microbatches = 8}),
            "stages: dualpipe needs an even number, not 3");
  EXPECT_EQ(error_of("dualpipe", {.positions = 4, .microbatches = 9}),
            "microbatches: dualpipe needs an even number, not 9");
  EXPECT_EQ(error_of("dualpipev", {.positions = 4, .microbatches = 7}),
            "microbatches: dualpipev needs at least 2 per position (8), not 7");
  EXPECT_EQ(error_of("chimera", {.positions = 4, .microbatches = 7}),
            "microbatches: chimera needs an even number, not 7");
  EXPECT_EQ(error_of("chimera", {.positions = 4, .microbatches = 2}),
            "microbatches: chimera needs at least 1 per position (4), not 2");
  EXPECT_EQ(error_of("hanayo", {.positions = 4, .microbatches = 4, .chunks = 3}),
            "chunks: hanayo needs an even number, two a wave, not 3");
  EXPECT_EQ(error_of("bitpipe", {.positions = 3, .microbatches = 4}),
            "stages: bitpipe needs an even number, not 3");
  EXPECT_EQ(error_of("bitpipe", {.positions = 4, .microbatches = 2}),
            "microbatches: bitpipe needs at least 1 per position (4), not 2");
  EXPECT_EQ(error_of("bitpipe", {.positions = 4, .microbatches = 8, .chunks = 4}),
            "chunks: bitpipe has 2, not 4");
  EXPECT_EQ(error_of("interleaved_1f1b", {.positions = 4, .microbatches = 8, .group_size = 3}),
            "group_size: 3 is not between 4 (positions) and 8 (micro-batches)");
  EXPECT_EQ(error_of("interleaved_1f1b", {.positions = 4, .microbatches = 10, .group_size = 4}),
            "group_size: 4 leaves a last group of 2 micro-batches, fewer than 4 positions");
  EXPECT_EQ(error_of("interleaved_1f1b", {.positions = 4, .microbatches = 8, .extra_warmup = -1}),
            "extra_warmup: -1 is less than 0");
  EXPECT_EQ(error_of("seq_1f1b", {.positions = 4, .microbatches = 8, .slices = 300}),
            "slices: 300 is not between 1 and 127");
  EXPECT_EQ(error_of("zb_1p", {.positions = 4, .microbatches = 8, .memory_limit = -1}),
            "memory_limit: it must be a number above 0");
}

// The smallest N >= p whose last group is whole or holds p micro-batches at least; m where m < p.
TEST(Registry, ChoosesTheGroupSizeOfInterleavedOrders) {
  EXPECT_EQ(default_group_size(4, 8), 4);
  EXPECT_EQ(default_group_size(4, 10), 5);  // as torch: m / max(1, m div p)
  EXPECT_EQ(default_group_size(4, 9), 5);   // 5 and then 4
  EXPECT_EQ(default_group_size(4, 7), 7);
  EXPECT_EQ(default_group_size(4, 3), 3);
  EXPECT_EQ(default_group_size(1, 1), 1);
}

TEST(Registry, RunsMicrobatchesOneAfterAnotherOnOnePosition) {
  for (const ScheduleInfo& info : schedule_table()) {
    if (info.sliced) continue;
    const Result<Schedule> made =
        generate(info.name, {.positions = 1, .microbatches = 2, .chunks = 1});
    ASSERT_TRUE(made) << info.name << ": " << made.error().message;
    const std::string text = row_to_text(made.value(), {0});
    const std::string back = info.splits_backward ? "0I0 0W0 " : "0B0 ";
    const std::string expected =
        info.chunks == ChunkRule::V || info.chunks == ChunkRule::BidirectionalV
            ? (info.splits_backward ? "0F0 1F0 1I0 1W0 0I0 0W0 " : "0F0 1F0 1B0 0B0 ")
            : "0F0 " + back;
    EXPECT_TRUE(text.starts_with(expected)) << info.name << ": " << text;
  }
}

class EverySchedule
    : public testing::TestWithParam<std::tuple<ScheduleInfo, std::int32_t, std::int32_t>> {};

// Sound by the validator's rules (every F, B or I and W once, in order, no deadlock), the same
// twice.
TEST_P(EverySchedule, IsSoundAndTheSameTwice) {
  const auto& [info, p, m] = GetParam();
  const ScheduleShape shape{.positions = p, .microbatches = m};
  const Result<ScheduleShape> full = resolve_shape(info, shape);
  if (!full) return;  // the schedule has no such shape
  const Result<Schedule> made = generate(info.name, shape);
  ASSERT_TRUE(made) << made.error().message;
  const Validation validation = validate(made.value());
  for (const Violation& violation : validation.violations) {
    ADD_FAILURE() << violation.rule << ": " << violation.message;
  }
  EXPECT_EQ(made.value().microbatches, m);
  EXPECT_EQ(made.value().num_rows(), p);
  if (info.chunks != ChunkRule::Any) {
    EXPECT_TRUE(made.value().placement == placement_of(info, full.value()));
  }
  EXPECT_EQ(content_hash(made.value()), content_hash(generate(info.name, shape).value()));
}

std::string test_name(const testing::TestParamInfo<EverySchedule::ParamType>& test) {
  const auto& [info, p, m] = test.param;
  return std::string(info.name) + "_p" + std::to_string(p) + "_m" + std::to_string(m);
}

INSTANTIATE_TEST_SUITE_P(Grid, EverySchedule,
                         testing::Combine(testing::ValuesIn(schedule_table().begin(),
                                                            schedule_table().end()),
                                          testing::Values(1, 2, 3, 4, 6, 8),
                                          testing::Values(1, 2, 3, 4, 5, 8, 11, 16, 24)),
                         test_name);

// Chunks, groups, more warm-up and slices beyond the defaults.
TEST(Registry, MakesSoundOrdersOfAllParameters) {
  for (const std::int32_t p : {2, 3, 4, 8}) {
    for (const std::int32_t m : {1, 2, 3, 5, 8, 13, 16}) {
      for (const std::int32_t chunks : {1, 2, 3, 5}) {
        for (const std::int32_t extra : {0, 1, 3}) {
          for (std::int32_t n = 0; n <= m; ++n) {
            const ScheduleShape shape{.positions = p,
                                      .microbatches = m,
                                      .chunks = chunks,
                                      .group_size = n,
                                      .extra_warmup = extra};
            for (const std::string_view name : {"interleaved_1f1b", "interleaved_zb1p"}) {
              const Result<Schedule> made = generate(name, shape);
              if (!made) continue;  // an N that the order does not take
              const Validation validation = validate(made.value());
              ASSERT_TRUE(validation.sound())
                  << made.value().name << ": " << validation.violations.front().message;
            }
          }
        }
      }
      for (const std::int32_t slices : {1, 2, 4, 7}) {
        for (const std::string_view name : {"seq_1f1b", "seq_zb_h1"}) {
          const Result<Schedule> made =
              generate(name, {.positions = p, .microbatches = m, .slices = slices});
          ASSERT_TRUE(made);
          const Validation validation = validate(made.value());
          ASSERT_TRUE(validation.sound())
              << made.value().name << ": " << validation.violations.front().message;
        }
      }
    }
  }
}

// Pairs taken apart are the order without pairs; no backward is beside a forward that it needs; the
// order runs to its end; as many pairs as there are forwards behind the warm-up.
TEST(Pairs, OfInterleaved1F1BAreItsSteadyOps) {
  for (std::int32_t p = 2; p <= 5; ++p) {
    for (std::int32_t v = 2; v <= 3; ++v) {
      for (std::int32_t m = p; m <= 3 * p; ++m) {
        ScheduleShape shape{.positions = p, .microbatches = m, .chunks = v, .extra_warmup = 1};
        const Schedule plain = generate("interleaved_1f1b", shape).value();
        shape.pairs = true;
        const Schedule paired = generate("interleaved_1f1b", shape).value();
        EXPECT_TRUE(validate(paired, {}).violations.empty()) << paired.name;
        EXPECT_TRUE(time_compute(paired, {})) << paired.name;
        for (RankClass row{0}; row.value < p; ++row.value) {
          std::vector<std::string> apart, expected;
          std::size_t pairs = 0;
          for (const Op& op : paired.program(row)) {
            const auto work = work_of(paired, op);
            for (const Op& each : work) apart.push_back(to_text(each));
            if (op.kind != OpKind::Overlap) continue;
            ++pairs;
            EXPECT_FALSE(work[0].stage == work[1].stage &&
                         work[0].microbatch == work[1].microbatch);
          }
          for (const Op& op : plain.program(row)) expected.push_back(to_text(op));
          EXPECT_EQ(apart, expected);
          const std::int32_t group = default_group_size(p, m);
          const std::int32_t ahead = std::min(2 * (p - 1 - row.value) + (v - 1) * group + 1, m * v);
          EXPECT_EQ(pairs, static_cast<std::size_t>(m * v - ahead));
        }
      }
    }
  }
}

TEST(Pairs, NeedOneForwardMoreAndAnOrderThatHasThem) {
  const ScheduleShape shape{.positions = 2, .microbatches = 4, .chunks = 2, .pairs = true};
  EXPECT_EQ(error_of("interleaved_1f1b", shape).substr(0, 40),
            "pairs: extra_warmup must be at least 1: ");
  EXPECT_EQ(error_of("1f1b", {.positions = 2, .microbatches = 4, .pairs = true}),
            "pairs: 1f1b has no pairs of a forward and a backward");
  EXPECT_EQ(error_of("dualpipe", {.positions = 2, .microbatches = 4, .pairs = true}), "made");
}

// What an op does, its micro-batches counted from `later` within their direction.
std::vector<Op> counted_work(const Schedule& schedule, const Op& op, std::int32_t later) {
  std::vector<Op> works;
  for (Op work : work_of(schedule, op)) {
    const Placement& placement = schedule.placement;
    const bool up = !placement.up.empty() && work.microbatch.value >= placement.first_up;
    work.microbatch.value += later - (up ? placement.first_up : 0);
    work.child = up ? 1 : 0;
    works.push_back(work);
  }
  return works;
}

// Whether `longer` is `order` with `times` repetitions more of what every row does before it
// differs from `next`, which has one more.
void expect_repetitions(const Schedule& order, const Schedule& next, const Schedule& longer,
                        std::int32_t times) {
  const std::int32_t one =
      (next.microbatches - order.microbatches) / (order.placement.up.empty() ? 1 : 2);
  for (RankClass row{0}; row.value < order.num_rows(); ++row.value) {
    const auto a = order.program(row), b = next.program(row), c = longer.program(row);
    const std::size_t block = b.size() - a.size();
    std::size_t cut = 0;
    while (cut < a.size() && counted_work(order, a[cut], 0) == counted_work(next, b[cut], 0)) ++cut;
    ASSERT_GE(cut, block);
    ASSERT_EQ(c.size(), a.size() + block * static_cast<std::size_t>(times));
    for (std::size_t i = 0; i < c.size(); ++i) {
      std::int32_t back = 0;  // repetitions
      if (i >= cut) back = static_cast<std::int32_t>((i - cut) / block) + 1;
      back = std::min(back, times);
      const std::size_t from = i - block * static_cast<std::size_t>(back);
      ASSERT_EQ(counted_work(order, a[from], one * back), counted_work(longer, c[i], 0))
          << longer.name << ", op " << i << " of rank " << row.value;
    }
  }
}

TEST(Registry, OrdersGrowByRepetitionsOfTheirMiddle) {
  for (const ScheduleInfo& info : schedule_table()) {
    for (const std::int32_t p : {1, 2, 3, 4, 6, 8}) {
      for (const std::int32_t v : {1, 2, 3}) {
        for (std::int32_t m = 4 * p; m < 6 * p + 2; ++m) {
          ScheduleShape shape{.positions = p, .microbatches = m};
          if (info.chunks == ChunkRule::Many) shape.chunks = v;
          if (info.chunks != ChunkRule::Many && v > 1) continue;
          const Result<ScheduleShape> full = resolve_shape(info, shape);
          if (!full) continue;
          if (info.growing != nullptr && p > 1) continue;
          const std::int32_t repeated = growing_of(info, full.value()).repeated;
          if (repeated == 0) continue;
          std::vector<Schedule> made;
          const std::int32_t many = m == 4 * p ? 400 : 5;
          for (const std::int32_t times : {0, 1, many}) {
            ScheduleShape longer = full.value();
            longer.microbatches += times * repeated;
            Result<Schedule> one = generate(info.name, longer);
            ASSERT_TRUE(one) << one.error().message;
            made.push_back(std::move(one).value());
          }
          expect_repetitions(made[0], made[1], made[2], many);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Where rules come into the same state again: every shorter order that is handed out is the whole
// one with repetitions cut out, op by op, down to the shortest.
TEST(Registry, OrdersGrowAsTheirRulesRepeatThemselves) {
  std::map<std::string_view, std::int32_t> found, asked;
  for (const ScheduleInfo& info : schedule_table()) {
    if (info.growing == nullptr) continue;
    for (const std::int32_t p : {2, 3, 4, 5, 6, 7, 8, 10, 12}) {
      // As many as the planner takes for large, and others.
      const std::int32_t large = 50'000 / (6 * p) + 2;
      for (const std::int32_t m : {16 * p, 300, 302, 40 * p, large, large + 1, 3 * large}) {
        const std::int32_t waves = info.chunks == ChunkRule::Waves ? 2 * (1 + m % 2) : 0;
        const Result<ScheduleShape> full =
            resolve_shape(info, {.positions = p, .microbatches = m, .chunks = waves});
        if (!full) continue;
        ++asked[info.name];
        const Growing growing = growing_of(info, full.value());
        if (growing.repeated == 0) continue;
        const Result<Schedule> whole = generate(info.name, full.value());
        ASSERT_TRUE(whole);
        const std::int32_t b = growing.repeated;
        const std::int32_t fewest = growing.least + (m - growing.least) % b;
        ASSERT_LE(growing.least, m);
        for (const std::int32_t from : {fewest, fewest + b, fewest + 5 * b}) {
          if (from + b > m) continue;
          const Result<Schedule> order = growing.with(from), next = growing.with(from + b);
          ASSERT_TRUE(order && next);
          EXPECT_EQ(order.value().microbatches, from);
          expect_repetitions(order.value(), next.value(), whole.value(), (m - from) / b);
          if (HasFatalFailure()) return;
          ++found[info.name];
        }
      }
    }
  }
  for (const auto& [name, count] : asked) {
    std::printf("%-24s %3d shapes, %3d orders compared\n", std::string(name).c_str(), count,
                found[name]);
    EXPECT_GE(found[name], 20) << name;
  }
  EXPECT_EQ(asked.size(), 5u);
}

}  // namespace
}  // namespace rehearse
