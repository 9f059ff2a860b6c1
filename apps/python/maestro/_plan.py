# SPDX-License-Identifier: Apache-2.0
"""Layouts for the sections of an app, ranked by App.plan()."""

import contextlib
import random
import signal
import sys
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from maestro import App, _core


@dataclass(frozen=True)
class Layout:
    """A layout of all sections, with the step that a rehearsal predicts."""

    step_ms: float
    samples_per_s: float
    memory: dict[str, float]  #: bytes by device, "cpu:0", estimated
    sections: dict[str, str]  #: {"head": "2 x m4 cpu:0,1"}: replicas, micro-batch, degrees and devices
    settings: dict[str, Any]  #: chosen keys, as the `settings` of App(): {"head.replicas": 2}
    tried_step_ms: Optional[float] = None  #: median of the trial runs; None: not run
    _assignments: tuple[str, ...] = field(default=(), repr=False)

    def apply(self, app: "App") -> None:
        """Sets the keys in an app with the same sections. Also sets the table [plan], so that a run prints a line if its
        steps do not take the predicted time. Devices beyond one per core need App(cpu_devices=...)."""
        app._set_all(self._assignments)


@dataclass(frozen=True, repr=False)
class Ranking:
    """Layouts of an app, the best first. It is printed as the table of `maestro plan`."""

    layouts: tuple[Layout, ...]
    best: Layout  #: the fastest that was tried; without trials the first
    bound_ms: float  #: no layout that was compared has a shorter step
    alternatives: dict[str, float]  #: predicted step for changes of a key: {"head.micro_batch = 4": 12.5}
    text: str

    def __repr__(self) -> str:
        return self.text

    def __len__(self) -> int:
        return len(self.layouts)

    def __getitem__(self, at: int) -> Layout:
        return self.layouts[at]

    def __iter__(self) -> Iterator[Layout]:
        return iter(self.layouts)


def ranking_of(plan: "_core.AppPlan") -> Ranking:
    layouts = tuple(Layout(each.step_ms, each.samples_per_s, each.bytes, each.texts, dict(map(_setting, each.settings)),
                           each.tried_step_ms, (*each.settings, *each.prediction)) for each in plan.layouts)
    return Ranking(layouts, layouts[plan.chosen], plan.bound_ms, plan.alternatives, plan.text)


def _setting(text):
    """Returns the key and the value of "head.devices=[...]"."""
    key, _, value = text.partition("=")
    return key, tomllib.loads("value = " + value)["value"]


@contextlib.contextmanager
def kept_generators():
    """Restores the global random generators, from which modules draw, so that a later run draws as without a plan."""
    with contextlib.ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        if numpy := sys.modules.get("numpy"):
            stack.callback(numpy.random.set_state, numpy.random.get_state())
        if torch := sys.modules.get("torch"):
            stack.enter_context(torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []))
        yield


@contextlib.contextmanager
def deferred_interrupts():
    """Yields a function that handles a SIGINT that has come. So an interrupt ends a plan, and not a call of a corpus or a
    constructor, whose failure would count as a layout that is refused."""
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: None
        return

    def check():
        if came:
            before(came.pop(), None)

    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
