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
from collections import Counter
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


# Words of plans that are words of something else as well: where a file of these says one, it does not
# speak of the plan's key.
OTHER_WORDS = {
    "exec/backend/": "calls of a device",
    "exec/calibrate/calibrate_kernels.cc": "classes of kernels in files of calibrations",
    "exec/calibrate/calibration_gpu.cc": "the same",
    "exec/checkpoint/": "what a checkpoint's state.json says of itself",
    "exec/cuda/": "calls of a device",
    "exec/status/": "classes of ops",
    "exec/train/resident_plan.cc": "what lies in a process's memory",
    "schedules/body/kernel.h": "classes of kernels",
    "schedules/formats/schedule_json.cc": "keys of files of schedules",
    "schedules/order/registry.cc": "arguments of orders",
    "schedules/runtime/": "traits of runtimes, and their words",
    "schedules/scenario/keys/case_keys.cc": "keys of measured cases",
    "schedules/scenario/keys/moe_layer_keys.cc": "the same",
    "schedules/scenario/keys/overlap_rows.cc": "members of overlap",
    "sim/accuracy/moe_layer.cc": "the same",
    "sim/accuracy/validation_reader.cc": "the same",
    "sim/band/": "features of measured steps",
    "sim/cluster/": "classes of kernels in files of clusters",
    "sim/compute/": "the same, in files of kernels",
    "sim/memory/": "parts of memory, and words of its profiles",
    "sim/report/": "parts of memory, and columns of reports",
    "sim/search/space/framework.cc": "what releases of frameworks can launch",
    "viz/": "categories of traces",
    "cli/schedule.cc": "the command of that name",
    "cli/run/run_report.cc": "columns of reports",
    "cli/plan/plan_answer.cc": "the same",
    "cli/plan/sweep.cc": "the same",
}


def plan_keys(texts):
    """Keys of a plan: the names in the rows of its table, or of the table that came before it."""
    keys = set()
    for name, text in texts.items():
        if re.search(r"scenario/keys/plan_(rows|keys)\.cc$", name):
            rows = text[max(text.find("kPlanRows"), 0):]
            keys |= set(re.findall(r'(?:PlanRow\{\s*\.key = |KeySpec)(?:\{\s*\.name = |flag\(|size\(|choice\()"(\w+)"', rows))
    return sorted(keys)


def files_of_keys(texts, pattern=r'"(?:plan\.)?{}"', other=OTHER_WORDS):
    """Product files in which each key stands, in the files that speak of plans."""
    counts = []
    for key in plan_keys(texts):
        mention = re.compile(pattern.format(key))
        counts.append(sum(1 for name, text in texts.items()
                          if not name.startswith(tuple(other)) and mention.search(text)))
    return counts


def lonely_names(texts):
    """Names that a header declares and nothing else says: dead, but for enumerators and tags."""
    everywhere = Counter()
    for name in git("ls-files", "tests", "bench").split():
        if name.endswith(CODE):
            everywhere.update(re.findall(r"\w+", open(name, encoding="utf-8", errors="replace").read()))
    bare = {name: re.sub(r'"(?:\\.|[^"\\\n])*"|\w*##\w+|#[^\n]*', "", text) for name, text in texts.items()}
    for text in bare.values():
        everywhere.update(re.findall(r"\w+", text))
    lonely = set()
    for name, text in bare.items():
        if name.endswith(".h"):
            declared = re.sub(r"enum [^{;]*\{[^}]*\}|(?:std::|struct |\[\[)\w+", "", text)
            lonely |= {word for word in re.findall(r"\b[a-z]\w+\b", declared) if everywhere[word] == 1}
    return sorted(lonely)


def longest_file(texts, under):
    return max((text.count("\n"), name) for name, text in texts.items() if name.startswith(under))


def without_strings(text):
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', re.sub(r"'(?:[^'\\\n]|\\.)'", "' '", text))


def block_end(text, begin):
    """Behind the brace that closes the one at `begin`."""
    depth = 0
    for at in range(begin, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at + 1
    return len(text)


def class_sizes(texts, under):
    """{class: functions that its body declares or defines}: of each body, the statements of its own that
    have a parameter list."""
    sizes = {}
    for name, text in texts.items():
        if not name.startswith(under):
            continue
        text = without_strings(text)
        for found in re.finditer(r"\b(?:class|struct) ([\w:]+)(?: final)?(?: : [^;{]*)? \{", text):
            begin = found.end() - 1
            inside, at, flat = text[begin + 1:block_end(text, begin) - 1], 0, ""
            while at < len(inside):  # blocks inside become an end of a statement
                flat += ";" if inside[at] == "{" else inside[at]
                at = block_end(inside, at) if inside[at] == "{" else at + 1
            functions = re.findall(r"(?:^|[;:]\s)\s*(?!using|friend|static_assert|struct|class|enum)[^;=(]*[\w)>=\]+*/-] ?\(", flat)
            sizes[found.group(1)] = len(functions)
    return sizes


def function_lengths(texts, under):
    """Lines of functions that are defined in a namespace, as the format lays them out."""
    lengths = {}
    for name, text in texts.items():
        if not name.startswith(under):
            continue
        for found in re.finditer(r"^(?! |#|namespace|struct|class|enum|\})[^\n;={}]*?([\w:~]+)\((?:[^;{}]|\{\})*\{\n(?:.*\n)*?\}$", text, flags=re.M):
            lengths[f"{name}: {found.group(1)}"] = found.group(0).count("\n") + 1
    return lengths


def rows(texts):
    model = ("schedules/", "sim/", "exec/")
    keys = files_of_keys(texts)
    meant = files_of_keys(texts, r'"(?:plan\.)?{0}"|&Plan::{0}\b')
    yield "files that ask for the latent rank (kv_lora_rank)", files_with(texts, r"\bkv_lora_rank\b", model), "<= 8"
    yield "places that know that a gate is one more matrix", lines_with(texts, r"MlpKind::Gated \? [23]", model), "1"
    yield "shapes guessed from roles (WholeShape, splits_rows, splits_columns)", lines_with(texts, r"\b(?:WholeShape|splits_(?:rows|columns|norm))\b", model), "0"
    yield "lines that name a RecomputeMode", lines_with(texts, r"RecomputeMode::"), "<= 5"
    yield "places in sim and exec that name an optimizer", lines_with(texts, r"\bOptimizer::", ("sim/", "exec/")), "0"
    yield "places that name a GPU's architecture", lines_with(texts, r"\bArchitecture::"), "0"
    yield "files a plan's key stands in, mean", round(mean(keys), 2) if keys else "-", "<= 4"
    yield "files a plan's key stands in, median", median(keys) if keys else "-", ""
    yield "files that say a plan's key, or mean it by its field, mean", round(mean(meant), 2) if meant else "-", ""
    yield "copies of a replica's number (at.data * context_parallel)", lines_with(texts, r"at\.data \* .*context_parallel"), "<= 1"
    yield "uses of own_executor", lines_with(texts, r"\bown_executor\b", model), "<= 10"
    yield "units that include a parser of JSON", files_with(texts, r"#include <(?:nlohmann|rapidjson)/"), "1"
    yield "functions of the largest class of exec/body", max(class_sizes(texts, "exec/body/").values()), "<= 25"
    yield "lines of the longest function of exec/body", max(function_lengths(texts, "exec/body/").values()), "<= 60"
    lonely = lonely_names(texts)
    yield "names of headers that nothing else says", f"{len(lonely)} {' '.join(lonely)}".strip(), "0"
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
