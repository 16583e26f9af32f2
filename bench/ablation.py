#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each mechanism is worth: every file of measured cases without it.

bench/ablation.py [--build build/release]   writes the table into docs/accuracy.md

The program has no switch for this. A mechanism is left out in its description: in a copy of
scenarios/ one number or trait is what it was before, or in a copy of the cases one key is missing.
"""
import argparse
import json
import pathlib
import shutil
import tempfile

from accuracy_groups import (DATA, GROUPS, architectures_of, errors, mean_and_bias, validate,
                             write_between)

PAGE = pathlib.Path("docs/accuracy.md")
BEGIN, END = "<!-- ablation: written by bench/ablation.py -->\n", "<!-- end of ablation -->\n"

# Name; file of scenarios/ and the values that it has instead: {path of keys: value}.
DESCRIPTIONS = [
    ("power counted once (H100: 1.3 pJ again)", "kernels/hopper.json", {"power.pj_per_flop": 1.3}),
    ("flash3 by direction (H100: 0.504 both)", "kernels/hopper.json",
     {"attention.flash3.forward": 0.504, "attention.flash3.backward": 0.504}),
    ("the 500 W card's own energy", "kernels/hopper.json", {"types": []}),
    ("the capped B200's own energy", "kernels/blackwell.json", {"types.4.power.pj_per_flop": 0.66}),
    ("tables near their shapes (H100)", "kernels/hopper.json",
     {"matrix_products.table.near_distance": 0}),
    ("host issue time", "kernels/default.json", {"host.issue_us": 0}),
    ("compute slowed by data-parallel collectives", "kernels/default.json",
     {"overlap.data_parallel_slowdown": 0}),
]
# Name; key of a case's scenario that is left out.
KEYS = [
    ("GPUs used of a domain (`domain_gpus`)", ("domain_gpus",)),
    ("attention kernel as the source has it", ("plan", "attention_kernel")),
]


def put(root, path, value):
    *parents, last = path.split(".")
    for key in parents:
        root = root[int(key)] if isinstance(root, list) else root[key]
    root[last] = value


def changed(path, change):
    root = json.loads(path.read_text())
    change(root)
    path.write_text(json.dumps(root, indent=1))


def without_key(folder, keys):
    def drop(root):
        for case in root["cases"]:
            holder = case.get("scenario") or case.get("layer") or case.get("stage", {}).get("scenario")
            for key in keys[:-1]:
                holder = (holder or {}).get(key)
            if holder:
                holder.pop(keys[-1], None)
    for path in folder.glob("*.json"):
        changed(path, drop)


def scores(binary, folder=DATA, scenarios=None, whole=None, touches=lambda name: True):
    """Scores by group; `whole`: those of a file that `touches` says no to, which is not run again."""
    names = sorted({group.file for group in GROUPS})
    blocks = {name: validate(binary, name, folder, scenarios) for name in names
              if whole is None or touches(name)}
    return [mean_and_bias(errors(blocks[group.file], group)[0]) if group.file in blocks else whole[i]
            for i, group in enumerate(GROUPS)]


def of_architecture(file):
    """Whether a file of cases has GPUs that a file of kernels/ is about."""
    architecture = pathlib.Path(file).stem
    return lambda name: architecture == "default" or architecture in architectures_of(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--data", type=pathlib.Path, default=DATA, help="another folder of cases")
    parser.add_argument("--print", action="store_true", help="the table on stdout instead")
    given = parser.parse_args()
    binary = f"{given.build}/bin/rehearse"
    columns = [("nothing left out", scores(binary, given.data))]
    for name, file, values in DESCRIPTIONS:
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "scenarios"
            shutil.copytree("scenarios", copy)
            changed(copy / file, lambda root: [put(root, *item) for item in values.items()])
            columns.append((name, scores(binary, given.data, copy, columns[0][1], of_architecture(file))))
    for name, keys in KEYS:
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "cases"
            shutil.copytree(given.data, copy)
            without_key(copy, keys)
            columns.append((name, scores(binary, copy)))
    lines = ["| group | " + " | ".join(name for name, _ in columns) + " |",
             "|---|" + "--:|" * len(columns)]
    whole = columns[0][1]
    for i, group in enumerate(GROUPS):
        if whole[i]:
            cells = [f"{whole[i][0]:.1f}"] + [
                "=" if column[i] == whole[i] else f"{column[i][0]:.1f}" if column[i] else "–"
                for _, column in columns[1:]]
            lines.append(f"| {group.name} | " + " | ".join(cells) + " |")
    table = "\n".join(lines) + "\n"
    if given.print:
        print(table, end="")
    else:
        write_between(PAGE, BEGIN, END, table)


if __name__ == "__main__":
    main()
