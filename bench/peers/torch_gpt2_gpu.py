# SPDX-License-Identifier: Apache-2.0
"""GPT-2 on one GPU by PyTorch, set up well: bf16 autocast, compiled, flash attention, fused AdamW, padded vocabulary.

Prints one JSON line: version, tokens per second and milliseconds per step (median of the timed ones), first and last
loss, peak bytes of the allocator. Random weights and tokens: for speed alone. Started by gpu.sh; where torch.compile
fails it goes on without, and says so. --device cpu --model tiny rehearses it.
"""
import argparse
import json
import statistics
import sys
import time

import torch
from torch_gpt2 import Gpt2

MODELS = {"tiny": dict(V=256, P=64, C=64, L=2, H=4), "gpt2-124m": dict(V=50304, P=1024, C=768, L=12, H=12), "gpt2-1.5b": dict(V=50304, P=1024, C=1600, L=48, H=25)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, required=True)
    for name, value in dict(batch=8, micro=2, steps=20, warmup=5).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    a = parser.parse_args()
    gpu = a.device == "cuda"
    wait = torch.cuda.synchronize if gpu else lambda: None
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    m = MODELS[a.model]
    with torch.device(a.device):
        model = Gpt2(m, 8)  # its mask is not used
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    tokens = torch.randint(m["V"], (a.micro, a.batch, m["P"] + 1), device=a.device)
    run, compiled = model, not a.no_compile
    if compiled:
        try:  # it needs a C compiler, which a bare machine may not have
            run = torch.compile(model)
            with torch.autocast(a.device, dtype=torch.bfloat16):
                run(tokens[0, :, :-1], tokens[0, :, 1:]).backward()
        except Exception as error:
            print(f"torch.compile: {str(error).splitlines()[0]}", file=sys.stderr)
            run, compiled = model, False
    seconds, losses = [], []
    for step in range(a.warmup + a.steps):
        wait()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=a.device)
        for k in range(a.micro):
            with torch.autocast(a.device, dtype=torch.bfloat16):
                loss = run(tokens[k, :, :-1], tokens[k, :, 1:]) / a.micro
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        wait()
        if step >= a.warmup:
            seconds.append(time.perf_counter() - start)
        losses.append(total.item())
    median = statistics.median(seconds)
    print(json.dumps(dict(version=torch.__version__, tokens_per_s=a.batch * a.micro * m["P"] / median, ms=1e3 * median,
                          losses=[losses[0], losses[-1]], compiled=compiled,
                          peak_bytes=torch.cuda.max_memory_allocated() if gpu else 0)))


if __name__ == "__main__":
    main()
