#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether two builds of `rehearse` say the same of everything that is shipped.

    bench/same.py OLD NEW     two `rehearse` binaries; in the project's root

Runs every command over every shipped scenario, every fixture of tests/data/schedules, every measured
case and every layout of tests/exec/step/layouts.h, with both, and compares what they print and write:
reports, timelines, pictures, exports, schedules, losses and gradient norms to the last bit. Only
what a clock said is left out. Prints what differs; exit 1 if anything does.
"""
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

# What a clock said, and what the system says of the binary's own size.
OF_THIS_BINARY = {"wall_s", "instead_wall_s", "search_s", "program_and_libraries", "program_data",
                  "planned_resident_bytes"}


def without_clock(value, clocks):
    if isinstance(value, dict):
        return {k: without_clock(v, clocks) for k, v in value.items() if k not in clocks}
    return [without_clock(v, clocks) for v in value] if isinstance(value, list) else value


def run(binary, arguments, folder):
    """(exit status, what it printed without clocks, digests of what it wrote)"""
    files = [a for a in arguments if a.startswith("@")]
    said = subprocess.run([os.path.abspath(binary)] + [a.replace("@", folder + "/") for a in arguments],
                          capture_output=True, text=True, errors="replace", timeout=600)
    out = said.stdout.replace(folder, "")
    try:
        out = json.dumps(without_clock(json.loads(out), OF_THIS_BINARY), indent=1)
    except ValueError:
        out = re.sub(r"(simulated|searched|found)?[^\n]* in [0-9.]+ m?s[^\n]*", "", out)
    wrote = {}
    for name in files:
        path = name.replace("@", folder + "/")
        if os.path.isfile(path):
            wrote[name] = hashlib.sha256(open(path, "rb").read()).hexdigest()
    return said.returncode, out, said.stderr.replace(folder, ""), wrote


def train(binary, arguments, folder):
    status, _, err, _ = run(binary, arguments, folder)
    path = folder + "/metrics"
    steps = [json.loads(line) for line in open(path)] if os.path.isfile(path) else []
    return status, [(s["loss"], s["grad_norm"]) for s in steps], re.sub(r"[0-9.]+ (s|ms)\b", "", err)


FAMILIES = {
    "Gpt2": {"model_type": "gpt2", "resid_pdrop": 0},
    "Gpt2Untied": {"model_type": "gpt2", "resid_pdrop": 0, "tie_word_embeddings": False},
    "Llama": {"model_type": "llama", "intermediate_size": 48, "num_key_value_heads": 2},
    "Qwen2": {"model_type": "qwen2", "intermediate_size": 48, "num_key_value_heads": 2},
    "LlamaOneHead": {"model_type": "llama", "intermediate_size": 48, "num_key_value_heads": 1,
                     "attention_bias": True},
}
SIZES = {"num_hidden_layers": 8, "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 61,
         "max_position_embeddings": 16}


def layouts():
    """(name, scenario, --set arguments) of tests/exec/step/layouts.h, as layout_case.h makes them"""
    text = open("tests/exec/step/layouts.h").read()
    cell = re.compile(r'\{"(\w+)",\s*(\w+),\s*(?:Bitwise|Close),\s*\{((?:\s*"(?:[^"\\]|\\.)*",?)*)\s*\}\}')
    for name, family, keys in cell.findall(text):
        sets = []
        for key in re.findall(r'"((?:[^"\\]|\\.)*)"', keys):
            sets += ["--set", "plan." + key.replace('\\"', '"')]
        scenario = {"name": "matrix", "model": FAMILIES[family] | SIZES, "cluster": "a100-80gb-4x-hdr200",
                    "plan": {"micro_batch": 1, "global_batch": 8, "sequence_length": 16,
                             "precision": "fp32", "runtime": "rehearse"},
                    "train": {"steps": 4, "learning_rate": 0.01, "epsilon": 0.01, "clip_norm": 1.0,
                              "seed": 7}}
        yield name, scenario, sets


def cases(folder):
    """(what, function, argument lists in order)"""
    for path in sorted(glob.glob("scenarios/*.json")):
        yield path, run, [["simulate", path, "--json", "--trace", "@trace"], ["simulate", path],
                          ["check", path], ["schedule", path, "--format", "csv"],
                          ["render", "@trace", "--text"], ["render", "@trace", "--svg", "@svg"],
                          ["render", "@trace", "--png", "@png"], ["compare", "@trace", "@trace"],
                          ["export", "@trace", "@csv", "--to", "csv"],
                          ["export", "@trace", "@chrome", "--to", "chrome"],
                          ["export", "@trace", "@pftrace", "--to", "perfetto"]]
        yield path + " dry", run, [["run", path, "--dry-run", "--json"]]
    for path in sorted(glob.glob("tests/data/schedules/*.json") + glob.glob("tests/data/schedules/*.csv")
                       + glob.glob("tests/error/schedules/*")):
        yield path, run, [["check", path]] + [
            ["schedule", "--schedule", "file:" + path, "--format", f] for f in ("chart", "json", "csv")]
    for path in sorted(glob.glob("tests/data/validation/*.json") + glob.glob("scenarios/validation/*.json")):
        yield path, run, [["validate", path, "--json"]]
    for path in sorted(glob.glob("scenarios/search/*.json")):
        yield path, run, [["search", path, "--json", "--top", "5"]]
    yield "search", run, [["search", "scenarios/3d-8-gpus.json", "--set", "plan.data_parallel=null",
                           "--set", "plan.tensor_parallel=null", "--set", "plan.pipeline_parallel=null",
                           "--json"]]
    rows = re.findall(r"^\| `(\w+)` \| !", open("docs/schedules.md").read(), re.M)
    for name in rows + ["auto"]:
        for p, m in (("4", "8"), ("2", "6"), ("8", "16")):
            yield f"{name} {p} {m}", run, [["schedule", "--schedule", name, "--stages", p,
                                           "--microbatches", m, "--format", f, "--level", "full"]
                                          for f in ("json", "csv", "chart")]
    for name, scenario, sets in layouts():
        path = f"{folder}/{name}.json"
        json.dump(scenario, open(path, "w"))
        yield "layout " + name, run, [["simulate", path, "--json", "--trace", "@trace"] + sets,
                                      ["render", "@trace", "--text"], ["check", path] ]
        yield "training " + name, train, [["run", path, "--threads", "1", "--metrics", "@metrics"] + sets]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        def both(case):
            what, function, commands = case
            answers = []
            for binary in sys.argv[1:3]:
                with tempfile.TemporaryDirectory() as own:
                    answers.append([function(binary, arguments, own) for arguments in commands])
            return what, commands, answers
        compared = different = failed = 0
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for what, commands, (old, new) in pool.map(both, cases(folder)):
                for command, a, b in zip(commands, old, new):
                    compared += 1
                    failed += a[0] not in (0, None)
                    if a == b:
                        continue
                    different += 1
                    print(f"{what}: rehearse {' '.join(command)}")
                    for x, y in zip(a, b):
                        if x != y:
                            x, y = str(x).splitlines(), str(y).splitlines()
                            at = next((i for i, (p, q) in enumerate(zip(x, y)) if p != q), min(len(x), len(y)))
                            print("  old:", *x[at:at + 1], "\n  new:", *y[at:at + 1])
        print(f"{compared} commands compared ({failed} of them refused by the old build), {different} different")
        sys.exit(different > 0)


if __name__ == "__main__":
    main()
