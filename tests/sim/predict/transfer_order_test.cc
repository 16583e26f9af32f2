// SPDX-License-Identifier: Apache-2.0
// No plan is slower by the order of its own transfers: 1F1B against GPipe, and steps that grow with
// what they have to do, over random plans and over those that were once predicted otherwise
// (tests/data/findings). REHEARSE_TEST_LONG=1: a thousand random ones.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "schedules/scenario/scenario.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

template <class T>
T pick(std::mt19937& random, std::initializer_list<T> choices) {
  return *(choices.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                 0, static_cast<std::ptrdiff_t>(choices.size()) - 1)(random));
}

// A pipeline of a model and a cluster as they are shipped, of any shape that people train in.
struct Drawn {
  std::string model, cluster, schedule = "1f1b", recompute, runtime, overlap, rest;
  int stages, tensor, replicas, micro_batch, microbatches, sequence;

  explicit Drawn(std::mt19937& random) {
    model = pick<const char*>(
        random, {"llama2-7b", "llama3-8b", "gpt2-1.5b", "qwen3-30b-a3b", "llama3.2-1b",
                 "olmoe-1b-7b", "qwen2-7b", "mixtral-8x7b", "llama2-70b", "gpt-22b", "llama2-13b",
                 "gpt2-355m", "qwen2.5-32b"});
    cluster =
        pick<const char*>(random, {"dgx-h100", "dgx-b200", "dgx-a100-80gb", "aws-p4d-24xlarge",
                                   "pcie-a100-80gb-8", "gb200-nvl72", "rtx4090-8"});
    stages = pick(random, {2, 4, 8});
    tensor = pick(random, {1, 1, 2, 4});
    replicas = pick(random, {1, 2, 8});
    micro_batch = pick(random, {1, 1, 2, 4});
    microbatches = pick(random, {8, 16, 32});
    sequence = pick(random, {512, 1024, 2048, 4096});
    if (model.starts_with("gpt2")) sequence = std::min(sequence, 1024);
    if (model == "gpt-22b") sequence = std::min(sequence, 2048);
    recompute = pick<const char*>(random, {"none", "none", "selective", "full"});
    const int zero = pick(random, {0, 1, 1, 2});
    runtime = pick<const char*>(random, {"", "", "", "rehearse", "torchtitan", "generic"});
    overlap =
        pick<const char*>(random, {"", "", R"("pipeline": true)", R"("gradient_reduce": true)",
                                   R"("gradient_reduce": true, "parameter_gather": true)"});
    rest = R"(, "precision": "bf16", "zero_stage": )" + std::to_string(zero);
    if (tensor > 1) rest += R"(, "sequence_parallel": true)";
  }

  std::string text() const {
    const auto key = [](const char* name, int value) {
      return ", \"" + std::string(name) + "\": " + std::to_string(value);
    };
    std::string plan = R"("schedule": ")" + schedule + R"(", "recompute": ")" + recompute + '"' +
                       key("pipeline_parallel", stages) + key("tensor_parallel", tensor) +
                       key("data_parallel", replicas) + key("micro_batch", micro_batch) +
                       key("global_batch", replicas * micro_batch * microbatches) +
                       key("sequence_length", sequence) + rest;
    if (schedule == "interleaved_1f1b" || schedule == "looped_bfs")
      plan += key("virtual_stages", 2);
    if (!runtime.empty()) plan += R"(, "runtime": ")" + runtime + '"';
    if (!overlap.empty()) plan += R"(, "overlap": {)" + overlap + '}';
    return R"({"model": "models/)" + model + R"(.json", "cluster": "clusters/)" + cluster +
           R"(.json", "plan": {)" + plan + "}}";
  }
};

// Of the step alone: what an allocator does where memory is short is no matter of order.
std::optional<Prediction> step_of(const Drawn& drawn) {
  const Result<Scenario> scenario = parse_scenario(drawn.text(), "random.json", 1, {});
  if (!scenario) return std::nullopt;
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  if (!cluster) return std::nullopt;
  Result<Prediction> made =
      predict(scenario.value(), cluster.value(), {.memory = false, .lifetimes = false});
  if (!made) return std::nullopt;
  return std::move(made).value();
}

