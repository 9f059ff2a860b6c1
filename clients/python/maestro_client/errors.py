# SPDX-License-Identifier: Apache-2.0
"""Errors of the client. The text of each is a single line."""


class MaestroError(Exception):
    """Base of all errors of this package."""


class NoRun(MaestroError):
    """No run is at the address, or no run of this user on this host has a control service."""


class SeveralRuns(MaestroError):
    """Several runs of this user have a control service, and no address chooses between them."""


class Refused(MaestroError):
    """The run refuses the call: a wrong token, or a call that its state does not allow."""


class NoAnswer(MaestroError):
    """The run did not answer in time; its process may be stopped."""


class RunLost(MaestroError):
    """The run ended without a last word: its process was killed, or cannot be reached any more."""


class RunFailed(MaestroError):
    """The run ended with an error, which is the text."""


class RecordError(MaestroError):
    """A record cannot be read; the text names file and line."""
