# SPDX-License-Identifier: Apache-2.0
"""A Python client of the control service, generated from control.thrift at build time (MAESTRO_CONTROL_PYTHON)."""

import os
import sys

sys.path.insert(0, os.environ.get("MAESTRO_CONTROL_PYTHON", "."))
try:
    import thrift  # noqa: F401
except ImportError:  # Debian's package is for Debian's interpreter; its Python part works with any
    sys.path.append("/usr/lib/python3/dist-packages")

import ssl  # noqa: E402

from thrift.protocol.TBinaryProtocol import TBinaryProtocol  # noqa: E402
from thrift.transport import TSocket, TSSLSocket, TTransport  # noqa: E402

from maestro_control import Control, ttypes  # noqa: E402,F401


def socket_at(address, keys=None):
    """Returns a socket for the address; with `keys`, a folder made by `maestro keys`, over TLS."""
    if address.startswith("unix:"):
        return TSocket.TSocket(unix_socket=address[len("unix:"):])
    host, port = address.rsplit(":", 1)
    if keys is None:
        return TSocket.TSocket(host, int(port))
    context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
    context.load_cert_chain(str(keys / "node.pem"), str(keys / "node.key"))
    context.check_hostname = False  # any holder of a certificate of the job is trusted
    return TSSLSocket.TSSLSocket(host, int(port), ssl_context=context)


class Client:
    """`with Client(address) as control: control.status()`; every call passes the token given here."""

    def __init__(self, address, token="", keys=None, timeout_s=60):
        socket = socket_at(address, keys)
        socket.setTimeout(timeout_s * 1000)
        self._transport = TTransport.TFramedTransport(socket)
        self._client = Control.Client(TBinaryProtocol(self._transport, strictRead=True, strictWrite=True))
        self._token = token
        self._transport.open()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._transport.close()

    def __getattr__(self, name):
        call = getattr(self._client, name)
        return lambda *arguments: call(self._token, *arguments)
