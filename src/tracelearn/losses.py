"""Losses, pointwise in target and prediction: value, derivative, conjugate, best intercept.

Conventions
-----------
Targets ``y`` and predictions ``z`` have shape ``(n, K)``. A separable loss returns one value for each target, shape
``(n, K)``; the multinomial one couples the targets of a sample and returns shape ``(n, 1)``. The conjugate is taken
with respect to z, at ``scale`` times the derivative: a point that is always in its domain for ``scale`` in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace
from tracelearn.arrays.linalg import positive_part

__all__ = [
    "CLASSIFIER_LOSSES",
    "REGRESSOR_LOSSES",
    "Huber",
    "Logistic",
    "Loss",
    "Multinomial",
    "Squared",
    "SquaredHinge",
]


# Takes a function of targets, predictions and shares (the weights of the samples, which sum to one) that sums something
# over the samples it is given, and returns the sum over all samples, wherever those are.
Total = Callable[[Callable[[Array, Array, Array], Any]], Any]


# What a mean of many terms is off by, in units of the last place: asking for less means bisecting noise.
_ROUNDING = 64.0

# Newton for the intercepts of softmax regression: steps before scores are softened, by what they are hardened again each time,
# and the error of a mean probability that is as good as none.
_STEPS, _COOLING, _NEARLY = 30, 3.0, 1e-10


class Loss(Protocol):
    """What the smooth half asks of a loss; plug-ins need no base class."""

    @property
    def curvature(self) -> float:
        """A bound on the second derivative."""

    @property
    def is_separable(self) -> bool:
        """Whether every target has a loss of its own, so that targets without a common penalty are problems apart."""

    def value(self, y: Array, z: Array) -> Array:
        """Evaluate the loss of each sample."""

    def derivative(self, y: Array, z: Array) -> Array:
        """Differentiate with respect to z, (n, K)."""

    def curvatures(self, y: Array, z: Array) -> Array:
        """Evaluate the diagonal of the second derivative at z, (n, K), or of a parabola that stands for it."""

    def coupling(self, y: Array, z: Array) -> Array | None:
        """Evaluate the c (n, K) for which the Hessian is ``diag(curvatures) - c c'``; None where targets are apart."""

    def conjugate(self, y: Array, u: Array) -> Array:
        """Evaluate ``sup_z u z - loss(y, z)`` for each sample."""

    def intercept(self, total: Total, start: Array) -> Array:
        """Find the b (K,) that minimises the mean loss of ``z + b``, from sums alone, beginning at ``start``."""


def _balanced_intercept(loss: Loss, total: Total, start: Array) -> Array:
    """Find the zero of the mean derivative in each column: Newton with a difference quotient, kept inside a bracket."""
    xp = array_namespace(start)
    b, eps = start, float(xp.finfo(start.dtype).eps)
    low, high = xp.full_like(b, -math.inf), xp.full_like(b, math.inf)
    slope = xp.full_like(b, loss.curvature)
    step_back = xp.ones_like(b)
    before = xp.full_like(b, math.inf)

    def force(b: Array) -> tuple[Array, Array]:
        """Return the mean derivative, and its mean size, which bounds the rounding error."""

        def both(y: Array, z: Array, share: Array) -> tuple[Array, Array]:
            d = loss.derivative(y, z + b)
            return share @ d, share @ xp.abs(d)

        mean, size = total(both)
        return mean, size

    mean, size = force(b)
    for _ in range(300):
        done = xp.abs(mean) <= _ROUNDING * eps * size
        if bool(xp.all(done)):
            break
        low, high = xp.where(mean < 0, b, low), xp.where(mean > 0, b, high)
        inside = xp.isfinite(low) & xp.isfinite(high)
        middle = xp.where(
            inside, 0.5 * (xp.where(inside, low, b) + xp.where(inside, high, b)), b - xp.sign(mean) * step_back
        )
        step_back = xp.where(inside, step_back, 2.0 * step_back)
        newton = b - mean / slope
        # A step that did not halve the mean is followed by a bisection: secants alone may creep.
        good = (newton > low) & (newton < high) & (xp.abs(newton - b) <= step_back) & (xp.abs(mean) < 0.5 * before)
        before = xp.abs(mean)
        following = xp.where(done, b, xp.where(good, newton, middle))  # a column that is done waits for the others
        if bool(xp.all(following == b)):
            break
        moved = xp.where(following != b, following - b, xp.ones_like(b))
        last, (mean, size) = mean, force(following)
        secant = (mean - last) / moved
        slope = xp.where(secant > 1e-12 * loss.curvature, secant, xp.full_like(b, loss.curvature))
        b = following
    return b


