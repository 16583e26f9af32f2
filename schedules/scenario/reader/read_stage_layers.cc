// SPDX-License-Identifier: Apache-2.0
// How the layers lie on the stages.
#include "schedules/base/counted.h"
#include "schedules/order/registry.h"
#include "schedules/scenario/reader/given_keys.h"
#include "schedules/scenario/reader/plan_steps.h"
#include "schedules/scenario/stage_layers.h"

namespace rehearse {
namespace {

// Where a layout says nothing of prediction layers they stand before the head.
void place_predictions(const GivenKeys& keys, Plan& plan, const StageLayout& layout) {
  const std::int64_t layers = keys.context.model->prediction_layers;
  if (layout.prediction_layers == 0) return;
  if (layout.prediction_layers != layers) {
    return keys.fail(
        &Plan::stage_layers,
        number(layout.prediction_layers) + " m, but num_nextn_predict_layers is " + number(layers));
  }
  if (layout.prediction_stage + 1 < static_cast<std::int32_t>(plan.stage_layers.size())) {
    plan.prediction_stage = layout.prediction_stage;
    plan.prediction_layers = layout.prediction_layers;
  }
}

}  // namespace

void read_stage_layers(const GivenKeys& keys, Plan& plan) {
  if (keys.context.model == nullptr) return;
  const auto l = static_cast<std::int32_t>(keys.context.model->layers);
  const ScheduleInfo* info = find_schedule(plan.schedule);
  const bool own = info == nullptr;  // file:PATH: the file says how many stages there are
  const std::int32_t p = plan.pipeline_parallel;
  const bool one_each =
      !own && (info->chunks == ChunkRule::One || info->chunks == ChunkRule::Bidirectional);
  const std::int64_t chunks = one_each ? p : std::int64_t{p} * plan.virtual_stages;
  if (chunks > l + 2) {
    const bool by_chunks = plan.virtual_stages > 1 && keys.given(&Plan::virtual_stages) != nullptr;
    return keys.fail(
        by_chunks ? &Plan::virtual_stages : &Plan::pipeline_parallel,
        number(chunks) + " chunks are more than the " + number(l) + " layers, embedding and head");
  }
  const JsonValue* layers = keys.given(&Plan::stage_layers);
  if (layers == nullptr) {
    if (!own) plan.stage_layers = default_stage_layers(l, static_cast<std::int32_t>(chunks));
    return;
  }
  if (layers->is(JsonKind::String)) {
    Result<StageLayout> parsed = parse_layout(layers->text);
    if (!parsed) return keys.fail(&Plan::stage_layers, parsed.error().message);
    plan.stage_layers = std::move(parsed.value().layers);
    place_predictions(keys, plan, parsed.value());
  } else {
    for (const JsonValue& item : layers->items) {
      plan.stage_layers.push_back(static_cast<std::int32_t>(item.integer));
    }
  }
  const auto entries = static_cast<std::int64_t>(plan.stage_layers.size());
  if (!own && entries != chunks) {
    return keys.fail(&Plan::stage_layers, number(entries) + " entries, but the pipeline has " +
                                              counted(chunks, "chunk"));
  }
  std::int64_t sum = 0;
  for (const std::int32_t share : plan.stage_layers) sum += share;
  if (sum != l) {
    keys.fail(&Plan::stage_layers,
              "the entries add up to " + number(sum) + ", not to num_hidden_layers " + number(l));
  }
}

}  // namespace rehearse
