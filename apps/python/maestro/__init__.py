# SPDX-License-Identifier: Apache-2.0
"""Composes and runs compound training jobs from Python.

    import maestro

    app = maestro.App("job.toml", settings={"train.steps": 100})
    data = app.source("corpus")
    model = app.section("model", "decoder_lm")
    app.connect(data.port("tokens"), model.port("tokens"))
    app.connect(data.port("targets"), model.port("targets"))
    result = app.run()
    print(result.losses["model"], result.models)

Invalid input raises JobError, a ValueError with a single line, before the run starts.
"""

import json
import os
import sys
from pathlib import Path

from maestro import _core
from maestro._core import JobError, Port, RunResult, Section

__all__ = ["App", "Corpus", "JobError", "Port", "RunResult", "Section", "read_steps", "train"]

_OPTIONS = ("processes", "cpu_devices", "report", "trace", "tensorboard", "resume", "fresh", "new_data", "listen", "keys",
            "control", "pause_after", "http", "check_only", "quiet", "log_format", "command")


class Corpus:
    """The samples of a run: derive a class from it, and pass an object to App.source().

    Samples have the numbers 0 to samples(split) - 1, and the same content in every call and in every process. Any
    thread of the run may call these functions, one at a time.
    """

    #: Number of different tokens; tokens are in [0, vocabulary).
    vocabulary = 0

    def samples(self, split):
        """Returns the number of samples in a split, "train" or "validation"."""
        raise NotImplementedError

    def length(self, split, sample):
        """Returns the positions of a sample, at least 2. It is called often, so it should not read the sample."""
        raise NotImplementedError

    def read(self, split, sample):
        """Returns the sample's tokens; a token's target is the next token, and the last has none. Or returns (tokens,
        targets), with the target -1 for positions whose loss does not count. They are lists of int, or arrays with
        tolist()."""
        raise NotImplementedError

    def describe(self):
        """Returns a line for the run's header."""
        return type(self).__name__

    def fingerprint(self):
        """Returns {name: text} that determines the samples: a run resumes only with equal fingerprints."""
        return {"class": type(self).__name__}


class App:
    """A training app: sections, and the edges between their ports.

    `job`: path of a job file, or its tables as a dictionary. `settings`, such as {"train.steps": 100}, override the
    job's values. Options are as in `maestro train`: processes, cpu_devices, report, trace, tensorboard, resume (the
    folder of a run or a checkpoint), fresh, new_data, listen, keys, control, pause_after, http, quiet, log_format;
    check_only=True checks the job and starts nothing.

    With processes=N the run starts this program another N - 1 times with the same arguments, so the script must
    compose the app without user input. `command` has the interpreter's arguments if they differ from this process.
    """

    def __init__(self, job, *, settings=None, **options):
        _check_options(options)
        given = [f"{key}={_value_text(value)}" for key, value in (settings or {}).items()]
        options = {name: os.fspath(value) if isinstance(value, os.PathLike) else value
                   for name, value in options.items() if value is not None}
        options.setdefault("command", sys.orig_argv[1:])
        self._checks_only = options.get("check_only", False)
        if isinstance(job, dict):
            self._app = _core.App.of_text(_toml(job), "the job of maestro.App()", given, options)
        else:
            self._app = _core.App.of_file(os.fspath(job), given, options)

    def source(self, name, corpus=None):
        """Returns the source of samples: `corpus`, or the data that the job's table [data] describes."""
        return self._app.source(name, corpus)

    def section(self, name, type):
        """Returns a section of a type (`maestro sections` lists them), with the keys in the job's table [name]."""
        return self._app.section(name, type)

    def connect(self, output, input):
        """Connects an output port to an input port by an edge."""
        self._app.connect(output, input)

    def run(self):
        """Trains to the end of the job, or until a signal stops it in order, and returns a RunResult.

        In processes other than process 0 this function does not return: they end with the run. If a run with several
        processes fails, all of them end with status 1. If a run with one process fails, the result has that status.
        """
        if sys.prefix != sys.base_prefix:  # other processes start with the interpreter outside the virtual environment
            os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        sys.stdout.flush()
        result = self._app.run()
        of_process_0 = result._steps > 0
        if os.environ.get("MAESTRO_RANK", "0") != "0" or (result.status == 0 and not of_process_0 and not self._checks_only):
            sys.exit(result.status)
        return result


def train(job, *, settings=None, **options):
    """Runs a job that contains its sections and edges: app = "graph"."""
    app = App(job, settings=settings, **options)
    name = app._app.app_name()
    if name != "graph":
        raise JobError(f"app = {json.dumps(name)}: maestro.train() takes app = \"graph\", whose edges are in the job; compose "
                       "others with maestro.App, or call `maestro train`")
    app._app.compose_graph()
    return app.run()


def read_steps(record):
    """Returns the rows of a run's record (RunResult.record): a dictionary for each finished step, in order."""
    with open(Path(record) / "steps.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _check_options(options):
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(f"maestro.App() has no option {name!r}; there are: {', '.join(_OPTIONS)}")


def _value_text(value):
    """Returns a value as TOML. Strings are quoted, because --set accepts text that is not TOML as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, os.PathLike)):
        return json.dumps(os.fspath(value), ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key_text(key)} = {_value_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value_text(each) for each in value) + "]"
    raise TypeError(f"a job has texts, numbers, booleans, lists and tables, not {type(value).__name__}")


def _key_text(key):
    return key if key and all(c.isascii() and (c.isalnum() or c in "_-") for c in key) else json.dumps(key)


def _toml(tables):
    lines = [f"{_key_text(key)} = {_value_text(value)}" for key, value in tables.items() if not isinstance(value, dict)]
    for key, table in tables.items():
        if isinstance(table, dict):
            lines.append(f"[{_key_text(key)}]")
            lines += [f"{_key_text(name)} = {_value_text(value)}" for name, value in table.items()]
    return "\n".join(lines) + "\n"
