// SPDX-License-Identifier: Apache-2.0
// The replay of a rank's program: what adds up, and what papers say.
#include "sim/memory/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "schedules/order/registry.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/plan_shape.h"
#include "schedules/scenario/scenario.h"
#include "sim/formulas/closed_form.h"
#include "sim/memory/replay/memory_replay.h"
#include "sim/memory/replay/memory_steady.h"
#include "sim/predict/predict.h"
#include "tests/schedules/runtime/runtime_named.h"

namespace rehearse::sim {
namespace {

constexpr double kGB = 1e9;

MemoryProfile profile_of(const std::string& runtime) {
  return read_memory_profile(runtime).value();
}

// GPT of h 12288 and 96 heads on 8-way tensor parallelism with sequence parallelism.
Transformer gpt3_175b() {
  Transformer model;
  model.layers = 96;
  model.hidden = 12288;
  model.heads = model.kv_heads = 96;
  model.head_dim = 128;
  model.ffn_hidden = 4 * 12288;
  model.vocabulary = 51200;
  model.max_positions = 2048;
  return model;
}
Plan gpt3_plan() {
  Plan plan;
  plan.tensor_parallel = 8;
  plan.pipeline_parallel = 8;
  plan.data_parallel = 1;
  plan.sequence_parallel = true;
  plan.schedule = "interleaved_1f1b";
  plan.virtual_stages = 3;
  plan.stage_layers.assign(24, 4);
  plan.global_batch = 64;
  plan.sequence_length = 2048;
  plan.recompute = Recompute::selective();
  plan.flash_attention = false;
  plan.attention_kernel = AttentionKernel::Unfused;
  plan.dropouts = {0.1, 0.1, 0.1};
  plan.padded_vocabulary = 51200;
  return plan;
}
Schedule order_for(const Plan& plan) {
  return generate(plan.schedule, shape_of(plan).value()).value();
}
Cluster a100(double memory_gb = 80) {
  Cluster cluster;
  cluster.gpu.compute_capability = 80;
  cluster.gpu.memory_capacity_gb = memory_gb;
  return cluster;
}

MemoryReport predict_gpt3(const Plan& plan) {
  return predict_memory(profile_of("megatron"), {gpt3_175b(), plan}, a100(), order_for(plan));
}

// With an R of its own before every backward.
Schedule with_recompute(const Schedule& order) {
  Schedule made = order;
  made.ops.clear();
  made.row_begin = {0};
  for (RankClass row{0}; row.value < order.num_rows(); ++row.value) {
    for (const Op& op : order.program(row)) {
      if (is_backward(op.kind)) {
        made.ops.push_back(compute_op(OpKind::Recompute, op.stage, op.microbatch));
      }
      made.ops.push_back(op);
    }
    made.end_row();
  }
  return made;
}

// What is computed again ahead of its backward is there of all layers of the chunk at once, where
// the backward that does both has one layer's at a time; both leave the same behind.
TEST(Memory, HoldsWhatIsComputedAgainInAdvanceOfAllLayersOfAChunk) {
  for (const Recompute& recompute : {Recompute::full(), Recompute::selective()}) {
    for (const char* schedule : {"1f1b", "zb_h1"}) {
      for (const std::int32_t layers : {1, 2, 4}) {
        Plan plan = gpt3_plan();
        plan.pipeline_parallel = 4;
        plan.schedule = schedule;
        plan.virtual_stages = 1;
        plan.stage_layers.assign(4, layers);
        plan.recompute = recompute;
        plan.runtime = runtime_named("megatron");
        Transformer model = gpt3_175b();
        model.layers = 4 * layers;
        const MemoryProfile profile = profile_of("megatron");
        const Layout layout(model, plan);
        const Schedule order = order_for(plan);
        const MemoryReport fused = predict_memory(profile, layout, a100(), order);
        const MemoryReport apart = predict_memory(profile, layout, a100(), with_recompute(order));
        const SegmentPrograms programs =
            segment_programs(profile, layout, ReplicaRole::Alike, /*apart=*/true);
        const SegmentProgram& layer =
            programs.rotating[static_cast<std::size_t>(SegmentShape::DenseLayer)];
        std::vector<std::int64_t> held(static_cast<std::size_t>(layer.slots), 0);
        for (const ScriptStep& step : layer.again) {
          held[static_cast<std::size_t>(step.slot)] = CachingAllocator::round_size(step.bytes);
        }
        const std::int64_t made = std::accumulate(held.begin(), held.end(), std::int64_t{0});
        ASSERT_GT(made, 0);
        const RankMemory &before = fused.ranks[1], &now = apart.ranks[1];
        EXPECT_EQ(now.steady_allocated, before.steady_allocated);
        const double more = static_cast<double>(now.peak_allocated - before.peak_allocated) /
                            static_cast<double>(made);
        std::printf("%s, %d layers: %.2f of a layer's %.3f GB more\n", schedule, layers, more,
                    static_cast<double>(made) / kGB);
        // Behind an I, whole or in two, there is of all layers what W reads. Selectively the fused
        // one makes it again behind the MLP's backward, which has freed something by then.
        const bool split = std::string(schedule) == "zb_h1";
        EXPECT_GE(more, (split ? 0.7 : 1) * (layers - 1) - 1e-3);
        EXPECT_LE(more, layers - 1 + (recompute.is_full() ? 1e-3 : 0.25));
      }
    }
  }
}

// Korthikanti et al., Section 4.2.3: activations of the first position, 37 chunks of 4 layers. The
// replay also has the running op's gradients and tokens, below 1 %; with full recomputation (and
// no dropout, whose masks the formula has no word for there) 3 of 148 layer inputs.
TEST(Memory, KeepsWhatTheActivationFormulaCountsOnTheFirstPosition) {
  const ActivationShape shape{
      .sequence = 2048, .micro_batch = 1, .hidden = 12288, .heads = 96, .tensor_parallel = 8};
  for (const bool sequence_parallel : {true, false}) {
    for (const Recompute mode : {Recompute{}, Recompute::selective(), Recompute::full()}) {
      Plan plan = gpt3_plan();
      plan.sequence_parallel = sequence_parallel;
      plan.recompute = mode;
      double expected = first_position_activation_bytes(shape, mode, sequence_parallel, 96, 8, 3);
      if (mode == Recompute::full() && sequence_parallel) expected /= 8;  // 2sbh/t: split too
      const Transformer model = gpt3_175b();
      if (mode == Recompute::full()) plan.dropouts = {};
      const MemoryReport report =
          predict_memory(profile_of("megatron"), {model, plan}, a100(), order_for(plan));
      const double kept = static_cast<double>(report.ranks[0].parts.activations);
      EXPECT_NEAR(kept / expected, 1.0, mode == Recompute::full() ? 0.025 : 0.01)
          << "full " << mode.is_full() << ", any " << mode.any() << ", sp " << sequence_parallel;
    }
  }
}

// 1F1B: position i keeps p - i micro-batches; each position less than the one before by one.
// Of four layers a chunk those that are not computed again keep what they keep without
// recomputation, one by one.
TEST(Memory, KeepsLayerByLayerWhatIsNotComputedAgain) {
  const auto activations = [](Recompute mode, std::int32_t layers) {
    Plan plan = gpt3_plan();
    plan.recompute = mode;
    plan.recompute_layers = layers;
    return predict_gpt3(plan).ranks[0].parts.activations;
  };
  const std::int64_t none = activations({}, 0), all = activations(Recompute::full(), 0);
  std::int64_t before = none, first = 0;
  for (std::int32_t layers = 1; layers <= 4; ++layers) {
    const std::int64_t now = activations(Recompute::full(), layers);
    if (layers == 1) first = before - now;
    EXPECT_GT(first, 0);
    EXPECT_NEAR(static_cast<double>(before - now) / static_cast<double>(first), 1, 0.02);
    before = now;
  }
  EXPECT_EQ(before, all);
  EXPECT_EQ(activations(Recompute::full(), 9), all);
}

// The logits of a chunk in place of all.
TEST(Memory, HasTheLogitsOfOneChunkOfTheLoss) {
  const auto peak = [](std::int32_t chunks) {
    Plan plan = gpt3_plan();
    plan.pipeline_parallel = 1;
    plan.virtual_stages = 1;
    plan.schedule = "none";
    plan.stage_layers = {2};
    plan.global_batch = 4;
    plan.micro_batch = 4;
    plan.loss_chunks = chunks;
    Transformer model = gpt3_175b();
    model.layers = 2;
    model.vocabulary = plan.padded_vocabulary = 1 << 20;
    return predict_memory(profile_of("megatron"), {model, plan}, a100(), order_for(plan))
        .ranks[0]
        .peak_allocated;
  };
  EXPECT_LT(peak(4), peak(1));
  EXPECT_LE(peak(8), peak(4));
}

// What is gathered is there while attention runs; what is exchanged is kept, outputs twice.
TEST(Memory, OfRanksThatShareASequenceFollowsTheirWay) {
  const auto peak = [](ContextParallelAlgorithm way) {
    Plan plan = gpt3_plan();
    plan.tensor_parallel = 2;
    plan.sequence_parallel = false;
    plan.context_parallel = 4;
    plan.context_parallel_algorithm = way;
    plan.recompute = {};
    plan.attention_kernel = AttentionKernel::Flash2;
    plan.flash_attention = true;
    return predict_gpt3(plan).ranks[0].peak_allocated;
  };
  const std::int64_t ring = peak(ContextParallelAlgorithm::Ring);
  EXPECT_GT(peak(ContextParallelAlgorithm::AllGather), ring);
  EXPECT_GT(peak(ContextParallelAlgorithm::AllToAll), ring);
}

TEST(Memory, DropsByOneMicrobatchFromPositionToPosition) {
  Plan plan = gpt3_plan();
  plan.schedule = "1f1b";
  plan.virtual_stages = 1;
  plan.stage_layers.assign(8, 12);
  const MemoryReport report = predict_gpt3(plan);
  const double layer = 34.0 * 2048 * 12288 / 8;  // Korthikanti Eq. 6, bytes
  for (std::size_t i = 1; i + 2 < report.ranks.size(); ++i) {
    const double drop = static_cast<double>(report.ranks[i].parts.activations -
                                            report.ranks[i + 1].parts.activations);
    EXPECT_NEAR(drop / (12 * layer), 1.0, 0.001) << i;
  }
}

TEST(Memory, NamesTheForwardOfTheLossAsThePeakOfASmallModelsLastStage) {
  Plan plan = gpt3_plan();
  plan.pipeline_parallel = 2;
  plan.schedule = "1f1b";
  plan.virtual_stages = 1;
  plan.stage_layers = {1, 1};
  plan.global_batch = 4;
  Transformer model = gpt3_175b();
  model.layers = 2;
  model.hidden = 1536;
  model.heads = model.kv_heads = 12;
  model.ffn_hidden = 6144;
  const Schedule order = order_for(plan);
  const MemoryReport report = predict_memory(profile_of("megatron"), {model, plan}, a100(), order);
  const OpId op = report.ranks[1].at_op;
  ASSERT_TRUE(static_cast<bool>(op));
  EXPECT_EQ(order.ops[op.index()].stage, Stage{1});
}

// 32 GB of cached blocks are given back when the card is smaller than what would stay reserved.
TEST(Memory, RetriesWithAnEmptiedCacheBeforeItSaysThatAPlanDoesNotFit) {
  Transformer model = gpt3_175b();
  model.layers = 4;
  Plan plan = gpt3_plan();
  plan.pipeline_parallel = 1;
  plan.schedule = "none";
  plan.virtual_stages = 1;
  plan.stage_layers = {4};
  plan.global_batch = 2;
  const MemoryProfile profile = profile_of("megatron");
  const Schedule order = order_for(plan);
  const RankMemory roomy = predict_memory(profile, {model, plan}, a100(), order).ranks[0];
  const std::int64_t outside = roomy.peak_device - roomy.peak_reserved;
  ASSERT_GT(roomy.peak_reserved, roomy.peak_allocated);
  const auto with_capacity = [&](std::int64_t bytes) {
    Cluster cluster = a100();
    cluster.gpu.usable_memory_gib = static_cast<double>(bytes) / (1 << 30);
    return predict_memory(profile, {model, plan}, cluster, order).ranks[0];
  };
  EXPECT_TRUE(with_capacity(roomy.peak_device).fits);
  EXPECT_FALSE(with_capacity(roomy.peak_allocated + outside - (1 << 20)).fits);
  const RankMemory tight = with_capacity(roomy.peak_device - (2 << 20));
  EXPECT_EQ(tight.fits, tight.retries > 0);
}

TEST(Memory, MovesActivationsAndOptimizerToTheHostWhereThePlanOffloadsThem) {
  Plan plan = gpt3_plan();
  const RankMemory all = predict_gpt3(plan).ranks[0];
  plan.offload.optimizer = true;
  const RankMemory no_optimizer = predict_gpt3(plan).ranks[0];
  EXPECT_EQ(no_optimizer.parts.optimizer, 0);
  EXPECT_EQ(no_optimizer.parts.activations, all.parts.activations);
  plan.offload.activations = true;
  EXPECT_LT(predict_gpt3(plan).ranks[0].parts.activations, all.parts.activations / 20);
}

// A small plan of any shape, every schedule of the table.
struct RandomPlan {
  Transformer model;
  Plan plan;
};
RandomPlan random_plan(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<int> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random() % choices.size()));
  };
  RandomPlan made;
  Transformer& model = made.model;
  Plan& plan = made.plan;
  model.hidden = one_of({256, 768, 2048});
  model.heads = 8;
  model.kv_heads = one_of({8, 4});
  model.head_dim = model.hidden / 8;
  model.ffn_hidden = one_of({2, 4}) * model.hidden;
  model.vocabulary = one_of({1000, 32000, 50257});
  model.max_positions = 512;
  model.tied_embedding = one_of({0, 1}) == 1;
  model.mlp = one_of({0, 1}) == 1 ? MlpKind::Gated : MlpKind::Plain;
  model.norm = one_of({0, 1}) == 1 ? NormKind::RmsNorm : NormKind::LayerNorm;
  model.positions = one_of({0, 1}) == 1 ? PositionKind::Rope : PositionKind::Learned;
  plan.tensor_parallel = one_of({1, 2, 4});
  plan.pipeline_parallel = one_of({1, 2, 4});
  plan.data_parallel = one_of({1, 2, 8});
  plan.sequence_parallel = one_of({0, 1}) == 1;
  plan.zero_stage = one_of({0, 1, 2, 3});
  plan.runtime = runtime_named(std::string(default_runtime(plan.zero_stage)));
  if (plan.zero_stage == 3) plan.precision = {"bf16", 4, 4, 8, ComputeType::Bf16};
  const std::array kRecomputes{Recompute{}, Recompute::selective(), Recompute::full()};
  plan.recompute = kRecomputes[static_cast<std::size_t>(one_of({0, 1, 2}))];
  plan.attention_kernel = static_cast<AttentionKernel>(one_of({1, 2, 3}));
  plan.flash_attention = plan.attention_kernel != AttentionKernel::Unfused;
  if (one_of({0, 1}) == 1) plan.dropouts = {0.1, 0.1, 0.1};
  const std::int32_t leaves = one_of({0, 0, 0, 1, 2});
  plan.offload = {.optimizer = leaves == 1, .activations = leaves == 2};
  plan.sequence_length = 512;
  plan.micro_batch = one_of({1, 2});
  plan.global_batch = std::int64_t{plan.micro_batch} * plan.data_parallel * one_of({8, 16, 24});
  const std::int64_t pad = 128 * plan.tensor_parallel;
  plan.padded_vocabulary = (model.vocabulary + pad - 1) / pad * pad;
  while (true) {
    const auto table = schedule_table();
    const ScheduleInfo& info = table[random() % table.size()];
    if (info.planned) continue;
    if (info.name == "none" && plan.pipeline_parallel > 1) continue;
    plan.schedule = info.name;
    plan.virtual_stages = info.chunks == ChunkRule::Many && plan.pipeline_parallel > 1 ? 2 : 1;
    plan.sequence_slices = 1;
    break;
  }
  return made;
}

