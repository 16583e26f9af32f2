// SPDX-License-Identifier: Apache-2.0
// PyTorch's numbers of a tiny Mixtral (tests/data/golden/experts/README.md): eight AdamW steps in
// many layouts, with the rows of every expert counted.
//
// The smallest gap between a chosen and the next score is 1.7e-3 there, rounding errors are 1e-6:
// so every layout must choose the same experts in all steps.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/cpu/cpu_backend.h"
#include "exec/step/interpreter.h"
#include "exec/train/data.h"
#include "exec/train/train.h"
#include "exec/weights/hugging_face.h"
#include "schedules/base/random.h"
#include "schedules/scenario/scenario.h"

namespace rehearse::exec {
namespace {

using Json = nlohmann::json;

const Json& golden() {
  static const Json json = [] {
    std::ifstream in("tests/data/golden/experts/golden.json");
    return Json::parse(in);
  }();
  return json;
}

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

// The README's formula, by the names of published checkpoints: a tensor for every expert.
double formula_weight(const std::string& name, std::int64_t i, std::int64_t layers) {
  const double u =
      static_cast<double>(split_mix(fnv1a(name), static_cast<std::uint64_t>(i)) >> 40) / 16777216.0;
  double base = 0, spread = 0.1 * std::sqrt(3.0);
  if (name.find("norm") != std::string::npos) {
    base = 1;
    spread = 0.05;
  } else if (name.ends_with(".gate.weight")) {
    spread = 0.3 * std::sqrt(3.0);
  } else if (name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") ||
             name.ends_with("w2.weight")) {
    spread = 0.1 * std::sqrt(3.0) / std::sqrt(2.0 * static_cast<double>(layers));
  }
  return static_cast<float>(base + (2 * u - 1) * spread);
}

std::vector<std::int32_t> formula_tokens(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto h =
        static_cast<std::int64_t>(split_mix(20240607, static_cast<std::uint64_t>(i)) >> 33);
    tokens.push_back(static_cast<std::int32_t>(
        ((h % 16) * (vocabulary / 16) + i % (vocabulary / 16)) % vocabulary));
  }
  return tokens;
}

struct Run {
  std::vector<double> losses, norms;
  std::vector<std::vector<std::int64_t>> rows;  // by step: (layers, experts)
  std::map<std::string, std::vector<float>> weights;
  std::vector<std::int64_t> planned, counted;
  std::string error;
};

Run train_tiny(const std::string& name, const std::vector<std::string>& keys, int workers = 1) {
  Run out;
  const auto fail = [&out](const Error& error) {
    out.error = error.message;
    return out;
  };
  const Json& json = golden();
  const std::int64_t steps = json["steps"], batch = json["batch"], length = json["length"];
  const std::string text =
      R"({"name": "experts", "model": )" + json["models"][name]["config"].dump() +
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
  const Backend backend = make_cpu_backend();
  const Layout layout(model, plan);
  auto made = Interpreter::create(layout, lowered.value(), backend, {.workers = workers});
  if (!made) return fail(made.error());
  Interpreter& process = *made.value();
  std::map<std::string, std::vector<FileTensor>> files;
  for (const TensorPlace& place : process.places()) {
    files.try_emplace(place.name, file_tensors(layout, place));
  }
  process.initialise([&](const std::string& of, std::int64_t element) {
    for (const FileTensor& file : files.at(of)) {
      const std::int64_t i = element - file.row_begin * file.cols;
      if (i < file.rows * file.cols) return formula_weight(file.name, i, model.layers);
    }
    ADD_FAILURE() << of << " has no element " << element;
    return 0.0;
  });
  const Data data = Data::of_tokens(formula_tokens(steps * batch * (length + 1), model.vocabulary));
  const auto after = [&](const StepReport& step) -> Result<bool> {
    out.losses.push_back(step.loss);
    out.norms.push_back(step.grad_norm);
    out.rows.push_back(process.expert_rows());
    return true;
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

void expect_golden(const std::string& name, const std::string& variant, const Run& run) {
  ASSERT_EQ(run.error, "");
  const Json& of = golden()["models"][name]["variants"][variant];
  ASSERT_EQ(run.losses.size(), of["f64"]["loss"].size());
  double loss = 0, norm = 0;
  for (std::size_t step = 0; step < run.losses.size(); ++step) {
    loss = std::max(loss, std::abs(run.losses[step] / of["f64"]["loss"][step].get<double>() - 1));
    norm =
        std::max(norm, std::abs(run.norms[step] / of["f64"]["grad_norm"][step].get<double>() - 1));
    std::vector<std::int64_t> counts;
    for (const Json& layer : of["tokens_per_expert"][step]) {
      for (const Json& count : layer) counts.push_back(count);
    }
    EXPECT_EQ(run.rows[step], counts) << "step " << step;
  }
  EXPECT_LE(loss, 2e-6);
  EXPECT_LE(norm, 2e-5);
  EXPECT_EQ(run.planned, run.counted);
  std::printf("%s %s: losses within %.1e, norms %.1e\n", name.c_str(), variant.c_str(), loss, norm);
}

TEST(ExpertsGolden, OneRankTrainsAsPyTorch) {
  expect_golden("mixtral", "plain", train_tiny("mixtral", {"micro_batch=4"}));
  expect_golden("mixtral", "aux",
                train_tiny("mixtral", {"micro_batch=4", "train.router_auxiliary_loss=0.01"}));
  expect_golden("mixtral", "z",
                train_tiny("mixtral", {"micro_batch=4", "train.router_z_loss=0.001"}));
}

struct Cell {
  const char* name;
  std::vector<std::string> plan;
};
void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.name;
}

// e ranks share the experts, q each one's matrices; data_parallel d, tensor_parallel t.
const Cell kLayouts[] = {
    {"four_microbatches", {"micro_batch=1"}},
    {"full", {"micro_batch=2", "recompute=full"}},
    {"selective", {"micro_batch=2", "recompute=selective"}},
    {"pp2", {"micro_batch=1", "pipeline_parallel=2"}},
    {"pp2_zb_h1", {"micro_batch=1", "pipeline_parallel=2", "schedule=zb_h1"}},
    {"pp2_zb_h1_full",
     {"micro_batch=1", "pipeline_parallel=2", "schedule=zb_h1", "recompute=full"}},
    {"pp2_interleaved",
     {"micro_batch=1", "pipeline_parallel=2", "schedule=interleaved_1f1b", "virtual_stages=2"}},
    {"dp2", {"micro_batch=2", "data_parallel=2"}},
    {"dp2_zero1", {"micro_batch=2", "data_parallel=2", "zero_stage=1"}},
    {"dp4_zero3", {"micro_batch=1", "data_parallel=4", "zero_stage=3"}},
    {"ep2", {"micro_batch=2", "data_parallel=2", "expert_parallel=2"}},
    {"ep4", {"micro_batch=1", "data_parallel=4", "expert_parallel=4"}},
    {"ep2_of_4", {"micro_batch=1", "data_parallel=4", "expert_parallel=2"}},
    {"ep2_of_4_zero1", {"micro_batch=1", "data_parallel=4", "expert_parallel=2", "zero_stage=1"}},
    {"ep2_of_4_zero2", {"micro_batch=1", "data_parallel=4", "expert_parallel=2", "zero_stage=2"}},
    {"ep2_of_4_zero3", {"micro_batch=1", "data_parallel=4", "expert_parallel=2", "zero_stage=3"}},
    {"ep4_zero3", {"micro_batch=1", "data_parallel=4", "expert_parallel=4", "zero_stage=3"}},
    {"ep2_full", {"micro_batch=1", "data_parallel=2", "expert_parallel=2", "recompute=full"}},
    {"ep2_pp2_zb_h1",
     {"micro_batch=1", "data_parallel=2", "expert_parallel=2", "pipeline_parallel=2",
      "schedule=zb_h1"}},
    {"ep2_pp2_zb_h1_full",
     {"micro_batch=1", "data_parallel=2", "expert_parallel=2", "pipeline_parallel=2",
      "schedule=zb_h1", "recompute=full"}},
    {"ep2_pp2_interleaved_zero1",
     {"micro_batch=1", "data_parallel=2", "expert_parallel=2", "pipeline_parallel=2",
      "schedule=interleaved_1f1b", "virtual_stages=2", "zero_stage=1"}},
    {"ep2_gather",
     {"micro_batch=2", "data_parallel=2", "expert_parallel=2", "expert_dispatch=all_gather"}},
    {"ep4_gather_full",
     {"micro_batch=1", "data_parallel=4", "expert_parallel=4", "expert_dispatch=all_gather",
      "recompute=full"}},
    {"tp2_etp2", {"micro_batch=2", "tensor_parallel=2", "sequence_parallel=true"}},
    {"tp2_etp2_gather",
     {"micro_batch=2", "tensor_parallel=2", "sequence_parallel=true",
      "expert_dispatch=all_gather"}},
    {"tp2_etp1",
     {"micro_batch=2", "tensor_parallel=2", "sequence_parallel=true", "expert_tensor_parallel=1"}},
    {"tp2_ep2",
     {"micro_batch=2", "tensor_parallel=2", "sequence_parallel=true", "expert_parallel=2"}},
    {"tp2_dp2_ep4",
     {"micro_batch=1", "tensor_parallel=2", "sequence_parallel=true", "data_parallel=2",
      "expert_parallel=4", "expert_tensor_parallel=1"}},
    {"tp2_dp2_ep2_etp2",
     {"micro_batch=1", "tensor_parallel=2", "sequence_parallel=true", "data_parallel=2",
      "expert_parallel=2", "expert_tensor_parallel=2"}},
    {"tp2_dp2_ep2_etp2_gather",
     {"micro_batch=1", "tensor_parallel=2", "sequence_parallel=true", "data_parallel=2",
      "expert_parallel=2", "expert_tensor_parallel=2", "expert_dispatch=all_gather"}},
    {"dp2_etp2", {"micro_batch=2", "data_parallel=2", "expert_tensor_parallel=2"}},
    {"tp2_dp2_pp2_ep2_zero2_zb",
     {"micro_batch=1", "tensor_parallel=2", "sequence_parallel=true", "data_parallel=2",
      "pipeline_parallel=2", "expert_parallel=2", "expert_tensor_parallel=1", "zero_stage=2",
      "schedule=zb_h1"}},
    {"cp2_ep2", {"micro_batch=2", "context_parallel=2", "expert_parallel=2"}},
};

class ExpertLayouts : public testing::TestWithParam<Cell> {};

TEST_P(ExpertLayouts, TrainAsPyTorch) {
  std::vector<std::string> keys = GetParam().plan;
  keys.emplace_back("expert_capacity=4");  // 16 tokens of a rank are far from balanced
  expect_golden("mixtral", "plain", train_tiny("mixtral", keys));
}

INSTANTIATE_TEST_SUITE_P(Layouts, ExpertLayouts, testing::ValuesIn(kLayouts),
                         [](const auto& cell) { return std::string(cell.param.name); });

}  // namespace
}  // namespace rehearse::exec
