#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often a fact stands in the sources: counts that are small where a fact has one place.

bench/house.py [REVISION]   of this checkout, or of a revision: one line per fact, with the aim

A count is what `grep` finds in product sources (schedules, sim, exec, viz, cli), comments left out. The
aims are those of the design "every fact in one place": a layer says itself once, a key, an optimizer
and a GPU are rows.
"""
import re
import subprocess
import sys
from statistics import mean, median

PRODUCT = ("schedules/", "sim/", "exec/", "viz/", "cli/")
CODE = (".cc", ".h", ".inc", ".cu", ".cuh")


def git(*arguments):
    return subprocess.run(("git", *arguments), check=True, capture_output=True, text=True, errors="replace").stdout


def sources(revision):
    """{path: text without comments} of the product."""
    texts = {}
    names = git("ls-tree", "-r", "--name-only", revision).split() if revision else git("ls-files").split()
    for name in names:
        if not name.startswith(PRODUCT) or not name.endswith(CODE):
            continue
        text = git("show", f"{revision}:{name}") if revision else open(name, encoding="utf-8").read()
        texts[name] = re.sub(r"/\*.*?\*/", "", re.sub(r"//[^\n]*", "", text), flags=re.S)
    return texts


def files_with(texts, pattern, under=PRODUCT):
    return sum(1 for name, text in texts.items() if name.startswith(under) and re.search(pattern, text))


def lines_with(texts, pattern, under=PRODUCT):
    return sum(len(re.findall(pattern, text)) for name, text in texts.items() if name.startswith(under))


def plan_keys(texts):
    """Keys of a plan: first word of the rows of the table, or of the tables that came before it."""
    keys = set()
    for name, text in texts.items():
        if re.search(r"scenario/keys/plan_(rows|keys)\.cc$", name):
            keys |= set(re.findall(r'\{\s*\.?(?:key\s*=\s*\{)?\s*(?:\.name\s*=\s*)?"([a-z_0-9]+)"', text))
    return sorted(keys)


def files_of_keys(texts):
    """Product files in which each key stands as a literal."""
    counts = []
    for key in plan_keys(texts):
        pattern = re.compile(r'"(?:plan\.|overlap\.|plan\.overlap\.)?' + key + r'"')
        counts.append(sum(1 for text in texts.values() if pattern.search(text)))
    return [count for count in counts if count]


def longest_file(texts, under):
    return max((text.count("\n"), name) for name, text in texts.items() if name.startswith(under))


def rows(texts):
    model = ("schedules/", "sim/", "exec/")
    keys = files_of_keys(texts)
    yield "files that ask for the latent rank (kv_lora_rank)", files_with(texts, r"\bkv_lora_rank\b", model), "<= 8"
    yield "places that know that a gate is one more matrix", lines_with(texts, r"MlpKind::Gated \? [23]", model), "1"
    yield "shapes guessed from roles (WholeShape, splits_rows, splits_columns)", lines_with(texts, r"\b(?:WholeShape|splits_(?:rows|columns|norm))\b", model), "0"
    yield "lines that name a RecomputeMode", lines_with(texts, r"RecomputeMode::"), "<= 5"
    yield "places in sim and exec that name an optimizer", lines_with(texts, r"\bOptimizer::", ("sim/", "exec/")), "0"
    yield "places that name a GPU's architecture", lines_with(texts, r"\bArchitecture::"), "0"
    yield "files a plan's key stands in, mean", round(mean(keys), 2) if keys else "-", "<= 4"
    yield "files a plan's key stands in, median", median(keys) if keys else "-", ""
    yield "copies of a replica's number (at.data * context_parallel)", lines_with(texts, r"at\.data \* .*context_parallel"), "<= 1"
    yield "uses of own_executor", lines_with(texts, r"\bown_executor\b", model), "<= 10"
    yield "units that include nlohmann", files_with(texts, r"#include <nlohmann/"), "1"
    yield "source files", len(texts), ""
    yield "lines of the longest file in schedules and sim", longest_file(texts, ("schedules/", "sim/"))[0], "< 500"


def main():
    revision = sys.argv[1] if len(sys.argv) > 1 else ""
    if revision in ("-h", "--help"):
        print(__doc__)
        return
    print(f"of {git('rev-parse', '--short', revision or 'HEAD').strip()}{'' if revision else ' and what is changed'}")
    for words, count, aim in rows(sources(revision)):
        print(f"{words:<62} {count!s:>7}   {'aim ' + aim if aim else ''}".rstrip())


if __name__ == "__main__":
    main()
