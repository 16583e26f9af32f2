"""GPT-2 with experts, which transformers lacks, in plain PyTorch. The names of its parameters are
those of our files; products are [in, out] as GPT-2's, but for the router's."""
import math
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

# What a config may leave out.
DEFAULTS = {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "n_inner": None,
            "num_experts_per_tok": 2, "moe_intermediate_size": None,
            "shared_expert_intermediate_size": 0}
ACTIVATIONS = {"gelu_new": lambda x: F.gelu(x, approximate="tanh"), "relu": torch.relu}


class Product(nn.Module):
    def __init__(self, n_in, n_out, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(n_out)) if bias else None

    def forward(self, x):
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


class Attention(nn.Module):
    def __init__(self, h, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Product(h, 3 * h)
        self.c_proj = Product(h, h)

    def forward(self, x):
        batch, length, h = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.c_attn(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(h // self.heads)
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        o = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v
        return self.c_proj(o.transpose(1, 2).reshape(batch, length, h))


class Mlp(nn.Module):
    """Two matrices without biases."""
    def __init__(self, h, width, activation):
        super().__init__()
        self.c_fc = Product(h, width, bias=False)
        self.c_proj = Product(width, h, bias=False)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x):
        return self.c_proj(self.activation(self.c_fc(x)))


class Experts(nn.Module):
    """A token's sum over its experts, each times its share of the chosen ones' softmax."""
    def __init__(self, c):
        super().__init__()
        self.k = c.num_experts_per_tok
        self.router = nn.Linear(c.n_embd, c.num_local_experts, bias=False)
        width = c.moe_intermediate_size or c.n_inner or 4 * c.n_embd
        self.experts = nn.ModuleList(Mlp(c.n_embd, width, c.activation_function)
                                     for _ in range(c.num_local_experts))
        shared = c.shared_expert_intermediate_size
        self.shared_expert = Mlp(c.n_embd, shared, c.activation_function) if shared else None

    def forward(self, x):
        scores = self.router(x).softmax(-1)
        chosen = torch.zeros_like(scores).scatter(-1, scores.topk(self.k).indices, 1.0)
        weights = scores * chosen
        weights = weights / weights.sum(-1, keepdim=True)
        y = sum(weights[..., e:e + 1] * expert(x) for e, expert in enumerate(self.experts))
        return y if self.shared_expert is None else y + self.shared_expert(x)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1 = nn.LayerNorm(c.n_embd, c.layer_norm_epsilon)
        self.attn = Attention(c.n_embd, c.n_head)
        self.ln_2 = nn.LayerNorm(c.n_embd, c.layer_norm_epsilon)
        self.mlp = Experts(c)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2Experts(nn.Module):
    def __init__(self, config):
        super().__init__()
        c = SimpleNamespace(**{**DEFAULTS, **config})
        self.wte = nn.Embedding(c.vocab_size, c.n_embd)
        self.wpe = nn.Embedding(c.n_positions, c.n_embd)
        self.h = nn.ModuleList(Layer(c) for _ in range(c.n_layer))
        self.ln_f = nn.LayerNorm(c.n_embd, c.layer_norm_epsilon)

    def forward(self, input_ids, use_cache=False):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1]))
        for layer in self.h:
            x = layer(x)
        return SimpleNamespace(logits=self.ln_f(x) @ self.wte.weight.T)


def has_experts(config):
    return config["model_type"] == "gpt2" and config.get("num_local_experts", 0) > 0