// What else changes which tensors are kept: kernels op by op, compilation, 8 bit, DeepSpeed.
void vary_traits(Plan& plan, std::mt19937& random) {
  if (plan.zero_stage == 3 && random() % 2 == 0) plan.runtime = runtime_named("megatron_deepspeed");
  plan.runtime.compiled = random() % 2 == 0;
  plan.runtime.eager_kernels = {.norm = random() % 2 == 0, .activation = random() % 2 == 0};
  if (random() % 2 == 0) plan.precision.compute = ComputeType::Fp8;
  if (!plan.flash_attention && random() % 2 == 0) plan.attention_kernel = AttentionKernel::Eager;
  // What else ZeRO-3 may do, where other draws have it so.
  if (plan.zero_stage < 3 || plan.data_parallel == 1) return;
  if (plan.micro_batch == 2) plan.quantized_gather = 8;
  if (plan.pipeline_parallel == 2) {
    plan.offload.parameters = plan.offload.optimizer = true;
  } else if (plan.gathers_twice()) {
    plan.secondary_shard_group = 2;
  }
}

struct GridPlan {
  RandomPlan made;
  Schedule order;
};
// longer: factor on the micro-batches of a step.
void for_random_plans(std::uint32_t seed, int plans, int longer,
                      const std::function<void(GridPlan&)>& visit) {
  std::mt19937 random(seed);
  for (int done = 0; done < plans;) {
    GridPlan grid{random_plan(random), {}};
    Plan& plan = grid.made.plan;
    plan.global_batch *= longer;
    Result<ScheduleShape> shape = shape_of(plan);
    if (!shape) continue;
    Result<Schedule> order = generate(plan.schedule, shape.value());
    if (!order) continue;
    grid.order = std::move(order).value();
    plan.sequence_slices = grid.order.slices;
    const auto stages = static_cast<std::size_t>(grid.order.placement.stages());
    for (std::size_t s = 0; s < stages; ++s)
      plan.stage_layers.push_back(1 + (static_cast<int>(s) + done) % 2);
    for (const std::int32_t layers : plan.stage_layers) grid.made.model.layers += layers;
    ++done;
    visit(grid);
  }
}

