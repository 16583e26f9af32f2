// SPDX-License-Identifier: Apache-2.0
// Kernels are chosen by trial before the first step, and in the same way by all processes.
#include <gtest/gtest.h>

#include "tests/cuda_double/engines.h"
#include "tests/cuda_double/processes.h"

namespace rehearse::exec {
namespace {

using cuda_double::EngineCounts;
using enum cuda::AttentionEngine;

// Two replicas, of which one finds wgmma faster and the other mma.sync.
struct Replicas {
  EngineCounts trials, steps;
  std::vector<Outcome> outcomes;
};
Replicas train_replicas(bool alike) {
  Prepared p = prepare(Family::Llama, {"data_parallel=2", "precision=bf16"});
  p.scenario.train.steps = 2;
  Replicas made;
  cuda_double::take_engines();
  made.outcomes = train_with_nccl(
      p, {.before_trials = [](std::int32_t r) { cuda_double::prefer(r == 0 ? Wgmma : MmaSync); },
          .tried = [&] { made.trials = cuda_double::take_engines(); },
          .alike = alike});
  made.steps = cuda_double::take_engines();
  for (const Outcome& process : made.outcomes) EXPECT_EQ(process.error, "");
  EXPECT_EQ(cuda_double::unordered(), "");
  return made;
}

TEST(Trials, AreOverBeforeTheFirstStepAndAlikeInAllProcesses) {
  const Replicas apart = train_replicas(false), alike = train_replicas(true);
  for (const Replicas& all : {apart, alike}) {
    EXPECT_GT(all.trials.compared, 0);
    EXPECT_EQ(all.steps.compared, 0);
    EXPECT_GT(all.steps.wgmma, 0);
  }
  EXPECT_GT(apart.steps.mma, 0);
  EXPECT_EQ(alike.steps.mma, 0);
  EXPECT_EQ(alike.outcomes[0].losses, apart.outcomes[0].losses);  // the double's engines are one
}

TEST(Trials, LeaveNothingInTheArenas) {
  Prepared p = prepare(Family::Gpt2, {"precision=bf16"});
  Backend backend = std::move(cuda::make_backend(cuda_options(p))).value();
  const auto made = Interpreter::create({p.scenario.model, p.plan}, p.schedule, backend, {});
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_TRUE(made.value()->try_kernels());
  const RankState& rank = *made.value()->local().ranks[0];
  std::vector<std::byte> arena(static_cast<std::size_t>(p.schedule.arena_bytes[0].value));
  backend.device->read(arena.data(), rank.arena, std::ssize(arena));
  EXPECT_EQ(std::ranges::count(arena, std::byte{0}), std::ssize(arena));
  EXPECT_NE(backend.kernels->choices(), "");
}

TEST(Trials, OfTheSameThingTheFirstProcessesCount) {
  EXPECT_EQ(first_lines(std::vector<std::string>{"a=1\nb=2\n", "", "b=3\nc=4\n"}),
            "a=1\nb=2\nc=4\n");
}

}  // namespace
}  // namespace rehearse::exec
