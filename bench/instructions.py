#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions of two builds, by callgrind: start-up, engine, lowering, predictions and search.

    bench/instructions.py OLD NEW        (two `rehearse` programs; Release builds, each of which
                                          reads the scenarios of its own checkout)

Counts do not depend on what else the machine does. Of a command the whole is counted, or one
function with all that it calls; of the lowering without the prices, which were computed behind it
once. Exit status 1: a ratio above 1.03.
"""
import os
import re
import subprocess
import sys
import tempfile

ONE_PREDICTION = ["--set", "plan.overlap.gradient_reduce=false"]  # the note on overlap makes two
LOWERING = r"rehearse::lower(_priced)?\("
PRICES = r"rehearse::price_draft\("  # inside the lowering
CASES = [
    ("the program alone", None, ["--version"]),
    ("start-up", None, ["simulate", "tiny-gpt-4-ranks"]),
    ("event engine", r"sim::simulate\(", ["simulate", "gpt3-175b-1024", *ONE_PREDICTION]),
    ("lowering, pipeline", LOWERING, ["simulate", "gpt3-175b-1024", *ONE_PREDICTION]),
    ("lowering, ZeRO-3", LOWERING, ["simulate", "fsdp-64", *ONE_PREDICTION]),
    ("lowering, arena", LOWERING,
     ["simulate", "3d-8-gpus", "--set", "plan.runtime=rehearse", *ONE_PREDICTION]),
    ("simulate, pipeline", None, ["simulate", "gpt3-175b-1024", *ONE_PREDICTION]),
    ("simulate, ZeRO-3", None, ["simulate", "fsdp-64"]),
    ("search", None, ["search", "microbatch-sweep", "--threads", "1"]),
]


def count(program, command, function, folder):
    out = os.path.join(folder, "callgrind.out")
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, *command],
        capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(command)}: {done.stderr[-300:]}")
    if function is None:
        return int(re.search(r"Collected : (\d+)", done.stderr).group(1))
    table = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", out],
                           capture_output=True, text=True).stdout

    def inclusive(name):
        return max((int(line.split()[0].replace(",", "")) for line in table.splitlines()
                    if re.search(name, line)), default=0)

    whole = inclusive(function)
    if whole == 0:
        sys.exit(f"{program} {' '.join(command)}: calls no {function}")
    return whole - (inclusive(PRICES) if function == LOWERING else 0)


def main():
    old, new = sys.argv[1:3]
    worst = 0
    print(f"{'':22s}{'old, million':>14s}{'new, million':>14s}{'ratio':>8s}")
    with tempfile.TemporaryDirectory() as folder:
        for name, function, command in CASES:
            a, b = (count(p, command, function, folder) for p in (old, new))
            worst = max(worst, b / a)
            print(f"{name:22s}{a / 1e6:14.2f}{b / 1e6:14.2f}{b / a:8.3f}", flush=True)
    return worst > 1.03


if __name__ == "__main__":
    sys.exit(main())
