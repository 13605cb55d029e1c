"""Which form of a problem runs: one decision, from the sizes and the memory, for all estimators."""

from __future__ import annotations

from dataclasses import dataclass

from tracelearn.arrays.memory import available_memory
from tracelearn.problems.sparse import FEW

__all__ = ["Form", "choose_form"]


@dataclass(frozen=True)
class Form:
    """A form and the reason why it was chosen; ``name`` is "moments", "kernel", "data", "sparse" or "matrix-free"."""

    name: str
    reason: str


def choose_form(n: int, p: int, *, has_moments: bool, memory: int | None = None, sparse: bool = False) -> Form:
    """Choose how to learn from n samples of p numbers.

    Moments need p by p numbers and no further look at the samples; the kernel n by n numbers, for n below p, and the
    samples at every iteration. A loss without moments needs the samples anyway. A pass over sparse samples costs less than
    a product with a large square matrix, so for them moments are only for few features.

    Examples
    --------
    >>> from tracelearn.solvers.choose import choose_form
    >>> choose_form(100_000, 1000, has_moments=True).name
    'moments'
    >>> choose_form(50, 4000, has_moments=True).name
    'kernel'
    >>> choose_form(100_000, 90_000, has_moments=True, memory=8 << 30).name
    'matrix-free'
    >>> choose_form(15_000, 50_000, has_moments=True, sparse=True).name
    'sparse'
    """
    if sparse and not (has_moments and p <= min(2 * n, FEW)):
        return Form("sparse", "products with the sparse samples take the place of square matrices")
    memory = available_memory() if memory is None else memory
    gram, kernel = 8 * p * p, 8 * n * n
    if 4 * min(gram, kernel) > memory:  # the matrix, its factor, and what a factorisation needs beside them
        size = min(gram, kernel) / 2**30
        return Form("matrix-free", f"a square matrix of {size:.1f} GiB does not fit, so every gradient is one pass")
    if not has_moments:
        return Form("data", "the loss has no moments, so every iteration reads the samples")
    # Below about half as many samples as features the kernel is smaller and its products are cheaper.
    if 2 * n < p or (n < p and 4 * gram > memory >= 4 * kernel):
        return Form("kernel", f"{n} samples are fewer than {p} features: an {n} by {n} kernel is smaller than the gram")
    return Form("moments", f"{p} by {p} moments hold all that {n} samples say about a linear model")