TEST(Memory, AddsUpItsPartsToThePeakAndStaysAboveItsBoundOnRandomPlans) {
  std::map<std::string, int> seen;
  std::mt19937 traits(11);
  for_random_plans(7, 300, /*longer=*/1, [&](GridPlan& grid) {
    vary_traits(grid.made.plan, traits);
    const Plan& plan = grid.made.plan;
    ++seen[plan.schedule];
    const MemoryProfile profile = profile_of(plan.runtime.name);
    const MemoryReport report =
        predict_memory(profile, {grid.made.model, plan}, a100(), grid.order);
    for (const RankMemory& rank : report.ranks) {
      ASSERT_EQ(rank.parts.allocated(), rank.peak_allocated) << plan.schedule;
      ASSERT_LE(rank.peak_allocated, rank.peak_reserved);
      ASSERT_EQ(rank.peak_device,
                rank.peak_reserved + rank.parts.communicators + rank.parts.context);
      ASSERT_LE(rank.steady_allocated, rank.peak_allocated + (64 << 20));
      ASSERT_GE(rank.parts.activations, 0);
    }
    const std::int64_t bound = memory_lower_bound(profile, {grid.made.model, plan});
    ASSERT_LE(bound, report.peak_allocated)
        << plan.schedule << " p " << plan.pipeline_parallel << " zero " << plan.zero_stage;
    ASSERT_GT(bound, 0);
  });
  EXPECT_GE(seen.size(), 12u);
}

