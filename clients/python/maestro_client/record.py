# SPDX-License-Identifier: Apache-2.0
"""Records of runs on disk, <train.out>/record: finished steps and events, read at once or while they are written."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import socket
import time
from pathlib import Path
from typing import Any, Iterator, Optional, Union

from .errors import RecordError, RunFailed, RunLost
from .types import Row


def seconds_of(text: str) -> float:
    """Returns the seconds since 1970, for "2026-11-24T15:27:14.361Z"."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


@dataclasses.dataclass(frozen=True)
class RecordStep:
    """A finished training step. `raw` is its complete line: samples, tokens, makespan_ms, utilization, ..."""
    step: int
    time: str
    sections: dict[str, dict[str, float]]
    raw: dict[str, Any] = dataclasses.field(repr=False)

    def rows(self) -> list[Row]:
        return [Row("step", section, self.step, metrics, seconds_of(self.time))
                for section, metrics in self.sections.items()]


@dataclasses.dataclass(frozen=True)
class RecordEvent:
    """An event: "began", "checkpoint", "validation", "recovered", "finished", "failed", ..., with its line in `raw`."""
    event: str
    time: str
    raw: dict[str, Any] = dataclasses.field(repr=False)

    def rows(self) -> list[Row]:
        if self.event != "validation":
            return []
        return [Row("validation", self.raw["section"], self.raw["step"], self.raw["metrics"], seconds_of(self.time))]


RecordEntry = Union[RecordStep, RecordEvent]


def record_folder(folder: Union[str, os.PathLike[str]]) -> Path:
    """Returns the folder of the record, given it or the run's folder."""
    given = Path(folder)
    for candidate in (given / "record", given):
        if (candidate / "events.jsonl").is_file():
            return candidate
    raise RecordError(f"{given} has no record of a run: there is no {given / 'record' / 'events.jsonl'}")


class _Lines:
    """The complete lines of a file that grows, and that loses its last lines if a run repeats steps."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.replaced = False  # another run's record has taken its place
        self._inode: Optional[int] = None
        self._read = 0      # bytes up to the end of the last complete line
        self._number = 0    # the line's number
        self._last = b""    # the line's text, to notice that the file was cut and has grown again

    def poll(self) -> list[dict[str, Any]]:
        """Returns new lines; after the file has been cut, all lines again."""
        try:
            with open(self.path, "rb") as file:
                return self._new_lines(file)
        except FileNotFoundError:
            self.replaced = self._inode is not None
            return []
        except OSError as error:
            raise RecordError(f"cannot read {self.path}: {error.strerror}") from None

    def _new_lines(self, file: Any) -> list[dict[str, Any]]:
        inode = os.fstat(file.fileno()).st_ino
        if self._inode not in (None, inode):
            self.replaced = True
            return []
        self._inode = inode
        file.seek(self._read - len(self._last))
        if file.read(len(self._last)) != self._last:
            self._read, self._number, self._last = 0, 0, b""
            file.seek(0)
        fresh = file.read()
        whole = fresh[:fresh.rfind(b"\n") + 1]
        found = []
        for line in whole.splitlines(keepends=True):
            self._number += 1
            found.append(self._parsed(line))
            self._last = line
        self._read += len(whole)
        return found

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            value = json.loads(line)
            if isinstance(value, dict) and ("step" in value or "event" in value) and "time" in value:
                return value
            reason = "neither a step nor an event"
        except ValueError as error:
            reason = " ".join(str(error).split())
        raise RecordError(f"{self.path}:{self._number}: {reason}")


class RecordReader:
    """Reads steps and events in the order of their times; each step once, also if the run has repeated it."""

    def __init__(self, folder: Union[str, os.PathLike[str]]) -> None:
        self.folder = record_folder(folder)
        self._steps = _Lines(self.folder / "steps.jsonl")
        self._events = _Lines(self.folder / "events.jsonl")
        self._last_step = 0
        self.end: Optional[RecordEvent] = None    # "finished" or "failed", if nothing has begun since
        self.began: Optional[RecordEvent] = None  # the newest start

    @property
    def replaced(self) -> bool:
        """True once a new run has moved this record aside."""
        return self._steps.replaced or self._events.replaced

    def poll(self) -> list[RecordEntry]:
        """Returns the entries since the last call. Incomplete lines are left out."""
        events = [RecordEvent(line["event"], line["time"], line) for line in self._events.poll()]
        steps = [RecordStep(line["step"], line["time"], line["sections"], line)  # after the events: an end is last
                 for line in self._steps.poll()]
        entries: list[RecordEntry] = []
        for step in steps:
            if step.step > self._last_step:
                self._last_step = step.step
                entries.append(step)
        for event in events:
            if event.event == "began":
                self.began, self.end = event, None
            elif event.event in ("finished", "failed"):
                self.end = event
        entries += events
        return sorted(entries, key=lambda entry: (entry.time, isinstance(entry, RecordEvent)))

    def holder_is_dead(self) -> bool:
        """Returns whether the process that wrote the record ran on this host and has ended."""
        try:
            host, process = (self.folder.parent / ".lock").read_text().split("\n")[:2]
            return host == socket.gethostname() and not process_lives(int(process))
        except (OSError, ValueError):
            return False

    def finished(self) -> bool:
        """Returns whether the run has trained all its steps, and was not stopped before."""
        return self.end is not None and self.end.event == "finished" and self.end.raw.get("interrupted") is not True


def process_lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def read_record(folder: Union[str, os.PathLike[str]]) -> Iterator[RecordEntry]:
    """Yields the steps and events of a run's folder, in the order of their times. Leaves out an incomplete line."""
    yield from RecordReader(folder).poll()


def follow_record(folder: Union[str, os.PathLike[str]], *, poll_s: float = 0.5,
                  restart_s: float = 0.0) -> Iterator[RecordEntry]:
    """Yields the steps and events of a run as they are written, each step once, and ends with the run.

    A run that was stopped, failed or was killed may be started again: waits `restart_s` for its next start. Raises
    RunFailed or RunLost if the run had an error or was killed, and was not started again. A run whose process belongs
    to another host is followed until its record has an end.
    """
    reader = RecordReader(folder)
    ended_at: Optional[float] = None
    while True:
        dead = reader.holder_is_dead()  # asked before the lines are read, which are then complete
        yield from reader.poll()
        if reader.replaced:
            return
        if reader.end is None and not dead:
            ended_at = None
        elif reader.finished():
            return
        else:
            ended_at = ended_at or time.monotonic()
            if time.monotonic() - ended_at >= restart_s:
                return raise_unless_stopped(reader)
        time.sleep(poll_s)


def raise_unless_stopped(reader: RecordReader) -> None:
    """Raises RunFailed or RunLost unless the last run of the record was stopped in order."""
    if reader.end is None:
        raise RunLost(f"the run of {reader.folder.parent} ended without a last word: its process was killed")
    if reader.end.event == "failed":
        raise RunFailed(f"the run of {reader.folder.parent} failed: {reader.end.raw.get('error', '')}")
