"""What a solver returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.penalties import Split

__all__ = ["Solution", "Solver", "Watcher"]


@dataclass(frozen=True, eq=False)
class Solution:
    """The answer to B problems: weights (T, *shape), their split, and the certificate.

    ``objective`` and ``gap`` have shape (B,); the gap is relative to the objective at W = 0. ``rho`` (B,) is where
    ADMM's own step ended, so that the solve of a neighbouring problem starts there.
    """

    W: Array
    split: Split
    objective: Array
    gap: Array
    n_iter: int
    rho: Array | None = None

    def take(self, problems: Array, tensors: Array) -> Solution:
        """Keep some problems, given their index (B',) and that of their tensors (T',)."""
        rho = None if self.rho is None else self.rho[problems]
        split = self.split.take(tensors)
        W = array_namespace(self.W).take(self.W, tensors, axis=0)
        return Solution(W, split, self.objective[problems], self.gap[problems], self.n_iter, rho)

    def where(self, chosen: Array, other: Solution) -> Solution:
        """Take the weights and the certificate of another solution for the chosen problems (B,)."""
        xp = array_namespace(chosen)
        tensors = xp.reshape(xp.repeat(chosen, self.W.shape[0] // chosen.shape[0]), (-1, *(1,) * (self.W.ndim - 1)))
        return replace(
            self,
            W=xp.where(tensors, other.W, self.W),
            objective=xp.where(chosen, other.objective, self.objective),
            gap=xp.where(chosen, other.gap, self.gap),
        )

    @classmethod
    def joined(cls, parts: list[Solution]) -> Solution:
        """Put batches of problems together."""
        xp = array_namespace(parts[0].W)

        def stack(name: str) -> Array:
            return xp.concat([getattr(part, name) for part in parts])

        splits = [part.split for part in parts]
        split = Split(
            *(xp.concat([getattr(s, name) for s in splits], axis=1) for name in ("parts", "duals", "anchors"))
        )
        rho = None if any(part.rho is None for part in parts) else stack("rho")  # zero is found without a step
        n_iter = max(part.n_iter for part in parts)
        return cls(stack("W"), split, stack("objective"), stack("gap"), n_iter, rho)


Watcher = Callable[[Solution], None]
Solver = Callable[..., Solution]