// Where directions meet in a rank, a unit has run its last backward of the step when those of its
// own direction are through: what was summed up is reduced then, and the rank holds twice the
// shards of a rank with one direction, not whole gradients.
TEST(Memory, AUnitOfTwoDirectionsIsReducedBehindItsOwnBackwards) {
  const auto steady = [](std::string_view schedule) {
    const Result<Scenario> scenario = parse_scenario(
        R"({"model": "models/llama3-8b.json", "cluster": "clusters/dgx-a100-80gb.json",
            "plan": {"data_parallel": 4, "pipeline_parallel": 2, "zero_stage": 3, "micro_batch": 1,
                     "global_batch": 32, "sequence_length": 2048, "runtime": "fsdp",
                     "schedule": ")" +
            std::string(schedule) + R"("}})",
        "test.json", 1, {});
    EXPECT_TRUE(scenario) << scenario.error().message;
    const Scenario& asked = scenario.value();
    const Result<ScheduleShape> shape = shape_of(asked.plan);
    EXPECT_TRUE(shape) << shape.error().message;
    const Schedule order = generate(asked.plan.schedule, shape.value()).value();
    return predict_memory(profile_of("fsdp"), {asked.model, asked.plan}, a100(), order)
        .steady_allocated;
  };
  EXPECT_LT(steady("chimera"), 2.2 * static_cast<double>(steady("1f1b")));
}

