// SPDX-License-Identifier: Apache-2.0
// What a runtime does of its own in a training step: a framework's habits, or our executor's.
//
// A plan holds the traits by value. The values of a profile stand in scenarios/runtimes/NAME.json
// or in a file of one's own (runtime_file.h, docs/add_a_runtime.md). Nothing compares a profile's
// name: where two runtimes differ there is a field here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rehearse {

// How a weight gradient joins the sum of the micro-batches before it: by a kernel of its own, or
// inside the product (or not at all, where every gradient is reduced at once).
enum class GradientAccumulation : std::uint8_t { Separate, Fused };
// What selective recomputation makes again: the attention core, or every operation whose output is
// cheap (torchtitan's operator-level checkpointing).
enum class SelectiveRecompute : std::uint8_t { AttentionCore, Operators };
// Which operands of an 8-bit product a kernel casts: all of them before every product, or only what
// has not been cast before (Transformer Engine).
enum class Fp8Casts : std::uint8_t { Reused, EachProduct };

// The defaults are those of megatron.json (held equal by a test).
struct RuntimeTraits {
  std::string name = "megatron";      // as a plan says it: a shipped profile, or the path of a file
  std::string title = "Megatron-LM";  // for people

  // Our executor performs the schedule: with our bodies, and with every value in a planned arena.
  // Else a framework does: its kernels, issued by its host, and its caching allocator.
  bool own_executor = false;

  // Kernels of a framework.
  GradientAccumulation gradient_accumulation = GradientAccumulation::Separate;
  bool gradient_reduction_cast = false;           // gradients are cast and copied to be reduced
  std::int32_t cross_entropy_forward_bytes = 10;  // [B] moved per logit
  std::int32_t cross_entropy_backward_bytes = 6;  // [B] moved per logit
  std::int32_t optimizer_bytes = 30;              // [B] moved per parameter by the update
  std::int32_t optimizer_bytes_fp32 = 30;         // the same where the products run in fp32
  std::int32_t fsdp_hook_launches = 0;            // of small kernels before every layer's forward
  SelectiveRecompute selective_recompute = SelectiveRecompute::AttentionCore;
  bool checkpoint_early_stop = false;  // recomputation ends once the last saved tensor is there
  Fp8Casts fp8_casts = Fp8Casts::Reused;

  // How work and data are spread over ranks.
  bool context_parallel_balance = true;   // each rank has an early and a late part of a sequence;
                                          // else the last has the part that attends to most keys
  bool gathers_once_in_pipeline = false;  // ZeRO-3 under a pipeline gathers and reduces per step
  bool transfer_scatter_gather = true;    // tensor-parallel ranks each send a part of what all hold
  std::int32_t pad_vocabulary_to = 128;   // where the plan says nothing; ZeRO-3: 1

  bool operator==(const RuntimeTraits&) const = default;
};

// The profile of our executor: what `run` performs.
inline constexpr std::string_view kExecutorRuntime = "rehearse";
// The profile of a plan where neither it nor the command names one.
constexpr std::string_view default_runtime(std::int32_t zero_stage) {
  return zero_stage == 3 ? "fsdp" : "megatron";
}

}  // namespace rehearse
