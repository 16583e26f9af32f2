// SPDX-License-Identifier: Apache-2.0
// What the dialects' rows are made of: for a model_type M, M() is what its class in transformers
// has where a file says nothing (kv_heads, head_dim, ffn_hidden 0: derived), and finish_M() reads
// what is its own, with the common keys read. A file per family.
#pragma once

#include "schedules/model/dialects/config_reader.h"
#include "schedules/model/model.h"

namespace rehearse::dialects {

// RMS norms, gated MLP, rotary positions, no biases, untied: what Llama began.
Transformer llama_like(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                       std::int64_t kv_heads, std::int64_t ffn, std::int64_t vocabulary,
                       std::int64_t positions);
// transformers masks every key by a window of 0.
void read_window(const ConfigReader& config, Transformer& model);

// gpt.cc
Transformer gpt2();
Transformer gpt_neox();
Transformer bloom();
Transformer mpt();
Transformer starcoder2();
void finish_gpt2(const ConfigReader& config, Transformer& model);
void finish_gpt_neox(const ConfigReader& config, Transformer& model);
void finish_bloom(const ConfigReader& config, Transformer& model);
void finish_mpt(const ConfigReader& config, Transformer& model);
void finish_starcoder2(const ConfigReader& config, Transformer& model);

// llama.cc
Transformer llama();
Transformer mistral();
Transformer mixtral();
Transformer phi3();
Transformer olmo2();
Transformer olmoe();
void finish_mixtral(const ConfigReader& config, Transformer& model);
void finish_phi3(const ConfigReader& config, Transformer& model);
void finish_olmoe(const ConfigReader& config, Transformer& model);

// llama4.cc
Transformer llama4_text();
void finish_llama4_text(const ConfigReader& config, Transformer& model);

// qwen.cc
Transformer qwen2();
Transformer qwen2_moe();
Transformer qwen3();
Transformer qwen3_moe();
void finish_qwen2(const ConfigReader& config, Transformer& model);
void finish_qwen2_moe(const ConfigReader& config, Transformer& model);
void finish_qwen3_moe(const ConfigReader& config, Transformer& model);

// gemma.cc
Transformer gemma2();
Transformer gemma3_text();
void finish_gemma2(const ConfigReader& config, Transformer& model);
void finish_gemma3_text(const ConfigReader& config, Transformer& model);

// deepseek.cc
Transformer deepseek_v2();
Transformer deepseek_v3();
Transformer glm4();
Transformer glm4_moe();
void finish_deepseek_v2(const ConfigReader& config, Transformer& model);
void finish_deepseek_v3(const ConfigReader& config, Transformer& model);
void finish_glm4(const ConfigReader& config, Transformer& model);
void finish_glm4_moe(const ConfigReader& config, Transformer& model);

// gpt_oss.cc
Transformer gpt_oss();
void finish_gpt_oss(const ConfigReader& config, Transformer& model);

}  // namespace rehearse::dialects
