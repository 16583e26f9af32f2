// SPDX-License-Identifier: Apache-2.0
// A checkpoint is of one model: its state is read for that model, however its numbers are written,
// and refused by the key for any other, also where all tensors have the same names and shapes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "exec/checkpoint/checkpoint_state.h"
#include "tests/exec/step/layout_case.h"

namespace rehearse::exec {
namespace {

constexpr const char* kSizes = R"("num_hidden_layers": 2, "hidden_size": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 61,
    "max_position_embeddings": 64)";

Transformer model_of(const std::string& keys) {
  const auto scenario = layout_scenario("{" + keys + ", " + kSizes + "}", {});
  EXPECT_TRUE(scenario) << scenario.error().message;
  return scenario ? scenario.value().model : Transformer{};
}

class ModelFacts : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  // "" or the message.
  std::string read(const std::string& written_by, const std::string& read_for) const {
    const CheckpointState state{.step = 2, .samples = 16, .sequence_length = 16, .plan = "{}"};
    std::ofstream(path_) << state_json(state, model_of(written_by));
    const auto found = read_state(path_, model_of(read_for));
    return found ? "" : found.error().message;
  }
  const std::string path_ =
      (std::filesystem::path(testing::TempDir()) / ("facts" + std::to_string(getpid()) + ".json"))
          .string();
};

// A base of 1e6 and an epsilon of 1e-6 have a shortest text that a reader of JSON prints otherwise.
TEST_F(ModelFacts, AreTheSameHoweverNumbersAreWritten) {
  for (const std::string model :
       {R"("model_type": "gemma3_text", "head_dim": 8, "query_pre_attn_scalar": 8)",
        R"("model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2)",
        R"("model_type": "llama", "rope_theta": 1e6, "rms_norm_eps": 1e-6)",
        R"("model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 2e6})"}) {
    EXPECT_EQ(read(model, model), "");
  }
}

TEST_F(ModelFacts, TellModelsOfTheSameTensorsApart) {
  const std::string llama = R"("model_type": "llama")";
  const std::string mixtral = R"("model_type": "mixtral", "num_local_experts": 4)";
  const std::string gemma2 = R"("model_type": "gemma2", "head_dim": 8)";
  const std::string gpt_oss = R"("model_type": "gpt_oss", "num_local_experts": 4)";
  const std::string llama4 = R"("model_type": "llama4_text", "num_local_experts": 4)";
  struct Case {
    std::string of, change, key;
  };
  for (const auto& [of, change, key] :
       {Case{llama, R"("hidden_act": "gelu")", "hidden_act"},
        Case{llama, R"("rope_theta": 500.0)", "rope_theta"},
        Case{llama, R"("rope_scaling": {"rope_type": "linear", "factor": 2})", "rope_scaling"},
        Case{mixtral, R"("sliding_window": 4)", "sliding_window"},
        Case{mixtral, R"("num_experts_per_tok": 1)", "num_experts_per_tok"},
        Case{gpt_oss, R"("swiglu_limit": 3.0)", "swiglu_limit"},
        Case{gpt_oss, R"("swiglu_alpha": 1.0)", "swiglu_alpha"},
        Case{llama4, R"("use_qk_norm": false)", "use_qk_norm"},
        Case{llama4, R"("no_rope_layers": [0, 1])", "no_rope_layers"},
        Case{llama4, R"("attention_chunk_size": 4)", "attention_chunk_size"},
        Case{llama4, R"("attn_temperature_tuning": false)", "attn_scale"},
        Case{llama4, R"("floor_scale": 4)", "floor_scale"},
        Case{gemma2, R"("final_logit_softcapping": 3.0)", "final_logit_softcapping"},
        Case{gemma2, R"("attn_logit_softcapping": 3.0)", "attn_logit_softcapping"},
        Case{gemma2, R"("query_pre_attn_scalar": 4)", "attention_scale"}}) {
    const std::string said = read(of, of + ", " + change);
    EXPECT_NE(said.find("model." + key + ": the checkpoint's model has "), std::string::npos)
        << key << ": " << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace rehearse::exec
