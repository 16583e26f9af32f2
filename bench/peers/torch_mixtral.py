#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small Mixtral trained by `rehearse run` and by PyTorch's transformers: same weights, same tokens, same optimizer,
so the same routing; one thread each.

ROUNDS times one after the other: ours, and transformers with each of its implementations of experts (eager: a product
per expert; grouped_mm: torch's grouped product). Printed: the median of what a step takes behind the first, by the
processor's own count too (which other programs on the machine lengthen less), how many times ours is as fast, and how
far the losses lie apart. Needs torch, transformers, numpy.

usage: taskset -c 1 bench/peers/torch_mixtral.py [--rehearse COMMAND] [--rounds 5] [--steps 9]
       bench/peers/torch_mixtral.py --torch IMPLEMENTATION --weights FILE [--steps 9]   (one JSON line: PyTorch's part)
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

MODEL = {"model_type": "mixtral", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 512, "num_local_experts": 8, "num_experts_per_tok": 2,
         "max_position_embeddings": 256, "vocab_size": 1024, "sliding_window": None}
BATCH, SEQUENCE = 4, 256
TRAIN = {"learning_rate": 1e-4, "weight_decay": 0.1, "clip_norm": 0.0, "seed": 1}


def model_of(implementation):
    from transformers import MixtralConfig, MixtralForCausalLM
    config = MixtralConfig(**{key: value for key, value in MODEL.items() if key != "model_type"})
    config._experts_implementation = implementation
    config._attn_implementation = "sdpa"
    return MixtralForCausalLM(config)


def weights(path):
    """Random ones, under the names that Mixtral is published with."""
    import torch
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        model_of("eager").save_pretrained(folder)
        os.replace(f"{folder}/model.safetensors", path)


def by_torch(a):
    import torch
    from torch_gpt2 import batch
    from transformers import MixtralForCausalLM
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(a.weights), f"{folder}/model.safetensors")
        model_of(a.torch).config.save_pretrained(folder)
        model, told = MixtralForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    if any(told.values()):
        raise SystemExit(f"not read as it was written: {told}")
    model.config._experts_implementation = a.torch
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=TRAIN["learning_rate"], weight_decay=TRAIN["weight_decay"],
                                  fused=True)
    losses, seconds, cpu = [], [], []
    for step in range(a.steps):
        x, y = batch(step, BATCH, SEQUENCE, MODEL["vocab_size"], TRAIN["seed"])
        start, used = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        logits = model(input_ids=x, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
    print(json.dumps(dict(version=f"torch {torch.__version__}, {a.torch}", losses=losses, seconds=seconds,
                          cpu=statistics.median(cpu[1:]))))


def used_by_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def by_rehearse(a, weights_file, folder):
    path = pathlib.Path(folder) / "mixtral.json"
    path.write_text(json.dumps({
        "name": "small Mixtral", "cluster": "clusters/dgx-a100-80gb.json", "gpus": 1, "model": MODEL,
        "plan": {"precision": "fp32", "micro_batch": BATCH, "global_batch": BATCH, "sequence_length": SEQUENCE},
        "train": {**TRAIN, "data": "synthetic"}}))

    def run(steps):
        before = used_by_children()
        done = subprocess.run([a.rehearse, "run", path, "--device", "cpu", "--threads", "1", "--json", "--resume",
                               weights_file, "--steps", str(steps)], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"rehearse: {done.stderr.strip()}")
        return json.loads(done.stdout), used_by_children() - before

    # The processor's count of a run holds its start: a run of one step tells how much that is.
    _, short = run(1)
    report, long = run(a.steps)
    return dict(version="rehearse", losses=report["losses"], seconds=report["step_times_s"], short=short, long=long)


def by_peer(a, weights_file, implementation):
    done = subprocess.run([sys.executable, __file__, "--torch", implementation, "--weights", weights_file, "--steps",
                           str(a.steps)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{implementation}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rehearse", default="build/release/bin/rehearse")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--torch", choices=["eager", "grouped_mm"], help="PyTorch's part alone, with --weights")
    parser.add_argument("--weights")
    a = parser.parse_args()
    if a.torch:
        return by_torch(a)
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        weights_file = f"{folder}/weights.safetensors"
        weights(weights_file)
        for _ in range(a.rounds):
            for result in (by_rehearse(a, weights_file, folder),
                           *(by_peer(a, weights_file, one) for one in ("eager", "grouped_mm"))):
                runs.setdefault(result["version"], []).append(result)
    ours = runs["rehearse"]

    def step(all_runs):
        return statistics.median(statistics.median(run["seconds"][1:]) for run in all_runs)

    def processor(all_runs):
        if "long" in all_runs[0]:
            long, short = (statistics.median(run[which] for run in all_runs) for which in ("long", "short"))
            return (long - short) / (a.steps - 1)
        return statistics.median(run["cpu"] for run in all_runs)

    print(f"{'':<28} {'step':>10} {'processor':>10} {'ours is':>8} {'by proc.':>8} {'losses apart':>13}")
    for version, theirs in runs.items():
        apart = max(abs(x - y) for x, y in zip(ours[0]["losses"], theirs[0]["losses"]))
        print(f"{version:<28} {1e3 * step(theirs):7.1f} ms {1e3 * processor(theirs):7.1f} ms "
              f"{step(theirs) / step(ours):7.2f}x {processor(theirs) / processor(ours):7.2f}x {apart:13.1e}")


if __name__ == "__main__":
    main()
