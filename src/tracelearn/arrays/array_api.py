"""Arrays of other libraries and devices: what the array API standard leaves open, in one place.

Nothing here moves an array from one library or device to another unless its name says so.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import array_namespace as _any_namespace
from array_api_compat import (
    device,
    is_array_api_obj,
    is_cupy_array,
    is_dask_array,
    is_jax_array,
    is_numpy_array,
    is_pydata_sparse_array,
    is_torch_array,
    to_device,
)

try:
    import resource
except ImportError:  # systems without limits of this kind
    resource = None  # type: ignore[assignment]

Array = Any  # an array of the array API standard: NumPy, PyTorch, CuPy, JAX ...

__all__ = [
    "Array",
    "array_namespace",
    "as_dtype",
    "available_memory",
    "block_bytes",
    "detached",
    "dtype_name",
    "free_memory",
    "is_non_numpy",
    "is_sparse",
    "move_to",
    "multiplies_singles_faster",
    "place",
    "same_place",
    "to_numbers",
    "to_numpy",
    "unique_values",
    "widest",
    "within_limit",
]


_UNKNOWN = 4 << 30  # free memory, in bytes, that is assumed where the system does not tell
_GROUP = Path("/sys/fs/cgroup")
_DEVICE_BLOCK = 512 << 20

# NumPy is the standard's own since 2.1, and its calls cost less unwrapped. Looking a library up takes as long as a small
# product, so each kind of array is looked up once.
_NAMESPACES: dict[type, Any] = {np.ndarray: np}


def array_namespace(*arrays: Array) -> Any:
    """Find the library of some arrays."""
    kind = type(arrays[0])
    if kind not in _NAMESPACES:
        # Products of SciPy's sparse rows are arrays of NumPy.
        _NAMESPACES[kind] = np if is_sparse(arrays[0]) else _any_namespace(*arrays)
    return _NAMESPACES[kind]


def is_non_numpy(X: Any) -> bool:
    """Whether X is an array of another library than NumPy, with its numbers at hand (a Dask array has none).

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.array_api import is_non_numpy
    >>> is_non_numpy(np.ones(3)), is_non_numpy([1.0])
    (False, False)
    """
    if type(X) is np.ndarray or not is_array_api_obj(X):
        return False
    return not (is_numpy_array(X) or is_dask_array(X) or is_pydata_sparse_array(X))


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse array or matrix of SciPy."""
    # SciPy is not imported here: an array of it exists only if somebody has.
    scipy_sparse = sys.modules.get("scipy.sparse")
    return type(X) is not np.ndarray and scipy_sparse is not None and bool(scipy_sparse.issparse(X))


def place(X: Any) -> str:
    """Describe the library and the device of an array, for errors.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.array_api import place
    >>> place(np.ones(3))
    'numpy on cpu'
    """
    if not is_non_numpy(X):
        return "numpy on cpu"
    return f"{type(X).__module__.split('.')[0]} on {device(X)}"


def block_bytes(X: Array, on_cpu: int) -> int:
    """Return the bytes of a block of rows: ``on_cpu`` on a CPU, to stay in cache; more on a GPU, to keep it busy."""
    return on_cpu if is_numpy_array(X) or "cpu" in str(device(X)).lower() else _DEVICE_BLOCK


def same_place(first: Array, second: Array) -> bool:
    """Whether two arrays are of one library and on one device, so that they can meet in a product."""
    if not is_non_numpy(first) or not is_non_numpy(second):
        return is_non_numpy(first) == is_non_numpy(second)
    return array_namespace(first) is array_namespace(second) and bool(device(first) == device(second))


def detached(X: Array) -> Array:
    """Drop the graph of automatic differentiation, which would keep the arrays of every step in memory."""
    return X.detach() if is_torch_array(X) and X.requires_grad else X


def to_numpy(X: Array) -> Array:
    """Bring an array to the processor, as one of NumPy; what is no array becomes one."""
    if not is_non_numpy(X):
        return np.asarray(X)
    if is_cupy_array(X):
        return X.get()
    if is_jax_array(X):
        return np.asarray(X)
    return np.from_dlpack(X.detach().cpu() if is_torch_array(X) else X)


