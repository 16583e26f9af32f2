// SPDX-License-Identifier: Apache-2.0
// What communication runs beside compute, in which portions.
#include <algorithm>

#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/reader/given_keys.h"
#include "schedules/scenario/reader/plan_steps.h"
#include "schedules/scenario/scenario.h"

namespace rehearse {

bool overlaps_transfers(const Plan& plan) {
  const PipelineOverlap overlap = plan.runtime.overlap_pipeline;
  return overlap == PipelineOverlap::Always ||
         (overlap == PipelineOverlap::Interleaved && plan.virtual_stages > 1);
}

void settle_transfers(Plan& plan) {
  plan.overlap_pipeline = overlaps_transfers(plan);
  if (!plan.transfers_open) return;
  plan.transfers = plan.overlap_pipeline           ? TransferForm::TimeSorted
                   : plan.runtime.serial_transfers ? TransferForm::Serial
                                                   : TransferForm::Grouped;
}

namespace {

// A form that the plan names decides whether transfers run beside compute, where that is not said.
// False: it contradicts what is.
bool take_transfers(const GivenKeys& keys, Plan& plan) {
  if (keys.given(&Plan::transfers) == nullptr) return true;
  plan.transfers_open = false;
  const RuntimeTraits& traits = plan.runtime;
  const std::string form(name_of(plan.transfers));
  if (plan.transfers == TransferForm::Serial && traits.performer().fixed_traits) {
    const std::string why = "in runtime " + traits.name + " no compute waits for a transfer";
    if (keys.names_runtime()) {
      keys.fail(&Plan::transfers, why + ", as it would for " + form + " ones");
      return false;
    }
    keys.warnings.push_back("plan." + path_of(&Plan::transfers) + ' ' + form +
                            " is left out: " + why);
    plan.transfers_open = true;
    return true;
  }
  if (plan.transfers == TransferForm::Grouped) return true;
  const bool beside = plan.transfers != TransferForm::Serial;
  const JsonValue* pipeline = keys.given(&Plan::overlap_pipeline);
  if ((beside && traits.synchronous_launch) ||
      (pipeline != nullptr && pipeline->boolean != beside)) {
    keys.fail(
        &Plan::transfers,
        form + (beside ? " is an order beside compute, which " : " keeps compute waiting, which ") +
            (beside && traits.synchronous_launch ? "synchronous_launch excludes"
                                                 : path_of(&Plan::overlap_pipeline) + " excludes"));
    return false;
  }
  plan.runtime.overlap_pipeline = beside ? PipelineOverlap::Always : PipelineOverlap::Never;
  return true;
}

// Pieces of rows are whole rows of every rank's shard; user buffers are those of sharded sequences.
void check_pieces(const GivenKeys& keys, const Plan& plan) {
  if (plan.overlap_tensor_parallel != TensorOverlap::Chunked || plan.tensor_parallel == 1) return;
  if (plan.runtime.tensor_pieces == TensorPieces::UserBuffers) {
    if (plan.sequence_parallel) return;
    return keys.fail(&Plan::overlap_tensor_parallel,
                     "true needs " + path_of(&Plan::sequence_parallel) + " in runtime " +
                         plan.runtime.name + ": its user buffers gather and scatter shards of it");
  }
  const std::int64_t tokens = (plan.micro_batch_auto ? 1 : plan.micro_batch) *
                              plan.sequence_length / plan.context_parallel / plan.sequence_slices;
  const std::int64_t rows = plan.sequence_parallel ? tokens / plan.tensor_parallel : tokens;
  if (rows % plan.tensor_parallel_chunks == 0) return;
  keys.fail(&Plan::tensor_parallel_chunks, std::to_string(plan.tensor_parallel_chunks) +
                                               " pieces do not divide the " + std::to_string(rows) +
                                               " rows of a micro-batch" +
                                               (plan.sequence_parallel ? " on a rank" : ""));
}

// What runs side by side in a pair.
void read_pairs(const GivenKeys& keys, Plan& plan) {
  const JsonValue* given = keys.given(&Plan::overlap_pair);
  if (plan.runtime.synchronous_launch) {
    plan.overlap_pair = PairOverlap::None;
    if (given == nullptr || given->text == name_of(PairOverlap::None)) return;
    return keys.fail(&Plan::overlap_pair,
                     given->text + ": nothing overlaps under synchronous_launch; leave one out");
  }
  plan.overlap_pair = plan.runtime.overlap_pair;
  if (given != nullptr) {
    const auto word = std::ranges::find(kPairOverlapNames, given->text);
    plan.overlap_pair = static_cast<PairOverlap>(word - kPairOverlapNames.begin());
  }
  const JsonValue* experts = keys.given(&Plan::overlap_expert_parallel);
  if (plan.overlap_pair != PairOverlap::None || experts == nullptr ||
      experts->text != name_of(ExpertOverlap::Pair)) {
    return;
  }
  keys.fail(&Plan::overlap_pair,
            "none: " + path_of(&Plan::overlap_expert_parallel) + " asks for pairs that overlap");
}

}  // namespace

void read_overlap(const GivenKeys& keys, Plan& plan) {
  const bool sharded = plan.zero_stage == 3;
  const RuntimeTraits& traits = plan.runtime;
  plan.overlap_gradient_reduce = keys.flag(&Plan::overlap_gradient_reduce, sharded);
  plan.overlap_parameter_gather = keys.flag(&Plan::overlap_parameter_gather, sharded);
  plan.overlap_tensor_parallel =
      traits.overlap_tensor_parallel ? TensorOverlap::Default : TensorOverlap::Off;
  if (const JsonValue* pipeline = keys.given(&Plan::overlap_pipeline)) {
    plan.runtime.overlap_pipeline =
        pipeline->boolean ? PipelineOverlap::Always : PipelineOverlap::Never;
  }
  if (!take_transfers(keys, plan)) return;
  if (const JsonValue* tensor = keys.given(&Plan::overlap_tensor_parallel)) {
    plan.overlap_tensor_parallel = tensor->boolean ? TensorOverlap::Chunked : TensorOverlap::Off;
  }
  if (traits.synchronous_launch) {  // nothing runs beside anything
    for (const PlanField& key :
         {PlanField(&Plan::overlap_gradient_reduce), PlanField(&Plan::overlap_parameter_gather),
          PlanField(&Plan::overlap_tensor_parallel), PlanField(&Plan::overlap_pipeline)}) {
      if (!keys.flag(key, false)) continue;
      return keys.fail(key, "nothing overlaps under synchronous_launch; leave one out");
    }
    plan.overlap_gradient_reduce = plan.overlap_parameter_gather = false;
    plan.runtime.overlap_pipeline = PipelineOverlap::Never;
    plan.overlap_tensor_parallel = TensorOverlap::Off;
  }
  if (traits.performer().fixed_traits && traits.overlap_pipeline != PipelineOverlap::Always) {
    if (keys.names_runtime()) {
      return keys.fail(&Plan::overlap_pipeline,
                       "runtime " + traits.name + " has true alone, not false");
    }
    keys.warnings.push_back(path_of(&Plan::overlap_pipeline) + " false is left out: runtime " +
                            traits.name + " has true alone");
    plan.runtime.overlap_pipeline = PipelineOverlap::Always;
  }
  settle_transfers(plan);
  read_pairs(keys, plan);
  plan.tensor_parallel_chunks = static_cast<std::int32_t>(
      keys.integer(&Plan::tensor_parallel_chunks, plan.tensor_parallel_chunks));
  check_pieces(keys, plan);
  plan.bucket_bytes = keys.integer(&Plan::bucket_bytes, default_bucket_bytes(plan));
}

}  // namespace rehearse
