#!/usr/bin/env python3
"""Holds every other spelling of a dialect's keys against transformers, and says what becomes of each.

    python3 -m venv v && v/bin/pip install torch==2.15.0 transformers==5.23.0
    v/bin/python tests/data/configs/spellings.py [DIALECT...] [--all] [--rehearse COMMAND]

A spelling is a change of the dialect's smallest case: another dialect's word for a key, alone or
beside the class's own; null; a flag turned; an activation by every name; rotary positions by every
type, place and age of the words. One training step is made in transformers and by `rehearse run`:
same (losses and gradient norms agree), refused (by `run`), ours (a key that transformers has not, which
`run` says in a line), no model (transformers makes none), or DIFFERS, and then the exit status is 1.
A line per spelling that is not the same; --all: per spelling.
"""
import argparse
import dataclasses
import json
import sys
from collections import Counter

import numpy as np
import torch
import transformers
from transformers.activations import ACT2FN
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers import AutoModelForCausalLM

import cases
import expert_cases
import transformers_side
from compare import LOSSES, NORMS, ours
from transformers_side import formula, norm_base, train

ALL = cases.CASES | expert_cases.CASES
BASES = {name: name for name in (
    "gpt2 llama mistral qwen2 qwen3 gpt_neox bloom mpt gemma2 phi3 olmo2 glm4 starcoder2 mixtral qwen2_moe "
    "qwen3_moe olmoe glm4_moe gpt_oss deepseek_v2 deepseek_v3").split()}
BASES |= {"gemma3_text": "gemma3", "llama4_text": "llama4_no_rope"}
MOST_PARAMETERS = 300_000  # where a class's default is a model of full size, no step is made

# What a key means: its words in whatever dialect, and values that no case and no class has.
CONCEPTS = [
    ("hidden_size n_embd n_embed d_model", [64]),
    ("num_hidden_layers n_layer n_layers num_layers", [2]),
    ("num_attention_heads n_head n_heads", [8]),
    ("num_key_value_heads num_kv_heads n_kv_heads kv_n_heads", [1]),
    ("head_dim qk_head_dim", [24]),
    ("intermediate_size n_inner ffn_hidden_size ffn_dim intermediate_size_mlp", [40]),
    ("max_position_embeddings n_positions seq_length max_seq_len n_ctx initial_context_length", [32]),
    ("vocab_size padded_vocab_size", [67]),
    ("hidden_act activation_function hidden_activation activation", ["relu", "gelu"]),
    ("rms_norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon norm_eps", [0.03]),
    ("rope_theta rotary_emb_base rope_local_base_freq rotary_base", [77.0]),
    ("partial_rotary_factor rotary_pct rotary_percent", [0.5, 1.0]),
    ("original_max_position_embeddings", [8]),
    ("sliding_window attention_window window_size", [3]),
    ("sliding_window_pattern _sliding_window_pattern", [2]),
    ("use_sliding_window", [True]),
    ("max_window_layers", [1]),
    ("attention_chunk_size", [5]),
    ("attention_bias qkv_bias use_bias bias mlp_bias no_bias add_bias_linear", [True, False]),
    ("tie_word_embeddings tie_embeddings", [True, False]),
    ("num_experts num_local_experts n_routed_experts moe_num_experts", [16]),
    ("num_experts_per_tok experts_per_token num_experts_per_token moe_topk moe_top_k top_k", [3]),
    ("moe_intermediate_size expert_intermediate_size", [20]),
    ("shared_expert_intermediate_size shared_intermediate_size", [28]),
    ("n_shared_experts num_shared_experts", [2]),
    ("first_k_dense_replace", [2]),
    ("moe_layer_freq decoder_sparse_step interleave_moe_layer_step", [2]),
    ("mlp_only_layers moe_layers", [[1]]),
    ("routed_scaling_factor route_scale", [1.7]),
    ("norm_topk_prob", [True, False]),
    ("n_group num_expert_group", [4]),
    ("topk_group", [2]),
    ("topk_method", ["greedy", "group_limited_greedy", "noaux_tc"]),
    ("scoring_func", ["softmax", "sigmoid"]),
    ("use_qk_norm qk_norm qk_layernorm", [True, False]),
    ("attn_logit_softcapping logit_softcapping attn_logit_softcap", [2.0]),
    ("final_logit_softcapping", [1.5]),
    ("query_pre_attn_scalar attention_multiplier softmax_scale attn_scale", [3.0]),
    ("logit_scale logits_scaling embedding_multiplier residual_multiplier", [2.0]),
    ("use_parallel_residual parallel_attn parallel_residual", [True, False]),
    ("rope_interleave interleaved", [True, False]),
    ("scale_attn_weights", [False]),
    ("scale_attn_by_inverse_layer_idx reorder_and_upcast_attn", [True]),
    ("apply_residual_connection_post_layernorm", [True]),
    ("no_rope_layers", [[0, 1, 1]]),
    ("no_rope_layer_interval", [2]),
    ("attn_temperature_tuning", [False]),
    ("floor_scale", [3]),
    ("swiglu_limit", [0.5]),
    ("swiglu_alpha", [1.2]),
    ("clip_qkv", [0.3]),
    ("use_bidirectional_attention is_causal is_decoder", [True, False]),
    ("pad_token_id", [5, -2]),
    ("q_lora_rank", [16]),
    ("v_head_dim", [6]),
    ("pretraining_tp", [2]),
    ("per_layer_config", [{"0": {"intermediate_size": 24}}]),
    ("tie_last_hidden_states", [True, False]),
    ("position_embedding_type", ["rope", "alibi", "absolute"]),
    ("layer_types", [["attention"] * 3, ["full_attention"] * 3, ["sliding_attention"] * 3,
                     ["full_attention", "sliding_attention", "full_attention"],
                     ["chunked_attention"] * 3, ["full_attention"] * 2]),
    ("num_nextn_predict_layers num_mtp_layers", [1]),
    ("output_router_logits", [True]),
    ("router_jitter_noise", [0.1]),
]

