// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/scenario_keys.h"

#include <array>

#include "schedules/order/registry.h"
#include "schedules/runtime/trait_rows.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/recompute_parts.h"
#include "schedules/scenario/variation.h"

namespace rehearse {
namespace {

constexpr double kMaxRanks = 1 << 20;       // ten times the largest cluster
constexpr double kMaxPositions = 4096;      // of a pipeline
constexpr double kMaxMicrobatch = 1 << 24;  // samples, and micro-batches of a schedule alone
constexpr double kMaxTokens = 1 << 26;      // of one sequence
constexpr double kMaxBatch = 1LL << 40;
constexpr double kMaxBytes = 1LL << 50;

constexpr KeySpec size(std::string_view name, std::string_view about, double max = kMaxRanks) {
  return {
      .name = name, .types = kInteger, .min = 1, .max = max, .searchable = true, .about = about};
}
constexpr KeySpec flag(std::string_view name, std::string_view about) {
  return {.name = name, .types = kBool, .searchable = true, .about = about};
}
template <std::size_t N>
constexpr KeySpec choice(std::string_view name, const std::array<std::string_view, N>& choices,
                         std::string_view about, std::span<const std::string_view> later = {}) {
  return {.name = name,
          .types = kString,
          .choices = choices,
          .later = later,
          .searchable = true,
          .about = about};
}

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
constexpr std::array<std::string_view, 1> kTrainLater{"loss_scale"};
constexpr std::array<std::string_view, 3> kScenarioLater{"adapter", "trainable", "freeze"};
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
constexpr KeyTable kPrecision{.title = "precision", .keys = kPrecisionKeys};

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
    flag("expert_slots", "all_to_all in slots of equal size: no host waits for counts"),
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
constexpr KeyTable kPlan{.title = "plan", .keys = kPlanKeys, .later = kPlanLater};

constexpr std::array<std::string_view, 3> kDecays{"constant", "linear", "cosine"};

constexpr KeySpec share(std::string_view name, double below) {
  return {.name = name, .types = kNumber, .min = 0, .max = below};
}
constexpr KeySpec steps(std::string_view name, double min) {
  return {.name = name, .types = kInteger, .min = min, .max = 1e12};
}
constexpr std::array kTrainKeys{
    KeySpec{.name = "data",
            .types = kString,
            .about = "file of bytes or .bin tokens, or \"synthetic\""},
    steps("steps", 1),
    KeySpec{.name = "learning_rate", .types = kNumber, .min = 0, .max = 1e3},
    steps("seed", 0),
    share("beta1", 1),
    share("beta2", 1),
    KeySpec{.name = "epsilon", .types = kNumber, .min = 0, .max = 1, .above_min = true},
    share("weight_decay", 1e3),
    KeySpec{.name = "weight_decay_matrices_only", .types = kBool},
    share("clip_norm", 1e12),
    steps("warmup_steps", 0),
    KeySpec{.name = "lr_decay", .types = kString, .choices = kDecays},
    share("min_learning_rate", 1e3),
    steps("checkpoint_every", 0),
    share("router_auxiliary_loss", 1e3),
    share("router_z_loss", 1e3),
    KeySpec{.name = "router_bias_rate",
            .types = kNumber,
            .min = 0,
            .max = 1e3,
            .about = "by how much experts' correction biases move in a step"},
};
constexpr KeyTable kTrain{.title = "train", .keys = kTrainKeys, .later = kTrainLater};

constexpr std::array kScenarioKeys{
    KeySpec{.name = "$schema", .types = kString, .about = "for editors"},
    KeySpec{.name = "name", .types = kString, .about = "for people"},
    KeySpec{.name = "model",
            .types = kString | kObject,
            .about = "a Hugging Face config.json: path, or the object itself"},
    KeySpec{.name = "cluster",
            .types = kString | kObject,
            .about = "a cluster file: path, id of a shipped one, or the object itself"},
    KeySpec{.name = "gpus",
            .types = kInteger,
            .min = 1,
            .max = kMaxRanks,
            .about = "ranks; left out: the product of the sizes, else one node"},
    KeySpec{.name = "domain_gpus",
            .types = kInteger,
            .min = 1,
            .max = kMaxRanks,
            .about = "GPUs used of each NVLink domain, that is of each node; left out: all"},
    KeySpec{.name = "variation",
            .types = kObject,
            .members = &kVariation,
            .about = "GPUs that differ: a spread of speeds, slow ones"},
    KeySpec{.name = "plan", .types = kObject, .members = &kPlan},
    KeySpec{.name = "train", .types = kObject, .members = &kTrain},
};
constexpr KeyTable kScenario{.title = "Scenario: a model, a cluster, and how one runs on the other",
                             .keys = kScenarioKeys,
                             .later = kScenarioLater};

constexpr KeySpec measured(std::string_view name) {
  return {.name = name, .types = kNumber, .min = 0};
}
constexpr KeySpec text(std::string_view name) {
  return {.name = name, .types = kString};
}

constexpr std::array kRankKeys{
    KeySpec{.name = "rank", .types = kInteger, .min = 0, .max = kMaxRanks, .required = true},
    measured("peak_allocated_bytes"),
    measured("peak_reserved_bytes"),
    measured("peak_device_bytes"),
    measured("steady_allocated_bytes"),
};
constexpr KeyTable kRank{.title = "rank", .keys = kRankKeys};
constexpr std::array kMeasuredKeys{
    measured("step_time_s"),
    measured("peak_allocated_bytes"),
    measured("peak_reserved_bytes"),
    measured("peak_device_bytes"),
    measured("steady_allocated_bytes"),
    measured("model_state_bytes"),
    measured("activation_bytes"),
    measured("parameter_gradient_optimizer_bytes"),
    measured("activation_fraction_of_tp_baseline"),
    measured("bubble_ratio"),
    measured("forward_s"),
    measured("backward_s"),
    measured("forward_backward_s"),
    measured("input_gradient_s"),
    measured("weight_gradient_s"),
    measured("parameters"),
    KeySpec{.name = "fits", .types = kBool},
    KeySpec{.name = "ranks", .types = kArray, .items = &kRank, .item_types = kObject},
};
// Open: a source may measure what the report has under another key (mfu, tokens_per_s, ...).
constexpr KeyTable kMeasured{.title = "measured", .keys = kMeasuredKeys, .open = true};

constexpr std::array kTimesKeys{measured("F"), measured("I"), measured("W"), measured("comm"),
                                measured("FB")};
constexpr KeyTable kTimes{.title = "times", .keys = kTimesKeys};
constexpr std::array kScheduleKeys{
    KeySpec{.name = "name", .types = kString, .required = true},
    KeySpec{.name = "stages", .types = kInteger, .min = 1, .max = 65536, .required = true},
    KeySpec{.name = "microbatches",
            .types = kInteger,
            .min = 1,
            .max = kMaxMicrobatch,
            .required = true},
    KeySpec{.name = "chunks", .types = kInteger, .min = 1, .max = 65536},
    KeySpec{.name = "group_size", .types = kInteger, .min = 1, .max = kMaxMicrobatch},
    KeySpec{.name = "extra_warmup", .types = kInteger, .min = 0, .max = kMaxMicrobatch},
    KeySpec{.name = "slices", .types = kInteger, .min = 1, .max = 127},
    KeySpec{.name = "memory_limit", .types = kNumber, .min = 0, .above_min = true},
    KeySpec{.name = "times", .types = kObject, .members = &kTimes},
};
constexpr KeyTable kSchedule{.title = "schedule", .keys = kScheduleKeys};

constexpr std::array kStatesKeys{
    KeySpec{.name = "parameters", .types = kInteger, .min = 1, .max = 1e15, .required = true},
    KeySpec{.name = "data_parallel", .types = kInteger, .min = 1, .max = kMaxRanks},
    KeySpec{.name = "zero_stage", .types = kInteger, .min = 0, .max = 3},
    KeySpec{.name = "precision",
            .types = kString | kObject,
            .choices = kComputeTypeNames,
            .members = &kPrecision},
};
constexpr KeyTable kStates{.title = "states", .keys = kStatesKeys};

constexpr std::array kStageKeys{
    KeySpec{.name = "scenario", .types = kObject, .required = true, .about = "a scenario, inline"},
    KeySpec{.name = "position",
            .types = kInteger,
            .min = 0,
            .max = 65535,
            .required = true,
            .about = "of the pipeline"},
};
constexpr KeyTable kStage{.title = "stage", .keys = kStageKeys};

constexpr KeySpec size(std::string_view name, double min, double max, std::string_view about) {
  return {.name = name, .types = kInteger, .min = min, .max = max, .about = about};
}
constexpr KeySpec required_size(std::string_view name, double max, std::string_view about) {
  KeySpec spec = size(name, 1, max, about);
  spec.required = true;
  return spec;
}
constexpr std::array<std::string_view, 2> kScores{"softmax", "sigmoid"};
constexpr std::array<std::string_view, 2> kExpertPrecisions{"bf16", "fp8"};
constexpr std::array<std::string_view, 2> kExpertGradients{"bf16, not accumulated",
                                                           "fp32, accumulated"};
constexpr std::array kMoeLayerKeys{
    required_size("hidden_size", 1 << 18, "h"),
    required_size("moe_intermediate_size", 1 << 18, "width of one expert"),
    required_size("experts", 4096, "of the layer"),
    required_size("experts_per_token", 4096, "k"),
    size("shared_width", 0, 1 << 18, "of all shared experts together; none by default"),
    KeySpec{.name = "score",
            .types = kString,
            .choices = kScores,
            .about = "of the router: of no consequence for time"},
    KeySpec{.name = "groups",
            .types = kArray,
            .min = 1,
            .max = 256,
            .item_types = kInteger,
            .about = "[groups, kept]: a token's experts lie in so many of these groups"},
    KeySpec{.name = "cluster",
            .types = kString,
            .required = true,
            .about = "a cluster file: path or id of a shipped one"},
    size("gpus", 1, kMaxRanks, "expert_parallel by default"),
    required_size("expert_parallel", 4096, "ranks that share the experts"),
    size("expert_tensor_parallel", 1, 1 << 16, "1 alone is built"),
    size("tensor_parallel", 1, 1 << 16, "1 alone is built"),
    required_size("tokens_per_rank", 1 << 22, "that a rank brings"),
    size("micro_batch", 1, kMaxMicrobatch, "with sequence_length: tokens_per_rank once more"),
    size("sequence_length", 1, 1 << 22, "with micro_batch: tokens_per_rank once more"),
    KeySpec{.name = "dispatcher",
            .types = kString,
            .required = true,
            .about = "all_to_all, all_gather, deduplicated, or the source's word for it"},
    KeySpec{.name = "precision",
            .types = kString,
            .choices = kExpertPrecisions,
            .required = true,
            .about = "of the products; fp8: a scale for each block of 128"},
    KeySpec{.name = "routing",
            .types = kString | kNumber,
            .min = 1,
            .max = 256,
            .required = true,
            .about = "balanced, uniform (forced balance by random logits), or the busiest rank's "
                     "rows over the mean"},
    KeySpec{.name = "fused_permute", .types = kBool, .about = "true alone is built"},
    KeySpec{.name = "fused_router", .types = kBool, .about = "true alone is built"},
    KeySpec{.name = "auxiliary_loss", .types = kBool, .about = "of the router, fused with it"},
    KeySpec{.name = "gradient",
            .types = kString,
            .choices = kExpertGradients,
            .about = "of the weights; fp32, accumulated by default"},
};
constexpr KeyTable kMoeLayer{.title = "moe_layer", .keys = kMoeLayerKeys};

constexpr std::array<std::string_view, 2> kKinds{"measurement", "formula"};
constexpr std::array<std::string_view, 3> kMeasures{"bubble_ratio", "bubble_overhead",
                                                    "span_bubble_ratio"};
constexpr std::array kCaseKeys{
    KeySpec{.name = "id", .types = kString, .required = true},
    KeySpec{.name = "group",
            .types = kString,
            .about = "the same for plans that compete: of one model, GPUs, batch and sequence"},
    KeySpec{.name = "scenario", .types = kObject, .about = "a scenario, inline"},
    KeySpec{.name = "layer", .types = kObject, .about = "a scenario of which one layer is timed"},
    KeySpec{.name = "stage",
            .types = kObject,
            .members = &kStage,
            .about = "one stage of a scenario's pipeline is timed for one micro-batch"},
    KeySpec{.name = "moe_layer",
            .types = kObject,
            .members = &kMoeLayer,
            .about = "one layer of experts is timed, router to combine"},
    KeySpec{.name = "schedule",
            .types = kObject,
            .members = &kSchedule,
            .about = "only a schedule is timed"},
    KeySpec{.name = "states",
            .types = kObject,
            .members = &kStates,
            .about = "bytes of the model states of one rank"},
    KeySpec{.name = "measured", .types = kObject, .members = &kMeasured, .required = true},
    KeySpec{.name = "reported", .types = kObject, .about = "what the source printed; not scored"},
    KeySpec{.name = "tolerance",
            .types = kObject,
            .members = &kMeasured,
            .about = "absolute, per measured key"},
    KeySpec{.name = "measure", .types = kString, .choices = kMeasures},
    KeySpec{.name = "kind", .types = kString, .choices = kKinds},
    KeySpec{.name = "uncertain", .types = kArray, .item_types = kString},
    text("note"),
    text("source"),
};
constexpr KeyTable kCase{.title = "case", .keys = kCaseKeys};
constexpr std::array kCaseFileKeys{
    text("source"),
    text("about"),
    text("noise_floor"),
    text("note"),
    KeySpec{
        .name = "cases", .types = kArray, .items = &kCase, .item_types = kObject, .required = true},
};
constexpr KeyTable kCaseFile{.title = "Measured cases: what `rehearse validate` reads",
                             .keys = kCaseFileKeys};

}  // namespace

const KeyTable& scenario_key_table() {
  return kScenario;
}
const KeyTable& plan_key_table() {
  return kPlan;
}
const KeyTable& precision_key_table() {
  return kPrecision;
}
const KeyTable& train_key_table() {
  return kTrain;
}
const KeyTable& case_file_key_table() {
  return kCaseFile;
}
const KeyTable& moe_layer_key_table() {
  return kMoeLayer;
}

}  // namespace rehearse
