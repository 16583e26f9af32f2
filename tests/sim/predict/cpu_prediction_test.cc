// SPDX-License-Identifier: Apache-2.0
// Predictions from a machine's own tables: what is looked up, how it is interpolated, and that a
// step is the sum of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/scenario/scenario.h"
#include "sim/cluster/cluster.h"
#include "sim/compute/measured_kernels.h"
#include "sim/cost/worker_sharing.h"
#include "sim/network/shared_memory_cost.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

Node product(GemmRole role, std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.kernel = role == GemmRole::Forward         ? Kernel::Linear
                    : role == GemmRole::InputGradient ? Kernel::LinearInput
                                                      : Kernel::LinearWeight,
          .m = m,
          .n = n,
          .k = k};
}

// 2mnk FLOPs at 1 FLOP/ns times `factor`.
GemmPoint point(std::int64_t m, std::int64_t n, std::int64_t k, double factor = 1) {
  return {.m = m,
          .n = n,
          .k = k,
          .type = ComputeType::Fp32,
          .layout = "TN",
          .time_us = 2e-3 * static_cast<double>(m * n * k) * factor};
}

// Rates that fall from 1 to 1/2 FLOP/ns as m goes from 256 to 16.
Calibration grid() {
  Calibration calibration;
  for (const std::int64_t n : {32, 512}) {
    for (const std::int64_t k : {32, 512}) {
      calibration.gemm.push_back(point(16, n, k, 2));
      calibration.gemm.push_back(point(256, n, k, 1));
    }
  }
  return calibration;
}

TEST(MeasuredKernels, AMeasuredProductIsTakenAsItIs) {
  Calibration calibration = grid();
  calibration.gemm.push_back(point(100, 300, 200, 7));  // beside the grid, far from its neighbours
  const MeasuredKernels kernels(calibration);
  const CurveTime exact = *kernels.gemm(product(GemmRole::Forward, 100, 300, 200));
  EXPECT_EQ(exact.level, CostLevel::Measured);
  EXPECT_NEAR(exact.seconds, 7 * 2e-9 * 100 * 300 * 200, 1e-12);
  // The grid is found all the same.
  EXPECT_EQ(kernels.gemm(product(GemmRole::Forward, 100, 300, 201))->level,
            CostLevel::Interpolated);
}

// Half-way between 16 and 256 in the logarithm is 64: the rate there is 1 / sqrt(2).
TEST(MeasuredKernels, TheRateIsStraightInTheLogarithms) {
  const MeasuredKernels kernels(grid());
  const CurveTime between = *kernels.gemm(product(GemmRole::Forward, 64, 128, 128));
  EXPECT_EQ(between.level, CostLevel::Interpolated);
  EXPECT_NEAR(between.seconds, 2e-9 * 64 * 128 * 128 * std::sqrt(2.0), 1e-9);
  const CurveTime beyond = *kernels.gemm(product(GemmRole::Forward, 512, 128, 128));
  EXPECT_EQ(beyond.level, CostLevel::Formula);
  EXPECT_NEAR(beyond.seconds, 2e-9 * 512 * 128 * 128, 1e-9);
}

TEST(MeasuredKernels, ALargerProductNeverTakesLess) {
  const MeasuredKernels kernels(grid());
  double before = 0;
  for (std::int64_t m = 8; m <= 600; ++m) {
    const double seconds = kernels.gemm(product(GemmRole::Forward, m, 100, 100))->seconds;
    EXPECT_GT(seconds, before) << m;
    before = seconds;
  }
}

// A product of each of eight experts takes eight times as long as one.
TEST(MeasuredKernels, ProductsOfExpertsRunOneAfterAnother) {
  const MeasuredKernels kernels(grid());
  Node node = product(GemmRole::Forward, 64, 128, 128);
  const double one = kernels.gemm(node)->seconds;
  node.kernel = Kernel::GroupedLinear;
  node.batch = 8;
  EXPECT_DOUBLE_EQ(kernels.gemm(node)->seconds, 8 * one);
}

