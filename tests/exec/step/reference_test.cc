// SPDX-License-Identifier: Apache-2.0
// The executor against a float64 model of our own (reference_model.h), for GPT-2 and Llama blocks;
// the reference against central differences of its own loss, and against PyTorch's gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "exec/cpu/cpu_backend.h"
#include "exec/train/train.h"
#include "schedules/scenario/scenario.h"
#include "tests/exec/step/reference_model.h"

namespace rehearse::exec {
namespace {

using reference::Batch;
using reference::Tensor;
using reference::Tensors;

struct Case {
  const char* name;
  const char* model;  // members of Hugging Face's config
  std::int64_t sequence = 16;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

// Queries per key/value head 1, 2 and 4; head sizes 16 and 64, also where a x d is not h; odd
// lengths; more tokens than a tile of attention has, more vocabulary than a chunk of the loss.
const Case kCases[] = {
    {"gpt2", R"("model_type": "gpt2", "hidden_size": 64, "num_attention_heads": 4)", 16},
    {"gpt2_odd_untied",
     R"("model_type": "gpt2", "hidden_size": 48, "num_attention_heads": 3,
        "tie_word_embeddings": false)",
     13},
    {"gpt2_long", R"("model_type": "gpt2", "hidden_size": 32, "num_attention_heads": 2)", 131},
    {"llama_gqa1",
     R"("model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 88)",
     17},
    {"llama_gqa2_wide_heads",
     R"("model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "head_dim": 64,
        "num_key_value_heads": 2, "intermediate_size": 96)",
     9},
    {"llama_gqa4",
     R"("model_type": "llama", "hidden_size": 48, "num_attention_heads": 4, "head_dim": 16,
        "num_key_value_heads": 1, "intermediate_size": 80)",
     33},
    {"llama_gqa4_long",
     R"("model_type": "llama", "hidden_size": 32, "head_dim": 16, "num_attention_heads": 4,
        "num_key_value_heads": 1, "intermediate_size": 48, "vocab_size": 523,
        "rope_theta": 500000, "rms_norm_eps": 1e-5)",
     131},
    {"llama_tied_all_biases",
     R"("model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 96, "attention_bias": true,
        "mlp_bias": true, "tie_word_embeddings": true)",
     15},
    {"qwen2_gqa2",
     R"("model_type": "qwen2", "hidden_size": 32, "num_attention_heads": 2,
        "num_key_value_heads": 1, "intermediate_size": 48)",
     16},
};

constexpr std::int64_t kSamples = 4;  // two micro-batches of two

Scenario scenario_of(const Case& c) {
  const std::string model = c.model, sequence = std::to_string(c.sequence);
  const std::string vocabulary =
      model.find("vocab_size") == std::string::npos ? R"(, "vocab_size": 61)" : "";
  const std::string text =
      R"({"name": "case", "model": {)" + model + vocabulary + R"(, "num_hidden_layers": 2,
         "max_position_embeddings": )" +
      sequence + (model.find("gpt2") == std::string::npos ? "}" : R"(, "resid_pdrop": 0})") +
      R"(, "plan": {"micro_batch": 2, "global_batch": 4, "sequence_length": )" + sequence +
      R"(, "precision": "fp32"}, "train": {"steps": 8, "learning_rate": 0.001,
         "weight_decay": 0.1, "clip_norm": 0.5, "seed": 7}})";
  auto scenario = parse_scenario(text, "case", 0, {.runtime = "rehearse", .needs_cluster = false});
  if (!scenario) ADD_FAILURE() << scenario.error().message;
  return std::move(scenario).value();
}

// Norms around 1, biases around 0, matrices that keep a vector's size; of fp32's numbers.
Tensors first_weights(const Transformer& model) {
  Tensors weights = reference::parameters_of(model);
  std::mt19937_64 bits(11);
  for (auto& [name, values] : weights) {
    const bool norm =
        name.find("norm") != std::string::npos || name.find("ln_") != std::string::npos;
    const bool bias = name.ends_with(".bias");
    const double base = norm && !bias ? 1 : 0;
    const double spread = norm || bias ? 0.2 : 1.2 / std::sqrt(static_cast<double>(model.hidden));
    for (double& x : values) {
      const double u = static_cast<double>(bits() >> 11) * 0x1p-53;
      x = static_cast<float>(base + (2 * u - 1) * spread);
    }
  }
  return weights;
}

Batch batch_of(const Data& data, std::int64_t first, std::int64_t samples, std::int64_t sequence) {
  Batch batch{.samples = samples, .sequence = sequence};
  batch.inputs.resize(static_cast<std::size_t>(samples * sequence));
  batch.targets = batch.inputs;
  for (std::int64_t k = 0; k < samples; ++k) {
    data.sample(first + k, sequence, batch.inputs.data() + k * sequence,
                batch.targets.data() + k * sequence);
  }
  return batch;
}

Data tokens_of(const Scenario& scenario) {
  return Data::open("synthetic", scenario.model.vocabulary, scenario.train.seed).value();
}

