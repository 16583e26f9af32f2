#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How wrong predictions are, for the band: scenarios/accuracy/, and its section of
docs/accuracy.md.

bench/errors.py [--build build/release]          predicts every measured step again, writes both
bench/errors.py --page [--build build/release]   the section alone, from the file as it is

Nothing in the file is typed in but its rule: rows come from `validate --json`, what a key moves that
is left out from the same cases without it, what an unmeasured kind costs from the errors that
version 0.1 had on files that came after it, what tells two plans apart from the groups of plans.
"""
import argparse
import json
import math
import pathlib
import subprocess
import tempfile

from accuracy_groups import DATA, GROUPS, validate
from ranking import pair_difference, pairs_of, ranking_tables

FILE = pathlib.Path("scenarios/accuracy/errors.json")
ROWS = pathlib.Path("scenarios/accuracy/errors.csv")
PAGE = pathlib.Path("docs/accuracy.md")
BEFORE = pathlib.Path("bench/accuracy_before.json")
BEGIN, END = "<!-- band: written by bench/errors.py -->\n", "<!-- end of band -->\n"

COLUMNS = ("source", "gpu", "precision", "runtime", "attention", "kinds", "nic", "gpus", "network_share",
           "memory_fill", "error")
# A feature that differs, differences in shares, quantiles, steps that give a source half its weight.
RULE = {"difference": 0.25, "network_scale": 0.1, "memory_scale": 0.3,
        "lower": 0.05, "upper": 0.95, "few": 2}
# Came after version 0.1, whose errors on them bench/accuracy_before.json has.
CAME_AFTER = ("aleph_alpha_13b", "dgxc_benchmarking", "dlperf_megatron_v100", "flagperf_paddle",
              "fms_fsdp", "nemo_automodel")
# Keys of a plan that say one thing.
LEFT_OUT = (("runtime",), ("attention_kernel", "flash_attention"))
ABOUT = [
    "How the errors of predictions make a band; the errors themselves stand in errors.csv, a row for each "
    "measured step of tests/data/validation, error = ln(measured / predicted).",
    "Written by bench/errors.py; sim/band/band.h says how it is read."]


def step_files():
    """Names of the files that measure a step."""
    return [path.stem for path in sorted(DATA.glob("*.json"))
            if any(case["measured"].get("step_time_s") and "scenario" in case
                   and case.get("kind") != "formula"
                   for case in json.loads(path.read_text())["cases"])]


def steps(block):
    """Rows with a measured and a predicted step."""
    return [row for row in block["rows"] if "features" in row
            and row["measured"].get("step_time_s") and row["predicted"].get("step_time_s")]


def error(row):
    return math.log(row["measured"]["step_time_s"] / row["predicted"]["step_time_s"])


def error_row(name, row):
    features = row["features"]
    values = [name] + [features[column] for column in COLUMNS[1:-1]] + [round(error(row), 4)]
    return ",".join(str(value) for value in values)


def unseen():
    """Mean over files of the mean |error| that version 0.1 had on files that it had not seen."""
    before = json.loads(BEFORE.read_text())
    means = []
    for name in CAME_AFTER:
        found = [before[g.name][0] for g in GROUPS
                 if g.file == name and not g.name.startswith("the same") and before.get(g.name)]
        means.append(sum(found) / len(found))
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
            copy = pathlib.Path(folder)
            (copy / f"{name}.json").write_text(json.dumps(root))
            if (DATA / "clusters").exists() and not (copy / "clusters").exists():
                (copy / "clusters").symlink_to((DATA / "clusters").resolve())
            without = validate(binary, name, copy)["rows"]
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
    rows = [error_row(name, row) for name, block in blocks.items() for row in steps(block)]
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
             "that no source has (GPU and precision, software, network, size: mean |error| of version 0.1 on "
             f"files that came after it), and where a plan leaves out {', '.join(widens)} (what the cases that "
             "say it move without it).\n")
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(text[:start] + tables + "\n" + notes + "\n" + ranking_tables(blocks, root) + text[end:])


if __name__ == "__main__":
    main()
