"""Says which versions are tested: ``python -m tests.versions``."""

import platform
from importlib.metadata import version

NAMES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "array-api-compat",
    "zarr",
    "pyarrow",
    "h5py",
    "dask",
    "matplotlib",
    "typer",
)

print(f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in NAMES))  # noqa: T201
