// SPDX-License-Identifier: Apache-2.0
// Each trait of a runtime changes kernels by the bytes that docs/add_a_runtime.md says. The layer:
// h 64, 4 heads of 16, f 256, gated; n = 32 tokens, t 2, so l = n/t under sequence parallelism.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "schedules/body/body.h"
#include "schedules/body/sizes.h"
#include "tests/schedules/ir/example_case.h"
#include "tests/schedules/runtime/runtime_named.h"

namespace rehearse {
namespace {

constexpr std::int64_t n = 32, h = 64, f = 256, V = 256, t = 2;

class FrameworkTraits : public testing::Test {
 public:
  FrameworkTraits() {
    model.mlp = MlpKind::Gated;
    model.norm = NormKind::RmsNorm;
    model.positions = PositionKind::Rope;
    plan.runtime = runtime_named("megatron");
    plan.recompute = Recompute{};
  }

  Body body(Direction direction, SegmentKind segment = SegmentKind::Layer) const {
    return make_body({model, plan}, {.segment = segment, .direction = direction});
  }
  static std::int64_t sum(const Body& b, const std::function<bool(const Node&)>& counts) {
    std::int64_t bytes = 0;
    for (const Node& node : b.nodes) {
      if (counts(node)) bytes += node.bytes;
    }
    return bytes;
  }
  // [B] of memory-bound kernels: neither products, nor attention, nor collectives.
  std::int64_t moved(Direction direction, SegmentKind segment = SegmentKind::Layer) const {
    return sum(body(direction, segment), [](const Node& node) {
      return node.flops == 0 && collective_kind(node.kind()) == OpKind::Forward;
    });
  }
  // [B] of whole arrays over tp.
  std::int64_t sent(Direction direction, SegmentKind segment = SegmentKind::Layer) const {
    return sum(body(direction, segment),
               [](const Node& node) { return collective_kind(node.kind()) != OpKind::Forward; });
  }
  std::int64_t launches(Direction direction) const {
    std::int64_t count = 0;
    for (const Node& node : body(direction).nodes) count += node.launches;
    return count;
  }
  // What setting a trait adds.
  template <class Set>
  std::int64_t more(std::int64_t (FrameworkTraits::*of)(Direction, SegmentKind) const,
                    Direction direction, SegmentKind segment, const Set& set) {
    const std::int64_t before = (this->*of)(direction, segment);
    set(plan.runtime);
    return (this->*of)(direction, segment) - before;
  }

