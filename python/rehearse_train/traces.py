# SPDX-License-Identifier: Apache-2.0
"""Timelines: pictures and tables of them."""
from __future__ import annotations

import shutil
import tempfile
import weakref
from os import fspath
from pathlib import Path as File
from typing import Any, Optional, Union

from .asking import Path, RehearseError, ask, flags
from .pictures import Svg, drawn, pandas


class Trace:
    """A timeline: of `Prediction.trace()`, of `rehearse run`, or a profile that `rehearse view` opens."""

    def __init__(self, path: Path):
        self.path = File(fspath(path))
        if not self.path.exists():
            raise RehearseError(f"{self.path}: no such file", 2)

    @classmethod
    def made(cls, *command: object, input: str = "") -> Trace:  # noqa: A002
        """What a command writes with --trace, in a file that lives as long as the object."""
        folder = tempfile.mkdtemp(prefix="rehearse-")
        try:
            file = File(folder) / "step.trace"
            ask(*command, "--trace", file, input=input)
            trace = cls(file)
        except BaseException:
            shutil.rmtree(folder)
            raise
        weakref.finalize(trace, shutil.rmtree, folder)
        return trace

    def svg(self, *, range: Optional[str] = None, ranks: Optional[str] = None, width: int = 1200,  # noqa: A002
            dark: bool = False) -> Svg:
        """The picture of `render`: `range` as "0:50ms", `ranks` as "0-15", `width` in pixels (400 to 16,000)."""
        return drawn("render", self.path, *flags(range=range, ranks=ranks, width=width, dark=dark))

    def to_pandas(self) -> Any:
        """One row per op, as `export --to csv` writes them; times in ns."""
        with tempfile.TemporaryDirectory() as folder:
            table = File(folder) / "ops.csv"
            ask("export", self.path, "--to", "csv", table)
            return pandas().read_csv(table)

    def save(self, path: Path) -> None:
        """For `rehearse view`. A name that ends in .html: a page to look into and to send, one file."""
        if fspath(path).endswith(".html"):
            ask("render", self.path, "--html", fspath(path))
        else:
            shutil.copyfile(self.path, fspath(path))

    def _repr_html_(self) -> str:
        return str(self.svg())


def compare(a: Union[Trace, Path], b: Union[Trace, Path]) -> dict[str, Any]:
    """Two timelines of one schedule, predicted and measured or two runs, op against op: `compare --json`."""
    paths = [one.path if isinstance(one, Trace) else fspath(one) for one in (a, b)]
    answer: dict[str, Any] = ask("compare", *paths, "--json").json()
    return answer
