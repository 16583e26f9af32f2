#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/pictures/experts.svg: what a rank sends for a layer of experts, and twelve layers measured and predicted.

usage: docs/pictures/experts.py REHEARSE      in the project's root
The left half is the closed form of docs/experts.md; the right half is what `rehearse validate` says.
"""
import json
import subprocess
import sys
from math import comb

from shapes import INK, box, text, write

CASES = "tests/data/validation/experts/moe_layer.json"
OUT = "docs/pictures/experts.svg"
TOKENS, HIDDEN, VALUE, EXPERTS, CHOSEN = 4096, 7168, 2, 256, 8
GROUPS, KEPT = 8, 4
NVLINK, NIC, GREY = "#4c8c4a", "#d08a2e", "#9aa3ad"


def visited(parts, limited):
    """D: of `parts` equal blocks of experts, how many a token's eight are in."""
    if not limited:
        return parts * (1 - comb(EXPERTS - EXPERTS // parts, CHOSEN) / comb(EXPERTS, CHOSEN))
    size = EXPERTS // GROUPS
    missed = 0
    for kept in range(KEPT + 1):  # groups of the part that the token keeps
        whole = max(1, GROUPS // parts)
        ways = comb(whole, kept) * comb(GROUPS - whole, KEPT - kept) / comb(GROUPS, KEPT)
        eligible = kept * size if parts <= GROUPS else kept * (EXPERTS // parts)
        missed += ways * comb(KEPT * size - eligible, CHOSEN) / comb(KEPT * size, CHOSEN)
    return parts * (1 - missed)


def sent(dispatcher, ranks):
    """MB that leave a rank over NVLink and over its NIC, 8 ranks a node."""
    nodes, token = ranks // 8, HIDDEN * VALUE
    if dispatcher == "all_gather":
        passed = TOKENS * (ranks - 1) * token  # in rings: out of a node once for its 8 ranks
        leaving = passed / 8 if nodes > 1 else 0
        return (passed - leaving) / 1e6, leaving / 1e6
    if dispatcher == "all_to_all":
        buffer = TOKENS * CHOSEN * token
        return buffer * 7 / ranks / 1e6, buffer * (ranks - 8) / ranks / 1e6
    limited = dispatcher.endswith("4 of 8 groups")
    over_nodes = TOKENS * token * visited(nodes, limited) * (nodes - 1) / nodes if nodes > 1 else 0
    return TOKENS * token * visited(ranks, limited) * 7 / 8 / 1e6, over_nodes / 1e6


def bytes_panel(x, y):
    shapes = [text(x, y, "What leaves a rank in one dispatch", 14, weight="bold"),
              text(x, y + 17, "DeepSeek-V3: 4096 tokens a rank, 8 of 256 experts, bf16; MB over NVLink and NIC"),
              box(x, y + 27, 10, 10, NVLINK), text(x + 14, y + 36, "NVLink"),
              box(x + 70, y + 27, 10, 10, NIC), text(x + 84, y + 36, "NIC")]
    y += 52
    for ranks in (8, 16, 32, 64):
        shapes.append(text(x, y + 12, f"{ranks} ranks, {ranks // 8} node" + ("s" if ranks > 8 else ""), weight="bold"))
        y += 18
        for name in ("all_gather", "all_to_all", "deduplicated", "deduplicated, 4 of 8 groups"):
            nvlink, nic = sent(name, ranks)
            scale = 240 / 900  # pixels per MB; a longer bar is cut, with its figure
            width = min(nvlink * scale, 250), min(nic * scale, 250 - min(nvlink * scale, 250))
            shapes += [text(x + 172, y + 11, name, 11, "end"), box(x + 180, y + 2, width[0], 11, NVLINK),
                       box(x + 180 + width[0], y + 2, width[1], 11, NIC),
                       text(x + 186 + sum(width), y + 11,
                            f"{nvlink:.0f}" + (f" + {nic:.0f}" if nic > 0 else "")
                            + (" (cut)" if nvlink + nic > 250 / scale else ""), 11)]
            y += 16
        y += 8
    return shapes, y


def layers_panel(x, y, rehearse):
    out = subprocess.run([rehearse, "validate", CASES, "--json"], capture_output=True, check=True, text=True)
    shapes = [text(x, y, "Twelve measured layers on 8 H100", 14, weight="bold"),
              text(x, y + 17, "ms; bar: predicted, mark: measured (Megatron-LM moe_perf)"),
              box(x, y + 27, 10, 10, NVLINK), text(x + 14, y + 36, "forward"),
              box(x + 70, y + 27, 10, 10, GREY), text(x + 84, y + 36, "backward")]
    y += 52
    for row in json.loads(out.stdout)["files"][0]["rows"]:
        name = row["id"].removeprefix("mlm-moe-layer-").replace("_tp1ep8", "").replace("_", " ")
        shapes.append(text(x + 142, y + 16, name, 11, "end"))
        for key, fill in (("forward_s", NVLINK), ("backward_s", GREY)):
            predicted, measured = row["predicted"][key] * 1e3, row["measured"][key] * 1e3
            shapes += [box(x + 150, y, predicted * 22, 9, fill),
                       box(x + 150 + measured * 22 - 1, y - 1, 2, 11, INK),
                       text(x + 158 + max(predicted, measured) * 22, y + 9,
                            f"{100 * (predicted / measured - 1):+.1f} %", 10)]
            y += 11
        y += 6
    return shapes, y


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    left, low = bytes_panel(16, 24)
    right, lower = layers_panel(560, 24, sys.argv[1])
    write(OUT, 1040, max(low, lower) + 8, left + right)


main()
