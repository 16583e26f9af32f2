"""What transformers makes of a config.json: losses and gradient norms of a few AdamW steps in
float64, from weights and tokens that `rehearse run` has too (README.md). Needs torch, transformers."""
import math

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

# The run of every case; the command's keys of the same names.
PLAN = {"sequence_length": 16, "micro_batch": 2, "global_batch": 4, "precision": "fp32"}
TRAIN = {"steps": 6, "learning_rate": 3e-4, "weight_decay": 0.1, "clip_norm": 1.0, "seed": 7,
         "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}

MASK = (1 << 64) - 1


def split_mix(seed, k):
    """splitmix64 of exec/data.cc, over an array of counters."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (k.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def formula(name, shape):
    """The float32 values of a tensor: README.md."""
    count = math.prod(shape)
    u = (split_mix(fnv1a(name), np.arange(count)) >> np.uint64(40)).astype(np.float64) / 2.0**24
    base, spread = 0.0, 1.0 / math.sqrt(shape[-1])
    if len(shape) == 1:
        norm = "norm" in name or "ln_" in name
        base, spread = (1.0, 0.2) if norm and name.endswith("weight") else (0.0, 0.2)
    return (base + (2 * u - 1) * spread).astype(np.float32).reshape(shape)


def tokens(first, count, vocabulary, seed):
    """Data of exec/data.cc: a ramp with noise."""
    at = np.arange(first, first + count)
    noise = split_mix(seed, at) >> np.uint64(33)
    ramp = at.astype(np.uint64) % np.uint64(vocabulary)
    return np.where(noise % np.uint64(4) == 0, noise % np.uint64(vocabulary), ramp).astype(np.int64)


def neox_parameters(config):
    """GPT-NeoX in our own names and layout: q, k, v one after the other."""
    h, f, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    rows = [("model.embed_tokens.weight", [v, h])]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        rows += [(at + "input_layernorm.weight", [h]), (at + "norm1.bias", [h]),
                 (at + "self_attn.qkv_proj.weight", [3 * h, h]),
                 (at + "self_attn.o_proj.weight", [h, h]),
                 (at + "post_attention_layernorm.weight", [h]), (at + "norm2.bias", [h]),
                 (at + "mlp.gate_up_proj.weight", [f, h]), (at + "mlp.gate_up_proj.bias", [f]),
                 (at + "mlp.down_proj.weight", [h, f]), (at + "mlp.down_proj.bias", [h])]
        if config.get("attention_bias", True):
            rows += [(at + "self_attn.qkv_proj.bias", [3 * h]), (at + "self_attn.o_proj.bias", [h])]
    rows += [("model.norm.weight", [h]), ("final_norm.bias", [h])]
    if not config.get("tie_word_embeddings", False):
        rows.append(("lm_head.weight", [v, h]))
    return rows


def neox_of_ours(name, values, config):
    """Their name, and the values in their layout: q, k, v of each head together."""
    if "qkv_proj" in name:
        heads = config["num_attention_heads"]
        parts = values.reshape(3, heads, -1, *values.shape[1:])
        values = np.moveaxis(parts, 0, 1).reshape(values.shape)
    for ours, theirs in (("model.embed_tokens", "gpt_neox.embed_in"),
                         ("final_norm", "gpt_neox.final_layer_norm"),
                         ("model.norm", "gpt_neox.final_layer_norm"),
                         ("model.layers", "gpt_neox.layers"), ("norm1", "input_layernorm"),
                         ("norm2", "post_attention_layernorm"),
                         ("self_attn.qkv_proj", "attention.query_key_value"),
                         ("self_attn.o_proj", "attention.dense"),
                         ("mlp.gate_up_proj", "mlp.dense_h_to_4h"),
                         ("mlp.down_proj", "mlp.dense_4h_to_h")):
        name = name.replace(ours, theirs)
    return name, values


def build(config):
    """The model in float64 with the formula's weights, and its tensors as `run` reads them."""
    made = CONFIG_MAPPING[config["model_type"]].from_dict(
        {k: v for k, v in config.items() if k != "model_type"})
    made._attn_implementation = "eager"
    if hasattr(made, "_experts_implementation"):
        made._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(made, attn_implementation="eager").double().train()
    for part in model.modules():  # dropout is warned of, not executed: here it is left out too
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
        if hasattr(part, "attention_dropout") and isinstance(part.attention_dropout, float):
            part.attention_dropout = 0.0
    state, tensors = dict(model.named_parameters()), {}
    with torch.no_grad():
        if config["model_type"] == "gpt_neox":
            for name, shape in neox_parameters(config):
                tensors[name] = formula(name, shape)
                theirs, values = neox_of_ours(name, tensors[name], config)
                if theirs not in state:  # transformers 4
                    theirs = theirs.replace("lm_head", "embed_out")
                state[theirs].copy_(torch.from_numpy(values.astype(np.float64)))
        else:
            for name, value in state.items():
                tensors[name] = formula(name, list(value.shape))
                value.copy_(torch.from_numpy(tensors[name].astype(np.float64)))
    return model, tensors


def train(config):
    """(losses, gradient norms, tensors)"""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    try:
        model, tensors = build(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=TRAIN["learning_rate"],
                                      betas=(TRAIN["beta1"], TRAIN["beta2"]), eps=TRAIN["epsilon"],
                                      weight_decay=TRAIN["weight_decay"])
        length, batch, vocabulary = PLAN["sequence_length"], PLAN["global_batch"], config["vocab_size"]
        losses, norms = [], []
        for step in range(TRAIN["steps"]):
            rows = [tokens((step * batch + i) * length, length + 1, vocabulary, TRAIN["seed"])
                    for i in range(batch)]
            data = torch.from_numpy(np.stack(rows))
            out = model(input_ids=data[:, :-1], use_cache=False)
            loss = torch.nn.functional.cross_entropy(out.logits.reshape(-1, vocabulary).double(),
                                                     data[:, 1:].reshape(-1))
            if getattr(out, "aux_loss", None) is not None and config.get("output_router_logits"):
                loss = loss + model.router_aux_loss_coef * out.aux_loss
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN["clip_norm"])
            optimizer.step()
            losses.append(float(loss.detach()))
            norms.append(float(norm))
        return losses, norms, tensors
    finally:
        torch.set_default_dtype(torch.float32)
