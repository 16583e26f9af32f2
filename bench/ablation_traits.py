#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each trait of the runtimes' profiles is worth: every file of measured cases without it.

bench/ablation_traits.py [--build build/release]   writes the table into docs/accuracy.md

A trait is left out of every profile at once: in a copy of scenarios/runtimes/ all files that say it
have the plainest value instead. What the plan of a case says itself stays, as a fact of its source.
"""
import argparse
import json
import pathlib
import shutil
import tempfile

from ablation import scores
from accuracy_groups import DATA, GROUPS, runtimes_of, write_between

PAGE = pathlib.Path("docs/accuracy.md")
BEGIN, END = "<!-- traits: written by bench/ablation_traits.py -->\n", "<!-- end of traits -->\n"
SHOWN = 0.05  # a group whose mean |error| moves by less is as it was [% points]

# The plainest value of each trait: eager PyTorch, nothing overlapped, nothing in 8 bit.
PLAIN = {
    "gradient_accumulation": "separate",
    "gradient_reduction_cast": False,
    "gather_copies": False,
    "sequence_copies": False,
    "listed_elements": 0,
    "torch_attention": False,
    "gradient_reduction": "reduce_scatter",
    "gradient_communication": "stored",
    "drains_at_transfer": False,
    "aligned_reductions": False,
    "receives_one_ahead": False,
    "cross_entropy": "eager",
    "attention_kernel": "flash2",
    "eager_kernels": [],
    "gated_mlp": "fused",
    "sequence_gather": "repeated",
    "optimizer_bytes": 30,
    "fsdp_hook_launches": 0,
    "selective_recompute": "attention_core",
    "checkpoint_early_stop": False,
    "fp8_casts": "each_product",
    "fp8_communication": "none",
    "overlap_pipeline": "never",
    "overlap_tensor_parallel": False,
    "blocking_transfer_us": 0,
    "serial_transfers": False,
    "transfer_scatter_gather": False,
    "context_parallel_balance": False,
    "gathers_once_in_pipeline": False,
}


def value_of(said):
    return said["value"] if isinstance(said, dict) else said


def said_by(folder, name, trait):
    """What a profile says of a trait, by itself or by its base."""
    profile = json.loads((folder / "runtimes" / f"{name}.json").read_text())
    traits = profile.get("traits", {})
    if trait in traits:
        return value_of(traits[trait])
    return said_by(folder, profile["base"], trait) if "base" in profile else None


def without(folder, trait, value):
    """The profiles that said something else, by themselves or by their base, and no longer do."""
    names = [path.stem for path in sorted((folder / "runtimes").glob("*.json"))]
    changed = {name for name in names if said_by(folder, name, trait) not in (None, value)
               and not said_by(folder, name, "own_executor")}
    for name in changed:
        path = folder / "runtimes" / f"{name}.json"
        profile = json.loads(path.read_text())
        if trait in profile.get("traits", {}):
            profile["traits"][trait] = value
            path.write_text(json.dumps(profile))
    return changed


def moved(whole, left):
    cells = []
    for group, before, after in zip(GROUPS, whole, left):
        if before and after and abs(after[0] - before[0]) >= SHOWN:
            cells.append(f"{group.name} {before[0]:.1f} → {after[0]:.1f}")
    return "; ".join(cells) or "nothing"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--print", action="store_true", help="the table on stdout instead")
    given = parser.parse_args()
    binary = f"{given.build}/bin/rehearse"
    whole = scores(binary)
    lines = ["| trait | instead, in every profile | mean \\|error\\| in %, with → without |",
             "|---|---|---|"]
    for trait, value in PLAIN.items():
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "scenarios"
            shutil.copytree("scenarios", copy)
            changed = without(copy, trait, value)
            if changed:
                left = scores(binary, DATA, copy, whole, lambda name: changed & runtimes_of(name))
                lines.append(f"| `{trait}` | `{json.dumps(value)}` | {moved(whole, left)} |")
    table = "\n".join(lines) + "\n"
    if given.print:
        print(table, end="")
    else:
        write_between(PAGE, BEGIN, END, table)


if __name__ == "__main__":
    main()
