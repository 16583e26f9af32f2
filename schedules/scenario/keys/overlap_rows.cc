// SPDX-License-Identifier: Apache-2.0
// The members of `plan.overlap`: what of the communication is hidden, a row each.
#include <algorithm>
#include <array>

#include "schedules/order/registry.h"
#include "schedules/scenario/keys/key_specs.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/keys/row_words.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse {
namespace keys {
namespace {

constexpr std::array<std::string_view, 2> kExpertOverlaps{"shared", "pair"};

constexpr std::array kOverlapRows{
    PlanRow{.key = flag("gradient_reduce", "gradient reduction runs with the last backward"),
            .object = kOverlapKey,
            .field = &Plan::overlap_gradient_reduce,
            .idle = {{{on, one_replica, "no gradients are reduced: there is one replica"},
                      {on, [](const Plan& p) { return p.has_parameter_server(); },
                       "gradients go to one GPU behind the whole backward"}}}},
    PlanRow{.key = flag("parameter_gather",
                        "parameters are gathered with the next forward (ZeRO-3: layer before)"),
            .object = kOverlapKey,
            .field = &Plan::overlap_parameter_gather,
            .idle = {{{on, one_replica, "no parameters are gathered: there is one replica"},
                      {on, [](const Plan& p) { return !one_replica(p) && unsharded(p); },
                       "no parameters are gathered: zero_stage is 0"}}}},
    PlanRow{.key = flag("tensor_parallel",
                        "false: nothing hidden; true: chunked; left out: as the runtime does"),
            .object = kOverlapKey,
            .field = &Plan::overlap_tensor_parallel,
            .text = [](const Plan& p) -> std::string {
              if (p.overlap_tensor_parallel == TensorOverlap::Default) return "null";
              return json_bool(p.overlap_tensor_parallel == TensorOverlap::Chunked);
            },
            .idle = {{{on, no_tensor_parallel, "no collectives to hide: tensor_parallel is 1"}}}},
    PlanRow{.key = {.name = "tensor_parallel_chunks",
                    .types = kInteger,
                    .min = 2,
                    .max = 1024,
                    .searchable = true,
                    .about = "pieces of a product and its collective with tensor_parallel true"},
            .object = kOverlapKey,
            .field = &Plan::tensor_parallel_chunks,
            .text = [](const Plan& p) -> std::string {
              const bool cut = p.overlap_tensor_parallel == TensorOverlap::Chunked;
              return cut ? number(p.tensor_parallel_chunks) : "";
            },
            .idle = {{{any, not_chunked,
                       "nothing is cut in pieces: overlap.tensor_parallel is not true"},
                      {any, no_tensor_parallel, "no collectives to hide: tensor_parallel is 1"}}}},
    PlanRow{.key = {.name = "expert_parallel",
                    .types = kBool | kString,
                    .choices = kExpertOverlaps,
                    .about = "what hides dispatch and combine: false, \"shared\" (the shared "
                             "expert), or \"pair\" (the backward of another micro-batch)"},
            .object = kOverlapKey,
            .field = &Plan::overlap_expert_parallel,
            .text =
                [](const Plan& p) {
                  return p.overlap_expert_parallel == ExpertOverlap::None
                             ? json_bool(false)
                             : json_quoted(name_of(p.overlap_expert_parallel));
                },
            .of_experts = true},
    PlanRow{.key = choice("pair", kPairOverlapNames,
                          "pairs of dualpipe and dualpipev: side by side whole, the exchanges of "
                          "experts alone, or nothing"),
            .object = kOverlapKey,
            .field = &Plan::overlap_pair,
            .text = [](const Plan& p) -> std::string {
              const bool said =
                  find_schedule(p.schedule) != nullptr || p.overlap_pair != PairOverlap::Full;
              return has_pairs(p) && said ? json_quoted(name_of(p.overlap_pair)) : "";
            },
            .idle = {{{any, [](const Plan& p) { return !has_pairs(p); },
                       "the schedule has no pairs: dualpipe and dualpipev have"}}}},
    PlanRow{
        .key = flag("pipeline",
                    "transfers between stages run beside compute; false: compute waits for them"),
        .run = priced("null | true", "false", "compute that waits for transfers is priced"),
        .object = kOverlapKey,
        .field = &Plan::overlap_pipeline,
        .text = [](const Plan& p) -> std::string {
          const PipelineOverlap overlap = p.runtime.overlap_pipeline;
          if (overlap == PipelineOverlap::Interleaved) return "null";
          return json_bool(overlap == PipelineOverlap::Always);
        }},
};
constexpr auto kOverlapKeys = [] {
  std::array<KeySpec, kOverlapRows.size()> keys;
  std::ranges::transform(kOverlapRows, keys.begin(), &PlanRow::key);
  return keys;
}();

}  // namespace

constinit const KeyTable kOverlap{.title = kOverlapKey, .keys = kOverlapKeys};

}  // namespace keys

std::span<const PlanRow> overlap_rows() {
  return keys::kOverlapRows;
}

}  // namespace rehearse