int wanted() {
  return std::getenv("REHEARSE_TEST_LONG") != nullptr ? 1000 : 60;
}

// Of the second micro-batch on the second position: what computes, and what sends.
double sum_s(const Prediction& p, bool transfers) {
  std::int64_t sum = 0;
  for (std::int32_t i = p.schedule.row_begin[1]; i < p.schedule.row_begin[2]; ++i) {
    const Op& op = p.schedule.ops[static_cast<std::size_t>(i)];
    if (op.microbatch != Microbatch{1} || op.kind == OpKind::Recv) continue;
    if ((op.kind == OpKind::Send) == transfers) sum += p.pricing.table.cost(OpId{i}).time.value;
  }
  return static_cast<double>(sum) * 1e-9;
}
double round_s(const Prediction& p) {
  return sum_s(p, false);
}
double transfer_s(const Prediction& p) {
  return sum_s(p, true) / 2;
}

TEST(TransferOrder, OneFOneBIsNotSlowerThanGpipe) {
  std::mt19937 random(7);
  int compared = 0, by_turns = 0;
  double worst = 0;
  for (int trial = 0; compared < wanted(); ++trial) {
    ASSERT_LT(trial, 20 * wanted()) << "too few of the random scenarios are legal";
    Drawn drawn(random);
    const auto one_f_one_b = step_of(drawn);
    if (!one_f_one_b) continue;
    drawn.schedule = "gpipe";
    const auto gpipe = step_of(drawn);
    ASSERT_TRUE(gpipe) << drawn.text();
    ++compared;
    const double ratio = one_f_one_b->step_s / gpipe->step_s;
    worst = std::max(worst, ratio);
    if (ratio <= 1.01) continue;
    // Activations and gradients that arrive together take turns on the receiver's stream, which
    // GPipe's, all of one direction at a time, never do. That costs something where a transfer is
    // long beside what is computed between two, and the report calls it contention.
    ++by_turns;
    EXPECT_GT(10 * transfer_s(*one_f_one_b), round_s(*one_f_one_b)) << ratio << ' ' << drawn.text();
    const double contention =
        one_f_one_b->step_s *
        static_cast<double>(
            one_f_one_b->bubbles.causes[static_cast<std::size_t>(IdleCause::Contention)]) /
        static_cast<double>(one_f_one_b->bubbles.idle + one_f_one_b->bubbles.busy);
    EXPECT_GT(contention, one_f_one_b->step_s - gpipe->step_s) << ratio << ' ' << drawn.text();
    EXPECT_LT(ratio, 1.1) << drawn.text();
  }
  EXPECT_LE(by_turns * 200, compared) << "more than half a percent of all plans";
  RecordProperty("worst", std::to_string(worst));
  RecordProperty("by_turns", by_turns);
}

TEST(TransferOrder, StepsGrowWithWhatTheyHaveToDo) {
  std::mt19937 random(11);
  int compared = 0;
  for (int trial = 0; compared < wanted(); ++trial) {
    ASSERT_LT(trial, 20 * wanted()) << "too few of the random scenarios are legal";
    Drawn drawn(random);
    drawn.schedule = pick<const char*>(
        random, {"1f1b", "gpipe", "interleaved_1f1b", "zb_h1", "eager_1f1b", "zb_v", "looped_bfs",
                 "dualpipev", "chimera", "v_half", "v_min"});
    const auto base = step_of(drawn);
    if (!base) continue;
    ++compared;
    const auto grows = [&](const char* what, const Drawn& more) {
      const auto step = step_of(more);
      if (!step) return;
      // Which of two transfers goes first is decided as they come: half a percent either way.
      EXPECT_GE(step->step_s, 0.995 * base->step_s)
          << what << ' ' << step->step_s / base->step_s << '\n'
          << drawn.text();
    };
    Drawn longer = drawn;
    longer.sequence = drawn.sequence * 5 / 4;
    grows("sequence", longer);
    longer.sequence = drawn.sequence * 2;
    grows("sequence", longer);
    Drawn again = drawn;
    again.recompute = drawn.recompute == "none" ? "selective" : "full";
    grows("recompute", again);
    Drawn larger = drawn;
    larger.microbatches *= 2;
    grows("batch", larger);
    larger = drawn;
    larger.micro_batch *= 2;
    grows("micro-batch", larger);
  }
}

