# SPDX-License-Identifier: Apache-2.0
"""Watches and steers runs of maestro, and reads their records."""

from pathlib import Path

try:
    from ._control import ttypes  # noqa: F401
except ImportError as missing:
    if not (missing.name or "").startswith(__name__):  # a package that is not installed
        raise
    raise ImportError("maestro_client lacks the code of its Thrift interfaces; this command makes it: "
                      f"pip install {Path(__file__).resolve().parents[1]}") from None

from .errors import MaestroError, NoAnswer, NoRun, RecordError, Refused, RunFailed, RunLost, SeveralRuns
from .record import RecordEntry, RecordEvent, RecordReader, RecordStep, follow_record, read_record
from .run import Run
from .types import Checkpoint, Plan, ReplicaState, Row, Standing, State, Status, UnitKind, WaitKind

__all__ = ["Checkpoint", "MaestroError", "NoAnswer", "NoRun", "Plan", "RecordEntry", "RecordError", "RecordEvent",
           "RecordReader", "RecordStep", "Refused", "ReplicaState", "Row", "Run", "RunFailed", "RunLost", "SeveralRuns",
           "Standing", "State", "Status", "UnitKind", "WaitKind", "follow_record", "read_record"]
