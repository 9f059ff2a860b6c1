# SPDX-License-Identifier: Apache-2.0
"""Serves a module as a section of runs (docs/served-sections.md), without a framework: tensors are little-endian bytes.

`maestro_client.serve_torch` serves PyTorch modules with this server.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import sys
import threading
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Protocol

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TException
from thrift.transport import TSocket, TTransport

from ._served import ServedModule, ttypes
from .connection import on_this_host_only, split_address
from .errors import MaestroError

VERSION = 1
DTYPES = {"fp32": ttypes.DataType.FP32, "bf16": ttypes.DataType.BF16, "i32": ttypes.DataType.I32}
NAMES = {wire: name for name, wire in DTYPES.items()}
SIZES = {"fp32": 4, "bf16": 2, "i32": 4}
LARGEST = 1 << 30  # bytes in a text or tensor, elements in a list


@dataclass(frozen=True)
class Port:
    """`columns` values in each row; rows are tokens, or patches of images."""

    name: str
    dtype: str = "fp32"  # "fp32", "bf16" or "i32"
    columns: int = 1
    differentiable: bool = False
    patches: bool = False


@dataclass(frozen=True)
class Parameter:
    """A parameter that a run may train; its values are fp32."""

    name: str
    shape: tuple[int, ...]
    decayed: bool = True


@dataclass(frozen=True)
class Values:
    """The (rows, columns) tensor of a port."""

    dtype: str
    rows: int
    columns: int
    data: bytes


@dataclass(frozen=True)
class Batch:
    """A micro-batch: the rows of its samples follow each other without padding."""

    number: int  # rises in a session
    keep: bool  # backward(number) will follow
    training: bool  # else validation
    samples: list[int]
    tokens: list[int]  # rows of each sample
    patches: list[int]  # rows of each sample
    loss_scale: float  # multiplies a loss before its gradient is taken
    inputs: dict[str, Values]


@dataclass(frozen=True)
class Result:
    """Outputs by port, and metrics {name: (sum, weight)}."""

    outputs: dict[str, Values] = field(default_factory=dict)
    metrics: dict[str, tuple[float, float]] = field(default_factory=dict)


class Session(Protocol):
    """A replica's use of a module. Calls come from a single thread."""

    def forward(self, batch: Batch) -> Result: ...
    def backward(self, number: int, gradients: dict[str, Values]) -> dict[str, Values]:
        """Returns the gradients of all differentiable inputs, and adds to the parameters' gradients."""
    def initial_values(self, parameter: str) -> bytes: ...
    def set_values(self, parameter: str, first: int, values: bytes) -> None:
        """`first`: index of the first element in the flattened parameter."""
    def gradients(self, parameter: str) -> bytes: ...
    def clear_gradients(self) -> None: ...


class Module(Protocol):
    inputs: list[Port]
    outputs: list[Port]
    parameters: list[Parameter]
    flops_per_row: float
    fingerprint: str  # of frozen values; if empty, resumed runs do not compare it
    description: str

    def session(self, trained: bool, backward: bool) -> Session: ...


def _of_wire(tensors: list[Any]) -> dict[str, Values]:
    return {each.port: Values(NAMES[each.dtype], each.rows, each.columns, each.data) for each in tensors}


def _on_wire(tensors: dict[str, Values]) -> list[Any]:
    return [ttypes.Tensor(name, DTYPES[each.dtype], each.rows, each.columns, each.data)
            for name, each in tensors.items()]


def _port_on_wire(port: Port) -> Any:
    return ttypes.Port(port.name, DTYPES[port.dtype], port.columns, port.differentiable, port.patches)


