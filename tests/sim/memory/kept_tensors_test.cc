// SPDX-License-Identifier: Apache-2.0
// What a framework keeps of a layer under a key of the plan, as a difference of bytes that is
// counted by hand; and how ZeRO-3 gathers tensor by tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "schedules/passes/planned/plan_order.h"
#include "sim/memory/memory.h"
#include "sim/memory/memory_script.h"
#include "sim/memory/memory_states.h"
#include "tests/schedules/runtime/runtime_named.h"

namespace rehearse::sim {
namespace {

// n tokens, h wide, f in the gated MLP, q = h in attention, one tensor-parallel rank.
constexpr std::int64_t n = 2048, h = 4096, f = 11008, heads = 32;

Transformer llama() {
  Transformer model;
  model.layers = 4;
  model.hidden = h;
  model.heads = model.kv_heads = heads;
  model.head_dim = h / heads;
  model.ffn_hidden = f;
  model.mlp = MlpKind::Gated;
  model.norm = NormKind::RmsNorm;
  model.positions = PositionKind::Rope;
  model.vocabulary = 32000;
  model.max_positions = n;
  return model;
}
Plan plan_of(const std::string& runtime) {
  Plan plan;
  plan.runtime = runtime_named(runtime);
  plan.stage_layers = {4};
  plan.sequence_length = n;
  plan.padded_vocabulary = 32000;
  return plan;
}
// `model` with every layer's MLP made two experts of width f, of which a token takes one.
Transformer with_experts(Transformer model) {
  model.experts.count = 2;
  model.experts.per_token = 1;
  model.experts.ffn_hidden = f;
  return model;
}
std::int64_t kept_of_experts(const Transformer& model) {
  const Plan plan = plan_of("megatron");
  const MemoryProfile profile = read_memory_profile(plan.runtime.name).value();
  return kept_bytes(segment_program(profile, {model, plan}, SegmentShape::ExpertLayer), 2 * n * h);
}
std::int64_t kept(const Plan& plan, const Transformer& model = llama(), bool rotates = true) {
  const MemoryProfile profile = read_memory_profile(plan.runtime.name).value();
  return kept_bytes(segment_program(profile, {model, plan}, SegmentShape::DenseLayer, rotates),
                    2 * n * h);
}
Plan unfused(Plan plan, AttentionKernel kernel = AttentionKernel::Unfused) {
  plan.flash_attention = false;
  plan.attention_kernel = kernel;
  return plan;
}

// One kernel makes SwiGLU times the router's weight: of n rows the 2f columns before it and the f
// behind it are kept. Nobody has one for GELU: its output is kept, too, before it is weighed,
// beside the f columns before it. 16 bit.
TEST(KeptTensors, an_activation_that_no_kernel_weighs_is_kept_before_and_behind_the_weight) {
  Transformer gated = with_experts(llama()), plain = gated;
  plain.mlp = MlpKind::Plain;
  EXPECT_EQ(kept_of_experts(plain), kept_of_experts(gated));  // 2f + f = f + f + f
}

// Transformer Engine's grouped products have four streams with a workspace of 4 MiB each, 32 MiB
// from Hopper on; products one after another, and models without experts, have none of them.
TEST(KeptTensors, grouped_products_have_workspaces) {
  const MemoryProfile profile = read_memory_profile("megatron").value();
  const auto held = [&](const Transformer& model, bool grouped, std::int32_t capability) {
    Plan plan = plan_of("megatron");
    plan.runtime.grouped_experts = grouped;
    const Flags flags = script_flags(profile, {model, plan}, /*experts=*/false);
    std::int64_t sum = 0;
    for (const Workspace& workspace : profile.workspaces) {
      if (workspace.condition.holds(flags)) sum += workspace.bytes.of(capability);
    }
    return sum;
  };
  const Transformer dense = llama(), experts = with_experts(dense);
  for (const auto& [capability, stream] : {std::pair{80, 4 << 20}, {90, 32 << 20}}) {
    EXPECT_EQ(held(experts, true, capability) - held(dense, true, capability), 4 * stream);
    EXPECT_EQ(held(experts, false, capability), held(dense, true, capability));
  }
}

// Transformer Engine keeps both norms' outputs and the activation in 8 bit instead of 16, and
// beside attention's output the 8-bit cast that the projection read. torchao keeps what was cast.
TEST(KeptTensors, in_8_bit_products_keep_8_bit_operands_where_a_kernel_writes_them) {
  Plan plan = plan_of("megatron");
  const std::int64_t bf16 = kept(plan);
  plan.precision.compute = ComputeType::Fp8;
  EXPECT_EQ(bf16 - kept(plan), 2 * n * h + n * f - n * h);
  plan = plan_of("fsdp");
  const std::int64_t torch = kept(plan);
  plan.precision.compute = ComputeType::Fp8;
  EXPECT_EQ(kept(plan), torch);
}

// The backward's kernels make norm outputs and the activation again: 2 bytes each are not kept.
// Full recomputation keeps a layer's input alone, compiled or not.
TEST(KeptTensors, a_compiled_program_does_not_keep_what_is_cheap_to_make_again) {
  Plan plan = plan_of("fsdp");
  const std::int64_t eager = kept(plan);
  plan.runtime.compiled = true;
  EXPECT_EQ(eager - kept(plan), 2 * (2 * n * h + n * f));
  for (const Recompute mode : {Recompute::selective(), Recompute::full()}) {
    Plan again = plan_of("fsdp");
    again.recompute = mode;
    const std::int64_t before = kept(again);
    again.runtime.compiled = true;
    EXPECT_EQ(kept(again), before);
  }
}

// What the backward makes again it also frees: every slot is empty behind it.
TEST(KeptTensors, what_a_backward_makes_again_it_frees) {
  Plan plan = plan_of("fsdp");
  plan.runtime.compiled = true;
  const MemoryProfile profile = read_memory_profile("fsdp").value();
  const SegmentProgram program =
      segment_program(profile, {llama(), plan}, SegmentShape::DenseLayer);
  std::vector<std::int64_t> held(static_cast<std::size_t>(program.slots), 0);
  for (const ScriptStep& step : program.forward) {
    held[static_cast<std::size_t>(step.slot)] = step.bytes;
  }
  std::int64_t remade = 0;
  for (const ScriptStep& step : program.backward) {
    std::int64_t& slot = held[static_cast<std::size_t>(step.slot)];
    if (step.bytes > 0) {
      EXPECT_EQ(slot, 0);
      remade += step.bytes == 2 * n * f ? 1 : 0;
    }
    slot = step.bytes;
  }
  EXPECT_GT(remade, 0);
  for (std::size_t s = kInputGradientSlot + 1; s < held.size(); ++s) EXPECT_EQ(held[s], 0) << s;
}

// softmax in fp32 is kept beside its 16-bit copy; an RMS norm made of operations keeps x in fp32,
// which two of them read, and the cast of x / rms(x), and SiLU op by op its output.
TEST(KeptTensors, eager_operations_keep_what_autograd_saves) {
  Plan plan = plan_of("megatron");
  plan.flash_attention = false;
  plan.attention_kernel = AttentionKernel::Unfused;
  const std::int64_t fused = kept(plan);
  plan.attention_kernel = AttentionKernel::Eager;
  EXPECT_EQ(kept(plan) - fused, 4 * n * n * heads);
  plan = plan_of("megatron");
  const std::int64_t kernel = kept(plan);
  plan.runtime.eager_kernels.norm = true;
  EXPECT_EQ(kept(plan) - kernel, 2 * (4 + 2) * n * h);
  plan = plan_of("torchtitan");
  const std::int64_t titan = kept(plan);
  plan.runtime.eager_kernels = {};
  EXPECT_EQ(titan - kept(plan), 2 * (4 + 2) * n * h + 2 * n * f);
}

// What products and kernels read, 2 B each, per token: x, q, k, v, attention's result, x1 (6 h),
// and 2 f before, f behind the activation; a norm before a block gives its output (2 h for both),
// one behind it reads what the block gives (2 h). Statistics of Megatron's: 16 B and 4 per head.
TEST(KeptTensors, a_norm_keeps_what_stands_on_its_own_side) {
  const std::int64_t plain = n * (2 * 6 * h + 2 * 3 * f), sides = 2 * 2 * n * h;
  const std::int64_t statistics = n * (16 + 4 * heads);
  Transformer model = llama();
  for (const auto& [placement, norms] : {std::pair{NormPlacement::Before, 1},
                                         {NormPlacement::After, 1},
                                         {NormPlacement::Around, 2}}) {
    model.norm_placement = placement;
    EXPECT_EQ(kept(plan_of("megatron"), model), plain + norms * sides + statistics);
    EXPECT_EQ(kept(plan_of("fsdp"), model), plain + norms * sides + 4 * n * heads);
  }
}

// Op by op a norm keeps its input in fp32 and x / rms(x), on whichever side of a block; before a
// block its output too, which the product reads, behind one nobody reads it.
TEST(KeptTensors, an_eager_norm_behind_a_block_keeps_its_own) {
  Transformer model = llama();
  model.norm_placement = NormPlacement::After;
  Plan plan = plan_of("torchtitan");
  const std::int64_t eager = kept(plan, model);
  plan.runtime.eager_kernels = {};
  EXPECT_EQ(eager - kept(plan, model), 2 * 4 * n * h + 2 * n * f);  // and SiLU's output
}

// Both blocks read x, so nobody reads x1 again: 2 h per token.
TEST(KeptTensors, parallel_blocks_keep_no_sum_between_them) {
  Transformer model = llama();
  model.parallel_residual = true;
  for (const char* runtime : {"megatron", "fsdp"}) {
    EXPECT_EQ(kept(plan_of(runtime)) - kept(plan_of(runtime), model), 2 * n * h) << runtime;
  }
}

// A mask of a byte per element where the rate of that place is above zero: of both blocks' results
// (h each), of the embedding (h), of the S = n s a scores, whose dropped 16-bit copy the product
// with the values reads.
TEST(KeptTensors, each_rate_of_dropout_keeps_its_own_masks) {
  const std::int64_t scores = n * n * heads;
  for (const char* runtime : {"megatron_2023", "fsdp"}) {
    const Plan none = unfused(plan_of(runtime));
    const auto more = [&](const DropoutRates& rates) {
      Plan plan = none;
      plan.dropouts = rates;
      return kept(plan) - kept(none);
    };
    EXPECT_EQ(more({.residual = 0.1}), 2 * n * h) << runtime;
    EXPECT_EQ(more({.attention = 0.1}), (1 + 2) * scores) << runtime;
    EXPECT_EQ(more({.embedding = 0.1}), 0) << runtime;
    const MemoryProfile profile = read_memory_profile(runtime).value();
    const Transformer model = llama();
    const auto embedding = [&](double rate) {
      Plan plan = none;
      plan.dropouts.embedding = rate;
      return kept_bytes(segment_program(profile, {model, plan}, SegmentShape::Embedding), 0);
    };
    EXPECT_EQ(embedding(0.1) - embedding(0), n * h) << runtime;
  }
}

// Of an open rate memory takes the profile's default: Megatron's 0.1 masks the two blocks' results,
// torch's 0 nothing. A rate of 0 is said, and masks nothing.
TEST(KeptTensors, a_dropout_of_zero_keeps_no_masks_and_an_open_one_the_frameworks) {
  for (const auto& [runtime, masks] : {std::pair{"megatron", 2}, std::pair{"fsdp", 0}}) {
    Plan said = plan_of(runtime), open = said;
    said.dropouts = {0, 0, 0};
    open.dropouts = {-1, -1, -1};
    EXPECT_EQ(kept(open) - kept(said), masks * n * h) << runtime;
    open.dropouts.residual = 0;
    EXPECT_EQ(kept(open), kept(said)) << runtime;
  }
}

// Of n s a scores: tanh keeps its 16-bit result, a softmax of operations its fp32 one.
TEST(KeptTensors, caps_and_eager_softmax_keep_scores_under_every_profile) {
  const std::int64_t scores = n * n * heads;
  Transformer capped = llama();
  capped.attention_softcap = 50;
  for (const char* runtime : {"megatron", "fsdp"}) {
    const Plan plan = unfused(plan_of(runtime));
    EXPECT_EQ(kept(plan, capped) - kept(plan), 2 * scores) << runtime;
    EXPECT_EQ(kept(plan_of(runtime), capped), kept(plan_of(runtime))) << runtime;  // inside flash
    EXPECT_EQ(kept(unfused(plan, AttentionKernel::Eager)) - kept(plan), 4 * scores) << runtime;
  }
}

// llama 4 norms queries and keys where they rotate: 2 (q + k) more are kept there. Eager rotation
// keeps q and k behind it under Megatron's profile, beside the product's output, of which v is a
// part.
TEST(KeptTensors, layers_that_do_not_rotate_keep_neither_rotated_nor_normed_queries) {
  Transformer model = llama();
  model.query_key_unit_norm = true;
  for (const char* runtime : {"megatron", "fsdp"}) {
    const Plan plan = plan_of(runtime);
    EXPECT_EQ(kept(plan, model) - kept(plan, model, false), 2 * 2 * n * h) << runtime;
    EXPECT_EQ(kept(plan, model, false), kept(plan)) << runtime;
  }
  Plan eager = plan_of("megatron");
  eager.runtime.eager_kernels.rope = true;
  EXPECT_EQ(kept(eager) - kept(eager, llama(), false), 2 * 2 * n * h);
}

// 8 experts on 2 ranks, 2 per token: a token's experts lie on both but for 6 of 28 pairs each, so
// it visits D = 2 (1 - 6/28) = 11/7 ranks. Of 2 n rows n D = 2 n (11/14) travel once per rank; with
// all_gather the 2 n tokens of both ranks do, and the sums of all of them are fp32.
TEST(KeptTensors, rows_that_travel_follow_the_dispatcher) {
  Transformer model = with_experts(llama());
  model.experts.count = 8;
  model.experts.per_token = 2;
  Plan plan = plan_of("megatron");
  plan.expert_parallel = plan.data_parallel = 2;
  const MemoryProfile profile = read_memory_profile("megatron").value();
  const auto of = [&](ExpertDispatch dispatch, SizeLetter letter) {
    plan.expert_dispatch = dispatch;
    return size_letters({model, plan}, true).value[static_cast<std::size_t>(letter)];
  };
  using D = ExpertDispatch;
  EXPECT_EQ(of(D::AllToAll, SizeLetter::TravelledRows), 2 * n);
  EXPECT_EQ(of(D::Deduplicated, SizeLetter::TravelledRows), 2 * n * 11 / 14);
  EXPECT_EQ(of(D::AllGather, SizeLetter::GroupTokens), 2 * n);
  const auto made = [&](D dispatch, std::int64_t bytes) {
    plan.expert_dispatch = dispatch;
    const SegmentProgram program =
        segment_program(profile, {model, plan}, SegmentShape::ExpertLayer);
    const auto same = [&](const ScriptStep& step) { return step.bytes == bytes; };
    return std::ranges::count_if(program.forward, same) +
           std::ranges::count_if(program.backward, same);
  };
  const std::int64_t once = 2 * (2 * n * 11 / 14) * h, sums = 4 * 2 * n * h;
  EXPECT_EQ(made(D::Deduplicated, once), 4);  // there and back, in both directions
  EXPECT_EQ(made(D::AllToAll, once), 0);
  EXPECT_EQ(made(D::AllGather, sums), 3);  // forward back, and both of the backward
  EXPECT_EQ(made(D::AllToAll, sums), 0);
}

// Data parallelism of torch: every gradient is there when the optimizer steps, and beside the
// gradients lie buckets as large as all of them, which replicas sum. One rank has no buckets.
TEST(KeptTensors, gradients_of_torch_stay_until_the_step) {
  const Transformer model = llama();
  Cluster cluster;
  cluster.gpu.compute_capability = 80;
  cluster.gpu.memory_capacity_gb = 800;
  const std::int64_t parameters = total_parameters(model);
  for (const std::int32_t zero : {0, 1}) {
    for (const std::int32_t replicas : {1, 2}) {
      Plan plan = plan_of("fsdp");
      plan.data_parallel = replicas;
      plan.global_batch = 2 * replicas;  // the second micro-batch adds to the first's
      plan.zero_stage = zero;
      plan.precision = {.name = "bf16", .parameters = 4, .gradients = 4, .optimizer = 8};
      plan.recompute = Recompute::full();
      const Schedule order = order_of(model, plan).value();
      const MemoryProfile profile = read_memory_profile("fsdp").value();
      const MemoryReport report = predict_memory(profile, {model, plan}, cluster, order);
      const auto& parts = report.ranks[0].parts;
      const auto near = [&](std::int64_t bytes, std::int64_t copies) {
        EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(4 * copies * parameters),
                    32e6 * static_cast<double>(copies));
      };
      EXPECT_GE(parts.gradients, 4 * (parameters - 32000 * h)) << zero << " of " << replicas;
      near(parts.buffers, replicas > 1 ? 1 : 0);
    }
  }
}

// Two experts on two ranks of data parallelism: dense tensors have two replicas, an expert one, and
// only what replicas sum has buckets. With all experts on each rank everything is summed.
TEST(KeptTensors, tensors_without_replicas_have_no_buckets) {
  constexpr std::int64_t kDense = 500, kExperts = 300;
  Plan plan = plan_of("fsdp");
  EXPECT_EQ(reduced_elements(plan, kDense + kExperts, kExperts), 0);
  plan.data_parallel = 2;
  EXPECT_EQ(reduced_elements(plan, kDense + kExperts, kExperts), kDense + kExperts);
  plan.expert_parallel = 2;
  EXPECT_EQ(reduced_elements(plan, kDense + kExperts, kExperts), kDense);
  plan.data_parallel = 4;  // an expert's two replicas
  EXPECT_EQ(reduced_elements(plan, kDense + kExperts, kExperts), kDense + kExperts);
}

// DeepSpeed: at a time the two largest of a layer's tensors (here the fused gate and up projection,
// 2 f h, and one of h h or f h) in 16 bit, and the bucket of one gradient, but never a whole layer.
TEST(KeptTensors, deepspeed_gathers_tensor_by_tensor) {
  const Transformer model = llama();
  Cluster cluster;
  cluster.gpu.compute_capability = 80;
  cluster.gpu.memory_capacity_gb = 80;
  const auto buffers = [&](const std::string& runtime) {
    Plan plan = plan_of(runtime);
    plan.data_parallel = 64;
    plan.global_batch = 64;
    plan.zero_stage = 3;
    plan.recompute = Recompute::full();
    plan.precision = {.name = "fp16", .parameters = 4, .gradients = 4, .optimizer = 8};
    const Schedule order = order_of(model, plan).value();
    const MemoryProfile profile = read_memory_profile(runtime).value();
    const MemoryReport report = predict_memory(profile, {model, plan}, cluster, order);
    return report.ranks[0].parts.buffers;
  };
  const std::int64_t layer = 4 * h * h + 3 * f * h, largest = std::max(2 * f * h, 32000 * h);
  EXPECT_LE(buffers("megatron_deepspeed"), 2 * (3 * largest) + (64 << 20));
  EXPECT_LT(2 * buffers("megatron_deepspeed"), buffers("megatron_2021"));
  EXPECT_GT(buffers("megatron_2021"), 2 * layer);
}

// 5 % to either side, ends included.
TEST(NearCapacity, is_said_on_both_sides) {
  EXPECT_FALSE(near_capacity(949, 1000));
  EXPECT_TRUE(near_capacity(950, 1000));
  EXPECT_TRUE(near_capacity(1050, 1000));
  EXPECT_FALSE(near_capacity(1051, 1000));
}

}  // namespace
}  // namespace rehearse::sim
