// SPDX-License-Identifier: Apache-2.0
// The plan as text, and what follows from it without a file.
#include "schedules/scenario/plan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "schedules/base/json_reader.h"
#include "schedules/order/registry.h"
#include "schedules/runtime/trait_rows.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/reader/plan_reader.h"
#include "schedules/scenario/recompute_parts.h"
#include "schedules/scenario/scenario.h"

namespace rehearse {
namespace {

// Writes an object line by line.
class ObjectText {
 public:
  ObjectText(int indent, int depth)
      : newline_(indent > 0 ? "\n" + std::string(static_cast<std::size_t>(indent * depth), ' ')
                            : ""),
        end_(indent > 0 ? "\n" + std::string(static_cast<std::size_t>(indent * (depth - 1)), ' ')
                        : ""),
        separator_(indent > 0 ? "," : ", ") {}

  void raw(std::string_view key, const std::string& value) {
    text_ += (text_.empty() ? "{" : separator_) + newline_ + json_quoted(key) + ": " + value;
  }
  void text(std::string_view key, std::string_view value) { raw(key, json_quoted(value)); }
  void integer(std::string_view key, std::int64_t value) { raw(key, std::to_string(value)); }
  void given(std::string_view key, std::int64_t value) {  // 0: left out
    raw(key, value == 0 ? "null" : std::to_string(value));
  }
  void flag(std::string_view key, bool value) { raw(key, value ? "true" : "false"); }
  std::string take() { return text_ + end_ + "}"; }

 private:
  std::string text_, newline_, end_, separator_;
};

// Prediction layers can only be placed by a layout. Their number is the model's.
std::string layout_text(const Plan& plan) {
  std::string text = "E";
  for (std::size_t chunk = 0; chunk < plan.stage_layers.size(); ++chunk) {
    if (chunk > 0) text += "|";
    if (const std::int32_t layers = plan.stage_layers[chunk]; layers > 0) {
      text += "t*" + std::to_string(layers);
    }
    if (static_cast<std::int32_t>(chunk) == plan.prediction_stage) {
      text += "m*" + std::to_string(plan.prediction_layers);
    }
  }
  return text + "L";
}

std::string layers_text(const Plan& plan) {
  if (plan.stage_layers.empty()) return "null";
  if (plan.prediction_stage >= 0) return json_quoted(layout_text(plan));
  std::string text = "[";
  for (const std::int32_t layers : plan.stage_layers) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(layers);
  }
  return text + "]";
}

std::string rank_order_text(const Plan& plan) {
  std::string text;
  for (const Axis axis : plan.rank_order) {
    text += (text.empty() ? "" : "-") + std::string(name_of(axis));
  }
  return text;
}

std::string precision_text(const Precision& precision) {
  if (precision.name != "custom") return json_quoted(precision.name);
  ObjectText object(0, 1);
  object.integer("parameters", precision.parameters);
  object.integer("gradients", precision.gradients);
  object.integer("optimizer", precision.optimizer);
  object.text("compute", name_of(precision.compute));
  return object.take();
}

std::string expert_routing_text(const Plan& plan) {
  if (plan.expert_routing == ExpertRouting::Factor) return json_number(plan.expert_factor);
  if (plan.expert_routing == ExpertRouting::Measured) {
    return json_quoted("file:" + plan.expert_measured.path);
  }
  return json_quoted(kExpertRoutingNames[static_cast<std::size_t>(plan.expert_routing)]);
}

std::string overlap_text(const Plan& plan) {
  ObjectText object(0, 1);
  object.flag("gradient_reduce", plan.overlap_gradient_reduce);
  object.flag("parameter_gather", plan.overlap_parameter_gather);
  object.raw("tensor_parallel", plan.overlap_tensor_parallel == TensorOverlap::Default ? "null"
                                : plan.overlap_tensor_parallel == TensorOverlap::Off   ? "false"
                                                                                       : "true");
  object.raw("expert_parallel", plan.overlap_expert_parallel == ExpertOverlap::None
                                    ? "false"
                                    : json_quoted(name_of(plan.overlap_expert_parallel)));
  const PipelineOverlap pipeline = plan.runtime.overlap_pipeline;
  object.raw("pipeline", pipeline == PipelineOverlap::Interleaved ? "null"
                         : pipeline == PipelineOverlap::Never     ? "false"
                                                                  : "true");
  return object.take();
}

std::string expert_capacity_text(const Plan& plan) {
  if (plan.expert_drop > 0) return "{\"drop\": " + json_number(plan.expert_drop) + "}";
  return plan.expert_capacity > 0 ? json_number(plan.expert_capacity) : "null";
}

}  // namespace

double Plan::attention_share() const {
  if (document_length <= 0) return 1;
  const double x = static_cast<double>(sequence_length) / document_length;
  if (x < 1e-3) return 1;
  return 2 * (x - 1 + std::exp(-x)) / (x * x);
}

