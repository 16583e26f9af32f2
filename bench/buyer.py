#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What predictions are worth to who buys by them: the table that docs/accuracy.md begins with.

bench/buyer.py [--build build/release]   writes the table
A row is a GPU, a framework's profile, a precision and a kind of model; every measured step of
tests/data/validation counts in one of them.
"""
import argparse
import json
import pathlib
import statistics

from accuracy_groups import DATA, validate, write_between
from errors import step_files, steps

PAGE = pathlib.Path("docs/accuracy.md")
BEGIN, END = "<!-- buyer: written by bench/buyer.py -->\n", "<!-- end of buyer -->\n"
RUNTIMES, CLUSTERS = pathlib.Path("scenarios/runtimes"), pathlib.Path("scenarios/clusters")
# Mean |error| in % up to which a prediction is good as it is, and up to which its band serves.
GOOD, FAIR = 5, 10


def gpu_of(cluster, folder):
    """The GPU's name: of a cluster inline, of a file beside the case, or of a shipped one."""
    if not isinstance(cluster, dict):
        places = [folder / cluster, pathlib.Path("scenarios") / cluster, CLUSTERS / f"{cluster}.json"]
        cluster = json.loads(next(place for place in places if place.is_file()).read_text())
    return cluster["gpu"]["name"]


def runtime_of(name):
    """The profile's title; a case that names none is predicted as any framework."""
    file = RUNTIMES / f"{name}.json"
    return json.loads(file.read_text()).get("title", name) if file.is_file() else "no profile"


def kind_of(features):
    """Dense or with experts, and fully sharded or not: what a buyer knows of his model and plan."""
    kinds = features["kinds"].split()
    return ("experts" if "experts" in kinds else "dense") + (", ZeRO-3" if "zero3" in kinds else "")


def rows_of(binary):
    """Errors by (GPU, framework, precision, kind): a list of (source, error, within its band)."""
    found = {}
    for name in step_files(left_out=()):
        path = DATA / f"{name}.json"
        cases = json.loads(path.read_text())["cases"]
        block = validate(binary, name)
        measured = {id(row) for row in steps(block)}
        for case, row in zip(cases, block["rows"], strict=True):
            if id(row) not in measured:
                continue
            step, features = row["measured"]["step_time_s"], row["features"]
            key = (gpu_of(case["scenario"]["cluster"], path.parent), runtime_of(features["runtime"]),
                   features["precision"], kind_of(features))
            found.setdefault(key, []).append(
                (name, row["predicted"]["step_time_s"] / step - 1, row["low_s"] <= step <= row["high_s"]))
    return found


def advice(error, largest, sources):
    """What to do with such a prediction."""
    if error <= GOOD:
        said = "take it as it is"
    elif error <= FAIR:
        said = "take its low and high"
    else:
        said = "`calibrate --from` a step or a trace of your own first"
    if sources == 1 and error <= FAIR and largest > 2 * FAIR:
        said += "; single rows are far off"
    return said


def table(found):
    lines = ["| GPU | framework | precision | model | steps, sources | mean \\|error\\|, bias | largest | "
             "within low and high | what to do |", "|---|---|---|---|--:|--:|--:|--:|---|"]
    for key in sorted(found):
        rows = found[key]
        sources = {name for name, _, _ in rows}
        errors = [100 * error for _, error, _ in rows]
        mean, bias = statistics.fmean(map(abs, errors)), statistics.fmean(errors)
        largest = max(errors, key=abs)
        inside = sum(held for _, _, held in rows)
        lines.append("| " + " | ".join(key) + f" | {len(rows)}, {len(sources)} | {mean:.1f} %, {bias:+.1f} % | "
                     f"{largest:+.1f} % | {inside} of {len(rows)} | "
                     f"{advice(mean, abs(largest), len(sources))} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release")
    given = parser.parse_args()
    write_between(PAGE, BEGIN, END, table(rows_of(f"{given.build}/bin/rehearse")))


if __name__ == "__main__":
    main()