class _Handler:
    """Handles the calls of a connection."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._opened: Optional[Session] = None

    @property
    def _session(self) -> Session:
        if self._opened is None:
            raise MaestroError("the first call of a connection is open()")
        return self._opened

    def open(self, session: Any) -> Any:
        if session.version != VERSION:
            raise MaestroError(f"the run has version {session.version} of the protocol, this server has {VERSION}")
        module = self._module
        self._opened = module.session(session.trained, session.backward)
        return ttypes.Module([_port_on_wire(port) for port in module.inputs],
                             [_port_on_wire(port) for port in module.outputs],
                             [ttypes.Parameter(each.name, list(each.shape), each.decayed) for each in module.parameters],
                             float(module.flops_per_row), module.fingerprint, module.description)

    def forward(self, batch: Any) -> Any:
        given = Batch(batch.number, batch.keep, batch.training, batch.samples, batch.tokens, batch.patches,
                      batch.loss_scale, _of_wire(batch.inputs))
        result = self._session.forward(given)
        metrics = [ttypes.Metric(name, float(total), float(weight)) for name, (total, weight) in result.metrics.items()]
        return ttypes.PassResult(_on_wire(result.outputs), metrics)

    def backward(self, number: int, gradients: list[Any]) -> list[Any]:
        return _on_wire(self._session.backward(number, _of_wire(gradients)))

    def initial_values(self, parameter: str, first: int, count: int) -> bytes:
        return self._session.initial_values(parameter)[4 * first:4 * (first + count)]

    def set_values(self, parameter: str, first: int, values: bytes) -> None:
        self._session.set_values(parameter, first, values)

    def gradients(self, parameter: str, first: int, count: int) -> bytes:
        return self._session.gradients(parameter)[4 * first:4 * (first + count)]

    def clear_gradients(self) -> None:
        self._session.clear_gradients()


class _Guarded:
    """Answers any error of a call with its text, so that the run ends with the reason."""

    def __init__(self, handler: _Handler) -> None:
        self._handler = handler

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._handler, name)

        def guarded(*arguments: Any) -> Any:
            try:
                return call(*arguments)
            except Exception as error:
                if not isinstance(error, MaestroError):
                    traceback.print_exc(file=sys.stderr)
                text = " ".join(str(error).split()) or "no text"
                kind = "" if isinstance(error, MaestroError) else type(error).__name__ + ": "
                raise ttypes.Refused(kind + text) from None
        return guarded


def _listen(address: str) -> socket.socket:
    host, port = split_address(address)
    if port >= 0:
        return socket.create_server((host, port))
    listening = socket.socket(socket.AF_UNIX)
    try:
        with socket.socket(socket.AF_UNIX) as other, contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            other.connect(host)
            raise MaestroError(f"{host} is in use: another server listens there")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(host)  # left by a server that has ended
        before = os.umask(0o177)  # only this user may connect
        try:
            listening.bind(host)
        finally:
            os.umask(before)
        listening.listen()
        return listening
    except BaseException:
        listening.close()
        raise


def _context(keys: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(keys / "node.pem"), str(keys / "node.key"))
    context.load_verify_locations(str(keys / "ca.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    return context


class Server:
    """Listens at once. Each connection has a thread and a session."""

    def __init__(self, module: Module, address: str, keys: Optional[os.PathLike[str] | str] = None) -> None:
        if keys is None and not on_this_host_only(address):
            raise MaestroError(f"{address} is reached from other hosts; give the folder of `maestro keys`")
        self._module = module
        self._context = _context(Path(keys)) if keys is not None else None
        try:
            self._listening = _listen(address)
        except OSError as error:
            raise MaestroError(f"cannot listen at {address}: {error.strerror or error}") from None
        host, port = split_address(address)
        self._path = host if port < 0 else None
        self.address = address if port < 0 else f"{host}:{self._listening.getsockname()[1]}"

    def serve_forever(self) -> None:
        """Serves until close(), or until an exception such as KeyboardInterrupt."""
        with contextlib.suppress(OSError):  # a closed socket
            while True:
                accepted, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def close(self) -> None:
        """Stops accepting connections; open connections continue."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

    def _serve(self, accepted: socket.socket) -> None:
        try:
            if self._context is not None:
                accepted.settimeout(10.0)  # for the handshake
                accepted = self._context.wrap_socket(accepted, server_side=True)
            accepted.settimeout(None)
            if accepted.family != socket.AF_UNIX:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = TSocket.TSocket()
            connection.setHandle(accepted)
            protocol = TBinaryProtocol(TTransport.TFramedTransport(connection), strictRead=True, strictWrite=True,
                                       string_length_limit=LARGEST, container_length_limit=LARGEST)
            processor = ServedModule.Processor(_Guarded(_Handler(self._module)))
            while True:
                processor.process(protocol, protocol)
        except (TException, OSError, EOFError):
            pass  # the replica has ended, or the peer is not a replica
        finally:
            accepted.close()


def serve(module: Module, address: str, keys: Optional[os.PathLike[str] | str] = None) -> None:
    """Serves until the process is interrupted; prints the address first."""
    server = Server(module, address, keys)
    print(f"serving {module.description or 'a module'} at {server.address}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.close()
