// SPDX-License-Identifier: Apache-2.0
// A small model trained for a few steps in any layout: what the executor's tests compare.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "exec/cpu/cpu_backend.h"
#include "exec/train/train.h"
#include "exec/weights/initial.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/scenario.h"

namespace rehearse::exec {

// LlamaOneHead: one key/value head, and biases.
enum class Family { Gpt2, Gpt2Untied, Llama, Qwen2, LlamaOneHead };

inline std::string model_text(Family family) {
  const std::string sizes = R"("num_hidden_layers": 8, "hidden_size": 32, "num_attention_heads": 4,
      "vocab_size": 61, "max_position_embeddings": 16)";
  if (family == Family::Llama || family == Family::Qwen2) {
    return std::string(R"({"model_type": ")") + (family == Family::Llama ? "llama" : "qwen2") +
           R"(", "intermediate_size": 48, "num_key_value_heads": 2, )" + sizes + "}";
  }
  if (family == Family::LlamaOneHead) {
    return R"({"model_type": "llama", "intermediate_size": 48, "num_key_value_heads": 1, "attention_bias": true, )" +
           sizes + "}";
  }
  return R"({"model_type": "gpt2", "resid_pdrop": 0, )" + sizes +
         (family == Family::Gpt2Untied ? R"(, "tie_word_embeddings": false})" : "}");
}

// 8 samples of 16 tokens per step. AdamW with a large epsilon: with the usual 1e-8 an element whose
// gradient is rounding noise (a key's bias: softmax does not see it) takes steps as long as any
// other, and two orders of summation part for good.
inline Result<Scenario> layout_scenario(const std::string& model,
                                        const std::vector<std::string>& plan,
                                        const std::string& cluster = {}) {
  const std::string on = cluster.empty() ? "" : R"("cluster": ")" + cluster + R"(", )";
  const std::string text = R"({"name": "matrix", )" + on + R"("model": )" + model + R"(,
    "plan": {"micro_batch": 1, "global_batch": 8, "sequence_length": 16, "precision": "fp32"},
    "train": {"steps": 4, "learning_rate": 0.01, "epsilon": 0.01, "clip_norm": 1.0, "seed": 7}})";
  ScenarioOptions options{.runtime = "rehearse", .needs_cluster = !cluster.empty()};
  if (!cluster.empty()) options.gpus = layout_scenario(model, plan).value().plan.gpus();
  for (const std::string& key : plan) options.overrides.push_back("plan." + key);
  return parse_scenario(text, "matrix", 0, options);
}

inline Result<Scenario> layout_scenario(Family family, const std::vector<std::string>& plan) {
  return layout_scenario(model_text(family), plan);
}

struct Trained {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> weights;
  std::vector<std::int64_t> planned, counted, arena;  // per row [B]
  std::string error;
};

// Makes another order of the plan's.
using ChangeOrder = std::function<Schedule(const Schedule&)>;

// REQUIRES: `run` performs the model in that layout. num_steps: 0: the scenario's. begin_scale: of
// a loss in fp16; 0: the rule's.
inline Trained train_layout(const std::string& model_file,
                            const std::vector<std::string>& plan_keys, int workers = 1,
                            std::int64_t num_steps = 0, double begin_scale = 0,
                            const ChangeOrder& change = {}) {
  Trained out;
  const auto fail = [&out](const Error& error) {
    out.error = error.message;
    return out;
  };
  const Result<Scenario> scenario = layout_scenario(model_file, plan_keys);
  if (!scenario) return fail(scenario.error());
  if (!scenario.value().unperformed.empty()) {
    return fail(not_performed(scenario.value().unperformed));
  }
  const Transformer& model = scenario.value().model;
  Plan plan = scenario.value().plan;
  const Result<Schedule> order = order_of(model, plan);
  if (!order) return fail(order.error());
  const Result<Schedule> lowered =
      change ? lower(change(order.value()), {model, plan}) : lower_for_run(model, plan);
  if (!lowered) return fail(lowered.error());
  const Schedule& schedule = lowered.value();
  const Backend backend = make_cpu_backend(element_of(plan.precision.compute));
  const Result<std::unique_ptr<Interpreter>> made =
      Interpreter::create({model, plan}, schedule, backend, {.workers = workers});
  if (!made) return fail(made.error());
  Interpreter& process = *made.value();
  TrainOptions options = scenario.value().train;
  if (num_steps > 0) options.steps = num_steps;
  process.initialise(initial_values(model, options.seed));
  const Result<Data> data = Data::open("synthetic", model.vocabulary, options.seed);
  if (!data) return fail(data.error());
  const Result<std::vector<StepReport>> steps =
      train(process, plan, options, data.value(), nullptr, {.scale = {.scale = begin_scale}});
  if (!steps) return fail(steps.error());
  for (const StepReport& step : steps.value()) {
    out.losses.push_back(step.loss);
    out.norms.push_back(step.grad_norm);
  }
  for (const TensorPlace& place : process.places()) out.weights.try_emplace(place.name);
  for (auto& [name, values] : out.weights) values = process.parameter(name);
  for (std::int32_t row = 0; row < schedule.num_rows(); ++row) {
    const auto r = static_cast<std::size_t>(row);
    out.planned.push_back(schedule.live_peak_bytes[r].value);
    out.counted.push_back(process.peak_bytes({row}));
    out.arena.push_back(schedule.arena_bytes[r].value);
  }
  return out;
}

inline Trained train_layout(Family family, const std::vector<std::string>& plan_keys,
                            int workers = 1, std::int64_t num_steps = 0, double begin_scale = 0) {
  return train_layout(model_text(family), plan_keys, workers, num_steps, begin_scale);
}

// Greatest distances, relative: of a loss, of a norm, and of a tensor in the Euclidean norm.
struct Distance {
  double loss = 0, norm = 0, weight = 0;
  std::string tensor;  // the one with the greatest distance
  bool bitwise = true;
};

inline Distance distance(const Trained& a, const Trained& b) {
  Distance out;
  EXPECT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < std::min(a.losses.size(), b.losses.size()); ++i) {
    out.loss = std::max(out.loss, std::fabs(a.losses[i] / b.losses[i] - 1));
    out.norm = std::max(out.norm, std::fabs(a.norms[i] / b.norms[i] - 1));
  }
  out.bitwise = a.losses == b.losses && a.norms == b.norms && a.weights == b.weights;
  EXPECT_EQ(a.weights.size(), b.weights.size());
  for (const auto& [name, values] : a.weights) {
    const auto other = b.weights.find(name);
    if (other == b.weights.end() || other->second.size() != values.size()) {
      ADD_FAILURE() << name << " has another shape";
      continue;
    }
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double delta = static_cast<double>(values[i]) - static_cast<double>(other->second[i]);
      difference += delta * delta;
      size += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    const double relative = std::sqrt(difference / std::max(size, 1e-30));
    if (relative > out.weight) {
      out.weight = relative;
      out.tensor = name;
    }
  }
  return out;
}

}  // namespace rehearse::exec
