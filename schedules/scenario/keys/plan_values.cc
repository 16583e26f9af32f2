// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/keys/plan_values.h"

#include <cstdint>
#include <string_view>

#include "schedules/base/json_reader.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/keys/precision_rows.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse::plan_values {
namespace {

// Prediction layers can only be placed by a layout. Their number is the model's.
std::string layout(const Plan& plan) {
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

// An object on one line.
class Object {
 public:
  void add(std::string_view key, const std::string& value) {
    text_ += (text_.empty() ? "{" : ", ") + json_quoted(key) + ": " + value;
  }
  std::string take() const { return text_ + "}"; }

 private:
  std::string text_;
};

}  // namespace

std::string stage_layers(const Plan& plan) {
  if (plan.stage_layers.empty()) return "null";
  if (plan.prediction_stage >= 0) return json_quoted(layout(plan));
  std::string text = "[";
  for (const std::int32_t layers : plan.stage_layers) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(layers);
  }
  return text + "]";
}

std::string tensor_grid(const Plan& plan) {
  const TensorGrid& grid = plan.tensor_parallel_2d;
  if (!grid.any()) return {};
  return "[" + std::to_string(grid.rows) + ", " + std::to_string(grid.columns) + "]";
}

std::string document_length(const Plan& plan) {
  if (plan.document_length <= 0) return {};
  if (plan.document_maximum <= 0) return json_number(plan.document_length);
  Object object;
  object.add("mean", json_number(plan.document_length));
  object.add("maximum", std::to_string(plan.document_maximum));
  return object.take();
}

std::string rank_order(const Plan& plan) {
  std::string text;
  for (const Axis axis : plan.rank_order) {
    text += (text.empty() ? "" : "-") + std::string(name_of(axis));
  }
  return json_quoted(text);
}

std::string precision(const Plan& plan) {
  const Precision& precision = plan.precision;
  if (precision.name != "custom") return json_quoted(precision.name);
  Object object;
  for (const PrecisionRow& row : precision_rows()) {
    object.add(row.key.name, row.bytes != nullptr ? std::to_string(precision.*row.bytes)
                                                  : json_quoted(name_of(precision.compute)));
  }
  return object.take();
}

std::string expert_routing(const Plan& plan) {
  if (plan.expert_routing == ExpertRouting::Factor) return json_number(plan.expert_factor);
  if (plan.expert_routing == ExpertRouting::Measured) {
    return json_quoted("file:" + plan.expert_measured.path);
  }
  return json_quoted(kExpertRoutingNames[static_cast<std::size_t>(plan.expert_routing)]);
}

std::string expert_capacity(const Plan& plan) {
  if (plan.expert_drop > 0) return "{\"drop\": " + json_number(plan.expert_drop) + "}";
  return plan.expert_capacity > 0 ? json_number(plan.expert_capacity) : "null";
}

// Rates that differ by place are the model file's, and stay there; an open one is the framework's.
std::string dropout(const Plan& plan) {
  const DropoutRates& rates = plan.dropouts;
  const bool one = rates.attention == rates.residual && rates.embedding == rates.residual;
  return one && rates.residual >= 0 ? json_number(plan.dropout) : std::string();
}

std::string overlap(const Plan& plan) {
  Object object;
  for (const PlanRow& row : overlap_rows()) {
    const std::string value = value_json(row, plan);
    if (!value.empty()) object.add(row.key.name, value);
  }
  return object.take();
}

}  // namespace rehearse::plan_values
