# SPDX-License-Identifier: Apache-2.0
"""Writes the page of a race from the results that race.py kept: bench/race_page.py results.json docs/measurements/race.md

What the page says after the line "## By hand" is kept; all else is replaced.
"""
import json
import os
import sys

HAND = "## By hand"
TARGETS = {"124M, one thread": 1.0, "124M, two ranks of one thread": 1.0, "tiny, one thread": 1.3,
           "tiny, DDP over two processes": 1.2, "tiny, two-stage pipeline": 1.2}


def verdict(case, own, other):
    least, median = other["minimum"] / own["minimum"], other["median"] / own["median"]
    line = f"- {case}, {other['contestant']}: speed {least:.2f} by minimum, {median:.2f} by median"
    if case in TARGETS:
        worst, target = min(least, median), TARGETS[case]
        line += (f"; at least {target}: **reached**" if worst >= target else
                 f"; at least {target}: **missed** by {1 - worst / target:.0%}")
    memory = own["rss"] / other["rss"]
    return line + f". Peak memory {memory:.2f} of its: " + ("**reached**." if memory < 1 else "**missed**.")


def main():
    results = json.load(open(sys.argv[1]))
    lines = ["# The CPU executor beside PyTorch",
             "Written by `bench/race_page.py` from a run of `bench/race.sh`: GPT-2 blocks, sequence 128, forward + backward + "
             "AdamW, fp32, same weights, same tokens; losses must agree to 1e-4. Rounds are interleaved; compare within a "
             "case only. Peak memory is resident: of the process tree at one time for us, the sum of each process's own peak for "
             "PyTorch.", "",
             "| case | contestant | min s | median s | GF/s (share of the FMA peak) | peak MB | loss |", "|--|--|--|--|--|--|--|"]
    for case, result in results.items():
        for r in result["rows"]:
            lines.append(f"| {case} | {r['contestant']} | {r['minimum']:.3f} | {r['median']:.3f} | {r['rate']:.0f} "
                         f"({r['share']:.0%}) | {r['rss'] / 1e6:.0f} | {r['loss']:.5f} |")
    lines += ["", "Against the targets (peak memory: below PyTorch's):", ""]
    for case, result in results.items():
        lines += [verdict(case, result["rows"][0], other) for other in result["rows"][1:]]
    lines += ["", "Each case's machine and moment:", ""]
    for case, result in results.items():
        lines.append(f"- {case}: {result['machine']}; {result['rounds']} rounds of {result['steps']} steps.")
    page = sys.argv[2]
    before = open(page).read() if os.path.exists(page) else ""
    by_hand = before[before.index(HAND):] if HAND in before else HAND + "\n"
    with open(page + ".new", "w") as to:
        to.write("\n".join(lines) + "\n\n" + by_hand)
    os.replace(page + ".new", page)


if __name__ == "__main__":
    sys.exit(main())
