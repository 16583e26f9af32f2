# SPDX-License-Identifier: Apache-2.0
"""The documents of --json as types: docs/report.md, docs/search.md and docs/explain.md say what their keys mean.
Times in s, sizes in bytes, where a key's name does not say otherwise."""
from __future__ import annotations

from typing import Any, Optional, TypedDict


class _WithExperts(TypedDict, total=False):
    experts: int


class MemoryParts(_WithExperts):
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    buffers: int
    workspace: int
    communicators: int
    context: int


class _Kinds(TypedDict, total=False):  # of models whose layers differ
    kinds: list[dict[str, Any]]


class RankMemory(_Kinds):
    ranks: list[int]
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_device_bytes: int
    host_bytes: int
    nvme_bytes: int
    allocator_retries: int
    remapped_bytes: int
    at_op: Optional[str]
    at_s: Optional[float]
    at_building: bool
    peak_in_steps_bytes: int
    parts: MemoryParts


class _OurMemory(TypedDict, total=False):  # of the runtime that executes here
    arenas_bytes: int
    outside_arenas: dict[str, int]
    planned_resident_bytes: int


class Memory(_OurMemory):
    runtime: str
    fits: bool
    capacity_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_device_bytes: int
    host_bytes: int
    host_capacity_bytes: Optional[int]
    nvme_bytes: int
    nvme_capacity_bytes: Optional[int]
    near_capacity: bool
    verdict: str  # yes, tight, no
    bad_day: Optional[dict[str, Any]]
    instead: Optional[dict[str, Any]]
    ranks: list[RankMemory]
    bytes_per_parameter: dict[str, float]
    note: Optional[str]


class Traffic(TypedDict):
    group: str
    op: str
    ranks: int
    count: int
    bytes: int
    time_s: float
    waits_s: float
    contended_s: float
    exposed_s: float
    bus_bandwidth_gb_per_s: Optional[float]
    link: str
    links: list[str]
    busiest_link: Optional[str]


class NearSource(TypedDict):
    source: str
    cases: int
    share: float
    differs: list[str]


class _Calibrated(TypedDict, total=False):
    scatter: float


class Confidence(_Calibrated):
    measured: float
    interpolated: float
    formula: float
    datasheet: float
    tables: list[dict[str, Any]]
    error_band: float
    low_s: float
    high_s: float
    nearest: list[NearSource]
    unseen: list[str]
    defaulted: list[str]


class Cost(TypedDict):
    usd_per_step: Optional[float]
    usd_per_billion_tokens: Optional[float]
    energy_j: Optional[float]


class Simulation(TypedDict):
    ops: int
    performed_ops: int
    periods_left_out: int
    performed_whole: Optional[str]
    events: int
    wall_s: float
    instead_wall_s: float
    ranks_simulated: int
    ranks_folded: int


class _Planned(TypedDict, total=False):  # of a planned schedule
    order: dict[str, Any]


class PredictionReport(_Planned):
    """`simulate --json`."""

    schema: str
    name: str
    cluster: str
    gpus: int
    parameters: int
    microbatches: int
    step_time_s: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    model_tflops_per_gpu: float
    hardware_tflops_per_gpu: float
    mfu: Optional[float]
    hfu: Optional[float]
    flops_convention: str
    peak_tflops_per_gpu: Optional[float]
    peak_type: str
    ranks_per_core: float
    bubble_ratio: float
    bubble_overhead: float
    idle_ns: int
    bubble_causes_s: dict[str, float]
    bubble_causes_ns: dict[str, int]
    memory: Memory
    communication: list[Traffic]
    confidence: Confidence
    cost: Cost
    simulation: Simulation
    notes: list[str]
    schedule_hash: str
    plan: dict[str, Any]


class PlannedStep(TypedDict):
    step_time_s: float
    low_s: float
    high_s: float
    tokens_per_s: float
    mfu: Optional[float]
    bubble_ratio: float
    peak_bytes: int
    capacity_bytes: int
    verdict: str
    bad_day: Optional[str]
    plan: dict[str, Any]


