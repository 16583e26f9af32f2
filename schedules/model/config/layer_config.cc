// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/config/layer_config.h"

#include <algorithm>
#include <array>

#include "schedules/model/config/config_keys.h"

namespace rehearse {
namespace {

// ACT2FN of transformers (activations.py); "swiglu" and "geglu" are other programs' words.
struct ActivationWord {
  std::string_view word;
  ActivationKind kind;
};
constexpr std::array<ActivationWord, 14> kActivationWords{{
    {"gelu", ActivationKind::GeluExact},
    {"gelu_python", ActivationKind::GeluExact},
    {"geglu", ActivationKind::GeluExact},
    {"gelu_new", ActivationKind::GeluTanh},
    {"gelu_fast", ActivationKind::GeluTanh},
    {"gelu_pytorch_tanh", ActivationKind::GeluTanh},
    {"gelu_accurate", ActivationKind::GeluTanh},
    {"relu", ActivationKind::Relu},
    {"relu2", ActivationKind::Relu2},
    {"quick_gelu", ActivationKind::QuickGelu},
    {"silu", ActivationKind::Silu},
    {"swish", ActivationKind::Silu},
    {"swiglu", ActivationKind::Silu},
    {"tanh", ActivationKind::Tanh},
}};

}  // namespace

void read_activation(const ConfigReader& config, const Dialect& dialect, Transformer& model) {
  const bool own = find_config_key(dialect.model_type, "hidden_activation") != nullptr;
  const std::string act = config.text(own ? "hidden_activation" : "hidden_act", "");
  for (const ActivationWord& one : kActivationWords) {
    if (one.word == act) model.activation = one.kind;
  }
  if (act == "swiglu" || act == "geglu") model.mlp = MlpKind::Gated;
  if (dialect.two_matrix_gelu && (act.starts_with("gelu") || act == "relu")) {
    model.mlp = MlpKind::Plain;
  }
}

void read_dropout(const ConfigReader& config, Transformer& model) {
  model.dropouts = {.residual = -1, .attention = -1, .embedding = -1};  // until the file says it
  config.read("resid_pdrop", model.dropouts.residual);
  for (const std::string_view key : {"attn_pdrop", "attention_dropout"}) {
    config.read(key, model.dropouts.attention);
  }
  for (const std::string_view key : {"embd_pdrop", "emb_pdrop"}) {
    config.read(key, model.dropouts.embedding);
  }
  for (const std::string_view key :
       {"resid_pdrop", "attn_pdrop", "attention_dropout", "embd_pdrop", "emb_pdrop"}) {
    double rate = 0;
    config.read(key, rate);
    if (rate >= 1) config.fail(key, "must be less than 1: nothing would be left");
  }
}

void read_windows(const ConfigReader& config, Transformer& model,
                  const std::function<bool(std::int64_t)>& otherwise, std::string_view local) {
  const JsonValue* types = config.given("layer_types");
  if (types != nullptr && types->items.size() != static_cast<std::size_t>(model.layers)) {
    return config.fail("layer_types", "has " + std::to_string(types->items.size()) + " items for " +
                                          std::to_string(model.layers) + " layers");
  }
  model.windowed_layers.clear();
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    bool windowed = otherwise(layer);
    if (types != nullptr) {
      const std::string& type = types->items[static_cast<std::size_t>(layer)].text;
      windowed = type == local;
      if (!windowed && type != "full_attention") {
        return config.fail("layer_types",
                           json_excerpt(type) + " is not full_attention or " + std::string(local),
                           true);
      }
    }
    model.windowed_layers.push_back(windowed);
  }
}

void place_experts(Transformer& model, const std::function<bool(std::int64_t)>& has) {
  std::vector<bool> layers;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) layers.push_back(has(layer));
  const bool none = std::ranges::find(layers, true) == layers.end();
  if (none || model.experts.count == 0) {
    model.experts = {};
  } else if (std::ranges::find(layers, false) != layers.end()) {
    model.experts.layers = std::move(layers);
  }
}

bool lists(const JsonValue* layers, std::int64_t layer) {
  return layers != nullptr && std::ranges::any_of(layers->items, [layer](const JsonValue& item) {
           return item.integer == layer;
         });
}

}  // namespace rehearse
