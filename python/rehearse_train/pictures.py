# SPDX-License-Identifier: Apache-2.0
"""Rehearse's own SVG, and tables for pandas."""
from __future__ import annotations

import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, Iterable, Mapping

from .asking import ask


class Svg(str):
    """An SVG document; a notebook shows it."""

    def _repr_svg_(self) -> str:
        return str(self)


def drawn(*arguments: object, input: str = "") -> Svg:  # noqa: A002
    """What a command draws with --svg."""
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "picture.svg"
        ask(*arguments, "--svg", picture, input=input)
        return Svg(picture.read_text(encoding="utf-8"))


def pandas() -> Any:
    """The module, or how to get it."""
    try:
        return import_module("pandas")
    except ImportError as missing:
        raise ImportError("to_pandas() needs pandas: pip install rehearse-train[pandas]") from missing


def as_frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Rows as a pandas.DataFrame; nested keys become columns `outer.inner`."""
    return pandas().json_normalize(list(rows))