// --- plans that were predicted otherwise

Prediction found(const std::string& file, std::vector<std::string> keys) {
  const std::string path = "tests/data/findings/" + file + ".json";
  const Result<Scenario> scenario = read_scenario(path, {.overrides = std::move(keys)});
  EXPECT_TRUE(scenario) << scenario.error().message;
  const Result<Cluster> cluster = read_cluster(scenario.value().cluster);
  EXPECT_TRUE(cluster) << cluster.error().message;
  Result<Prediction> made = predict(scenario.value(), cluster.value());
  EXPECT_TRUE(made) << made.error().message;
  return std::move(made).value();
}

TEST(TransferOrder, OneFOneBThatWasSlowerThanGpipeIsNot) {
  for (const char* file : {"one_f_one_b_llama_1b_h100", "one_f_one_b_slower_than_gpipe"}) {
    for (const char* key :
         {"plan.runtime=megatron", "plan.runtime=torchtitan", "plan.runtime=fsdp",
          "plan.runtime=generic", "plan.runtime=rehearse", "plan.overlap.pipeline=true"}) {
      EXPECT_LE(found(file, {key}).step_s, 1.01 * found(file, {key, "plan.schedule=gpipe"}).step_s)
          << file << ' ' << key;
    }
  }
}

// What a further micro-batch takes: one round of the slowest position, with what it sends.
TEST(TransferOrder, ASteadyRoundIsForwardAndBackwardAndWhatIsSent) {
  const std::string file = "one_f_one_b_llama_1b_h100";
  const Prediction p = found(file, {}), twice = found(file, {"plan.global_batch=512"});
  const double round =
      (twice.step_s - p.step_s) / (twice.plan.microbatches() - p.plan.microbatches());
  double slowest = 0;
  for (RankClass row{0}; row.value < p.schedule.num_rows(); ++row.value) {
    std::map<std::pair<OpKind, Payload>, double> of;  // one micro-batch
    for (std::int32_t i = p.schedule.row_begin[row.index()];
         i < p.schedule.row_begin[row.index() + 1]; ++i) {
      const Op& op = p.schedule.ops[static_cast<std::size_t>(i)];
      if (op.microbatch != Microbatch{1} || op.kind == OpKind::Recv) continue;
      of[{op.kind, op.payload}] = static_cast<double>(p.pricing.table.cost(OpId{i}).time.value);
    }
    double sum = 0;
    for (const auto& [kind, time] : of) sum += 1e-9 * time;
    slowest = std::max(slowest, sum);
  }
  EXPECT_NEAR(round / slowest, 1, 0.01);
}

TEST(TransferOrder, ALongerSequenceTakesLonger) {
  for (const char* schedule : {"1f1b", "eager_1f1b", "gpipe"}) {
    double before = 0;
    for (const int length : {512, 1024, 1280, 1536, 2048, 4096}) {
      const double step = found("seq_twice", {"plan.schedule=" + std::string(schedule),
                                              "plan.sequence_length=" + std::to_string(length)})
                              .step_s;
      EXPECT_GT(step, before) << schedule << ' ' << length;
      before = step;
    }
  }
}

TEST(TransferOrder, MoreRecomputationTakesLonger) {
  double before = 0;
  for (const char* recompute : {"none", "selective", "full"}) {
    const double step =
        found("recompute_full_faster", {"plan.recompute=" + std::string(recompute)}).step_s;
    EXPECT_GT(step, before) << recompute;
    before = step;
  }
}

}  // namespace
}  // namespace rehearse::sim
