"""`python -m wild.fetch [PACKAGE ...]`: the corpus, from PyPI into out/wild/, once.

What is there already is used again; nothing is downloaded then. Every file is pinned by its hash.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wild.corpus import OUT, Package, corpus


class FetchError(Exception):
    """A package could not be had: no network, no such file, or not the bytes that corpus.toml pins."""


def fetch(name: str) -> Path:
    """The folder of the unpacked package; downloads and unpacks it on the first call."""
    try:
        package = corpus()[name]
    except KeyError:
        raise FetchError(f"{name} is not in wild/corpus.toml") from None
    with _alone(package):
        if not _is_unpacked(package):
            file = _download(package)
            _unpack(package, file)
            file.unlink()
    return package.folder


@contextmanager
def _alone(package: Package) -> Iterator[None]:
    """Two test processes may want the same package at once."""
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / f".{package.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _stamp(package: Package) -> str:
    return "\n".join((package.sha256, *package.only)) + "\n"


def _is_unpacked(package: Package) -> bool:
    stamp = package.folder.with_name(package.folder.name + ".stamp")
    return package.folder.is_dir() and stamp.is_file() and stamp.read_text() == _stamp(package)


def _download(package: Package) -> Path:
    folder = OUT / "download"
    file = folder / package.file
    if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == package.sha256:
        return file
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        pinned.write(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
        pinned.flush()
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
        options = ["--quiet", "--no-deps", "--retries", "2", "--dest", str(folder), "-r", pinned.name]
        done = subprocess.run([*pip, *options, *_kind(package)], capture_output=True, text=True)
    if done.returncode or not file.is_file():
        last = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["pip made no such file"]
        raise FetchError(
            f"cannot download {package.file} (is PyPI within reach?): {last[-1].removeprefix('ERROR: ')}"
        )
    return file


def _kind(package: Package) -> list[str]:
    """The options by which pip takes this very file, whatever Python and machine it runs on."""
    if not package.is_wheel:
        return ["--no-binary", package.name]
    python, abi, platform = package.file.removesuffix(".whl").split("-")[-3:]
    options = ["--only-binary", ":all:"]
    if platform != "any":
        version = "3.11" if abi == "abi3" else f"{python[2]}.{python[3:]}"
        options += ["--implementation", "cp", "--python-version", version, "--abi", abi]
        options += ["--platform", platform]
    return options


def _unpack(package: Package, file: Path) -> None:
    target = package.folder
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{package.name}-", dir=target.parent))
    try:
        if package.is_wheel:
            with zipfile.ZipFile(file) as wheel:
                names = [name for name in wheel.namelist() if name.endswith(".py")]
                wheel.extractall(fresh, package.only or names)
            fresh.rename(target)
        else:
            with tarfile.open(file) as sdist:
                sdist.extractall(fresh, filter="data")
            (top,) = fresh.iterdir()
            top.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    target.with_name(target.name + ".stamp").write_text(_stamp(package))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m wild.fetch", description=__doc__)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="default: all of wild/corpus.toml")
    failed = 0
    for name in parser.parse_args().packages or corpus():
        start = time.monotonic()
        try:
            folder = fetch(name)
        except FetchError as error:
            failed = 1
            print(f"wild: {error}", file=sys.stderr)
        else:
            count = sum(1 for _ in folder.rglob("*.py"))
            print(f"{name} {corpus()[name].version}: {count} files, {time.monotonic() - start:.1f} s")
    return failed


if __name__ == "__main__":
    sys.exit(main())
