// SPDX-License-Identifier: Apache-2.0
// Time and memory of a prediction are those of one program: what the schedule gathers and reduces,
// memory holds, for every shipped runtime, stage of ZeRO and pipeline, or one line refuses the
// plan.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "schedules/base/files.h"
#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

constexpr int kMicrobatches = 8;

// 64 layers of a million parameters each, so that a unit is small beside a position's 16 or 64, and
// 64 tokens, whose activations weigh nothing.
std::string text_of(const std::string& runtime, int zero, int pipeline, int replicas) {
  return fmt::format(
      R"({{"model": {{"model_type": "llama", "hidden_size": 256, "intermediate_size": 1024,
                      "num_hidden_layers": 64, "num_attention_heads": 4, "vocab_size": 256,
                      "max_position_embeddings": 64}},
          "cluster": "clusters/dgx-a100-80gb.json",
          "plan": {{"runtime": "{}", "zero_stage": {}, "pipeline_parallel": {},
                    "data_parallel": {}, "micro_batch": 1, "global_batch": {},
                    "sequence_length": 64}}}})",
      runtime, zero, pipeline, replicas, kMicrobatches * replicas);
}

struct Program {
  Plan plan;
  // Gathers and reductions over dp in a step, of the bucket of a layer on position 0.
  std::int64_t gathers = 0, reductions = 0;
  std::int64_t parameters = 0;  // of position 0, padding included
  RankMemory memory;            // of position 0
};

std::optional<Program> program_of(const std::string& text) {
  const Result<Scenario> scenario = parse_scenario(text, "one.json", 1, {});
  if (!scenario) return {};
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  const Result<Prediction> made = predict(scenario.value(), cluster.value());
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  const Prediction& p = made.value();
  Program program{.plan = p.plan, .memory = p.memory.ranks.front()};
  const Schedule& s = p.schedule;
  std::map<std::int32_t, std::int64_t> gathers, reductions;
  for (std::int32_t i = s.row_begin[0]; i < s.row_begin[1]; ++i) {
    const Op& op = s.ops[static_cast<std::size_t>(i)];
    if (!op.bucket || !s.is_on(op, GroupKind::Data)) continue;
    gathers[op.bucket.value] += op.kind == OpKind::Unshard || op.kind == OpKind::AllGather;
    reductions[op.bucket.value] += op.kind == OpKind::AllReduce || op.kind == OpKind::ReduceScatter;
  }
  for (const Bucket& bucket : s.buckets) {
    if (bucket.position == s.position_of({0})) program.parameters += bucket.padded;
  }
  for (const auto& [bucket, count] : gathers) program.gathers = std::max(program.gathers, count);
  for (const auto& [bucket, count] : reductions) {
    program.reductions = std::max(program.reductions, count);
  }
  return program;
}

void hold_together(const Program& program) {
  const Precision& bytes = program.plan.precision;
  const MemoryParts& parts = program.memory.parts;
  const auto parameters = static_cast<double>(program.parameters);
  const auto share = [&](std::int64_t held, std::int32_t each) {
    return static_cast<double>(held) / (parameters * each);
  };
  const bool sharded = share(parts.parameters, bytes.parameters) < 0.5;
  const double gathered = share(parts.buffers, 2);
  const double gradients = share(parts.gradients, bytes.gradients);
  const std::int32_t zero = program.plan.zero_stage;

  // Gradients of all micro-batches are summed whole, or each is reduced and a shard is left.
  EXPECT_EQ(program.reductions > 1, gradients < 0.5) << program.reductions << ' ' << gradients;
  EXPECT_TRUE(program.reductions == 1 || program.reductions == kMicrobatches);
  EXPECT_TRUE(zero >= 2 || program.reductions == 1);
  // Parameters that lie in shards are gathered: once a step, and then they lie there whole; for
  // every micro-batch, whole from its forward to its backward; or twice for each, unit by unit.
  if (sharded) {
    EXPECT_TRUE(program.gathers == 1 || program.gathers >= kMicrobatches) << program.gathers;
    EXPECT_EQ(program.gathers > kMicrobatches, gathered < 0.5)
        << program.gathers << ' ' << gathered;
  } else {
    EXPECT_EQ(program.gathers, zero == 0 ? 0 : 1);
    EXPECT_LT(zero, 3);
  }
}