@dataclass(frozen=True)
class Squared:
    """The squared error ``(y - z)^2``, without a half."""

    curvature: float = 2.0
    is_separable: bool = True

    def value(self, y: Array, z: Array) -> Array:
        """Evaluate ``(y - z)^2``."""
        return (y - z) ** 2

    def derivative(self, y: Array, z: Array) -> Array:
        """Evaluate ``2 (z - y)``."""
        return 2.0 * (z - y)

    def curvatures(self, y: Array, z: Array) -> Array:
        """Return twos."""
        return array_namespace(z).full_like(z, 2.0)

    def coupling(self, y: Array, z: Array) -> Array | None:
        """Return None: targets are apart."""
        return None

    def conjugate(self, y: Array, u: Array) -> Array:
        """Evaluate ``u^2 / 4 + u y``."""
        return 0.25 * u**2 + u * y

    def intercept(self, total: Total, start: Array) -> Array:
        """Take the mean residual."""
        found: Array = total(lambda y, z, share: share @ (y - z))
        return found


@dataclass(frozen=True)
class Huber:
    """Squared up to ``delta``, linear beyond: outliers pull with bounded force."""

    delta: float = 1.35
    curvature: float = 2.0
    is_separable: bool = True

    def value(self, y: Array, z: Array) -> Array:
        """Evaluate ``r^2`` or ``2 delta |r| - delta^2``."""
        xp = array_namespace(z)
        r = xp.abs(z - y)
        inside = xp.clip(r, max=self.delta)
        return inside * (2.0 * r - inside)

    def derivative(self, y: Array, z: Array) -> Array:
        """Evaluate ``2 r``, clipped at ``2 delta``."""
        xp = array_namespace(z)
        return 2.0 * xp.clip(z - y, min=-self.delta, max=self.delta)

    def curvatures(self, y: Array, z: Array) -> Array:
        """Return those of the parabola that touches the loss from above: zero in the linear part would stop Newton."""
        xp = array_namespace(z)
        return 2.0 * self.delta / xp.clip(xp.abs(z - y), min=self.delta)

    def coupling(self, y: Array, z: Array) -> Array | None:
        """Return None: targets are apart."""
        return None

    def conjugate(self, y: Array, u: Array) -> Array:
        """Evaluate ``u^2 / 4 + u y``, for ``|u| <= 2 delta``."""
        return 0.25 * u**2 + u * y

    def intercept(self, total: Total, start: Array) -> Array:
        """Balance the clipped residuals."""
        return _balanced_intercept(self, total, start)


@dataclass(frozen=True)
class SquaredHinge:
    """The squared margin violation ``max(0, 1 - y z)^2`` for targets -1 and 1."""

    curvature: float = 2.0
    is_separable: bool = True

    def value(self, y: Array, z: Array) -> Array:
        """Evaluate ``max(0, 1 - y z)^2``."""
        return positive_part(1.0 - y * z) ** 2

    def derivative(self, y: Array, z: Array) -> Array:
        """Evaluate ``-2 y max(0, 1 - y z)``."""
        return -2.0 * y * positive_part(1.0 - y * z)

    def curvatures(self, y: Array, z: Array) -> Array:
        """Return two inside the margin, zero beyond."""
        return 2.0 * array_namespace(z).astype(y * z < 1.0, z.dtype)

    def coupling(self, y: Array, z: Array) -> Array | None:
        """Return None: targets are apart."""
        return None

    def conjugate(self, y: Array, u: Array) -> Array:
        """Evaluate ``a^2 / 4 - a`` with ``a = -u y >= 0``."""
        a = -u * y
        return 0.25 * a**2 - a

    def intercept(self, total: Total, start: Array) -> Array:
        """Balance the violations of the two classes."""
        return _balanced_intercept(self, total, start)


