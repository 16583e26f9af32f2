// SPDX-License-Identifier: Apache-2.0
// Fused attention: rate by kernel generation and length, few tiles, what runs of the square, parts
// of it; times from a machine's own points.
#include "sim/compute/attention_cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/schedules/runtime/runtime_named.h"
#include "tests/sim/compute/compute_fixture.h"

namespace rehearse::sim {
namespace {

using fixture::a100_node;
using fixture::gpt;
using fixture::kKernels;

ComputeCosts a100(AttentionKernel kernel, std::int64_t sequence) {
  return {.scalars = read_kernel_scalars(a100_node(), kKernels).value(),
          .peak_flops = 312e12,
          .memory_bytes_per_s = 2039e9,
          .sms = 108,
          .attention = kernel,
          .sequence = sequence};
}

Node core(double flops, std::int64_t tiles) {
  return {.kernel = Kernel::Attention, .flops = flops, .parallel = tiles};
}

TEST(Attention, HalfOfTheRateIsReachedAtTheLengthConstant) {
  const double at_768 = attention_cost(a100(AttentionKernel::Flash1, 768), core(1e12, 10800)).ns;
  EXPECT_NEAR(at_768, 1e12 / (312e12 * 0.36 / 2) * 1e9 + 3e3, 1);
}

TEST(Attention, TheSecondGenerationIsFasterByItsFactor) {
  const double first = attention_cost(a100(AttentionKernel::Flash1, 4096), core(1e12, 10800)).ns;
  const double second = attention_cost(a100(AttentionKernel::Flash2, 4096), core(1e12, 10800)).ns;
  EXPECT_NEAR((first - 3e3) / (second - 3e3), 0.67 / 0.36, 1e-9);
}

// 109 tiles on 108 SMs take two waves; beyond four waves nothing is lost.
TEST(Attention, FewTilesLeaveSmsIdle) {
  const ComputeCosts costs = a100(AttentionKernel::Flash2, 4096);
  const double full = attention_cost(costs, core(1e12, 108)).ns - 3e3;
  EXPECT_NEAR((attention_cost(costs, core(1e12, 109)).ns - 3e3) / full, 2 * 108.0 / 109, 1e-9);
  EXPECT_NEAR(attention_cost(costs, core(1e12, 5 * 108 + 1)).ns - 3e3, full, 1e-3);
}

const Node* find(const std::vector<Node>& nodes, NodeKind kind) {
  for (const Node& node : nodes) {
    if (node.kind() == kind) return &node;
  }
  return nullptr;
}

Plan flash_plan() {
  Plan plan;
  plan.micro_batch = 2;
  plan.global_batch = 2;
  plan.sequence_length = 4096;
  plan.padded_vocabulary = 51200;
  return plan;
}

// Causal: half of 4 b s^2 a d; the backward has five products instead of two.
TEST(Attention, OnlyTheCausalHalfRuns) {
  const Transformer model = gpt(1, 4096, 32);
  const Plan plan = flash_plan();
  const Body forward = make_body({model, plan}, {.segment = SegmentKind::Layer});
  const double expected = 0.5 * 4 * 2 * 4096.0 * 4096 * 4096;
  EXPECT_DOUBLE_EQ(find(forward.nodes, NodeKind::Attention)->flops, expected);
  const Body backward =
      make_body({model, plan}, {.segment = SegmentKind::Layer, .direction = Direction::Backward});
  EXPECT_DOUBLE_EQ(find(backward.nodes, NodeKind::AttentionBackward)->flops, 2.5 * expected);
}

// With a window w below s a query sees at most w keys: w s - w^2 / 2 pairs instead of s^2 / 2.
TEST(Attention, ASlidingWindowRunsItsBandAlone) {
  Transformer model = gpt(1, 4096, 32);
  model.sliding_window = 1024;
  const Plan plan = flash_plan();
  const Body body = make_body({model, plan}, {.segment = SegmentKind::Layer});
  const double pairs = 1024.0 * 4096 - 1024.0 * 1024 / 2;
  EXPECT_DOUBLE_EQ(find(body.nodes, NodeKind::Attention)->flops, 4 * 2 * pairs * 4096);
}

// Where windows differ by layer (gemma 2: every second one), each layer runs its own pairs, with
// our runtime and others'; a body of no layer in particular has the mean.
TEST(Attention, WindowsThatDifferByLayerAreRunLayerByLayer) {
  Transformer model = gpt(2, 4096, 32);
  model.sliding_window = 1024;
  model.windowed_layers = {true, false};
  Plan plan = flash_plan();
  for (const char* runtime : {"megatron", "rehearse"}) {
    plan.runtime = runtime_named(runtime);
    const auto flops = [&](const BodyShape& shape) {
      return find(make_body({model, plan}, shape).nodes, NodeKind::Attention)->flops;
    };
    const auto of_layer = [&](std::int32_t layer) {
      return flops(body_shape({model, plan}, {.kind = SegmentKind::Layer, .layer = layer},
                              Direction::Forward));
    };
    const double windowed = 1024.0 * 4096 - 1024.0 * 1024 / 2, whole = 4096.0 * 4096 / 2;
    EXPECT_DOUBLE_EQ(of_layer(0), 4 * 2 * windowed * 4096) << runtime;
    EXPECT_DOUBLE_EQ(of_layer(1), 4 * 2 * whole * 4096) << runtime;
    EXPECT_DOUBLE_EQ(flops({.segment = SegmentKind::Layer}), (of_layer(0) + of_layer(1)) / 2);
  }
}

// Contiguous blocks (torchtitan of 2024): of c ranks the last does (2c-1)/c of the mean; Megatron
// balances.
TEST(Attention, TheLastRankOfContiguousBlocksDoesTheMost) {
  const Transformer model = gpt(1, 4096, 32);
  Plan plan = flash_plan();
  plan.context_parallel = 4;
  const double mean = 0.5 * 4 * 2 * 4096.0 * 4096 * 4096 / 4;
  const Body balanced = make_body({model, plan}, {.segment = SegmentKind::Layer});
  EXPECT_DOUBLE_EQ(find(balanced.nodes, NodeKind::Attention)->flops, mean);
  plan.runtime = runtime_named("torchtitan");
  const Body blocks = make_body({model, plan}, {.segment = SegmentKind::Layer});
  EXPECT_DOUBLE_EQ(find(blocks.nodes, NodeKind::Attention)->flops, mean * 7 / 4);
}

TEST(Attention, UnfusedAttentionComputesTheWholeSquare) {
  const Transformer model = gpt(1, 4096, 32);
  Plan plan = flash_plan();
  plan.flash_attention = false;
  plan.attention_kernel = AttentionKernel::Unfused;
  const Body body = make_body({model, plan}, {.segment = SegmentKind::Layer});
  double flops = 0;
  for (const Node& node : body.nodes) {
    if (node.kind() == NodeKind::Gemm && node.role() == GemmRole::None) flops += node.flops;
  }
  EXPECT_DOUBLE_EQ(flops, 4 * 2 * 4096.0 * 4096 * 4096);
}

// --- in parts: a rank's 1,024 queries of 4 samples, 8 heads of 64 --------------------------------
constexpr AttentionSize kPart{
    .samples = 4, .heads = 8, .head_dim = 64, .sequence = 1024, .kv_heads = 8};

// `squares`: pairs that meet, in squares of the part's own queries and keys.
Node part(double squares, std::int32_t step, std::int32_t slice = -1, bool backward = false) {
  return {.kernel = backward ? Kernel::AttentionBackward : Kernel::Attention,
          .flops = squares * AttentionForm{.backward = backward, .causal = false}.flops(kPart),
          .parallel = 4 * 8 * 1024 / 128 * 20,  // many
          .step = step,
          .slice = slice};
}

// Flash-attention 2 on an A100: 0.67 of 312 TFLOP/s forward, times s/(s + 768).
TEST(AttentionInParts, AnUnmaskedBlockIsTwiceTheWorkAndItsSumsAreMovedInFp32) {
  ComputeCosts costs = a100(AttentionKernel::Flash2, 8192);
  costs.attention_size = kPart;
  const double square = 4.0 * 4 * 8 * 1024 * 1024 * 64, queries = 4.0 * 8 * 1024 * 64;
  const auto expected = [](double flops, double length, double bytes, double share) {
    return (flops / (312e12 * share * length / (length + 768)) + bytes / 2039e9) * 1e9 + 3e3;
  };
  Node own = part(0.5, 0);
  EXPECT_NEAR(attention_cost(costs, own).ns, expected(square / 2, 1024, 8 * queries, 0.67), 1);
  own.first = true;  // there is no sum to be read
  EXPECT_NEAR(attention_cost(costs, own).ns, expected(square / 2, 1024, 4 * queries, 0.67), 1);
  // A query sees 1,024 keys of an earlier slice: as if the sequence were twice as long.
  EXPECT_NEAR(attention_cost(costs, part(1, 0, 0)).ns, expected(square, 2048, 8 * queries, 0.67),
              1);
  // Half of the queries or half of the keys.
  EXPECT_NEAR(attention_cost(costs, part(0.5, 1)).ns, expected(square / 2, 1024, 6 * queries, 0.67),
              1);
  // dq, dk and dv.
  EXPECT_NEAR(attention_cost(costs, part(1, 0, 0, true)).ns,
              expected(2.5 * square, 2048, 24 * queries, 0.58), 1);
}

Calibration points(bool parts) {
  Calibration out;
  const auto add = [&](bool backward, bool causal, bool part, double us) {
    out.attention.push_back({.backward = backward,
                             .causal = causal,
                             .part = part,
                             .batch = 4,
                             .heads = 8,
                             .sequence = 1024,
                             .head_dim = 64,
                             .time_us = us});
  };
  add(false, true, false, 10);
  add(true, true, false, 25);
  if (!parts) return out;
  add(false, true, true, 12);
  add(false, false, true, 22);
  add(true, true, true, 30);
  add(true, false, true, 55);
  return out;
}

double measured_us(const ComputeCosts& costs, const Node& node) {
  return measured_attention_cost(costs, node)->ns / 1e3;
}

TEST(AttentionInParts, PartsThatWereMeasuredArePricedByThemselves) {
  ComputeCosts costs = a100(AttentionKernel::Flash2, 8192);
  costs.attention_size = kPart;
  EXPECT_FALSE(measured_attention_cost(costs, part(0.5, -1)));
  costs.measured_attention.emplace(points(true), 108);
  EXPECT_NEAR(measured_us(costs, part(0.5, -1)), 10, 1e-9);  // the whole
  EXPECT_NEAR(measured_us(costs, part(0.5, 0)), 12, 1e-9);
  EXPECT_NEAR(measured_us(costs, part(1, 0, 0)), 22, 1e-9);
  EXPECT_NEAR(measured_us(costs, part(0.5, 1)), 11, 1e-9);
  EXPECT_NEAR(measured_us(costs, part(0.5, 0, -1, true)), 30, 1e-9);
  EXPECT_NEAR(measured_us(costs, part(1, 0, 0, true)), 55, 1e-9);
  // The first part of a backward computes rowsum(dO o) and clears dq besides: 8 B per element.
  Node first = part(1, 0, 0, true);
  first.first = true;
  const double bytes = 8.0 * 4 * 8 * 1024 * 64;
  EXPECT_NEAR(measured_us(costs, first), 55 + bytes / (0.88 * 2039e9) * 1e6 + 3, 1e-3);
  EXPECT_EQ(price_node(costs, part(1, 0, 0)).level, CostLevel::Measured);
}

// A block of the ring takes what half a block was measured to take, not half of a whole one; an
// earlier slice's, all of which is seen, is no half.
TEST(AttentionInParts, AHalfThatWasMeasuredIsPricedByItself) {
  ComputeCosts costs = a100(AttentionKernel::Flash2, 8192);
  costs.attention_size = kPart;
  Calibration tables = points(true);
  for (const bool backward : {false, true}) {
    tables.attention.push_back({.backward = backward,
                                .causal = false,
                                .part = true,
                                .half = true,
                                .batch = 4,
                                .heads = 8,
                                .sequence = 1024,
                                .head_dim = 64,
                                .time_us = backward ? 41.0 : 17.0});
  }
  costs.measured_attention.emplace(tables, 108);
  EXPECT_NEAR(measured_us(costs, part(0.5, 1)), 17, 1e-9);
  EXPECT_NEAR(measured_us(costs, part(0.5, 3, -1, true)), 41, 1e-9);
  EXPECT_NEAR(measured_us(costs, part(1, 0, 0)), 22, 1e-9);
  EXPECT_NEAR(measured_us(costs, part(1, 1, 0)), 22, 1e-9);
  EXPECT_NEAR(measured_us(costs, part(0.5, 0)), 12, 1e-9);
}

TEST(AttentionInParts, TablesOfTheWholeAloneGiveItsRate) {
  ComputeCosts costs = a100(AttentionKernel::Flash2, 8192);
  costs.attention_size = kPart;
  costs.measured_attention.emplace(points(false), 108);
  EXPECT_NEAR(measured_us(costs, part(0.5, 0)), 10, 1e-9);
  EXPECT_NEAR(measured_us(costs, part(1, 0, 0)), 20, 1e-9);
  EXPECT_NEAR(measured_us(costs, part(1, 0, 0, true)), 50, 1e-9);
}

// Measured: 256 tiles on 108 SMs, 2.37 waves of which the third counts whole. 2 samples of 8 heads
// are 128 tiles: two waves instead of three.
TEST(AttentionInParts, FewerHeadsThanMeasuredLeaveSmsIdle) {
  ComputeCosts costs = a100(AttentionKernel::Flash2, 8192);
  costs.attention_size = kPart;
  costs.attention_size.samples = 2;
  costs.measured_attention.emplace(points(true), 108);
  const Node half{.kernel = Kernel::Attention,
                  .flops = AttentionForm{}.flops(costs.attention_size)};
  EXPECT_NEAR(measured_us(costs, half), 10 * 2.0 / 3, 1e-9);
  costs.measured_attention.emplace(points(true), 1);  // a CPU: one head after another
  EXPECT_NEAR(measured_us(costs, half), 5, 1e-9);
}

// Twice the heads of the measured dimension's half: nearest, in proportion.
TEST(AttentionInParts, AHeadThatWasNotMeasuredIsReadBetweenOthers) {
  Calibration calibration = points(false);
  calibration.attention.push_back(calibration.attention.front());
  calibration.attention.back().head_dim = 128;
  calibration.attention.back().time_us = 40;
  const MeasuredAttention tables(calibration, 1);
  AttentionSize size = kPart;
  size.head_dim = 90;
  const double share = std::log(90 / 64.0) / std::log(2.0);
  EXPECT_NEAR(tables.time(AttentionForm{}, size)->seconds, 10e-6 * std::pow(4, share), 1e-12);
  size.head_dim = 32;
  EXPECT_NEAR(tables.time(AttentionForm{}, size)->seconds, 5e-6, 1e-12);
  EXPECT_EQ(tables.time(AttentionForm{}, size)->level, CostLevel::Formula);
  EXPECT_FALSE(MeasuredAttention(Calibration{}, 1).time(AttentionForm{}, size));
}

// A plan of our executor on a GPU with points takes them; a framework's plan does not.
TEST(AttentionInParts, OurExecutorsPlanOnACalibratedGpuTakesThePoints) {
  Cluster cluster = a100_node();
  const Transformer model = gpt(1, 512, 8);
  Plan plan = flash_plan();
  plan.micro_batch = 4;
  plan.sequence_length = 2048;
  plan.context_parallel = 2;
  plan.dropouts = {};
  plan.runtime = runtime_named("rehearse");
  const Body body = make_body({model, plan}, {.segment = SegmentKind::Layer});
  const auto node_us = [&](std::string_view name) {
    const auto priced = ComputeModel::create(cluster, {model, plan}, {}).value().price_nodes(body);
    for (std::size_t i = 0; i < body.nodes.size(); ++i) {
      if (body.nodes[i].name == name) return static_cast<double>(priced[i].time.value) / 1e3;
    }
    return 0.0;
  };
  const double formula = node_us("attention (block of the ring)");
  EXPECT_GT(formula, 0);
  cluster.calibration = points(true);
  EXPECT_NEAR(node_us("attention (causal, own block)"), 12, 0.01);
  EXPECT_NEAR(node_us("attention (block of the ring)"), 11, 0.01);
  plan.precision.compute = ComputeType::Fp32;  // that was not measured
  EXPECT_GT(node_us("attention (causal, own block)"), 12.01);
}

}  // namespace
}  // namespace rehearse::sim