TEST(OneProgram, MemoryHoldsWhatTheScheduleGathersAndReduces) {
  int refused = 0, each_microbatch = 0, once = 0;
  for (const std::string& runtime : shipped_names("runtimes")) {
    for (const int pipeline : {1, 4}) {
      double before = 1e18;
      for (int zero = 0; zero <= 3; ++zero) {
        SCOPED_TRACE(fmt::format("{}, ZeRO-{}, pipeline {}", runtime, zero, pipeline));
        const std::string text = text_of(runtime, zero, pipeline, 8);
        const std::optional<Program> program = program_of(text);
        if (!program) {
          const Result<Scenario> scenario = parse_scenario(text, "one.json", 1, {});
          const std::string& message = scenario.error().message;
          EXPECT_NE(message.find("plan.zero_stage: " + std::to_string(zero)), std::string::npos);
          EXPECT_NE(message.find("runtime " + runtime), std::string::npos) << message;
          EXPECT_EQ(message.find('\n'), std::string::npos);
          EXPECT_TRUE(pipeline > 1 && zero > 1);
          ++refused;
          continue;
        }
        hold_together(*program);
        (program->reductions > 1 ? each_microbatch : once) += zero >= 2;
        const auto peak = static_cast<double>(program->memory.peak_allocated);
        EXPECT_LE(peak, 1.01 * before);
        before = peak;
      }
    }
  }
  EXPECT_EQ(refused, 4);  // by DeepSpeed's profiles, two each
  EXPECT_GT(each_microbatch, 10);
  EXPECT_GT(once, 3);
}

// With one replica there is nothing to share: where the shard has the products' type, each stage of
// ZeRO above the first is the same program, in the same memory.
TEST(OneProgram, WithOneReplicaNoStageOfMegatronNeedsMoreThanTheFirst) {
  for (const std::string& runtime : shipped_names("runtimes")) {
    for (const int pipeline : {1, 4}) {
      std::optional<Program> first;
      for (int zero = 1; zero <= 3; ++zero) {
        const std::optional<Program> program = program_of(text_of(runtime, zero, pipeline, 1));
        if (!program || program->plan.runtime.shards_master_parameters) continue;
        EXPECT_EQ(program->gathers + program->reductions, 0) << runtime << ' ' << zero;
        if (!first) first = program;
        EXPECT_EQ(program->memory.peak_allocated, first->memory.peak_allocated)
            << runtime << ", ZeRO-" << zero << ", pipeline " << pipeline;
      }
    }
  }
}

// What differs between the stages of a sweep is the stage: runtime, bytes per parameter and padding
// are those of the file as it stands.
TEST(OneProgram, AStageThatIsSetChangesNoRuntime) {
  for (const auto& [file, runtime] :
       {std::pair{"gpt3-175b-1024", "megatron"}, {"dp-zero1", "megatron"}, {"fsdp-64", "fsdp"}}) {
    std::optional<Plan> first;
    for (int zero = 0; zero <= 3; ++zero) {
      const Result<Scenario> scenario =
          read_scenario(fmt::format("scenarios/{}.json", file),
                        {.overrides = {"plan.zero_stage=" + std::to_string(zero)}});
      ASSERT_TRUE(scenario) << scenario.error().message;
      const Plan& plan = scenario.value().plan;
      EXPECT_EQ(plan.runtime.name, runtime) << zero;
      if (!first) first = plan;
      EXPECT_EQ(plan.padded_vocabulary, first->padded_vocabulary) << zero;
      EXPECT_TRUE(plan.precision == first->precision || runtime != std::string("megatron")) << zero;
    }
  }
  const auto notes = [](const std::vector<std::string>& overrides) {
    return read_scenario("scenarios/fsdp-64.json", {.overrides = overrides}).value().notes();
  };
  const auto says = [](const std::vector<std::string>& all) {
    return std::ranges::count_if(all, [](const std::string& note) {
      return note ==
             "plan.runtime is left out: fsdp (torch FSDP2), since the file says "
             "zero_stage 3";
    });
  };
  EXPECT_EQ(says(notes({})), 1);
  EXPECT_EQ(says(notes({"plan.zero_stage=1"})), 1);
  EXPECT_EQ(says(notes({"plan.runtime=fsdp"})), 0);
}

}  // namespace
}  // namespace rehearse::sim
