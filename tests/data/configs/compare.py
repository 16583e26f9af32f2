#!/usr/bin/env python3
"""Trains a config.json here, in four layouts, and in transformers, and says whether they agree.

    python3 -m venv v && v/bin/pip install torch transformers
    v/bin/python tests/data/configs/compare.py [FILE...] [--pairs N] [--rehearse COMMAND]

One line per file and layout: equal, refused (with what `run` says), or DIFFERENT; exit 1 where one
is different. Tiny models only: it is trained in float64. FILE may be a case by its name. --pairs:
so many files that join the keys of two cases of one dialect, drawn by --seed.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

import cases
import expert_cases
from transformers_side import PLAN, TRAIN, formula, norm_base, train

CASES = cases.CASES | expert_cases.CASES
LOSSES, NORMS = 2e-6, 1e-4  # absolute; relative
# name: (ranks, what it changes of the plan)
LAYOUTS = {"one rank": (1, {}),
           "pipeline of 3": (3, {"pipeline_parallel": 3, "schedule": "1f1b"}),
           "tp 2": (2, {"tensor_parallel": 2}),
           "FSDP": (2, {"data_parallel": 2, "zero_stage": 3})}


def ours(rehearse, config, weights, layout):
    """(report, None) or (None, what it says)"""
    ranks, plan = LAYOUTS[layout]
    with tempfile.TemporaryDirectory() as folder:
        file, scenario = os.path.join(folder, "w.safetensors"), os.path.join(folder, "s.json")
        save_file(weights, file)
        with open(scenario, "w") as out:
            json.dump({"model": config, "cluster": "dgx-a100-80gb", "gpus": ranks,
                       "plan": {**PLAN, **plan}, "train": TRAIN}, out)
        ran = subprocess.run([rehearse, "run", scenario, "--json", "--device", "cpu", "--threads",
                              "1", "--resume", file], capture_output=True, text=True, check=False)
    said = ran.stderr.strip().replace(folder + os.sep, "")
    return ({**json.loads(ran.stdout), "said": said}, None) if ran.returncode == 0 else (None, said)


def compare(rehearse, name, config):
    """False where a layout differs."""
    try:
        losses, norms, tensors = train(config)
    except Exception as error:  # of whatever kind transformers raises
        print(f"{name}: transformers: {str(error).splitlines()[0]}")
        return True
    weights = {n: formula(n, shape, norm_base(config)) for n, shape in tensors.items()}
    good = True
    for layout in LAYOUTS:
        report, refused = ours(rehearse, config, weights, layout)
        if refused is not None:
            print(f"{name}, {layout}: refused: {refused}")
            continue
        loss = np.max(np.abs(np.subtract(report["losses"], losses)))
        norm = np.max(np.abs(np.divide(report["grad_norms"], norms) - 1))
        equal = loss <= LOSSES and norm <= NORMS
        print(f"{name}, {layout}: {'equal' if equal else 'DIFFERENT'}: losses within {loss:.1e}, "
              f"norms within {norm:.1e}")
        good = good and equal
    if not good:  # a gradient near zero has Adam make steps of rounding
        own = train(config, torch.float32)
        print(f"{name}: float32 in transformers itself: losses within "
              f"{np.max(np.abs(np.subtract(own[0], losses))):.1e}, norms within "
              f"{np.max(np.abs(np.divide(own[1], norms) - 1)):.1e}")
    return good


def pairs(count, seed):
    """(name, config): two cases of one dialect, the second's keys over the first's."""
    draw = random.Random(seed)
    for _ in range(count):
        first = draw.choice(list(CASES))
        dialect = CASES[first]["model_type"]
        others = [n for n, c in CASES.items() if c["model_type"] == dialect and n != first]
        second = draw.choice(others or [first])
        base = next(c for c in CASES.values() if c["model_type"] == dialect)
        changed = {k: v for k, v in CASES[second].items() if base.get(k) != v}
        yield f"{first} + {second}", {**CASES[first], **changed}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*")
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rehearse", default="build/release/bin/rehearse")
    options = parser.parse_args()
    torch.set_num_threads(1)  # so small a model only waits for more
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    asked = []
    for name in options.files:
        if name in CASES:
            asked.append((name, CASES[name]))
        else:
            with open(name) as file:
                asked.append((name, json.load(file)))
    asked += pairs(options.pairs, options.seed)
    good = [compare(options.rehearse, name, config) for name, config in asked]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