std::string plan_json(const Plan& plan, int indent) {
  ObjectText object(indent, 1);
  object.integer("tensor_parallel", plan.tensor_parallel);
  object.integer("pipeline_parallel", plan.pipeline_parallel);
  object.integer("context_parallel", plan.context_parallel);
  object.integer("expert_parallel", plan.expert_parallel);
  object.integer("data_parallel", plan.data_parallel);
  object.integer("expert_tensor_parallel", plan.expert_tensor_parallel);
  object.text("expert_dispatch", name_of(plan.expert_dispatch));
  object.raw("expert_routing", expert_routing_text(plan));
  object.raw("expert_capacity", expert_capacity_text(plan));
  if (plan.expert_slots) object.flag("expert_slots", true);
  if (plan.fp8_dispatch) object.flag("fp8_dispatch", true);
  object.flag("sequence_parallel", plan.sequence_parallel);
  object.integer("zero_stage", plan.zero_stage);
  object.given("shard_group", plan.shard_group);
  object.text("data_parallel_algorithm", name_of(plan.data_parallel_algorithm));
  object.text("schedule", plan.schedule);
  object.integer("virtual_stages", plan.virtual_stages);
  object.raw("stage_layers", layers_text(plan));
  object.given("microbatch_group_size", plan.microbatch_group_size);
  object.integer("extra_warmup", plan.extra_warmup);
  object.integer("sequence_slices", plan.sequence_slices);
  object.raw("memory_limit", plan.memory_limit > 0 ? json_number(plan.memory_limit) : "null");
  object.raw("micro_batch", plan.micro_batch_auto ? "\"auto\"" : std::to_string(plan.micro_batch));
  object.integer("global_batch", plan.global_batch);
  object.given("sequence_length", plan.sequence_length);
  object.raw("recompute", recompute_json(plan));
  object.raw("precision", precision_text(plan.precision));
  object.text("optimizer", name_of(plan.optimizer));
  if (plan.document_length > 0) object.raw("document_length", json_number(plan.document_length));
  object.flag("flash_attention", plan.flash_attention);
  object.text("attention_kernel", name_of(plan.attention_kernel));
  // Rates that differ by place are the model file's, and stay there; an open one is the framework's.
  const DropoutRates& rates = plan.dropouts;
  const bool one = rates.attention == rates.residual && rates.embedding == rates.residual;
  if (one && rates.residual >= 0) object.raw("dropout", json_number(plan.dropout));
  object.integer("pad_vocabulary_to", plan.pad_vocabulary_to);
  object.text("offload", name_of(plan.offload));
  object.text("rank_order", rank_order_text(plan));
  object.raw("overlap", overlap_text(plan));
  object.given("bucket_bytes", plan.bucket_bytes);
  object.integer("prefetch", plan.prefetch);
  object.text("runtime", plan.runtime.name);
  for (const TraitRow& row : kTraitRows) {
    if (row.of_plan) object.raw(row.key.name, trait_json(row, plan.runtime));
  }
  return object.take();
}

// Megatron-LM's: max(40,000,000, 1,000,000 x d) gradients
// (megatron/core/distributed/distributed_data_parallel.py).
std::int64_t default_bucket_bytes(const Plan& plan) {
  const std::int64_t elements =
      std::max<std::int64_t>(40'000'000, std::int64_t{1'000'000} * plan.data_parallel);
  return plan.overlap_gradient_reduce ? elements * plan.precision.gradients : 0;
}

std::vector<std::int32_t> micro_batch_candidates(const Plan& plan) {
  constexpr std::int64_t kLargest = 1 << 24;  // what the key can say
  const std::int64_t samples = plan.global_batch / plan.data_parallel;
  std::vector<std::int32_t> small, large;
  for (std::int64_t i = 1; i * i <= samples; ++i) {
    if (samples % i != 0) continue;
    if (i <= kLargest) small.push_back(static_cast<std::int32_t>(i));
    const std::int64_t other = samples / i;
    if (other != i && other <= kLargest) large.push_back(static_cast<std::int32_t>(other));
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

Result<Plan> choose_micro_batch(const Plan& plan, std::int32_t micro_batch) {
  constexpr std::int64_t kMaxOps = 1LL << 28;  // of a schedule, after folding
  Plan chosen = plan;
  chosen.micro_batch = micro_batch;
  chosen.micro_batch_auto = false;
  const std::int64_t m = plan.global_batch / (std::int64_t{plan.data_parallel} * micro_batch);
  // Per micro-batch each chunk runs a forward and a backward, and each boundary between two has two
  // sends and two receives.
  const std::int64_t chunks = std::int64_t{plan.pipeline_parallel} * plan.virtual_stages;
  const std::int64_t per_microbatch = (2 * chunks + 4 * (chunks - 1)) * plan.sequence_slices;
  if (m > kMaxOps / per_microbatch) {
    return Error{"global_batch: " + std::to_string(m) +
                 " micro-batches make a schedule of more than 2^28 ops"};
  }
  const ScheduleInfo* info = find_schedule(plan.schedule);
  if (info == nullptr || plan.pipeline_parallel == 1) {
    chosen.microbatch_group_size = 0;
    return chosen;
  }
  Result<ScheduleShape> shape = resolve_shape(*info, {.positions = plan.pipeline_parallel,
                                                      .microbatches = static_cast<std::int32_t>(m),
                                                      .chunks = plan.virtual_stages,
                                                      .group_size = plan.microbatch_group_size,
                                                      .extra_warmup = plan.extra_warmup,
                                                      .slices = plan.sequence_slices,
                                                      .memory_limit = plan.memory_limit});
  if (shape) {
    chosen.microbatch_group_size = info->grouped ? shape.value().group_size : 0;
    return chosen;
  }
  // The registry names what the command line calls it; a plan has other words.
  constexpr std::array<std::array<std::string_view, 2>, 5> kWords{{
      {"stages", "pipeline_parallel"},
      {"microbatches", "global_batch"},
      {"chunks", "virtual_stages"},
      {"group_size", "microbatch_group_size"},
      {"slices", "sequence_slices"},
  }};
  std::string what = shape.error().message;
  for (const auto& [word, key] : kWords) {
    if (!what.starts_with(std::string(word) + ": ")) continue;
    what.replace(0, word.size(), key);
    break;
  }
  return Error{what};
}

}  // namespace rehearse
