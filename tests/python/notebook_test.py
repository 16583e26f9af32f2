# SPDX-License-Identifier: Apache-2.0
"""Runs the cells of docs/notebooks/search.ipynb, as they stand, and holds what they print against docs/search.md:
the first output of "One decision", where "..." stands for lines left out. usage: notebook_test.py ROOT"""
import ast
import contextlib
import io
import json
import sys
from pathlib import Path

root = Path(sys.argv[1])
names: dict = {}
printed, shown = io.StringIO(), []
for cell in json.loads((root / "docs/notebooks/search.ipynb").read_text(encoding="utf-8"))["cells"]:
    if cell["cell_type"] != "code":
        continue
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))

page = (root / "docs/search.md").read_text(encoding="utf-8")
command = "$ rehearse search scenarios/search/llama3-70b.json --gpus 256 --cluster dgx-h100 --top 5\n"
lines, at, skipping = printed.getvalue().splitlines(), 0, False
for wanted in page.split(command)[1].split("```")[0].splitlines():
    if wanted == "...":
        skipping = True
        continue
    while skipping and at < len(lines) and lines[at] != wanted:
        at += 1
    skipping = False
    if at == len(lines) or lines[at] != wanted:
        sys.exit(f"docs/search.md: {wanted}\nthe notebook:   {lines[at] if at < len(lines) else '(nothing)'}")
    at += 1

for value in shown:  # what a notebook draws, or prints
    pictures = [getattr(value, how)() for how in ("_repr_html_", "_repr_svg_") if hasattr(value, how)]
    if value is not None and not any(pictures):
        sys.exit(f"a cell ends with a {type(value).__name__}, which no notebook draws")
best, first = names["best"], names["found"].report["cases"][0]["best"][0]
if abs(best.step_time_s - first["step_time_s"]) > 1e-9:
    sys.exit(f"the saved plan takes {best.step_time_s} s, the search says {first['step_time_s']} s")
print(f"{len(shown)} cells end with a value, docs/search.md is what they print")
