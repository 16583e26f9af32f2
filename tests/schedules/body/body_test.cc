// SPDX-License-Identifier: Apache-2.0
// The bodies of docs/ir.md's example, to the byte: h 64, 4 heads, f 256, s 32, V 256, t 2 with
// sequence parallelism, selective recomputation.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/body/body_proof.h"
#include "schedules/body/own/body_rehearse.h"
#include "schedules/body/sizes.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "tests/schedules/body/apart_case.h"
#include "tests/schedules/ir/example_case.h"
#include "tests/schedules/runtime/runtime_named.h"

namespace rehearse {
namespace {

Body body(SegmentKind segment, Direction direction, ComputeType type,
          Recompute recompute = Recompute::selective()) {
  static const Transformer model = example_model();
  static Plan plan;
  plan = example_plan(1, type);
  plan.recompute = recompute;
  return make_rehearse_body({model, plan}, {.segment = segment, .direction = direction});
}

struct Expected {
  SegmentKind segment;
  Direction direction;
  std::int64_t slab_i[2], slab_w[2], workspace[2];  // bf16, fp32
  std::size_t nodes[2];
};

TEST(RehearseBody, HasTheSlabsAndWorkspacesOfTheExample) {
  const Expected rows[] = {
      {SegmentKind::Layer,
       Direction::Forward,
       {16896, 33280},
       {12288, 24576},
       {6144, 12288},
       {14, 14}},
      {SegmentKind::Layer,
       Direction::Backward,
       {16896, 33280},
       {12288, 24576},
       {16640, 33024},
       {19, 19}},
      {SegmentKind::Head, Direction::Forward, {2304, 4352}, {0, 0}, {16384, 25088}, {9, 15}},
      {SegmentKind::Head, Direction::Backward, {2304, 4352}, {0, 0}, {0, 0}, {1, 1}},
      {SegmentKind::Embedding, Direction::Forward, {0, 0}, {0, 0}, {4096, 8192}, {3, 3}},
      {SegmentKind::Embedding, Direction::Backward, {0, 0}, {0, 0}, {4352, 8448}, {4, 4}},
  };
  for (const Expected& row : rows) {
    for (int type = 0; type < 2; ++type) {
      const Body b =
          body(row.segment, row.direction, type == 0 ? ComputeType::Bf16 : ComputeType::Fp32);
      EXPECT_EQ(b.saved_for_dgrad, row.slab_i[type]);
      EXPECT_EQ(b.saved_for_wgrad, row.slab_w[type]);
      EXPECT_EQ(b.workspace, row.workspace[type]);
      EXPECT_EQ(b.nodes.size(), row.nodes[type]);
    }
  }
}

struct Gpt2 {
  Transformer model = example_model();
  Plan plan = example_plan(0);
  explicit Gpt2(ComputeType type = ComputeType::Bf16) {
    plan.precision.compute = type;
    model.hidden = 768;
    model.max_positions = 1024;
    plan.micro_batch = 32;
    plan.sequence_length = 1024;
    plan.tensor_parallel = 1;
    plan.sequence_parallel = false;
    plan.padded_vocabulary = 50304;
  }
  Layout layout() const { return {model, plan}; }
};

// The head of GPT-2 124M over 32 x 1024 tokens: on a GPU a gigabyte of logits at a time, in chunks
// of one size; on a CPU what stays in caches.
TEST(RehearseBody, CutsTheLossByTheRoomOfItsLogits) {
  Gpt2 gpu, cpu(ComputeType::Fp32);
  EXPECT_EQ(gpu.layout().shape.loss_chunk, 8192);  // 4 of them; 1 GiB holds 10,672 rows
  EXPECT_EQ(cpu.layout().shape.loss_chunk, 384);
  gpu.plan.micro_batch = 5;
  EXPECT_EQ(gpu.layout().shape.loss_chunk, 5120);
  gpu.plan.padded_vocabulary = 1 << 29;  // whose logits of one token are a gigabyte
  EXPECT_EQ(gpu.layout().shape.loss_chunk, 128);
}

// Every chunk reads and writes the whole gradient of the table, every layer that of its weights.
TEST(RehearseBody, ReadsAndWritesTheGradientsThatItAddsTo) {
  const Gpt2 gpt;
  const Layout layout = gpt.layout();
  const std::int64_t h = 768, tokens = 32 * 1024;
  std::int64_t tables = 0, begin = 0;
  for (const Node& node :
       make_rehearse_body(layout, {.segment = SegmentKind::Head, .direction = Direction::Forward})
           .nodes) {
    if (node.kernel != Kernel::LogitsWeight) continue;
    const std::int64_t rows = std::min(layout.shape.loss_chunk, tokens - begin);
    EXPECT_EQ(node.bytes, 2 * rows * (50304 + h) + 2 * 4 * 50304 * h);
    begin += rows;
    ++tables;
  }
  EXPECT_EQ(tables, 4);
  EXPECT_EQ(begin, tokens);
  for (const Node& node :
       make_rehearse_body(layout, {.segment = SegmentKind::Layer, .direction = Direction::Backward})
           .nodes) {
    if (node.kernel != Kernel::LinearWeight || node.parameter != ParameterRole::Qkv) continue;
    EXPECT_EQ(node.bytes, 2 * tokens * (layout.shape.qkv + h) + 2 * 4 * layout.shape.qkv * h);
  }
}

TEST(RehearseBody, CountsTheFlopsOfTheExample) {
  EXPECT_EQ(body(SegmentKind::Layer, Direction::Forward, ComputeType::Bf16).flops(),
            1572864 + 65536);
  EXPECT_EQ(body(SegmentKind::Layer, Direction::Backward, ComputeType::Bf16).flops(),
            3145728 + 163840 + 65536);
  EXPECT_EQ(body(SegmentKind::Head, Direction::Forward, ComputeType::Bf16).flops(), 1572864);
}

// I leaves du, dx1, dqkv and the recomputed o: 8,192 + 2,048 + 6,144 + 2,048.
TEST(RehearseBody, LeavesForTheWeightGradientWhatOnlyTheInputGradientComputed) {
  const Body i = body(SegmentKind::Layer, Direction::InputGradient, ComputeType::Bf16);
  const Body w = body(SegmentKind::Layer, Direction::WeightGradient, ComputeType::Bf16);
  const Body b = body(SegmentKind::Layer, Direction::Backward, ComputeType::Bf16);
  EXPECT_EQ(i.left_for_wgrad, 18432);
  EXPECT_EQ(w.left_for_wgrad, 18432);
  EXPECT_EQ(i.flops() + w.flops(), b.flops());
  EXPECT_FALSE(w.reads_parameters);
  EXPECT_TRUE(i.reads_parameters);
}

// Slices and a ring of c cut the core's triangle into blocks of keys: j + 1 slices of c blocks each
// for slice j, between which c - 1 blocks of K, V come round (backwards c - 1 of dK, dV too).
TEST(RehearseBody, CutsTheAttentionOfSlicesOverARing) {
  const Transformer model = example_model();
  Plan plan = example_plan(1, ComputeType::Bf16);
  plan.recompute = Recompute{};
  const auto made = [&](Direction direction, std::int32_t slice) {
    return make_rehearse_body(
        {model, plan}, {.segment = SegmentKind::Layer, .direction = direction, .slice = slice});
  };
  const auto core = [](const Body& b) {
    double flops = 0;
    for (const Node& node : b.nodes) {
      const bool is =
          node.kind() == NodeKind::Attention || node.kind() == NodeKind::AttentionBackward;
      if (is) flops += node.flops;
    }
    return flops;
  };
  const auto count = [](const Body& b, auto is) { return std::ranges::count_if(b.nodes, is); };
  const auto part = [](const Node& node) { return node.step >= 0; };
  const auto shift = [](const Node& node) { return node.kind() == NodeKind::RingExchange; };
  const double forward = core(made(Direction::Forward, -1));
  const double backward = core(made(Direction::InputGradient, -1));
  plan.sequence_slices = 4;
  plan.context_parallel = 2;
  double forwards = 0, backwards = 0;
  for (std::int32_t slice = 0; slice < 4; ++slice) {
    const Body f = made(Direction::Forward, slice), i = made(Direction::InputGradient, slice);
    const Body w = made(Direction::WeightGradient, slice);
    forwards += core(f);
    backwards += core(i);
    EXPECT_EQ(count(f, part), 2 * (slice + 1));
    EXPECT_EQ(count(f, shift), slice + 1);
    EXPECT_EQ(count(i, part), 2 * (slice + 1));
    EXPECT_EQ(count(i, shift), 2 * (slice + 1));
    EXPECT_EQ(count(w, part) + count(w, shift), 0);
    EXPECT_TRUE(std::ranges::find_if(f.nodes, part)->first);
    EXPECT_EQ(count(i, [](const Node& node) { return node.first; }), 1);
    // dK, dV in fp32: 2 (4 heads of 16) / t per token, 32 / 4 / 2 tokens
    EXPECT_EQ(i.key_value_gradient, aligned(4 * 2 * 64 / 2 * 4));
  }
  EXPECT_DOUBLE_EQ(forwards, forward / 2);  // of one of two ranks
  EXPECT_DOUBLE_EQ(backwards, backward / 2);
}

// A framework's slices: S of them have the core's FLOPs together, without a fused kernel (S + 1)/2S
// of the square's, and K, V of (S + 1)/2 slices go round the ring for each.
TEST(FrameworkBody, CutsTheCoreAmongSlices) {
  const Transformer model = example_model();
  for (const AttentionKernel kernel : {AttentionKernel::Flash2, AttentionKernel::Unfused}) {
    Plan plan = example_plan(1, ComputeType::Bf16);
    plan.runtime = runtime_named("megatron");
    plan.attention_kernel = kernel;
    plan.context_parallel = 2;
    const auto count = [&] {
      const Body b = make_body({model, plan}, {.segment = SegmentKind::Layer});
      std::pair<double, std::int64_t> out;  // FLOPs of the core, bytes round the ring
      for (const Node& node : b.nodes) {
        const bool core = node.kind() == NodeKind::Attention || node.batch > 1;
        if (core) out.first += node.flops;
        if (node.kind() == NodeKind::RingExchange) out.second += node.bytes;
      }
      return out;
    };
    const auto whole = count();
    plan.sequence_slices = 4;
    const auto slice = count();
    const bool fused = kernel != AttentionKernel::Unfused;
    EXPECT_GT(whole.first, 0);
    EXPECT_DOUBLE_EQ(4 * slice.first, whole.first * (fused ? 1 : 5.0 / 8));
    EXPECT_EQ(4 * slice.second, whole.second * 5 / 2);
  }
}

// Two ranks of 16 tokens, two heads of 16 columns: 1,024 bytes of q, k, v or o each. Gathered, k
// and v come of both ranks; sums of our dk, dv are fp32. Of one key head each of four ranks gets
// one.
TEST(Bodies, MoveWhatRanksThatShareASequenceExchange) {
  Transformer model = example_model();
  Plan plan = example_plan(1, ComputeType::Bf16);
  plan.recompute = Recompute{};
  plan.context_parallel = 2;
  const auto moved = [&](NodeKind kind, Direction direction) {
    std::int64_t bytes = 0;
    for (const Node& node :
         make_body({model, plan}, {.segment = SegmentKind::Layer, .direction = direction}).nodes) {
      if (node.axis == Axis::Context && node.kind() == kind) bytes += node.bytes;
    }
    return bytes;
  };
  const auto forward = [&](NodeKind kind) { return moved(kind, Direction::Forward); };
  const auto backward = [&](NodeKind kind) { return moved(kind, Direction::Backward); };
  for (const bool own : {true, false}) {
    plan.runtime = runtime_named(own ? "rehearse" : "megatron");
    plan.context_parallel_algorithm = ContextParallelAlgorithm::AllGather;
    EXPECT_EQ(forward(NodeKind::AllGather), 4 * 1024);
    EXPECT_EQ(backward(NodeKind::AllGather), 4 * 1024);
    EXPECT_EQ(backward(NodeKind::ReduceScatter), (own ? 2 : 1) * 4 * 1024);
    EXPECT_EQ(forward(NodeKind::RingExchange) + backward(NodeKind::RingExchange), 0);
    plan.context_parallel_algorithm = ContextParallelAlgorithm::AllToAll;
    EXPECT_EQ(forward(NodeKind::AllToAll), 4 * 1024);
    EXPECT_EQ(backward(NodeKind::AllToAll), 4 * 1024);
    EXPECT_EQ(forward(NodeKind::AllGather), 0);
  }
  model.kv_heads = 1;
  plan.tensor_parallel = 1;
  plan.context_parallel = 4;
  for (const bool own : {true, false}) {
    plan.runtime = runtime_named(own ? "rehearse" : "megatron");
    EXPECT_EQ(forward(NodeKind::AllToAll), 4 * 1024);
    EXPECT_EQ(backward(NodeKind::AllToAll), 4 * 1024);
  }
}

// Four ranks of 8 tokens, two heads: 512 bytes of q, k, v or o each. Two neighbours exchange them;
// then each has 16 tokens of one head, 1,024 bytes of keys and values, which go once round a ring
// of two, and come back with as many gradients in fp32.
TEST(Bodies, ExchangeHeadsInsideARing) {
  const Transformer model = example_model();
  Plan plan = example_plan(1, ComputeType::Bf16);
  plan.recompute = Recompute{};
  plan.context_parallel = 4;
  plan.context_parallel_algorithm = ContextParallelAlgorithm::AllToAllAndRing;
  plan.head_exchange_group = 2;
  for (const bool own : {true, false}) {
    plan.runtime = runtime_named(own ? "rehearse" : "megatron");
    for (const Direction direction : {Direction::Forward, Direction::Backward}) {
      std::int64_t heads = 0, ring = 0, whole = 0;
      for (const Node& node :
           make_body({model, plan}, {.segment = SegmentKind::Layer, .direction = direction})
               .nodes) {
        if (node.axis == Axis::ContextHeads && node.kind() == NodeKind::AllToAll)
          heads += node.bytes;
        if (node.axis == Axis::ContextRing && node.kind() == NodeKind::RingExchange)
          ring += node.bytes;
        if (node.axis == Axis::Context) whole += node.bytes;
      }
      EXPECT_EQ(heads, 4 * 512);
      EXPECT_EQ(ring, (direction == Direction::Forward ? 1 : 3) * 1024);
      EXPECT_EQ(whole, 0);
    }
  }
}

// Layers behind the first of a chunk have the body of a plan that computes nothing again.
TEST(Bodies, OfLayersThatAreNotComputedAgainKeepAll) {
  const Transformer model = example_model();
  Plan plan = example_plan(1, ComputeType::Bf16);
  plan.stage_layers = {2, 2};
  plan.recompute = Recompute::full();
  plan.recompute_layers = 1;
  Plan none = plan;
  none.recompute = {};
  for (std::int32_t layer = 0; layer < 4; ++layer) {
    const SegmentInfo segment{SegmentKind::Layer, layer};
    const Layout layout(model, plan), kept(model, none);
    const Body made = make_body(layout, body_shape(layout, segment, Direction::Forward));
    const Body other = make_body(kept, body_shape(kept, segment, Direction::Forward));
    EXPECT_EQ(keeps_layer(plan, layer), layer % 2 == 1);
    EXPECT_EQ(made.saved_for_dgrad == other.saved_for_dgrad, layer % 2 == 1);
  }
}

TEST(RehearseBody, KeepsTheAttentionOutputWithoutRecomputation) {
  const Body f = body(SegmentKind::Layer, Direction::Forward, ComputeType::Bf16, Recompute{});
  EXPECT_EQ(f.saved_for_dgrad + f.saved_for_wgrad, 16896 + 12288 + 2048 + 256);  // + o + lse
  const Body full =
      body(SegmentKind::Layer, Direction::Forward, ComputeType::Bf16, Recompute::full());
  EXPECT_EQ(full.saved_for_dgrad + full.saved_for_wgrad, 0);
}

TEST(Bodies, OfAnRAndOfTheBackwardBehindItAreOneTogether) {
  const Transformer model = example_model();
  const SegmentInfo layer{SegmentKind::Layer, 0};
  for (const Recompute recompute : {Recompute::selective(), Recompute::full()}) {
    for (const ComputeType type : {ComputeType::Bf16, ComputeType::Fp32}) {
      Plan plan = example_plan(1, type);
      plan.recompute = recompute;
      const Layout layout(model, plan);
      expect_apart_is_fused(layout, layer);
      const Body again = make_body(layout, body_shape(layout, layer, Direction::Recompute));
      EXPECT_GT(again.nodes.size(), 0u);
      EXPECT_EQ(again.reads_parameters, recompute.is_full());
      // What a forward that computes nothing again would have kept for W beyond what this one does.
      EXPECT_EQ(again.remade_for_wgrad,
                body(SegmentKind::Layer, Direction::Forward, type, Recompute{}).saved_for_wgrad -
                    body(SegmentKind::Layer, Direction::Forward, type, recompute).saved_for_wgrad);
      for (const SegmentKind end : {SegmentKind::Embedding, SegmentKind::Head}) {
        const Body none = make_body(layout, body_shape(layout, {end, -1}, Direction::Recompute));
        EXPECT_TRUE(none.nodes.empty());
        EXPECT_FALSE(none.reads_parameters);
      }
    }
  }
}

// What a grid of r x c ranks sends of a layer and of the loss, counted once for a group: of every
// product y = x w^T a row |x| / r and a column |w| / c, and of either gradient as much again (dw in
// fp32). Of logits, whose table lies the other way round, rows sum what columns look up.
TEST(Bodies, OfAGridSendTheBytesOfTheClosedForms) {
  const Transformer model = example_model();
  const std::int64_t h = model.hidden, f = model.ffn_hidden, samples = 8, vocabulary = 256;
  for (const auto& [r, c] : {std::pair{2, 2}, {4, 4}, {2, 4}, {4, 2}, {1, 4}, {4, 1}}) {
    for (const ComputeType type : {ComputeType::Bf16, ComputeType::Fp32}) {
      SCOPED_TRACE(std::to_string(r) + " x " + std::to_string(c));
      Plan plan = example_plan(0, type);
      plan.recompute = {};
      plan.sequence_parallel = false;
      plan.micro_batch = samples;
      plan.tensor_parallel = r * c;
      plan.tensor_parallel_2d = {r, c};
      const Layout layout(model, plan);
      const std::int64_t e = layout.shape.element, tokens = samples * plan.sequence_length;
      const auto sent = [&](SegmentKind segment, Direction direction, Axis axis, OpKind kind) {
        const Body body = make_rehearse_body(layout, {.segment = segment, .direction = direction});
        EXPECT_EQ(body_fault(body), "");
        std::int64_t bytes = 0;
        for (const Node& node : body.nodes) {
          const bool here = node.axis == axis && collective_kind(node.kind()) == kind;
          bytes += here ? node.bytes : 0;
        }
        return bytes;
      };
      const auto row = [&](SegmentKind segment, Direction direction, OpKind kind) {
        return sent(segment, direction, Axis::TensorRow, kind);
      };
      const auto column = [&](SegmentKind segment, Direction direction, OpKind kind) {
        return sent(segment, direction, Axis::TensorColumn, kind);
      };
      const std::int64_t x = c == 1 ? 0 : e * tokens * (h + h + h + f) / r;
      const std::int64_t w = r == 1 ? 0 : (3 * h * h + h * h + 2 * h * f) / c;
      const auto layer = SegmentKind::Layer;
      const auto forward = Direction::Forward, backward = Direction::Backward;
      EXPECT_EQ(row(layer, forward, OpKind::Broadcast), x);
      EXPECT_EQ(column(layer, forward, OpKind::Broadcast), e * w);
      EXPECT_EQ(row(layer, forward, OpKind::Reduce), 0);
      EXPECT_EQ(column(layer, backward, OpKind::Broadcast), e * w);
      EXPECT_EQ(row(layer, backward, OpKind::Reduce), x);
      EXPECT_EQ(row(layer, backward, OpKind::Broadcast), x);
      EXPECT_EQ(column(layer, backward, OpKind::Reduce), 4 * w);
      // Received over all ranks in the forward: (c - 1) |x| + (r - 1) |w|.
      const std::int64_t received = (c - 1) * r * x + (r - 1) * c * e * w;
      EXPECT_EQ(received,
                (c - 1) * e * tokens * (3 * h + f) + (r - 1) * e * (4 * h * h + 2 * h * f));
      const auto head = SegmentKind::Head;
      const std::int64_t logits = c == 1 ? 0 : e * tokens * vocabulary / r;
      const std::int64_t table = r == 1 ? 0 : vocabulary * h / c;
      EXPECT_EQ(column(head, forward, OpKind::Broadcast), 2 * e * table);
      EXPECT_EQ(row(head, forward, OpKind::Reduce), logits);
      EXPECT_EQ(row(head, forward, OpKind::Broadcast), 2 * logits);
      EXPECT_EQ(column(head, forward, OpKind::Reduce), 4 * table);
      EXPECT_EQ(column(SegmentKind::Embedding, forward, OpKind::ReduceScatter),
                r == 1 ? 0 : e * tokens * h / c);
      // All of the model is on some rank, once: 1 / (r c) of every tensor.
      for (const SegmentKind kind : {SegmentKind::Embedding, layer, head}) {
        for (const ParameterTensor& tensor : segment_parameters(layout, kind, 0)) {
          const ModelPart part =
              segment_parts(model, kind, 0)[static_cast<std::size_t>(tensor.part)];
          const std::int64_t whole = part.table() ? vocabulary * part.in : part.elements();
          EXPECT_EQ(tensor.elements * r * c, whole) << tensor.name;
        }
      }
      // And so of what a layer keeps, but for its statistics, which a row shares.
      Plan one = plan;
      one.tensor_parallel = 1;
      one.tensor_parallel_2d = {};
      const BodyShape shape{.segment = layer, .direction = forward};
      const Body mine = make_rehearse_body(layout, shape);
      const Body whole = make_rehearse_body({model, one}, shape);
      EXPECT_EQ(mine.saved_for_wgrad * r * c, whole.saved_for_wgrad);
      const std::int64_t statistics = 2 * 4 * 2 * tokens;  // of two norms: two numbers a token
      EXPECT_EQ((mine.saved_for_dgrad - statistics / r) * r * c,
                whole.saved_for_dgrad - statistics);
    }
  }
}

}  // namespace
}  // namespace rehearse
