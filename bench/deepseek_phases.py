#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The phases of DeepSeek-V3's published step (2,048 H800s, DualPipe) beside the predicted ones.

  python3 bench/deepseek_phases.py REHEARSE [KEY=VALUE...]

Published: tests/data/validation/experts/deepseek_v3.json, `reported.phases_s` ("Insights into
DeepSeek-V3", arXiv 2505.09343, Table 4). Predicted: the same scenario with what the source says of
dispatch (in 8 bit) and of recomputation; what the compute stream of a rank does, op by op, in the
mean over positions; `bubble` is all the rest of the step, transfers between stages among it.
Further keys override. Prints the Markdown table of docs/experts.md.
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = ROOT / "tests/data/validation/experts/deepseek_v3.json"
CASE = "dsv3-isca-mpft"
# What the case's source says in words.
KEYS = ["plan.expert_dispatch=deduplicated", "plan.fp8_dispatch=true",
        'plan.recompute=["norm", "latent_up", "expert_activation"]']
PHASE_OF = {"F": "1F", "B": "1B", "I": "1B", "W": "1W", "OVERLAP_F_B": "1F1B",
            "OPTIMIZER_STEP": "optimizer", "GRAD_NORM": "optimizer"}


def predicted(rehearse, scenario, keys):
    """Seconds of each phase, in the mean over the positions, and of the step."""
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        (at / "scenario.json").write_text(json.dumps(scenario))
        flags = [word for key in keys for word in ("--set", key)]
        subprocess.run([rehearse, "simulate", at / "scenario.json", "--trace", at / "trace", *flags],
                       check=True, stdout=subprocess.DEVNULL)
        subprocess.run([rehearse, "export", at / "trace", "--to", "csv", at / "ops.csv"], check=True,
                       stdout=subprocess.DEVNULL)
        with open(at / "ops.csv", newline="") as file:
            ops = list(csv.DictReader(file))
    rows = {op["row"] for op in ops}
    phases = {}
    for op in ops:
        if op["lane"] == "compute" and op["kind"] in PHASE_OF:
            phase = PHASE_OF[op["kind"]]
            phases[phase] = phases.get(phase, 0) + int(op["duration_ns"]) * 1e-9 / len(rows)
    step = (max(int(op["end_ns"]) for op in ops) - min(int(op["start_ns"]) for op in ops)) * 1e-9
    phases["bubble"] = step - sum(phases.values())
    return phases, step


def main():
    rehearse, keys = sys.argv[1], KEYS + sys.argv[2:]
    case = next(c for c in json.loads(CASES.read_text())["cases"] if c["id"] == CASE)
    scenario = case["scenario"] | {"plan": {k: v for k, v in case["scenario"]["plan"].items()
                                            if k != "recompute"}}
    ours, step = predicted(rehearse, scenario, keys)
    print("| phase | published [s] | predicted [s] |\n|---|--:|--:|")
    for phase, seconds in case["reported"]["phases_s"].items():
        print(f"| {phase} | {seconds:.2f} | {ours.get(phase, 0):.2f} |")
    print(f"| step | {case['measured']['step_time_s']:.2f} | {step:.2f} |")


if __name__ == "__main__":
    main()
