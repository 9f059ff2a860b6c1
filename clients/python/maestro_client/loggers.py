# SPDX-License-Identifier: Apache-2.0
"""Loggers write a run's rows to TensorBoard, Weights & Biases or MLflow by the installed package."""

from __future__ import annotations

import dataclasses
import importlib
import math
import tomllib
from typing import Any, Protocol

from .errors import MaestroError
from .types import Row


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """A run. `run_id` is empty if its record cannot be read; `settings` has "train.steps": 400, ..."""
    job: str
    run_id: str
    settings: dict[str, Any]


def settings_of(job_file: str) -> dict[str, Any]:
    """Returns the keys of a job file (TOML) as "TABLE.KEY", with their values."""
    found: dict[str, Any] = {}

    def collect(table: dict[str, Any], before: str) -> None:
        for key, value in table.items():
            if isinstance(value, dict):
                collect(value, f"{before}{key}.")
            else:
                found[before + key] = value

    collect(tomllib.loads(job_file), "")
    return found


class Logger(Protocol):
    def row(self, row: Row) -> None: ...

    def close(self, failed: bool) -> None:
        """Is called once, also after an error. `failed`: the run has failed."""


def _package(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MaestroError(f"the Python package '{package}' is not installed here: pip install {package}") from None


def _tag(row: Row) -> str:
    """Returns the tag that `maestro train --tensorboard` uses."""
    return row.section if row.kind == "step" else f"{row.kind}/{row.section}"


class TensorBoardLogger:
    """Writes an event file in `folder`, with SECTION/FIGURE and validation/SECTION/FIGURE."""

    def __init__(self, folder: str, info: RunInfo) -> None:
        writer = _package("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._event = importlib.import_module("tensorboard.compat.proto.event_pb2").Event
        self._summary = importlib.import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._writer = writer.EventFileWriter(folder)

    def row(self, row: Row) -> None:
        for name, value in row.metrics.items():
            summary = self._summary(value=[self._summary.Value(tag=f"{_tag(row)}/{name}", simple_value=value)])
            self._writer.add_event(self._event(wall_time=row.time, step=row.step, summary=summary))

    def close(self, failed: bool) -> None:
        self._writer.close()


class WandbLogger:
    """A run in a project. Each section has a separate step axis, since sections are in different steps. A run that
    continues after a restart keeps its id."""

    def __init__(self, project: str, info: RunInfo) -> None:
        wandb = _package("wandb", "wandb")
        self._run = wandb.init(project=project, name=info.job, id=info.run_id or None, resume="allow",
                               config=info.settings)
        self._defined: set[str] = set()

    def row(self, row: Row) -> None:
        tag = _tag(row)
        if tag not in self._defined:
            self._defined.add(tag)
            self._run.define_metric(f"{tag}/step")
            self._run.define_metric(f"{tag}/*", step_metric=f"{tag}/step")
        self._run.log({**{f"{tag}/{name}": value for name, value in row.metrics.items()}, f"{tag}/step": row.step})

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=1 if failed else 0)


class MlflowLogger:
    """A run in an experiment. A run that continues after a restart is found by the tag maestro.run_id."""

    def __init__(self, experiment: str, info: RunInfo) -> None:
        self._mlflow = mlflow = _package("mlflow", "mlflow")
        made = mlflow.set_experiment(experiment)
        earlier = mlflow.search_runs(experiment_ids=[made.experiment_id], output_format="list",
                                     filter_string=f"tags.`maestro.run_id` = '{info.run_id}'") if info.run_id else []
        if earlier:
            mlflow.start_run(run_id=earlier[0].info.run_id)
            return
        mlflow.start_run(run_name=info.job, tags={"maestro.run_id": info.run_id} if info.run_id else None)
        mlflow.log_params({name: str(value)[:500] for name, value in info.settings.items()})

    def row(self, row: Row) -> None:
        tag = _tag(row)
        # MLflow's databases cannot hold infinite values.
        self._mlflow.log_metrics({f"{tag}/{name}": value if math.isfinite(value) else math.nan
                                  for name, value in row.metrics.items()}, step=row.step)

    def close(self, failed: bool) -> None:
        self._mlflow.end_run(status="FAILED" if failed else "FINISHED")
