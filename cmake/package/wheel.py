#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs the program, the Python package and their shared libraries as a wheel that needs no compiler.

usage: wheel.py BUILD FOLDER

BUILD is a build folder with the Python module. Prints the path of the wheel in FOLDER. Each shared library that the
system may lack is copied under a name with a digest, because the process may hold another library with the plain name.
The C library, libstdc++, libgcc_s and the libraries of CUDA are not copied.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OF_SYSTEM = re.compile(r"(ld-linux-|linux-vdso|lib(c|m|mvec|pthread|dl|rt|util|resolv|anl|stdc\+\+|gcc_s)\.so|libnsl\.so\.1$)")
OF_CUDA = re.compile(r"lib(cuda|cudart|cublas|cublasLt|cudnn\w*|nccl|nvrtc|nvJitLink)\.so")
OPENED = ("libfabric.so.1", "libonig.so.5")  # opened under these names: transport/fabric, runtime/tokenizer
CUDA_FOLDERS = [f"$ORIGIN/../nvidia/{name}/lib" for name in ("cu13", "cublas", "cudnn", "nccl")]  # packages of pip
LAUNCHER = b"""#!python
import importlib.util
import os
import sys

program = os.path.join(os.path.dirname(importlib.util.find_spec("maestro").origin), "_program", "bin", "maestro")
os.execv(program, [program, *sys.argv[1:]])
"""


def output_of(*words):
    """Returns a command's output. Exits with a line for a command that is missing or fails."""
    try:
        return subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    except FileNotFoundError:
        sys.exit(f"wheel.py: the command {words[0]} is missing")
    except subprocess.CalledProcessError as problem:
        said = (problem.stderr or problem.stdout).strip().splitlines()
        sys.exit(f"wheel.py: {' '.join(map(str, words))}: {said[-1] if said else problem}")


def needed_by(file):
    """Returns {name: path} of all shared libraries that a file needs, directly or not, but for the system's and CUDA's."""
    found = {}
    for line in output_of("ldd", file).splitlines():
        name, arrow, place = line.strip().partition(" => ")
        if not arrow or OF_SYSTEM.match(name) or OF_CUDA.match(name):
            continue
        if place == "not found":
            sys.exit(f"wheel.py: {file} needs {name}, which is not found")
        found[name] = Path(place.rpartition(" (")[0]).resolve()
    return found


def opened_libraries():
    """Returns {name: path} of the libraries that are opened while a program runs."""
    listed = re.findall(r"^\t(\S+) \(.*x86-64.*\) => (.*)$", output_of("/sbin/ldconfig", "-p"), re.MULTILINE)
    places = dict(reversed(listed))  # the first entry of a name is used
    for name in OPENED:
        if name not in places:
            sys.exit(f"wheel.py: {name} is not installed")
    return {name: Path(places[name]).resolve() for name in OPENED}


def patch(file, names, folders):
    """Strips a file, and lets it find the libraries under their new names in `folders`."""
    output_of("strip", "--strip-unneeded", file)
    for name in output_of("patchelf", "--print-needed", file).split():  # patchelf 0.14 loses changes if it gets several
        if name in names:
            output_of("patchelf", "--replace-needed", name, names[name], file)
    if file.name in names.values():
        output_of("patchelf", "--set-soname", file.name, file)
    output_of("patchelf", "--set-rpath", ":".join(folders), file)


def debian_packages(libraries):
    """Returns {path: package} of the libraries that Debian packages have, from one query, which reads every package's list."""
    places = {name: library for library in libraries for name in (str(library), str(library).removeprefix("/usr"))}
    found = subprocess.run(["dpkg-query", "-S", *places], check=False, capture_output=True, text=True).stdout
    return {places[place]: packages.partition(":")[0]
            for packages, _, place in (line.partition(": ") for line in found.splitlines()) if place in places}


def licence_files(library, package):
    """Returns {name: file} of the licence texts for a library of a Debian package, or of a Python package (None)."""
    if package:
        copyright_file = Path("/usr/share/doc") / package / "copyright"
        common = re.findall(r"/usr/share/common-licenses/([\w.+-]*\w)", copyright_file.read_text("utf-8", "replace"))
        texts = {f"common-licenses/{name}": Path("/usr/share/common-licenses") / name for name in common}
        return {f"{package}/copyright": copyright_file} | {name: file for name, file in texts.items() if file.is_file()}
    package = library.parent.name
    texts = {f"{package}/{text.name}": text for text in library.parent.parent.glob(f"{package}-*.dist-info/**/LICENSE*")}
    return texts or sys.exit(f"wheel.py: {library} belongs to no package with a licence")


