# SPDX-License-Identifier: Apache-2.0
"""The door to the native half: a command line in, what the command prints out."""
from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Mapping, Optional, Union

from . import _core

Path = Union[str, "PathLike[str]"]
Scenario = Union[Path, Mapping[str, Any]]
Overrides = Optional[Mapping[str, Any]]


class RehearseError(ValueError):
    """Input that rehearse refuses, in its own one line; `code` is the command's exit code."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Answer:
    """What a command prints: `code` is 0, or 1 where the answer is no; `notes` are its warnings, a line each."""

    code: int
    text: str
    notes: tuple[str, ...]

    def json(self) -> Any:
        return json.loads(self.text)


def ask(*arguments: object, input: str = "") -> Answer:  # noqa: A002: the command line's own word
    """Performs `rehearse ARGUMENTS...` in this process, for every command but run, view, calibrate and serve.

    `input` is what a `-` among the arguments names. Raises RehearseError where the command exits with 2
    or 3, and where it exits with 1 and prints nothing."""
    code, text, errors = _core.ask([str(word) for word in arguments], input)
    lines = [line[len("rehearse: "):] if line.startswith("rehearse: ") else line for line in errors.splitlines()]
    if code > 1 or (code == 1 and not text):
        raise RehearseError(lines[-1] if lines else f"exit {code}", code)
    return Answer(code, text, tuple(lines))


def named(scenario: Scenario) -> tuple[str, str]:
    """How the command line names a scenario, and its standard input: a dict goes by `-`."""
    if isinstance(scenario, Mapping):
        return "-", json.dumps(scenario)
    return fspath(scenario), ""


def flags(set: Overrides = None, **named_flags: Any) -> list[str]:  # noqa: A002
    """Keyword arguments as flags: None and False are left out, True is the flag alone, a list is several values."""
    words: list[str] = []
    for key, value in (set or {}).items():
        words += ["--set", f"{key}={json.dumps(value)}"]
    for name, value in named_flags.items():
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words += [str(one) for one in value] if isinstance(value, (list, tuple)) else [str(value)]
    return words
