# SPDX-License-Identifier: Apache-2.0
"""A run under way: watched, steered, and its metrics followed to their end."""

from __future__ import annotations

import math
import os
import time
import tomllib
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any, Iterator, Optional, Union

from .connection import Connection, addresses, on_this_host_only, the_one_run
from .errors import MaestroError, NoAnswer, NoRun, Refused, RunLost
from .record import RecordReader, process_lives, raise_unless_stopped
from .types import Checkpoint, Plan, Row, Standing, State, Status, convert

PAGE = 1000  # most rows in an answer
ENDING_S = 10.0  # wait for a run on another host to return that was about to end
Place = Union[str, os.PathLike[str]]


class Run:
    """A run, attached by its control service. Not thread-safe: each thread attaches a separate Run.

    with Run.attach() as run:
        for row in run.metrics(follow=True):
            print(row.step, row.section, row.metrics["loss"])
    """

    def __init__(self, connection: Connection, keys: Optional[Place], token_file: Optional[Place]) -> None:
        self._connection = connection
        self._keys, self._token_file = keys, token_file
        self._record: Optional[RecordReader] = None
        self._looked = False
        self._pid = 0  # process 0's number, if it is on this host
        self._job = ""  # its name, after the connection was lost

    @classmethod
    def attach(cls, at: Optional[str] = None, keys: Optional[Place] = None,
               token_file: Optional[Place] = None) -> Run:
        """Attaches to the run at an address, "unix:/PATH" or "HOST:PORT", by default to the only run of this user on
        this host. `keys`: a folder of `maestro keys`, for a run on other hosts. Raises MaestroError."""
        connection = Connection(at if at is not None else the_one_run(), keys, token_file)
        connection.open()
        return cls(connection, keys, token_file)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    @property
    def address(self) -> str:
        return self._connection.address

    def status(self) -> Status:
        return convert(Status, self._connection.call("status"))

    def plan(self) -> Plan:
        return convert(Plan, self._connection.call("plan"))

    def _steer(self, name: str, patience_s: float) -> Any:
        # A call to a stopped process would take effect when it continues, long after its caller has given up.
        self._connection.call("status")
        return self._connection.call(name, patience_s=patience_s)

    def checkpoint(self) -> Checkpoint:
        """Writes a checkpoint and returns after it is committed."""
        return convert(Checkpoint, self._steer("checkpoint", 620))

    def pause(self) -> Standing:
        """Returns after the run has paused; PAUSING if that takes longer than 30 s."""
        return convert(Standing, self._steer("pause", 40))

    def resume(self) -> Standing:
        return convert(Standing, self._steer("resume", 40))

    def stop(self) -> Standing:
        """Makes the run finish its announced steps, write a checkpoint and end. Returns at once."""
        return convert(Standing, self._steer("stop", 40))

    def record(self) -> Optional[RecordReader]:
        """Returns a reader of the run's record if the run is on this host; None if it is not, or cannot be found."""
        if not self._looked:
            self._find_record()
        return RecordReader(self._record.folder) if self._record is not None else None

    def _find_record(self) -> None:
        if on_this_host_only(self.address):
            plan, status = self.plan(), self.status()
            out = tomllib.loads(plan.effective_job).get("train", {}).get("out", "")
            pids = [int(Path(self.address).stem)] if Path(self.address).stem.isdecimal() else []
            pids += [replica.pid for replica in sorted(status.replicas, key=lambda replica: replica.process)]
            for pid in pids:
                try:
                    reader = RecordReader(Path(os.readlink(f"/proc/{pid}/cwd"), out))
                    reader.poll()
                except (OSError, MaestroError):
                    continue
                # Process numbers of another namespace may belong to other processes here.
                if reader.began is not None and reader.began.raw.get("job_file") == plan.effective_job:
                    self._record, self._pid = reader, pid
                    break
        self._looked = True

    def metrics(self, follow: bool = False, *, after: int = 0, poll_s: float = 0.5, reconnect_s: float = 60.0,
                restart_s: float = 0.0) -> Iterator[Row]:
        """Yields the rows of all steps and validations after step `after`, each once.

        With `follow` it also yields later rows, until the run ends. It reconnects while the run recovers from a lost
        process, for `reconnect_s` to a run on another host, and for `restart_s` after the run was stopped, failed or
        was killed, since a scheduler may start it again (`--resume auto`). Rows that were missed meanwhile come from
        the run's record on this host; for another host a warning names the steps. Raises RunFailed or RunLost if the
        run has failed or vanished and was not started again.
        """
        seen = _Seen(after)
        if not self._looked:
            self._find_record()
        if not follow:
            yield from self._page_through(seen)
            return
        while True:
            last: Optional[Status] = None
            seen_at = time.monotonic()
            try:
                while True:
                    last = self.status()
                    seen_at = time.monotonic()
                    yield from self._page_through(seen)
                    if last.state == State.FINISHED:
                        break
                    time.sleep(_interval(last, poll_s))
            except (NoRun, NoAnswer, RunLost, Refused) as problem:
                if last is None and isinstance(problem, Refused):
                    raise  # a wrong token; after a status the run is ending or busy
                lost: Optional[MaestroError] = problem
            else:
                lost = None
                if last.step >= last.steps or not restart_s:
                    return
            if last is not None:
                self._job = last.job
            ending = lost is None or last is not None and _may_have_ended(last, time.monotonic() - seen_at)
            patience_s = max(restart_s, 0 if lost is None else min(reconnect_s, ENDING_S) if ending else reconnect_s)
            if (yield from self._ended(seen, None if ending else lost, patience_s, restart_s)):
                if lost is not None and ending and self._record is None:
                    warnings.warn(f"{lost}: it was about to end; rows of its last steps may be missing", stacklevel=2)
                return

    def _page_through(self, seen: _Seen) -> Iterator[Row]:
        """Yields rows from the first that is not seen; after a reconnection they may have other numbers."""
        at = seen.at
        while True:
            page = self._connection.call("metrics", *at, PAGE)
            if (page.first_step_row or 0) > max(at[0], 0) or (page.first_validation_row or 0) > max(at[1], 0):
                yield from self._rows_of_record(seen)  # the run's memory has only its last rows
            seen.at = at = (page.next_step_row, page.next_validation_row)
            rows = [Row(kind, row.section, row.step, dict(row.metrics), time.time())
                    for kind, rows in (("step", page.steps), ("validation", page.validations)) for row in rows]
            yield from filter(seen.is_new, rows)
            if max(len(page.steps), len(page.validations)) < PAGE:
                return

    def _rows_of_record(self, seen: _Seen) -> Iterator[Row]:
        if self._record is None:
            warnings.warn(f"the run at {self.address} keeps its last rows alone; earlier rows are in its record",
                          stacklevel=3)
            return
        for entry in RecordReader(self._record.folder).poll():
            yield from filter(seen.is_new, entry.rows())

    def _ended(self, seen: _Seen, lost: Optional[MaestroError], patience_s: float,
               restart_s: float) -> Iterator[Row]:
        """Waits for the run after its end or a lost connection. Returns whether it has finally ended."""
        seen.reconnected()
        self._connection.close()
        since = time.monotonic()
        while True:
            lives = self._record is not None and process_lives(self._pid)
            if self._record is not None:
                for entry in self._record.poll():
                    yield from filter(seen.is_new, entry.rows())
            if self._attach_again():
                return False
            waited = time.monotonic() - since
            if self._record is None and waited >= patience_s:
                break
            if self._record is not None:
                if self._record.finished():
                    return True
                if not lives and waited >= restart_s:
                    break
            time.sleep(0.1)
        if self._record is not None:
            raise_unless_stopped(self._record)
        elif lost is not None:
            raise RunLost(f"{lost}; whether it has ended, and its last rows, are in its record") from None
        return True

    def _attach_again(self) -> bool:
        """Connects to the run at its address, or to another with the same record. Returns False if there is none yet."""
        candidates = [self.address]
        if self._record is not None:
            candidates += [address for address in addresses() if address != self.address]
        for address in candidates:
            made = Connection(address, self._keys, self._token_file)
            try:
                other = Run(made, self._keys, self._token_file)
                status = other.status()
                if status.state == State.FINISHED or self._job and status.job != self._job:
                    raise NoRun(f"the run at {address} has ended, or is another")
                other._find_record()
            except MaestroError:
                made.close()
                continue
            same = self._record is None or other._record is not None and other._record.folder == self._record.folder
            if same:
                self._connection, self._pid = made, other._pid
                return True
            made.close()
        return False


