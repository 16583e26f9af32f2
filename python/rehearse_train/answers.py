# SPDX-License-Identifier: Apache-2.0
"""What the commands answer, as Python values. Every number is read from what the command prints."""
from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from os import fspath
from pathlib import Path as File
from typing import Any, Mapping, Optional, Sequence, Union

from .asking import Overrides, Path, Scenario, ask, flags, named
from .pictures import Svg, as_frame
from .reports import ExplainReport, PlanReport, PredictionReport, SearchReport
from .traces import Trace


@dataclass(frozen=True)
class Prediction:
    """A predicted step. `report` is the document of `simulate --json` (docs/report.md); `notes` what the command
    warns of."""

    report: PredictionReport
    notes: tuple[str, ...] = ()
    _asked: tuple[object, ...] = field(default=(), repr=False)
    _input: str = field(default="", repr=False)

    @property
    def step_time_s(self) -> float:
        return self.report["step_time_s"]

    @property
    def tokens_per_s(self) -> float:
        return self.report["tokens_per_s"]

    @property
    def bubble_ratio(self) -> float:
        return self.report["bubble_ratio"]

    @property
    def fits(self) -> bool:
        return self.report["memory"]["fits"]

    def to_pandas(self, what: str = "memory") -> Any:
        """A table: `memory` (a row per class of ranks), `communication`, or `bubbles` (a row per cause)."""
        if what == "memory":
            return as_frame(self.report["memory"]["ranks"])
        if what == "communication":
            return as_frame(self.report["communication"])
        if what == "bubbles":
            return as_frame({"cause": cause, "idle_s": idle} for cause, idle in self.report["bubble_causes_s"].items())
        raise ValueError(f"to_pandas: memory, communication or bubbles, not {what!r}")

    def trace(self) -> Trace:
        """The predicted timeline, which is predicted again for it; its file lives as long as the object."""
        return Trace.made(*self._asked, input=self._input)

    def svg(self, **how: Any) -> Svg:
        """The timeline's picture; arguments of `Trace.svg`."""
        return self.trace().svg(**how)

    def __repr__(self) -> str:
        low, high = self.report["confidence"]["low_s"], self.report["confidence"]["high_s"]
        band = f" (9 in 10 between {low:.4g} and {high:.4g})" if low is not None and high is not None else ""
        return (f"Prediction({self.step_time_s:.4g} s{band}, {self.tokens_per_s:,.0f} tokens/s, "
                f"bubbles {self.bubble_ratio:.1%}, {'fits' if self.fits else 'does not fit'})")

    def _repr_html_(self) -> str:
        return f"<p><code>{escape(repr(self))}</code></p>{self.svg()}"


def simulate(scenario: Scenario, *, set: Overrides = None, cluster: Optional[Path] = None,  # noqa: A002
             gpus: Optional[int] = None) -> Prediction:
    """Predicts one training step of a scenario: a shipped one's name, a file, or a dict as a file would say it.
    `set` overrides keys: {"plan.micro_batch": 2}."""
    name, text = named(scenario)
    asked = ("simulate", name, "--json", *flags(set=set, cluster=cluster, gpus=gpus))
    answer = ask(*asked, input=text)
    return Prediction(answer.json(), answer.notes, asked, text)


class _Asked:
    """An answer that people can read too: `text` is what the command prints without --json, asked when it is
    wanted."""

    def __init__(self, asked: Sequence[object], input: str = ""):  # noqa: A002
        self._asked, self._input = tuple(asked), input

    @cached_property
    def text(self) -> str:
        return ask(*self._asked, input=self._input).text

    def __repr__(self) -> str:
        return self.text.rstrip()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"


class Plan(_Asked):
    """The answer of `plan`: does the model fit, laid out how, how long is a step. `report` is its document."""

    def __init__(self, asked: Sequence[object]):
        super().__init__(asked)
        answer = ask(*asked, "--json")
        self.report: PlanReport = answer.json()
        self.notes = answer.notes

    @property
    def fits(self) -> bool:
        return self.report["fits"]


def plan(config: Path, gpus: int, on: Path, *, sequence_length: Optional[int] = None,
         global_batch: Optional[int] = None, framework: Optional[str] = None,
         set: Overrides = None, save: Optional[Path] = None) -> Plan:  # noqa: A002
    """The fastest layout of a Hugging Face config.json (file, folder, hub cache, shipped name) that fits on so many
    GPUs of a cluster; where none fits, what would. `save`: a file that gets it as a scenario."""
    more = flags(set=set, sequence_length=sequence_length, global_batch=global_batch, save=save)
    for_framework = ("--for", framework) if framework is not None else ()
    return Plan(("plan", fspath(config), "--gpus", gpus, "--on", fspath(on), *more, *for_framework))


