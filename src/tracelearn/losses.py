"""Losses, pointwise in target and prediction: value, derivative, conjugate, best intercept.

A loss says for itself what it is for (numbers, classes or both), how it codes and checks targets, and what its predictions
mean. A subclass of ``Loss`` is a new loss, offered everywhere by its name.

Conventions
-----------
Targets ``y`` and predictions ``z`` have shape ``(n, K)``. A separable loss returns one value for each target, shape
``(n, K)``; the multinomial one couples the targets of a sample and returns shape ``(n, 1)``. No loss is negative. The
conjugate is taken with respect to z, at ``scale`` times the derivative: a point of its domain for ``scale`` in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace, to_numbers
from tracelearn.arrays.linalg import positive_part
from tracelearn.errors import brief, check_name_is_free

__all__ = [
    "LOSSES",
    "Huber",
    "LogLoss",
    "Loss",
    "Multinomial",
    "Poisson",
    "SquaredError",
    "SquaredHinge",
    "n_columns",
    "softmax",
]

LOSSES: dict[str, type[Loss]] = {}  # filled by the classes themselves

# Takes a function of targets, predictions and shares (the weights of the samples, which sum to one) that sums something
# over the samples it is given, and returns the sum over all samples, wherever those are.
Total = Callable[[Callable[[Array, Array, Array], Any]], Any]


# The rounding error of a mean of many terms, in units of the last place: searches end there, since beyond it is noise.
_ROUNDING = 64.0

# The search for the intercepts of softmax regression.
_STEPS = 30  # of Newton's method, before it is tried with scores divided by a temperature
_COOLING = 3.0  # what the temperature is divided by each time
_NEARLY = 1e-10  # the error of a mean probability up to which probabilities count as matched


@dataclass(frozen=True)
class Loss:
    """What the data fit and the estimators ask of a loss; most answers have a default."""

    name: ClassVar[str]
    for_numbers: ClassVar[bool] = False  # targets of regression
    for_classes: ClassVar[bool] = False  # labels, coded by ``encode``
    has_moments: ClassVar[bool] = False  # whether second moments of the samples hold all it needs
    has_probabilities: ClassVar[bool] = False
    is_separable: ClassVar[bool] = True  # whether every target has a loss of its own
    is_shift_invariant: ClassVar[bool] = False  # whether only the difference of target and prediction counts
    curvature: ClassVar[float | None] = None  # a bound on the second derivative, None where there is none
    for_one: ClassVar[str | None] = None  # the name of the loss to use instead where targets are one column
    for_several: ClassVar[str | None] = None  # the name of the loss to use instead where targets are several columns

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in vars(cls):  # a subclass that only inherits a name must not take it over
            check_name_is_free(LOSSES, cls, "a loss")
            LOSSES[cls.name] = cls

    def check_target(self, y: Array) -> None:
        """Refuse targets that the loss has no value for, in one block of samples."""

    def check_mean(self, y_mean: Array) -> None:
        """Refuse targets of all samples whose mean (K,) no model predicts."""

    def encode(self, members: Array) -> Array:
        """Code classes, given as columns (n, n_classes) of zeros and ones: -1 and 1, one column for two classes."""
        return 2.0 * (members[:, 1:] if members.shape[1] == 2 else members) - 1.0

    def inverse_link(self, z: Array) -> Array:
        """Turn scores into predictions."""
        return z

    def log_probabilities(self, z: Array) -> Array:
        """Turn scores (n, K) into the logarithms of the probabilities of the classes."""
        raise NotImplementedError

    def value(self, y: Array, z: Array) -> Array:
        """Evaluate the loss of each sample."""
        raise NotImplementedError

    def derivative(self, y: Array, z: Array) -> Array:
        """Differentiate with respect to z, (n, K)."""
        raise NotImplementedError

    def curvatures(self, y: Array, z: Array) -> Array:
        """Evaluate the second derivatives at z, (n, K), which weigh the samples in Newton's method.

        Or those of a parabola that bounds the loss from above and touches it at z; where targets are coupled, the ``coupling``.
        """
        raise NotImplementedError

    def coupling(self, y: Array, z: Array) -> Array | None:
        """Evaluate the c (n, K), not negative and of sum one, for which the Hessian is ``diag(c) - c c'``.

        None where targets are separate. Losses that couple targets are of this form: equal scores for all change nothing.
        """
        return None

    def conjugate(self, y: Array, u: Array) -> Array:
        """Evaluate ``sup_z u z - loss(y, z)`` for each sample."""
        raise NotImplementedError

    def intercept(self, total: Total, start: Array) -> Array:
        """Find the b (K,) that minimises the mean loss of ``z + b``, from sums alone, beginning at ``start``.

        It is the zero of the mean derivative in each column: a step of Newton, then secants, kept inside a bracket. Only the
        sums over samples are taken on the device. The brackets are plain numbers of Python, since on a GPU a comparison costs as
        much as a sum over all samples.
        """
        xp = array_namespace(start)
        eps = float(xp.finfo(start.dtype).eps)
        kind = {"dtype": start.dtype, "device": device(start)}
        largest_curvature = 1.0 if self.curvature is None else self.curvature
        columns = [_Bracket(value, largest_curvature) for value in to_numbers(start)]
        b = start
        for _ in range(300):
            shift = b
            means = to_numbers(total(lambda y, z, share: self._means_at(shift, y, z, share)))  # noqa: B023 - called here
            moved = []
            for k, column in enumerate(columns):
                derivative, size, curvature = means[k :: len(columns)]
                moved.append(column.moved(derivative, size, curvature, eps))
            if all(new is old for new, old in zip(moved, columns, strict=True)):
                break
            columns = moved
            b = xp.asarray([column.b for column in columns], **kind)
        return b

    def _means_at(self, shift: Array, y: Array, z: Array, share: Array) -> Array:
        """Average for each column the derivative, its size, which bounds the rounding error, and the curvature: (3 K,)."""
        xp = array_namespace(z)
        derivative = self.derivative(y, z + shift)
        return share @ xp.concat([derivative, xp.abs(derivative), self.curvatures(y, z + shift)], axis=1)


def n_columns(n_classes: int) -> int:
    """Count the targets that code some classes: one column for two classes, else one for each."""
    return 1 if n_classes == 2 else n_classes


@dataclass(frozen=True)
class _Bracket:
    """The search for one intercept: where it is, and between which values the answer lies."""

    b: float
    largest_curvature: float
    low: float = -math.inf
    high: float = math.inf
    reach: float = 1.0  # the longest step while one end is open
    last: tuple[float, float] | None = None  # the intercept before, and the mean derivative there

    def moved(self, derivative: float, size: float, curvature: float, eps: float) -> _Bracket:
        """Take a step, given means of the derivative, of its absolute value and of the curvature; return ``self`` when done."""
        if abs(derivative) <= _ROUNDING * eps * size:
            return self
        low, high = (self.b, self.high) if derivative < 0 else (self.low, self.b)
        is_closed = math.isfinite(low) and math.isfinite(high)
        middle = 0.5 * (low + high) if is_closed else self.b - math.copysign(self.reach, derivative)
        reach = self.reach if is_closed else 2.0 * self.reach
        size_before = math.inf
        slope = curvature
        if self.last is not None:
            size_before = abs(self.last[1])
            slope = (derivative - self.last[1]) / (self.b - self.last[0])
        newton = self.b - derivative / (slope if slope > 1e-12 * self.largest_curvature else self.largest_curvature)
        # A step that did not halve the derivative is followed by a bisection: secants alone may creep.
        is_good = low < newton < high and abs(newton - self.b) <= reach and abs(derivative) < 0.5 * size_before
        after = newton if is_good else middle
        if abs(after - self.b) <= 0.5 * eps * abs(self.b):
            return self
        return _Bracket(after, self.largest_curvature, low, high, reach, (self.b, derivative))


@dataclass(frozen=True)
class SquaredError(Loss):
    """The squared error ``(y - z)^2``, without a half."""

    name: ClassVar[str] = "squared_error"
    for_numbers: ClassVar[bool] = True
    for_classes: ClassVar[bool] = True
    has_moments: ClassVar[bool] = True
    is_shift_invariant: ClassVar[bool] = True
    curvature: ClassVar[float | None] = 2.0

    def value(self, y: Array, z: Array) -> Array:
        """Evaluate ``(y - z)^2``."""
        return (y - z) ** 2

    def derivative(self, y: Array, z: Array) -> Array:
        """Evaluate ``2 (z - y)``."""
        return 2.0 * (z - y)

    def curvatures(self, y: Array, z: Array) -> Array:
        """Return 2 everywhere."""
        return array_namespace(z).full_like(z, 2.0)

    def conjugate(self, y: Array, u: Array) -> Array:
        """Evaluate ``u^2 / 4 + u y``."""
        return 0.25 * u**2 + u * y

    def intercept(self, total: Total, start: Array) -> Array:
        """Take the mean residual."""
        residual: Array = total(lambda y, z, share: share @ (y - z))
        return residual


@dataclass(frozen=True)
class Huber(Loss):
    """Squared up to ``delta``, linear beyond: outliers pull with bounded force."""

    name: ClassVar[str] = "huber"
    for_numbers: ClassVar[bool] = True
    is_shift_invariant: ClassVar[bool] = True
    curvature: ClassVar[float | None] = 2.0
    delta: float = 1.35

    def __post_init__(self) -> None:
        if not (isinstance(self.delta, Real) and 0 < self.delta < math.inf):
            raise ValueError(
                f"Expected a finite delta above 0, got {brief(self.delta)}: the size of a residual, in units of y."
            )

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
        """Return the curvature of the parabola that bounds the loss from above; that of the linear part itself is zero."""
        xp = array_namespace(z)
        return 2.0 * self.delta / xp.clip(xp.abs(z - y), min=self.delta)

    def conjugate(self, y: Array, u: Array) -> Array:
        """Evaluate ``u^2 / 4 + u y``, for ``|u| <= 2 delta``."""
        return 0.25 * u**2 + u * y


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """The squared margin violation ``max(0, 1 - y z)^2`` for targets -1 and 1."""

    name: ClassVar[str] = "squared_hinge"
    for_classes: ClassVar[bool] = True
    curvature: ClassVar[float | None] = 2.0

    def value(self, y: Array, z: Array) -> Array:
        """Evaluate ``max(0, 1 - y z)^2``."""
        return positive_part(1.0 - y * z) ** 2

    def derivative(self, y: Array, z: Array) -> Array:
        """Evaluate ``-2 y max(0, 1 - y z)``."""
        return -2.0 * y * positive_part(1.0 - y * z)

    def curvatures(self, y: Array, z: Array) -> Array:
        """Return two inside the margin, zero beyond."""
        return 2.0 * array_namespace(z).astype(y * z < 1.0, z.dtype)

    def conjugate(self, y: Array, u: Array) -> Array:
        """Evaluate ``a^2 / 4 - a`` with ``a = -u y >= 0``."""
        a = -u * y
        return 0.25 * a**2 - a


def _exp(z: Array) -> Array:
    """Evaluate ``exp(z)``, constant beyond z = 200: after a step that is too long the loss is large, and does not overflow."""
    xp = array_namespace(z)
    return xp.exp(xp.clip(z, max=200.0))


def _entropy(v: Array) -> Array:
    """Evaluate ``v log v``, which is zero at zero; rounding may leave v just below it."""
    xp = array_namespace(v)
    positive = xp.where(v > 0, v, xp.ones_like(v))
    return positive * xp.log(positive) * xp.astype(v > 0, v.dtype)


@dataclass(frozen=True)
class LogLoss(Loss):
    """The logistic loss ``log(1 + exp(-y z))`` for targets -1 and 1; for more than two classes that of softmax regression."""

    name: ClassVar[str] = "log_loss"
    for_classes: ClassVar[bool] = True
    has_probabilities: ClassVar[bool] = True
    curvature: ClassVar[float | None] = 0.25
    for_several: ClassVar[str | None] = "multinomial"

    def log_probabilities(self, z: Array) -> Array:
        """Evaluate the logarithm of the softmax, the first of two classes at score zero."""
        xp = array_namespace(z)
        return Multinomial().log_probabilities(xp.concat([xp.zeros_like(z), z], axis=1) if z.shape[1] == 1 else z)

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

    def conjugate(self, y: Array, u: Array) -> Array:
        """Evaluate the negative entropy of ``a = -u y`` in [0, 1]."""
        a = -u * y
        return _entropy(a) + _entropy(1.0 - a)


@dataclass(frozen=True)
class Multinomial(Loss):
    """The loss of softmax regression, ``log sum_k exp(z_k) - z_y``, for one-hot targets."""

    name: ClassVar[str] = "multinomial"
    for_classes: ClassVar[bool] = True
    has_probabilities: ClassVar[bool] = True
    is_separable: ClassVar[bool] = False
    curvature: ClassVar[float | None] = 0.5  # Boehning's bound on the Hessian, the same for every class
    for_one: ClassVar[str | None] = "log_loss"  # two classes are coded in one column

    def encode(self, members: Array) -> Array:
        """Code classes as zeros and ones; two of them, as the logistic loss does, in one column of -1 and 1."""
        return members if members.shape[1] > 2 else LogLoss().encode(members)

    def value(self, y: Array, z: Array) -> Array:
        """Evaluate the log of the sum of exponentials less the score of the true class, (n, 1)."""
        return softmax(z)[0] - array_namespace(z).sum(y * z, axis=1, keepdims=True)

    def probabilities(self, z: Array) -> Array:
        """Evaluate the softmax of every row."""
        return softmax(z)[1]

    def log_probabilities(self, z: Array) -> Array:
        """Evaluate the logarithm of the softmax of every row, which is finite even where the softmax underflows to zero."""
        log_of_sum, _ = softmax(z)
        return z - log_of_sum

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
        b, is_matched = self._matched(total, start)
        if is_matched:
            return b
        # Where nearly all probabilities are zero or one, the quadratic model of a Newton step holds nowhere near. So scores are
        # divided by a temperature, which is lowered to one, starting each time from the intercepts before.
        xp = array_namespace(start)
        temperature = float(xp.max(total(lambda y, z, share: share @ xp.abs(z))))
        b = start
        while temperature > 1.0:
            b = temperature * self._matched(_softened(total, temperature), b / temperature)[0]
            temperature = temperature / _COOLING
        return self._matched(total, b)[0]

    def _matched(self, total: Total, start: Array) -> tuple[Array, bool]:
        """Match by steps of Newton or of scaling; return the intercepts, and whether they match after at most ``_STEPS``."""
        xp = array_namespace(start)
        b = start
        K = start.shape[0]
        eps = float(xp.finfo(b.dtype).eps)
        tiny = float(xp.finfo(b.dtype).smallest_normal)
        reach = 4.0

        def state(b: Array) -> tuple[float, float, Array, Array]:
            """Return the loss, the largest error of the mean probabilities, their errors (K,), and the mean of their products."""

            def sums(y: Array, z: Array, share: Array) -> tuple[Array, Array, Array]:
                logs, p = softmax(z + b)
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
            # Where probabilities are saturated Newton fails; scaling (b_k += log of the target share over the mean
            # probability) never raises the loss, since the logarithm is concave.
            scaling = xp.log((positive_part(probability - mean) + tiny) / (probability + tiny))
            for step in (newton, 0.25 * newton, scaling):
                trial, trial_error, *trial_means = state(b + step)
                if trial_error < 0.5 * error or trial < value - 0.1 * abs(float(mean @ step)):
                    break
            if trial >= value and trial_error >= error:
                break
            b = b + step
            value = trial
            error = trial_error
            mean, products = trial_means
        return b - xp.mean(b), error <= max(_NEARLY, _ROUNDING * eps)


def _softened(total: Total, temperature: float) -> Total:
    """Return the sum over samples whose scores are divided by a temperature."""
    return lambda term: total(lambda y, z, share: term(y, z / temperature, share))


def softmax(z: Array) -> tuple[Array, Array]:
    """Return the log of the sum of exponentials over classes, (n, 1), and the probabilities (n, K)."""
    xp = array_namespace(z)
    top = xp.max(z, axis=1, keepdims=True)
    e = xp.exp(z - top)
    total = xp.sum(e, axis=1, keepdims=True)
    return top + xp.log(total), e / total


def _diagonal(v: Array) -> Array:
    """Build the diagonal matrix of a vector."""
    xp = array_namespace(v)
    return v[:, None] * xp.eye(v.shape[0], dtype=v.dtype, device=device(v))


@dataclass(frozen=True)
class Poisson(Loss):
    """Half the deviance of counts with a log link, ``exp(z) - y z`` up to a constant: predictions are ``exp(z)``."""

    name: ClassVar[str] = "poisson"
    for_numbers: ClassVar[bool] = True

    def check_target(self, y: Array) -> None:
        """Refuse negative numbers."""
        if bool(array_namespace(y).any(y < 0)):
            raise ValueError("Expected counts for loss='poisson', got negative numbers: choose another loss.")

    def check_mean(self, y_mean: Array) -> None:
        """Refuse targets that are all zero, whose best intercept is minus infinity."""
        if not bool(array_namespace(y_mean).all(y_mean > 0)):
            raise ValueError("Expected counts for loss='poisson', got only zeros: choose another loss.")

    def inverse_link(self, z: Array) -> Array:
        """Evaluate ``exp(z)``."""
        return _exp(z)

    def value(self, y: Array, z: Array) -> Array:
        """Evaluate ``exp(z) - y z + y log y - y``, which is zero at the best z."""
        return positive_part(_exp(z) - y * z + _entropy(y) - y)

    def derivative(self, y: Array, z: Array) -> Array:
        """Evaluate ``exp(z) - y``."""
        return _exp(z) - y

    def curvatures(self, y: Array, z: Array) -> Array:
        """Evaluate ``exp(z)``, which no number bounds."""
        return _exp(z)

    def conjugate(self, y: Array, u: Array) -> Array:
        """Evaluate ``v log v - v - (y log y - y)`` with ``v = u + y >= 0``."""
        v = positive_part(u + y)
        return _entropy(v) - v - _entropy(y) + y

    def intercept(self, total: Total, start: Array) -> Array:
        """Match the mean prediction with the mean count; the mean score is subtracted first, so that nothing overflows."""
        xp = array_namespace(start)
        counts, middle = total(lambda y, z, share: (share @ y, share @ z))
        return xp.log(counts) - middle - xp.log(total(lambda y, z, share: share @ _exp(z - middle)))
