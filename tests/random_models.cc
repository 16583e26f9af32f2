// SPDX-License-Identifier: Apache-2.0
#include "tests/random_models.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string_view>

#include "schedules/base/json_reader.h"
#include "schedules/scenario/scenario.h"

namespace rehearse::sim {
namespace {

std::string member(std::string_view key, std::int64_t value) {
  return ", \"" + std::string(key) + "\": " + std::to_string(value);
}

// Heads of 64 or 128, widths that tensor parallelism divides.
struct Sizes {
  std::int64_t layers, heads, kv_heads, hidden, ffn, vocabulary;

  explicit Sizes(Chance& chance)
      : layers(chance.of<std::int64_t>({2, 4, 6, 8, 12, 16})),
        heads(chance.of<std::int64_t>({4, 8, 8, 16, 32})),
        kv_heads(chance.percent(50) ? heads : std::max<std::int64_t>(heads / 4, 2)),
        hidden(heads * chance.of<std::int64_t>({64, 64, 128})),
        ffn(hidden * chance.of<std::int64_t>({2, 3, 4})),
        vocabulary(chance.of<std::int64_t>({1000, 8192, 32000, 50257, 128256})) {}

  std::string dense() const {
    return member("hidden_size", hidden) + member("intermediate_size", ffn) +
           member("num_hidden_layers", layers) + member("num_attention_heads", heads) +
           member("num_key_value_heads", kv_heads) + member("vocab_size", vocabulary) +
           member("max_position_embeddings", 8192);
  }
};

}  // namespace

std::string made_up_model(Chance& chance) {
  const Sizes s(chance);
  const std::string tied =
      std::string(", \"tie_word_embeddings\": ") + (chance.percent(50) ? "true" : "false");
  const auto object = [](std::string_view type, const std::string& members) {
    return "{\"model_type\": \"" + std::string(type) + '"' + members + '}';
  };
  switch (chance.below(6)) {
    case 0:
      return object("gpt2", member("n_embd", s.hidden) + member("n_inner", s.ffn) +
                                member("n_layer", s.layers) + member("n_head", s.heads) +
                                member("n_positions", 8192) + member("vocab_size", s.vocabulary) +
                                tied);
    case 1:
      return object("llama", s.dense() + tied);
    case 2:
      return object("mistral", s.dense() + member("sliding_window", 512) + tied);
    case 3:
      return object("mixtral",
                    s.dense() + member("num_local_experts", chance.of<std::int64_t>({4, 8, 16})) +
                        member("num_experts_per_tok", 2));
    default:
      break;
  }
  // Compressed keys and values; with experts from some layer on, or never.
  const std::int64_t dense_layers = chance.percent(30) ? s.layers : chance.of<std::int64_t>({0, 1});
  return object("deepseek_v3",
                s.dense() + member("moe_intermediate_size", s.hidden / 4) +
                    member("n_routed_experts", chance.of<std::int64_t>({8, 16, 32})) +
                    member("num_experts_per_tok", 4) + member("n_group", 4) +
                    member("topk_group", 2) + member("n_shared_experts", 1) +
                    member("first_k_dense_replace", dense_layers) +
                    member("num_nextn_predict_layers", chance.percent(40) ? 1 : 0) +
                    member("kv_lora_rank", s.hidden / 4) + member("q_lora_rank", s.hidden / 2) +
                    member("qk_nope_head_dim", 64) + member("qk_rope_head_dim", 32) +
                    member("v_head_dim", 64));
}

std::string shipped_model(Chance& chance) {
  return json_quoted(chance.of<const char*>(
      {"gpt2-124m",   "gpt2-355m",     "gpt2-1.5b",         "llama3.2-1b",
       "llama3.2-3b", "llama2-7b",     "llama3-8b",         "llama2-13b",
       "llama2-70b",  "mistral-7b",    "qwen2-7b",          "qwen2.5-32b",
       "gpt-22b",     "phi-4",         "gemma-3-27b",       "mixtral-8x7b",
       "olmoe-1b-7b", "qwen3-30b-a3b", "qwen1.5-moe-a2.7b", "deepseek-v2-lite",
       "gpt-oss-20b", "glm-4.5-air"}));
}

const Transformer& known_model(const std::string& model) {
  static std::map<std::string, Transformer> known;
  const auto found = known.find(model);
  if (found != known.end()) return found->second;
  const std::string text =
      R"({"cluster": "dgx-h100", "gpus": 1, "plan": {"sequence_length": 128}, "model": )" + model +
      '}';
  Result<Scenario> read = parse_scenario(text, "random.json", 1, {});
  if (!read) {
    std::fprintf(stderr, "a random model is none: %s\n%s\n", read.error().message.c_str(),
                 text.c_str());
    std::abort();
  }
  return known[model] = std::move(read).value().model;
}

}  // namespace rehearse::sim
