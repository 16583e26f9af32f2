// SPDX-License-Identifier: Apache-2.0
// The forms of today's models, and dropout, in every kind of layout: as on one rank. Bitwise where
// the layout adds in the same order, within 1e-5 where sums are split. That one rank trains as
// transformers does shows tests/cli/config_golden_test.cc.
#include <algorithm>
#include <cstdio>
#include <string_view>

#include "tests/exec/step/layout_case.h"

namespace rehearse::exec {
namespace {

using Keys = std::vector<std::string>;

struct Form {
  const char* name;
  const char* model;  // beside its sizes
};
void PrintTo(const Form& form, std::ostream* out) {
  *out << form.name;
}

constexpr Form kForms[] = {
    {"gemma2",  // norms around, soft caps, 1 + weight, scaled rows, windows in turn
     R"("model_type": "gemma2", "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8,
        "query_pre_attn_scalar": 16, "attn_logit_softcapping": 4, "final_logit_softcapping": 3,
        "sliding_window": 5)"},
    // norms of q and k, two kinds of rotary positions; here and below, where norms come behind
    // blocks, weights not as small as first ones: norms of what is nearly nothing enlarge rounding
    {"gemma3",
     R"("model_type": "gemma3_text", "initializer_range": 0.2, "intermediate_size": 48, "num_key_value_heads": 2,
        "head_dim": 8, "query_pre_attn_scalar": 16, "sliding_window": 5,
        "sliding_window_pattern": 2)"},
    {"olmo2",  // norms behind, one norm of all heads
     R"("model_type": "olmo2", "intermediate_size": 48, "num_key_value_heads": 2,
        "attention_bias": true)"},
    {"gpt_neox",  // both blocks read x, part of a head rotates
     R"("model_type": "gpt_neox", "intermediate_size": 64, "rotary_pct": 0.5)"},
    {"bloom", R"("model_type": "bloom")"},  // ALiBi, a norm behind the embedding
    {"glm4",                                // pairs side by side rotate
     R"("model_type": "glm4", "initializer_range": 0.2, "intermediate_size": 48,
        "num_key_value_heads": 2, "head_dim": 8)"},
    {"latent",  // queries, keys and values compressed, a rotary key for all heads, YaRN
     R"("model_type": "deepseek_v3", "initializer_range": 0.2, "intermediate_size": 48,
        "first_k_dense_replace": 8, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4, "v_head_dim": 6, "attention_bias": true,
        "rope_parameters": {"rope_type": "yarn", "factor": 4, "mscale_all_dim": 1,
                            "original_max_position_embeddings": 8})"},
    {"latent_plain_queries",  // compressed keys wider than the hidden state
     R"("model_type": "deepseek_v2", "initializer_range": 0.2, "intermediate_size": 48,
        "first_k_dense_replace": 8, "q_lora_rank": null, "kv_lora_rank": 40,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 16,
        "n_routed_experts": 4, "num_experts_per_tok": 2)"},
    // chunks, positions that rotate in some layers, temperature in the others, experts of one
    {"llama4",
     R"("model_type": "llama4_text", "intermediate_size": 48, "intermediate_size_mlp": 48,
        "num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 2,
        "interleave_moe_layer_step": 4, "attention_chunk_size": 4, "floor_scale": 4)"},
    // a gate of what heads give, norms of q and k, 1 + weight, half of a head rotates
    {"gate",
     R"("model_type": "qwen3_5_text", "initializer_range": 0.2, "intermediate_size": 48,
        "num_key_value_heads": 2, "head_dim": 8, "full_attention_interval": 1,
        "partial_rotary_factor": 0.5)"},
    {"dropout",
     R"("model_type": "gpt2", "resid_pdrop": 0.2, "attn_pdrop": 0.3, "embd_pdrop": 0.1)"},
    {"residual_dropout", R"("model_type": "starcoder2", "intermediate_size": 64,
        "num_key_value_heads": 2, "residual_dropout": 0.2, "embedding_dropout": 0.1)"},
    {"dropout_of_both_blocks",  // of one sum
     R"("model_type": "gpt_neox", "intermediate_size": 64, "hidden_dropout": 0.3)"},
};
const Form& form_named(std::string_view name) {
  return *std::ranges::find(kForms, name, &Form::name);
}

std::string model_file(const Form& form) {
  return std::string("{") + form.model +
         R"(, "num_hidden_layers": 8, "hidden_size": 32, "num_attention_heads": 4,
             "vocab_size": 61, "max_position_embeddings": 16})";
}

class Forms : public testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    one_ = train_layout(model_file(GetParam()), {});
    ASSERT_EQ(one_.error, "");
  }
  Distance from_one_rank(const Keys& keys) const {
    const Trained many = train_layout(model_file(GetParam()), keys);
    EXPECT_EQ(many.error, "");
    EXPECT_EQ(many.planned, many.counted);
    return distance(many, one_);
  }
  Trained one_;
};

TEST_P(Forms, PipelinesAndRecomputationTrainBitForBitLikeOneRank) {
  for (const Keys& keys :
       {Keys{"recompute=full"}, Keys{"recompute=selective"},
        Keys{"pipeline_parallel=4", "schedule=1f1b"}, Keys{"pipeline_parallel=4", "schedule=zb_h1"},
        Keys{"pipeline_parallel=2", "schedule=zb_h1", "recompute=full"},
        Keys{"pipeline_parallel=2", "schedule=dualpipev"},
        Keys{"pipeline_parallel=2", "schedule=dualpipev", "overlap.pair=\"none\""}}) {
    SCOPED_TRACE(keys.back());
    const Distance far = from_one_rank(keys);
    EXPECT_TRUE(far.bitwise) << far.tensor << ' ' << far.weight;
  }
}

