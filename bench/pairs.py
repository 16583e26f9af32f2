#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times of two builds in turn: start-up, lowering with the engine, search.

    bench/pairs.py OLD NEW [PAIRS]       (two `rehearse` programs, each of which reads the scenarios
                                          of its own checkout; 9 pairs)

Prints the medians of user + system seconds, and the median of the pairs' ratios: what else the
machine does meets both of a pair.
"""
import resource
import statistics
import subprocess
import sys

ONE_PREDICTION = ["--set", "plan.overlap.gradient_reduce=false"]  # the note on overlap makes two
CASES = [
    ("start-up", ["simulate", "tiny-gpt-4-ranks"]),
    ("lowering and engine", ["simulate", "gpt3-175b-1024", *ONE_PREDICTION]),
    ("lowering and engine, 16 times the micro-batches",
     ["simulate", "gpt3-175b-1024", "--set", "plan.global_batch=24576", *ONE_PREDICTION]),
    ("search", ["search", "microbatch-sweep", "--threads", "1"]),
]


def children_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(program, command):
    before = children_s()
    subprocess.run([program, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   check=True)
    return children_s() - before


def main():
    old, new = sys.argv[1:3]
    pairs = int(sys.argv[3]) if len(sys.argv) > 3 else 9
    print("| what | old, s | new, s | ratio |\n|---|--:|--:|--:|")
    for name, command in CASES:
        times = [(seconds(old, command), seconds(new, command)) for _ in range(pairs)]
        a, b = (statistics.median(side) for side in zip(*times))
        ratio = statistics.median(new / old for old, new in times)
        print(f"| {name} | {a:.3f} | {b:.3f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
