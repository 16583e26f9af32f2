"""Tiny config.json files over the dialects without experts and the keys that change what a model
computes. Each says that nothing is dropped where its class would drop."""

SMALL = {"num_hidden_layers": 3, "vocab_size": 61}
LLAMA = {"model_type": "llama", **SMALL, "hidden_size": 32, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64}
MISTRAL = {**LLAMA, "model_type": "mistral", "sliding_window": None}
QWEN2 = {**LLAMA, "model_type": "qwen2"}
QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": 16}
GPT2 = {"model_type": "gpt2", "n_layer": 3, "vocab_size": 61, "n_embd": 32, "n_head": 4,
        "n_inner": 64, "n_positions": 16, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
NEOX = {"model_type": "gpt_neox", **SMALL, "hidden_size": 32, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 64}
NEOX_PLAIN = {**NEOX, "rotary_pct": 1.0, "use_parallel_residual": False, "hidden_act": "gelu_new"}
BLOOM = {"model_type": "bloom", "n_layer": 3, "vocab_size": 61, "hidden_size": 32, "n_head": 4}
GEMMA = {**LLAMA, "head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 24}
GEMMA2 = {**GEMMA, "model_type": "gemma2"}
GEMMA3 = {**GEMMA, "model_type": "gemma3_text"}
PHI3 = {**LLAMA, "model_type": "phi3", "pad_token_id": None}
OLMO2 = {**LLAMA, "model_type": "olmo2", "pad_token_id": None}
GLM4 = {**LLAMA, "model_type": "glm4", "head_dim": 8, "pad_token_id": None}
STARCODER2 = {**LLAMA, "model_type": "starcoder2", "attention_dropout": 0.0,
              "residual_dropout": 0.0, "embedding_dropout": 0.0}
# Of mappings that are run: layers of attention and an MLP alone.
SEED = {**LLAMA, "model_type": "seed_oss", "head_dim": 8, "attention_dropout": 0.0,
        "residual_dropout": 0.0}
SMOLLM3 = {**LLAMA, "model_type": "smollm3", "pad_token_id": None, "no_rope_layer_interval": 2}
QWEN35 = {**LLAMA, "model_type": "qwen3_5_text", "head_dim": 16, "layer_types": ["full_attention"] * 3}
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
          "v_head_dim": 8, "num_key_value_heads": 4}
DEEPSEEK = {**LLAMA, **LATENT, "n_routed_experts": 8, "n_shared_experts": 1,
            "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_group": 2, "topk_group": 1,
            "first_k_dense_replace": 3}  # dense in every layer
DEEPSEEK2 = {**DEEPSEEK, "model_type": "deepseek_v2", "topk_method": "greedy"}
DEEPSEEK3 = {**DEEPSEEK, "model_type": "deepseek_v3"}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def rope(kind, **more):
    return {"rope_type": kind, "rope_theta": 10000.0, **more}


def layers(*kinds):
    return [{"f": "full_attention", "s": "sliding_attention"}[kind] for kind in kinds]


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
LONG = {"short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [2.0, 3.0, 4.0, 6.0]}

# name: config
CASES = {
    "gpt2": GPT2,
    "gpt2_four_times": without(GPT2, "n_inner"),
    "gpt2_untied": {**GPT2, "tie_word_embeddings": False},
    "gpt2_epsilon": {**GPT2, "layer_norm_epsilon": 1e-2},
    "gpt2_six_heads": {**GPT2, "n_embd": 48, "n_head": 6, "vocab_size": 101},
    "gpt2_pytorch_tanh": {**GPT2, "activation_function": "gelu_pytorch_tanh"},
    "gpt2_gelu_fast": {**GPT2, "activation_function": "gelu_fast"},
    "gpt2_gelu_accurate": {**GPT2, "activation_function": "gelu_accurate"},
    "gpt2_padding_token": {**GPT2, "pad_token_id": 5},
    "gpt2_initializer_range": {**GPT2, "initializer_range": 0.3},
    "gpt2_transformers_5": {**GPT2, "dtype": "float32", "transformers_version": "5.23.0",
                            "architectures": ["GPT2LMHeadModel"], "use_cache": True},
    "gpt2_gelu": {**GPT2, "activation_function": "gelu"},
    "gpt2_relu": {**GPT2, "activation_function": "relu"},
    "gpt2_relu2": {**GPT2, "activation_function": "relu2"},
    "gpt2_silu": {**GPT2, "activation_function": "silu"},
    "gpt2_tanh": {**GPT2, "activation_function": "tanh"},
    "gpt2_quick_gelu": {**GPT2, "activation_function": "quick_gelu"},
    "gpt2_unscaled": {**GPT2, "scale_attn_weights": False},
    "gpt2_inverse_layer": {**GPT2, "scale_attn_by_inverse_layer_idx": True},
    "gpt2_inverse_layer_unscaled": {**GPT2, "scale_attn_by_inverse_layer_idx": True,
                                    "scale_attn_weights": False},

    "llama": LLAMA,
    "llama_theta": {**LLAMA, "rope_theta": 500000.0},
    "llama_rope_parameters": {**LLAMA, "rope_parameters": {"rope_type": "default",
                                                           "rope_theta": 500.0}},
    "llama_no_scaling": {**LLAMA, "rope_scaling": None, "rope_theta": 20.0},
    "llama_attention_bias": {**LLAMA, "attention_bias": True},
    "llama_mlp_bias": {**LLAMA, "mlp_bias": True},
    "llama_tied": {**LLAMA, "tie_word_embeddings": True},
    "llama_wide_heads": {**LLAMA, "head_dim": 16},
    "llama_one_kv_head": {**LLAMA, "num_key_value_heads": 1},
    "llama_all_kv_heads": without(LLAMA, "num_key_value_heads"),
    "llama_epsilon": {**LLAMA, "rms_norm_eps": 1e-2},
    "llama_pretraining_tp": {**LLAMA, "pretraining_tp": 2},
    "llama_swish": {**LLAMA, "hidden_act": "swish"},
    "llama_padding_token": {**LLAMA, "pad_token_id": 3},
    "llama_padding_token_last": {**LLAMA, "pad_token_id": -1},
    "llama_padding_token_tied": {**LLAMA, "pad_token_id": 4, "tie_word_embeddings": True},
    "llama_linear": {**LLAMA, "rope_scaling": rope("linear", factor=2.0)},
    "llama_linear_v4": {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "llama_linear_v5": {**LLAMA, "rope_parameters": rope("linear", factor=2.0)},
    "llama_dynamic": {**LLAMA, "max_position_embeddings": 8,
                      "rope_scaling": rope("dynamic", factor=2.0)},
    "llama_dynamic_short": {**LLAMA, "rope_scaling": rope("dynamic", factor=2.0)},
    "llama_yarn": {**LLAMA, "rope_scaling": rope("yarn", factor=4.0,
                                                 original_max_position_embeddings=16)},
    "llama_yarn_every_key": {**LLAMA, "rope_parameters": rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=8.0, beta_slow=0.5,
        attention_factor=1.3, truncate=False)},
    "llama_yarn_zero_betas": {**LLAMA, "rope_parameters": rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=0, beta_slow=0)},
    "llama_yarn_mscale": {**LLAMA, "rope_parameters": rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, mscale=0.7, mscale_all_dim=1.2)},
    "llama_llama3": {**LLAMA, "rope_scaling": rope("llama3", **LLAMA3)},
    "llama_llama3_v5": {**LLAMA, "head_dim": 16,
                        "rope_parameters": rope("llama3", **{**LLAMA3, "factor": 32.0})},
    "llama_longrope": {**LLAMA, "rope_scaling": rope(
        "longrope", factor=4.0, original_max_position_embeddings=32, **LONG)},
    "llama_longrope_long": {**LLAMA, "rope_parameters": rope(
        "longrope", factor=8.0, original_max_position_embeddings=8, **LONG)},
    "llama_gelu": {**LLAMA, "hidden_act": "gelu"},
    "llama_relu": {**LLAMA, "hidden_act": "relu"},
    "llama_relu2": {**LLAMA, "hidden_act": "relu2"},
    "llama_quick_gelu": {**LLAMA, "hidden_act": "quick_gelu"},
    "llama_gelu_pytorch_tanh": {**LLAMA, "hidden_act": "gelu_pytorch_tanh"},
    "llama_tanh": {**LLAMA, "hidden_act": "tanh"},


    "mistral": MISTRAL,
    "mistral_default_window": without(MISTRAL, "sliding_window"),
    "mistral_window": {**MISTRAL, "sliding_window": 16},
    "mistral_wide_heads": {**MISTRAL, "head_dim": 24, "rope_theta": 1e6},
    "mistral_short_window": {**MISTRAL, "sliding_window": 8},
    "mistral_window_of_one": {**MISTRAL, "sliding_window": 1},
    "mistral_yarn": {**MISTRAL, "sliding_window": 5, "rope_parameters": rope(
        "yarn", factor=2.0, original_max_position_embeddings=32)},

    "qwen2": QWEN2,
    "qwen2_tied": {**QWEN2, "tie_word_embeddings": True, "rms_norm_eps": 1e-3},
    "qwen2_wide_heads": {**QWEN2, "head_dim": 16},
    "qwen2_unused_window": {**QWEN2, "sliding_window": 4, "use_sliding_window": False,
                            "max_window_layers": 0},
    "qwen2_layer_types": {**QWEN2, "layer_types": layers(*"fff")},
    "qwen2_wide_window": {**QWEN2, "use_sliding_window": True, "sliding_window": 64,
                          "max_window_layers": 0},
    "qwen2_window": {**QWEN2, "use_sliding_window": True, "sliding_window": 4,
                     "max_window_layers": 0},
    "qwen2_last_layer_window": {**QWEN2, "use_sliding_window": True, "sliding_window": 4,
                                "max_window_layers": 2},
    "qwen2_alternating": {**QWEN2, "use_sliding_window": True, "sliding_window": 6,
                          "layer_types": layers(*"sfs")},

    "qwen3": QWEN3,
    "qwen3_tied": {**QWEN3, "tie_word_embeddings": True},
    "qwen3_attention_bias": {**QWEN3, "attention_bias": True, "rms_norm_eps": 1e-3},
    "qwen3_window": {**QWEN3, "use_sliding_window": True, "sliding_window": 5,
                     "max_window_layers": 1},
    "qwen3_yarn": {**QWEN3, "rope_parameters": rope("yarn", factor=4.0,
                                                    original_max_position_embeddings=16)},

    "gpt_neox": NEOX,
    "gpt_neox_plain": NEOX_PLAIN,
    "gpt_neox_no_biases": {**NEOX_PLAIN, "attention_bias": False},
    "gpt_neox_tied": {**NEOX_PLAIN, "tie_word_embeddings": True, "layer_norm_eps": 1e-2},
    "gpt_neox_base": {**NEOX_PLAIN, "rotary_emb_base": 300},
    "gpt_neox_rope_parameters": {**without(NEOX_PLAIN, "rotary_pct"), "rope_parameters": rope(
        "default", rope_theta=700.0, partial_rotary_factor=1.0)},
    "gpt_neox_parallel": without(NEOX_PLAIN, "use_parallel_residual"),
    "gpt_neox_quarter": without(NEOX_PLAIN, "rotary_pct"),
    "gpt_neox_half": {**NEOX_PLAIN, "rotary_pct": 0.5},
    "gpt_neox_half_v5": {**without(NEOX_PLAIN, "rotary_pct"), "rope_parameters": rope(
        "linear", factor=2.0, partial_rotary_factor=0.5)},
    "gpt_neox_gelu": without(NEOX_PLAIN, "hidden_act"),
    "gpt_neox_relu": {**NEOX, "hidden_act": "relu"},
    "gpt_neox_theta": {**NEOX_PLAIN, "rope_theta": 300.0},

    "bloom": BLOOM,
    "bloom_six_heads": {**BLOOM, "hidden_size": 24, "n_head": 6},
    "bloom_post_layernorm": {**BLOOM, "apply_residual_connection_post_layernorm": True},
    "bloom_untied": {**BLOOM, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},

    "gemma2": GEMMA2,
    "gemma2_no_caps": {**GEMMA2, "attn_logit_softcapping": None, "final_logit_softcapping": None},
    "gemma2_low_caps": {**GEMMA2, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 1.5,
                        "query_pre_attn_scalar": 4},
    "gemma2_layer_types": {**GEMMA2, "layer_types": layers(*"fsf"), "sliding_window": 3},
    "gemma2_exact_gelu": {**GEMMA2, "hidden_activation": "gelu"},
    "gemma2_untied": {**GEMMA2, "tie_word_embeddings": False, "attention_bias": True},

    "gemma3": {**GEMMA3, "layer_types": layers(*"ssf")},
    "gemma3_pattern": {**GEMMA3, "sliding_window_pattern": 2},
    "gemma3_default_pattern": {**GEMMA3, "num_hidden_layers": 6, "intermediate_size": 32},
    "gemma3_local_theta": {**GEMMA3, "layer_types": layers(*"sfs"), "rope_theta": 5000.0,
                           "rope_local_base_freq": 50.0},
    "gemma3_linear": {**GEMMA3, "layer_types": layers(*"fsf"),
                      "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "gemma3_rope_parameters": {**GEMMA3, "layer_types": layers(*"fsf"), "rope_parameters": {
        "full_attention": rope("linear", rope_theta=700.0, factor=4.0),
        "sliding_attention": rope("default", rope_theta=100.0)}},
    "gemma3_caps": {**GEMMA3, "layer_types": layers(*"sfs"), "attn_logit_softcapping": 3.0,
                    "final_logit_softcapping": 2.0},

    "phi3": PHI3,
    "phi3_window": {**PHI3, "sliding_window": 5},
    "phi3_partial": {**PHI3, "partial_rotary_factor": 0.5},
    "phi3_longrope": {**PHI3, "original_max_position_embeddings": 32,
                      "rope_scaling": {"type": "longrope", **LONG}},
    "phi3_longrope_as_yarn": {**PHI3, "original_max_position_embeddings": 32,
                              "rope_scaling": {"type": "yarn", **LONG, "factor": 2.0}},
    "phi3_longrope_long": {**PHI3, "original_max_position_embeddings": 8,
                           "rope_scaling": {"type": "longrope", **LONG}},
    "phi3_all_kv_heads": {**PHI3, "num_key_value_heads": 4, "tie_word_embeddings": True},

    "olmo2": OLMO2,
    "olmo2_tied": {**OLMO2, "tie_word_embeddings": True, "rms_norm_eps": 1e-3},
    "olmo2_attention_bias": {**OLMO2, "attention_bias": True, "rope_theta": 500.0},

    "glm4": GLM4,
    "glm4_no_biases": {**GLM4, "attention_bias": False},
    "glm4_quarter": {**GLM4, "partial_rotary_factor": 0.25, "head_dim": 16},

    "starcoder2": STARCODER2,
    "starcoder2_no_biases": {**STARCODER2, "use_bias": False},
    "starcoder2_window": {**STARCODER2, "sliding_window": 5},
    "starcoder2_untied": {**STARCODER2, "tie_word_embeddings": False, "hidden_act": "gelu",
                          "norm_epsilon": 1e-2},

    "seed_oss": SEED,
    "seed_oss_biases": {**SEED, "attention_bias": False, "attention_out_bias": True,
                        "mlp_bias": True, "head_dim": None},
    "smollm3": SMOLLM3,
    "smollm3_layers": {**SMOLLM3, "no_rope_layers": [0, 1, 0], "rope_theta": 500.0,
                       "tie_word_embeddings": False, "mlp_bias": True},
    "arcee": {**LLAMA, "model_type": "arcee"},
    "arcee_biases": {**LLAMA, "model_type": "arcee", "attention_bias": True, "mlp_bias": True,
                     "rope_parameters": rope("linear", factor=2.0)},
    "qwen3_5_gate": QWEN35,
    "qwen3_5_gate_wide": {**QWEN35, "attention_bias": True, "num_key_value_heads": 4,
                          "rope_parameters": rope("default", partial_rotary_factor=0.5)},
    "qwen3_5_delta": {**QWEN35, "layer_types": ["full_attention", "linear_attention",
                                                "full_attention"]},

    "youtu": {**LLAMA, **LATENT, "model_type": "youtu", "tie_word_embeddings": False},

    "deepseek_v2_dense": DEEPSEEK2,
    "deepseek_v2_plain_q": {**DEEPSEEK2, "q_lora_rank": None},
    "deepseek_v3_dense": DEEPSEEK3,
    "deepseek_v3_no_interleave": {**DEEPSEEK3, "rope_interleave": False},
    "deepseek_v3_yarn": {**DEEPSEEK3, "rope_parameters": rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0)},

    "mpt": {"model_type": "mpt", "d_model": 32, "n_heads": 4, "n_layers": 3, "vocab_size": 61,
            "max_seq_len": 64},
}
