"""What transformers makes of a config.json: losses and gradient norms of a few AdamW steps in
float64, from weights and tokens that `rehearse run` has too (README.md). Needs torch, transformers."""
import copy
import math
import os
import tempfile

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import gpt2_experts

# The run of every case; the command's keys of the same names.
PLAN = {"sequence_length": 16, "micro_batch": 2, "global_batch": 4, "precision": "fp32"}
TRAIN = {"steps": 6, "learning_rate": 3e-4, "weight_decay": 0.1, "clip_norm": 1.0, "seed": 7,
         "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}

MASK = (1 << 64) - 1


def split_mix(seed, k):
    """splitmix64 of exec/train/data.cc, over an array of counters."""
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


def norm_base(config):
    """What the formula's weights of norms lie around: files of gemma, Qwen3-Next and 3.5 have a norm's
    weight less one."""
    return 0.0 if config["model_type"].startswith(("gemma", "qwen3_next", "qwen3_5")) else 1.0


def formula(name, shape, norm_at):
    """The float32 values of a tensor: README.md."""
    count = math.prod(shape)
    u = (split_mix(fnv1a(name), np.arange(count)) >> np.uint64(40)).astype(np.float64) / 2.0**24
    base, spread = 0.0, 1.0 / math.sqrt(shape[-1])
    if len(shape) == 1:
        norm = "norm" in name or "ln_" in name
        base, spread = (norm_at, 0.2) if norm and name.endswith("weight") else (0.0, 0.2)
    return (base + (2 * u - 1) * spread).astype(np.float32).reshape(shape)


def tokens(first, count, vocabulary, seed):
    """Data of exec/train/data.cc: a ramp with noise."""
    at = np.arange(first, first + count)
    noise = split_mix(seed, at) >> np.uint64(33)
    ramp = at.astype(np.uint64) % np.uint64(vocabulary)
    return np.where(noise % np.uint64(4) == 0, noise % np.uint64(vocabulary), ramp).astype(np.int64)


def published(model, folder, norm_at):
    """Names and shapes of the tensors in the file that a model is published as, once it is written
    with the formula's values."""
    model.save_pretrained(folder)
    path = os.path.join(folder, "model.safetensors")
    with safe_open(path, "np") as file:
        shapes = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}
    save_file({name: formula(name, shape, norm_at) for name, shape in shapes.items()}, path,
              metadata={"format": "pt"})
    return shapes


def build(config):
    """The model in float64 with the formula's weights, and the shapes of its published tensors."""
    if gpt2_experts.has_experts(config):
        model = gpt2_experts.Gpt2Experts(config)
        shapes = {name: list(tensor.shape) for name, tensor in model.named_parameters()}
        model.load_state_dict({name: torch.from_numpy(formula(name, shape, norm_base(config)))
                               for name, shape in shapes.items()})
        return model, shapes
    made = CONFIG_MAPPING[config["model_type"]].from_dict(
        {k: copy.deepcopy(v) for k, v in config.items() if k != "model_type"})
    how = {"attn_implementation": "eager"}
    with tempfile.TemporaryDirectory() as folder:
        tensors = published(AutoModelForCausalLM.from_config(made, **how), folder,
                            norm_base(config))
        model, loading = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.get_default_dtype(), output_loading_info=True, **how)
    wrong = [key for key, names in loading.items() if names]
    if wrong:
        raise ValueError(f"not read as it was written: {loading}")
    model.config._experts_implementation = "eager"
    model.train()
    for name, part in model.named_modules():
        for rate in (getattr(part, "p", 0.0), getattr(part, "attention_dropout", 0.0)):
            if isinstance(rate, float) and rate > 0:
                raise ValueError(f"{name} drops: no two generators drop the same elements")
    return model, tensors


def balance_loss(chosen, config, samples):
    """DeepSeek's loss of its routers, which transformers lacks, as DeepSeek-V3's report (arXiv
    2412.19437, eq. 17-20) and the code beside DeepSeek-V2's weights have it: sum over layers of
    alpha E / (k T^2) sum_e count_e sum_t P_te, the mean over groups of T tokens: sequences, or all.
    `chosen`: logits and indices (tokens, ...) of every layer; P: scores, divided by their sum."""
    total, groups = 0.0, samples if config.get("seq_aux", True) else 1
    for logits, indices in chosen:
        experts = logits.shape[-1]
        if config["model_type"] == "deepseek_v3":
            scores = logits.sigmoid()
            scores = scores / scores.sum(-1, keepdim=True)
        else:
            scores = logits.softmax(-1)
        scores, indices = scores.reshape(groups, -1, experts), indices.reshape(groups, -1)
        counts = torch.nn.functional.one_hot(indices, experts).sum(1).to(scores.dtype)
        frequent = counts * experts / indices.shape[1]  # f_e: 1 where all are chosen alike
        total = total + (frequent * scores.mean(1)).sum(-1).mean()
    return config["aux_loss_alpha"] * total


def loss_of(model, config, data):
    """Of one micro-batch; the router's loss is of its tokens alone, as wherever gradients add up."""
    if config.get("aux_loss_alpha"):
        return balanced_loss_of(model, config, data)
    out = model(input_ids=data[:, :-1], use_cache=False)
    loss = torch.nn.functional.cross_entropy(
        out.logits.reshape(-1, config["vocab_size"]).double(), data[:, 1:].reshape(-1))
    if getattr(out, "aux_loss", None) is not None and config.get("output_router_logits"):
        loss = loss + model.router_aux_loss_coef * out.aux_loss
    return loss


def balanced_loss_of(model, config, data):
    """The language model's loss, whose gradient is that of the sum with the routers' loss: what
    `rehearse run` reports, and what it trains."""
    chosen = []
    hooks = [part.register_forward_hook(lambda _part, _in, out: chosen.append((out[0], out[2])))
             for part in model.modules() if type(part).__name__.endswith("TopkRouter")]
    plain = {key: value for key, value in config.items() if key != "aux_loss_alpha"}
    loss = loss_of(model, plain, data)
    for hook in hooks:
        hook.remove()
    balance = balance_loss(chosen, config, len(data))
    return loss + balance - balance.detach()


def train(config, dtype=torch.float64):
    """(losses, gradient norms, shapes of the published tensors)"""
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
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
            optimizer.zero_grad()
            loss = sum(loss_of(model, config, part) for part in data.split(PLAN["micro_batch"]))
            loss = loss * PLAN["micro_batch"] / batch
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN["clip_norm"])
            optimizer.step()
            losses.append(float(loss.detach()))
            norms.append(float(norm))
        return losses, norms, tensors
    finally:
        torch.set_default_dtype(torch.float32)
