// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/keys/plan_rows.h"

#include <algorithm>

#include "schedules/runtime/trait_rows.h"
#include "schedules/scenario/keys/key_specs.h"
#include "schedules/scenario/keys/later_words.h"
#include "schedules/scenario/keys/plan_values.h"
#include "schedules/scenario/keys/row_words.h"
#include "schedules/scenario/keys/scenario_keys.h"
#include "schedules/scenario/keys/smaller_values.h"
#include "schedules/scenario/memory/offload.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse {
namespace keys {
namespace {

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

constexpr std::array kDocumentKeys{
    KeySpec{.name = "mean",
            .types = kNumber,
            .min = 1,
            .max = kMaxTokens,
            .required = true,
            .about = "mean length [tokens]"},
    KeySpec{
        .name = "maximum",
        .types = kInteger,
        .min = 1,
        .max = kMaxTokens,
        .required = true,
        .about = "the longest one [tokens]; beyond sequence_length: memory on the day it comes"},
};
constexpr KeyTable kDocuments{.title = "document_length", .keys = kDocumentKeys};

constexpr std::string_view kOneKernel =
    "the executor has one kernel, which is fused: the same mathematics";

// The reader has made it a schedule of its own.
std::string said_by_schedule(const Plan&) {
  return "";
}
bool one_position(const Plan& plan) {
  return plan.pipeline_parallel == 1;
}
bool sharded(const Plan& plan) {
  return plan.gathers_units();
}
bool whole_experts(const Plan& plan) {
  return plan.expert_parallel == 1 && plan.expert_tensor_parallel == 1;
}
bool attention_core_alone(const JsonValue& value) {
  const bool listed = value.is(JsonKind::Array) && value.items.size() == 1;
  return listed ? value.items.front().text == "attention_core" : value.text == "selective";
}
// In frameworks whose selective recomputation is the attention core's.
bool keeps_no_scores(const Plan& plan) {
  return !plan.runtime.performer().remakes_fused_attention && is_fused(plan.attention_kernel) &&
         plan.runtime.selective_recompute == SelectiveRecompute::AttentionCore;
}

constexpr std::array kPlanRows{
    PlanRow{.key = size("tensor_parallel", "t: ranks that share each matrix"),
            .field = &Plan::tensor_parallel,
            .all = true,
            .splits = true},
    PlanRow{.key = {.name = "tensor_parallel_2d",
                    .types = kArray,
                    .min = 1,
                    .max = 4096,
                    .item_types = kInteger,
                    .about = "[rows, columns] of a grid of the t ranks: products by SUMMA, both "
                             "operands cut in rows and columns; left out: none"},
            .field = &Plan::tensor_parallel_2d,
            .text = plan_values::tensor_grid,
            .idle = {{{any, [](const Plan& p) { return !p.tensor_parallel_2d.any(); },
                       "one rank is no grid"}}},
            .splits = true},
    PlanRow{.key = size("pipeline_parallel", "p: positions of the pipeline", kMaxPositions),
            .field = &Plan::pipeline_parallel,
            .all = true,
            .splits = true},
    PlanRow{.key = size("context_parallel", "c: ranks that share each sequence"),
            .field = &Plan::context_parallel,
            .all = true,
            .splits = true},
    PlanRow{.key = choice("context_parallel_algorithm", kContextParallelNames,
                          "how they meet its keys: round a ring, gathered, by exchange of heads "
                          "(Ulysses), or by that among neighbours and a ring across (a2a+p2p)"),
            .field = &Plan::context_parallel_algorithm,
            .text =
                [](const Plan& p) {
                  return p.context_parallel > 1 ? json_quoted(name_of(p.context_parallel_algorithm))
                                                : "";
                },
            .idle = {{{any, [](const Plan& p) { return p.context_parallel == 1; },
                       "no sequence is shared: context_parallel is 1"}}},
            .splits = true},
    PlanRow{.key = {.name = "head_exchange_group",
                    .types = kInteger,
                    .min = 2,
                    .max = kMaxRanks,
                    .searchable = true,
                    .about = "of a2a+p2p: neighbours that exchange heads; left out: as many of a "
                             "node as have whole heads"},
            .field = &Plan::head_exchange_group,
            .text = [](const Plan& p) { return nonzero(p.head_exchange_group); },
            .idle = {{{any, [](const Plan& p) { return p.head_exchange_group == 0; },
                       "heads are exchanged by all who share a sequence, or by none"}}},
            .splits = true},
    PlanRow{.key = size("expert_parallel",
                        "e: ranks that share the experts; folded over tp, cp and dp"),
            .field = &Plan::expert_parallel,
            .of_experts = true,
            .splits = true},
    PlanRow{.key = size("data_parallel", "d: replicas; left out: gpus / (t p c)"),
            .field = &Plan::data_parallel,
            .all = true,
            .splits = true},
    PlanRow{.key = size("expert_tensor_parallel", "t of the experts; left out: t"),
            .field = &Plan::expert_tensor_parallel,
            .of_experts = true,
            .splits = true},
    PlanRow{
        .key = choice("expert_dispatch", kExpertDispatchNames,
                      "how tokens come to their experts and back"),
        .field = &Plan::expert_dispatch,
        .idle = {{{any, whole_experts, "nothing is dispatched: every rank has all experts whole"}}},
        .of_experts = true},
    PlanRow{.key = {.name = "expert_routing",
                    .types = kString | kNumber,
                    .min = 1,
                    .max = 1e4,
                    .searchable = true,
                    .about = "balance of the rows: balanced, uniform (random), the busiest rank's "
                             "over the mean, or file:PATH of what run --metrics wrote"},
            .run = no_meaning("a run routes by the model"),
            .field = &Plan::expert_routing,
            .text = plan_values::expert_routing,
            .idle = {{{any, [](const Plan& p) { return p.expert_parallel == 1; },
                       "no rank waits for another's rows: expert_parallel is 1"}}},
            .of_experts = true},
    PlanRow{.key = {.name = "expert_capacity",
                    .types = kNumber | kString | kObject,
                    .min = 0,
                    .max = 1e4,
                    .above_min = true,
                    .choices = kExpertCapacityWords,
                    .members = &kExpertCapacity,
                    .searchable = true,
                    .about = "most rows of a rank over the mean, more are dropped, or what each "
                             "expert drops; left out: dropless"},
            .field = &Plan::expert_capacity,
            .text = plan_values::expert_capacity,
            .of_experts = true},
    PlanRow{.key = flag("expert_slots",
                        "copies or tokens in slots of equal size: no host waits for counts"),
            .field = &Plan::expert_slots,
            .text = [](const Plan& p) { return p.expert_slots ? json_bool(true) : ""; },
            .of_experts = true},
    PlanRow{.key = flag("fp8_dispatch", "a forward's tokens travel to their experts in 8 bit"),
            .run = no_meaning("runtime rehearse refuses all but false"),
            .field = &Plan::fp8_dispatch,
            .text = [](const Plan& p) { return p.fp8_dispatch ? json_bool(true) : ""; },
            .of_experts = true},
    PlanRow{
        .key = flag("sequence_parallel", "norms and dropout split over the tensor-parallel group"),
        .field = &Plan::sequence_parallel,
        .idle = {{{on, no_tensor_parallel, "nothing to split: tensor_parallel is 1"}}},
        .smaller = smaller_values::sequence_splits,
        .splits = true},
    PlanRow{.key = {.name = "zero_stage",
                    .types = kInteger,
                    .min = 0,
                    .max = 3,
                    .searchable = true,
                    .about = "shards optimizer (1), gradients (2), parameters (3: FSDP)"},
            .field = &Plan::zero_stage,
            .smaller = smaller_values::zero_stages,
            .splits = true},
    PlanRow{.key = size("shard_group",
                        "ZeRO shards over that many neighbouring replicas; left out: d c"),
            .field = &Plan::shard_group,
            .text = [](const Plan& p) { return nonzero(p.shard_group); },
            .idle = {{{any, unsharded, "nothing is sharded: zero_stage is 0"}}}},
    PlanRow{.key = {.name = "secondary_shard_group",
                    .types = kInteger,
                    .min = 2,
                    .max = kMaxRanks,
                    .searchable = true,
                    .about = "ZeRO-3 keeps a second copy of parameters in shards over that many "
                             "neighbouring replicas, from which backwards gather (hpZ); left out: "
                             "none"},
            .field = &Plan::secondary_shard_group,
            .text = [](const Plan& p) { return nonzero(p.secondary_shard_group); },
            .idle = {{{any, [](const Plan& p) { return !p.gathers_twice() || p.shards() == 1; },
                       "no parameters are gathered a second time"}}}},
    PlanRow{.key = {.name = "quantized_gather",
                    .types = kInteger,
                    .min = 8,
                    .max = 16,
                    .searchable = true,
                    .about = "bits of a value in ZeRO-3's gathers of parameters, 16 or 8"},
            .field = &Plan::quantized_gather,
            .idle = {{{[](const JsonValue& value) { return value.number == 8; },
                       [](const Plan& p) { return !p.gathers_units() || p.shards() == 1; },
                       "no parameters are gathered from shards"}}}},
    PlanRow{.key = choice("data_parallel_algorithm", kDataParallelNames,
                          "how replicas agree without ZeRO"),
            .field = &Plan::data_parallel_algorithm,
            .idle = {{{[](const JsonValue& value) { return value.text == "parameter_server"; },
                       one_replica, "there is one replica"}}}},
    PlanRow{.key = {.name = "schedule",
                    .types = kString,
                    .searchable = true,
                    .about = "name of the pipeline order, or file:PATH"},
            .field = &Plan::schedule,
            .smaller = smaller_values::orders,
            .splits = true},
    PlanRow{.key = choice("chimera_scaling", kChimeraScalingNames,
                          "more micro-batches than positions: forwards doubled, backwards halved"),
            .field = &Plan::chimera_scaling,
            .text = said_by_schedule},
    PlanRow{.key = choice("indexer_loss", kIndexerLossNames,
                          "over which keys the scores of an indexer are held against attention's"),
            .run = priced(R"(null | "none")", R"("sparse")", "an indexer's loss is priced"),
            .field = &Plan::indexer_loss,
            .text =
                [](const Plan& p) {
                  return p.indexer_loss == IndexerLoss::None
                             ? std::string()
                             : json_quoted(kIndexerLossNames[static_cast<std::size_t>(
                                   p.indexer_loss)]);
                }},
    PlanRow{.key = {.name = "virtual_stages",
                    .types = kInteger,
                    .min = 1,
                    .max = 65536,
                    .searchable = true,
                    .about = "v: model chunks per position"},
            .field = &Plan::virtual_stages,
            .all = true,
            .splits = true},
    PlanRow{.key = {.name = "stage_layers",
                    .types = kArray | kString,
                    .min = 0,
                    .max = 65536,
                    .item_types = kInteger,
                    .about = "layers per chunk in model order, or a layout such as E|(t)*10|mL"},
            .field = &Plan::stage_layers,
            .text = plan_values::stage_layers,
            .splits = true},
    PlanRow{.key = {.name = "microbatch_group_size",
                    .types = kInteger,
                    .min = 1,
                    .max = kMaxMicrobatch,
                    .searchable = true,
                    .about = "N of the interleaved orders"},
            .field = &Plan::microbatch_group_size,
            .text = [](const Plan& p) { return nonzero(p.microbatch_group_size); }},
    PlanRow{.key = {.name = "extra_warmup",
                    .types = kInteger,
                    .min = 0,
                    .max = kMaxMicrobatch,
                    .searchable = true,
                    .about = "forwards more before the first backward (interleaved_1f1b)"},
            .field = &Plan::extra_warmup},
    PlanRow{.key = {.name = "sequence_slices",
                    .types = kInteger,
                    .min = 1,
                    .max = 127,
                    .searchable = true,
                    .about = "slices of each micro-batch (seq_1f1b, seq_zb_h1)"},
            .field = &Plan::sequence_slices},
    PlanRow{.key = {.name = "memory_limit",
                    .types = kNumber,
                    .min = 0,
                    .max = 1e6,
                    .above_min = true,
                    .searchable = true,
                    .about = "planned schedules: multiple of 1F1B's peak activations"},
            .field = &Plan::memory_limit,
            .text =
                [](const Plan& p) {
                  return p.memory_limit > 0 ? json_number(p.memory_limit) : std::string("null");
                }},
    PlanRow{.key = {.name = "micro_batch",
                    .types = kInteger | kString,
                    .min = 1,
                    .max = kMaxMicrobatch,
                    .searchable = true,
                    .about = "samples per micro-batch and replica, or \"auto\""},
            .field = &Plan::micro_batch,
            .text =
                [](const Plan& p) {
                  // Where backwards are halved, the plan holds the halves.
                  const bool halved = p.chimera_scaling == ChimeraScaling::BackwardHalving;
                  return p.micro_batch_auto ? json_quoted("auto")
                                            : number((halved ? 2 : 1) * p.micro_batch);
                },
            .smaller = smaller_values::micro_batches},
    PlanRow{.key = {.name = "global_batch",
                    .types = kInteger,
                    .min = 1,
                    .max = kMaxBatch,
                    .searchable = true,
                    .about = "samples per step over all replicas"},
            .field = &Plan::global_batch,
            .splits = true},
    PlanRow{.key = {.name = "sequence_length",
                    .types = kInteger,
                    .min = 1,
                    .max = kMaxTokens,
                    .searchable = true,
                    .about = "tokens per sample"},
            .field = &Plan::sequence_length,
            .text = [](const Plan& p) { return nonzero(p.sequence_length); }},
    PlanRow{.key = {.name = "recompute",
                    .types = kString,
                    .choices = kRecomputeNames,
                    .parts = kRecomputePartNames,
                    .searchable = true,
                    .about = "what the backward computes again; a list of parts of a layer is one "
                             "value"},
            .run = priced(R"(null | "none" | "selective" | "full")", R"(["norm"])",
                          "parts of a layer are priced"),
            .field = &Plan::recompute,
            .text = recompute_json,
            .idle = {{{attention_core_alone, keeps_no_scores,
                       "fused attention keeps no scores, and computes them again in any case"}}},
            .smaller = smaller_values::recomputations},
    PlanRow{
        .key = {.name = "recompute_layers",
                .types = kInteger,
                .min = 1,
                .max = 65536,
                .searchable = true,
                .about = "layers of a chunk that are computed again, from its first; left out: "
                         "all"},
        .field = &Plan::recompute_layers,
        .text =
            [](const Plan&
                   p) { return p.recompute_layers > 0 ? number(p.recompute_layers) : std::string(); },
        .idle = {{{any, [](const Plan& p) { return !p.recompute.any(); },
                   "nothing is computed again: recompute is none"}}}},
    PlanRow{
        .key = {.name = "recompute_stream_layers",
                .types = kInteger,
                .min = 1,
                .max = 65536,
                .searchable = true,
                .about = "layers whose residual streams are computed again together; left out: "
                         "those of a chunk"},
        .run = priced("null", "2", "streams that are computed again are priced"),
        .field = &Plan::recompute_stream_layers,
        .text =
            [](const Plan& p) {
              return p.recompute_stream_layers > 0 ? number(p.recompute_stream_layers)
                                                   : std::string();
            },
        .idle = {{{any,
                   [](const Plan& p) {
                     return p.recompute.is_full() ||
                            !p.recomputes(RecomputePart::ResidualStreams);
                   },
                   "recompute has no residual_streams"}}}},
    PlanRow{
        .key = flag("recompute_in_advance",
                    "what a backward computes again is an op of its own where its rank would "
                    "wait for the gradient; planned orders of runtime rehearse are tried so "
                    "unless it is false"),
        .field = &Plan::places_recompute,
        .text = [](const Plan& p) -> std::string {
          return p.places_recompute ? "true" : p.recomputes_in_place ? "false" : "";
        },
        .idle = {{{on, [](const Plan& p) { return !p.recompute.any(); },
                   "nothing is computed again: recompute is none"},
                  {on,
                   [](const Plan& p) { return one_position(p) || p.schedule.starts_with("file:"); },
                   "no rank waits for a gradient, or a file says where it stands"},
                  {on,
                   [](const Plan& p) {
                     return p.memory_limit > 0 && !p.runtime.performer().keeps_slabs;
                   },
                   "under memory_limit: how much a framework's tensors would need ahead of their "
                   "backward, an order does not know"}}}},
    PlanRow{
        .key = {.name = "loss_chunks",
                .types = kInteger,
                .min = 1,
                .max = 65536,
                .searchable = true,
                .about = "the head and its loss go over a micro-batch's tokens in that many "
                         "chunks"},
        .field = &Plan::loss_chunks,
        .text = [](const Plan&
                       p) { return p.loss_chunks > 1 ? number(p.loss_chunks) : std::string(); }},
    PlanRow{.key = {.name = "precision",
                    .types = kString | kObject,
                    .choices = kComputeTypeNames,
                    .members = &kPrecision,
                    .searchable = true,
                    .about = "types of parameters, gradients, optimizer and products"},
            .run = said("", "", "what the device has instead; left out, a CPU runs fp32"),
            .field = &Plan::precision,
            .text = plan_values::precision,
            .idle = {{{[](const JsonValue& value) { return value.text == "fp16"; },
                       [](const Plan& p) {
                         return sharded(p) && p.runtime.shards_master_parameters &&
                                !p.runtime.own_executor;  // which scales its loss
                       },
                       "the runtime's shards have the same bytes in fp16 as in bf16: 4 + 4 + 8, "
                       "gathered in 2"}}}},
    PlanRow{.key = choice("optimizer", kOptimizerNames,
                          "adamw, with moments in 8 bit, muon for matrices, or lion"),
            .run = priced(R"(null | "adamw" | "lion")", R"("muon")",
                          "another optimizer's update is priced"),
            .field = &Plan::optimizer},
    PlanRow{.key = {.name = "document_length",
                    .types = kNumber | kObject,
                    .min = 1,
                    .max = kMaxTokens,
                    .members = &kDocuments,
                    .searchable = true,
                    .about = "mean length of the documents packed into a sequence, whose attention "
                             "does not cross them, or {mean, maximum}; left out: whole sequences"},
            .run = priced("null", "1024", "attention inside documents is priced"),
            .field = &Plan::document_length,
            .text = plan_values::document_length},
    PlanRow{.key = flag("flash_attention", "fused attention; agrees with attention_kernel"),
            .run = said("null | true", "false", kOneKernel),
            .field = &Plan::flash_attention},
    PlanRow{
        .key = choice("attention_kernel", kAttentionKernelNames,
                      "how the attention core runs: op by op, or a kernel's generation"),
        .run = said(R"(null | "flash1" | "flash2" | "flash3")", R"("eager")", kOneKernel),
        .field = &Plan::attention_kernel,
    },
    PlanRow{.key = {.name = "dropout",
                    .types = kNumber,
                    .min = 0,
                    .max = 1,
                    .searchable = true,
                    .about = "probability; 0: no kernels, no masks"},
            .field = &Plan::dropout,
            .text = plan_values::dropout},
    PlanRow{.key = {.name = "pad_vocabulary_to",
                    .types = kInteger,
                    .min = 1,
                    .max = 1 << 20,
                    .searchable = true,
                    .about = "the vocabulary is padded to a multiple of it times t"},
            .field = &Plan::pad_vocabulary_to},
    PlanRow{.key = {.name = "offload",
                    .types = kString,
                    .choices = kOffloadWords,
                    .parts = kOffloadParts,
                    .searchable = true,
                    .about = "what lies in host memory; a list of several is one value"},
            .field = &Plan::offload,
            .text = [](const Plan& p) { return offload_json(p.offload); },
            .smaller = smaller_values::offloads},
    PlanRow{
        .key = choice("offload_to", kOffloadTargetNames,
                      "where offloaded optimizer state and parameters rest: the host's memory, "
                      "or the node's NVMe drives"),
        .field = &Plan::offload_to,
        .text = [](const Plan& p) -> std::string {
          return p.offload.any() ? json_quoted(name_of(p.offload_to)) : "";
        },
        .idle = {{{any, [](const Plan& p) { return !p.offload.any(); }, "nothing is offloaded"}}}},
    PlanRow{
        .key = choice("offload_activations", kOffloadedActivationsNames,
                      "which activations leave with offload \"activations\": all that are kept, "
                      "the inputs of recomputed layers, or of as many layers as leave and come "
                      "back for nothing"),
        .field = &Plan::offload_activations,
        .text = [](const Plan& p) -> std::string {
          return p.offload.activations ? json_quoted(name_of(p.offload_activations)) : "";
        },
        .idle = {{{any, [](const Plan& p) { return !p.offload.activations; },
                   "no activations leave: offload is not activations"}}}},
    PlanRow{.key = {.name = "rank_order",
                    .types = kString,
                    .searchable = true,
                    .about = "mesh axes, fastest-varying first: tp-cp-ep-dp-pp"},
            .field = &Plan::rank_order,
            .text = plan_values::rank_order},
    PlanRow{.key = {.name = kOverlapKey,
                    .types = kObject,
                    .members = &kOverlap,
                    .about = "communication hidden behind compute"},
            .text = plan_values::overlap},
    PlanRow{
        .key = choice("transfers", kTransferFormNames,
                      "order and form of transfers between stages; the first three run beside "
                      "compute, serial ones keep it waiting"),
        .run = priced(R"(null | "time_sorted" | "producer_order" | "consumer_order" | "grouped")",
                      R"("serial")", "compute that waits for transfers is priced"),
        .field = &Plan::transfers,
        .text = [](const Plan& p) -> std::string {
          return p.transfers_open ? "null" : json_quoted(name_of(p.transfers));
        },
        .idle = {{{any, one_position, "nothing is sent between stages: there is one position"}}}},
    PlanRow{.key = {.name = "bucket_bytes",
                    .types = kInteger,
                    .min = 1,
                    .max = kMaxBytes,
                    .searchable = true,
                    .about = "size of a gradient bucket"},
            .field = &Plan::bucket_bytes,
            .text = [](const Plan& p) { return nonzero(p.bucket_bytes); },
            .idle = {{{any, [](const Plan& p) { return !one_replica(p) && sharded(p); },
                       "sharded parameters are gathered and reduced layer by layer"}}}},
    PlanRow{
        .key = {.name = "prefetch",
                .types = kInteger,
                .min = 0,
                .max = 65536,
                .searchable = true,
                .about = "units gathered ahead (ZeRO-3)"},
        .field = &Plan::prefetch,
        .idle = {{{any, [](const Plan& p) { return !p.holds_shards(); },
                   "only sharded parameters (zero_stage 3) are gathered ahead"},
                  {any,
                   [](const Plan& p) { return p.holds_shards() && !p.overlap_parameter_gather; },
                   "overlap.parameter_gather is false: nothing is gathered ahead"}}}},
    PlanRow{
        .key = {.name = "runtime",
                .types = kString,
                .later = kRuntimeLater,
                .searchable = true,
                .about = "whose memory and kernels are predicted: a profile, or a file "
                         "FILE.json"},
        .run = said(R"(null | "rehearse")", R"("megatron")", "the runtime of a run is rehearse"),
        .field = &Plan::runtime,
        .text = [](const Plan& p) { return json_quoted(p.runtime.name); }},
};

// What a plan says of its runtime's traits.
constexpr std::size_t kTraitsOfPlan =
    std::ranges::count_if(kTraitRows, [](const TraitRow& row) { return row.of_plan; });
constexpr auto kPlanKeys = [] {
  std::array<KeySpec, kPlanRows.size() + kTraitsOfPlan> keys;
  auto end = std::ranges::transform(kPlanRows, keys.begin(), &PlanRow::key).out;
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

constinit const KeyTable kPlan{.title = "plan", .keys = kPlanKeys, .later = kPlanLater};

}  // namespace keys

const KeyTable& plan_key_table() {
  return keys::kPlan;
}

std::span<const PlanRow> plan_rows() {
  return keys::kPlanRows;
}

}  // namespace rehearse