TEST(MeasuredKernels, EveryFormOfAProductHasItsOwnPoints) {
  Calibration calibration;
  calibration.gemm = {point(64, 64, 64, 1), point(64, 64, 64, 2), point(64, 64, 64, 3)};
  calibration.gemm[1].layout = "NN";
  calibration.gemm[2].layout = "NT";
  calibration.gemm[2].accumulate = true;
  const MeasuredKernels kernels(calibration);
  const double once = 2e-9 * 64 * 64 * 64;
  EXPECT_NEAR(kernels.gemm(product(GemmRole::Forward, 64, 64, 64))->seconds, once, 1e-12);
  EXPECT_NEAR(kernels.gemm(product(GemmRole::InputGradient, 64, 64, 64))->seconds, 2 * once, 1e-12);
  EXPECT_NEAR(kernels.gemm(product(GemmRole::WeightGradient, 64, 64, 64))->seconds, 3 * once,
              1e-12);
}

// Two cores, threads 1.5 times as slow when both compute.
TEST(WorkerSharing, RanksShareTheCores) {
  const WorkerSharing sharing{.workers = 2};
  const WorkerUse one = worker_use(sharing, 1000, 1.5, 1, 0, 1);
  EXPECT_EQ(one.computing_ns, 1000);
  EXPECT_DOUBLE_EQ(one.share, 0.75);  // a second one beside it: both at 1 / 1.5
  const WorkerUse two = worker_use(sharing, 1000, 1.5, 2, 0, 1);  // two ranks in step
  EXPECT_EQ(two.computing_ns, 1500);
  EXPECT_DOUBLE_EQ(two.share, 1);
  const WorkerUse four = worker_use(sharing, 1000, 1.5, 4, 0, 1);
  EXPECT_EQ(four.computing_ns, 3000);
  // An exchange of all ranks is one thread's work, the other core is free meanwhile.
  const WorkerUse exchange = worker_use(sharing, 0, 1, 2, 1000, 1);
  EXPECT_EQ(exchange.exchanging_ns, 1000);
  EXPECT_DOUBLE_EQ(exchange.share, 0.5);
}

// With more ranks than cores a worker that waits takes another rank's work: nobody is woken.
TEST(WorkerSharing, NobodySleepsWhereRanksAreMoreThanWorkers) {
  Cluster cluster{.gpus_per_node = 2, .workers = 2};
  cluster.calibration.emplace();
  cluster.calibration->scalars = {{"workers.meeting_us", 5}, {"workers.handover_us", 7}};
  EXPECT_EQ(worker_sharing(cluster).meeting_ns, 5000);
  EXPECT_EQ(worker_sharing(cluster).handover_ns, 7000);
  EXPECT_EQ(worker_sharing(with_places(cluster, 4)).meeting_ns, 0);
  EXPECT_EQ(worker_sharing(with_places(cluster, 4)).handover_ns, 0);
}

// --- a whole step, by hand
// ------------------------------------------------------------------------
constexpr std::int64_t kTokens = 16, kHidden = 32, kHeads = 4, kLayers = 3, kVocabulary = 64;

// Products: 1 FLOP per ns. Attention: 10 and 25 us per head. Every other kernel, at whatever size,
// 1 us: below the smallest measured size a curve keeps its time. An op: 2 us.
constexpr std::string_view kWholeAttention = R"(
      {"kernel": "flash2", "direction": "forward", "heads": 1, "sequence": 16, "head_dim": 8, "time_us": 10},
      {"kernel": "flash2", "direction": "backward", "heads": 1, "sequence": 16, "head_dim": 8, "time_us": 25})";

