# SPDX-License-Identifier: Apache-2.0
"""A small clone with the `run` script, and stand-ins for apt, cmake, ninja and others on a closed PATH."""

import shutil
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REAL_TOOLS = ("bash env sh readlink dirname basename cksum cut cat awk grep head tail mktemp rm mkdir nproc flock tee "
              "touch chmod ls find ln sort cp sed tr").split()
# Commands that count as a package; `missing` may remove their stand-ins.
PACKAGE_TOOLS = {"g++": "g++", "cmake": "cmake", "ninja-build": "ninja", "python3": "python3"}

STANDINS = {
    "dpkg-query": 'shift 2\nfor package; do grep -qx -- "$package" "$STATE/missing" || echo "$package installed"; done',
    "apt-get": 'echo "apt-get $*" >>"$STATE/calls"\n[ ! -e "$STATE/apt-fails" ] || { echo "E: no network"; exit 100; }\n'
               '[ "$1" = update ] || : >"$STATE/missing"',
    "id": 'cat "$STATE/uid"',
    "setarch": "exit 1",
    "g++": ":",
    "ccache": ":",
    "python3": 'for last; do :; done\n[ "$3" != setup.py ] || echo package >"$last/maestro-client-1.2.3.tar.gz"\n'
               'case $1 in */cmake/package/wheel.py) echo wheel >"$last/maestro_runtime-1.2.3.whl"; echo "wheel of $2";; esac',
    "cmake": 'echo "cmake $*" >>"$STATE/calls"\n[ "$1" != . ] || exit 0\n'
             'while [ "$1" != -B ]; do shift; done; folder=$2; mkdir -p "$folder"; : >"$folder/build.ninja"\n'
             'echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" >"$folder/CMakeCache.txt"\n'
             'for option; do case $option in -D*) option=${option#-D}\n'
             '  echo "${option%=*}:BOOL=${option#*=}" >>"$folder/CMakeCache.txt";; esac; done\n'
             'rm -f "$folder/built"',
    "ninja": 'folder=$2\ncase " $* " in *" build.ninja ") exit 0;; *" -n "*)\n'
             '  [ -e "$folder/built" ] && echo "ninja: no work to do." || cat "$STATE/steps"; exit 0;; esac\n'
             'echo "ninja $*" >>"$STATE/calls"\n'
             '[ ! -e "$STATE/build-fails" ] || { echo "[ 10%] fine"; echo "FAILED: a.o"; echo "a.cpp:1: error: no"; exit 1; }\n'
             'echo "[ 50%] half"; mkdir -p "$folder/bin"; cp_program "$folder/bin/maestro"\n'
             'ln -sf "$STATE/show_cuda_devices" "$folder/bin/"; touch "$folder/built"',
    "cp_program": 'printf "%s\\n" "#!/bin/sh" "echo pid=\\$\\$ cwd=\\$PWD repository=\\$MAESTRO_REPOSITORY" '
                  '"for a; do echo \\"argument=\\$a\\"; done" "exit 7" >"$1"; chmod +x "$1"',
    "ctest": 'echo "ctest $*"; echo "100% tests passed"',
    "mkdocs": 'echo "mkdocs $*" >>"$STATE/calls"\nfor last; do :; done; mkdir -p "$last"; echo page >"$last/index.html"',
    "cpack": 'echo "cpack $*" >>"$STATE/calls"\nfor last; do :; done; echo package >"$last/maestro_1.2.3_amd64.deb"',
    "lintian": ":",
}


class RunClone(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name).resolve()
        self.clone = self.top / "a clone"
        (self.clone / "cmake").mkdir(parents=True)
        shutil.copy(ROOT / "run", self.clone)
        shutil.copy(ROOT / "CMakePresets.json", self.clone)
        shutil.copytree(ROOT / "cmake" / "run", self.clone / "cmake" / "run")
        self.make_tools()
        self.state = self.top / "state"
        self.state.mkdir()
        (self.state / "missing").touch()
        (self.state / "steps").write_text("Building CXX object a.o\nLinking CXX executable bin/maestro\n")
        (self.state / "uid").write_text("0\n")
        self.environment = {"PATH": str(self.tools), "STATE": str(self.state), "HOME": str(self.top / "home"),
                            "CUDA_PATH": str(self.top / "toolkit")}

    def make_tools(self):
        self.tools = self.top / "tools"
        self.tools.mkdir()
        for tool in REAL_TOOLS:
            (self.tools / tool).symlink_to(shutil.which(tool))
        for name, text in STANDINS.items():
            self.make_script(self.tools / name, text)

    @staticmethod
    def make_script(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def missing(self, *packages):
        (self.state / "missing").write_text("".join(f"{package}\n" for package in packages))
        for package in packages:
            if package in PACKAGE_TOOLS:
                (self.tools / PACKAGE_TOOLS[package]).unlink()

    def run_it(self, *arguments, cwd=None, script=None, **environment):
        return subprocess.run([script or self.clone / "run", *arguments], cwd=cwd or self.top, check=False, text=True,
                              env={**self.environment, **environment}, stdin=subprocess.DEVNULL, capture_output=True)

    def calls(self, of=""):
        file = self.state / "calls"
        return [line for line in file.read_text().splitlines() if line.startswith(of)] if file.exists() else []
