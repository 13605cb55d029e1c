"""What the figures were measured on."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "tracelearn",
    "numpy",
    "scipy",
    "scikit-learn",
    "cvxpy",
    "scs",
    "clarabel",
    "tensorly",
    "pyproximal",
    "copt",
    "modopt",
)


def describe() -> dict:
    """Name the processor, its cores, the BLAS threads and the versions."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": os.environ.get("OPENBLAS_NUM_THREADS", "as many as cores"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": versions,
    }


def sentence(machine: dict) -> str:
    """Say it in one paragraph."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    return (
        f"Measured on {machine['processor']}, {machine['cores']} cores ({machine['system']}, Python {machine['python']}), "
        f"BLAS threads: {machine['threads']}. {versions}."
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        if names:
            return names[0]
    return platform.processor() or "an unknown processor"
