#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Errors of every file of measured cases, before and now, written into docs/accuracy.md.

bench/accuracy.py [--build build/release]             writes the tables
bench/accuracy.py --remember FOLDER [--binary FILE]   the columns "before": errors of that program
    on copies of the files without the keys that it did not know, kept in
    bench/accuracy_before.json
"""
import argparse
import json
import pathlib

from accuracy_groups import GROUPS, errors, mean_and_bias, validate

PAGE = pathlib.Path("docs/accuracy.md")
BEFORE = pathlib.Path("bench/accuracy_before.json")
BEGIN, END = "<!-- accuracy: written by bench/accuracy.py -->\n", "<!-- end of accuracy -->\n"


def number(value):
    return "–" if value is None else f"{value[0]:.1f} / {value[1]:+.1f}"


def times_table(blocks):
    before = json.loads(BEFORE.read_text()) if BEFORE.exists() else {}
    lines = ["| group | cases | before: mean / bias | now: mean / bias | largest | target |",
             "|---|--:|--:|--:|--:|--:|"]
    for group in GROUPS:
        found, skipped = errors(blocks[group.file], group)
        cases = f"{len(found)}" + (f", {skipped} skipped" if skipped else "")
        largest = f"{100 * max(found, key=abs):+.1f}" if found else "–"
        lines.append(f"| {group.name} | {cases} | {number(before.get(group.name))} | "
                     f"{number(mean_and_bias(found))} | {largest} | {group.target} |")
    return lines


def decisions_table(blocks):
    lines = ["| file | fit decisions | wrong | said fits, ran out | said does not, ran | tight: ran, ran out | "
             "groups of plans | rank correlation | regret, largest |", "|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    total = {}
    for name, block in blocks.items():
        fit, groups = block["fit"], block["groups"]
        decided = sum(fit.values())
        if not decided and not groups:
            continue
        for key, value in {**fit, "wrong": block["fit_wrong"], "decided": decided}.items():
            total[key] = total.get(key, 0) + value
        ranked = [g["spearman"] for g in groups if g["spearman"] is not None]
        regret = [g["regret"] for g in groups]
        lines.append(
            f"| `{name}` | {decided} | {block['fit_wrong']:g} | {fit['false_fits']} | {fit['false_refusals']} | "
            f"{fit['tight_ran']}, {fit['tight_broke']} | {len(groups)} | "
            + (f"{sum(ranked) / len(ranked):.2f} | " if ranked else "– | ")
            + (f"{100 * sum(regret) / len(regret):.1f} %, {100 * max(regret):.1f} % |" if regret else "– |"))
    lines.append(f"| **all** | {total['decided']} | **{total['wrong']:g}** | {total['false_fits']} | "
                 f"{total['false_refusals']} | {total['tight_ran']}, {total['tight_broke']} | | | |")
    return lines


def skipped_table(blocks):
    reasons = {}
    for name, block in blocks.items():
        for row in block["rows"]:
            if "skipped" in row:
                key = (name, row["skipped"].split(": ", 1)[-1])
                reasons[key] = reasons.get(key, 0) + 1
    if not reasons:
        return []
    return ["| file | cases that are not predicted yet | reason |", "|---|--:|---|"] + [
        f"| `{name}` | {count} | {reason} |" for (name, reason), count in reasons.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--binary")
    parser.add_argument("--remember", type=pathlib.Path)
    given = parser.parse_args()
    binary = given.binary or f"{given.build}/bin/rehearse"
    files = sorted({group.file for group in GROUPS})
    if given.remember:
        blocks = {name: validate(binary, name, given.remember) for name in files}
        found = {g.name: mean_and_bias(errors(blocks[g.file], g)[0]) for g in GROUPS}
        rows = [f" {json.dumps(name)}: {json.dumps(score and [round(x, 2) for x in score])}"
                for name, score in found.items()]
        BEFORE.write_text("{\n" + ",\n".join(rows) + "\n}\n")
        return
    blocks = {name: validate(binary, name) for name in files}
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    tables = [times_table(blocks), decisions_table(blocks), skipped_table(blocks)]
    PAGE.write_text(text[:start] + "\n\n".join("\n".join(t) for t in tables if t) + "\n" + text[end:])


if __name__ == "__main__":
    main()