def _entropy(v: Array) -> Array:
    """Evaluate ``v log v``, which is zero at zero; rounding may leave v just below it."""
    xp = array_namespace(v)
    positive = xp.where(v > 0, v, xp.ones_like(v))
    return positive * xp.log(positive) * xp.astype(v > 0, v.dtype)


@dataclass(frozen=True)
class Logistic:
    """The logistic loss ``log(1 + exp(-y z))`` for targets -1 and 1."""

    curvature: float = 0.25
    is_separable: bool = True

    def value(self, y: Array, z: Array) -> Array:
        """Evaluate ``log(1 + exp(-y z))`` without overflow."""
        xp = array_namespace(z)
        return xp.logaddexp(xp.zeros_like(z), -y * z)

    def derivative(self, y: Array, z: Array) -> Array:
        """Evaluate ``-y / (1 + exp(y z))`` without overflow."""
        xp = array_namespace(z)
        return -y * xp.exp(-xp.logaddexp(xp.zeros_like(z), y * z))

    def curvatures(self, y: Array, z: Array) -> Array:
        """Evaluate ``p (1 - p)``."""
        a = array_namespace(z).abs(self.derivative(y, z))
        return a * (1.0 - a)

    def coupling(self, y: Array, z: Array) -> Array | None:
        """Return None: targets are apart."""
        return None

    def conjugate(self, y: Array, u: Array) -> Array:
        """Evaluate the negative entropy of ``a = -u y`` in [0, 1]."""
        a = -u * y
        return _entropy(a) + _entropy(1.0 - a)

    def intercept(self, total: Total, start: Array) -> Array:
        """Balance the mean probability with the class shares."""
        return _balanced_intercept(self, total, start)


