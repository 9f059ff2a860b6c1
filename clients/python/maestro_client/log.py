# SPDX-License-Identifier: Apache-2.0
"""maestro-log [RUN_OR_ADDRESS] [--tensorboard DIR] [--wandb PROJECT] [--mlflow EXPERIMENT]: logs a run's metrics."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import warnings
from typing import Any, Iterator, Optional, Sequence

from .errors import MaestroError
from .loggers import Logger, MlflowLogger, RunInfo, TensorBoardLogger, WandbLogger, settings_of
from .record import RecordReader, follow_record
from .run import Run
from .types import Row

LOGGERS: dict[str, Any] = {"tensorboard": TensorBoardLogger, "wandb": WandbLogger, "mlflow": MlflowLogger}


def _arguments(words: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="maestro-log", description="Logs the metrics of a run, from its first step on and until it ends.")
    parser.add_argument("run", nargs="?", metavar="RUN_OR_ADDRESS",
                        help="a run's folder, or unix:/PATH or HOST:PORT of a run under way; by default the only run of "
                             "this user on this host")
    parser.add_argument("--tensorboard", metavar="DIR", help="write an event file into this folder")
    parser.add_argument("--wandb", metavar="PROJECT", help="log to a project of Weights & Biases")
    parser.add_argument("--mlflow", metavar="EXPERIMENT", help="log to an experiment of MLflow")
    parser.add_argument("--after", type=int, default=0, metavar="STEP",
                        help="leave out the steps up to this, for a logger that is started again")
    parser.add_argument("--restart-wait", type=float, default=0.0, metavar="SECONDS",
                        help="wait so long for a run that was stopped or has failed to be started again (default: 0)")
    parser.add_argument("--keys", metavar="DIR", help="folder of `maestro keys`, for a run on other hosts")
    parser.add_argument("--token-file", metavar="FILE", help="file with the run's token")
    given = parser.parse_args(words)
    if not any(getattr(given, name) for name in LOGGERS):
        parser.error("name a logger: --tensorboard DIR, --wandb PROJECT or --mlflow EXPERIMENT")
    return given


def _info_of_record(reader: RecordReader) -> RunInfo:
    reader.poll()
    if reader.began is None:
        raise MaestroError(f"{reader.folder} has no start of a run yet")
    job_file = reader.began.raw.get("job_file", "")
    settings = settings_of(job_file)
    return RunInfo(str(settings.get("name", reader.folder.parent.name)), reader.began.raw.get("run_id", ""), settings)


def _rows_of_record(given: argparse.Namespace) -> Iterator[Row]:
    for entry in follow_record(given.run, restart_s=given.restart_wait):
        yield from (row for row in entry.rows() if row.step > given.after)


def _source(given: argparse.Namespace) -> tuple[RunInfo, Iterator[Row]]:
    if given.run is not None and os.path.isdir(given.run):
        return _info_of_record(RecordReader(given.run)), _rows_of_record(given)
    run = Run.attach(given.run, given.keys, given.token_file)
    record = run.record()
    plan = run.plan()
    info = RunInfo(plan.job, "", settings_of(plan.effective_job)) if record is None else _info_of_record(record)
    return info, run.metrics(follow=True, after=given.after, restart_s=given.restart_wait)


def _opened(given: argparse.Namespace, info: RunInfo) -> list[Logger]:
    loggers: list[Logger] = []
    try:
        for name, make in LOGGERS.items():
            if target := getattr(given, name):
                loggers.append(make(target, info))
    except BaseException:
        for logger in loggers:
            logger.close(True)
        raise
    return loggers


def log(rows: Iterator[Row], loggers: list[Logger]) -> None:
    """Passes each row to each logger, and closes the loggers at the end or after an error."""
    failed = True
    try:
        for row in rows:
            for logger in loggers:
                logger.row(row)
        failed = False
    except KeyboardInterrupt:
        failed = False  # the run continues
        raise
    finally:
        for logger in loggers:
            logger.close(failed)


def _interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def main(words: Optional[Sequence[str]] = None) -> int:
    given = _arguments(words)
    signal.signal(signal.SIGTERM, _interrupted)
    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
    try:
        info, rows = _source(given)
        log(rows, _opened(given, info))
    except MaestroError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
