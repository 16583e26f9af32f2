#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `rehearse calibrate --from` is worth. Two tables:

  python3 bench/calibrate_from.py REHEARSE cpu
      On this machine: calibrated (quickly) by its kernels, corrected by the trace of one run, held
      against runs of three other layouts that the correction has not seen.
  python3 bench/calibrate_from.py REHEARSE groups
      On published sweeps (tests/data/validation): one factor, from the measured time of one plan of
      a group of competing plans, held against the group's other plans; every plan in turn.
"""
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCENARIO = "tiny-gpt-4-ranks"
STEPS = 40
# Wide enough that kernels, not the scheduler, take the time.
MODEL = ["--set", "model.n_embd=256", "--set", "model.n_layer=8", "--set", "plan.sequence_length=128"]
SEEN = {"tensor_parallel": 2, "pipeline_parallel": 2}
UNSEEN = [
    {"tensor_parallel": 4, "pipeline_parallel": 1, "schedule": "none", "virtual_stages": 1},
    {"tensor_parallel": 1, "pipeline_parallel": 4, "schedule": "1f1b", "virtual_stages": 1,
     "sequence_parallel": False},
    {"tensor_parallel": 1, "pipeline_parallel": 1, "data_parallel": 4, "schedule": "none",
     "virtual_stages": 1, "sequence_parallel": False},
]


def flags(plan):
    return MODEL + [word for key, value in plan.items()
                    for word in ("--set", f"plan.{key}={json.dumps(value)}")]


def run(rehearse, *words):
    done = subprocess.run([rehearse, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def measured(rehearse, plan, trace=None):
    words = ["run", SCENARIO, "--steps", STEPS, "--json", *flags(plan)]
    if trace:
        words += ["--trace", trace]
    return json.loads(run(rehearse, *words))["step_time_s"]


def predicted(rehearse, plan, cluster):
    words = ["run", SCENARIO, "--dry-run", "--json", "--cluster", cluster, *flags(plan)]
    return json.loads(run(rehearse, *words))["step_time_s"]


def cpu(rehearse):
    with tempfile.TemporaryDirectory() as folder:
        here, ours = f"{folder}/here.cluster.json", f"{folder}/ours.json"
        run(rehearse, "calibrate", "--quick", "-o", f"{folder}/here.json")
        measured(rehearse, SEEN, f"{folder}/seen.trace")
        print(run(rehearse, "calibrate", "--from", f"{folder}/seen.trace", "--scenario", SCENARIO,
                  "--cluster", here, "-o", ours, *flags(SEEN)))
        print("| layout | measured | before | after |\n|---|--:|--:|--:|")
        for plan in [SEEN, *UNSEEN]:
            is_ = measured(rehearse, plan)
            row = [predicted(rehearse, plan, cluster) / is_ - 1 for cluster in (here, ours)]
            name = ", ".join(f"{k} {v}" for k, v in plan.items() if k.endswith("parallel") and v is not False)
            print(f"| {name} | {1e3 * is_:.1f} ms | {100 * row[0]:+.1f} % | {100 * row[1]:+.1f} % |")


def groups(rehearse):
    print("| file | groups | plans | error before | calibrated on another plan of the group |")
    print("|---|--:|--:|--:|--:|")
    means = []
    for path in sorted((ROOT / "tests/data/validation").glob("*.json")):
        done = subprocess.run([rehearse, "validate", str(path), "--json"], capture_output=True, text=True)
        if not done.stdout:
            continue
        by_group = {}
        for row in json.loads(done.stdout)["files"][0]["rows"]:
            is_ = (row.get("measured") or {}).get("step_time_s")
            was = (row.get("predicted") or {}).get("step_time_s")
            if is_ and was and row.get("group"):
                by_group.setdefault(row["group"], []).append(was / is_)
        before, after = [], []
        count = plans = 0
        for ratios in by_group.values():
            if len(ratios) < 3:
                continue
            count += 1
            plans += len(ratios)
            before += [abs(r - 1) for r in ratios]
            after += [abs(b / a - 1) for i, a in enumerate(ratios) for j, b in enumerate(ratios) if i != j]
        if not count:
            continue
        means.append(statistics.mean(after))
        print(f"| {path.stem} | {count} | {plans} | {100 * statistics.mean(before):.1f} % | "
              f"{100 * means[-1]:.1f} % |")
    if means:
        print(f"| mean over files | | | | {100 * statistics.mean(means):.1f} % |")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in ("cpu", "groups"):
        sys.exit(__doc__)
    (cpu if sys.argv[2] == "cpu" else groups)(str(pathlib.Path(sys.argv[1]).resolve()))
