#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the Python client's generated code that of its interfaces: client_code.py ROOT [COMPILER] [--write].

The code in the folders of INTERFACES is the output of the Thrift compiler, below a line with the licence.
Exits with 77, and a reason, where COMPILER (default: thrift) is missing or of another version than the code's.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
HEAD = "# SPDX-License-Identifier: Apache-2.0\n"
# {folder in clients/python/maestro_client: (interface, its Python namespace, its service)}
INTERFACES = {"_control": ("actors/control/control.thrift", "maestro_control", "Control"),
              "_served": ("actors/served/served.thrift", "maestro_served", "ServedModule")}
VERSION = re.compile(r"Thrift Compiler \(([\d.]+)\)")


def generated(root, compiler):
    """{path below maestro_client: text} of the compiler's output."""
    texts = {}
    for to, (interface, namespace, service) in INTERFACES.items():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([compiler, "--gen", "py:dynamic", "-out", folder, root / interface], check=True)
            for name in ("__init__.py", "constants.py", "ttypes.py", f"{service}.py"):
                # A blank line at an end is the compiler's, and git's complaint.
                texts[f"{to}/{name}"] = HEAD + pathlib.Path(folder, namespace, name).read_text().rstrip("\n") + "\n"
    return texts


def main(arguments):
    words = [argument for argument in arguments if argument != "--write"]
    root, compiler = pathlib.Path(words[0]), words[1] if len(words) > 1 else "thrift"
    folder = root / "clients/python/maestro_client"
    if shutil.which(compiler) is None:
        print(f"skipped: the Thrift compiler '{compiler}' is missing (apt-get install thrift-compiler)")
        return SKIPPED
    fresh = generated(root, compiler)
    if "--write" in arguments:
        for name, text in fresh.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        return 0
    there = {name: (folder / name).read_text() for name in fresh}
    ours, theirs = (VERSION.search(texts["_control/ttypes.py"])[1] for texts in (there, fresh))
    if ours != theirs:
        print(f"skipped: the code is that of Thrift {ours}, the compiler here is {theirs}")
        return SKIPPED
    differing = [name for name in fresh if there[name] != fresh[name]]
    for name in differing:
        print(f"{folder / name} is not the compiler's output; write it again: tests/build/client_code.py . --write")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
