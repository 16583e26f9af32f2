"""Tiny config.json files over the dialects with experts."""
from cases import DEEPSEEK2, DEEPSEEK3, GPT2, LLAMA, layers, rope, without

MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
           "sliding_window": None}
EXPERTS = {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
QWEN2 = {**EXPERTS, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 40}
QWEN3 = {**EXPERTS, "model_type": "qwen3_moe", "head_dim": 16, "norm_topk_prob": True}
OLMOE = {**LLAMA, "model_type": "olmoe", "num_experts": 4, "num_experts_per_tok": 2,
         "intermediate_size": 24}
DENSE_FIRST = {"first_k_dense_replace": 1, "n_routed_experts": 8}
V2 = {**DEEPSEEK2, **DENSE_FIRST}
V3 = {**DEEPSEEK3, **DENSE_FIRST}
GLM = {**LLAMA, "model_type": "glm4_moe", "head_dim": 16, "n_routed_experts": 8,
       "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
       "first_k_dense_replace": 1, "pad_token_id": None}
GPT_OSS = {**LLAMA, "model_type": "gpt_oss", "num_local_experts": 4, "head_dim": 8,
           "num_experts_per_tok": 2, "sliding_window": 64,
           "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0}}
LLAMA4 = {**LLAMA, "model_type": "llama4_text", "num_local_experts": 4, "num_experts_per_tok": 1,
          "intermediate_size": 24, "intermediate_size_mlp": 48, "head_dim": 8,
          "interleave_moe_layer_step": 1}
LLAMA4_LOCAL = {**LLAMA4, "no_rope_layers": [1, 0, 1], "attention_chunk_size": 8}
# Of mappings that are run.
DOTS1 = {**LLAMA, "model_type": "dots1", "head_dim": 8, "n_routed_experts": 8, "n_shared_experts": 2,
         "num_experts_per_tok": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 1,
         "sliding_window": 5, "max_window_layers": 2}
SOLAR = {**LLAMA, "model_type": "solar_open", "head_dim": 8, "n_routed_experts": 8,
         "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LITE = {**DEEPSEEK3, "model_type": "glm4_moe_lite", "first_k_dense_replace": 1, "n_group": 1,
        "topk_group": 1}
NEXT = {**QWEN2, "model_type": "qwen3_next", "head_dim": 16, "layer_types": ["full_attention"] * 3}
GPT2_EXPERTS = {**GPT2, "num_local_experts": 4, "moe_intermediate_size": 24}  # ours: gpt2_experts.py

# name: config
CASES = {
    "mixtral": MIXTRAL,
    "mixtral_router_loss": {**MIXTRAL, "output_router_logits": True, "router_aux_loss_coef": 0.02},
    "mixtral_one_of_eight": {**MIXTRAL, "num_local_experts": 8, "num_experts_per_tok": 1,
                             "intermediate_size": 24},
    "mixtral_tied_window": {**MIXTRAL, "tie_word_embeddings": True, "sliding_window": 6},

    "qwen2_moe": QWEN2,
    "qwen2_moe_norm_topk": {**QWEN2, "norm_topk_prob": True, "output_router_logits": True,
                            "router_aux_loss_coef": 0.01},
    "qwen2_moe_sparse_step": {**QWEN2, "decoder_sparse_step": 2},
    "qwen2_moe_windows": {**QWEN2, "use_sliding_window": True, "sliding_window": 5,
                          "max_window_layers": 2},
    "qwen2_moe_mlp_only": {**QWEN2, "mlp_only_layers": [0], "num_experts": 8},
    "qwen2_moe_dense_middle": {**QWEN2, "mlp_only_layers": [1]},

    "qwen3_moe": QWEN3,
    "qwen3_moe_plain_topk": {**QWEN3, "norm_topk_prob": False, "num_experts": 8,
                             "num_experts_per_tok": 3},
    "qwen3_moe_router_loss": {**QWEN3, "output_router_logits": True, "router_aux_loss_coef": 0.05},
    "qwen3_moe_windows": {**QWEN3, "use_sliding_window": True, "sliding_window": 5,
                          "max_window_layers": 2},
    "qwen3_moe_mlp_only": {**QWEN3, "mlp_only_layers": [0], "attention_bias": True},
    "qwen3_moe_dense_ends": {**QWEN3, "mlp_only_layers": [2, 0, 9]},
    "qwen3_moe_step_but_one": {**QWEN3, "mlp_only_layers": [3], "decoder_sparse_step": 2,
                               "num_hidden_layers": 4},

    "olmoe": OLMOE,
    "olmoe_norm_topk": {**OLMOE, "norm_topk_prob": True, "num_experts": 8},
    "olmoe_router_loss": {**OLMOE, "output_router_logits": True, "router_aux_loss_coef": 0.01},
    "olmoe_tied": {**OLMOE, "tie_word_embeddings": True, "num_experts_per_tok": 3,
                   "clip_qkv": None},

    "deepseek_v2": V2,
    "deepseek_v2_groups": {**V2, "topk_method": "group_limited_greedy", "num_experts_per_tok": 3,
                           "routed_scaling_factor": 1.5},
    "deepseek_v2_lite": {**V2, "q_lora_rank": None, "n_shared_experts": 2},
    "deepseek_v2_all_experts": {**V2, "first_k_dense_replace": 0},
    "deepseek_v2_sequence_loss": {**V2, "aux_loss_alpha": 0.2, "seq_aux": True},
    "deepseek_v2_batch_loss": {**V2, "aux_loss_alpha": 0.2, "seq_aux": False},

    "deepseek_v3": V3,
    "deepseek_v3_one_group": {**V3, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0},
    "deepseek_v3_plain_topk": {**V3, "norm_topk_prob": False, "n_routed_experts": 16, "n_group": 4,
                               "topk_group": 2, "num_experts_per_tok": 4, "moe_intermediate_size": 16},
    "deepseek_v3_plain_q": {**V3, "q_lora_rank": None, "n_shared_experts": 2},
    "deepseek_v3_sequence_loss": {**V3, "aux_loss_alpha": 0.3, "num_nextn_predict_layers": 1},

    "glm4_moe": GLM,
    "glm4_moe_groups": {**GLM, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3,
                        "routed_scaling_factor": 2.5},
    "glm4_moe_qk_norm": {**GLM, "use_qk_norm": True, "attention_bias": True,
                         "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
    "glm4_moe_plain_topk": {**GLM, "norm_topk_prob": False, "n_shared_experts": 2,
                            "first_k_dense_replace": 2},
    "glm4_moe_all_experts": {**GLM, "first_k_dense_replace": 0, "tie_word_embeddings": True,
                             "partial_rotary_factor": 1.0, "n_routed_experts": 16,
                             "num_experts_per_tok": 4, "moe_intermediate_size": 16},

    "gpt_oss": GPT_OSS,
    "gpt_oss_window": {**GPT_OSS, "sliding_window": 5},
    "gpt_oss_router_loss": {**GPT_OSS, "output_router_logits": True, "router_aux_loss_coef": 0.02},
    "gpt_oss_yarn": {**GPT_OSS, "rope_parameters": rope(
        "yarn", rope_theta=150000.0, factor=4.0, original_max_position_embeddings=16,
        beta_fast=32.0, beta_slow=1.0, truncate=False)},
    "gpt_oss_layer_types": {**GPT_OSS, "layer_types": layers(*"fsf"), "sliding_window": 4,
                            "num_local_experts": 8},
    "gpt_oss_clamped": {**GPT_OSS, "swiglu_limit": 0.4, "swiglu_alpha": 1.3},
    "gpt_oss_own_positions": without(GPT_OSS, "rope_parameters"),  # the class has yarn
    "gpt_oss_empty_scaling": {**without(GPT_OSS, "rope_parameters"), "rope_scaling": {}},

    "llama4": LLAMA4,
    "llama4_interleaved": {**LLAMA4, "interleave_moe_layer_step": 2, "use_qk_norm": False},
    "llama4_tied": {**LLAMA4, "tie_word_embeddings": True, "num_local_experts": 8},
    "llama4_no_rope": {**LLAMA4, "no_rope_layers": [1, 0, 1], "attention_chunk_size": 8},
    "llama4_moe_layers": {**LLAMA4, "moe_layers": [2, 0], "interleave_moe_layer_step": 2},
    "llama4_two_of_four": {**LLAMA4, "num_experts_per_tok": 2},
    "llama4_temperature": {**LLAMA4_LOCAL, "floor_scale": 3, "attn_scale": 0.4},
    "llama4_no_temperature": {**LLAMA4_LOCAL, "floor_scale": 3, "attn_temperature_tuning": False,
                              "interleave_moe_layer_step": 3, "no_rope_layers": [0, 1, 0]},
    "llama4_layer_types": {**LLAMA4_LOCAL, "attention_chunk_size": 4, "layer_types": [
        "full_attention", "chunked_attention", "chunked_attention"]},
    "llama4_yarn": {**LLAMA4_LOCAL, "rms_norm_eps": 1e-2, "rope_parameters": rope(
        "yarn", rope_theta=500.0, factor=4.0, original_max_position_embeddings=16)},

    "dots1": DOTS1,
    "dots1_norm_topk": {**DOTS1, "norm_topk_prob": True, "routed_scaling_factor": 2.0,
                        "n_group": 2, "topk_group": 1, "max_window_layers": 0},
    "solar_open": SOLAR,
    "glm4_moe_lite": LITE,

    "qwen3_next_gate": NEXT,
    "qwen3_next_gate_dense_first": {**NEXT, "mlp_only_layers": [0], "norm_topk_prob": False,
                                    "num_key_value_heads": 1, "partial_rotary_factor": 0.5},

    "gpt2_experts": {**GPT2_EXPERTS, "num_experts_per_tok": 2},
    "gpt2_experts_shared": {**GPT2_EXPERTS, "num_experts_per_tok": 1, "activation_function": "relu",
                            "shared_expert_intermediate_size": 40},
    "gpt2_experts_as_wide": {**without(GPT2_EXPERTS, "moe_intermediate_size"),
                             "num_local_experts": 8, "num_experts_per_tok": 3},
}
