// SPDX-License-Identifier: Apache-2.0
// What a framework keeps of a layer under a key of the plan, as a difference of bytes that is
// counted by hand; and how ZeRO-3 gathers tensor by tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "schedules/passes/plan_order.h"
#include "sim/memory/memory.h"
#include "sim/memory/memory_script.h"
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
std::int64_t kept(const Plan& plan) {
  const Transformer model = llama();
  const MemoryProfile profile = read_memory_profile(plan.runtime.name).value();
  return kept_bytes(segment_program(profile, {model, plan}, SegmentShape::DenseLayer), 2 * n * h);
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
  for (const RecomputeMode mode : {RecomputeMode::Selective, RecomputeMode::Full}) {
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

// softmax in fp32 is kept beside its 16-bit copy; an RMS norm made of operations keeps x / rms(x),
// torchtitan's its input in fp32 too, and SiLU op by op its output.
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
  EXPECT_EQ(kept(plan) - kernel, 2 * 2 * n * h);
  plan = plan_of("torchtitan");
  const std::int64_t titan = kept(plan);
  plan.runtime.eager_kernels = {};
  EXPECT_EQ(titan - kept(plan), 2 * (4 + 2) * n * h + 2 * n * f);
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
    plan.recompute = RecomputeMode::Full;
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
