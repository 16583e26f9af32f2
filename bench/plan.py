#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long `rehearse plan` takes, and how far its choice is behind the best of all plans.

    bench/plan.py REHEARSE [--models a,b | --layers] [--gpus 8,64,512,2048] [--on CLUSTER]
                  [--whole SECONDS]

Prints a Markdown table: wall time of `plan` (two threads on two cores), its processor time (which
hardly depends on what else the machine does), what it answers, and with --whole the step of the best
of a search that simulates all plans that fit, or the 3,000 and more with the least estimates (`search`
with a thousand rows; `plan` stops as soon as no estimate can win). One that does not end in the
seconds given is `-`. Both see the same space: one framework, the batch that `plan` assumes, 5 % of the
memory kept free.
"""
import argparse
import json
import resource
import subprocess
import tempfile
import time

MODELS = ["llama3.1-8b", "llama3.1-70b", "llama3.1-405b", "qwen2.5-32b", "qwen3-235b-a22b", "deepseek-v3",
          "gpt-oss-20b", "gpt-oss-120b", "mixtral-8x7b", "gemma-3-27b", "phi-4"]
# --layers: those whose layers differ, on a number of GPUs that each fits on.
LAYERS = [("nemotron-3-nano", 64), ("nemotron-3-super", 64), ("qwen3.5-35b-a3b", 64),
          ("deepseek-v4-flash", 128), ("glm-5", 512)]
EVERY = 1000  # rows: the search simulates at least three times as many plans, by their estimates, or all


def children_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def answer(command, seconds=None):
    """What a command says as JSON, its wall seconds and its processor's."""
    begin, used = time.monotonic(), children_s()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None, 0, 0
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout), time.monotonic() - begin, children_s() - used


def whole_search(rehearse, model, cluster, gpus, planned, seconds):
    plan = {key: planned[key] for key in ("sequence_length", "global_batch")}
    scenario = {"name": model, "model": model, "cluster": cluster, "gpus": gpus, "plan": plan}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(scenario, file)
        file.flush()
        found, _, _ = answer([rehearse, "search", file.name, "--framework", "megatron", "--headroom", "5",
                           "--all", "--top", str(EVERY), "--json"], seconds)
    return found and found["cases"][0]


def row(rehearse, model, cluster, gpus, seconds):
    said, wall, used = answer([rehearse, "plan", model, "--gpus", str(gpus), "--on", cluster, "--json"])
    best = said["best"]
    cells = [model, str(gpus), f"{wall:.2f} s", f"{used:.2f} s", f"{said['considered']:,}"]
    if best is None:
        ways = "; ".join(way["what"] for way in said["ways"])
        return cells + [f"does not fit; {ways or 'nothing tried does'}", "-", "-"]
    cells.append(f"{best['step_time_s']:.3f} s")
    if seconds == 0:
        return cells + ["-", "-"]
    whole = whole_search(rehearse, model, cluster, gpus, best["plan"], seconds)
    if not whole:
        return cells + ["-", "-"]
    fastest = min(plan["step_time_s"] for plan in whole["best"])
    behind = best["step_time_s"] / fastest - 1
    return cells + [f"{len(whole['best']):,}", f"{100 * behind:.2f} %"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rehearse")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--layers", action="store_true", help="models of layers that differ")
    parser.add_argument("--gpus", default="8,64,512,2048")
    parser.add_argument("--on", default="dgx-h100")
    parser.add_argument("--whole", type=float, default=0, help="seconds for the search of every plan; 0: none")
    given = parser.parse_args()
    print("| model | GPUs | `plan` takes | of the processor | layouts | step | simulated by the whole search | behind its best |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    cases = LAYERS if given.layers else [(model, int(gpus)) for model in given.models.split(",")
                                         for gpus in given.gpus.split(",")]
    for model, gpus in cases:
        print("| " + " | ".join(row(given.rehearse, model, given.on, gpus, given.whole)) + " |", flush=True)


if __name__ == "__main__":
    main()
