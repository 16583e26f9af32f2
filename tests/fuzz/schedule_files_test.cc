// SPDX-License-Identifier: Apache-2.0
// A thousand inputs in every test run, seeded: the same however fast the machine is. The same
// function runs for minutes under libFuzzer (schedule_files_fuzz.cc).
#include "tests/fuzz/schedule_files.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "schedules/order/registry.h"
#include "schedules/passes/lower.h"
#include "schedules/scenario/plan_shape.h"
#include "schedules/timing/compute_timing.h"
#include "tests/fuzz/mutator.h"
#include "tests/schedules/ir/example_case.h"

namespace rehearse {
namespace {

// Small schedules in both forms and at both levels: mutations of them are nearly schedules.
std::vector<std::string> seeds() {
  std::vector<std::string> seeds{"",
                                 "{}",
                                 "{\"orders\": [[\"0F0\"]]}",
                                 "0F0,0B0\n",
                                 "[0SEND_F0>r1 0RECV_B0<r1]\n",
                                 "0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD,0OPTIMIZER_STEP\n"};
  for (const ScheduleInfo& info : schedule_table()) {
    const Result<Schedule> made = generate(info.name, {.positions = 2, .microbatches = 4});
    if (!made) continue;
    const Schedule& order = made.value();
    const std::vector<Nanoseconds> finish = time_compute(order, {}).value().end;
    for (const Schedule& schedule :
         {order, add_transfers(order, finish), add_transfers(order, finish, TransferPolicy::Naive),
          add_transfers(order, finish, TransferPolicy::Grouped)}) {
      seeds.push_back(to_csv(schedule).value());
      seeds.push_back(to_schedule_json(schedule));
    }
  }
  for (const std::int32_t zero_stage : {1, 3}) {  // a full L1, with its columns
    const Plan plan = example_plan(zero_stage);
    const Schedule order = generate("interleaved_1f1b", rehearse::shape_of(plan).value()).value();
    seeds.push_back(to_schedule_json(lower(order, {example_model(), plan}).value()));
  }
  return seeds;
}

TEST(ScheduleFiles, AnyBytesAreAnswered) {
  testing::Mutator mutator(seeds());
  constexpr std::int64_t kTries = 1000;
  std::int64_t read = 0;
  for (std::int64_t i = 0; i < kTries; ++i) {
    const std::string text = mutator.next();
    testing::try_schedule_file(text);
    read += parse_schedule_file(text, "fuzz") ? 1 : 0;
  }
  EXPECT_GT(read, kTries / 10);  // mutations are near enough to be schedules often
}

}  // namespace
}  // namespace rehearse