def to_numbers(X: Array) -> list[float]:
    """Read the few numbers of an array (K,), all at once where its library can."""
    return X.tolist() if hasattr(X, "tolist") else [float(X[k]) for k in range(X.shape[0])]


def move_to(X: Any, like: Array, dtype: Any = None) -> Array:
    """Bring an array to the library and the device of another, and there to ``dtype`` where one is given."""
    if not is_non_numpy(like):
        X = X if type(X) is np.ndarray else to_numpy(X)
        return X if dtype is None else X.astype(dtype, copy=False)
    xp = array_namespace(like)
    device_of_like = device(like)
    if is_non_numpy(X) and array_namespace(X) is xp:
        X = detached(X)
        X = X if device(X) == device_of_like else to_device(X, device_of_like)
        return X if dtype is None else xp.astype(X, dtype, copy=False)
    # Cast here, since the other device may lack the precision; copied, since NumPy's memory may be read-only.
    host = np.array(to_numpy(X), dtype=None if dtype is None else dtype_name(dtype), order="C")
    return xp.asarray(host, device=device_of_like)


def dtype_name(dtype: Any) -> str:
    """Name a dtype as NumPy does, whatever its library calls it.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.arrays.array_api import dtype_name
    >>> dtype_name(np.dtype("float32"))
    'float32'
    """
    return str(dtype).rsplit(".", maxsplit=1)[-1]


def widest(like: Array) -> dict[str, Any]:
    """Find double precision on the device of ``like``, or single where there is none, as ``dtype`` and ``device``."""
    xp = array_namespace(like)
    device_of_like = device(like)
    try:
        xp.zeros(1, dtype=xp.float64, device=device_of_like)
    except (TypeError, RuntimeError, ValueError):
        return {"dtype": xp.float32, "device": device_of_like}
    return {"dtype": xp.float64, "device": device_of_like}


def as_dtype(X: Array, dtype: Any) -> Array:
    """Cast an array, without a copy where it has that dtype."""
    if is_sparse(X):
        return X.astype(dtype, copy=False)
    return array_namespace(X).astype(X, dtype, copy=False)


def multiplies_singles_faster(X: Array) -> bool:
    """Whether large products in single precision take at most half the time: with NumPy, and PyTorch, which has TF32 on GPUs."""
    return is_numpy_array(X) or is_torch_array(X)


def to_single(X: Array) -> Array:
    """Convert to single precision."""
    return as_dtype(X, array_namespace(X).float32)


def unique_values(y: Array) -> Array:
    """List the values of an array of another library in increasing order."""
    xp = array_namespace(y)
    if xp.isdtype(y.dtype, "bool"):  # which the standard does not sort
        return xp.astype(unique_values(xp.astype(y, xp.uint8)), y.dtype)
    return xp.sort(xp.unique_values(y))


def free_memory(X: Array) -> int | None:
    """Ask the device of an array for its free memory, in bytes; None where that is the processor's, or not known."""
    if is_torch_array(X) and device(X).type == "cuda":
        torch = sys.modules["torch"]
        return int(torch.cuda.mem_get_info(device(X))[0])
    if is_cupy_array(X):
        return int(device(X).mem_info[0])
    return None


def available_memory() -> int:
    """Find the bytes that can be allocated without swapping and without being refused or killed."""
    return max(0, min(_free_on_machine(), within_limit(), _within_group()))


def _free_on_machine() -> int:
    """Find the bytes that are free on this machine; on Linux with those that caches would give back."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN


def within_limit() -> int:
    """Find the bytes that ``ulimit -v``, the limit on addresses, leaves to this process."""
    if resource is None:
        return 1 << 62
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return 1 << 62
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return limit
    return limit - pages * resource.getpagesize()


def _within_group() -> int:
    """Find the bytes that the limit of a container (its control group) leaves to this process."""
    try:
        limit, used = ((_GROUP / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return 1 << 62
    return 1 << 62 if limit == "max" else int(limit) - int(used)
