#!/usr/bin/env python3
"""Trains a config.json here and in transformers, and says whether they agree.

    python3 -m venv v && v/bin/pip install torch transformers
    v/bin/python tests/data/configs/compare.py FILE... [--rehearse build/release/bin/rehearse]

One line per file: equal, refused (with the key), or DIFFERENT; exit 1 where one is different. Tiny
models only: it is trained in float64. FILE may be a case by its name.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import save_file

import cases
import expert_cases
from transformers_side import PLAN, TRAIN, formula, norm_base, train

CASES = cases.CASES | expert_cases.CASES

LOSSES, NORMS = 2e-6, 1e-4  # absolute; relative


def ours(rehearse, config, tensors):
    """(report, None) or (None, what it says)"""
    with tempfile.TemporaryDirectory() as folder:
        weights, scenario = os.path.join(folder, "w.safetensors"), os.path.join(folder, "s.json")
        save_file(tensors, weights)
        with open(scenario, "w") as file:
            json.dump({"model": config, "cluster": "dgx-a100-80gb", "gpus": 1, "plan": PLAN,
                       "train": TRAIN}, file)
        ran = subprocess.run([rehearse, "run", scenario, "--json", "--device", "cpu", "--resume",
                              weights], capture_output=True, text=True, check=False)
    return (json.loads(ran.stdout), None) if ran.returncode == 0 else (None, ran.stderr.strip())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("--rehearse", default="build/release/bin/rehearse")
    options = parser.parse_args()
    status = 0
    for name in options.files:
        if name in CASES:
            config = CASES[name]
        else:
            with open(name) as file:
                config = json.load(file)
        losses, norms, tensors = train(config)
        weights = {n: formula(n, shape, norm_base(config)) for n, shape in tensors.items()}
        report, refused = ours(options.rehearse, config, weights)
        if refused is not None:
            print(f"{name}: refused: {refused}")
            continue
        loss = np.max(np.abs(np.subtract(report["losses"], losses)))
        norm = np.max(np.abs(np.divide(report["grad_norms"], norms) - 1))
        good = loss <= LOSSES and norm <= NORMS
        print(f"{name}: {'equal' if good else 'DIFFERENT'}: losses within {loss:.1e}, "
              f"norms within {norm:.1e}")
        status = status if good else 1
    return status


if __name__ == "__main__":
    sys.exit(main())