class Way(PlannedStep):
    what: str  # "28 GPUs": with this it fits


class NearPlan(TypedDict):
    step_time_s: float
    difference_band: float
    plan: dict[str, Any]


class Limit(TypedDict):
    what: str
    factor: float
    step_time_s: float


class PlanReport(TypedDict):
    """`plan --json`. `best` is null where nothing fits; then `ways` say what would."""

    schema: str
    model: str
    parameters: int
    cluster: str
    gpu: str
    gpus: int
    assumed: list[str]
    considered: int
    fits: bool
    best: Optional[PlannedStep]
    near: list[NearPlan]
    ways: list[Way]
    limits: list[Limit]
    experts: Optional[dict[str, Any]]
    flags: Optional[str]


class EqualPlan(TypedDict):
    step_time_s: float
    plan: dict[str, Any]


class _Planned(TypedDict, total=False):
    above_bound: float


class FoundPlan(_Planned):
    step_time_s: float
    estimated_step_time_s: float
    tokens_per_s: float
    mfu: Optional[float]
    bubble_ratio: float
    bubble_causes_s: dict[str, float]
    peak_device_bytes: int
    capacity_bytes: int
    headroom_bytes: int
    near_capacity: bool
    verdict: str
    bad_day: Optional[str]
    usd_per_step: Optional[float]
    tokens_per_usd: Optional[float]
    energy_j: Optional[float]
    error_band: float
    low_s: float
    high_s: float
    launched_elsewhere: Optional[str]
    equal: list[EqualPlan]
    plan: dict[str, Any]


class Sensitivity(Limit):
    plan: dict[str, Any]


class SearchCase(TypedDict):
    cluster: str
    gpus: int
    plans: int
    plans_within_memory_bound: int
    plans_replayed: int
    plans_confirmed: int
    complete: bool
    equal_within: Optional[float]
    ordered_from: Optional[float]
    schedules_left_out: list[str]
    interrupted: bool
    best: list[FoundPlan]
    near: list[NearPlan]
    front: list[FoundPlan]
    situation: Optional[dict[str, Any]]
    sensitivities: list[Sensitivity]
    experts: Optional[dict[str, Any]]
    usd_per_gpu_hour: Optional[float]
    goodput: Optional[dict[str, Any]]
    time_to_train_s: Optional[float]
    cost_usd: Optional[float]
    time_to_train_late_s: Optional[float]
    cost_late_usd: Optional[float]
    done_by: Optional[str]
    energy: Optional[dict[str, float]]
    meets: Optional[bool]


class SearchReport(TypedDict):
    """`search --json`: a case per cluster and number of GPUs."""

    schema: str
    name: str
    model: str
    tokens: Optional[float]
    by: Optional[str]
    budget_usd: Optional[float]
    chosen: Optional[dict[str, Any]]
    site: Optional[dict[str, Any]]
    flags: Optional[str]
    cases: list[SearchCase]


class Side(TypedDict):
    what: str  # scenario, report, trace
    label: str  # predicted, measured
    title: str
    step_ns: int
    ranks: int
    tokens: Optional[int]
    confidence: Optional[dict[str, Any]]
    notes: list[str]


class CauseDifference(TypedDict):
    cause: str
    of: list[str]
    a_ns: int
    b_ns: int
    difference_ns: int


class KeyDifference(TypedDict):
    key: str
    a: Any
    b: Any


class MemoryDifference(TypedDict):
    part: str
    a_bytes: int
    b_bytes: int
    difference_bytes: int


class ExplainReport(TypedDict):
    """`explain --json`."""

    schema: str
    a: Side
    b: Side
    difference_ns: int
    causes: list[CauseDifference]
    keys: list[KeyDifference]
    memory: list[MemoryDifference]
    sentence: str
