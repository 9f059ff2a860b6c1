# SPDX-License-Identifier: Apache-2.0
"""A SLURM cluster on this machine only: munged, slurmctld and a slurmd per node, in a temporary folder, at ports that
were free. It uses nothing in /etc and leaves nothing."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from maestro_program import PATIENCE_S, free_port, own_environment

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo", "scancel")
CPUS = 8  # CPUs of a node, whatever the machine has: tasks are neither bound nor counted here

CONFIGURATION = """\
ClusterName=maestro
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={credentials_s}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
MailProg=/bin/true
KillWait=2
"""


def end_with_the_tests():
    """Makes this daemon's process end with the tests, even if they are killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def why_not():
    """Returns why a cluster is impossible here; None if it is possible."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed (apt-get install --no-install-recommends slurm-wlm munge)"
    if os.geteuid() != 0:
        return "slurmd starts tasks as root only"
    return None


class SlurmCluster:
    def __init__(self, nodes, credentials_s=120):
        """`credentials_s`: lifetime of a credential; a requeued job waits as long."""
        self.credentials_s = credentials_s
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        self.temporary = tempfile.TemporaryDirectory(prefix="maestro-slurm-")
        self.folder = Path(self.temporary.name)
        self.variables = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self.daemons = []
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self):
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        (self.folder / "state").mkdir()
        host = socket.gethostname().split(".")[0]
        lines = [CONFIGURATION.format(host=host, folder=self.folder, controller_port=free_port(),
                                      credentials_s=self.credentials_s)]
        for node in self.nodes:
            (self.folder / f"spool-{node}").mkdir()
            lines.append(f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs={CPUS} "
                         f"Boards=1 SocketsPerBoard=1 CoresPerSocket={CPUS} ThreadsPerCore=1 State=UNKNOWN\n")
        lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")
        (self.folder / "slurm.conf").write_text("".join(lines))

        munge = self.folder / "munge.socket"
        self._daemon("munged", "--foreground", "--force", "--num-threads=2", f"--key-file={key}", f"--socket={munge}",
                     f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munge.seed",
                     f"--log-file={self.folder}/munge.log")
        self._wait_for(munge.exists)
        self._daemon("slurmctld", "-D")
        for node in self.nodes:
            self._daemon("slurmd", "-D", "-N", node)
        self._wait_for(self._all_idle)

    def _daemon(self, *words):
        with open(self.folder / f"{words[0]}{len(self.daemons)}.log", "wb") as log:
            self.daemons.append(subprocess.Popen(words, cwd=self.folder, env={**own_environment(), **self.variables},
                                                 stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                                 preexec_fn=end_with_the_tests))

    def _all_idle(self):
        found = self.call("sinfo", "--noheader", "--Node", "--format=%T")
        return found.stdout.split() == ["idle"] * len(self.nodes)

    def _wait_for(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            dead = [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]
            if dead or time.monotonic() > deadline:
                raise RuntimeError(f"the cluster does not come up; dead: {dead}\n{self.logs()}")
            time.sleep(0.05)  # no event reports it

    def call(self, *words):
        return subprocess.run(words, env={**own_environment(), **self.variables}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def logs(self):
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')[-2000:]}"
                         for path in sorted(self.folder.glob("*.log")))

    def _tasks(self):
        """Returns the processes that were started under this cluster, including slurmstepd, without its daemons."""
        mark = f"SLURM_CONF={self.variables['SLURM_CONF']}".encode()
        daemons = {daemon.pid for daemon in self.daemons}
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) in daemons:
                continue
            try:
                if mark in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    yield int(entry)
            except OSError:
                pass  # already ended

    def stop(self):
        """Ends everything that it started. May be called more than once."""
        if any(daemon.args[0] == "slurmctld" and daemon.poll() is None for daemon in self.daemons):
            self.call("scancel", "--user=root")
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in self._tasks():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.daemons = []
        self.temporary.cleanup()
