#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every scalar of every GPU type in one table: docs/scalars.md, from scenarios/kernels/.

bench/scalars.py          writes the page
bench/scalars.py --check  exit 1 where the page is not what the files say
"""
import json
import sys

PAGE = "docs/scalars.md"
FILES = ["default", "ampere", "ada", "hopper", "blackwell", "cdna3"]
HEAD = """# Every scalar of every GPU

The compute model ([cost_models.md](cost_models.md)) rests on these numbers and on no others. `bench/scalars.py` writes this page from
`scenarios/kernels/*.json`; a GPU type has what its architecture's file says, else what `default` says. One set per GPU type: none per source, model or row.
**No source** marks a number that nobody measured: it was assumed, or set once. Time that rests on such a rate (of memory-bound kernels, fused attention, batched products) is of the level `datasheet`, and its share of a step widens the step's band.
"""


def value_text(value):
    if isinstance(value, dict) and {"forward", "backward"} <= set(value):
        heads = "".join(f", heads of {size} × {rate}" for size, rate in value.get("head_dim", [])
                        if rate != 1)
        return f"{value['forward']} / {value['backward']}{heads}"
    if isinstance(value, dict):
        return f"`{value['file']}` × {value['scale']}, within {value['near_distance']}"
    if isinstance(value, list):
        return "; ".join(f"{m}×{n}: {rate}" for m, n, rate in value)
    return str(value)


def scalars(holder):
    return {f"{section}.{key}": value
            for section, members in holder.items() if isinstance(members, dict)
            for key, value in members.items()}


def rows(name):
    with open(f"scenarios/kernels/{name}.json") as file:
        root = json.load(file)
    types = [(kind["name"], scalars(kind)) for kind in root.get("types", [])]
    values = scalars(root)
    for entry in root["sources"]:
        source = entry["source"] or "**no source**"
        for key in entry["of"]:
            cell = value_text(values[key])
            for kind, own in types:
                if key in own:
                    cell += f"; {kind}: {value_text(own[key])}"
            yield f"| `{key}` | {cell} | {source} | {entry['chosen_on']} |"
    for kind in root.get("types", []):
        for entry in kind.get("sources", []):
            for key in entry["of"]:
                yield (f"| {kind['name']}: `{key}` | {value_text(scalars(kind)[key])} | "
                       f"{entry['source'] or '**no source**'} | {entry['chosen_on']} |")


def page():
    text = HEAD
    for name in FILES:
        text += f"\n## {name}\n| scalar | value | source | chosen on |\n|---|---|---|---|\n"
        text += "\n".join(rows(name)) + "\n"
    return text


def main():
    if "--check" not in sys.argv:
        with open(PAGE, "w") as file:
            file.write(page())
        return 0
    with open(PAGE) as file:
        current = file.read() == page()
    if not current:
        print(f"{PAGE} is not what scenarios/kernels/ says: run bench/scalars.py")
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())
