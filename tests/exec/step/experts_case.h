// SPDX-License-Identifier: Apache-2.0
// The tiny models with experts of tests/data/golden/experts, trained in any layout.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "exec/cpu/cpu_backend.h"
#include "exec/step/interpreter.h"
#include "exec/train/data.h"
#include "exec/train/train.h"
#include "exec/weights/hugging_face.h"
#include "schedules/base/random.h"
#include "schedules/scenario/scenario.h"

namespace rehearse::exec {

using Json = nlohmann::json;

inline const Json& golden() {
  static const Json json = [] {
    std::ifstream in("tests/data/golden/experts/golden.json");
    return Json::parse(in);
  }();
  return json;
}

inline std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

// The README's formula, by the names of published checkpoints: a tensor for every expert.
inline double formula_weight(const std::string& name, std::int64_t i, std::int64_t layers) {
  const double u =
      static_cast<double>(split_mix(fnv1a(name), static_cast<std::uint64_t>(i)) >> 40) / 16777216.0;
  double base = 0, spread = 0.1 * std::sqrt(3.0);
  if (name.find("norm") != std::string::npos) {
    base = 1;
    spread = 0.05;
  } else if (name.ends_with("e_score_correction_bias")) {
    spread = 0.05;
  } else if (name.ends_with(".gate.weight")) {
    spread = 0.3 * std::sqrt(3.0);
  } else if (name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") ||
             name.ends_with("w2.weight")) {
    spread = 0.1 * std::sqrt(3.0) / std::sqrt(2.0 * static_cast<double>(layers));
  }
  return static_cast<float>(base + (2 * u - 1) * spread);
}

inline std::vector<std::int32_t> formula_tokens(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto h =
        static_cast<std::int64_t>(split_mix(20240607, static_cast<std::uint64_t>(i)) >> 33);
    tokens.push_back(static_cast<std::int32_t>(
        ((h % 16) * (vocabulary / 16) + i % (vocabulary / 16)) % vocabulary));
  }
  return tokens;
}

struct TinyRun {
  std::vector<double> losses, norms;
  std::vector<std::vector<std::int64_t>> rows, dropped;  // by step: (layers, experts)
  std::vector<std::vector<float>> corrections;           // behind each step, likewise
  std::map<std::string, std::vector<float>> weights;
  std::vector<std::int64_t> planned, counted;
  std::string error;
  bool diverged = false;
};

// `keys` of the plan, or "train.": over the golden's. `changed`: keys of the model's file.
struct TinyOptions {
  int workers = 1;
  Json changed = Json::object();
  std::function<Backend()> backend = [] { return make_cpu_backend(); };
};
inline TinyRun train_tiny(const std::string& name, const std::vector<std::string>& keys,
                          const TinyOptions& how = {}) {
  TinyRun out;
  const auto fail = [&out](const Error& error) {
    out.error = error.message;
    out.diverged = error.infeasible;
    return out;
  };
  const Json& json = golden();
  const std::int64_t steps = json["steps"], batch = json["batch"], length = json["length"];
  Json config = json["models"][name]["config"];
  config.update(how.changed);
  const std::string text =
      R"({"name": "experts", "model": )" + config.dump() +
      R"(, "plan": {"global_batch": 4, "sequence_length": 16, "precision": "fp32"},
         "train": {"steps": 8, "learning_rate": 1e-3, "weight_decay": 0.1, "clip_norm": 0}})";
  ScenarioOptions options{.runtime = "rehearse", .needs_cluster = false};
  for (const std::string& key : keys) {
    options.overrides.push_back(key.starts_with("train.") ? key : "plan." + key);
  }
  const Result<Scenario> scenario = parse_scenario(text, "experts", 0, options);
  if (!scenario) return fail(scenario.error());
  const Transformer& model = scenario.value().model;
  Plan plan = scenario.value().plan;
  const Result<Schedule> lowered = lower_for_run(model, plan);
  if (!lowered) return fail(lowered.error());
  const Backend backend = how.backend();
  const Layout layout(model, plan);
  auto made = Interpreter::create(layout, lowered.value(), backend, {.workers = how.workers});
  if (!made) return fail(made.error());
  Interpreter& process = *made.value();
  std::map<std::string, std::vector<FileTensor>> files;
  for (const TensorPlace& place : process.places()) {
    files.try_emplace(place.name, file_tensors(layout, place));
  }
  std::map<std::string, std::vector<FileTensor>> all = files;
  for (const CorrectionTensor& tensor : correction_tensors(model)) {
    all[tensor.name] = {{.name = tensor.name, .rows = model.experts.count}};
  }
  process.initialise([&](const std::string& of, std::int64_t element) {
    for (const FileTensor& file : all.at(of)) {
      const std::int64_t i = element - file.row_begin * file.cols;
      if (i < file.rows * file.cols) return formula_weight(file.name, i, model.layers);
    }
    ADD_FAILURE() << of << " has no element " << element;
    return 0.0;
  });
  const Data data = Data::of_tokens(formula_tokens(steps * batch * (length + 1), model.vocabulary));
  const auto after = [&](const StepReport& step) -> Result<AfterStep> {
    out.losses.push_back(step.loss);
    out.norms.push_back(step.grad_norm);
    out.rows.push_back(step.expert_rows);
    out.dropped.push_back(step.expert_dropped);
    out.corrections.push_back(process.correction());
    return AfterStep{};
  };
  const auto trained = train(process, plan, scenario.value().train, data, after);
  if (!trained) return fail(trained.error());
  for (const auto& [of, file] : files) out.weights[of] = process.parameter(of);
  for (std::int32_t row = 0; row < lowered.value().num_rows(); ++row) {
    out.planned.push_back(lowered.value().live_peak_bytes[static_cast<std::size_t>(row)].value);
    out.counted.push_back(process.peak_bytes({row}));
  }
  return out;
}