// The steady phase of a long step is replayed until it changes nothing; replaying it all gives the
// same peak, but for blocks that fit differently.
TEST(Memory, LeavesOutOnlyWhatChangesNothing) {
  int skipped = 0, in_steps = 0;
  std::map<std::string, int> skipped_of;
  const auto ratio = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  std::mt19937 traits(13);
  for_random_plans(11, 120, /*longer=*/8, [&](GridPlan& grid) {
    vary_traits(grid.made.plan, traits);
    const Plan& plan = grid.made.plan;
    const MemoryProfile profile = profile_of(plan.runtime.name);
    ReplaySetup setup = replay_setup(profile, {grid.made.model, plan}, 80, grid.order);
    for (std::int32_t row = 0; row < grid.order.num_rows(); ++row) {
      setup.whole_step = false;
      const ReplayResult quick = replay_row(setup, {row}, {});
      setup.samples = setup.whole_step = true;
      const ReplayResult sampled = replay_row(setup, {row}, {});
      setup.samples = false;
      const RankMemory& whole = sampled.memory;
      // A trace's curve: one sample per op and one for the optimizer, for each step; the report's
      // peak is theirs, unless more was alive while the model was built.
      ASSERT_EQ(sampled.samples.size() - sampled.last_step, grid.order.program({row}).size() + 1);
      std::int64_t most = 0;
      for (const MemorySample& sample : sampled.samples) {
        const auto alive = [](const MemoryBytes& bytes) {
          return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
        };
        ASSERT_LE(alive(sample.after), alive(sample.most));
        std::int64_t inside = 0;  // the curve inside the op reaches its most
        for (const MemoryBytes& bytes : sample.inside) inside = std::max(inside, alive(bytes));
        ASSERT_EQ(inside, alive(sample.most));
        most = std::max(most, alive(sample.most));
      }
      ASSERT_LE(most, whole.peak_allocated) << plan.schedule;
      if (whole.at_op) {
        ASSERT_EQ(most, whole.peak_allocated) << plan.schedule;
        ++in_steps;
      }
      ASSERT_NEAR(ratio(quick.memory.peak_allocated, whole.peak_allocated), 1.0, 0.002)
          << plan.schedule;
      ASSERT_NEAR(ratio(quick.memory.peak_reserved, whole.peak_reserved), 1.0, 0.01)
          << plan.schedule;
      ASSERT_EQ(quick.memory.steady_allocated, whole.steady_allocated) << plan.schedule;
      skipped += quick.left_out > 0;
      skipped_of[plan.schedule] += quick.left_out > 0;
    }
  });
  EXPECT_GE(skipped, 20);
  EXPECT_GE(in_steps, 100);
  // Where directions meet in a row, each moves on by micro-batches of its own.
  EXPECT_GE(skipped_of["chimera"], 1);
}

}  // namespace
}  // namespace rehearse::sim
