#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws those pictures of docs/course that are no timelines; course.sh makes all of them.

usage: docs/pictures/course.py REHEARSE      in the project's root
Every figure in them is what the command says (--json), or a closed form of the lesson.
"""
import json
import re
import subprocess
import sys

from shapes import INK, box, line, text, write

PARTS = {"parameters": "#4c72b0", "gradients": "#dd8452", "optimizer": "#8c8c8c", "activations": "#55a868"}
RANKS = ["#4c72b0", "#dd8452", "#55a868", "#b07aa1"]
PALE, RED = "#e8e8e4", "#c0392b"
REHEARSE = ""


def said(*arguments):
    return subprocess.run([REHEARSE, *arguments], capture_output=True, text=True, check=False).stdout


def simulated(*arguments):
    return json.loads(said("simulate", *arguments, "--json"))


def parts_of(prediction):
    """GB of the fullest rank by what they are for; work and buffers with the activations."""
    parts = max(prediction["memory"]["ranks"], key=lambda rank: rank["peak_allocated_bytes"])["parts"]
    kept = {name: parts[name] / 1e9 for name in PARTS}
    kept["activations"] += (parts["workspace"] + parts["buffers"]) / 1e9
    return kept


def bars(path, title, columns):
    """Stacked columns: [(label, {part: GB})]."""
    top, height, width = 66, 190, 96
    scale = height / max(sum(parts.values()) for _, parts in columns)
    shapes = [text(16, 22, title, 14, weight="bold")]
    x = 16
    for name, colour in PARTS.items():
        words = name if name != "activations" else "activations and work"
        shapes += [box(x, 34, 10, 10, colour), text(x + 14, 43, words)]
        x += 26 + 7 * len(words)
    for i, (label, parts) in enumerate(columns):
        x, y = 24 + i * (width + 24), top + height
        for name, colour in PARTS.items():
            tall = parts.get(name, 0) * scale
            y -= tall
            shapes.append(box(x, y, width, tall, colour))
            if tall > 14:
                shapes.append(text(x + width / 2, y + tall / 2 + 4, f"{parts[name]:.1f}", 11, "middle", fill="white"))
        shapes += [text(x + width / 2, y - 5, f"{sum(parts.values()):.1f} GB", 12, "middle", "bold"),
                   text(x + width / 2, top + height + 16, label, 12, "middle")]
    write(path, 48 + len(columns) * (width + 24), top + height + 28, shapes)


def memory():
    columns = [(name, parts_of(simulated(f"memory-{name}"))) for name in ("fp32", "bf16")]
    fp16 = simulated("memory-fp16")
    each = fp16["memory"]["bytes_per_parameter"]
    columns.append(("fp16, between", {name: each[name] * fp16["parameters"] / 1e9
                                      for name in ("parameters", "gradients", "optimizer")}))
    columns.append(("fp16, updating", parts_of(fp16)))
    bars("docs/pictures/course-memory.svg", "GPT-2 1.5B, one sample: GB at the peak", columns)


def zero():
    columns = [(f"stage {stage}", parts_of(simulated("dp-zero1", "--set", f"plan.zero_stage={stage}")))
               for stage in range(4)]
    bars("docs/pictures/course-zero.svg", "GPT-2 1.5B on 8 GPUs, 8 samples on each: GB of one GPU", columns)


def messages():
    path = "docs/course/messages-hang.json"
    with open(path, encoding="utf-8") as file:
        orders = json.load(file)["orders"]
    place = {op: (rank, i) for rank, order in enumerate(orders) for i, op in enumerate(order)}
    circle = re.findall(r"rank \d+: (\S+) (meets|stands behind) (\S+)", said("check", path))
    caught = {op for edge in circle for op in (edge[0], edge[2])}
    def middle(op):
        rank, i = place[op]
        return 120 + rank * 260, 62 + i * 30
    shapes = [text(16, 22, "Four ops that wait for one another", 14, weight="bold")]
    shapes += [text(120 + rank * 260, 44, f"rank {rank}", 12, "middle", "bold") for rank in range(len(orders))]
    for op in place:
        x, y = middle(op)
        shapes += [box(x - 60, y - 10, 120, 22, "#fbe3df" if op in caught else PALE, RED if op in caught else None),
                   text(x, y + 5, op, 12, "middle")]
    for left, how, right in circle:
        (x1, y1), (x2, y2) = middle(left), middle(right)
        if how == "meets":
            side = 60 if x2 > x1 else -60
            shapes += [line(x1 + side, y1, x2 - side, y2, RED, arrow=True),
                       text((x1 + x2) / 2, (y1 + y2) / 2 - 5, "meets", 11, "middle")]
        else:  # outside of its column
            out = -72 if x1 < 200 else 72
            shapes += [line(x1 + out * 5 / 6, y1, x1 + out, y1, RED), line(x1 + out, y1, x1 + out, y2, RED),
                       line(x1 + out, y2, x1 + out * 5 / 6, y2, RED, arrow=True),
                       text(x1 + out * 1.05, (y1 + y2) / 2 + 4, "behind", 11, "end" if out < 0 else "start")]
    write("docs/pictures/course-messages.svg", 510, 62 + 8 * 30, shapes)


def collectives():
    n = range(4)
    own = [[(r,) if c == r else () for c in n] for r in n]        # rank r has piece r
    root = [[(0,) if r == 0 else () for _ in n] for r in n]       # rank 0 has everything
    full = [[(r,) for _ in n] for r in n]                         # every rank has four pieces of its own
    total = tuple(n)
    cases = {
        "broadcast": (root, [[(0,) for _ in n] for _ in n]),
        "scatter": (root, [[(0,) if c == r else () for c in n] for r in n]),
        "gather": (own, [[(c,) if r == 0 else () for c in n] for r in n]),
        "reduce": (full, [[total if r == 0 else () for _ in n] for r in n]),
        "all-gather": (own, [[(c,) for c in n] for _ in n]),
        "reduce-scatter": (full, [[total if c == r else () for c in n] for r in n]),
        "all-reduce": (full, [[total for _ in n] for _ in n]),
        "all-to-all": (full, [[(c,) for c in n] for _ in n]),
    }
    def squares(x, y, state):
        shapes = []
        for r in n:
            for c in n:
                left, top = x + c * 17, y + r * 19
                cell = state[r][c]
                colour = PALE if not cell else RANKS[cell[0]] if len(cell) == 1 else INK
                shapes.append(box(left, top, 15, 15, colour))
                if len(cell) > 1:
                    shapes.append(text(left + 7.5, top + 12, "Σ", 11, "middle", fill="white"))
        return shapes
    shapes = [text(16, 22, "A row is a rank, a square a quarter of the data; a colour says whose it was, Σ is the sum",
                   13, weight="bold")]
    for i, (name, (before, after)) in enumerate(cases.items()):
        x, y = 16 + (i % 4) * 200, 50 + (i // 4) * 122
        shapes += [text(x, y, name, 12, weight="bold"), *squares(x, y + 10, before),
                   line(x + 72, y + 47, x + 88, y + 47, arrow=True), *squares(x + 94, y + 10, after)]
    write("docs/pictures/course-collectives.svg", 812, 288, shapes)


def matrix():
    shapes = [text(16, 22, "One MLP on four GPUs: a colour is a GPU", 14, weight="bold")]
    def whole(x, y, width, height, name):
        return [box(x, y, width, height, PALE, INK), text(x + width / 2, y + height + 16, name, 12, "middle")]
    shapes += whole(20, 60, 26, 90, "x")
    shapes.append(text(58, 110, "·", 18))
    for i, colour in enumerate(RANKS):
        shapes.append(box(74 + i * 34, 60, 32, 90, colour))
        shapes.append(text(90 + i * 34, 110, f"A{i}", 12, "middle", fill="white"))
    shapes.append(text(141, 166, "A, by columns", 12, "middle"))
    shapes.append(text(222, 110, "→ σ →", 14))
    for i, colour in enumerate(RANKS):
        shapes.append(box(276, 60 + i * 23, 90, 21, colour))
        shapes.append(text(321, 75 + i * 23, f"B{i}", 12, "middle", fill="white"))
    shapes.append(text(321, 166, "B, by rows", 12, "middle"))
    shapes.append(text(374, 110, "=", 16))
    for i, colour in enumerate(RANKS):
        shapes.append(box(394 + i * 42, 60, 22, 90, colour))
        if i < 3:
            shapes.append(text(424 + i * 42, 110, "+", 14, "middle"))
    shapes.append(text(394, 166, "one all-reduce adds them", 12))
    write("docs/pictures/course-matrix.svg", 580, 182, shapes)


def cube():
    groups = json.loads(said("groups", "tiny-3d-8", "--json"))["groups"]
    corner = {}
    for rank in range(8):
        tensor, data, stage = rank % 2, rank // 2 % 2, rank // 4
        corner[rank] = (80 + tensor * 170 + stage * 90, 262 - data * 120 - stage * 60)
    colours = {"tp": (RANKS[0], "tensor"), "dp": (RANKS[2], "data"), "pp": (RANKS[1], "pipeline")}
    shapes = [text(16, 22, "tiny-3d-8: every rank is in one group of each kind", 14, weight="bold")]
    for i, (colour, words) in enumerate(colours.values()):
        shapes += [line(16 + i * 100, 42, 40 + i * 100, 42, colour, 4), text(46 + i * 100, 46, words)]
    for group in groups:
        if group["group"] in colours:
            (x1, y1), (x2, y2) = (corner[rank] for rank in group["ranks"])
            shapes.append(line(x1, y1, x2, y2, colours[group["group"]][0], 4))
    for rank, (x, y) in corner.items():
        shapes += [f'<circle cx="{x}" cy="{y}" r="14" fill="white" stroke="{INK}"/>',
                   text(x, y + 5, rank, 13, "middle", "bold")]
    write("docs/pictures/course-cube.svg", 420, 288, shapes)


def main():
    global REHEARSE
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    REHEARSE = sys.argv[1]
    for draw in (memory, messages, collectives, zero, matrix, cube):
        draw()


main()
