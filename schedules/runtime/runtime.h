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

#include "schedules/runtime/expert_launches.h"
#include "schedules/runtime/performer.h"

namespace rehearse {

// The attention core, slowest first: op by op in fp32; with a fused softmax between two products;
// one kernel, by its generation.
enum class AttentionKernel : std::uint8_t { Eager, Unfused, Flash1, Flash2, Flash3 };
constexpr bool is_fused(AttentionKernel kernel) {
  return kernel >= AttentionKernel::Flash1;
}

// How a weight gradient joins the sum of the micro-batches before it: by a kernel of its own, or
// inside the product (or not at all, where every gradient is reduced at once). Megatron's first
// fused kernel adds to 4-byte sums alone.
enum class GradientAccumulation : std::uint8_t { Separate, Fused, FusedFp32 };
// The loss: kernel by kernel; in the passes that a compiler makes of Megatron's own fusion; in one
// pass in place; or on every tensor-parallel rank over the whole vocabulary, whose logits are
// gathered.
enum class CrossEntropy : std::uint8_t { Eager, Native, Fused, Gathered };
// Gate and up projection: one product, or two column-parallel layers.
enum class GatedMlp : std::uint8_t { Fused, Split };
// Under sequence parallelism a gathered norm output is gathered again for the backward, or kept.
enum class SequenceGather : std::uint8_t { Repeated, Kept };
// Gradients under ZeRO: reduce-scattered, or summed whole on every replica, in fp32 or as they
// travel.
enum class GradientReduction : std::uint8_t { ReduceScatter, AllReduceFp32, AllReduce };
// The type in which gradients travel between replicas: the stored one (at most 4 bytes), that of
// 16-bit products, fp32.
enum class GradientCommunication : std::uint8_t { Stored, Bf16, Fp32 };
// How parameters come back from the ranks that updated them: shards are gathered, or every tensor,
// which one rank owns whole, is broadcast.
enum class ParameterUpdate : std::uint8_t { AllGather, Broadcast };
// What travels in 8 bit where products do: nothing; gathers of tensor parallelism; these and the
// reduce-scatters of the forward.
enum class Fp8Communication : std::uint8_t { None, Gather, GatherScatter };
// When transfers between stages run beside compute; else both wait for each other.
enum class PipelineOverlap : std::uint8_t { Never, Interleaved, Always };
// Which of a state's way from drives and back runs beside its update by the host, where that goes
// in parts: none, the next part's way here, the last part's way back, or both.
enum class SwapPipeline : std::uint8_t { None, Read, Write, Both };
constexpr bool reads_ahead(SwapPipeline pipeline) {
  return pipeline == SwapPipeline::Read || pipeline == SwapPipeline::Both;
}
constexpr bool writes_behind(SwapPipeline pipeline) {
  return pipeline == SwapPipeline::Write || pipeline == SwapPipeline::Both;
}
// What overlap.tensor_parallel true makes of a product and the tensor-parallel collective beside
// it: both in pieces of rows (MegaScale, arXiv 2402.15627, section 3.2), or Transformer Engine's
// user buffers: shards go round a ring beside the products of those that came before, and a
// reduce-scatter takes its product in parts of output features.
enum class TensorPieces : std::uint8_t { Rows, UserBuffers };
// What runs side by side in the pairs of DualPipe and DualPipeV: a forward and a backward whole;
// the exchanges of experts of each beside the other's compute; nothing.
enum class PairOverlap : std::uint8_t { Full, Experts, None };
// How ranks that share a sequence come to the keys and values of all of it: round a ring, gathered,
// or as whole sequences of some heads (DeepSpeed-Ulysses, arXiv 2309.14509).
enum class ContextParallelAlgorithm : std::uint8_t { Ring, AllGather, AllToAll, AllToAllAndRing };
// What selective recomputation makes again: the attention core, or every operation whose output is
// cheap (torchtitan's operator-level checkpointing).
enum class SelectiveRecompute : std::uint8_t { AttentionCore, Operators };
// Which operands of an 8-bit product a kernel casts: all of them before every product; only what
// has not been cast before; only what no kernel before it writes in 8 bit (Transformer Engine); or
// all of them before every product, with a scale for each row or column that the product sums over.
enum class Fp8Casts : std::uint8_t { Reused, EachProduct, Unwritten, EachRow };

// Memory-bound operations that run op by op, as eager PyTorch does; `router` and `permute` are
// those of layers with experts.
struct EagerKernels {
  bool norm = false, rope = false, activation = false, router = false, permute = false;
  bool operator==(const EagerKernels&) const = default;
};

// What is captured as a CUDA graph and launched at once: every segment whole, or parts of layers,
// whose stretches of kernels are one launch each.
struct CudaGraphs {
  bool whole = false;
  bool attention = false, router = false, preprocess = false, mlp = false;
  bool any() const { return whole || attention || router || preprocess || mlp; }
  bool operator==(const CudaGraphs&) const = default;
};

// The defaults are those of megatron.json (held equal by a test).
struct RuntimeTraits {
  std::string name = "megatron";      // as a plan says it: a shipped profile, or the path of a file
  std::string title = "Megatron-LM";  // for people

  // Our executor performs the schedule, else a framework does. What follows is asked of
  // performer().
  bool own_executor = false;
  const Performer& performer() const { return own_executor ? kOurExecutor : kFrameworks; }
  // It stands for whatever framework has no profile: no measured step is its own.
  bool any_framework = false;