def stage_package(build, tree):
    """Installs program and Python package in `tree`. Returns the files in it that are linked."""
    package, program = tree / "maestro", tree / "maestro/_program"
    output_of("cmake", "--install", build, "--prefix", program, "--component", "program")
    for library in (program / "lib/maestro").iterdir():
        library.rename(package / library.name)
    for file in (build / "python/maestro").iterdir():
        if file.is_file():
            shutil.copy(file, package)
    return [program / "bin/maestro", *sorted(package.glob("*.so"))]


def bundle(build, tree):
    """Copies all libraries next to the package, and lets its files use the copies. Returns the copied files."""
    linked = stage_package(build, tree)
    own = {file.name for file in linked}
    originals = [build / "bin/maestro", *(build / "lib/maestro").glob("*.so"), *(build / "python/maestro").glob("*.so")]
    opened, found = opened_libraries(), {}
    for file in [*originals, *opened.values()]:
        found |= {name: path for name, path in needed_by(file).items() if name not in own}
    libraries = tree / "maestro_runtime.libs"
    libraries.mkdir()
    names = {}
    for name, path in found.items():
        stem, _, version = name.partition(".so")
        names[name] = f"{stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}.so{version}"
    for name, path in (found | opened).items():
        copy = libraries / names.get(name, name)
        shutil.copyfile(path, copy)
        patch(copy, names, ["$ORIGIN"])
    for file in linked:
        to_package = os.path.relpath(tree / "maestro", file.parent)
        folders = [f"$ORIGIN/{to_package}", f"$ORIGIN/{to_package}/../maestro_runtime.libs"]
        patch(file, names, folders + (CUDA_FOLDERS if "cuda" in file.name else []))
    return [*found.values(), *opened.values()]


def write_about(tree, module, copied):
    """Writes the folder that describes the wheel. Returns the wheel's file name."""
    project = tomllib.loads((ROOT / "apps/python/pyproject.toml").read_text("utf-8"))["project"]
    python, machine = re.fullmatch(r"_core\.cpython-(\d+)-(\w+)-linux-gnu\.so", module.name).groups()
    libc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")
    tag = f"cp{python}-cp{python}-manylinux_{libc}_{machine}"
    name = f"{project['name'].replace('-', '_')}-{project['version']}"
    texts = {"LICENSE": ROOT / "LICENSE"}
    packages = debian_packages(copied)
    for library in copied:
        texts |= {f"licenses/{text}": file for text, file in licence_files(library, packages.get(library)).items()}
    about, scripts = tree / f"{name}.dist-info", tree / f"{name}.data/scripts"
    for text, file in texts.items():
        (about / text).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, about / text)
    (about / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: maestro\nRoot-Is-Purelib: false\nTag: {tag}\n")
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\nSummary: {project['description']}\n"
        f"License: {project['license']['text']}\nRequires-Python: {project['requires-python']}\n"
        "Description-Content-Type: text/markdown\n\n" + (ROOT / "apps/python" / project["readme"]).read_text("utf-8"))
    scripts.mkdir(parents=True)
    (scripts / "maestro").write_bytes(LAUNCHER)
    shared = scripts.parent / "data/share"  # manual pages and completions
    shared.mkdir(parents=True)
    shutil.rmtree(tree / "maestro/_program/share/doc", ignore_errors=True)  # Debian's texts
    for folder in (tree / "maestro/_program/share").iterdir():
        if folder.name != "maestro":
            folder.rename(shared / folder.name)
    return f"{name}-{tag}.whl"


def pack(tree, wheel):
    """Writes the files of a folder, and the record of them, with the same bytes each time."""
    files = {file.relative_to(tree).as_posix(): file for file in tree.rglob("*") if file.is_file()}
    about = wheel.name.split("-cp")[0] + ".dist-info"
    record = ""
    with zipfile.ZipFile(wheel, "w") as archive:
        def add(name, content, mode=0o644):
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)

        for name in sorted(files):
            content = files[name].read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            record += f"{name},sha256={digest},{len(content)}\n"
            runs = "/bin/" in name or "/scripts/" in name or name.endswith(".sh")
            add(name, content, 0o755 if runs else 0o644)
        add(f"{about}/RECORD", f"{record}{about}/RECORD,,\n")


def main(build, folder):
    modules = list((build / "python/maestro").glob("_core.*.so"))
    if len(modules) != 1:
        sys.exit(f"wheel.py: {build}/python/maestro has {len(modules)} Python modules; expected 1")
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        wheel = folder / write_about(tree, modules[0], bundle(build, tree))
        pack(tree, wheel)
    print(wheel)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: wheel.py BUILD FOLDER")
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
