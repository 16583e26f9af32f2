# SPDX-License-Identifier: Apache-2.0
"""The GPT-2 of a race, trained by PyTorch: same weights, same tokens, same optimizer as `rehearse run`.

Prints one JSON line: version, losses, seconds per step, peak resident bytes of all its processes.
Cases: `one` (one process, --threads), `ddp` (DistributedDataParallel over gloo, --ranks processes of one
thread), `pipe` (two stages, untied head: torch.distributed.pipeline.sync.Pipe before PyTorch 2.4, and after it
torch.distributed.pipelining, 1F1B over gloo, two processes of one thread).
"""
import argparse
import json
import math
import os
import resource
import sys
import tempfile
import time

try:
    import numpy as np
except ImportError:
    np = None  # needed for the same weights and tokens, not by torch_gpt2_gpu.py
import torch
import torch.nn as nn
import torch.nn.functional as F

MODELS = {"124m": dict(V=50257, P=1024, C=768, L=12, H=12), "tiny": dict(V=256, P=128, C=256, L=4, H=8)}
MASK64 = (1 << 64) - 1


def split_mix(seed, k):  # exec/train/data.cc
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (k.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def initial(name, shape, layers, seed):  # exec/weights/initial.cc
    if name.endswith(".bias"):
        return torch.zeros(shape)
    if ".ln_" in name or name.startswith("ln_f"):
        return torch.ones(shape)
    value = 14695981039346656037
    for c in name.encode():
        value = ((value ^ c) * 1099511628211) & MASK64
    key = int(split_mix(seed, np.array([value], dtype=np.uint64))[0])
    k = np.arange(math.prod(shape), dtype=np.uint64)
    uniform = lambda bits: ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    radius = np.sqrt(-2 * np.log(uniform(split_mix(key, np.uint64(2) * k))))
    normal = radius * np.cos(2 * np.pi * uniform(split_mix(key, np.uint64(2) * k + np.uint64(1))))
    spread = 0.02 / math.sqrt(2 * layers) if name.endswith("c_proj.weight") else 0.02
    return torch.from_numpy((spread * normal).astype(np.float32)).reshape(shape)


def batch(step, size, sequence, vocabulary, seed):  # exec/train/data.cc, synthetic
    first = (step * size + np.arange(size))[:, None] * sequence
    at = (first + np.arange(sequence + 1)[None, :]).astype(np.uint64)
    noise = split_mix(seed, at) >> np.uint64(33)
    v = np.uint64(vocabulary)
    token = np.where(noise % np.uint64(4) == 0, noise % v, at % v).astype(np.int64)
    return torch.from_numpy(token[:, :-1].copy()), torch.from_numpy(token[:, 1:].copy())


class Block(nn.Module):
    def __init__(self, m, sequence):
        super().__init__()
        C = m["C"]
        self.heads = m["H"]
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(C, 3 * C), "c_proj": nn.Linear(C, C)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(C, 4 * C), "c_proj": nn.Linear(4 * C, C)})
        self.mask = torch.triu(torch.ones(sequence, sequence, dtype=torch.bool), 1)  # no buffer: gloo cannot broadcast bool

    def attention(self, q, k, v):
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = (q @ k.transpose(-1, -2)) * (1.0 / math.sqrt(q.shape[-1]))
        return scores.masked_fill_(self.mask, -math.inf).softmax(-1) @ v

    def forward(self, x):
        B, T, C = x.shape
        split = lambda t: t.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        q, k, v = self.attn["c_attn"](self.ln_1(x)).split(C, -1)
        o = self.attention(split(q), split(k), split(v)).transpose(1, 2).reshape(B, T, C)
        x = x + self.attn["c_proj"](o)
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Embedding(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(m["V"], m["C"]), nn.Embedding(m["P"], m["C"])

    def forward(self, tokens):
        return self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))


class Gpt2(nn.Module):
    def __init__(self, m, sequence):
        super().__init__()
        self.e = Embedding(m)
        self.h = nn.ModuleList(Block(m, sequence) for _ in range(m["L"]))
        self.ln_f = nn.LayerNorm(m["C"])

    def forward(self, tokens, targets):
        x = self.e(tokens)
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.e.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def load(model, m, seed, rename):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial(rename(name), tuple(parameter.shape), m["L"], seed))


def optimizer_of(model):
    options = dict(lr=1e-4, weight_decay=0.1)
    for speed in ({"fused": True}, {"foreach": True}, {}):
        try:
            made = torch.optim.AdamW(model.parameters(), **options, **speed)
            return made, next(iter(speed), "loop")
        except (TypeError, RuntimeError):
            continue
    raise SystemExit("no AdamW")