TEST_P(Forms, WhereSumsAreSplitTheyTrainLikeOneRank) {
  std::vector<Keys> layouts = {
      Keys{"tensor_parallel=2"},
      Keys{"tensor_parallel=2", "sequence_parallel=true"},
      Keys{"tensor_parallel=2", "pipeline_parallel=2", "schedule=zb_h1", "sequence_parallel=true",
           "recompute=full"},
      Keys{"data_parallel=2", "zero_stage=3"},
      Keys{"micro_batch=4"},
      Keys{"schedule=seq_1f1b", "sequence_slices=2"},
      Keys{"schedule=seq_1f1b", "sequence_slices=2", "recompute=full"},
      Keys{"context_parallel=2"},
      Keys{"context_parallel=4", "recompute=full"},
      Keys{"context_parallel=2", "tensor_parallel=2"},
      Keys{"context_parallel=4", "context_parallel_algorithm=all_gather"},
      Keys{"context_parallel=2", "context_parallel_algorithm=all_to_all"},
      Keys{"context_parallel=4", "context_parallel_algorithm=all_to_all", "recompute=full"},
      Keys{"context_parallel=2", "context_parallel_algorithm=all_to_all", "tensor_parallel=2"},
      Keys{"context_parallel=4", "context_parallel_algorithm=a2a+p2p"},
      Keys{"context_parallel=2", "schedule=seq_1f1b", "sequence_slices=2"}};
  for (const Keys& keys : layouts) {
    SCOPED_TRACE(testing::PrintToString(keys));
    const Distance far = from_one_rank(keys);
    EXPECT_LE(far.loss, 1e-5);
    EXPECT_LE(far.norm, 1e-5);
    EXPECT_LE(far.weight, 1e-5) << far.tensor;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Forms, testing::ValuesIn(kForms),
                         [](const auto& form) { return std::string(form.param.name); });

// Four key heads' ranks of two: each rank norms the heads that it holds, and what they share is
// summed.
TEST(Forms, SharedKeyHeadsAreNormedByEveryRankThatHoldsThem) {
  const std::string model = model_file(form_named("gemma3"));
  const Trained one = train_layout(model, {}), four = train_layout(model, {"tensor_parallel=4"});
  ASSERT_EQ(four.error, "");
  EXPECT_LE(distance(four, one).weight, 1e-5);
}

// Two key heads on four ranks: in the sums of the norm each counts once, and the parts of its
// weight's gradient, of each holder's own queries, are summed once.
TEST(Forms, ANormOfAllHeadsCountsSharedKeyHeadsOnce) {
  const std::string model = model_file(form_named("olmo2"));
  const Trained one = train_layout(model, {});
  for (const Keys& keys : std::vector<Keys>{
           {"tensor_parallel=4"},
           {"tensor_parallel=4", "sequence_parallel=true"},
           {"tensor_parallel=4", "pipeline_parallel=2", "schedule=zb_h1", "recompute=full"},
           {"tensor_parallel=4", "data_parallel=2", "zero_stage=3"},
           {"tensor_parallel=4", "context_parallel=2"},
           {"tensor_parallel=4", "schedule=seq_1f1b", "sequence_slices=2"}}) {
    SCOPED_TRACE(testing::PrintToString(keys));
    const Trained many = train_layout(model, keys);
    ASSERT_EQ(many.error, "");
    EXPECT_EQ(many.planned, many.counted);
    const Distance far = distance(many, one);
    EXPECT_LE(far.norm, 1e-5);
    EXPECT_LE(far.weight, 1e-5) << far.tensor;
  }
}

// What attention drops in a chunk does not depend on who has the chunk, nor beside which samples.
TEST(Dropout, OfChunksIsTheSameInEveryLayout) {
  const std::string model = model_file(form_named("llama4"));
  const Trained one = train_layout(model, {"dropout=0.3"});
  ASSERT_EQ(one.error, "");
  for (const Keys& keys : std::vector<Keys>{{"micro_batch=4"},
                                            {"context_parallel=2"},
                                            {"context_parallel=4"},
                                            {"schedule=seq_1f1b", "sequence_slices=2"}}) {
    SCOPED_TRACE(testing::PrintToString(keys));
    Keys all = keys;
    all.emplace_back("dropout=0.3");
    const Trained many = train_layout(model, all);
    ASSERT_EQ(many.error, "");
    EXPECT_LE(distance(many, one).weight, 1e-5);
  }
}

// Another step and another seed drop other elements; the same ones drop the same.
TEST(Dropout, FollowsFromTheSeedAndChangesWhatIsLearnt) {
  const std::string dropped = model_file(form_named("dropout")), whole = R"({"model_type": "gpt2",
      "num_hidden_layers": 8, "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 61,
      "max_position_embeddings": 16})";
  const Trained once = train_layout(dropped, {}), again = train_layout(dropped, {});
  EXPECT_TRUE(distance(once, again).bitwise);
  EXPECT_GT(distance(once, train_layout(whole, {})).weight, 1e-3);
  // The plan's key stands above the model file's.
  EXPECT_TRUE(distance(train_layout(dropped, {"dropout=0"}), train_layout(whole, {})).bitwise);
}

}  // namespace
}  // namespace rehearse::exec
