// SPDX-License-Identifier: Apache-2.0
// The keys of a runtime's traits: one row each, with the field that it fills. A profile's file may
// say all of them; a plan those that are marked, and overrides its profile's value.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <variant>

#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"
#include "schedules/base/key_use.h"
#include "schedules/runtime/runtime.h"

namespace rehearse {

inline constexpr std::array<std::string_view, 5> kAttentionKernelNames{"eager", "unfused", "flash1",
                                                                       "flash2", "flash3"};
inline constexpr std::array<std::string_view, 3> kPairOverlapNames{"full", "experts", "none"};
inline constexpr std::array<std::string_view, 4> kContextParallelNames{"ring", "all_gather",
                                                                       "all_to_all", "a2a+p2p"};

struct TraitRow {
  using T = RuntimeTraits;
  KeySpec key;
  std::variant<bool T::*, std::int32_t T::*, AttentionKernel T::*, GradientAccumulation T::*,
               CrossEntropy T::*, GatedMlp T::*, SequenceGather T::*, GradientReduction T::*,
               GradientCommunication T::*, ParameterUpdate T::*, Fp8Communication T::*,
               PipelineOverlap T::*, PairOverlap T::*, ContextParallelAlgorithm T::*,
               TensorPieces T::*, SwapPipeline T::*, SelectiveRecompute T::*, Fp8Casts T::*,
               EagerKernels T::*, CudaGraphs T::*>
      field;
  bool of_plan = false;  // a plan may say it too, and then:
  RunUse run{};          // what `run` does with that
};

namespace trait {

using T = RuntimeTraits;

constexpr TraitRow flag(std::string_view name, bool T::*field, std::string_view about) {
  return {{.name = name, .types = kBool, .sourced = true, .about = about}, field};
}
constexpr TraitRow count(std::string_view name, std::int32_t T::*field, double min, double max,
                         std::string_view about) {
  return {
      {.name = name, .types = kInteger, .min = min, .max = max, .sourced = true, .about = about},
      field};
}
// The words stand in the order of the enumerators.
template <class Enum>
constexpr TraitRow choice(std::string_view name, Enum T::*field,
                          std::span<const std::string_view> words, std::string_view about) {
  return {{.name = name, .types = kString, .choices = words, .sourced = true, .about = about},
          field};
}
// A plan may say it too: the values that our executor performs, one that it does not, and what a
// prediction prices then.
constexpr TraitRow of_plan(TraitRow row, std::string_view runs, std::string_view example,
                           std::string_view priced) {
  row.of_plan = true;
  row.run = {KeyUse::Priced, runs, example, priced};
  return row;
}

inline constexpr std::array<std::string_view, 3> kAccumulations{"separate", "fused", "fused_fp32"};
inline constexpr std::array<std::string_view, 4> kCrossEntropies{"eager", "native", "fused",
                                                                 "gathered"};
inline constexpr std::array<std::string_view, 5> kEager{"norm", "rope", "activation", "router",
                                                        "permute"};
inline constexpr std::array<std::string_view, 4> kGraphParts{"attention", "router", "preprocess",
                                                             "mlp"};
inline constexpr std::array<std::string_view, 2> kGatedMlps{"fused", "split"};
inline constexpr std::array<std::string_view, 2> kSequenceGathers{"repeated", "kept"};
inline constexpr std::array<std::string_view, 3> kReductions{"reduce_scatter", "all_reduce_fp32",
                                                             "all_reduce"};
inline constexpr std::array<std::string_view, 2> kParameterUpdates{"all_gather", "broadcast"};
inline constexpr std::array<std::string_view, 3> kGradientCommunications{"stored", "bf16", "fp32"};
inline constexpr std::array<std::string_view, 3> kFp8Communications{"none", "gather",
                                                                    "gather_scatter"};
inline constexpr std::array<std::string_view, 3> kPipelineOverlaps{"never", "interleaved",
                                                                   "always"};
inline constexpr std::array<std::string_view, 2> kTensorPieces{"rows", "user_buffers"};
inline constexpr std::array<std::string_view, 4> kSwapPipelines{"none", "read", "write", "both"};
inline constexpr std::array<std::string_view, 2> kSelective{"attention_core", "operators"};
inline constexpr std::array<std::string_view, 4> kFp8Casts{"reused", "each_product", "unwritten",
                                                           "each_row"};

}  // namespace trait

inline constexpr std::array kTraitRows = [] {
  using namespace trait;
  return std::array{
      flag("own_executor", &T::own_executor, "our executor performs it: what `run` can run"),
      flag("any_framework", &T::any_framework,
           "stands for whatever framework has no profile: no measured step is its own"),
      of_plan(
          choice("gradient_accumulation", &T::gradient_accumulation, kAccumulations,
                 "weight gradients are added by a kernel of their own, in the product, or there "
                 "where the sums have 4 bytes"),
          R"(null | "fused")", R"("separate")", "a kernel that adds gradients is priced"),
      flag("gradient_reduction_cast", &T::gradient_reduction_cast,
           "gradients are cast and copied into the buffer of their reduction"),
      flag("gather_copies", &T::gather_copies,
           "parameters are copied out of the buffer of their gather, on the compute stream"),
      flag("sequence_copies", &T::sequence_copies,
           "under sequence parallelism an array is copied behind its gather and before its "
           "reduce-scatter, whose ranks hold parts of every sample"),
      count(
          "listed_elements", &T::listed_elements, 0, 2e9,
          "tensors of more elements are gathered and reduced as lists of one part per rank, while "
          "the device waits; 0: none are"),
      count("kept_elements", &T::kept_elements, 0, 2e9,
            "such a tensor stays gathered where it is read again before so many elements more"),
      flag("torch_attention", &T::torch_attention,
           "fused attention is torch's scaled_dot_product_attention, whose kernel on AMD's GPUs is "
           "another than that of their libraries"),
      flag("dropout_by_default", &T::dropout_by_default,
           "where neither plan nor model file says a rate a tenth is dropped, of every model and "
           "whatever its attention kernel"),
      of_plan(
          choice(
              "cross_entropy", &T::cross_entropy, kCrossEntropies,
              "the loss kernel by kernel, in the passes of Megatron's own fusion, in one pass, or "
              "over gathered logits"),
          R"(null | "fused")", R"("eager")", "the loss so made is priced"),
      count("cross_entropy_forward_bytes", &T::cross_entropy_forward_bytes, 0, 1000,
            "bytes that a loss that is not fused moves per logit, forward"),
      count("cross_entropy_backward_bytes", &T::cross_entropy_backward_bytes, 0, 1000,
            "bytes that a loss that is not fused moves per logit, backward"),
      choice("attention_kernel", &T::attention_kernel, kAttentionKernelNames,
             "the attention core where the plan does not say"),
      of_plan({{.name = "eager_kernels",
                .types = kArray,
                .choices = kEager,
                .item_types = kString,
                .about = "memory-bound operations that run op by op"},
               &T::eager_kernels},
              "null | []", R"(["norm"])", "kernels op by op are priced"),
      of_plan(choice("gated_mlp", &T::gated_mlp, kGatedMlps,
                     "gate and up projection are one product, or two column-parallel layers"),
              R"(null | "fused")", R"("split")", "two layers are priced"),
      of_plan(flag("grouped_experts", &T::grouped_experts,
                   "the products of a rank's experts are one launch, not one after another"),
              "null | true", "false", "experts one after another are priced"),
      of_plan(count("optimizer_bytes", &T::optimizer_bytes, 0, 1000,
                    "bytes that the update moves per parameter"),
              "null", "80", "an update that moves so much is priced"),
      count("optimizer_bytes_fp32", &T::optimizer_bytes_fp32, 0, 1000,
            "the same where the products run in fp32"),
      of_plan(choice("swap_pipeline", &T::swap_pipeline, kSwapPipelines,
                     "with offload_to nvme: what of the state's way from drives and back runs "
                     "beside an update by the host"),
              R"(null | "none")", R"("both")", "swapping beside the update is priced"),
      of_plan(count("swap_elements", &T::swap_elements, 1, 2e9,
                    "with offload_to nvme: parameters that the host updates at a time"),
              "null", "100000000", "an update in such parts is priced"),
      count("fsdp_hook_launches", &T::fsdp_hook_launches, 0, 10000,
            "small kernels that are launched before every layer's forward"),
      choice("selective_recompute", &T::selective_recompute, kSelective,
             "what recompute \"selective\" makes again"),
      flag("recomputes_parts", &T::recomputes_parts,
           "a plan may list the parts of a layer to compute again"),
      of_plan(flag("checkpoint_early_stop", &T::checkpoint_early_stop,
                   "recomputation of a layer ends once the last saved tensor is there"),
              "null | false", "true", "recomputation that ends early is priced"),
      of_plan(choice("fp8_casts", &T::fp8_casts, kFp8Casts,
                     "operands of 8-bit products are cast once, before each product with one scale "
                     "or one for each row, or where no kernel writes them in 8 bit"),
              "null", R"("each_row")", "casts of operands are priced"),
      of_plan(flag("deterministic", &T::deterministic,
                   "no fused loss, and no attention whose sums have no fixed order"),
              "null | true", "false", "kernels in any order are priced"),
      of_plan(flag("synchronous_launch", &T::synchronous_launch,
                   "the host waits for every kernel: its time adds to the device's"),
              "null | false", "true", "a host that waits is priced"),
      of_plan(flag("compiled", &T::compiled, "neighbouring memory-bound kernels are one launch"),
              "null | false", "true", "kernels of a compiled program are priced"),
      of_plan({{.name = "cuda_graphs",
                .types = kBool | kArray,
                .choices = kGraphParts,
                .item_types = kString,
                .sourced = true,
                .about = "a segment is one launch, or the stretches of these parts of a layer are"},
               &T::cuda_graphs},
              "null | false | []", "true", "launches of graphs are priced"),
      flag("drains_at_transfer", &T::drains_at_transfer,
           "the host waits for what a stage received: it has no lead where an op begins"),
      choice("overlap_pipeline", &T::overlap_pipeline, trait::kPipelineOverlaps,
             "transfers run beside compute never, with virtual_stages > 1, or always"),
      flag("overlap_tensor_parallel", &T::overlap_tensor_parallel,
           "the backward's tensor-parallel collectives run beside its products"),
      choice("tensor_pieces", &T::tensor_pieces, kTensorPieces,
             "with overlap.tensor_parallel true: pieces of rows, or Transformer Engine's user "
             "buffers"),
      count("piece_sms", &T::piece_sms, 0, 1024,
            "SMs that a collective in such pieces takes from the products beside it"),
      count("blocking_transfer_us", &T::blocking_transfer_us, 0, 1000000,
            "microseconds that a transfer takes longer where compute waits for it"),
      flag("serial_transfers", &T::serial_transfers,
           "where compute waits for transfers: each waits for one of the other direction too"),
      flag("receives_one_ahead", &T::receives_one_ahead,
           "a receive beside compute is posted behind the op before its own, with virtual_stages > "
           "1"),
      of_plan(choice("sequence_gather", &T::sequence_gather, kSequenceGathers,
                     "gathered norm outputs are gathered again for the backward, or kept"),
              R"(null | "repeated")", R"("kept")", "kept outputs are priced"),
      of_plan(choice("gradient_reduction", &T::gradient_reduction, kReductions,
                     "gradients are reduce-scattered, or all-reduced whole, in fp32 or as they "
                     "travel"),
              R"(null | "reduce_scatter")", R"("all_reduce_fp32")", "a whole sum is priced"),
      of_plan(choice("gradient_communication", &T::gradient_communication, kGradientCommunications,
                     "the type in which gradients travel: the stored one (at most 4 bytes), bf16 "
                     "or fp32"),
              R"(null | "stored")", R"("bf16")", "gradients of that type are priced"),
      of_plan(choice("parameter_update", &T::parameter_update, kParameterUpdates,
                     "updated parameters come back as gathered shards, or whole tensors are "
                     "broadcast by their owners"),
              R"(null | "all_gather")", R"("broadcast")", "broadcasts are priced"),
      flag("aligned_reductions", &T::aligned_reductions,
           "all positions of a pipeline start an overlapped reduction together"),
      of_plan(choice("fp8_communication", &T::fp8_communication, kFp8Communications,
                     "tensor-parallel collectives in 8 bit where the products are"),
              R"(null | "none")", R"("gather")", "collectives in 8 bit are priced"),
      of_plan(flag("context_parallel_balance", &T::context_parallel_balance,
                   "each rank has an early and a late part of a sequence"),
              "null | true", "false", "contiguous parts of a sequence are priced"),
      choice("context_parallel_algorithm", &T::context_parallel_algorithm, kContextParallelNames,
             "how ranks that share a sequence come to its keys where the plan does not say"),
      choice("overlap_pair", &T::overlap_pair, kPairOverlapNames,
             "what runs side by side in pairs of DualPipe where the plan does not say"),
      flag("shards_master_parameters", &T::shards_master_parameters,
           "shards of parameters are fp32 and their own master copy: 4 + 4 + 8 bytes"),
      flag("gathers_once_in_pipeline", &T::gathers_once_in_pipeline,
           "sharded parameters under a pipeline are gathered, and their gradients reduced, once "
           "per step"),
      count("pipeline_zero_stage", &T::pipeline_zero_stage, 0, 3,
            "the highest zero_stage that runs with pipeline_parallel > 1"),
      flag("layer_kinds", &T::layer_kinds,
           "layers of other kinds than attention, MLP and experts, and layers that lack one of "
           "them"),
      of_plan(
          flag("transfer_scatter_gather", &T::transfer_scatter_gather,
               "tensor-parallel ranks each send a part of the activations that all of them hold"),
          "null | false", "true", "parts of transfers are priced"),
      count("pad_vocabulary_to", &T::pad_vocabulary_to, 1, 1 << 20,
            "the vocabulary is padded to a multiple of it times t"),
  };
}();

// Fills the row's field. REQUIRES: kind and range of `value` are checked (check_keys).
void take_trait(const JsonValue& value, const TraitRow& row, RuntimeTraits& traits);
// The field as JSON.
std::string trait_json(const TraitRow& row, const RuntimeTraits& traits);

}  // namespace rehearse
