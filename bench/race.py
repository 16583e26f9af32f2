# SPDX-License-Identifier: Apache-2.0
"""Races `rehearse run` against PyTorch on this CPU, interleaved. Started by race.sh.

Each case's result goes to --results (JSON, by case); bench/race_page.py makes the page of it.

Every round runs each contestant once, in turn; the first step of each run warms up and is left out. Losses of all
contestants of a case must agree to 1e-4 relative. Times are per step; "min" is over all rounds, "median" of their
minima. Peak memory is resident bytes: of the whole process tree for us, of all ranks for PyTorch.
"""
import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time

GPT2 = dict(model_type="gpt2", activation_function="gelu_new", resid_pdrop=0.0, attn_pdrop=0.0, embd_pdrop=0.0,
            layer_norm_epsilon=1e-5, initializer_range=0.02, tie_word_embeddings=True)
MODELS = {"124m": dict(n_embd=768, n_layer=12, n_head=12, n_positions=1024, vocab_size=50257),
          "tiny": dict(n_embd=256, n_layer=4, n_head=8, n_positions=128, vocab_size=256)}
# name, model, batch, our plan, our options, PyTorch's arguments; FLOPs are counted by `flops`.
CASES = {
    "124M, one thread": ("124m", 4, dict(micro_batch=4), ["--threads", "1"], ["one", "--threads", "1"]),
    "124M, two ranks of one thread": ("124m", 4, dict(micro_batch=4, tensor_parallel=2), ["--threads", "2"],
                                      ["one", "--threads", "2"]),
    "124M, two replicas of one thread, ZeRO-1": ("124m", 4, dict(micro_batch=2, data_parallel=2, zero_stage=1),
                                                 ["--threads", "2"], ["one", "--threads", "2"]),
    "tiny, one thread": ("tiny", 8, dict(micro_batch=8), ["--threads", "1"], ["one", "--threads", "1"]),
    "tiny, DDP over two processes": ("tiny", 8, dict(micro_batch=4, data_parallel=2), ["--processes", "2"], ["ddp"]),
    "124M, DDP over two processes": ("124m", 4, dict(micro_batch=2, data_parallel=2), ["--processes", "2"], ["ddp"]),
    "tiny, two-stage pipeline": ("tiny", 8, dict(micro_batch=2, pipeline_parallel=2, schedule="1f1b"),
                                 ["--threads", "2"], ["pipe", "--chunks", "4"]),
}


def flops(model, batch, sequence=128):
    m = MODELS[model]
    C, L, V = m["n_embd"], m["n_layer"], m["vocab_size"]
    tokens = batch * sequence
    return 6 * tokens * (12 * L * C * C + V * C) + 12 * L * C * sequence * tokens


def tree_rss(pid):
    """Resident bytes of a process and its descendants, from /proc."""
    total, stack = 0, [pid]
    while stack:
        p = stack.pop()
        try:
            with open(f"/proc/{p}/status") as status:
                total += sum(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))
            for task in os.listdir(f"/proc/{p}/task"):
                with open(f"/proc/{p}/task/{task}/children") as children:
                    stack += [int(c) for c in children.read().split()]
        except OSError:
            continue
    return total


def ours(a, case, folder):
    model, batch, plan, options, _ = CASES[case]
    path = f"{folder}/ours.json"
    pipeline = "pipeline_parallel" in plan
    ranks = math.prod(plan.get(f"{axis}_parallel", 1) for axis in ("tensor", "data", "pipeline"))
    cluster = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../scenarios/clusters/dgx-a100-80gb.json")
    scenario = dict(name=case, cluster=cluster, gpus=ranks, model={**GPT2, **MODELS[model], "tie_word_embeddings": not pipeline},
                    plan=dict(global_batch=batch, sequence_length=128, precision="fp32", **plan),
                    train=dict(steps=a.steps, learning_rate=1e-4, weight_decay=0.1, clip_norm=0.0, seed=1))
    with open(path, "w") as to:
        json.dump(scenario, to)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    run = subprocess.Popen([a.rehearse, "run", path, "--device", "cpu", "--json", *options], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    peak, done = [0], threading.Event()

    def watch():
        while not done.wait(0.02):
            peak[0] = max(peak[0], tree_rss(run.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, err = run.communicate()
    done.set()
    watcher.join()
    if run.returncode != 0:
        raise SystemExit(f"{case}: rehearse: {err}")
    report = json.loads(out)
    return dict(seconds=report["step_times_s"], losses=report["losses"], rss=peak[0], version="rehearse",
                cpu=resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)


def torch(a, case, python):
    model, batch, _, _, arguments = CASES[case]
    script = os.path.join(os.path.dirname(__file__), "peers", "torch_gpt2.py")
    run = subprocess.run([python, script, *arguments, "--model", model, "--batch", str(batch), "--steps", str(a.steps)],
                         capture_output=True, text=True)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None  # Pipe is gone from newer releases


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rehearse", required=True)
    parser.add_argument("--python", action="append", default=[], help="an interpreter that has torch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--peak", type=float, default=0, help="measured FMA peak of one thread [GF/s]")
    parser.add_argument("--cases", default="", help="part of a case's name")
    parser.add_argument("--machine", default="", help="a line about the machine, the date and the commit")
    parser.add_argument("--results", default="", help="JSON file that keeps each case's last result")
    a = parser.parse_args()
    for case in CASES:
        if a.cases not in case:
            continue
        results = {}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(a.rounds):
                for who, result in [("rehearse", ours(a, case, folder)),
                                    *((p, torch(a, case, p)) for p in a.python)]:
                    if result:
                        results.setdefault(who, []).append(result)
        own = results["rehearse"]
        threads = 2 if "two" in case else 1
        rows = []
        for who, runs in results.items():
            for mine, theirs in zip(own[0]["losses"], runs[0]["losses"]):
                if abs(mine / theirs - 1) > 1e-4:
                    raise SystemExit(f"{case}: losses {own[0]['losses']} and {runs[0]['losses']} of {who}")
            name = "rehearse" if who == "rehearse" else "torch " + runs[0]["version"].split("+")[0]
            name += f" {runs[0]['api']}" if "api" in runs[0] else ""
            minimum = min(min(r["seconds"][1:]) for r in runs)
            rate = flops(*CASES[case][:2]) / minimum * 1e-9
            rows.append(dict(contestant=name, minimum=minimum, rate=rate, share=rate / (a.peak * threads) if a.peak else 0,
                             median=statistics.median(s for r in runs for s in r["seconds"][1:]),
                             rss=min(r["rss"] for r in runs), loss=runs[0]["losses"][-1]))
        result = dict(machine=a.machine, rounds=a.rounds, steps=a.steps - 1, rows=rows)
        print(case, json.dumps(result), flush=True)
        if a.results:
            kept = json.load(open(a.results)) if os.path.exists(a.results) else {}
            kept[case] = result
            with open(a.results + ".new", "w") as to:
                json.dump(kept, to, indent=1)
            os.replace(a.results + ".new", a.results)


if __name__ == "__main__":
    sys.exit(main())
