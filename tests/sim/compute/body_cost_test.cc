// SPDX-License-Identifier: Apache-2.0
// Bodies as one time: the host that bounds small layers, hidden collectives, levels, demands.
#include "sim/compute/body_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "schedules/body/framework/framework_pieces.h"
#include "sim/compute/fused_nodes.h"
#include "tests/schedules/runtime/runtime_named.h"
#include "tests/sim/compute/compute_fixture.h"

namespace rehearse::sim {
namespace {

using fixture::a100_collective;
using fixture::a100_node;
using fixture::gpt;
using fixture::kKernels;
using fixture::megatron_plan;

ComputeModel model_of(const Transformer& model, const Plan& plan,
                      const CollectiveTimes& collectives = a100_collective) {
  return ComputeModel::create(a100_node(), {model, plan}, collectives,
                              read_kernel_scalars(a100_node(), kKernels).value())
      .value();
}

BodyCost layer_cost(const Transformer& model, const Plan& plan, Direction direction,
                    const CollectiveTimes& collectives = a100_collective) {
  return model_of(model, plan, collectives)
      .price(make_body({model, plan}, {.segment = SegmentKind::Layer, .direction = direction}));
}

Plan one_gpu(std::int32_t micro_batch, std::int64_t sequence) {
  Plan plan = megatron_plan(micro_batch);
  plan.tensor_parallel = 1;
  plan.sequence_length = sequence;
  return plan;
}

// A forward of an eager framework is 27 kernels of 30 us: 0.81 ms, however small the layer.
TEST(BodyCost, ASmallLayerTakesWhatTheHostNeedsToIssueIt) {
  const BodyCost cost = layer_cost(gpt(1, 256, 4), one_gpu(1, 512), Direction::Forward);
  EXPECT_EQ(cost.host.value, 810000);
  EXPECT_LT(cost.device.value, cost.host.value / 4);
  EXPECT_NEAR(static_cast<double>(cost.time.value), 810000, 0.002 * 810000);
}

TEST(BodyCost, ALargeLayerDoesNotFeelTheHost) {
  const BodyCost cost = layer_cost(gpt(1, 12288, 96), one_gpu(4, 2048), Direction::Forward);
  EXPECT_GT(cost.device.value, 10 * cost.host.value);
  EXPECT_NEAR(static_cast<double>(cost.time.value), static_cast<double>(cost.device.value),
              1e-4 * static_cast<double>(cost.device.value));
}

// Where host and device take the same time neither hides wholly behind the other: 2^(1/4) of it.
TEST(BodyCost, HostAndDeviceMeetInASoftMaximum) {
  const BodyCost cost = layer_cost(gpt(1, 1024, 16), one_gpu(2, 1024), Direction::Forward);
  const double a = static_cast<double>(cost.host.value), b = static_cast<double>(cost.device.value);
  EXPECT_NEAR(static_cast<double>(cost.time.value), std::pow(std::pow(a, 4) + std::pow(b, 4), 0.25),
              1);
}

Transformer of_experts(std::int64_t count) {
  Transformer model = gpt(1, 1024, 16);
  model.experts = {.count = count, .per_token = 2, .ffn_hidden = 512};
  return model;
}
BodyCost expert_layer(std::int64_t count, std::int64_t tokens, Direction direction,
                      const CudaGraphs& graphs = {}) {
  const Transformer model = of_experts(count);
  Plan plan = one_gpu(1, tokens);
  plan.runtime.cuda_graphs = graphs;
  return model_of(model, plan)
      .price(make_body({model, plan},
                       {.segment = SegmentKind::Layer, .experts = true, .direction = direction}));
}

// What the host does follows from the layer, not from the tokens; every expert is a call in each of
// two products forward and four backward, of 17.5 us, the middle of 5 and 30.
TEST(BodyCost, TheHostCallsEveryExpertAndATokenCostsItNothing) {
  for (const auto& [direction, products] :
       {std::pair{Direction::Forward, 2}, {Direction::Backward, 4}}) {
    const BodyCost few = expert_layer(8, 512, direction), many = expert_layer(64, 512, direction);
    EXPECT_EQ(few.host, expert_layer(8, 4096, direction).host);
    EXPECT_EQ(many.host.value - few.host.value, 56 * products * 17500);
    EXPECT_LT(expert_layer(64, 512, direction, {.whole = true}).host.value, 31000);
    // the time of a call is assumed, and says so
    EXPECT_GT(many.rests_on.level[static_cast<std::size_t>(CostLevel::Datasheet)],
              few.rests_on.level[static_cast<std::size_t>(CostLevel::Datasheet)]);
  }
}

// H host, D device, L from an idle device: A, then B, take max(L_A + D_B, H_A + L_B); a small body
// is host and device, a large one hides the host behind its first kernel.
TEST(BodyCost, AHostWithoutALeadGainsItOneBodyAfterAnother) {
  Plan plan = one_gpu(1, 512);
  plan.pipeline_parallel = 2;
  const Transformer small = gpt(2, 512, 8), large = gpt(2, 8192, 64);
  const auto cost = [&](const Transformer& model, bool drains) {
    plan.runtime.drains_at_transfer = drains;
    return layer_cost(model, plan, Direction::Forward);
  };
  for (const Transformer* model : {&small, &large}) {
    const BodyCost ahead = cost(*model, false), drained = cost(*model, true);
    EXPECT_GE(drained.time.value, std::max(drained.host.value, drained.device.value));
    EXPECT_LE(drained.time.value, drained.host.value + drained.device.value);
    EXPECT_EQ(ahead.from_idle.value, 0);
    const BodyCost two = sum({&drained, &drained});
    EXPECT_EQ(two.time,
              std::max(drained.from_idle + drained.device, drained.host + drained.from_idle));
  }
  const BodyCost drained = cost(large, true);
  EXPECT_LT(drained.time.value - drained.device.value, 5 * 30000);
}

// Parts of a list are issued while the device waits: what they take adds to a layer that hides all
// other launches. h 8192: four matrices, and behind fc1 twice as many elements as stay.
TEST(BodyCost, TheDeviceWaitsForLists) {
  const Transformer model = gpt(1, 8192, 64);
  Plan plan = one_gpu(1, 2048);
  plan.zero_stage = 3;
  plan.data_parallel = 64;
  plan.recompute = Recompute::full();
  plan.runtime = runtime_named("megatron_deepspeed");
  const auto cost = [&](std::int32_t listed, Direction direction) {
    plan.runtime.listed_elements = listed;
    return layer_cost(model, plan, direction);
  };
  for (const auto& [direction, lists] :
       {std::pair{Direction::Forward, 4}, {Direction::Backward, 10}}) {
    const BodyCost with = cost(100000, direction), without = cost(0, direction);
    const std::int64_t calls = lists * std::int64_t{64} * 17500;
    EXPECT_EQ(with.host.value - without.host.value, calls);
    EXPECT_GE((with.time - without.time).value, calls);
    EXPECT_NEAR(static_cast<double>((with.time - with.device).value), static_cast<double>(calls),
                1e-3 * static_cast<double>(calls));
  }
}

// The host reads how much goes to which rank: behind the dispatch it has no lead, and a small layer
// takes that much longer. Where room is fixed nobody reads anything.
TEST(BodyCost, TheHostWaitsForCounts) {
  const Transformer model = of_experts(8);
  Plan plan = one_gpu(1, 2048);
  plan.expert_parallel = plan.data_parallel = 8;
  const auto body = [&] {
    return make_body(
        {model, plan},
        {.segment = SegmentKind::Layer, .experts = true, .direction = Direction::Forward});
  };
  const Body reads = body();
  EXPECT_EQ(std::ranges::count_if(reads.nodes, &Node::drains), 1);
  Body runs = reads;
  for (Node& node : runs.nodes) node.drains = false;
  const ComputeModel compute = model_of(model, plan);
  const BodyCost with = compute.price(reads), without = compute.price(runs);
  EXPECT_EQ(with.host, without.host);
  EXPECT_EQ(with.device, without.device);
  EXPECT_GT(with.time, without.time);
  EXPECT_LE(with.time.value, with.host.value + with.device.value);
  plan.expert_capacity = 1;
  EXPECT_TRUE(std::ranges::none_of(body().nodes, &Node::drains));
}

// Where torch's function runs a kernel of its own, its rates stand for every generation's.
TEST(BodyCost, TorchsAttentionIsTheSameWhateverThePlanSays) {
  KernelScalars scalars = read_kernel_scalars(a100_node(), kKernels).value();
  const Transformer model = gpt(1, 4096, 32);
  Plan plan = one_gpu(1, 8192);
  plan.flash_attention = true;
  plan.dropouts = {};
  const auto time = [&](bool torch, AttentionKernel kernel) {
    plan.runtime.torch_attention = torch;
    plan.attention_kernel = kernel;
    return ComputeModel::create(a100_node(), {model, plan}, a100_collective, scalars)
        .value()
        .price(make_body({model, plan},
                         {.segment = SegmentKind::Layer, .direction = Direction::Backward}))
        .time;
  };
  const Nanoseconds library = time(false, AttentionKernel::Flash2);
  EXPECT_EQ(time(true, AttentionKernel::Flash2), library);  // it is one of the library's
  scalars.torch_forward = scalars.torch_backward = 0.1;
  EXPECT_EQ(time(false, AttentionKernel::Flash2), library);
  EXPECT_GT(time(true, AttentionKernel::Flash2), library);
  EXPECT_EQ(time(true, AttentionKernel::Flash2), time(true, AttentionKernel::Flash1));
}

TEST(BodyCost, OurExecutorIssuesFasterThanAFramework) {
  Plan plan = one_gpu(1, 512);
  plan.flash_attention = true;
  plan.attention_kernel = AttentionKernel::Flash2;
  plan.dropouts = {};
  const BodyCost framework = layer_cost(gpt(1, 256, 4), plan, Direction::Forward);
  plan.runtime = runtime_named("rehearse");
  const BodyCost ours = layer_cost(gpt(1, 256, 4), plan, Direction::Forward);
  EXPECT_LT(ours.host.value, framework.host.value / 4);
}

// Ten times slower links: what does not fit behind the products of its linear layer is exposed.
TEST(BodyCost, ACollectiveThatDoesNotFitBehindItsProductsIsExposed) {
  const Transformer model = gpt(1, 6144, 64);
  const Plan plan = megatron_plan(4);
  const auto slow = [](NodeKind kind, Axis axis, Bytes payload) {
    CollectiveUse use = a100_collective(kind, axis, payload);
    use.time.value *= 10;
    return use;
  };
  const BodyCost fast_cost = layer_cost(model, plan, Direction::Backward);
  const BodyCost slow_cost = layer_cost(model, plan, Direction::Backward, slow);
  EXPECT_EQ(fast_cost.communicating.value, 0);
  // Two all-reduces of 8.57 ms behind 1.96 and 2.75 ms of products (d_qkv and d_fc1, both halves).
  EXPECT_NEAR(static_cast<double>(slow_cost.communicating.value), 17.14e6 - (1.96e6 + 2.75e6),
              0.3e6);
}

// [ns] of a piece of the body's product.
double g_of(const Transformer& model, const Plan& plan, const CollectiveTimes& collectives,
            const Body& body) {
  const std::vector<NodePrice> prices = model_of(model, plan, collectives).price_nodes(body);
  const auto product = std::ranges::find(body.nodes, NodeKind::Gemm, &Node::kind);
  return static_cast<double>(
      prices[static_cast<std::size_t>(product - body.nodes.begin())].time.value);
}

// A gather or a sum of `a`, cut in K pieces beside a product's pieces of g: a + (K - 1) max(a, g) +
// g; on a ring of t, whose first shard is here, g + (t - 1) max(a, g).
TEST(BodyCost, PiecesBesideOneAnotherTakeTheLongerOfTheTwo) {
  const Transformer model = gpt(1, 6144, 64);
  Plan plan = megatron_plan(4);
  plan.sequence_parallel = true;
  plan.overlap_tensor_parallel = TensorOverlap::Chunked;
  const Node gather{.kernel = Kernel::AllGather, .bytes = 1 << 27, .name = "gather"},
      sum{.kernel = Kernel::ReduceScatter, .bytes = 1 << 27, .name = "sum"};
  Node product{.kernel = Kernel::Linear, .m = 8192, .n = 6144, .k = 6144, .name = "product"};
  product.flops = 2.0 * 8192 * 6144 * 6144;
  for (const TensorPieces form : {TensorPieces::Rows, TensorPieces::UserBuffers}) {
    plan.runtime.tensor_pieces = form;
    for (const std::vector<Node>& whole : {std::vector{gather, product}, {product, sum}}) {
      const bool ring = form == TensorPieces::UserBuffers && whole[0].kernel == Kernel::AllGather;
      const std::int32_t pieces = ring ? plan.tensor_parallel : plan.tensor_parallel_chunks;
      for (const std::int64_t us : {1, 100, 10000}) {
        const auto takes = [us](NodeKind, Axis, Bytes) {
          return CollectiveUse{.time = Nanoseconds{1000 * us}};
        };
        const Body body{.nodes = in_pieces(whole, {model, plan})};
        ASSERT_EQ(body.nodes.size(), static_cast<std::size_t>(2 * pieces - (ring ? 1 : 0)));
        const auto a = static_cast<double>(1000 * us);
        // What the pieces take more than the closed form says, beside SMs that collectives take.
        const auto over = [&](std::int32_t piece_sms) {
          plan.runtime.piece_sms = piece_sms;
          const ComputeModel priced = model_of(model, plan, takes);
          const double g = g_of(model, plan, takes, body);
          const BodyCost cost = priced.price(body);
          EXPECT_EQ(cost.flops, product.flops);
          const double time = (ring ? 0 : a) + (pieces - 1) * std::max(a, g) + g;
          return (static_cast<double>(cost.device.value) - time) / std::min(a, g) / (pieces - 1);
        };
        EXPECT_NEAR(over(0), 0, 0.02);
        const double alone = g_of(model, plan, takes, body);
        // They are missed while it lasts; a ring is carried by copy engines, and the products that
        // user buffers sum miss them throughout: their pieces themselves are longer.
        if (form == TensorPieces::UserBuffers || us == 10000) {
          EXPECT_NEAR(over(16), 0, 0.02);
        } else {
          EXPECT_GT(over(16), 0.05);
          EXPECT_LT(over(16), 0.5);
        }
        const double beside = g_of(model, plan, takes, body);
        if (form == TensorPieces::UserBuffers && !ring) {
          EXPECT_GT(beside, 1.05 * alone);
        } else {
          EXPECT_NEAR(beside, alone, 0.01 * alone);
        }
      }
    }
  }
}

// A forward hides most of its collectives, and nothing where nothing is to hide behind.
TEST(BodyCost, ALayerInPiecesWaitsLess) {
  const Transformer model = gpt(1, 6144, 64);
  Plan plan = megatron_plan(4);
  plan.sequence_parallel = true;
  plan.overlap_tensor_parallel = TensorOverlap::Off;
  const BodyCost none = layer_cost(model, plan, Direction::Forward);
  EXPECT_EQ(none.communicating.value, none.collectives.value);
  plan.overlap_tensor_parallel = TensorOverlap::Chunked;
  for (const TensorPieces form : {TensorPieces::Rows, TensorPieces::UserBuffers}) {
    plan.runtime.tensor_pieces = form;
    for (const Direction direction : {Direction::Forward, Direction::Backward}) {
      plan.overlap_tensor_parallel = TensorOverlap::Default;
      const BodyCost before = layer_cost(model, plan, direction);
      plan.overlap_tensor_parallel = TensorOverlap::Chunked;
      const BodyCost pieces = layer_cost(model, plan, direction);
      EXPECT_LT(pieces.communicating.value, 0.7 * static_cast<double>(before.communicating.value));
      EXPECT_LT(pieces.time.value, before.time.value);
      EXPECT_EQ(pieces.flops, before.flops);
      EXPECT_EQ(pieces.host, before.host);
    }
  }
}

// Our executor on a GPU: a dispatch, and what comes home, hide behind the products of the shared
// expert that run beside them, as far as these reach; hiding costs compute a share of it.
TEST(BodyCost, ADispatchHidesBehindTheSharedExpertsProducts) {
  Transformer model = gpt(2, 1024, 16);
  model.experts = {.count = 8, .per_token = 2, .ffn_hidden = 1024, .shared_ffn_hidden = 2048};
  Plan plan = one_gpu(2, 1024);
  plan.runtime = runtime_named("rehearse");
  plan.data_parallel = plan.expert_parallel = 2;
  plan.expert_slots = true;
  const auto body = [&](Direction direction) {
    return make_body({model, plan},
                     {.segment = SegmentKind::Layer, .experts = true, .direction = direction});
  };
  for (const Direction direction : {Direction::Forward, Direction::Backward}) {
    plan.overlap_expert_parallel = ExpertOverlap::None;
    const BodyCost apart = model_of(model, plan).price(body(direction));
    plan.overlap_expert_parallel = ExpertOverlap::Shared;
    const ComputeModel priced = model_of(model, plan);
    const Body beside = body(direction);
    const BodyCost cost = priced.price(beside);
    const std::vector<NodePrice> alone = priced.price_nodes(beside);
    double hidden = 0;
    for (std::size_t i = 0; i < alone.size(); ++i) {
      double room = 0;
      for (std::size_t n = i + 1; static_cast<std::int32_t>(n) < beside.nodes[i].until; ++n) {
        room += static_cast<double>(alone[n].time.value);
      }
      hidden += std::min(room, static_cast<double>(alone[i].time.value));
    }
    EXPECT_GT(hidden, 0);
    EXPECT_NEAR(static_cast<double>((apart.communicating - cost.communicating).value), hidden, 10);
    EXPECT_LT(cost.device.value, apart.device.value);
  }
}

TEST(BodyCost, LevelsAddUpToTheDeviceTime) {
  const BodyCost cost = layer_cost(gpt(1, 6144, 64), megatron_plan(4), Direction::Backward);
  double sum = 0;
  for (const double ns : cost.rests_on.level) sum += ns;
  EXPECT_NEAR(sum, static_cast<double>(cost.device.value), 1);
  EXPECT_EQ(cost.level, CostLevel::Formula);
}

// A collective that takes half of a port while it runs takes half of its share of the body's time.
TEST(BodyCost, DemandsAreAveragedOverTheBody) {
  const auto with_port = [](NodeKind kind, Axis axis, Bytes payload) {
    CollectiveUse use = a100_collective(kind, axis, payload);
    use.demands.push_back({ResourceId{3}, 0.5});
    return use;
  };
  const BodyCost cost =
      layer_cost(gpt(1, 6144, 64), megatron_plan(4), Direction::Forward, with_port);
  ASSERT_EQ(cost.demands.size(), 1U);
  EXPECT_EQ(cost.demands[0].resource, ResourceId{3});
  EXPECT_NEAR(
      cost.demands[0].share,
      0.5 * static_cast<double>(cost.collectives.value) / static_cast<double>(cost.time.value),
      1e-6);
}

TEST(BodyCost, ASumOfBodiesIsTheirTimesOneAfterAnother) {
  const BodyCost a = layer_cost(gpt(1, 6144, 64), megatron_plan(4), Direction::Forward);
  const BodyCost total = sum({&a, &a, &a});
  EXPECT_EQ(total.time.value, 3 * a.time.value);
  EXPECT_EQ(total.communicating.value, 3 * a.communicating.value);
  EXPECT_DOUBLE_EQ(total.flops, 3 * a.flops);
}

// Experts count at their top-k: 2 of 8 experts of width f are twice the FLOPs of one dense MLP of
// width f, beside the router.
TEST(BodyCost, ExpertsCountAtTheirTopK) {
  Transformer model = gpt(1, 4096, 32);
  model.experts = {.count = 8, .per_token = 2, .ffn_hidden = model.ffn_hidden};
  const Plan plan = one_gpu(1, 2048);
  const auto flops = [&](bool experts) {
    return make_body({model, plan}, {.segment = SegmentKind::Layer, .experts = experts}).flops();
  };
  const double mlp = 2.0 * 2 * 2048 * 4096 * 4 * 4096, router = 2.0 * 2048 * 4096 * 8;
  EXPECT_DOUBLE_EQ(flops(true) - flops(false), mlp + router);
}

TEST(BodyCost, EightBitCastsAreKernelsOfTheirOwn) {
  const Transformer model = gpt(1, 4096, 32);
  Plan plan = one_gpu(1, 2048);
  const auto casts = [&] {
    int count = 0;
    for (const Node& node : make_body({model, plan}, {.segment = SegmentKind::Layer}).nodes) {
      count += node.name == "cast operands to fp8";
    }
    return count;
  };
  EXPECT_EQ(casts(), 0);
  plan.precision.compute = ComputeType::Fp8;
  EXPECT_EQ(casts(), 4);
}

TEST(BodyCost, TheHeadIsDearerThanALayerWhereTheVocabularyIsLarge) {
  Transformer model = gpt(1, 4096, 32);
  Plan plan = one_gpu(1, 2048);
  plan.padded_vocabulary = 128256;
  const ComputeModel compute = model_of(model, plan);
  const auto time = [&](SegmentKind segment) {
    return compute.price(make_body({model, plan}, {.segment = segment})).device.value;
  };
  // 128256 columns against 12 x 4096 of a layer: 2.6 times its products.
  EXPECT_GT(time(SegmentKind::Head), time(SegmentKind::Layer));
}

// Adam: 30 bytes per parameter at 0.85 of 2039 GB/s; 1e9 parameters take 17.3 ms.
TEST(BodyCost, TheOptimizerMovesItsBytes) {
  const Transformer model = gpt(1, 4096, 32);
  const Plan plan = one_gpu(1, 2048);
  EXPECT_NEAR(static_cast<double>(model_of(model, plan).optimizer_step(1'000'000'000).value),
              30e9 / (0.85 * 2039) + 3e3, 1);
}

// Our executor on a GPU: the second norm of a layer does not read again the sum that it is one pass
// with (half of what it moves), GELU writes g and its backward reads u. The loss reads its logits
// and writes their gradient; rows that shared memory does not hold it reads twice.
TEST(BodyCost, OurExecutorsFusedNodesMoveLess) {
  const Transformer model = gpt(1, 1024, 16);
  Plan plan = one_gpu(2, 1024);
  plan.runtime = runtime_named("rehearse");
  const auto saved = [&](SegmentKind segment, Direction direction) {
    const Body body = make_body({model, plan}, {.segment = segment, .direction = direction});
    std::vector<std::string> names;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < body.nodes.size(); ++i) {
      const FusedNode fused = fused_node(body.nodes, i, true);
      bytes += body.nodes[i].bytes - fused.bytes;
      if (!fused.launched) names.emplace_back(body.nodes[i].name);
    }
    return std::pair(names, bytes);
  };
  constexpr std::int64_t kRow = 2 * 1024;  // bytes of a token's activation
  const auto [forward, forward_bytes] = saved(SegmentKind::Layer, Direction::Forward);
  EXPECT_EQ(forward, (std::vector<std::string>{"norm2", "gelu"}));
  EXPECT_EQ(forward_bytes, 2048 * (kRow + 4 + 4 * kRow));  // and half of mean and deviation
  const auto [backward, backward_bytes] = saved(SegmentKind::Layer, Direction::Backward);
  EXPECT_EQ(backward, (std::vector<std::string>{"gelu backward"}));
  EXPECT_EQ(backward_bytes, 2048 * 2 * 4 * kRow);
  const auto [head, head_bytes] = saved(SegmentKind::Head, Direction::Forward);
  ASSERT_EQ(head.size() % 2, 0u);
  EXPECT_EQ(head[0], "row sums, targets");
  EXPECT_EQ(head[1], "loss, d_logits");
  for (const auto& [vocabulary, passes] : {std::pair{50304, 2}, {128256, 3}}) {
    plan.padded_vocabulary = vocabulary;
    const Body body =
        make_body({model, plan}, {.segment = SegmentKind::Head, .direction = Direction::Forward});
    double moved = 0;
    for (std::size_t i = 0; i < body.nodes.size(); ++i) {
      if (body.nodes[i].kind() != NodeKind::CrossEntropy) continue;
      moved += static_cast<double>(fused_node(body.nodes, i, true).bytes);
    }
    EXPECT_NEAR(moved / (2.0 * 2048 * vocabulary), passes, 0.001);
  }
  const Body layer =
      make_body({model, plan}, {.segment = SegmentKind::Layer, .direction = Direction::Forward});
  std::map<std::string_view, double> ns;
  const std::vector<NodePrice> priced = model_of(model, plan).price_nodes(layer);
  for (std::size_t i = 0; i < priced.size(); ++i)
    ns[layer.nodes[i].name] = static_cast<double>(priced[i].time.value);
  EXPECT_LT(0, ns["norm2"]);
  EXPECT_LT(2 * ns["norm2"], ns["norm1"]);  // no launch of its own either
}

}  // namespace
}  // namespace rehearse::sim