@dataclass(frozen=True)
class Multinomial:
    """The loss of softmax regression, ``log sum_k exp(z_k) - z_y``, for one-hot targets."""

    curvature: float = 0.5  # Boehning's bound on the Hessian, the same for every class
    is_separable: bool = False

    def value(self, y: Array, z: Array) -> Array:
        """Evaluate the log of the sum of exponentials less the score of the true class, (n, 1)."""
        return _softmax(z)[0] - array_namespace(z).sum(y * z, axis=1, keepdims=True)

    def probabilities(self, z: Array) -> Array:
        """Evaluate the softmax of every row."""
        return _softmax(z)[1]

    def log_probabilities(self, z: Array) -> Array:
        """Evaluate the logarithm of the softmax of every row, also where the softmax itself is too small for a number."""
        return z - _softmax(z)[0]

    def derivative(self, y: Array, z: Array) -> Array:
        """Evaluate the probabilities less the targets."""
        return self.probabilities(z) - y

    def curvatures(self, y: Array, z: Array) -> Array:
        """Return the probabilities."""
        return self.probabilities(z)

    def coupling(self, y: Array, z: Array) -> Array | None:
        """Return the probabilities: the Hessian is ``diag(p) - p p'``."""
        return self.probabilities(z)

    def conjugate(self, y: Array, u: Array) -> Array:
        """Evaluate the negative entropy of ``u + y``, a point of the simplex, (n, 1)."""
        return array_namespace(u).sum(_entropy(u + y), axis=1, keepdims=True)

    def intercept(self, total: Total, start: Array) -> Array:
        """Match mean probabilities and class shares; intercepts sum to zero."""
        b, found = self._matched(total, start)
        if found:
            return b
        # Where nearly all probabilities are zero or one no step sees far. Divided by their size, scores are tame; the
        # intercepts of softer ones lead to those of harder ones.
        xp = array_namespace(start)
        heat, b = float(xp.max(total(lambda y, z, share: share @ xp.abs(z)))), start
        while heat > 1.0:
            b = heat * self._matched(_softened(total, heat), b / heat)[0]
            heat = heat / _COOLING
        return self._matched(total, b)[0]

    def _matched(self, total: Total, start: Array) -> tuple[Array, bool]:
        """Match by Newton or else by scaling, and say whether that was done in some steps."""
        xp = array_namespace(start)
        b, K = start, start.shape[0]
        eps, tiny, reach = float(xp.finfo(b.dtype).eps), float(xp.finfo(b.dtype).smallest_normal), 4.0

        def state(b: Array) -> tuple[float, float, Array, Array]:
            """Return the loss, what the mean probabilities are off by, and how much, and the mean of their products."""

            def sums(y: Array, z: Array, share: Array) -> tuple[Array, Array, Array]:
                logs, p = _softmax(z + b)
                value = xp.sum(logs, axis=1) - xp.sum(y * (z + b), axis=1)
                return share @ value[:, None], share @ (p - y), (share[:, None] * p).T @ p

            value, mean, products = total(sums)
            return float(value[0]), float(xp.max(xp.abs(mean))), mean, products

        value, error, mean, products = state(b)
        for _ in range(_STEPS):
            if error <= _ROUNDING * eps:
                break
            probability = xp.sum(products, axis=1)
            # The Hessian is singular along equal shifts of all classes: adding a constant to all entries mends that.
            hessian = _diagonal(probability + 1e-12) - products + 1.0 / K
            newton = -xp.linalg.solve(hessian, mean[:, None])[:, 0]
            size = float(xp.max(xp.abs(newton)))
            newton = newton * min(1.0, reach / max(size, tiny))
            reach = 2.0 * reach if size > reach else reach
            # Where probabilities are saturated Newton leads nowhere; scaling (b_k += log of wanted over found) never
            # raises the loss, since the logarithm is concave.
            scaling = xp.log((positive_part(probability - mean) + tiny) / (probability + tiny))
            for step in (newton, 0.25 * newton, scaling):
                trial, left, *rest = state(b + step)
                if left < 0.5 * error or trial < value - 0.1 * abs(float(mean @ step)):
                    break
            if trial >= value and left >= error:
                break
            b, value, error, (mean, products) = b + step, trial, left, rest
        return b - xp.mean(b), error <= max(_NEARLY, _ROUNDING * eps)


def _softened(total: Total, heat: float) -> Total:
    """Divide all predictions by a number."""
    return lambda term: total(lambda y, z, share: term(y, z / heat, share))


def _softmax(z: Array) -> tuple[Array, Array]:
    """Return for every row the log of the sum of exponentials, (n, 1), and the probabilities."""
    xp = array_namespace(z)
    top = xp.max(z, axis=1, keepdims=True)
    e = xp.exp(z - top)
    total = xp.sum(e, axis=1, keepdims=True)
    return top + xp.log(total), e / total


def _diagonal(v: Array) -> Array:
    xp = array_namespace(v)
    return v[:, None] * xp.eye(v.shape[0], dtype=v.dtype, device=device(v))


# What users type, and the loss it stands for: given the delta of a regressor, or the number of targets of a classifier.
REGRESSOR_LOSSES: dict[str, Callable[[float], Loss]] = {"squared": lambda delta: Squared(), "huber": Huber}
CLASSIFIER_LOSSES: dict[str, Callable[[int], Loss]] = {
    "squared": lambda n_targets: Squared(),
    "logistic": lambda n_targets: Logistic() if n_targets == 1 else Multinomial(),
    "squared_hinge": lambda n_targets: SquaredHinge(),
}
