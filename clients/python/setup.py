# SPDX-License-Identifier: Apache-2.0
"""Makes the code of the Thrift interfaces, maestro_client/_control and _served, and packs it with the package.

`setup.py copy FOLDER COMPILER` makes FOLDER/maestro_client, a copy of the package with that code, without setuptools.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEAD = "# SPDX-License-Identifier: Apache-2.0\n"
# {folder in maestro_client: (interface, Python namespace, service)}
INTERFACES = {"_control": ("actors/control/control.thrift", "maestro_control", "Control"),
              "_served": ("actors/served/served.thrift", "maestro_served", "ServedModule")}


def make_code(package, compiler):
    """Writes the compiler's output, with a licence line at the top of each file."""
    if shutil.which(compiler) is None:
        sys.exit(f"maestro-client: a build from a clone needs the Thrift compiler, and '{compiler}' is not installed "
                 "(Debian: apt-get install thrift-compiler)")
    for to, (interface, namespace, service) in INTERFACES.items():
        (package / to).mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([compiler, "--gen", "py:dynamic", "-out", folder, HERE.parents[1] / interface], check=True)
            for name in ("__init__.py", "constants.py", "ttypes.py", f"{service}.py"):
                (package / to / name).write_text(HEAD + Path(folder, namespace, name).read_text())


if sys.argv[1:2] == ["copy"]:
    made = Path(sys.argv[2], "maestro_client")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    for source in (HERE / "maestro_client").glob("*.*"):
        shutil.copyfile(source, made / source.name)
    make_code(made, sys.argv[3])
else:
    from setuptools import setup
    if not (HERE / "PKG-INFO").exists():  # an sdist contains the code
        make_code(HERE / "maestro_client", "thrift")
    setup()