TYPES = {
    "default": {}, "linear": {"factor": 4.0}, "dynamic": {"factor": 3.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 16},
    "longrope": {"factor": 4.0, "original_max_position_embeddings": 8},
    "su": {"factor": 4.0, "original_max_position_embeddings": 8}, "mrope": {}, "proportional": {},
}
# Classes that read positions in a way of their own, and one of those that read them as all do: for
# these, all that may be said. For the others the types below by both words, in both places.
WHOLE = ("llama", "gemma3_text", "gpt_oss", "phi3", "gpt_neox", "glm4", "deepseek_v3")
SOME = ("linear", "yarn", "longrope")

# What else may stand inside, by type.
INSIDE = [
    ("linear", {"rope_theta": 50.0}), ("linear", {"partial_rotary_factor": 0.5}),
    ("linear", {"attention_factor": 1.5}), ("linear", {"beta_fast": 4.0}),
    ("linear", {"factor": 0.5}), ("linear", {"factor": None}), ("linear", {"rope_theta": None}),
    ("dynamic", {"original_max_position_embeddings": 4}),
    ("yarn", {"attention_factor": 1.4}), ("yarn", {"attention_factor": None}),
    ("yarn", {"beta_fast": 6.0, "beta_slow": 0.5}), ("yarn", {"beta_fast": 0}),
    ("yarn", {"beta_slow": 0}), ("yarn", {"beta_fast": None}),
    ("yarn", {"mscale": 0.7}), ("yarn", {"mscale_all_dim": 0.7}),
    ("yarn", {"mscale": 0.7, "mscale_all_dim": 1.2}), ("yarn", {"mscale": 1.0, "mscale_all_dim": 0}),
    ("yarn", {"truncate": False}), ("yarn", {"truncate": None}), ("yarn", {"factor": None}),
    ("yarn", {"factor": 0.5}), ("yarn", {"original_max_position_embeddings": None}),
    ("yarn", {"partial_rotary_factor": 0.5}), ("yarn", {"partial_rotary_factor": None}),
    ("yarn", {"finetuned": True}), ("llama3", {"attention_factor": 1.4}),
    ("llama3", {"original_max_position_embeddings": None}),
    ("llama3", {"low_freq_factor": 4.0}), ("longrope", {"attention_factor": 1.4}),
    ("longrope", {"factor": None}), ("longrope", {"original_max_position_embeddings": None}),
    ("longrope", {"short_mscale": 1.1, "long_mscale": 1.2}), ("default", {"factor": 4.0}),
    ("default", {"partial_rotary_factor": 0.5}), ("default", {"mrope_section": [2, 1, 1]}),
]
# Keys that classes read without declaring them.
OFTEN = {"is_causal", "head_dim", "rope_theta", "partial_rotary_factor", "attention_bias"}
LEFT_OUT = [("yarn", "factor"), ("yarn", "original_max_position_embeddings"),
            ("llama3", "original_max_position_embeddings"), ("llama3", "low_freq_factor"),
            ("longrope", "factor"), ("longrope", "original_max_position_embeddings"),
            ("longrope", "long_factor"), ("linear", "factor"), ("dynamic", "factor")]


