#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro keys` makes a set that OpenSSL accepts, and overwrites nothing. Only its user can read a run's files."""

import os
import shutil
import subprocess
import unittest

from maestro_program import SystemTest, distillation


class Keys(SystemTest):
    def openssl(self, *words):
        return subprocess.run(["openssl", *words], cwd=self.folder, text=True, capture_output=True, check=False)

    @unittest.skipIf(shutil.which("openssl") is None, "the openssl program is not installed (apt-get install openssl)")
    def test_a_set_serves_both_ends_of_a_connection(self):
        self.assertEqual(self.call("keys", "keys", "--days", 2, "--hosts", "alpha,10.0.0.7").status, 0)
        for purpose in ("sslserver", "sslclient"):
            done = self.openssl("verify", "-CAfile", "keys/ca.pem", "-purpose", purpose, "keys/node.pem")
            self.assertEqual(done.returncode, 0, done.stderr)
        text = self.openssl("x509", "-in", "keys/node.pem", "-noout", "-text").stdout
        self.assertIn("DNS:alpha", text)
        self.assertIn("IP Address:10.0.0.7", text)
        self.assertEqual(self.openssl("x509", "-in", "keys/node.pem", "-noout", "-checkend", "172000").returncode, 0)
        self.assertEqual(self.openssl("x509", "-in", "keys/node.pem", "-noout", "-checkend", "173000").returncode, 1)

    def test_a_set_is_the_owners_alone_and_is_not_overwritten(self):
        self.assertEqual(self.call("keys", "keys").status, 0)
        files = {path.name: (path.stat().st_mode & 0o777, path.read_bytes()) for path in (self.folder / "keys").iterdir()}
        self.assertEqual({name: mode for name, (mode, _) in files.items()},
                         {"node.pem": 0o600, "node.key": 0o600, "ca.pem": 0o600, "token": 0o600})
        again = self.call("keys", "keys")
        self.assertEqual(again.status, 2)
        self.assertEqual(again.error_lines(), ["error: keys is not empty; name a new folder, or remove this one first"])
        for name, (_, content) in files.items():
            self.assertEqual((self.folder / "keys" / name).read_bytes(), content)

    def test_a_file_in_the_place_of_the_folder_stays_as_it_is(self):
        file = self.folder / "keys"
        file.touch(mode=0o640)
        finished = self.call("keys", "keys")
        self.assertEqual(finished.error_lines(), ["error: keys is not a folder"], finished.describe())
        self.assertEqual(file.stat().st_mode & 0o777, 0o640)

    def test_what_cannot_be_made_is_told_in_one_line(self):
        for arguments, told in ((("keys", "--days", 0), "--days"), (("keys", "--days", -1), "--days"), ((), "folder"),
                                (("keys", "--hosts", "a b"), "neither a host name nor an address"),
                                (("/proc/keys",), "/proc/keys")):
            finished = self.call("keys", *arguments)
            self.assertEqual(finished.status, 2, finished.describe())
            self.assertEqual(len(finished.error_lines()), 1, finished.describe())
            self.assertIn(told, finished.error_lines()[0])


class ControlByKeys(SystemTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.environ.__setitem__, "XDG_RUNTIME_DIR", os.environ.get("XDG_RUNTIME_DIR", ""))
        os.environ["XDG_RUNTIME_DIR"] = str(self.folder)
        self.assertEqual(self.call("keys", "keys").status, 0)

    def port_of(self, *options):
        """Returns the control service's port of a running job."""
        run = self.start(distillation(steps=1_000_000), *options)
        self.assertTrue(run.wait_for_text("  control at "), run.text)
        return next(line for line in run.text["out"].splitlines() if line.startswith("  control at ")).rsplit(":", 1)[1]

    def test_is_tls_on_loopback_too(self):
        at = "127.0.0.1:" + self.port_of("--control", "0.0.0.0:0", "--keys", "keys")
        finished = self.call("status", "--at", at, "--keys", "keys")
        self.assertEqual((finished.status, finished.err), (0, ""))
        self.assertIn("job test: ", finished.out)
        finished = self.call("status", "--at", at)
        self.assertEqual(finished.status, 1, finished.describe())
        self.assertIn("does it want TLS (--keys)?", finished.err)

    def test_is_plain_where_the_service_has_left_its_token(self):
        at = "127.0.0.1:" + self.port_of("--control", "127.0.0.1:0")
        finished = self.call("status", "--at", at, "--keys", "keys")
        self.assertEqual((finished.status, finished.err), (0, ""))

    @unittest.skipIf(os.geteuid() != 0, "only root gives folders away")
    def test_a_runtime_folder_of_a_stranger_is_named_as_that(self):
        (self.folder / "maestro").mkdir(mode=0o700)
        os.chown(self.folder / "maestro", 65534, -1)
        finished = self.start(distillation(steps=3), "--processes", 2).wait()
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertIn("/maestro belongs to another user (uid 65534), who made it before this one", finished.err)

    def test_the_lock_of_a_run_is_its_users_alone(self):
        self.train(distillation(steps=1))
        self.assertEqual((self.folder / "out" / ".lock").stat().st_mode & 0o777, 0o600)


if __name__ == "__main__":
    unittest.main(verbosity=2)
