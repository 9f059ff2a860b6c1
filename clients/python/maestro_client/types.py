# SPDX-License-Identifier: Apache-2.0
"""A run's answers as dataclasses. control.thrift describes their fields; an unknown number is None."""

from __future__ import annotations

import dataclasses
import enum
import functools
import typing
from typing import Any, Optional


class State(enum.IntEnum):
    STARTING = 0
    RUNNING = 1
    PAUSING = 2
    PAUSED = 3
    STOPPING = 4
    FINISHED = 5


class UnitKind(enum.IntEnum):
    TRAIN = 0
    VALIDATE = 1
    CHECKPOINT = 2
    SHADOW = 3


class ReplicaState(enum.IntEnum):
    BUSY = 0
    IDLE = 1
    NO_ANSWER = 2


class WaitKind(enum.IntEnum):
    WORK = 1
    INPUT = 2
    GRADIENT = 3
    CREDIT = 4
    BUFFER = 5
    PHASE = 6
    REDUCTION = 7
    NORM = 8
    PARAMETERS = 9
    MOMENTS = 10
    VERSION = 11
    PROMPTS = 12
    TURN = 13


@dataclasses.dataclass(frozen=True)
class Unit:
    """A step, validation or checkpoint that is announced and not complete."""
    kind: UnitKind
    step: int


@dataclasses.dataclass(frozen=True)
class SectionFigures:
    """Metrics of a section's last finished step."""
    name: str
    replicas: int
    trained: bool
    step: int
    metrics: dict[str, float]
    busy: Optional[float]


@dataclasses.dataclass(frozen=True)
class Wait:
    """The event that an idle replica waits for, and its sender."""
    kind: WaitKind
    section: str
    replicas: list[int]
    sample: Optional[int]
    step: int
    processes: list[int]
    text: str


@dataclasses.dataclass(frozen=True)
class ReplicaFigures:
    section: str
    replica: int
    process: int
    host: str
    pid: int
    devices: list[str]
    state: ReplicaState
    doing: str
    step: int
    micro_batch: Optional[int]
    wait: Optional[Wait]
    busy: Optional[float]


@dataclasses.dataclass(frozen=True)
class DeviceFigures:
    process: int
    host: str
    device: str
    busy: float


@dataclasses.dataclass(frozen=True)
class Status:
    state: State
    job: str
    step: int
    steps: int
    epoch: float
    elapsed_s: float
    samples_per_s: float
    samples_trained: int
    tokens_trained: int
    loss: Optional[float]
    units: list[Unit]
    sections: list[SectionFigures]
    replicas: list[ReplicaFigures]
    checkpoint: str
    recoveries: list[str]
    devices: list[DeviceFigures]
    step_ms: Optional[float]
    step_time_over_bound: Optional[float]
    stops_after: Optional[int]
    stage: str


@dataclasses.dataclass(frozen=True)
class PlannedReplica:
    replica: int
    process: int
    host: str
    devices: list[str]


@dataclasses.dataclass(frozen=True)
class PlannedSection:
    name: str
    mode: str
    trained: bool
    tensor: int
    context: int
    stage: int
    stages: int
    micro_batch: int
    max_in_flight: int
    precision: str
    replicas: list[PlannedReplica]


@dataclasses.dataclass(frozen=True)
class PlannedEdge:
    from_section: str
    from_port: str
    to_section: str
    to_port: str
    gradient: bool
    columns: int
    dtype: str


@dataclasses.dataclass(frozen=True)
class Plan:
    job: str
    policy: str
    slots: int
    global_batch: int
    sections: list[PlannedSection]
    edges: list[PlannedEdge]
    step: int
    planned_ms: Optional[float]
    lower_bound_ms: Optional[float]
    effective_job: str


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    step: int
    path: str


@dataclasses.dataclass(frozen=True)
class Standing:
    """State and last complete step; while it stops, the last announced step, after which the run ends."""
    state: State
    step: int


@dataclasses.dataclass(frozen=True)
class Row:
    """Metrics of a section for a step or a validation."""
    kind: str  # "step" or "validation"
    section: str
    step: int
    metrics: dict[str, float]
    time: float = dataclasses.field(default=0.0, compare=False)  # seconds since 1970, in the record or at arrival


@functools.cache
def _fields(to: type) -> dict[str, Any]:
    return typing.get_type_hints(to)


def convert(to: Any, value: Any) -> Any:
    """Returns a Thrift value as `to`: one of the classes above, or a list, dict or optional of them."""
    origin, parts = typing.get_origin(to), typing.get_args(to)
    if origin is typing.Union:
        return None if value is None else convert(parts[0], value)
    if origin is list:
        return [convert(parts[0], part) for part in value or []]
    if origin is dict:
        return dict(value or {})
    if dataclasses.is_dataclass(to):
        return to(**{name: convert(hint, getattr(value, name)) for name, hint in _fields(to).items()})
    if isinstance(to, type) and issubclass(to, enum.IntEnum) and value not in to._value2member_map_:
        return value  # from a newer run
    return value if value is None else to(value)