def without(config, words):
    return {key: value for key, value in config.items() if key not in words}


def pairs_that_rotate(config):
    """How many pairs of a head rotate, and so how many factors longrope lists."""
    if "qk_rope_head_dim" in config:
        return config["qk_rope_head_dim"] // 2
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    share = CONFIG_MAPPING[config["model_type"]]().rope_parameters.get("partial_rotary_factor", 1.0)
    return int(width * config.get("partial_rotary_factor", config.get("rotary_pct", share))) // 2


def scaled(config, kind, more=None):
    inside = dict(TYPES[kind])
    if kind in ("longrope", "su") or config["model_type"] == "phi3":  # which calls it yarn, too
        n = pairs_that_rotate(config)
        inside |= {"short_factor": [1.0 + 0.5 * i for i in range(n)],
                   "long_factor": [2.0 + 0.7 * i for i in range(n)]}
    return inside | (more or {})


def rotary(config):
    """Rotary positions: types by both words in both places, what may stand inside, and outside."""
    plain = without(config, ("rope_parameters", "rope_scaling", "rope_theta"))
    nested = config["model_type"] == "gemma3_text"  # alone has positions by kind of layer
    whole = config["model_type"] in WHOLE
    for place in ("rope_scaling", "rope_parameters"):
        for kind in TYPES if whole else SOME:
            # dynamic is plain within the model's positions
            base = plain | ({"max_position_embeddings": 8} if kind == "dynamic" else {})
            inside = scaled(config, kind)
            for words in ({"rope_type": kind}, {"type": kind}, {"type": kind, "rope_type": kind},
                          {"type": "default", "rope_type": kind},
                          {"type": kind, "rope_type": "default"}, {"type": kind, "rope_type": None},
                          )[:None if whole else 2]:
                yield {place: {**words, **inside}}, base
                if nested or kind == "linear":  # of others refused
                    yield {place: {"full_attention": {**words, **inside},
                                   "sliding_attention": {"rope_type": "default"}}}, base
            yield {place: inside}, base
            yield {place: {"rope_type": kind, **inside}, "rope_theta": 60.0}, base
            yield {place: {"rope_type": kind, "rope_theta": 60.0, **inside}}, base
            yield {place: {"rope_type": kind, "rope_theta": 60.0, **inside}, "rope_theta": 60.0}, base
            yield {place: {"rope_type": kind, "rope_theta": 60.0, **inside}, "rope_theta": 70.0}, base
            for outside in ({"original_max_position_embeddings": 12}, {"partial_rotary_factor": 0.5},
                            {"rotary_emb_base": 33.0}, {"rope_local_base_freq": 33.0},
                            {"rotary_pct": 0.5}):
                yield {place: {"rope_type": kind, **inside}, **outside}, base
        for kind, more in INSIDE if whole else ():
            both = {"rope_type": kind, **scaled(config, kind, more)}
            yield {place: both}, plain
            if nested:
                yield {place: {"full_attention": both, "sliding_attention": both}}, plain
        for kind, key in LEFT_OUT if whole else ():
            yield {place: {"rope_type": kind, **without(scaled(config, kind), (key,))}}, plain
        for value in ({}, None, {"full_attention": None}, {"full_attention": {}}, {"rope_type": None},
                      {"sliding_attention": {"rope_type": "linear", "factor": 3.0}},
                      {"full_attention": {"rope_theta": 40.0}}):
            yield {place: value}, plain
    linear = {"rope_type": "linear", "factor": 4.0}
    yield {"rope_scaling": linear, "rope_parameters": {}}, plain
    yield {"rope_scaling": {}, "rope_parameters": linear}, plain
    yield {"rope_scaling": None, "rope_parameters": linear}, plain
    yield {"rope_scaling": linear, "rope_parameters": None}, plain
    yield {"rope_scaling": linear, "rope_parameters": {"rope_type": "default"}}, plain


