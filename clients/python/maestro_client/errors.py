# SPDX-License-Identifier: Apache-2.0
"""The client's errors. Each text is a single line."""


class MaestroError(Exception):
    """Base of all errors of this package."""


class NoRun(MaestroError):
    """There is not a run at the address, or none of this user's runs on this host has a control service."""


class SeveralRuns(MaestroError):
    """Several runs of this user have a control service, and an address was not given."""


class Refused(MaestroError):
    """The run refuses the call: a wrong token, or a call that its state does not allow."""


class NoAnswer(MaestroError):
    """The run did not answer in time; its process may be stopped."""


class RunLost(MaestroError):
    """The run ended without a report: its process was killed, or cannot be reached any more."""


class RunFailed(MaestroError):
    """The run ended with an error; the text is the run's."""


class RecordError(MaestroError):
    """A record cannot be read; the text names file and line."""
