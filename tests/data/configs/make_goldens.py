#!/usr/bin/env python3
"""Writes goldens.json: what transformers makes of every case of cases.py (README.md).

    python3 -m venv v && v/bin/pip install torch transformers
    v/bin/python make_goldens.py goldens.json
"""
import json
import sys

import torch
import transformers

from cases import CASES
from transformers_side import PLAN, TRAIN, train


def main(path):
    rows = []
    for name, (config, key) in CASES.items():
        losses, norms, tensors = train(config)
        rows.append(json.dumps({"name": name, "refused": key, "config": config, "losses": losses,
                                "norms": norms,
                                "tensors": {n: list(t.shape) for n, t in tensors.items()}
                                if key is None else {}}))
        print(f"{name:28} {key or 'equal':30} {losses[0]:.6f} {losses[-1]:.6f} {norms[0]:.4f}")
    head = {"torch": torch.__version__, "transformers": transformers.__version__, "plan": PLAN,
            "train": TRAIN}
    with open(path, "w") as file:
        file.write("{\n  \"made_by\": " + json.dumps(head) + ",\n  \"cases\": [\n    ")
        file.write(",\n    ".join(rows) + "\n  ]\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