def spellings(config):
    """(what is changed, the config)"""
    made = CONFIG_MAPPING[config["model_type"]]()
    known = {field.name for field in dataclasses.fields(made)} | set(made.attribute_map) | OFTEN
    for words, values in CONCEPTS:
        words = words.split()
        for word in words:
            for value in values + [None] * (word in known):
                beside = {**config, word: value}
                alone = {**without(config, words), word: value}
                yield f"{word} {json.dumps(value)}", beside
                if alone != beside:
                    yield f"{word} {json.dumps(value)} alone", alone
    listed = {word for words, _ in CONCEPTS for word in words.split()}
    for word in sorted(known - listed):
        if "drop" in word or word in ("dtype", "model_type", "rope_parameters"):
            continue
        yield f"{word} null", {**config, word: None}
        if isinstance(getattr(made, word, None), bool):
            yield f"{word} turned", {**config, word: not getattr(made, word)}
    for word in ("hidden_act", "activation_function", "hidden_activation"):
        if word in known:
            for name in ACT2FN:
                yield f"{word} {name}", {**config, word: name}
    if hasattr(made, "rope_parameters"):
        for change, base in rotary(config):
            yield json.dumps(change), {**base, **change}


def is_small(config):
    made = CONFIG_MAPPING[config["model_type"]].from_dict(without(json.loads(json.dumps(config)), ("model_type",)))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(made)
    return sum(p.numel() for p in model.parameters()) <= MOST_PARAMETERS


def judge(rehearse, config):
    """(same | refused | ours | no model | too large | DIFFERS, why)"""
    try:
        if not is_small(config):
            return "too large", ""
        losses, norms, tensors = train(config)
    except Exception as error:  # of whatever kind transformers raises
        return "no model", str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
    weights = {n: formula(n, shape, norm_base(config)) for n, shape in tensors.items()}
    report, refused = ours(rehearse, config, weights, "one rank")
    if refused is not None:
        return "refused", refused
    loss = np.max(np.abs(np.subtract(report["losses"], losses)))
    norm = np.max(np.abs(np.divide(report["grad_norms"], norms) - 1))
    if loss <= LOSSES and norm <= NORMS:
        return "same", ""
    if "transformers has no such key" in report["said"]:
        return "ours", report["said"].splitlines()[0]
    return "DIFFERS", f"losses within {loss:.1e}, norms within {norm:.1e}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dialects", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--rehearse", default="build/release/bin/rehearse")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(50)
    transformers.logging.disable_progress_bar()
    transformers_side.TRAIN["steps"] = 1
    differs = 0
    for dialect in options.dialects or BASES:
        found, seen = Counter(), set()
        for label, config in spellings(ALL[BASES[dialect]]):
            text = json.dumps(config, sort_keys=True)
            config = json.loads(text)  # no part is shared
            if text in seen:
                continue
            seen.add(text)
            what, why = judge(options.rehearse, config)
            found[what] += 1
            if options.all or what in ("refused", "ours", "DIFFERS"):
                print(f"{dialect}: {label}: {what}{': ' * bool(why)}{why}", flush=True)
        print(f"{dialect}: " + ", ".join(f"{n} {what}" for what, n in sorted(found.items())), flush=True)
        differs += found["DIFFERS"]
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
