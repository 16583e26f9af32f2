#!/usr/bin/env python3
"""Writes what transformers makes of every case (README.md): goldens.json and expert_goldens.json.

    python3 -m venv v && v/bin/pip install torch==2.15.0 transformers==5.23.0
    v/bin/python make_goldens.py [NAME...]

With names: their rows alone are made, or made again, and the rest stays.
"""
import json
import os
import sys

import numpy as np
import torch
import transformers

import cases
import expert_cases
from transformers_side import PLAN, TRAIN, norm_base, train

# How far float32 may lie from float64 in transformers itself: a case beyond it proves nothing.
LOSSES, NORMS = 1e-6, 2e-5  # absolute; relative


def balance_keys(config):
    """DeepSeek's loss of its routers is in its file, and asked of `rehearse run` by keys of train."""
    if not config.get("aux_loss_alpha"):
        return {}
    kind = "seq_aux_loss" if config.get("seq_aux", True) else "aux_loss"
    return {"train": {"router_auxiliary_loss": config["aux_loss_alpha"],
                      "router_load_balancing": kind}}


def row(name, config):
    losses, norms, tensors = train(config)
    float32 = train(config, torch.float32)
    loss = float(np.max(np.abs(np.subtract(float32[0], losses))))
    norm = float(np.max(np.abs(np.divide(float32[1], norms) - 1)))
    if loss > LOSSES or norm > NORMS:
        raise ValueError(f"{name}: float32 is {loss:.1e}, {norm:.1e} from float64")
    print(f"{name:28} {losses[0]:.6f} {losses[-1]:.6f} {norms[0]:.4f} {loss:.1e} {norm:.1e}")
    return {"name": name, "config": config, **balance_keys(config), "norm_base": norm_base(config), "losses": losses,
            "norms": norms, "tensors": tensors}


def write(path, configs, names):
    kept = {}
    if names:
        with open(path) as file:
            kept = {one["name"]: one for one in json.load(file)["cases"]}
    rows = [json.dumps(kept[name] if names and name not in names else row(name, config))
            for name, config in configs.items()]
    head = {"torch": torch.__version__, "transformers": transformers.__version__, "plan": PLAN,
            "train": TRAIN}
    with open(path, "w") as file:
        file.write("{\n  \"made_by\": " + json.dumps(head) + ",\n  \"cases\": [\n    ")
        file.write(",\n    ".join(rows) + "\n  ]\n}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    here = os.path.dirname(os.path.abspath(__file__))
    for file, configs in (("goldens.json", cases.CASES),
                          ("expert_goldens.json", expert_cases.CASES)):
        named = [name for name in sys.argv[1:] if name in configs]
        if named or len(sys.argv) == 1:
            write(os.path.join(here, file), configs, named)