std::string machine(std::string_view attention = kWholeAttention) {
  std::string text =
      R"({"gpus_per_node": 8, "workers": 8, "gpu": {"sm_count": 1, "memory_capacity_gb": 1,
    "peak_dense_tflops": {"fp32_vector": 0.001}, "memory_bandwidth_gb_per_s": 1,
    "pcie": {"gb_per_s_per_direction": 1}},
    "scale_up": {"kind": "full_mesh", "gb_per_s_per_direction_per_gpu": 1, "gb_per_s_per_direction_per_pair": 1},
    "calibration": {"launch_us": 2, "gemm": [)";
  for (const char* form :
       {R"("layout": "TN")", R"("layout": "NN")", R"("layout": "NT", "accumulate": true)"}) {
    for (const int m : {8, 4096}) {
      for (const int n : {8, 4096}) {
        for (const int k : {8, 4096}) {
          text += "{\"m\": " + std::to_string(m) + ", \"n\": " + std::to_string(n) +
                  ", \"k\": " + std::to_string(k) + ", \"type\": \"fp32\", " + form +
                  ", \"time_us\": " + std::to_string(2e-3 * m * n * k) + "},";
        }
      }
    }
  }
  text.back() = ']';
  text += R"(, "memory_bound": [)";
  for (const char* op :
       {"norm", "activation", "add", "position", "embedding", "row_maxima", "row_sums",
        "cross_entropy", "optimizer", "gradient_norm", "clear", "dropout"}) {
    for (const char* direction : {"forward", "backward"}) {
      text += std::string("{\"op\": \"") + op + R"(", "direction": ")" + direction +
              R"(", "bytes": 1000000000, "time_us": 1},)";
    }
  }
  text.back() = ']';
  return text + R"(, "attention": [)" + std::string(attention) + R"(],
    "copies": [{"direction": "h2d", "bytes": 1000000000, "time_us": 1}, {"direction": "d2h", "bytes": 1000000000, "time_us": 1}],
    "collectives": [{"op": "all_reduce", "ranks": 2, "bytes": 1000000000, "time_us": 1},
                    {"op": "send_recv", "ranks": 2, "bytes": 1000000000, "time_us": 1},
                    {"op": "all_reduce", "ranks": 2, "between_processes": "memory", "bytes": 1000000000, "time_us": 31},
                    {"op": "all_reduce", "ranks": 2, "between_processes": "tcp", "bytes": 1000000000, "time_us": 101},
                    {"op": "send_recv", "ranks": 2, "between_processes": "tcp", "bytes": 1000000000, "time_us": 201}]}})";
}

struct Machine {
  std::string_view attention = kWholeAttention;
  std::vector<std::pair<std::string, double>> scalars = {};
  std::int32_t processes = 1;
  ProcessLink between = ProcessLink::None;
  std::vector<MemoryBoundPoint> kernels = {};  // more of them
  std::vector<CopyPoint> copies = {};
};

Prediction predicted(const std::string& plan, const Machine& on = {}) {
  const std::string text =
      R"({"name": "by hand", "model": {"model_type": "gpt2", "num_hidden_layers": 3,
    "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 64, "max_position_embeddings": 16, "resid_pdrop": 0},
    "cluster": )" +
      machine(on.attention) + R"(, "plan": {)" +
      (plan.find("\"data_parallel\"") == std::string::npos ? R"("data_parallel": 1, )" : "") +
      R"("micro_batch": 1, "global_batch": 2, "sequence_length": 16,
    "precision": "fp32")" +
      plan + "}}";
  const Result<Scenario> scenario = parse_scenario(text, "by_hand", 1, {.runtime = "rehearse"});
  EXPECT_TRUE(scenario) << scenario.error().message;
  const Result<Cluster> read = read_cluster(scenario.value().cluster);
  EXPECT_TRUE(read) << read.error().message;
  Cluster cluster = read.value();
  cluster.calibration->scalars = on.scalars;
  Calibration& tables = *cluster.calibration;
  tables.memory_bound.insert(tables.memory_bound.end(), on.kernels.begin(), on.kernels.end());
  tables.copies.insert(tables.copies.end(), on.copies.begin(), on.copies.end());
  cluster.processes = on.processes;
  cluster.between_processes = on.between;
  Result<Prediction> made = predict(scenario.value(), cluster);
  EXPECT_TRUE(made) << made.error().message;
  return std::move(made).value();
}

