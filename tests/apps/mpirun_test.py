#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs under a real Open MPI: the processes that mpirun starts form a job without options."""

import os
import shutil
import subprocess
import unittest

from maestro_program import SystemTest, distillation

MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe")
NOT_INSTALLED = None if shutil.which("mpirun") else (
    "mpirun is not installed (apt-get install --no-install-recommends openmpi-bin)")


@unittest.skipIf(NOT_INSTALLED, NOT_INSTALLED)
class OpenMpi(SystemTest):
    def test_three_processes_of_mpirun_train_as_three_processes(self):
        job = distillation()
        expected = self.train(job, "--processes", 3).curve()
        run = self.start(job, launcher=(*MPIRUN, "-n", "3"))
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.curve(), expected)
        self.assert_nothing_left(run)

    def test_one_process_of_mpirun_starts_the_others_itself(self):
        job = distillation()
        expected = self.train(job, "--processes", 2).curve()
        # mpirun binds each process to a core, which gives another plan, and sums in another order.
        self.assert_close(expected, self.train(job, "--processes", 2, launcher=(*MPIRUN, "-n", "1")).curve(), 1e-6)

    def test_a_job_that_cannot_begin_ends_mpirun(self):
        job = distillation()
        job["student"]["layers"] = 0
        finished = self.start(job, launcher=(*MPIRUN, "-n", "3")).wait()
        self.assertNotEqual(finished.status, 0)
        self.assertIn("layers", finished.error_lines()[0], finished.describe())


def no_hosts():
    """Returns why this machine cannot take the place of two hosts; None if it can."""
    if NOT_INSTALLED or os.geteuid() != 0 or shutil.which("ip") is None:
        return NOT_INSTALLED or "network namespaces need root and ip (apt-get install --no-install-recommends iproute2)"
    name = f"maestro-try-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        return "network namespaces are not allowed here"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return None


@unittest.skipIf(no_hosts(), no_hosts())
class OpenMpiOnTwoHosts(SystemTest):
    """Two network namespaces with different host names and a cable between them; mpirun runs in the first."""

    ADDRESSES = ("10.77.0.1", "10.77.0.2")

    def setUp(self):
        super().setUp()
        self.hosts = [f"maestro-{os.getpid()}-{letter}" for letter in "ab"]
        for host in self.hosts:
            self.ip("netns", "add", host)
            self.addCleanup(self.ip, "netns", "del", host)
        cable = ["link", "add", "cable", "netns", self.hosts[0], "type", "veth", "peer", "name", "cable"]
        self.ip(*cable, "netns", self.hosts[1])
        for host, address in zip(self.hosts, self.ADDRESSES, strict=True):
            self.ip("-n", host, "link", "set", "lo", "up")
            self.ip("-n", host, "link", "set", "cable", "up")
            self.ip("-n", host, "address", "add", f"{address}/24", "dev", "cable")
        # Takes the place of ssh: options, host, command.
        agent = self.folder / "remote_shell"
        agent.write_text("#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nshift\n"
                         f'exec ip netns exec {self.hosts[1]} unshare --uts bash -c "hostname beta; $*"\n')
        agent.chmod(0o755)
        on_alpha = ("ip", "netns", "exec", self.hosts[0], "unshare", "--uts", "bash", "-c", 'hostname alpha; exec "$@"', "-")
        self.launcher = (*on_alpha, *MPIRUN, "--mca", "plm_rsh_agent", str(agent),
                         "--host", ",".join(f"{address}:2" for address in self.ADDRESSES))

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def test_processes_of_both_hosts_join_by_themselves(self):
        job = distillation()
        expected = self.train(job, "--processes", 4).curve()
        self.assertEqual(self.call("keys", "keys", "--hosts", ",".join(self.ADDRESSES)).status, 0)
        run = self.start(job, "--keys", "keys", "--listen", "auto", launcher=(*self.launcher, "-n", "4"))
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assert_close(expected, finished.curve(), 1e-6)  # another plan: devices of two hosts
        self.assert_nothing_left(run)

    def test_ranks_that_are_dealt_out_over_the_hosts_are_refused(self):
        self.assertEqual(self.call("keys", "keys", "--hosts", ",".join(self.ADDRESSES)).status, 0)
        finished = self.start(distillation(), "--keys", "keys", "--listen", "auto",
                              launcher=(*self.launcher, "-n", "4", "--map-by", "node")).wait()
        self.assertNotEqual(finished.status, 0)
        self.assertIn("start with mpirun --map-by slot", " ".join(finished.error_lines()), finished.describe())


if __name__ == "__main__":
    unittest.main(verbosity=2)