def _remaining_s(status: Status) -> float:
    """Returns the time to the end of a run at its mean speed; infinity before its first step."""
    if status.state in (State.STOPPING, State.FINISHED):
        return 0.0
    return (status.steps - status.step) * status.elapsed_s / status.step if status.step > 0 else math.inf


def _interval(status: Status, poll_s: float) -> float:
    """Returns a shorter interval near the end of the run, so that its last state is seen."""
    return min(poll_s, max(0.02, _remaining_s(status) / 4))


def _may_have_ended(status: Status, since_s: float) -> bool:
    return _remaining_s(status) <= since_s + 1.0


class _Seen:
    """Passes each row of a run once, since the steps of a section increase."""

    def __init__(self, after: int) -> None:
        self.at = (0, 0)
        self._after = after
        self._last: dict[tuple[str, str], int] = {}
        self._resumed: set[tuple[str, str]] = set()  # their next rows show whether rows are missing

    def reconnected(self) -> None:
        """Rows may be missing after the rows seen so far."""
        self.at = (0, 0)
        self._resumed = {key for key in self._last if key[0] == "step"}

    def is_new(self, row: Row) -> bool:
        key = (row.kind, row.section)
        last = self._last.get(key, self._after)
        if row.step <= last:
            return False
        if key in self._resumed:
            self._resumed.discard(key)
            if row.step > last + 1:
                warnings.warn(f"steps {last + 1} to {row.step - 1} of section '{row.section}' were not seen; the "
                              "record of the run has them", stacklevel=4)
        self._last[key] = row.step
        return True
