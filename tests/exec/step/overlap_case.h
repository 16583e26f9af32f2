// SPDX-License-Identifier: Apache-2.0
// A tiny model with a shared expert, and layouts in which work runs beside its dispatch.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "tests/exec/step/experts_case.h"

namespace rehearse::exec {

using Keys = std::vector<std::string>;

// A tiny Qwen2-MoE: four routed experts, and a shared one with a gate.
inline const Json kShared = {{"model_type", "qwen2_moe"},
                             {"num_hidden_layers", 4},
                             {"hidden_size", 32},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 2},
                             {"vocab_size", 64},
                             {"max_position_embeddings", 16},
                             {"intermediate_size", 48},
                             {"num_experts", 4},
                             {"num_experts_per_tok", 2},
                             {"moe_intermediate_size", 24},
                             {"shared_expert_intermediate_size", 40},
                             {"decoder_sparse_step", 1},
                             {"norm_topk_prob", false},
                             {"tie_word_embeddings", false}};

inline Keys with(const Keys& keys, std::initializer_list<const char*> more) {
  Keys all = keys;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

inline void expect_equal(const TinyRun& one, const TinyRun& other) {
  ASSERT_EQ(one.error, "");
  ASSERT_EQ(other.error, "");
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_EQ(one.norms, other.norms);
  EXPECT_EQ(one.rows, other.rows);
  EXPECT_EQ(one.weights, other.weights);
  EXPECT_EQ(other.planned, other.counted);
}

// An order whose pairs hold a forward and a backward of two micro-batches.
inline const Keys kInterleaved{"micro_batch=1",          "pipeline_parallel=2",
                               "virtual_stages=2",       "schedule=interleaved_1f1b",
                               "extra_warmup=1",         "expert_capacity=4",
                               "global_batch=8",         "train.steps=3",
                               "microbatch_group_size=2"};

}  // namespace rehearse::exec
