// SPDX-License-Identifier: Apache-2.0
// PyTorch's numbers: ten AdamW steps of two GPT-2-like models (tests/data/golden/README.md),
// trained by the interpreter in several layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "exec/cpu/cpu_backend.h"
#include "exec/cpu/kernels/instruction_set.h"
#include "exec/step/interpreter.h"
#include "exec/train/data.h"
#include "schedules/base/random.h"
#include "schedules/order/registry.h"
#include "schedules/passes/lower.h"
#include "schedules/scenario/plan_shape.h"
#include "tests/schedules/runtime/runtime_named.h"

namespace rehearse::exec {
namespace {

using Json = nlohmann::json;

Json golden(const std::string& size) {
  std::ifstream in("tests/data/golden/" + size + "/golden.json");
  return Json::parse(in);
}

template <class T>
std::vector<T> read_binary(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

Transformer model_of(const Json& config) {
  Transformer model;
  model.model_type = "gpt2";
  model.layers = config["L"];
  model.hidden = config["C"];
  model.heads = model.kv_heads = config["H"];
  model.head_dim = model.hidden / model.heads;
  model.ffn_hidden = 4 * model.hidden;
  model.vocabulary = config["V"];
  model.max_positions = config["T"];
  return model;
}

// The golden files say "h.0.attn_c_attn.weight", Hugging Face "h.0.attn.c_attn.weight".
std::string golden_name(std::string name) {
  for (const char* part : {"attn.c_", "mlp.c_"}) {
    const std::size_t at = name.find(part);
    if (at != std::string::npos) name[at + std::strlen(part) - 3] = '_';
  }
  return name;
}

// Weights and tokens from the formula of the README.
std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}
double formula_weight(const std::string& name, std::int64_t i, std::int64_t layers) {
  const double u =
      static_cast<double>(split_mix(fnv1a(name), static_cast<std::uint64_t>(i)) >> 40) / 16777216.0;
  double base = 0, spread = 0.02 * std::sqrt(3.0);
  if (name.ends_with("bias")) {
    spread = 0.01;
  } else if (name.find(".ln_") != std::string::npos || name.starts_with("ln_f")) {
    base = 1;
    spread = 0.05;
  } else if (name.ends_with("c_proj.weight")) {
    spread = 0.02 * std::sqrt(3.0) / std::sqrt(2.0 * static_cast<double>(layers));
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

struct Layout {
  const char* name;
  std::int32_t t = 1, p = 1, d = 1, v = 1, zero = 0;
  bool sequence_parallel = false;
  const char* schedule = "none";
  Recompute recompute = Recompute{};
  std::int32_t micro_batch = 1;
};

void expect_golden(const std::string& size, const Layout& layout) {
  SCOPED_TRACE(size + " " + layout.name);
  const Json json = golden(size);
  const Transformer model = model_of(json["config"]);
  const std::int64_t batch = json["batch"], steps = json["steps"], T = model.max_positions;
  Plan plan;
  plan.tensor_parallel = layout.t;
  plan.pipeline_parallel = layout.p;
  plan.data_parallel = layout.d;
  plan.virtual_stages = layout.v;
  plan.zero_stage = layout.zero;
  plan.sequence_parallel = layout.sequence_parallel;
  plan.schedule = layout.schedule;
  plan.recompute = layout.recompute;
  plan.micro_batch = layout.micro_batch;
  plan.global_batch = batch;
  plan.sequence_length = T;
  plan.padded_vocabulary = model.vocabulary;
  plan.precision = {"fp32", 4, 4, 8, ComputeType::Fp32};
  plan.runtime = runtime_named("rehearse");
  plan.overlap_gradient_reduce = plan.overlap_parameter_gather = true;
  plan.bucket_bytes = 4096;
  plan.rank_order = {Axis::Tensor, Axis::Context, Axis::Expert, Axis::Data, Axis::Pipeline};
  const std::int32_t chunks = layout.p * layout.v;
  for (std::int32_t c = 0; c < chunks; ++c) {
    plan.stage_layers.push_back(static_cast<std::int32_t>(model.layers) / chunks);
  }
  const Result<Schedule> order = generate(plan.schedule, shape_of(plan).value());
  ASSERT_TRUE(order) << order.error().message;
  const Result<Schedule> schedule = lower(order.value(), {model, plan});
  ASSERT_TRUE(schedule) << schedule.error().message;
  const Backend backend = make_cpu_backend();
  auto made = Interpreter::create({model, plan}, schedule.value(), backend, {});
  ASSERT_TRUE(made) << made.error().message;
  Interpreter& run = *made.value();
  std::map<std::string, std::vector<float>> weights;
  if (size == "micro") {
    const auto all = read_binary<float>("tests/data/golden/micro/weights.f32.bin");
    for (const Json& p : json["parameters"]) {
      const auto begin = all.begin() + p["offset_floats"].get<std::ptrdiff_t>();
      weights[p["name"]] = {begin, begin + p["count"].get<std::ptrdiff_t>()};
    }
  }
  run.initialise([&](const std::string& name, std::int64_t i) -> double {
    const std::string g = golden_name(name);
    return size == "micro" ? static_cast<double>(weights.at(g)[static_cast<std::size_t>(i)])
                           : formula_weight(g, i, model.layers);
  });
  const Data data = Data::of_tokens(
      size == "micro" ? read_binary<std::int32_t>("tests/data/golden/micro/tokens.i32.bin")
                      : formula_tokens(steps * batch * (T + 1), model.vocabulary));
  StepOptions options;
  options.learning_rate = 1e-3;
  options.train.weight_decay = 0.1;
  options.train.clip_norm = 0;
  const Json& f64 = json["f64"];
  double worst_norm = 0;
  // Adam makes steps of the rounding noise in gradients near 1e-8. Eigen sums in one run, which is
  // too noisy for `tiny` (up to 4e-5 at step 7); our products sum in short runs
  // (exec/cpu/kernels/product.inc).
  const bool own_products = instruction_set() != "generic";
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int32_t r = 0; r < layout.d; ++r) {
      for (std::int32_t j = 0; j < plan.microbatches(); ++j) {
        for (std::int32_t k = 0; k < plan.micro_batch; ++k) {
          const std::int64_t sample = step * batch + (j * layout.d + r) * plan.micro_batch + k;
          const std::int64_t at = (j * plan.micro_batch + k) * T;
          data.sample(sample, T, run.inputs(r).data() + at, run.targets(r).data() + at);
        }
      }
    }
    options.step = step;
    const Result<StepResult> result = run.run(options);
    ASSERT_TRUE(result) << result.error().message;
    const auto s = static_cast<std::size_t>(step);
    const double loss = f64["loss"][s];
    EXPECT_NEAR(result.value().loss / loss, 1, 2e-6) << "step " << step;
    const Json& norm = f64.contains("grad_norm_per_step")
                           ? f64["grad_norm_per_step"][s]["__total__"]
                           : f64["grad_norm"][s];
    const double error = result.value().grad_norm / norm.get<double>() - 1;
    worst_norm = std::max(worst_norm, std::abs(error));
    if (size == "micro" || own_products) {
      EXPECT_NEAR(error, 0, 2e-5) << "step " << step;
    }
  }
  std::printf("%s %s: gradient norms within %.1e\n", size.c_str(), layout.name, worst_norm);
  if (size == "tiny" && !own_products)
    std::printf("SKIPPED: norms, the generic products sum in one run\n");
  if (size == "micro") {
    const auto final = read_binary<float>("tests/data/golden/micro/weights_final.f32.bin");
    for (const TensorPlace& place : run.places()) {
      const std::string g = golden_name(place.name);
      std::int64_t offset = -1;
      for (const Json& p : json["parameters"]) {
        if (p["name"] == g) offset = p["offset_floats"];
      }
      ASSERT_GE(offset, 0) << g;
      const std::vector<float> mine = run.parameter(place.name);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        ASSERT_NEAR(mine[i], final[static_cast<std::size_t>(offset) + i], 1e-4) << g << " " << i;
      }
    }
  } else {
    for (const auto& [name, norm] : f64["final_param_norm"].items()) {
      for (const TensorPlace& place : run.places()) {
        if (golden_name(place.name) != name) continue;
        double squares = 0;
        for (const float w : run.parameter(place.name))
          squares += static_cast<double>(w) * static_cast<double>(w);
        EXPECT_NEAR(std::sqrt(squares) / norm.get<double>(), 1, 1e-4) << name;
      }
    }
  }
}

TEST(Golden, MicroTrainsAsPyTorchDoesInEveryLayout) {
  const Layout layouts[] = {
      {.name = "one rank", .micro_batch = 4},
      {.name = "four micro-batches"},
      {.name = "full recompute", .recompute = Recompute::full()},
      {.name = "selective recompute", .recompute = Recompute::selective()},
      {.name = "pp2 1f1b", .p = 2, .schedule = "1f1b"},
      {.name = "pp2 zb_h1", .p = 2, .schedule = "zb_h1"},
      {.name = "pp2 zb_h1 full recompute",
       .p = 2,
       .schedule = "zb_h1",
       .recompute = Recompute::full()},
      {.name = "tp2", .t = 2},
      {.name = "tp4 sp", .t = 4, .sequence_parallel = true},
      {.name = "dp2", .d = 2},
      {.name = "dp2 zero1", .d = 2, .zero = 1},
      {.name = "dp2 zero2", .d = 2, .zero = 2},
      {.name = "dp2 zero3", .d = 2, .zero = 3},
      {.name = "tp2 sp pp2 dp2 zero1",
       .t = 2,
       .p = 2,
       .d = 2,
       .zero = 1,
       .sequence_parallel = true,
       .schedule = "1f1b"},
      {.name = "tp2 sp pp2 dp2 zero3",
       .t = 2,
       .p = 2,
       .d = 2,
       .zero = 3,
       .sequence_parallel = true,
       .schedule = "gpipe"},
  };
  for (const Layout& layout : layouts) {
    expect_golden("micro", layout);
    if (testing::Test::HasFailure()) break;
  }
}

TEST(Golden, TinyTrainsAsPyTorchDoesInEveryLayout) {
  const Layout layouts[] = {
      {.name = "one rank", .micro_batch = 8},
      {.name = "two samples at a time", .micro_batch = 2},
      {.name = "one sample at a time"},
      {.name = "dp2 zero1", .d = 2, .zero = 1, .micro_batch = 4},
      {.name = "pp2 interleaved tp2",
       .t = 2,
       .p = 2,
       .v = 2,
       .sequence_parallel = true,
       .schedule = "interleaved_1f1b",
       .micro_batch = 2},
  };
  for (const Layout& layout : layouts) expect_golden("tiny", layout);
}

}  // namespace
}  // namespace rehearse::exec
