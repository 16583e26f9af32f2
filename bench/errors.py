#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How wrong predictions are, for the band: scenarios/accuracy/, and its section of
docs/accuracy.md.

bench/errors.py [--build build/release]          predicts every measured step again, writes both
bench/errors.py --page [--build build/release]   the section alone, from the file as it is

Nothing in the file is typed in but its rule: rows come from `validate --json`, what a key moves that
is left out from the same cases without it, what an unmeasured kind costs from the errors that
the program had on files when it first met them, what tells two plans apart from the groups of plans.
"""
import argparse
import json
import math
import pathlib
import subprocess
import tempfile

from accuracy_groups import DATA, validate
from ranking import pair_difference, pairs_of, ranking_tables

FILE = pathlib.Path("scenarios/accuracy/errors.json")
ROWS = pathlib.Path("scenarios/accuracy/errors.csv")
PAGE = pathlib.Path("docs/accuracy.md")
FIRST_SIGHT = pathlib.Path("bench/first_sight.json")
BEGIN, END = "<!-- band: written by bench/errors.py -->\n", "<!-- end of band -->\n"

COLUMNS = ("source", "gpu", "precision", "runtime", "attention", "kinds", "nic", "gpus", "network_share",
           "memory_fill", "group", "plan", "error")
# A feature that differs, differences in shares, quantiles, steps that give a source half its weight.
RULE = {"difference": 0.25, "network_scale": 0.1, "memory_scale": 0.3,
        "lower": 0.05, "upper": 0.95, "few": 2}
# Not among the errors yet, and why; `validate` and docs/accuracy.md judge them by the others.
NOT_YET = {
    "megatron_core_h100_scaling": "micro-batches, chunks and recomputation are not printed: the plans are guesses",
    "primus_moe_mi355x": "rates of AMD's GPUs are of this version: 20 % too fast",
    "torchao_float8": "on B200s that are capped at 750 W a quarter of a step is not explained",
    "xtuner_zero3_ulysses": "two steps of 8 thousand tokens over four nodes are 28 and 38 % too fast, and nobody printed their network",
}
# Keys of a plan that say one thing.
LEFT_OUT = (("runtime",), ("attention_kernel", "flash_attention"))
ABOUT = [
    "How the errors of predictions make a band; the errors themselves stand in errors.csv, a row for each "
    "measured step of tests/data/validation, error = ln(measured / predicted).",
    "Written by bench/errors.py; sim/band/band.h says how it is read."]


def step_files(left_out=NOT_YET):
    """Names of the files that measure a step: "llmc", "experts/deepseek_v3"."""
    paths = sorted(DATA.glob("*.json")) + sorted(DATA.glob("experts/*.json"))
    return [str(path.relative_to(DATA).with_suffix("")) for path in paths
            if path.stem not in left_out
            and any(case["measured"].get("step_time_s") and "scenario" in case
                   and case.get("kind") != "formula"
                   for case in json.loads(path.read_text()).get("cases", []))]


def steps(block):
    """Rows with a measured and a predicted step."""
    return [row for row in block["rows"] if "features" in row
            and row["measured"].get("step_time_s") and row["predicted"].get("step_time_s")]


def error(row):
    return math.log(row["measured"]["step_time_s"] / row["predicted"]["step_time_s"])


def error_rows(name, rows):
    """A line each. Groups of competing plans are numbered from 1; equal plans have one number."""
    plans = {}
    for row in rows:
        plans.setdefault(row["group"], {}).setdefault(row["plan"], len(plans[row["group"]]) + 1)
    groups = {group: number for number, group in enumerate(
        (group for group in plans if group and len(plans[group]) >= 3), 1)}
    lines = []
    for row in rows:
        features, group = row["features"], groups.get(row["group"], 0)
        plan = plans[row["group"]][row["plan"]] if group else 0
        values = ([name.split("/")[-1]] + [features[column] for column in COLUMNS[1:-3]]
                  + [group, plan, round(error(row), 4)])
        lines.append(",".join(str(value) for value in values))
    return lines


def unseen():
    """Mean over files of the mean |error| that the program had when it first met them."""
    means = json.loads(FIRST_SIGHT.read_text())["files"].values()
    return math.log1p(sum(means) / len(means) / 100)


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def move(binary, blocks, keys):
    """What leaving the keys out moves: the 90th percentile of each file's steps that say them, in
    the mean over files."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, block in blocks.items():
            root = json.loads((DATA / f"{name}.json").read_text())
            kept = []
            for case, row in zip(root["cases"], block["rows"], strict=True):
                plan = case.get("scenario", {}).get("plan", {})
                if row not in steps(block) or not any(key in plan for key in keys):
                    continue
                for key in keys:
                    plan.pop(key, None)
                kept.append((case, row))
            if not kept:
                continue
            root["cases"] = [case for case, _ in kept]
            copy = pathlib.Path(folder) / f"{name}.json"
            copy.parent.mkdir(exist_ok=True)
            copy.write_text(json.dumps(root))
            clusters = (DATA / f"{name}.json").parent / "clusters"
            if clusters.exists() and not (copy.parent / "clusters").exists():
                (copy.parent / "clusters").symlink_to(clusters.resolve())
            without = validate(binary, name, pathlib.Path(folder))["rows"]
            moves = [abs(math.log(b["predicted"]["step_time_s"] / a["predicted"]["step_time_s"]))
                     for (_, a), b in zip(kept, without, strict=True)
                     if b["predicted"] and b["predicted"].get("step_time_s")]
            if moves:
                found.append(quantile(moves, 0.9))
    return sum(found) / len(found) if found else 0


def write_file(binary, blocks):
    pairs = [pair for block in blocks.values() for pair in pairs_of(steps(block))]
    root = {"schema": "errors/1", "about": ABOUT, "rule": RULE, "unseen": round(unseen(), 4),
            "left_out": [{"keys": list(keys), "move": round(move(binary, blocks, keys), 4)}
                         for keys in LEFT_OUT],
            "pair_equal": round(pair_difference(pairs, 2 / 3), 4),
            "pair_ordered": round(pair_difference(pairs, 9 / 10), 4)}
    FILE.write_text(json.dumps(root, indent=1) + "\n")
    rows = [line for name, block in blocks.items() for line in error_rows(name, steps(block))]
    ROWS.write_text("\n".join([",".join(COLUMNS)] + rows) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    binary = f"{given.build}/bin/rehearse"
    blocks = {name: validate(binary, name) for name in step_files()}
    if not given.page:
        write_file(binary, blocks)
    subprocess.run(["ninja", "-C", given.build, "band_coverage"], check=True,
                   stdout=subprocess.DEVNULL)
    tool = next(pathlib.Path(given.build).rglob("band_coverage"))
    tables = subprocess.run([str(tool)], check=True, capture_output=True, text=True).stdout
    root = json.loads(FILE.read_text())
    widens = [f"`{row['keys'][0]}` {100 * row['move']:.1f} %" for row in root["left_out"]]
    notes = (f"Beyond the quantiles a band widens, in quadrature, by {100 * root['unseen']:.1f} % for each kind "
             "that no source has (GPU and precision, software, network, size, and the conditions above: mean "
             f"|error| on files that the program met for the first time), and where a plan leaves out {', '.join(widens)} (what the cases that "
             "say it move without it).\n")
    notes += "\nNot among the errors yet, and judged by the others: " + "; ".join(
        f"`{name}` ({why})" for name, why in NOT_YET.items()) + ".\n"
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(text[:start] + tables + "\n" + notes + "\n" + ranking_tables(blocks, root) + text[end:])


if __name__ == "__main__":
    main()