// Layouts of three layers, from one rank to every kind of splitting at once.
inline const std::vector<std::vector<std::string>>& expert_layouts() {
  static const std::vector<std::vector<std::string>> layouts = {
      {"micro_batch=4"},
      {"micro_batch=1"},
      {"micro_batch=2", "recompute=full"},
      {"micro_batch=2", "recompute=selective"},
      {"micro_batch=1", "pipeline_parallel=3"},
      {"micro_batch=1", "pipeline_parallel=3", "schedule=zb_h1", "recompute=full"},
      {"micro_batch=2", "data_parallel=2"},
      {"micro_batch=1", "data_parallel=4", "zero_stage=3"},
      {"micro_batch=2", "data_parallel=2", "expert_parallel=2", "zero_stage=1"},
      {"micro_batch=1", "data_parallel=4", "expert_parallel=2", "zero_stage=2"},
      {"micro_batch=1", "data_parallel=4", "expert_parallel=4", "zero_stage=3"},
      {"micro_batch=1", "data_parallel=4", "expert_parallel=4", "expert_dispatch=all_gather"},
      {"micro_batch=2", "tensor_parallel=2"},
      {"micro_batch=2", "tensor_parallel=2", "sequence_parallel=true"},
      {"micro_batch=2", "tensor_parallel=2", "sequence_parallel=true", "expert_parallel=2",
       "recompute=full"},
      {"micro_batch=2", "context_parallel=2", "expert_parallel=2"},
      {"micro_batch=1", "data_parallel=2", "expert_tensor_parallel=2"},
      {"micro_batch=1", "data_parallel=2", "expert_parallel=2", "offload=optimizer",
       "zero_stage=1"},
      {"micro_batch=1", "tensor_parallel=2", "sequence_parallel=true", "data_parallel=2",
       "pipeline_parallel=3", "expert_parallel=2", "zero_stage=1", "schedule=zb_h1"}};
  return layouts;
}

// The largest relative difference between numbers of the same steps; NaN where one is no number.
inline double furthest(const std::vector<double>& run, const std::vector<double>& other) {
  EXPECT_EQ(run.size(), other.size());
  double far = 0;
  for (std::size_t step = 0; step < std::min(run.size(), other.size()); ++step) {
    const double off = std::abs(run[step] / other[step] - 1);
    if (std::isnan(off)) return off;
    far = std::max(far, off);
  }
  return far;
}

// Losses and norms are PyTorch's in fp64; memory is as planned.
inline void expect_numbers(const TinyRun& run, const Json& f64, const std::string& what) {
  const double loss = furthest(run.losses, f64["loss"]),
               norm = furthest(run.norms, f64["grad_norm"]);
  EXPECT_LE(loss, 2e-6);
  EXPECT_LE(norm, 2e-5);
  EXPECT_EQ(run.planned, run.counted);
  std::printf("%s: losses within %.1e, norms %.1e\n", what.c_str(), loss, norm);
}

// The same run in another layout: the same experts are chosen, and sums have another order.
inline void expect_same(const TinyRun& many, const TinyRun& one) {
  ASSERT_EQ(many.error, "");
  EXPECT_EQ(many.rows, one.rows);
  EXPECT_EQ(many.dropped, one.dropped);
  EXPECT_EQ(many.corrections, one.corrections);
  EXPECT_EQ(many.planned, many.counted);
  EXPECT_LE(furthest(many.losses, one.losses), 1e-6);
  EXPECT_LE(furthest(many.norms, one.norms), 1e-5);
}

// Numbers and the rows of every expert are PyTorch's.
inline void expect_golden(const std::string& name, const std::string& variant, const TinyRun& run) {
  ASSERT_EQ(run.error, "");
  const Json& of = golden()["models"][name]["variants"][variant];
  ASSERT_EQ(run.losses.size(), of["f64"]["loss"].size());
  const auto dense =
      golden()["models"][name]["config"].value<std::size_t>("first_k_dense_replace", 0);
  for (std::size_t step = 0; step < run.losses.size(); ++step) {
    std::vector<std::int64_t> counts(dense * of["tokens_per_expert"][step][0].size());
    for (const Json& layer : of["tokens_per_expert"][step]) {
      for (const Json& count : layer) counts.push_back(count);
    }
    EXPECT_EQ(run.rows[step], counts) << "step " << step;
  }
  expect_numbers(run, of["f64"], name + " " + variant);
}

}  // namespace rehearse::exec
