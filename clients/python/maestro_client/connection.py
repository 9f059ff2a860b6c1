# SPDX-License-Identifier: Apache-2.0
"""Addresses of runs, their discovery on this host, and calls over Thrift (docs/control-service.md)."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from pathlib import Path
from typing import Any, Optional

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TException
from thrift.transport import TSocket, TTransport

from ._control import Control, ttypes
from .errors import MaestroError, NoAnswer, NoRun, Refused, RunLost, SeveralRuns

CONNECT_S = 10.0


def runtime_folder() -> Path:
    """Returns $XDG_RUNTIME_DIR/maestro, or /tmp/maestro-UID if that is missing, as the runs do."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(runtime, "maestro") if runtime and os.path.isdir(runtime) else Path(f"/tmp/maestro-{os.geteuid()}")


def split_address(address: str) -> tuple[str, int]:
    """Returns (path, -1) of unix:/PATH and (host, port) of HOST:PORT."""
    def refuse(why: str) -> MaestroError:
        return MaestroError(f'"{address}" is not an address: {why}; give HOST:PORT or unix:/PATH')
    if address.startswith("unix:"):
        if address == "unix:":
            raise refuse("the path is missing")
        return address[len("unix:"):], -1
    host, colon, port = address.rpartition(":")
    if not colon or not host:
        raise refuse("the host is missing" if colon else "the port is missing")
    if not port.isdecimal() or int(port) > 65535:
        raise refuse("the port must be a number from 0 to 65535")
    return host, int(port)


def on_this_host_only(address: str) -> bool:
    host, port = split_address(address)
    return port < 0 or host == "localhost" or host.startswith("127.")


def _dial(address: str, timeout_s: float) -> socket.socket:
    host, port = split_address(address)
    try:
        if port >= 0:
            return socket.create_connection((host, port), timeout_s)
        made = socket.socket(socket.AF_UNIX)
        try:
            made.settimeout(timeout_s)
            made.connect(host)
        except BaseException:
            made.close()
            raise
        return made
    except FileNotFoundError:
        raise NoRun(f"cannot reach the run at {address}: there is no such socket") from None
    except ConnectionRefusedError:
        raise NoRun(f"cannot reach the run at {address}: no process listens there") from None
    except socket.gaierror as error:
        raise NoRun(f"cannot reach the run at {address}: the host name cannot be resolved ({error.strerror})") from None
    except OSError as error:
        raise NoRun(f"cannot reach the run at {address}: {error.strerror or error}") from None


def addresses() -> list[str]:
    """Returns the addresses of this user's runs on this host that listen now, sorted."""
    folder = runtime_folder()
    try:
        there = os.lstat(folder)
    except FileNotFoundError:
        return []
    if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.geteuid() or there.st_mode & 0o077:
        raise MaestroError(f"{folder} must be a folder that only this user may enter (mode 0700)")
    found = []
    for path in folder.iterdir():
        if path.suffix not in (".sock", ".token"):
            continue
        address = f"unix:{path}" if path.suffix == ".sock" else path.stem
        try:
            _dial(address, 1.0).close()
        except MaestroError:
            continue
        found.append(address)
    return sorted(found)


def the_one_run() -> str:
    """Returns the address of the only run of this user on this host."""
    found = addresses()
    if not found:
        raise NoRun("no run of this user on this host has a control service; name a run by its address")
    if len(found) > 1:
        raise SeveralRuns(f"{len(found)} runs of this user have a control service; choose one: {', '.join(found)}")
    return found[0]


def _first_line(path: Path) -> str:
    try:
        return path.read_text().split("\n", 1)[0]
    except OSError as error:
        raise MaestroError(f"cannot read {path}: {error.strerror}") from None


def _is_late(failure: BaseException) -> bool:
    """Returns whether an answer was late: Thrift's releases have an error type for it, or chain the socket's error."""
    if isinstance(failure, TTransport.TTransportException) and failure.type == TTransport.TTransportException.TIMED_OUT:
        return True
    return any(isinstance(cause, TimeoutError)
               for cause in (failure, getattr(failure, "inner", None), failure.__cause__, failure.__context__))


class Connection:
    """Calls a run. Connects at the first call, and again after a failed call. Not thread-safe."""

    def __init__(self, address: str, keys: Optional[os.PathLike[str] | str] = None,
                 token_file: Optional[os.PathLike[str] | str] = None) -> None:
        self.address = address
        self._keys = Path(keys) if keys is not None else None
        self._token_file = Path(token_file) if token_file is not None else None
        self._socket: Optional[TSocket.TSocket] = None
        self._client: Optional[Control.Client] = None
        self._token = ""

    def _left_token(self) -> str:
        """Returns the token that a service has left for its user if only this host reaches it (without TLS)."""
        if self.address.startswith("unix:") or not on_this_host_only(self.address):
            return ""
        left = runtime_folder() / f"{self.address}.token"
        return _first_line(left) if left.exists() else ""

    def _is_plain(self) -> bool:
        return self.address.startswith("unix:") or bool(self._left_token())

    def _has_tls(self) -> bool:
        return self._keys is not None and not self._is_plain()

    def _read_token(self) -> str:
        if self._token_file is not None:
            return _first_line(self._token_file)
        if self._keys is not None and self._has_tls():
            return _first_line(self._keys / "token")
        return self._left_token()

    def _secured(self, plain: socket.socket) -> socket.socket:
        assert self._keys is not None
        try:
            context = ssl.create_default_context(cafile=str(self._keys / "ca.pem"))
            context.load_cert_chain(str(self._keys / "node.pem"), str(self._keys / "node.key"))
            context.check_hostname = False  # every holder of the job's certificates belongs to the job
            return context.wrap_socket(plain)
        except OSError as error:  # includes ssl.SSLError
            plain.close()
            raise NoRun(f"no TLS with the run at {self.address} by the keys in {self._keys}: "
                        f"{error.strerror or error}") from None

    def open(self) -> None:
        if self._client is not None:
            return
        self._token = self._read_token()
        made = _dial(self.address, CONNECT_S)
        if self._has_tls():
            made = self._secured(made)
        self._socket = TSocket.TSocket()
        self._socket.setHandle(made)
        self._client = Control.Client(TBinaryProtocol(TTransport.TFramedTransport(self._socket), strictRead=True,
                                                      strictWrite=True))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self._client = None

    def call(self, name: str, *arguments: Any, patience_s: float = 5.0) -> Any:
        """Returns the answer, a Thrift struct."""
        self.open()
        assert self._socket is not None
        self._socket.setTimeout(int(patience_s * 1000))
        problem: MaestroError
        try:
            return getattr(self._client, name)(self._token, *arguments)
        except ttypes.Refused as refused:
            problem = Refused(f"the run at {self.address} refuses: {refused.reason}")
        except (TException, OSError, EOFError) as failure:
            self.close()
            problem = self._problem_of(failure, patience_s)
        except BaseException:
            self.close()  # an answer may still arrive
            raise
        raise problem  # without Thrift's immutable exceptions in its context, which break unittest and others

    def _problem_of(self, failure: BaseException, patience_s: float) -> MaestroError:
        if _is_late(failure):
            return NoAnswer(f"the run at {self.address} gave no answer within {patience_s:g} s")
        hint = "" if self._is_plain() or self._keys is not None else \
            "; a run that other hosts reach wants the folder of `maestro keys`"
        text = " ".join(str(failure).split()) or type(failure).__name__
        return RunLost(f"the run at {self.address} ended the connection ({text}){hint}")