  Transformer model = example_model();
  Plan plan = example_plan(1, ComputeType::Bf16);
};

// Rates by place: 5 B per value that is dropped in attention (S = n s a / t scores) and behind the
// embedding; a residual sum that drops moves 7 B instead of 6.
TEST_F(FrameworkTraits, DropoutRunsWhereItsOwnRateIs) {
  plan.flash_attention = false;
  plan.attention_kernel = AttentionKernel::Unfused;
  plan.dropouts = {};
  const auto both = [&](SegmentKind segment) { return moved(Direction::Forward, segment); };
  const std::int64_t layer = both(SegmentKind::Layer), embedding = both(SegmentKind::Embedding);
  const std::int64_t local = RankShape(Layout(model, plan).shape).local;
  const std::int64_t scores = n * plan.sequence_length * model.heads / t;
  plan.dropouts = {.attention = 0.1};
  EXPECT_EQ(both(SegmentKind::Layer) - layer, 5 * scores);
  EXPECT_EQ(both(SegmentKind::Embedding), embedding);
  plan.dropouts = {.residual = 0.1};
  EXPECT_EQ(both(SegmentKind::Layer) - layer, 2 * (7 - 6) * local * h);
  plan.dropouts = {.embedding = 0.1};
  EXPECT_EQ(both(SegmentKind::Layer), layer);
  EXPECT_EQ(both(SegmentKind::Embedding) - embedding, 5 * local * h);
}

// FSDP2 gathers a unit into one buffer: its parameters are read out of it and written, 2 + 2 B
// each, before the forward and, where they were dropped, before the backward; the root never drops
// them.
TEST_F(FrameworkTraits, GatheredParametersAreCopiedOutOfTheirBuffer) {
  plan.runtime = runtime_named("fsdp");
  plan.runtime.gather_copies = false;
  plan.zero_stage = 3;
  plan.data_parallel = 4;
  plan.pipeline_parallel = 1;
  const Layout layout(model, plan);
  const auto copied = [&](Direction direction, SegmentKind segment) {
    plan.runtime.gather_copies = false;
    return more(&FrameworkTraits::moved, direction, segment,
                [](RuntimeTraits& traits) { traits.gather_copies = true; });
  };
  std::int64_t parameters = 0, head = 0;
  for (const ParameterTensor& tensor : segment_parameters(layout, SegmentKind::Layer, 0)) {
    parameters += tensor.elements;
  }
  for (const ParameterTensor& tensor : segment_parameters(layout, SegmentKind::Head, 0)) {
    head += tensor.elements;
  }
  EXPECT_EQ(copied(Direction::Forward, SegmentKind::Layer), 4 * parameters);
  EXPECT_EQ(copied(Direction::Backward, SegmentKind::Layer), 4 * parameters);
  EXPECT_EQ(copied(Direction::Forward, SegmentKind::Head), 4 * head);
  EXPECT_EQ(copied(Direction::Backward, SegmentKind::Head), 0);
  plan.zero_stage = 2;  // gathered for the forward, and kept
  EXPECT_EQ(copied(Direction::Forward, SegmentKind::Layer), 4 * parameters);
  EXPECT_EQ(copied(Direction::Backward, SegmentKind::Layer), 0);
  plan.data_parallel = 1;
  EXPECT_EQ(copied(Direction::Forward, SegmentKind::Layer), 0);
}

// DeepSpeed of 2021 gathers and reduces every matrix as a list of one part per rank: a call for
// each, 6 B of a 16-bit element for a gather and 4 B for a reduction. What ran again is gathered
// once more for its backward, unless little is read in between: behind a tensor all others twice.
TEST_F(FrameworkTraits, ListedTensorsAreCopiedPartByPart) {
  plan.runtime = runtime_named("megatron_deepspeed");
  plan.zero_stage = 3;
  plan.data_parallel = 4;
  plan.tensor_parallel = plan.pipeline_parallel = 1;
  plan.sequence_parallel = false;
  plan.runtime.listed_elements = h;  // norms and biases are not
  std::vector<std::int64_t> matrices;
  const Layout layout(model, plan);
  for (const ParameterTensor& tensor : segment_parameters(layout, SegmentKind::Layer, 0)) {
    if (tensor.elements > h) matrices.push_back(tensor.elements);
  }
  std::int64_t elements = 0;
  for (const std::int64_t matrix : matrices) elements += matrix;
  const auto lists = [&](Direction direction) {
    const Body made = body(direction);
    EXPECT_EQ(made.nodes.front().drains, plan.runtime.listed_elements > 0);
    return made.nodes.front();
  };
  const auto count = static_cast<std::int64_t>(matrices.size());
  EXPECT_EQ(lists(Direction::Forward).expert_calls, 4 * count);
  EXPECT_EQ(lists(Direction::Forward).bytes, 6 * elements);
  EXPECT_EQ(lists(Direction::Backward).expert_calls, 2 * 4 * count);
  EXPECT_EQ(lists(Direction::Backward).bytes, 10 * elements);
  plan.recompute = Recompute::full();
  EXPECT_EQ(lists(Direction::Backward).expert_calls, 2 * 4 * count);  // all of it stays
  plan.runtime.kept_elements = static_cast<std::int32_t>(2 * matrices.back()) + 1;
  EXPECT_EQ(lists(Direction::Backward).expert_calls, 4 * (2 * count + count - 2));
  plan.runtime.kept_elements = 0;
  EXPECT_EQ(lists(Direction::Backward).expert_calls, 4 * 3 * count);
  EXPECT_EQ(lists(Direction::Forward).expert_calls, 4 * count);
  plan.runtime.listed_elements = 0;
  lists(Direction::Forward);
}

// A layer of llama 4 that does not rotate has neither rotation (4 B per value of q and k) nor norms
// of them (4 B); with a temperature its queries are read and written (4 B). The executor's copies
// q, k, v where others norm them.
TEST_F(FrameworkTraits, ALayerThatDoesNotRotateMovesLess) {
  model.query_key_unit_norm = true;
  const auto forward = [&](bool rotates) {
    const Body made = make_body({model, plan}, {.segment = SegmentKind::Layer, .rotates = rotates});
    return sum(made, [](const Node& node) {
      return node.flops == 0 && collective_kind(node.kind()) == OpKind::Forward;
    });
  };
  const std::int64_t q = n * h / t, k = q * model.kv_heads / model.heads;
  EXPECT_EQ(forward(true) - forward(false), (4 + 4) * (q + k));
  model.temperature_scale = 0.1;
  EXPECT_EQ(forward(true) - forward(false), (4 + 4) * (q + k) - 4 * q);
  plan.runtime = runtime_named("rehearse");
  const auto nodes = [&](bool rotates, Kernel kernel) {
    const Body made = make_body({model, plan}, {.segment = SegmentKind::Layer, .rotates = rotates});
    return std::ranges::count(made.nodes, kernel, &Node::kernel);
  };
  EXPECT_EQ(nodes(true, Kernel::QueryKeyNorm), 1);
  EXPECT_EQ(nodes(false, Kernel::QueryKeyNorm), 0);
  EXPECT_EQ(nodes(false, Kernel::Copy) - nodes(true, Kernel::Copy), 1);
}

// Of a rank's P = (3 h + h + 3 f) h / t weights: 2 B read, g = 4 B read and written. Fused, the
// product itself writes 2 g instead of 2 B.
TEST_F(FrameworkTraits, SeparateAccumulationIsAKernelForEveryWeight) {
  const std::int64_t parameters = (3 * h + h + 3 * f) * h / t;
  EXPECT_EQ(more(&FrameworkTraits::moved, Direction::Backward, SegmentKind::Layer,
                 [](auto& r) { r.gradient_accumulation = GradientAccumulation::Separate; }),
            (2 + 2 * 4) * parameters);
  const auto weights = [](const Node& node) { return node.role() == GemmRole::WeightGradient; };
  const std::int64_t apart = sum(body(Direction::Backward), weights);
  plan.runtime.gradient_accumulation = GradientAccumulation::Fused;
  EXPECT_EQ(sum(body(Direction::Backward), weights) - apart, (2 * 4 - 2) * parameters);
}

// Megatron's first fused kernel adds to 4-byte sums; 2-byte sums are added apart: 2 B read, 2 read
// and written.
TEST_F(FrameworkTraits, AFusedKernelOfFourBytesLeavesTwoByteSumsApart) {
  const std::int64_t parameters = (3 * h + h + 3 * f) * h / t;
  const auto fused = [](auto& r) { r.gradient_accumulation = GradientAccumulation::Fused; };
  const auto fp32 = [](auto& r) { r.gradient_accumulation = GradientAccumulation::FusedFp32; };
  for (const std::int32_t bytes : {2, 4}) {
    plan.precision.gradients = bytes;
    fused(plan.runtime);
    EXPECT_EQ(more(&FrameworkTraits::moved, Direction::Backward, SegmentKind::Layer, fp32),
              bytes == 2 ? (2 + 2 * 2) * parameters : 0);
  }
}

// 38 + 14 B per logit of a rank kernel by kernel, 4 + 2 in place.
TEST_F(FrameworkTraits, AnEagerLossMovesTheLogitsAgainAndAgain) {
  const auto eager = [](auto& r) { r.cross_entropy = CrossEntropy::Eager; };
  const auto fused = [](auto& r) { r.cross_entropy = CrossEntropy::Fused; };
  EXPECT_EQ(more(&FrameworkTraits::moved, Direction::Forward, SegmentKind::Head, eager),
            (38 - 4) * n * V / t);
  fused(plan.runtime);
  EXPECT_EQ(more(&FrameworkTraits::moved, Direction::Backward, SegmentKind::Head, eager),
            (14 - 2) * n * V / t);
}

// 22 + 10 B in the passes that a compiler makes of Megatron's own: between the two others.
TEST_F(FrameworkTraits, AFusionOfMegatronsOwnMovesLogitsLessThanKernelByKernel) {
  const auto native = [](auto& r) { r.cross_entropy = CrossEntropy::Native; };
  const auto fused = [](auto& r) { r.cross_entropy = CrossEntropy::Fused; };
  EXPECT_EQ(more(&FrameworkTraits::moved, Direction::Forward, SegmentKind::Head, native),
            (22 - 4) * n * V / t);
  fused(plan.runtime);
  EXPECT_EQ(more(&FrameworkTraits::moved, Direction::Backward, SegmentKind::Head, native),
            (10 - 2) * n * V / t);
}

// Gathered: 2 B of every logit to every rank instead of three fp32 per token; there 38 B and the 4
// of putting them together, backward 14 and the 4 of the own part's cast.
TEST_F(FrameworkTraits, GatheredLogitsAreEveryRanksWork) {
  const auto gathered = [](auto& r) { r.cross_entropy = CrossEntropy::Gathered; };
  const auto fused = [](auto& r) { r.cross_entropy = CrossEntropy::Fused; };
  EXPECT_EQ(more(&FrameworkTraits::sent, Direction::Forward, SegmentKind::Head, gathered),
            2 * n * V - 3 * 4 * n);
  fused(plan.runtime);
  EXPECT_EQ(more(&FrameworkTraits::moved, Direction::Forward, SegmentKind::Head, gathered),
            (38 + 4) * n * V - 4 * n * V / t);
  fused(plan.runtime);
  EXPECT_EQ(more(&FrameworkTraits::moved, Direction::Backward, SegmentKind::Head, gathered),
            14 * n * V + 4 * n * V / t - 2 * n * V / t);
}

// Per element instead of 4 + 8 (norm, two of l h), 4 + 4 (rope, of queries and keys: 2 h / t),
// 6 + 10 (SwiGLU, f / t): 26 + 56, 26 + 28, 10 + 18. A compiler makes one kernel again.
TEST_F(FrameworkTraits, EagerKernelsMoveTheirOperandsForEachOperation) {
  const auto expect = [&](bool EagerKernels::*operation, std::int64_t forward,
                          std::int64_t backward) {
    for (const bool compiled : {false, true}) {
      plan.runtime.compiled = compiled;
      plan.runtime.eager_kernels = {};
      const std::int64_t f0 = moved(Direction::Forward), b0 = moved(Direction::Backward);
      plan.runtime.eager_kernels.*operation = true;
      EXPECT_EQ(moved(Direction::Forward) - f0, compiled ? 0 : forward);
      EXPECT_EQ(moved(Direction::Backward) - b0, compiled ? 0 : backward);
    }
  };
  const std::int64_t norms = 2 * n / t * h;
  expect(&EagerKernels::norm, (26 - 4) * norms, (56 - 8) * norms);
  expect(&EagerKernels::rope, (26 - 4) * n * 2 * h / t, (28 - 4) * n * 2 * h / t);
  expect(&EagerKernels::activation, (10 - 6) * n * f / t, (18 - 10) * n * f / t);
}

// Softmax on the n n a / t scores of one sample: 29 + 33 B instead of 4 + 6.
TEST_F(FrameworkTraits, EagerAttentionIsASoftmaxOpByOp) {
  const std::int64_t scores = n * n * 4 / t;
  plan.attention_kernel = AttentionKernel::Unfused;
  const std::int64_t forward = moved(Direction::Forward), backward = moved(Direction::Backward);
  plan.attention_kernel = AttentionKernel::Eager;
  EXPECT_EQ(moved(Direction::Forward) - forward, (29 - 4) * scores);
  EXPECT_EQ(moved(Direction::Backward) - backward, (33 - 6) * scores);
}

// A gate of its own: the same products, one more sum of two input gradients (2 + 2 read, 2 written)
// and, without sequence parallelism, one more all-reduce of n h.
TEST_F(FrameworkTraits, ASplitGateReducesItsInputGradientApart) {
  const double flops = body(Direction::Backward).flops();
  for (const bool sequence : {true, false}) {
    plan.sequence_parallel = sequence;
    plan.runtime.gated_mlp = GatedMlp::Fused;
    const std::int64_t whole = sent(Direction::Backward);
    EXPECT_EQ(more(&FrameworkTraits::moved, Direction::Backward, SegmentKind::Layer,
                   [](auto& r) { r.gated_mlp = GatedMlp::Split; }),
              6 * n * h);
    EXPECT_EQ(sent(Direction::Backward) - whole, sequence ? 0 : 2 * n * h);
  }
  EXPECT_EQ(body(Direction::Backward).flops(), flops);
}

// Two of a layer's four gathers of n h are of what the forward had.
TEST_F(FrameworkTraits, KeptGathersAreNotRepeated) {
  EXPECT_EQ(more(&FrameworkTraits::sent, Direction::Backward, SegmentKind::Layer,
                 [](auto& r) { r.sequence_gather = SequenceGather::Kept; }),
            -2 * 2 * n * h);
}

// Forward: 2 gathers and 2 reduce-scatters of n h; 8 bit are half of 16.
TEST_F(FrameworkTraits, EightBitCollectivesCarryHalf) {
  plan.precision.compute = ComputeType::Fp8;
  plan.runtime.fp8_communication = Fp8Communication::None;
  EXPECT_EQ(sent(Direction::Forward), 4 * 2 * n * h);
  plan.runtime.fp8_communication = Fp8Communication::Gather;
  EXPECT_EQ(sent(Direction::Forward), (2 * 1 + 2 * 2) * n * h);
  plan.runtime.fp8_communication = Fp8Communication::GatherScatter;
  EXPECT_EQ(sent(Direction::Forward), 4 * 1 * n * h);
  plan.precision.compute = ComputeType::Bf16;
  EXPECT_EQ(sent(Direction::Forward), 4 * 2 * n * h);
}

// What is scaled by rows is gathered in 16 bit and cast behind it.
TEST_F(FrameworkTraits, WhatIsScaledByRowsTravelsInSixteenBit) {
  plan.precision.compute = ComputeType::Fp8;
  plan.runtime.fp8_communication = Fp8Communication::Gather;
  plan.runtime.fp8_casts = Fp8Casts::EachRow;
  EXPECT_EQ(sent(Direction::Forward), 4 * 2 * n * h);
}

// Every array that a gather made, or a reduce-scatter is to take, is read and written once more, in
// the type in which it travels: two of each in a forward, and none where pieces travel.
TEST_F(FrameworkTraits, PartsOfASequenceAreCopiedAroundTheirCollectives) {
  const auto copied = [&] {
    plan.runtime.sequence_copies = false;
    return more(&FrameworkTraits::moved, Direction::Forward, SegmentKind::Layer,
                [](RuntimeTraits& traits) { traits.sequence_copies = true; });
  };
  EXPECT_EQ(copied(), 4 * (2 + 2) * n * h);
  plan.precision.compute = ComputeType::Fp8;
  plan.runtime.fp8_communication = Fp8Communication::Gather;
  EXPECT_EQ(copied(), 2 * (1 + 1) * n * h + 2 * (2 + 2) * n * h);
  plan.overlap_tensor_parallel = TensorOverlap::Chunked;
  EXPECT_EQ(copied(), 0);
  // Gathers of what is scaled by rows are fused with no product: they stay whole, in 16 bit.
  plan.runtime.fp8_casts = Fp8Casts::EachRow;
  EXPECT_EQ(copied(), 2 * (2 + 2) * n * h);
  plan.runtime.fp8_casts = Fp8Casts::EachProduct;
  // Of a backward two gathers of inputs and two sums of input gradients hide behind whole products
  // and are not cut: they are copied as ever. The gathers of two output gradients travel in pieces.
  plan.runtime.sequence_copies = false;
  EXPECT_EQ(more(&FrameworkTraits::moved, Direction::Backward, SegmentKind::Layer,
                 [](RuntimeTraits& traits) { traits.sequence_copies = true; }),
            2 * (1 + 1) * n * h + 2 * (2 + 2) * n * h);
  plan.overlap_tensor_parallel = TensorOverlap::Default;
  plan.sequence_parallel = false;
  EXPECT_EQ(copied(), 0);
}

// torchao by rows: 33 B an input, 10 an output gradient and 22 a weight over the three products of
// a linear layer, where one scale for each operand costs 2 * 5 of each. The four of this layer
// have inputs of h, h / t, h and f / t and outputs of 3 h / t, h, 2 f / t and h a token.
TEST_F(FrameworkTraits, TorchaoCastsByRowsAndByColumns) {
  plan.precision.compute = ComputeType::Fp8;
  const auto casts = [&](Fp8Casts how) {
    plan.runtime.fp8_casts = how;
    const auto cast = [](const Node& node) { return node.name == "cast operands to fp8"; };
    return sum(body(Direction::Forward), cast) + sum(body(Direction::Backward), cast);
  };
  const std::int64_t inputs = n * (h + h / t + h + f / t);
  const std::int64_t outputs = n * (3 * h / t + h + 2 * f / t + h);
  const std::int64_t weights = (3 * h + h + 3 * f) * h / t;
  EXPECT_EQ(casts(Fp8Casts::EachProduct), 10 * (inputs + outputs + weights));
  EXPECT_EQ(casts(Fp8Casts::EachRow), 33 * inputs + 10 * outputs + 22 * weights);
}

// Casts that no kernel before has made (2 + 1 + 1 B): forward attention's output, n h / t; backward
// the output gradients of four products, 3 h / t, h, 2 f / t and h of each token.
TEST_F(FrameworkTraits, TransformerEngineCastsWhatNoKernelWritesInEightBit) {
  plan.precision.compute = ComputeType::Fp8;
  const auto casts = [&](Direction direction) {
    return sum(body(direction),
               [](const Node& node) { return node.name == "cast operands to fp8"; });
  };
  const std::int64_t weights = 4 * (3 * h + h + 3 * f) * h / t / plan.microbatches();
  EXPECT_EQ(casts(Direction::Forward), 4 * n * h / t + weights);
  EXPECT_EQ(casts(Direction::Backward), 4 * n * (3 * h / t + h + 2 * f / t + h));
}

TEST_F(FrameworkTraits, AGraphIsOneLaunchAndACompilerMergesNeighbours) {
  const std::int64_t eager = launches(Direction::Forward);
  plan.runtime.compiled = true;
  const std::int64_t compiled = launches(Direction::Forward);
  EXPECT_LT(compiled, eager);
  // two norms with what stands before them, rope, attention, SwiGLU; 4 products, 4 collectives
  EXPECT_EQ(compiled, 1 + 1 + 1 + 1 + 1 + 1 + 4 + 4);
  plan.runtime.cuda_graphs = {.whole = true};
  EXPECT_EQ(launches(Direction::Forward), 1);
}

// Attention's stretch, up to the residual sum behind it, is one launch; the rest stays as it was.
TEST_F(FrameworkTraits, AGraphOfAPartIsOneLaunchInPlaceOfThatPartsOwn) {
  for (const Direction direction : {Direction::Forward, Direction::Backward}) {
    plan.runtime.cuda_graphs = {};
    const std::int64_t eager = launches(direction);
    std::int64_t of_attention = 0, of_mlp = 0;
    for (const Node& node : body(direction).nodes) {
      if (node.part == GraphPart::Attention) of_attention += node.launches;
      if (node.part == GraphPart::Mlp) of_mlp += node.launches;
    }
    EXPECT_GT(of_attention, 10);
    EXPECT_GT(of_mlp, 5);
    plan.runtime.cuda_graphs = {.attention = true};
    EXPECT_EQ(launches(direction), eager - of_attention + 1);
    plan.runtime.cuda_graphs = {.mlp = true};
    EXPECT_EQ(launches(direction), eager - of_mlp + 1);
    plan.runtime.cuda_graphs = {.router = true};
    EXPECT_EQ(launches(direction), eager);
  }
}

TEST_F(FrameworkTraits, AHostThatWaitsHidesNothing) {
  const auto hidden = [&] {
    std::int64_t count = 0;
    for (const Node& node : body(Direction::Backward).nodes) count += node.overlapped ? 1 : 0;
    return count;
  };
  EXPECT_GT(hidden(), 0);
  plan.runtime.synchronous_launch = true;
  EXPECT_EQ(hidden(), 0);
}

// What an R computes and what its backward has left are the backward that does both, node by node:
// the same kernels in the same order, in the same pieces, with the same launches.
TEST_F(FrameworkTraits, RecomputationApartIsTheFusedBackwardInTwo) {
  const auto told = [](const Node& node) {
    return std::string(node.name) + ' ' + std::to_string(static_cast<int>(node.kernel)) + ' ' +
           std::to_string(node.m) + ' ' + std::to_string(node.n) + ' ' + std::to_string(node.k) +
           ' ' + std::to_string(node.bytes) + ' ' + std::to_string(node.launches) + ' ' +
           std::to_string(node.piece) + ' ' + std::to_string(node.flops);
  };
  for (const char* runtime : {"megatron", "megatron_2021", "fsdp", "torchtitan", "generic",
                              "megatron_deepspeed_2024", "aa_scaling"}) {
    for (const Recompute& recompute : {Recompute::full(), Recompute::selective(),
                                       Recompute::selective(SelectiveRecompute::Operators)}) {
      for (const bool chunked : {false, true}) {
        plan.runtime = runtime_named(runtime);
        plan.recompute = recompute;
        plan.flash_attention = false;
        plan.attention_kernel = AttentionKernel::Unfused;
        plan.overlap_tensor_parallel = chunked ? TensorOverlap::Chunked : TensorOverlap::Off;
        plan.tensor_parallel_chunks = 2;
        const auto made = [&](Direction direction, bool apart) {
          return make_body({model, plan},
                           {.segment = SegmentKind::Layer, .direction = direction, .apart = apart});
        };
        const Body again = made(Direction::Recompute, false);
        ASSERT_FALSE(again.nodes.empty()) << runtime;
        EXPECT_TRUE(again.reads_parameters || !recompute.is_full());
        for (const Direction direction :
             {Direction::Backward, Direction::InputGradient, Direction::WeightGradient}) {
          const Body fused = made(direction, false), apart = made(direction, true);
          std::vector<std::string> of_again, of_rest, first, rest;
          for (const Node& node : again.nodes) of_again.push_back(told(node));
          for (const Node& node : apart.nodes) of_rest.push_back(told(node));
          for (const Node& node : fused.nodes) {
            (node.phase == NodePhase::Recompute ? first : rest).push_back(told(node));
          }
          const bool weight = direction == Direction::WeightGradient;
          // Before a weight gradient the input gradient has computed it again.
          EXPECT_EQ(weight ? std::vector<std::string>() : of_again, first) << runtime;
          EXPECT_EQ(of_rest, rest) << runtime;
          for (const Body* body : {&again, &apart}) {
            for (const Node& node : body->nodes) {
              EXPECT_LE(node.until, static_cast<std::int32_t>(body->nodes.size()));
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace rehearse