// How long the ops of a kind last, all of them.
std::int64_t lasting(const Prediction& p, OpKind kind) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < p.schedule.ops.size(); ++i) {
    if (p.schedule.ops[i].kind == kind) sum += (p.timeline.end[i] - p.timeline.start[i]).value;
  }
  return sum;
}
int number_of(const Prediction& p, OpKind kind) {
  return static_cast<int>(std::ranges::count(p.schedule.ops, kind, &Op::kind));
}

// Gathers in 8 bit: every rank packs its shard and unpacks what came, each as long as it was
// measured, on its own thread and beside the others.
TEST(CpuPrediction, AGatherInEightBitTakesWhatPackingWasMeasuredToTake) {
  const std::string plan = R"(, "data_parallel": 2, "zero_stage": 3, "quantized_gather": 8)";
  const auto with = [&](double pack_us, double unpack_us) {
    return predicted(plan, {.kernels = {{"quantize", 1'000'000'000, false, pack_us},
                                        {"quantize", 1'000'000'000, true, unpack_us}}});
  };
  const Prediction p = with(1, 1), longer = with(6, 10);
  const int gathers = number_of(p, OpKind::Unshard);
  ASSERT_GT(gathers, 0);
  EXPECT_EQ(lasting(longer, OpKind::Unshard) - lasting(p, OpKind::Unshard),
            gathers * std::int64_t{5000 + 9000});
  // A calibration of before has no such points: as kernels that memory bounds.
  EXPECT_EQ(lasting(predicted(plan), OpKind::Unshard), lasting(p, OpKind::Unshard));
}

// What goes to drives takes what copies to their file were measured to take, not what copies in
// memory take.
TEST(CpuPrediction, CopiesToDrivesTakeWhatTheirFileTook) {
  const std::string keys = R"(, "offload": "optimizer", "offload_to": ")";
  const std::vector<CopyPoint> file{
      {CopyDirection::DeviceToHost, 1'000'000'000, 40, /*drives=*/true},
      {CopyDirection::HostToDevice, 1'000'000'000, 30, /*drives=*/true}};
  const Prediction host = predicted(keys + R"(host")", {.copies = file}),
                   drives = predicted(keys + R"(nvme")", {.copies = file}),
                   unknown = predicted(keys + R"(nvme")");
  const auto buckets = static_cast<std::int64_t>(host.schedule.buckets.size());
  EXPECT_EQ(lasting(drives, OpKind::Fetch) - lasting(host, OpKind::Fetch), buckets * 29000);
  EXPECT_EQ(lasting(drives, OpKind::Offload) - lasting(host, OpKind::Offload), buckets * 39000);
  EXPECT_EQ(lasting(unknown, OpKind::Offload), lasting(host, OpKind::Offload));
}

TEST(CpuPrediction, AnOpTakesTheSumOfItsMeasuredKernels) {
  const Prediction p = predicted("");
  // Forward. Embedding: rows, positions. A layer: 2 norms, 2 residuals, GELU, attention, products
  // of 12 h^2 parameters. Head: norm, and in two chunks 3 kernels of the loss, logits and their 2
  // gradients.
  const std::int64_t layer = 2 * kTokens * 12 * kHidden * kHidden,
                     head = 3 * 2 * kTokens * kHidden * kVocabulary;
  const std::int64_t forward =
      2000 + 2 * 1000 + kLayers * (layer + 5 * 1000 + kHeads * 10000) + head + (1 + 2 * 3) * 1000;
  // Backward: the head's norm; a layer: 2 norms, GELU, attention, each product twice; the
  // embedding: positions, rows.
  const std::int64_t backward =
      2000 + 1000 + kLayers * (2 * layer + 3 * 1000 + kHeads * 25000) + 2 * 1000;
  std::map<OpKind, int> seen;
  for (std::size_t i = 0; i < p.schedule.ops.size(); ++i) {
    const Op& op = p.schedule.ops[i];
    const std::int64_t lasted = (p.timeline.end[i] - p.timeline.start[i]).value;
    const std::int64_t clearing =
        op.microbatch.value == 0 ? 1000 : 0;  // the first to add sets to zero
    ++seen[op.kind];
    if (op.kind == OpKind::Forward) {
      EXPECT_EQ(lasted, forward + clearing);
    } else if (op.kind == OpKind::Backward) {
      EXPECT_EQ(lasted, backward + clearing);
    } else if (op.kind == OpKind::OptimizerStep || op.kind == OpKind::GradNorm) {
      EXPECT_EQ(lasted, 3000);
    }
  }
  EXPECT_EQ(seen[OpKind::Forward], 2);
  EXPECT_EQ(seen[OpKind::Backward], 2);
  // One rank, one after another: all of the compute stream, the tokens before and the norms after
  // it.
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < p.schedule.ops.size(); ++i) {
    if (p.schedule.ops[i].stream == Stream::Compute)
      sum += (p.timeline.end[i] - p.timeline.start[i]).value;
  }
  EXPECT_NEAR(p.step_s * 1e9, static_cast<double>(sum), 4 * 3000);
}

// Two micro-batches: the embedding's dropout and its backward, the backwards of two per layer
// (their forward is in the residual sum), and the numbers that attention draws for its scores, in
// either direction.
TEST(CpuPrediction, AttentionThatDropsDrawsANumberForEachScore) {
  const double more = predicted(R"(, "dropout": 0.1)").step_s - predicted("").step_s;
  EXPECT_NEAR(more * 1e9, 2 * (2 + kLayers * (2 + 2)) * 1000, 10);
}

// Eight cores, two ranks in step: each product is half as large, attention has half the heads.
TEST(CpuPrediction, TensorParallelRanksComputeSideBySide) {
  const Prediction one = predicted(""), two = predicted(R"(, "tensor_parallel": 2)");
  EXPECT_LT(two.step_s, 0.75 * one.step_s);
  EXPECT_GT(two.step_s, 0.5 * one.step_s);
}

// What was not steady while it was measured is predicted no nearer than that.
TEST(CpuPrediction, ScatteredMeasurementsMakeItDoubtful) {
  const auto band = [](const std::string& plan, const Machine& on) {
    const Prediction p = predicted(plan, on);
    return std::pair(p.scatter, p.error_band);
  };
  EXPECT_EQ(band("", {}), std::pair(0.0, 0.15));
  EXPECT_EQ(band("", {.scalars = {{"scatter.product", 0.4}}}), std::pair(0.4, 0.4));
  EXPECT_EQ(band("", {.scalars = {{"scatter.product", 0.1}}}), std::pair(0.1, 0.15));
  // What cores lose to each other concerns several ranks alone.
  const Machine together{.scalars = {{"scatter.product", 0.1}, {"scatter.together", 0.7}}};
  EXPECT_EQ(band("", together), std::pair(0.1, 0.15));
  EXPECT_EQ(band(R"(, "tensor_parallel": 2)", together), std::pair(0.7, 0.7));
}

// Two slices: the second meets the first's keys, all of them, at 70 and 90 us per head instead of
// 2 * 10 and 2 * 25 for a square of the whole's rate.
TEST(CpuPrediction, PartsOfAttentionAreNotPricedAsTheWhole) {
  const std::string plan = R"(, "sequence_slices": 2, "schedule": "seq_1f1b")";
  const std::string parts = std::string(kWholeAttention) + R"(,
      {"kernel": "flash2", "direction": "forward", "causal": false, "heads": 1, "sequence": 8, "head_dim": 8, "time_us": 70},
      {"kernel": "flash2", "direction": "backward", "causal": false, "heads": 1, "sequence": 8, "head_dim": 8, "time_us": 90})";
  const double more = predicted(plan, {.attention = parts}).step_s - predicted(plan).step_s;
  EXPECT_NEAR(more * 1e9, 2.0 * kLayers * kHeads * (70000 - 20000 + 90000 - 50000), 100);
}

// A layer's four collectives (two each way), those of embedding and head, and the norms': 30 us
// more each by memory, 100 by TCP. Groups inside of a process pay nothing.
TEST(CpuPrediction, RanksInProcessesOfTheirOwnMeetByTheirTables) {
  const std::string plan = R"(, "tensor_parallel": 2)";
  const auto step_us = [&](std::int32_t processes, ProcessLink between) {
    return predicted(plan, {.processes = processes, .between = between}).step_s * 1e6;
  };
  const double one = step_us(1, ProcessLink::Memory);
  const double memory = step_us(2, ProcessLink::Memory) - one;
  EXPECT_GE(memory, 2 * 4 * kLayers * 30);
  EXPECT_NEAR(step_us(2, ProcessLink::Tcp) - one, memory * 100 / 30, 1);
  const auto wide_us = [&](std::int32_t processes) {  // two groups, one in each of two processes
    return predicted(plan + R"(, "pipeline_parallel": 2)",
                     {.processes = processes, .between = ProcessLink::Tcp})
               .step_s *
           1e6;
  };
  const double crossing = wide_us(4) - wide_us(1), transfers = wide_us(2) - wide_us(1);
  EXPECT_GE(transfers, 200);
  EXPECT_LT(transfers, 2 * 4 * kLayers / 2 * 100);
  EXPECT_GE(crossing, 2 * 4 * kLayers / 2 * 100);
}

// A sum beside what was summed has points of its own; where there are none, those of one over it.
TEST(CpuPrediction, SumsBesideWhatWasSummedHaveTheirOwnTables) {
  const Cluster cluster =
      read_cluster({.path = "x.json", .inline_json = machine(), .line = 1}).value();
  std::vector<CollectivePoint> points{
      {.op = CollectiveOp::AllReduce, .ranks = 2, .bytes = 4096, .time_us = 3},
      {.op = CollectiveOp::AllReduce, .ranks = 2, .bytes = 4096, .time_us = 7, .apart = true}};
  const auto time_us = [&](bool apart) {
    const auto time = shared_memory_time(OpKind::AllReduce, {4096}, {2, 1, apart}, points, cluster);
    return 1e6 * time->seconds;
  };
  const double apart = time_us(true), over = time_us(false);
  EXPECT_NEAR(apart - over, 4, 1e-9);
  points.pop_back();
  EXPECT_EQ(time_us(true), over);
}

// More ranks than the machine has cores is no error: they take turns.
TEST(CpuPrediction, AnyNumberOfRanksFindsAPlace) {
  Cluster cluster = read_cluster({.path = "x.json", .inline_json = machine(), .line = 1}).value();
  EXPECT_TRUE(check_gpus(cluster, 64));
  const Cluster wide = with_places(cluster, 64);
  EXPECT_EQ(wide.gpus_per_node, 64);
  EXPECT_NEAR(static_cast<double>(wide.capacity().value),
              static_cast<double>(cluster.capacity().value) / 8, 8);
  EXPECT_EQ(with_places(cluster, 4).gpus_per_node, 8);
  cluster.workers = 1;
  EXPECT_EQ(worker_use(worker_sharing(cluster), 1000, 1, 4, 0, 1).computing_ns, 4000);
}

}  // namespace
}  // namespace rehearse::sim
