#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/pictures/context-ways.svg and zero-further.svg: what `simulate` says of the scenarios context-* and zero-*.

usage: docs/pictures/lesson.py REHEARSE      in the project's root
"""
import json
import subprocess
import sys

from shapes import box, text, write

COMPUTE, EXPOSED, HIDDEN = "#4c8c4a", "#d08a2e", "#c9d1d9"
GPU, HOST, DRIVES = "#3f6fb5", "#8a63a8", "#9aa3ad"
WAYS = {"context-ring": "ring", "context-gather": "all_gather", "context-heads": "all_to_all",
        "context-both": "a2a+p2p, 8 in a node"}
FURTHER = {"zero-whole": "over all 32", "zero-neighbours": "shards over a node",
           "zero-second-copy": "second copy in a node", "zero-eight-bits": "gathers in 8 bit",
           "zero-to-host": "states in host memory", "zero-to-drives": "states on drives"}


def answer(rehearse, scenario):
    return json.loads(subprocess.run([rehearse, "simulate", scenario, "--json"], capture_output=True, check=True,
                                     text=True).stdout)


def keys(x, y, words):
    shapes = []
    for colour, word in words:
        shapes += [box(x, y, 10, 10, colour), text(x + 14, y + 9, word)]
        x += 34 + 7 * len(word)
    return shapes


def ways(rehearse):
    shapes = [text(20, 24, "Llama 3 8B over one sequence of 64k tokens, which 32 H100s on four nodes share", 14,
                   weight="bold"),
              *keys(20, 36, [(COMPUTE, "computing"), (EXPOSED, "waiting for keys or heads"), (HIDDEN, "hidden")])]
    y, scale = 62, None
    for name, word in WAYS.items():
        found = answer(rehearse, name)
        rows = [row for row in found["communication"] if row["group"].startswith("cp")]
        exposed = sum(row["exposed_s"] for row in rows)
        hidden = sum(row["time_s"] - row["exposed_s"] for row in rows)
        scale = scale or 430 / (found["step_time_s"] + hidden)
        width = (found["step_time_s"] - exposed) * scale
        shapes += [text(170, y + 12, word, 11, "end"), box(180, y, width, 15, COMPUTE),
                   box(180 + width, y, exposed * scale, 15, EXPOSED),
                   box(180 + width + exposed * scale, y + 5, hidden * scale, 5, HIDDEN),
                   text(186 + width + (exposed + hidden) * scale, y + 12,
                        f"{found['step_time_s']:.2f} s; " + ", ".join(
                            f"{row['bytes'] / 1e9:.0f} GB {row['op']}" for row in rows), 11)]
        y += 24
    write("docs/pictures/context-ways.svg", 900, y + 8, shapes)


def further(rehearse):
    shapes = [text(20, 24, "Llama 2 13B under ZeRO-3 on 32 A100s of four nodes: what a GPU holds, and what a step takes",
                   14, weight="bold"),
              *keys(20, 36, [(GPU, "GPU"), (HOST, "host memory"), (DRIVES, "drives")])]
    y, scale = 62, 300 / 45e9
    for name, word in FURTHER.items():
        found = answer(rehearse, name)
        memory = found["memory"]
        x = 180
        shapes.append(text(170, y + 12, word, 11, "end"))
        for colour, held in ((GPU, memory["peak_device_bytes"]), (HOST, memory["host_bytes"]),
                             (DRIVES, memory["nvme_bytes"])):
            if held == 0:
                continue
            shapes.append(box(x, y, held * scale, 15, colour))
            x += held * scale
        shapes.append(text(x + 6, y + 12, " + ".join(
            f"{held / 1e9:.1f}" for held in (memory["peak_device_bytes"], memory["host_bytes"], memory["nvme_bytes"])
            if held) + f" GB; {found['step_time_s']:.2f} s", 11))
        y += 24
    write("docs/pictures/zero-further.svg", 820, y + 8, shapes)


ways(sys.argv[1])
further(sys.argv[1])
