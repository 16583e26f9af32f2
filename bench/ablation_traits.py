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

from accuracy_groups import DATA, GROUPS, errors, mean_and_bias, validate, write_between

PAGE = pathlib.Path("docs/accuracy.md")
BEGIN, END = "<!-- traits: written by bench/ablation_traits.py -->\n", "<!-- end of traits -->\n"
SHOWN = 0.05  # a group whose mean |error| moves by less is as it was [% points]

# The plainest value of each trait: eager PyTorch, nothing overlapped, nothing in 8 bit.
PLAIN = {
    "gradient_accumulation": "separate",
    "gradient_reduction_cast": False,
    "gather_copies": False,
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


def without(folder, trait, value):
    """Whether any profile said something else."""
    changed = False
    for path in sorted((folder / "runtimes").glob("*.json")):
        profile = json.loads(path.read_text())
        traits = profile.get("traits", {})
        said = value_of(traits.get(trait))
        if said is None or said == value or value_of(traits.get("own_executor")):
            continue
        traits[trait] = value
        changed = True
        path.write_text(json.dumps(profile))
    return changed


def scores(binary, scenarios=None):
    blocks = {name: validate(binary, name, DATA, scenarios)
              for name in sorted({group.file for group in GROUPS})}
    return [mean_and_bias(errors(blocks[group.file], group)[0]) for group in GROUPS]


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
            if without(copy, trait, value):
                lines.append(f"| `{trait}` | `{json.dumps(value)}` | "
                             f"{moved(whole, scores(binary, copy))} |")
    table = "\n".join(lines) + "\n"
    if given.print:
        print(table, end="")
    else:
        write_between(PAGE, BEGIN, END, table)


if __name__ == "__main__":
    main()