// Greatest distance of a tensor from the reference's, relative to the latter's Euclidean norm.
struct Farthest {
  double distance = 0;
  std::string tensor;
};
void update(Farthest& farthest, const std::string& name, const Tensor& mine, const Tensor& other) {
  ASSERT_EQ(mine.size(), other.size()) << name;
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    difference += (mine[i] - other[i]) * (mine[i] - other[i]);
    size += other[i] * other[i];
  }
  ASSERT_GT(size, 0) << name;
  const double distance = std::sqrt(difference / size);
  if (distance > farthest.distance) farthest = {distance, name};
}
Farthest farthest(const Tensors& mine, const Tensors& other) {
  Farthest out;
  EXPECT_EQ(mine.size(), other.size());
  for (const auto& [name, values] : mine) update(out, name, values, other.at(name));
  return out;
}

class Reference : public testing::TestWithParam<Case> {};

// Five points (Abramowitz & Stegun 25.3.6): the error is O(step^4), so the step can be large enough
// for rounding not to matter: 1e-3^4 and 1e-15 / 1e-3 are both about 1e-12.
TEST_P(Reference, GradientsAreDifferencesOfTheLoss) {
  const Scenario scenario = scenario_of(GetParam());
  const Transformer& model = scenario.model;
  Tensors weights = first_weights(model);
  const Batch batch =
      batch_of(tokens_of(scenario), 0, 2, std::min<std::int64_t>(7, GetParam().sequence));
  const reference::LossAndGradients exact = reference::differentiate(model, weights, batch);
  EXPECT_EQ(exact.loss, reference::loss(model, weights, batch));
  std::mt19937_64 random(5);
  double worst = 0;
  for (auto& [name, values] : weights) {
    const Tensor& gradient = exact.gradients.at(name);
    double largest = 0;
    for (const double g : gradient) largest = std::max(largest, std::abs(g));
    ASSERT_GT(largest, 0) << name;
    for (int k = 0; k < 4; ++k) {
      const std::size_t i = random() % values.size();
      const double x = values[i], step = 1e-3;
      const auto at = [&](double steps) {
        values[i] = x + steps * step;
        return reference::loss(model, weights, batch);
      };
      const double slope = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step);
      values[i] = x;
      EXPECT_NEAR(slope, gradient[i], 1e-6 * largest) << name << '[' << i << ']';
      worst = std::max(worst, std::abs(slope - gradient[i]) / largest);
    }
  }
  std::printf("%s: differences within %.1e of a tensor's largest gradient\n", GetParam().name,
              worst);
}

// Adam's first moment, an average of the gradients: after the first step (1 - beta1) clip g.
Tensors first_moments(const Interpreter& run, Device& device, const Tensors& like) {
  Tensors moments;
  for (const StoredBucket& stored : run.stored()) {
    const std::vector<float> values =
        read_state(device, stored, stored.moments[0], stored.own_first, stored.own_last);
    for (const TensorPlace& place : run.places()) {
      if (place.bucket != stored.bucket) continue;
      const auto begin = values.begin() + place.offset - stored.own_first;
      const auto count = static_cast<std::ptrdiff_t>(like.at(place.name).size());
      moments[place.name] = Tensor(begin, begin + count);
    }
  }
  return moments;
}

// All but the bias of GPT-2's keys: softmax does not see it where keys are not rotated, so that its
// gradient is rounding noise and Adam's steps of it are as long as any.
Tensor seen(const Transformer& model, const std::string& name, Tensor values) {
  if (model.positions == PositionKind::Learned && name.ends_with("c_attn.bias")) {
    const auto begin = values.begin() + model.heads * model.head_dim;
    values.erase(begin, begin + model.kv_heads * model.head_dim);
  }
  return values;
}