  // Kernels of a framework.
  GradientAccumulation gradient_accumulation = GradientAccumulation::Fused;
  bool gradient_reduction_cast = false;  // gradients are cast and copied to be reduced
  bool gather_copies = false;            // gathered parameters are copied out of a common buffer
  bool sequence_copies = false;  // so are the sequence's parts around tensor-parallel collectives
  // Tensors of more elements are gathered and reduced as lists of one part per rank; 0: none are.
  std::int32_t listed_elements = 0;
  // A gathered parameter that is read again before so many elements more stays gathered meanwhile.
  std::int32_t kept_elements = 0;
  CrossEntropy cross_entropy = CrossEntropy::Fused;
  std::int32_t cross_entropy_forward_bytes = 38;               // [B] moved per logit unless fused
  std::int32_t cross_entropy_backward_bytes = 14;              // [B] moved per logit unless fused
  AttentionKernel attention_kernel = AttentionKernel::Flash3;  // unless the plan says
  bool torch_attention = false;  // by torch's own function, which AMD's GPUs have a kernel for
  EagerKernels eager_kernels;
  GatedMlp gated_mlp = GatedMlp::Fused;
  bool grouped_experts = true;             // products of a rank's experts are one launch
  ExpertLaunches expert_launches;          // of a layer with experts
  std::int32_t optimizer_bytes = 30;       // [B] moved per parameter by the update
  std::int32_t optimizer_bytes_fp32 = 30;  // the same where the products run in fp32
  // With offload_to nvme, of updates by the host.
  SwapPipeline swap_pipeline = SwapPipeline::None;
  std::int32_t swap_elements = 1'000'000'000;  // of a part
  std::int32_t fsdp_hook_launches = 0;         // of small kernels before every layer's forward
  SelectiveRecompute selective_recompute = SelectiveRecompute::AttentionCore;
  bool recomputes_parts = true;        // a plan may list parts of layers to compute again
  bool checkpoint_early_stop = false;  // recomputation ends once the last saved tensor is there
  Fp8Casts fp8_casts = Fp8Casts::Unwritten;
  bool deterministic = false;       // neither a fused loss nor attention that adds in any order
  bool dropout_by_default = false;  // of every model, whatever its attention kernel

  // The host.
  bool synchronous_launch = false;  // it waits for every kernel (CUDA_LAUNCH_BLOCKING)
  bool compiled = false;            // neighbouring memory-bound kernels are one
  CudaGraphs cuda_graphs;           // what is launched at once
  bool drains_at_transfer = false;  // it waits for what a stage received: no op begins with a lead

  // What communication runs beside compute unless the plan says.
  PipelineOverlap overlap_pipeline = PipelineOverlap::Interleaved;
  bool overlap_tensor_parallel = true;  // false: all of it is exposed
  TensorPieces tensor_pieces = TensorPieces::UserBuffers;
  std::int32_t piece_sms = 16;  // SMs that a collective in pieces takes from the products beside it
  std::int32_t blocking_transfer_us = 720;  // a transfer that compute waits for takes that longer
  bool serial_transfers = false;   // send and receive of such an exchange one after the other
  bool receives_one_ahead = true;  // beside compute, a receive stands among the transfers behind
                                   // the op before its own, of the same direction

  // How work and data are spread over ranks.
  SequenceGather sequence_gather = SequenceGather::Repeated;
  GradientReduction gradient_reduction = GradientReduction::ReduceScatter;
  GradientCommunication gradient_communication = GradientCommunication::Stored;
  ParameterUpdate parameter_update = ParameterUpdate::AllGather;
  bool aligned_reductions = true;  // overlapped, positions of a pipeline reduce at the same time
  Fp8Communication fp8_communication = Fp8Communication::Gather;
  ContextParallelAlgorithm context_parallel_algorithm = ContextParallelAlgorithm::Ring;
  PairOverlap overlap_pair = PairOverlap::Full;  // both unless the plan says
  bool context_parallel_balance = true;  // each rank has an early and a late part of a sequence;
                                         // else the last has the part that attends to most keys
  // From this stage of ZeRO on parameters lie in shards of units, gathered around their use
  // (`gather_units_from_zero_stage` of a file's `states`); 9: never.
  std::int32_t gather_units_from = 3;
  bool shards_master_parameters = false;  // such shards are fp32, and no other copy is kept
  bool gathers_once_in_pipeline = false;  // a pipeline gathers and reduces such units once a step
  std::int32_t pipeline_zero_stage = 3;   // the highest stage that runs beside a pipeline
  // Layers that are not attention with an MLP or experts (Transformer::mix) are priced: the
  // profile's script of a layer says where their tensors stand.
  bool layer_kinds = true;
  bool transfer_scatter_gather = true;   // tensor-parallel ranks each send a part of what all hold
  std::int32_t pad_vocabulary_to = 128;  // where the plan says nothing

  bool operator==(const RuntimeTraits&) const = default;
};

// The profile of our executor: what `run` performs.
inline constexpr std::string_view kExecutorRuntime = "rehearse";
// The profile of a plan where neither it nor the command names one, by the stage of ZeRO that its
// file says: a stage that a command sets over the file changes no runtime.
constexpr std::string_view default_runtime(std::int64_t zero_stage) {
  return zero_stage == 3 ? "fsdp" : "megatron";
}

}  // namespace rehearse
