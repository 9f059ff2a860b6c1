# SPDX-License-Identifier: Apache-2.0
"""Hosts for system tests: network namespaces with separate addresses, joined by a switch.

Every host has a 1 Gbit/s port (`tc tbf`). Latency comes from netem if the kernel has it, otherwise from delay_switch,
whose path is in MAESTRO_DELAY_SWITCH.
"""

import os
import shutil
import subprocess
from pathlib import Path

DELAY_SWITCH = os.environ.get("MAESTRO_DELAY_SWITCH", "")
RATE = ("tbf", "rate", "1gbit", "burst", "1mb", "latency", "50ms")


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def in_namespace(name, *words, check=True):
    return ip("netns", "exec", name, *words, check=check)


def why_not():
    """Returns why such hosts are impossible here; None if they are possible."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "ip and tc are not installed (apt-get install --no-install-recommends iproute2)"
    name = f"mtry{os.getpid()}"
    if ip("netns", "add", name, check=False).returncode != 0:
        return "network namespaces are not allowed here"
    try:
        veth = in_namespace(name, "ip", "link", "add", "left", "type", "veth", "peer", "name", "right", check=False)
        rate = in_namespace(name, "tc", "qdisc", "add", "dev", "lo", "root", *RATE, check=False)
        return None if veth.returncode == 0 and rate.returncode == 0 else "veth and tc tbf are not allowed here"
    finally:
        ip("netns", "del", name, check=False)


class Hosts:
    """`count` hosts with the addresses 10.91.0.1, ...; `latency_ms` per direction between any two, or None for a plain bridge."""

    def __init__(self, folder, count=3, latency_ms=None):
        self.folder = Path(folder)
        self.names = [f"mh{os.getpid()}-{at}" for at in range(count)]
        self.bridge = f"mh{os.getpid()}-switch"
        self.addresses = [f"10.91.0.{at + 1}" for at in range(count)]
        self.relay, self.by_relay = None, False
        self.made = []
        try:
            for name in (*self.names, self.bridge):
                ip("netns", "add", name)
                self.made.append(name)
                in_namespace(name, "ip", "link", "set", "lo", "up")
            self._join(latency_ms)
        except BaseException:
            self.remove()
            raise

    def _join(self, latency_ms):
        if latency_ms is None:
            return self._join_by_bridge(())
        if self._has_netem():
            return self._join_by_bridge(("netem", "delay", f"{latency_ms}ms", "limit", "100000"))
        return self._join_by_relay(latency_ms)

    def _has_netem(self):
        added = in_namespace(self.bridge, "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms", check=False)
        return added.returncode == 0

    def _join_by_bridge(self, at_switch):
        in_namespace(self.bridge, "ip", "link", "add", "bridge", "type", "bridge")
        in_namespace(self.bridge, "ip", "link", "set", "bridge", "up")
        for at, name in enumerate(self.names):
            in_namespace(self.bridge, "ip", "link", "add", f"port{at}", "type", "veth", "peer", "name", "net",
                         "netns", name)
            in_namespace(self.bridge, "ip", "link", "set", f"port{at}", "master", "bridge", "up")
            if at_switch:
                in_namespace(self.bridge, "tc", "qdisc", "add", "dev", f"port{at}", "root", *at_switch)
            self._bring_up(at, "net")

    def _join_by_relay(self, latency_ms):
        self.by_relay = True
        self.relay = subprocess.Popen([DELAY_SWITCH, str(latency_ms), *self.names], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        if self.relay.stdout.readline().strip() != "ready":
            raise RuntimeError("delay_switch did not start")
        for at in range(len(self.names)):
            self._bring_up(at, "tap0")

    def _bring_up(self, at, device):
        name = self.names[at]
        in_namespace(name, "ip", "address", "add", f"{self.addresses[at]}/24", "dev", device)
        in_namespace(name, "ip", "link", "set", device, "up")
        in_namespace(name, "tc", "qdisc", "add", "dev", device, "root", *RATE)

    def cut_off(self, at):
        """Drops all packets between this host and the others, silently."""
        in_namespace(self.bridge, "ip", "link", "set", f"port{at}", "nomaster")

    def join_again(self, at):
        """Undoes cut_off()."""
        in_namespace(self.bridge, "ip", "link", "set", f"port{at}", "master", "bridge")

    def set_link(self, at, state):
        """Sets the link "up" or "down"; a host that is down notices at once that it cannot reach the others."""
        in_namespace(self.names[at], "ip", "link", "set", "net", state)

    def pids(self, at):
        return ip("netns", "pids", self.names[at]).stdout.split()

    def on(self, at):
        """Returns the words that run a command on a host."""
        return ("ip", "netns", "exec", self.names[at])

    def remote_shell(self):
        """Returns a program that is called like ssh, HOST COMMAND, and keeps its standard error in errors-HOST."""
        file = self.folder / "remote_shell"
        cases = "\n".join(f"  {address}) name={name} ;;" for address, name in zip(self.addresses, self.names))
        file.write_text(f"""#!/bin/bash
case $1 in
{cases}
  *) echo "remote_shell: cannot resolve host $1" >&2; exit 255 ;;
esac
exec ip netns exec "$name" sh -c "$2" 2> >(tee -a {self.folder}/errors-"$1" >&2)
""")
        file.chmod(0o755)
        return file

    def errors_of(self, at):
        file = self.folder / f"errors-{self.addresses[at]}"
        return file.read_text() if file.exists() else ""

    def listening(self, at):
        """Returns the local addresses, without ports, of the TCP sockets that listen on a host."""
        found = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for row in in_namespace(self.names[at], "cat", table).stdout.splitlines()[1:]:
                fields = row.split()
                if fields[3] == "0A":
                    found.add(fields[1].rsplit(":", 1)[0])
        return found

    def remove(self):
        if self.relay is not None:
            self.relay.stdin.close()
            self.relay.stdout.close()
            self.relay.wait(timeout=30)
        for name in self.made:
            ip("netns", "del", name, check=False)