// Bounds as for PyTorch's golden runs (golden_test.cc).
TEST_P(Reference, IsWhatTheExecutorTrains) {
  const Case& c = GetParam();
  Scenario scenario = scenario_of(c);
  const Transformer& model = scenario.model;
  const Result<Schedule> schedule = lower_for_run(model, scenario.plan);
  ASSERT_TRUE(schedule) << schedule.error().message;
  const Backend backend = make_cpu_backend();
  auto made = Interpreter::create({model, scenario.plan}, schedule.value(), backend, {});
  ASSERT_TRUE(made) << made.error().message;
  Interpreter& run = *made.value();
  Tensors weights = first_weights(model);
  run.initialise([&](const std::string& name, std::int64_t i) {
    return weights.at(name).at(static_cast<std::size_t>(i));
  });

  const TrainOptions& train = scenario.train;
  const reference::AdamwOptions adamw{.learning_rate = train.learning_rate,
                                      .beta1 = train.beta1,
                                      .beta2 = train.beta2,
                                      .epsilon = train.epsilon,
                                      .weight_decay = train.weight_decay};
  const Data data = tokens_of(scenario);
  reference::AdamwState state;
  double worst_loss = 0, worst_norm = 0;
  int clipped = 0;
  Farthest first, last;
  for (std::int64_t step = 0; step < train.steps; ++step) {
    const Batch batch = batch_of(data, step * kSamples, kSamples, c.sequence);
    reference::LossAndGradients exact = reference::differentiate(model, weights, batch);
    const double norm = reference::norm(exact.gradients);
    clipped += norm > train.clip_norm ? 1 : 0;
    for (auto& [name, values] : exact.gradients) {
      for (double& g : values) g *= std::min(1.0, train.clip_norm / (norm + 1e-6));
    }
    reference::adamw(adamw, exact.gradients, weights, state);

    load_batch(run, scenario.plan, data, step * kSamples);
    const auto ran = run.run({.step = step, .learning_rate = train.learning_rate, .train = train});
    ASSERT_TRUE(ran) << ran.error().message;
    const double loss_error = ran.value().loss / exact.loss - 1;
    const double norm_error = ran.value().grad_norm / norm - 1;
    EXPECT_NEAR(loss_error, 0, 2e-6) << "step " << step;
    EXPECT_NEAR(norm_error, 0, 2e-5) << "step " << step;
    worst_loss = std::max(worst_loss, std::abs(loss_error));
    worst_norm = std::max(worst_norm, std::abs(norm_error));
    last = farthest(first_moments(run, *backend.device, weights), state.m);
    if (step == 0) first = last;
  }
  EXPECT_GT(clipped, 0);
  EXPECT_LT(first.distance, 2e-6) << first.tensor;
  EXPECT_LT(last.distance, 2e-5) << last.tensor;
  Farthest weight;
  for (const auto& [name, values] : weights) {
    const std::vector<float> mine = run.parameter(name);
    update(weight, name, seen(model, name, Tensor(mine.begin(), mine.end())),
           seen(model, name, values));
  }
  EXPECT_LT(weight.distance, 1e-4) << weight.tensor;
  std::printf(
      "%s: loss within %.1e, norm %.1e, first gradients %.1e (%s), later %.1e (%s), weights %.1e "
      "(%s)\n",
      c.name, worst_loss, worst_norm, first.distance, first.tensor.c_str(), last.distance,
      last.tensor.c_str(), weight.distance, weight.tensor.c_str());
}

INSTANTIATE_TEST_SUITE_P(Blocks, Reference, testing::ValuesIn(kCases),
                         [](const auto& c) { return std::string(c.param.name); });

template <class T>
std::vector<T> read_binary(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// PyTorch's float64 run of a GPT-2, step 0 (tests/data/golden/README.md): gradients rounded to
// fp32, so within 2^-24 of each element.
TEST(ReferenceGpt2, HasPyTorchsGradients) {
  const std::string folder = "tests/data/golden/micro/";
  std::ifstream in(folder + "golden.json");
  const nlohmann::json golden = nlohmann::json::parse(in);
  const nlohmann::json& config = golden["config"];
  Transformer model{.model_type = "gpt2",
                    .layers = config["L"],
                    .hidden = config["C"],
                    .heads = config["H"],
                    .kv_heads = config["H"],
                    .vocabulary = config["V"],
                    .max_positions = config["T"]};
  model.head_dim = model.hidden / model.heads;
  model.ffn_hidden = 4 * model.hidden;
  const auto all_weights = read_binary<float>(folder + "weights.f32.bin");
  const auto all_gradients = read_binary<float>(folder + "grad_step0.f32.bin");
  Tensors weights, gradients;
  for (const auto& [name, zeros] : reference::parameters_of(model)) {
    std::string theirs = name;  // "h.0.attn_c_attn.weight" for "h.0.attn.c_attn.weight"
    for (const char* part : {"attn.c_", "mlp.c_"}) {
      const std::size_t at = theirs.find(part);
      if (at != std::string::npos) theirs[at + std::strlen(part) - 3] = '_';
    }
    for (const nlohmann::json& p : golden["parameters"]) {
      if (p["name"] != theirs) continue;
      const auto first = p["offset_floats"].get<std::ptrdiff_t>();
      const auto count = static_cast<std::ptrdiff_t>(zeros.size());
      ASSERT_EQ(p["count"], count) << name;
      weights[name] = Tensor(all_weights.begin() + first, all_weights.begin() + first + count);
      gradients[name] =
          Tensor(all_gradients.begin() + first, all_gradients.begin() + first + count);
    }
  }
  const Data data = Data::of_tokens(read_binary<std::int32_t>(folder + "tokens.i32.bin"));
  const Batch batch = batch_of(data, 0, golden["batch"], config["T"]);
  const reference::LossAndGradients mine = reference::differentiate(model, weights, batch);
  EXPECT_NEAR(mine.loss / golden["f64"]["loss"][0].get<double>(), 1, 1e-14);
  const Farthest tensor = farthest(mine.gradients, gradients);
  EXPECT_LT(tensor.distance, 0x1p-24) << tensor.tensor;
}

}  // namespace
}  // namespace rehearse::exec
