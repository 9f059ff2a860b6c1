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
from typing import Callable, Iterable, Optional, Union

from maestro import _core
from maestro._core import JobError, Port, RunResult
from maestro._plan import Layout, Ranking, deferred_interrupts, kept_generators, ranking_of
from maestro._sections import Batch, Input, Output, settings_of

__all__ = ["App", "Batch", "Corpus", "Input", "JobError", "Layout", "Output", "Port", "Ranking", "RunFailed", "RunResult",
           "Section", "read_steps", "train"]

_Path = Union[str, os.PathLike]
_OPTIONS = ("processes", "cpu_devices", "report", "trace", "tensorboard", "resume", "fresh", "new_data", "listen", "keys",
            "control", "pause_after", "http", "check_only", "quiet", "log_format", "command")


class RunFailed(RuntimeError):
    """A run that has failed. `result` is its RunResult, with the message in `result.error`. `__cause__` is the exception
    that a corpus or a section in Python raised, with its traceback; None: the run failed for another reason."""

    def __init__(self, result):
        super().__init__(result.error or f"the run ended with status {result.status}")
        self.result = result


class Section:
    """A section of an app while it is composed. Setting an attribute sets the key of the section's table in the job:
    `model.lr = 3e-4` has the effect of `settings={"model.lr": 3e-4}`."""

    _app: "_core.App"
    _builder: "_core.SectionBuilder"
    _changed: Callable[[], None]
    __slots__ = ("_app", "_builder", "_changed")

    def __init__(self, app: "_core.App", builder: "_core.SectionBuilder", changed: Callable[[], None] = lambda: None) -> None:
        for name, value in zip(self.__slots__, (app, builder, changed)):
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        return self._builder.name

    def forward_only(self) -> "Section":
        """Freezes the section: it runs no backward passes and has no optimizer."""
        self._builder.forward_only()
        return self

    def replicas(self, count: int) -> "Section":
        """Sets the default for the key `replicas` of the section's table."""
        self._builder.replicas(count)
        return self

    def micro_batch(self, samples: int) -> "Section":
        """Sets the default for the key `micro_batch` of the section's table."""
        self._builder.micro_batch(samples)
        return self

    def port(self, name: str) -> Port:
        return self._builder.port(name)

    def __setattr__(self, key: str, value: object) -> None:
        self._app.set(f"{_key_text(self.name)}.{_key_text(key)}={_value_text(value)}")
        self._changed()

    def __repr__(self):
        return f"<maestro.Section {self.name!r}>"


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

    on_step(row) is called after each training step, with its row of the record, and on_validation(row) after each
    validation, in process 0. A slow function delays checkpoints; one that raises is not called again, with a warning.

    With processes=N the run starts this program another N - 1 times with the same arguments, so the script must
    compose the app without user input. `command` has the interpreter's arguments if they differ from this process.
    """

    def __init__(self, job: Union[str, os.PathLike, dict], *, settings: Optional[dict] = None,
                 on_step: Optional[Callable[[dict], None]] = None,
                 on_validation: Optional[Callable[[dict], None]] = None, processes: Optional[int] = None,
                 cpu_devices: Optional[int] = None, report: Optional[_Path] = None, trace: Optional[_Path] = None,
                 tensorboard: Optional[bool] = None, resume: Optional[_Path] = None, fresh: Optional[bool] = None,
                 new_data: Optional[bool] = None, listen: Optional[str] = None, keys: Optional[_Path] = None,
                 control: Optional[str] = None, pause_after: Optional[int] = None, http: Optional[str] = None,
                 check_only: bool = False, quiet: Optional[bool] = None, log_format: Optional[str] = None,
                 command: Optional[list[str]] = None) -> None:
        options = {name: value for name, value in locals().items() if name in _OPTIONS and value is not None}
        given = [f"{key}={_value_text(value)}" for key, value in (settings or {}).items()]
        options = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()}
        options.setdefault("command", sys.orig_argv[1:])
        self._checks_only = check_only
        self._quiet, self._cpu_devices = bool(quiet), cpu_devices or 0
        self._readers: list[Callable[[], None]] = []  # read keys again for constructors in Python
        self._constructors: dict[str, Callable] = {}  # by section
        self._job = "a dictionary" if isinstance(job, dict) else os.fspath(job)
        if isinstance(job, dict):
            self._app = _core.App.of_text(_toml(job), "the job of maestro.App()", given, options)
        else:
            self._app = _core.App.of_file(os.fspath(job), given, options)
        def event(row: dict) -> None:
            if on_validation is not None and row["event"] == "validation":
                on_validation(row)

        if on_step is not None or on_validation is not None:
            self._app.observe(on_step, event)

    def __repr__(self):
        return f"<maestro.App of {self._job}>"

    def source(self, name: str, corpus: Optional[Corpus] = None) -> Section:
        """Returns the source of samples: `corpus`, or the data that the job's table [data] describes."""
        return Section(self._app, self._app.source(name, corpus))

    def section(self, name: str, type: Union[str, Callable]) -> Section:
        """Returns a section with the keys of the job's table [name]. `type`: a name (`maestro sections` lists them), or a
        class of torch.nn.Module, of which each replica makes an object in the run's process.

        The class has ports(), a dictionary of Input and Output by name. forward() takes the inputs as arguments of their
        names, and a Batch as the argument `batch` if it has one; it returns a dictionary of outputs and of figures, which
        are tuples (sum, weight). The gradient of the figure "loss" trains the parameters with requires_grad. Keys of the
        table that the constructor names are its arguments. Inputs must not be changed in place. With the key `devices`
        the module and its arrays are on a CUDA device.
        """
        if isinstance(type, str):
            if "type" not in self._app.keys(name):
                self._app.check_type(type, name)
            return Section(self._app, self._app.section(name, type))
        settings: dict = {}

        def read() -> None:
            settings.clear()
            settings.update(self._app.settings(name, settings_of(type, self._app.keys(name))))

        read()
        if hasattr(type, "maestro_open"):  # replicas without PyTorch: apps/python/python_section.hpp has their protocol
            opened = type.maestro_open(settings)
        else:
            from maestro._torch import opener
            opened = opener(type, settings)
        self._readers.append(read)
        self._constructors[name] = type
        return Section(self._app, self._app.section_in_python(name, opened), read)

    def connect(self, output: Port, input: Port) -> None:
        """Connects an output port to an input port by an edge. Raises JobError for a port that does not exist, with the
        nearest name, and for ports that do not fit, so set the keys that change ports before. Columns that depend on data
        in files are checked by run()."""
        self._app.connect(output, input)

    def plan(self, *, vary: Union[str, Iterable[str]] = (), devices: Optional[int] = None, profile: Optional[_Path] = None,
             measure_ms: int = 60, top: int = 5, trials: int = 0, steps: int = 20) -> Ranking:
        """Ranks layouts of the sections on this machine: replicas, micro_batch, zero, devices, and for sections that can,
        tensor, context and pipeline. Measures passes of every section on replicas of its own, then rehearses runs; the app
        does not change. `ranking.best.apply(app)` sets the keys of the best layout.

        Chooses the keys that the job leaves out and those that `vary` names: "head.micro_batch", "micro_batch" of all
        sections, or "all". `devices`: so many GPUs; by default all, or without GPUs as many CPU devices as the app has.
        `profile`: a file that keeps the measured times for the next plan. Each layout of a section is measured for
        `measure_ms`. `trials` also runs so many of the best layouts for `steps` steps. Returns at least `top` layouts if
        there are as many. Raises JobError for what cannot be planned, such as a served section.
        """
        for name, value, least, most in (("devices", 1 if devices is None else devices, 1, 64), ("measure_ms", measure_ms, 0, 60000),
                                         ("top", top, 1, 1000), ("trials", trials, 0, 100), ("steps", steps, 6, 100000)):
            if not least <= value <= most:
                raise JobError(f"App.plan({name}={value!r}): expected {least} to {most}")
        varied = [vary] if isinstance(vary, str) else list(vary)
        self._check_constructors(varied)
        sys.stdout.flush()
        options = {"vary": varied, "devices": devices or 0, "cpu_devices": self._cpu_devices, "profile": os.fspath(profile or ""),
                   "measure_ms": measure_ms, "top": top, "trials": trials, "steps": steps}
        try:
            with kept_generators(), deferred_interrupts() as check:
                return ranking_of(self._app.plan({**options, "check": check}, self._quiet))
        except JobError as failure:
            raise failure from self._app.cause(str(failure))

    def _check_constructors(self, varied: list[str]) -> None:
        """Raises JobError for a key that a plan would choose and that a constructor in Python takes as its argument."""
        for name, make in self._constructors.items():
            for key, _ in settings_of(make, _core.planned_keys()):
                if key not in self._app.keys(name) or {key, f"{name}.{key}", "all"} & set(varied):
                    raise JobError(f"{name}.{key}: App.plan() chooses this key, and {getattr(make, '__name__', 'the class')} "
                                   "takes it as an argument; rename the argument")

    def _set_all(self, settings: Iterable[str]) -> None:
        for setting in settings:
            self._app.set(setting)
        for read in self._readers:
            read()

    def run(self, *, check: bool = True) -> RunResult:
        """Trains to the end of the job, or until a signal stops it in order, and returns a RunResult.

        In processes other than process 0 this function does not return: they end with the run. If a run with several
        processes fails, all of them end with status 1. If a run with one process fails, raises RunFailed,
        or with check=False returns the result, with that status.
        """
        if sys.prefix != sys.base_prefix:  # other processes start with the interpreter outside the virtual environment
            os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        sys.stdout.flush()
        result = self._app.run()
        of_process_0 = result._steps > 0
        if os.environ.get("MAESTRO_RANK", "0") != "0" or (result.status == 0 and not of_process_0 and not self._checks_only):
            sys.exit(result.status)
        if check and result.status != 0:
            raise RunFailed(result) from self._app.cause(result.error)
        return result


def train(job: Union[str, os.PathLike, dict], *, settings: Optional[dict] = None, **options) -> RunResult:
    """Runs a job that contains its sections and edges: app = "graph"."""
    app = App(job, settings=settings, **options)
    name = app._app.app_name()
    if name != "graph":
        raise JobError(f"app = {json.dumps(name)}: maestro.train() takes app = \"graph\", whose edges are in the job; compose "
                       "others with maestro.App, or call `maestro train`")
    app._app.compose_graph()
    return app.run()


def read_steps(record: _Path) -> list[dict]:
    """Returns the rows of a run's record (RunResult.record): a dictionary for each finished step, in order."""
    with open(Path(record) / "steps.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


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
