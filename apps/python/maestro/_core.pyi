# SPDX-License-Identifier: Apache-2.0
from typing import Any, Callable, Optional

class JobError(ValueError): ...

class Port:
    section: str
    name: str

class RunResult:
    status: int
    error: str
    interrupted: bool
    losses: dict[str, float]
    validation: dict[str, dict[str, float]]
    last_step: int
    _steps: int
    samples_per_s: float
    tokens_per_s: float
    wall_seconds: float
    max_rss_mb: float
    recoveries: list[str]
    left_out: list[str]
    weights: dict[str, str]
    models: dict[str, str]
    record: str
    resume: str
    checkpoint: str
    report: str
    trace: str

class PlannedLayout:
    step_ms: float
    samples_per_s: float
    tried_step_ms: Optional[float]
    bytes: dict[str, float]
    texts: dict[str, str]
    settings: list[str]
    prediction: list[str]

class AppPlan:
    layouts: list[PlannedLayout]
    chosen: int
    bound_ms: float
    alternatives: dict[str, float]
    text: str

def planned_keys() -> list[str]: ...

class SectionBuilder:
    name: str
    def forward_only(self) -> None: ...
    def replicas(self, count: int) -> None: ...
    def micro_batch(self, samples: int) -> None: ...
    def port(self, name: str) -> Port: ...

class App:
    @staticmethod
    def of_file(path: str, settings: list[str], options: dict[str, Any]) -> App: ...
    @staticmethod
    def of_text(text: str, name: str, settings: list[str], options: dict[str, Any]) -> App: ...
    def source(self, name: str, corpus: Any = ...) -> SectionBuilder: ...
    def section(self, name: str, type: str) -> SectionBuilder: ...
    def section_in_python(self, name: str, open: Callable[[str, int, bool], Any]) -> SectionBuilder: ...
    def set(self, setting: str) -> None: ...
    def check_type(self, type: str, section: str) -> None: ...
    def observe(self, step: Optional[Callable[[dict], None]], event: Optional[Callable[[dict], object]]) -> None: ...
    def keys(self, table: str) -> list[str]: ...
    def settings(self, table: str, keys: list[tuple[str, str]]) -> dict[str, Any]: ...
    def connect(self, output: Port, input: Port) -> None: ...
    def compose_graph(self) -> None: ...
    def app_name(self) -> str: ...
    def cause(self, error: str) -> Optional[BaseException]: ...
    def plan(self, options: dict[str, Any], quiet: bool) -> AppPlan: ...
    def run(self) -> RunResult: ...
