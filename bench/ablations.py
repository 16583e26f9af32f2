#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every row of docs/accuracy.md that says what a mechanism is worth, made anew by one command.

bench/ablations.py [--build build/release]   ablation.py, ablation_traits.py, and the table of parts:
    what no trait says alone, left out in a copy of the data that describes it
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from ablation import changed, put, scores
from ablation_traits import moved
from accuracy_groups import DATA, runtimes_of, validate, write_between

PAGE = pathlib.Path("docs/accuracy.md")
BEGIN, END = "<!-- parts: written by bench/ablations.py -->\n", "<!-- end of parts -->\n"


def no_launches_of_experts(profile):
    """Nothing but the products of experts and what all layers have."""
    for feature, count in profile["expert_launches"].items():
        if feature != "calls":
            count.update(forward=0, backward=0)


def no_eager_norms(profile):
    """The memory of a layer without the rows of norms that run op by op."""
    for rows in profile["layer"].values():
        rows[:] = [row for row in rows if "eager_norm" not in row.get("if", "").split()]


# Mechanism; what stands instead; file of scenarios/ and its change; profiles that it touches (None:
# all). Scored by step times.
TIMES = [
    ("launches of experts by feature", "none but their calls", "runtimes/megatron.json",
     no_launches_of_experts, None),
    ("calls of single experts, and of parts of lists (ZeRO-3 of 2021)", "0 µs each", "kernels/default.json",
     lambda root: [put(root, f"host.expert_call_{end}_us", 0) for end in ("least", "most")], None),
    ("router and permutation op by op in Primus", "fused", "runtimes/primus.json",
     lambda root: put(root, "traits.eager_kernels", []), {"primus"}),
    ("torch's own attention on AMD", "FlashAttention-2 of their libraries (assumed)",
     "kernels/cdna3.json", lambda root: root["attention"].pop("torch"), {"torchtitan", "fsdp"}),
]
# The same, scored by wrong decisions of whether a plan fits, of one file of cases.
FITS = [
    ("memory of norms op by op: their input in fp32", "left out", "runtimes/megatron.json",
     no_eager_norms, "aleph_alpha_13b"),
    ("memory of `aa_scaling`: flattened in host memory", "made on the device",
     "runtimes/aa_scaling.json", lambda root: put(root, "states.flattened_on_host", False),
     "aleph_alpha_13b"),
]


def with_change(file, change, score):
    """What `score` says of a copy of scenarios/ with one file changed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "scenarios"
        shutil.copytree("scenarios", copy)
        changed(copy / file, change)
        return score(copy)


def parts(binary):
    whole = scores(binary)
    lines = ["| mechanism | instead | with → without |", "|---|---|---|"]
    for name, instead, file, change, profiles in TIMES:
        touches = (lambda _: True) if profiles is None else (lambda case, p=profiles: p & runtimes_of(case))
        left = with_change(file, change, lambda copy, t=touches: scores(binary, DATA, copy, whole, t))
        lines.append(f"| {name} | {instead} | mean \\|error\\| in %: {moved(whole, left)} |")
    for name, instead, file, change, cases in FITS:
        before = validate(binary, cases)["fit_wrong"]
        after = with_change(file, change, lambda copy, c=cases: validate(binary, c, DATA, copy)["fit_wrong"])
        lines.append(f"| {name} | {instead} | wrong fits of `{cases}`: {before:g} → {after:g} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release")
    given = parser.parse_args()
    for script in ("ablation.py", "ablation_traits.py"):
        subprocess.run([sys.executable, f"bench/{script}", "--build", given.build], check=True)
    write_between(PAGE, BEGIN, END, parts(f"{given.build}/bin/rehearse"))


if __name__ == "__main__":
    main()
