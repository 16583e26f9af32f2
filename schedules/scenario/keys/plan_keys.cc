// SPDX-License-Identifier: Apache-2.0
// The keys of `plan`, and of the objects inside it.
#include <algorithm>
#include <array>

#include "schedules/order/registry.h"
#include "schedules/runtime/trait_rows.h"
#include "schedules/scenario/keys/key_specs.h"
#include "schedules/scenario/keys/scenario_keys.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/recompute_parts.h"

namespace rehearse {
namespace keys {
namespace {

// What docs/scenario.md names and no code has yet.
constexpr std::array<std::string_view, 1> kOverlapLater{"tensor_parallel_chunks"};
constexpr std::array<std::string_view, 2> kExpertOverlaps{"shared", "pair"};
constexpr std::array<std::string_view, 20> kPlanLater{
    "recompute_layers",
    "context_parallel_algorithm",
    "secondary_shard_group",
    "transfers",
    "offload_to",
    "tensor_parallel_2d",
    "quantized_gather",
    "chimera_scaling",
    "padding",
    // Megatron-LM's and torch's words for keys of a plan
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "num_layers_per_virtual_pipeline_stage",
    "virtual_pipeline_model_parallel_size",
    "micro_batch_size",
    "global_batch_size",
    "seq_length",
    "recompute_granularity",
};
constexpr std::array<std::string_view, 1> kOffloadLater{"parameters"};
constexpr std::array<std::string_view, 1> kRuntimeLater{"peft"};

constexpr std::array kOverlapKeys{
    flag("gradient_reduce", "gradient reduction runs with the last backward"),
    flag("parameter_gather",
         "parameters are gathered with the next forward (ZeRO-3: layer before)"),
    flag("tensor_parallel", "false: nothing hidden; true: chunked; left out: as the runtime does"),
    KeySpec{.name = "expert_parallel",
            .types = kBool | kString,
            .choices = kExpertOverlaps,
            .about = "what hides dispatch and combine: false, \"shared\" (the shared expert), or "
                     "\"pair\" (the backward of another micro-batch)"},
    flag("pipeline", "transfers between stages run beside compute; false: compute waits for them"),
};
constexpr KeyTable kOverlap{.title = "overlap", .keys = kOverlapKeys, .later = kOverlapLater};

constexpr std::array kPrecisionKeys{
    KeySpec{.name = "parameters",
            .types = kInteger,
            .min = 1,
            .max = 8,
            .about = "bytes per parameter"},
    KeySpec{
        .name = "gradients", .types = kInteger, .min = 1, .max = 8, .about = "bytes per parameter"},
    KeySpec{.name = "optimizer",
            .types = kInteger,
            .min = 0,
            .max = 64,
            .about = "bytes per parameter, master copy included"},
    KeySpec{.name = "compute",
            .types = kString,
            .choices = kComputeTypeNames,
            .about = "type of the matrix products; bf16 when left out"},
};

constexpr std::array<std::string_view, 1> kExpertCapacityWords{"drop"};
constexpr std::array kExpertCapacityKeys{
    KeySpec{.name = "drop",
            .types = kNumber,
            .min = 0,
            .max = 1e4,
            .above_min = true,
            .required = true,
            .about = "copies that an expert takes from a rank over their mean"},
};
constexpr KeyTable kExpertCapacity{.title = "expert_capacity", .keys = kExpertCapacityKeys};

constexpr std::array kLayoutKeys{
    size("tensor_parallel", "t: ranks that share each matrix"),
    size("pipeline_parallel", "p: positions of the pipeline", kMaxPositions),
    size("context_parallel", "c: ranks that share each sequence"),
    size("expert_parallel", "e: ranks that share the experts; folded over tp, cp and dp"),
    size("data_parallel", "d: replicas; left out: gpus / (t p c)"),
    size("expert_tensor_parallel", "t of the experts; left out: t"),
    choice("expert_dispatch", kExpertDispatchNames, "how tokens come to their experts and back"),
    KeySpec{.name = "expert_routing",
            .types = kString | kNumber,
            .min = 1,
            .max = 1e4,
            .searchable = true,
            .about = "balance of the rows: balanced, uniform (random), the busiest rank's over the "
                     "mean, or file:PATH of what run --metrics wrote"},
    KeySpec{.name = "expert_capacity",
            .types = kNumber | kString | kObject,
            .min = 0,
            .max = 1e4,
            .above_min = true,
            .choices = kExpertCapacityWords,
            .members = &kExpertCapacity,
            .searchable = true,
            .about = "most rows of a rank over the mean, more are dropped, or what each expert "
                     "drops; left out: dropless"},
    flag("expert_slots", "copies or tokens in slots of equal size: no host waits for counts"),
    flag("fp8_dispatch", "a forward's tokens travel to their experts in 8 bit"),
    flag("sequence_parallel", "norms and dropout split over the tensor-parallel group"),
    KeySpec{.name = "zero_stage",
            .types = kInteger,
            .min = 0,
            .max = 3,
            .searchable = true,
            .about = "shards optimizer (1), gradients (2), parameters (3: FSDP)"},
    size("shard_group", "ZeRO shards over that many neighbouring replicas; left out: d c"),
    choice("data_parallel_algorithm", kDataParallelNames, "how replicas agree without ZeRO"),
    KeySpec{.name = "schedule",
            .types = kString,
            .later = kSchedulesToCome,
            .searchable = true,
            .about = "name of the pipeline order, or file:PATH"},
    KeySpec{.name = "virtual_stages",
            .types = kInteger,
            .min = 1,
            .max = 65536,
            .searchable = true,
            .about = "v: model chunks per position"},
    KeySpec{.name = "stage_layers",
            .types = kArray | kString,
            .min = 0,
            .max = 65536,
            .item_types = kInteger,
            .about = "layers per chunk in model order, or a layout such as E|(t)*10|mL"},
    KeySpec{.name = "microbatch_group_size",
            .types = kInteger,
            .min = 1,
            .max = kMaxMicrobatch,
            .searchable = true,
            .about = "N of the interleaved orders"},
    KeySpec{.name = "extra_warmup",
            .types = kInteger,
            .min = 0,
            .max = kMaxMicrobatch,
            .searchable = true,
            .about = "forwards more before the first backward (interleaved_1f1b)"},
    KeySpec{.name = "sequence_slices",
            .types = kInteger,
            .min = 1,
            .max = 127,
            .searchable = true,
            .about = "slices of each micro-batch (seq_1f1b, seq_zb_h1)"},
    KeySpec{.name = "memory_limit",
            .types = kNumber,
            .min = 0,
            .max = 1e6,
            .above_min = true,
            .searchable = true,
            .about = "planned schedules: multiple of 1F1B's peak activations"},
    KeySpec{.name = "micro_batch",
            .types = kInteger | kString,
            .min = 1,
            .max = kMaxMicrobatch,
            .searchable = true,
            .about = "samples per micro-batch and replica, or \"auto\""},
    KeySpec{.name = "global_batch",
            .types = kInteger,
            .min = 1,
            .max = kMaxBatch,
            .searchable = true,
            .about = "samples per step over all replicas"},
    KeySpec{.name = "sequence_length",
            .types = kInteger,
            .min = 1,
            .max = kMaxTokens,
            .searchable = true,
            .about = "tokens per sample"},
    KeySpec{.name = "recompute",
            .types = kString,
            .choices = kRecomputeNames,
            .parts = kRecomputePartNames,
            .searchable = true,
            .about = "what the backward computes again; a list of parts of a layer is one value"},
    KeySpec{.name = "precision",
            .types = kString | kObject,
            .choices = kComputeTypeNames,
            .members = &kPrecision,
            .searchable = true,
            .about = "types of parameters, gradients, optimizer and products"},
    flag("flash_attention", "fused attention; agrees with attention_kernel"),
    choice("optimizer", kOptimizerNames, "adamw, with moments in 8 bit, or muon for matrices"),
    KeySpec{.name = "document_length",
            .types = kNumber,
            .min = 1,
            .max = kMaxTokens,
            .searchable = true,
            .about = "mean length of the documents packed into a sequence, whose attention does "
                     "not cross them; left out: whole sequences"},
    choice("attention_kernel", kAttentionKernelNames,
           "how the attention core runs: op by op, or a kernel's generation"),
    KeySpec{.name = "dropout",
            .types = kNumber,
            .min = 0,
            .max = 1,
            .searchable = true,
            .about = "probability; 0: no kernels, no masks"},
    KeySpec{.name = "pad_vocabulary_to",
            .types = kInteger,
            .min = 1,
            .max = 1 << 20,
            .searchable = true,
            .about = "the vocabulary is padded to a multiple of it times t"},
    choice("offload", kOffloadNames, "what lies in host memory", kOffloadLater),
    KeySpec{.name = "rank_order",
            .types = kString,
            .searchable = true,
            .about = "mesh axes, fastest-varying first: tp-cp-ep-dp-pp"},
    KeySpec{.name = "overlap",
            .types = kObject,
            .members = &kOverlap,
            .about = "communication hidden behind compute"},
    KeySpec{.name = "bucket_bytes",
            .types = kInteger,
            .min = 1,
            .max = kMaxBytes,
            .searchable = true,
            .about = "size of a gradient bucket"},
    KeySpec{.name = "prefetch",
            .types = kInteger,
            .min = 0,
            .max = 65536,
            .searchable = true,
            .about = "units gathered ahead (ZeRO-3)"},
    KeySpec{.name = "runtime",
            .types = kString,
            .later = kRuntimeLater,
            .searchable = true,
            .about = "whose memory and kernels are predicted: a profile, or a file FILE.json"},
};
// What a plan says of its runtime's traits.
constexpr std::size_t kTraitsOfPlan =
    std::ranges::count_if(kTraitRows, [](const TraitRow& row) { return row.of_plan; });
constexpr auto kPlanKeys = [] {
  std::array<KeySpec, kLayoutKeys.size() + kTraitsOfPlan> keys;
  auto end = std::ranges::copy(kLayoutKeys, keys.begin()).out;
  for (const TraitRow& row : kTraitRows) {
    if (!row.of_plan) continue;
    KeySpec key = row.key;
    key.sourced = false;
    key.searchable = (key.types & kArray) == 0;
    *end++ = key;
  }
  return keys;
}();

}  // namespace

constinit const KeyTable kPrecision{.title = "precision", .keys = kPrecisionKeys};
constinit const KeyTable kPlan{.title = "plan", .keys = kPlanKeys, .later = kPlanLater};

}  // namespace keys

const KeyTable& plan_key_table() {
  return keys::kPlan;
}

}  // namespace rehearse