class Search(_Asked):
    """The answer of `search`: `report` is its document, `scenarios` the files of the plans where `save` was given."""

    def __init__(self, asked: Sequence[object], input: str, save: Optional[Path]):  # noqa: A002
        super().__init__(asked, input)
        with tempfile.TemporaryDirectory() as folder:
            picture = File(folder) / "search.svg"
            answer = ask(*asked, "--json", *flags(svg=picture, save=save), input=input)
            self._picture = Svg(picture.read_text(encoding="utf-8"))
        self.report: SearchReport = answer.json()
        self.notes = answer.notes
        self.scenarios = sorted(File(fspath(save)).glob("*.json")) if save is not None else []

    def to_pandas(self) -> Any:
        """One row per plan, best first; columns are the keys of the report."""
        return as_frame({"cluster": case["cluster"], "gpus": case["gpus"], **row}
                        for case in self.report["cases"] for row in case["best"])

    def svg(self) -> Svg:
        """Throughput and cost against GPUs."""
        return self._picture


def search(scenario: Scenario, *, gpus: Union[int, Sequence[int], None] = None,
           cluster: Union[str, Sequence[str], None] = None, top: Optional[int] = None,
           framework: Optional[str] = None, headroom: Optional[float] = None, all: bool = False,  # noqa: A002
           set: Overrides = None, save: Optional[Path] = None, **options: Any) -> Search:  # noqa: A002
    """The best plans of what a scenario leaves open, ranked by predicted step time among those that fit. `save`: a
    folder that gets each as a scenario. `options`: any other of `rehearse search`, as by="2027-03-01"."""
    name, text = named(scenario)
    return Search(("search", name, *flags(set=set, gpus=gpus, cluster=cluster, top=top, framework=framework,
                                          headroom=headroom, all=all, **options)), text, save)


@dataclass(frozen=True)
class Check:
    """Whether schedules are sound, which is what it is as a bool; `report` is the document of `check --json`."""

    sound: bool
    report: dict[str, Any]

    def __bool__(self) -> bool:
        return self.sound


def check(*files: Path, streams: Optional[str] = None, stages: Optional[int] = None,
          transfers: Optional[str] = None) -> Check:
    """Proves the schedule of scenarios, or somebody's own (CSV or JSON): deadlocks, lifetimes, transfers."""
    report = ask("check", *[fspath(file) for file in files], "--json",
                 *flags(streams=streams, stages=stages, transfers=transfers)).json()
    return Check(report["sound"], report)


@dataclass(frozen=True)
class Schedule:
    """A generated, proved and timed order. `report` is the document of `schedule --format json`."""

    report: dict[str, Any]
    chart: str
    _svg: Svg = field(repr=False)

    def svg(self) -> Svg:
        return self._svg

    def __repr__(self) -> str:
        return self.chart.rstrip()

    def _repr_html_(self) -> str:
        return str(self._svg)


def schedule(name: str, stages: int, microbatches: int, *, chunks: Optional[int] = None, times: Optional[str] = None,
             level: Optional[str] = None) -> Schedule:
    """A pipeline schedule by its name (docs/schedules.md); `times` as "F=1,I=1,W=1,comm=0"."""
    asked = ("schedule", *flags(schedule=name, stages=stages, microbatches=microbatches, chunks=chunks, times=times,
                                level=level))
    as_json, as_chart, as_svg = (ask(*asked, "--format", form) for form in ("json", "chart", "svg"))
    return Schedule(as_json.json(), as_chart.text, Svg(as_svg.text))


@dataclass(frozen=True)
class Explanation:
    """Why B takes longer than A: `report` is the document of `explain --json`; its causes add up to the difference."""

    report: ExplainReport
    text: str
    _svg: Svg = field(repr=False)

    @property
    def sentence(self) -> str:
        return self.report["sentence"]

    def to_pandas(self, what: str = "causes") -> Any:
        """A table: `causes`, `keys` or `memory`."""
        if what not in ("causes", "keys", "memory"):
            raise ValueError(f"to_pandas: causes, keys or memory, not {what!r}")
        rows: list[Mapping[str, Any]] = self.report[what]  # type: ignore[literal-required]
        return as_frame(rows)

    def svg(self) -> Svg:
        """The waterfall."""
        return self._svg

    def __repr__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.sentence)}</p>{self._svg}"


def explain(a: Union[Scenario, Prediction, Trace], b: Union[Scenario, Prediction, Trace], *,
            set: Overrides = None) -> Explanation:  # noqa: A002
    """Why b takes longer than a: scenarios (also dicts), predictions, traces or profiles, in any combination. `set`
    changes keys of b, where that is a scenario."""
    with tempfile.TemporaryDirectory() as folder:
        def path_of(side: Union[Scenario, Prediction, Trace], name: str) -> str:
            if isinstance(side, Trace):
                return fspath(side.path)
            if not isinstance(side, (Prediction, Mapping)):
                return fspath(side)
            file = File(folder) / name
            document = side.report if isinstance(side, Prediction) else side
            file.write_text(json.dumps(document), encoding="utf-8")
            return fspath(file)

        picture = File(folder) / "waterfall.svg"
        asked = ("explain", path_of(a, "a.json"), path_of(b, "b.json"), *flags(set=set))
        text = ask(*asked).text
        report = ask(*asked, "--json", "--svg", picture).json()
        return Explanation(report, text, Svg(picture.read_text(encoding="utf-8")))