def train(a, model, loss_of, sync=lambda: None, rank=0, ranks=1, **about):
    m = MODELS[a.model]
    optimizer, kind = optimizer_of(model)
    losses, seconds, cpu = [], [], []
    for step in range(a.steps):
        x, y = batch(step, a.batch, a.sequence, m["V"], a.seed)
        x, y = x[rank::ranks], y[rank::ranks]
        sync()
        start, used = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        sync()
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
    return dict(**about, losses=losses, seconds=seconds, cpu=cpu, adamw=kind,
                rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def one(a):
    model = Gpt2(MODELS[a.model], a.sequence)
    load(model, MODELS[a.model], a.seed, lambda n: n.removeprefix("e."))
    return train(a, model, model)


def ddp_rank(rank, a, folder):
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=a.ranks, init_method=f"file://{folder}/store")
    model = Gpt2(MODELS[a.model], a.sequence)
    load(model, MODELS[a.model], a.seed, lambda n: n.removeprefix("e."))
    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)
    out = train(a, model, model, dist.barrier, rank=rank, ranks=a.ranks)
    with open(f"{folder}/{rank}.json", "w") as to:
        json.dump(out, to)
    dist.barrier()
    dist.destroy_process_group()


def ddp(a):
    import torch.multiprocessing as mp
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(ddp_rank, (a, folder), a.ranks)
        parts = [json.load(open(f"{folder}/{r}.json")) for r in range(a.ranks)]
    out = parts[0]
    out["losses"] = [sum(p["losses"][i] for p in parts) / a.ranks for i in range(a.steps)]
    out["cpu"] = [sum(p["cpu"][i] for p in parts) for i in range(a.steps)]
    out["rss"] = sum(p["rss"] for p in parts)
    return out


def stage_rank(rank, a, folder):
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"file://{folder}/store")
    m = MODELS[a.model]
    whole, half = untied(a)
    mine = nn.Sequential(*(whole[half:] if rank else whole[:half]))
    loss_fn = lambda out, y: F.cross_entropy(out.reshape(-1, m["V"]), y.reshape(-1))
    schedule = Schedule1F1B(PipelineStage(mine, rank, 2, torch.device("cpu")), a.chunks, loss_fn=loss_fn)

    class Loss:  # the schedule runs the backward too
        def __init__(self, value):
            self.value = value

        def backward(self):
            pass

        def item(self):
            return self.value

    def loss_of(x, y):
        if rank == 0:
            schedule.step(x)
            return Loss(0.0)
        losses = []
        schedule.step(target=y, losses=losses)
        return Loss(torch.stack(losses).mean().item())

    out = train(a, mine, loss_of, dist.barrier)
    with open(f"{folder}/{rank}.json", "w") as to:
        json.dump(out, to)
    dist.barrier()
    dist.destroy_process_group()


def pipelining(a):
    import torch.multiprocessing as mp
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(stage_rank, (a, folder), 2)
        parts = [json.load(open(f"{folder}/{r}.json")) for r in range(2)]
    return dict(parts[1], rss=sum(p["rss"] for p in parts), api="pipelining")


def untied(a):
    """The model as a list of modules without a shared parameter, and where its second half begins."""
    m = MODELS[a.model]
    whole = nn.Sequential(Embedding(m), *(Block(m, a.sequence) for _ in range(m["L"])), nn.LayerNorm(m["C"]),
                          nn.Linear(m["C"], m["V"], bias=False))
    names = ["", *(f"h.{l}." for l in range(m["L"])), "ln_f.", "lm_head."]
    load(whole, m, a.seed, lambda n: names[int(n.split(".")[0])] + n.split(".", 1)[1])
    return whole, 1 + m["L"] // 2


def pipe(a):
    """Untied head: Pipe cannot share a parameter between partitions."""
    try:
        from torch.distributed.pipeline.sync import Pipe
    except ImportError:
        return pipelining(a)
    from torch.distributed import rpc
    with tempfile.NamedTemporaryFile() as store:
        rpc.init_rpc("race", rank=0, world_size=1, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            init_method=f"file://{store.name}"))
        m = MODELS[a.model]
        whole, half = untied(a)
        model = Pipe(nn.Sequential(nn.Sequential(*whole[:half]), nn.Sequential(*whole[half:])), chunks=a.chunks,
                     checkpoint="never")
        loss = lambda x, y: F.cross_entropy(model(x).local_value().view(-1, m["V"]), y.reshape(-1))
        return train(a, model, loss, api="Pipe")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=["one", "ddp", "pipe"])
    parser.add_argument("--model", choices=MODELS, default="tiny")
    for name, value in dict(batch=8, sequence=128, steps=5, threads=1, ranks=2, chunks=4, seed=1).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    out = {"one": one, "ddp": ddp, "pipe": pipe}[a.case](a)
    print(json.dumps(dict(version=torch.__version__, **out)))
    sys.stdout.flush()
    os._exit(0)  # Pipe's worker threads never end


if __name__ == "__main__":
    main()
