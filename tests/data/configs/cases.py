"""Tiny config.json files over all dialects and the keys that change what a model computes."""

SMALL = {"num_hidden_layers": 2, "vocab_size": 61}
LLAMA = {"model_type": "llama", **SMALL, "hidden_size": 32, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64}
MISTRAL = {**LLAMA, "model_type": "mistral", "sliding_window": None}
QWEN2 = {**LLAMA, "model_type": "qwen2"}
GPT2 = {"model_type": "gpt2", "n_layer": 2, "vocab_size": 61, "n_embd": 32, "n_head": 4,
        "n_positions": 16}
NEOX = {"model_type": "gpt_neox", **SMALL, "hidden_size": 32, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 64, "rotary_pct": 1.0,
        "use_parallel_residual": False, "hidden_act": "gelu_new"}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
          "v_head_dim": 8, "n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 1,
          "n_group": 2, "topk_group": 1, "num_key_value_heads": 4}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def rope(kind, **more):
    return {"rope_type": kind, "rope_theta": 10000.0, **more}


# name: (config, key): key is what `run` names when it refuses the file; None: it must be equal.
CASES = {
    "gpt2": (GPT2, None),
    "gpt2_n_inner": ({**GPT2, "n_inner": 80}, None),
    "gpt2_untied": ({**GPT2, "tie_word_embeddings": False}, None),
    "gpt2_epsilon": ({**GPT2, "layer_norm_epsilon": 1e-2}, None),
    "gpt2_three_heads": ({**GPT2, "n_embd": 48, "n_head": 3, "vocab_size": 101}, None),
    "gpt2_pytorch_tanh": ({**GPT2, "activation_function": "gelu_pytorch_tanh"}, None),
    "gpt2_gelu_fast": ({**GPT2, "activation_function": "gelu_fast"}, None),
    "gpt2_gelu_accurate": ({**GPT2, "activation_function": "gelu_accurate"}, None),
    "gpt2_padding_token": ({**GPT2, "pad_token_id": 5}, None),
    "gpt2_initializer_range": ({**GPT2, "initializer_range": 0.3}, None),
    "gpt2_transformers_5": ({**GPT2, "dtype": "float32", "transformers_version": "5.23.0",
                             "architectures": ["GPT2LMHeadModel"], "use_cache": True}, None),
    "gpt2_dropout": ({**GPT2, "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1}, None),
    "gpt2_gelu": ({**GPT2, "activation_function": "gelu"}, "activation_function"),
    "gpt2_relu": ({**GPT2, "activation_function": "relu"}, "activation_function"),
    "gpt2_quick_gelu": ({**GPT2, "activation_function": "quick_gelu"}, "activation_function"),
    "gpt2_unscaled": ({**GPT2, "scale_attn_weights": False}, "scale_attn_weights"),
    "gpt2_inverse_layer": ({**GPT2, "scale_attn_by_inverse_layer_idx": True},
                           "scale_attn_by_inverse_layer_idx"),

    "llama": (LLAMA, None),
    "llama_theta": ({**LLAMA, "rope_theta": 500000.0}, None),
    "llama_rope_parameters": ({**LLAMA, "rope_parameters": {"rope_type": "default",
                                                            "rope_theta": 500.0}}, None),
    "llama_no_scaling": ({**LLAMA, "rope_scaling": None, "rope_theta": 20.0}, None),
    "llama_attention_bias": ({**LLAMA, "attention_bias": True}, None),
    "llama_mlp_bias": ({**LLAMA, "mlp_bias": True}, None),
    "llama_tied": ({**LLAMA, "tie_word_embeddings": True}, None),
    "llama_wide_heads": ({**LLAMA, "head_dim": 16}, None),
    "llama_one_kv_head": ({**LLAMA, "num_key_value_heads": 1}, None),
    "llama_all_kv_heads": (without(LLAMA, "num_key_value_heads"), None),
    "llama_epsilon": ({**LLAMA, "rms_norm_eps": 1e-2}, None),
    "llama_pretraining_tp": ({**LLAMA, "pretraining_tp": 2}, None),
    "llama_swish": ({**LLAMA, "hidden_act": "swish"}, None),
    "llama_padding_token": ({**LLAMA, "pad_token_id": 3}, None),
    "llama_padding_token_last": ({**LLAMA, "pad_token_id": -1}, None),
    "llama_padding_token_tied": ({**LLAMA, "pad_token_id": 4, "tie_word_embeddings": True}, None),
    "llama_linear": ({**LLAMA, "rope_scaling": rope("linear", factor=2.0)}, "rope_scaling"),
    "llama_linear_v4": ({**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}},
                        "rope_scaling"),
    "llama_linear_v5": ({**LLAMA, "rope_parameters": rope("linear", factor=2.0)},
                        "rope_parameters"),
    "llama_dynamic": ({**LLAMA, "max_position_embeddings": 8,
                       "rope_scaling": rope("dynamic", factor=2.0)}, "rope_scaling"),
    "llama_yarn": ({**LLAMA, "rope_scaling": rope("yarn", factor=4.0,
                                                  original_max_position_embeddings=16)},
                   "rope_scaling"),
    "llama_llama3": ({**LLAMA, "rope_scaling": rope("llama3", factor=8.0, low_freq_factor=1.0,
                                                    high_freq_factor=4.0,
                                                    original_max_position_embeddings=16)},
                     "rope_scaling"),
    "llama_longrope": ({**LLAMA, "rope_scaling": rope("longrope", factor=4.0,
                                                      short_factor=[1.0, 1.5, 2.0, 3.0],
                                                      long_factor=[2.0, 3.0, 4.0, 6.0],
                                                      original_max_position_embeddings=32)},
                       "rope_scaling"),
    "llama_gelu": ({**LLAMA, "hidden_act": "gelu"}, "hidden_act"),
    "llama_relu": ({**LLAMA, "hidden_act": "relu"}, "hidden_act"),
    "llama_gelu_pytorch_tanh": ({**LLAMA, "hidden_act": "gelu_pytorch_tanh"}, "hidden_act"),

    "mistral": (MISTRAL, None),
    "mistral_default_window": (without(MISTRAL, "sliding_window"), None),
    "mistral_window": ({**MISTRAL, "sliding_window": 16}, None),
    "mistral_wide_heads": ({**MISTRAL, "head_dim": 24, "rope_theta": 1e6}, None),
    "mistral_short_window": ({**MISTRAL, "sliding_window": 8}, "sliding_window"),

    "qwen2": (QWEN2, None),
    "qwen2_tied": ({**QWEN2, "tie_word_embeddings": True, "rms_norm_eps": 1e-3}, None),
    "qwen2_wide_heads": ({**QWEN2, "head_dim": 16}, None),
    "qwen2_unused_window": ({**QWEN2, "sliding_window": 4, "use_sliding_window": False,
                             "max_window_layers": 0}, None),
    "qwen2_layer_types": ({**QWEN2, "layer_types": ["full_attention", "full_attention"]}, None),
    "qwen2_wide_window": ({**QWEN2, "use_sliding_window": True, "sliding_window": 64,
                           "max_window_layers": 0}, None),
    "qwen2_window": ({**QWEN2, "use_sliding_window": True, "sliding_window": 4,
                      "max_window_layers": 0}, "use_sliding_window"),

    "gpt_neox": (NEOX, None),
    "gpt_neox_no_biases": ({**NEOX, "attention_bias": False}, None),
    "gpt_neox_tied": ({**NEOX, "tie_word_embeddings": True, "layer_norm_eps": 1e-2}, None),
    "gpt_neox_base": ({**NEOX, "rotary_emb_base": 300}, None),
    "gpt_neox_rope_parameters": ({**without(NEOX, "rotary_pct"),
                                  "rope_parameters": {"rope_type": "default", "rope_theta": 700.0,
                                                      "partial_rotary_factor": 1.0}}, None),
    "gpt_neox_parallel": (without(NEOX, "use_parallel_residual"), "use_parallel_residual"),
    "gpt_neox_quarter": (without(NEOX, "rotary_pct"), "rotary_pct"),
    "gpt_neox_half": ({**NEOX, "rotary_pct": 0.5}, "rotary_pct"),
    "gpt_neox_gelu": (without(NEOX, "hidden_act"), "hidden_act"),
    "gpt_neox_theta": ({**NEOX, "rope_theta": 300.0}, "rope_theta"),

    "mixtral": ({**LLAMA, "model_type": "mixtral", "num_local_experts": 4,
                 "num_experts_per_tok": 2}, "model_type"),
    "mixtral_router_loss": ({**LLAMA, "model_type": "mixtral", "num_local_experts": 4,
                             "num_experts_per_tok": 2, "output_router_logits": True},
                            "output_router_logits"),
    "qwen2_moe": ({**LLAMA, **EXPERTS, "model_type": "qwen2_moe", "num_experts": 4,
                   "shared_expert_intermediate_size": 40}, "model_type"),
    "qwen3": ({**LLAMA, "model_type": "qwen3", "head_dim": 16}, "model_type"),
    "qwen3_moe": ({**LLAMA, **EXPERTS, "model_type": "qwen3_moe", "num_experts": 4,
                   "head_dim": 16, "norm_topk_prob": True}, "model_type"),
    "bloom": ({"model_type": "bloom", "n_layer": 2, "vocab_size": 61, "hidden_size": 32,
               "n_head": 4}, "model_type"),
    "mpt": ({"model_type": "mpt", "d_model": 32, "n_heads": 4, "n_layers": 2, "vocab_size": 61,
             "max_seq_len": 64}, "model_type"),
    "deepseek_v2": ({**LLAMA, **EXPERTS, **LATENT, "model_type": "deepseek_v2"}, "model_type"),
    "deepseek_v3": ({**LLAMA, **EXPERTS, **LATENT, "model_type": "deepseek_v3"}, "model_type"),
    "gpt_oss": ({**LLAMA, "model_type": "gpt_oss", "num_local_experts": 4, "head_dim": 8,
                 "num_experts_per_tok": 2, "sliding_window": 64,
                 "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0}}, "model_type"),
}
