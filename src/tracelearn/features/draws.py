"""Draws training samples deterministically: thresholds of ``Convolutions``, landmarks of ``Similarities``.

Every sample has a hash, a number between 0 and 1 that is computed from its signals apart from their size, and the samples with
the lowest hashes are drawn. So the same samples are drawn in whatever order, batches or units they come, and the draws of two
sets together follow from those of each.
"""

from __future__ import annotations

import numpy as np

from tracelearn.arrays.array_api import Array, array_namespace, to_numpy

__all__ = ["sample_numbers", "scramble", "unit_signals"]

# Signals of size one are rounded to multiples of 1 / steps before they are hashed. The hash of coarse steps, which floating-point
# errors hardly ever change, decides first; fine steps distinguish samples that are equal in coarse ones.
_COARSE_STEPS = 100.073
_FINE_STEPS = 10007.3
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 64 bits of the golden ratio, an odd number: products with it change every bit
_HALF = np.uint64(32)  # bits


def unit_signals(signals: Array) -> tuple[Array, Array]:
    """Divide centred signals (channels, n, times) by their root mean squares, and return these too; zeros stay zeros."""
    xp = array_namespace(signals)
    sizes = xp.sqrt(xp.mean(signals**2, axis=-1, keepdims=True))
    return signals / xp.where(sizes > 0, sizes, xp.ones_like(sizes)), sizes


def sample_numbers(units: Array, n_draws: int) -> Array:
    """Compute a hash in [0, 1) for each draw and sample, (n_draws, n), from samples (channels, n, times) of size one."""
    coarse = _hashes(units, _COARSE_STEPS, n_draws)
    fine = _hashes(units, _FINE_STEPS, n_draws)
    return ((coarse >> _HALF) + (fine >> np.uint64(43)) * 2.0**-21) * 2.0**-32


def _hashes(units: Array, steps: float, n_draws: int) -> Array:
    """Hash samples (channels, n, times), rounded to so many steps, to 64 bits, independently for each draw: (n_draws, n)."""
    xp = array_namespace(units)
    rounded = to_numpy(xp.astype(xp.round(units * steps), xp.int32))
    words = np.moveaxis(rounded, 1, 0).reshape(rounded.shape[1], -1).astype("<i4")
    words = np.ascontiguousarray(np.pad(words, ((0, 0), (0, words.shape[-1] % 2)))).view("<u8")
    powers = np.cumprod(np.full(words.shape[-1], _GOLDEN))
    sample_hashes = scramble(np.sum(words * powers, axis=-1))
    seeds = np.arange(n_draws, dtype=np.uint64) * _GOLDEN
    return scramble(sample_hashes ^ seeds[:, None])


def scramble(words: Array) -> Array:
    """Mix the bits of words of 64 bits, so that their order is unrelated to that of the input."""
    return (words ^ (words >> _HALF)) * _GOLDEN
