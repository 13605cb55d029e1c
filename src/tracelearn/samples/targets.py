"""Targets: numbers or labels as they come, coded as the columns of numbers that a loss compares with scores.

``Numbers`` and ``Labels`` say how the ``y`` of a block of samples is read, alone, so that blocks can be read anywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import device
from sklearn.utils import compute_sample_weight

from tracelearn.arrays.array_api import Array, array_namespace, is_non_numpy, move_to, to_numpy, widest
from tracelearn.errors import InputError
from tracelearn.losses import LOSSES, Loss, n_columns
from tracelearn.moments import Moments
from tracelearn.samples.per_sample import check_classes, read_labels, read_targets, read_weights
from tracelearn.samples.source import Source

__all__ = [
    "CodedTargets",
    "Labels",
    "Numbers",
    "TargetReader",
    "TargetSurvey",
    "labels_of",
    "loss_for",
    "recode",
    "union",
]


@dataclass(frozen=True, eq=False)
class CodedTargets:
    """The targets of a block, coded for a loss, (n, K), and what the samples weigh, (n,) or None for ones.

    ``classes`` are the labels that the codes stand for, None for numbers; ``is_single`` says that y had one axis.
    """

    Y: Array
    weight: Array | None
    classes: Array | None
    is_single: bool


@dataclass(frozen=True, eq=False)
class TargetSurvey:
    """What one pass over the targets finds: the reader for blocks, the number of targets, the classes and the total weight."""

    reader: TargetReader
    n_targets: int
    weight: float
    classes: Array | None
    is_single: bool


def loss_for(loss: Loss, n_targets: int) -> Loss:
    """Return the loss for this number of columns: for several, the logistic loss is the multinomial one."""
    name = loss.for_one if n_targets == 1 else loss.for_several
    return loss if name is None else LOSSES[name]()


@dataclass(frozen=True)
class Numbers:
    """Targets that are numbers, (n,) or (n, K).

    ``is_single`` is whether y has one axis, None where nothing was read before.
    """

    loss: Loss
    is_single: bool | None = None

    def read(self, y: Any, sample_weight: Any, rows: Array, *, is_part: bool = False) -> CodedTargets:
        """Check and code the targets and weights of a block; with ``is_part`` all weights of the block may be zero."""
        y = read_targets(y, rows)
        is_single = y.ndim == 1
        if self.is_single not in (None, is_single):
            raise InputError(
                f"Expected y of the order of the first batch, got shape {tuple(y.shape)}: keep its number of targets."
            )
        Y = y[:, None] if is_single else y
        self.loss.check_target(Y)
        return CodedTargets(Y, read_weights(sample_weight, rows, is_part=is_part), None, is_single)

    def after(self, classes: Array | None, is_single: bool) -> Numbers:
        """Read numbers of the same order."""
        return replace(self, is_single=is_single)

    def survey(self, source: Source) -> TargetSurvey:
        """Read all targets: find how many there are for each sample, and the total weight."""

        def weight_of(targets: tuple[Any, Any]) -> float:
            y, weight = targets
            return float(np.shape(y)[0] if weight is None else np.sum(weight))

        total = source.execution.total(weight_of, source.block_targets)
        first_y, _ = source.execution.first(source.block_targets)
        shape = np.shape(first_y)
        is_single = len(shape) == 1
        return TargetSurvey(replace(self, is_single=is_single), math.prod(shape[1:]), total, None, is_single)


@dataclass(frozen=True, eq=False)
class Labels:
    """Targets that are labels of classes.

    ``classes`` are all labels that may occur; None takes those that occur. With ``may_grow`` new labels become further classes,
    and one class is enough to begin with.
    """

    loss: Loss
    class_weight: Any = None
    classes: Array | None = None
    may_grow: bool = False

    def read(self, y: Any, sample_weight: Any, rows: Array, *, is_part: bool = False) -> CodedTargets:
        """Check and code the targets and weights of a block; with ``is_part`` all weights of the block may be zero."""
        allowed = None if self.may_grow else self.classes
        y, classes = read_labels(y, rows, allowed, least=1 if self.may_grow else 2)
        if self.may_grow and self.classes is not None:
            classes = move_to(union(self.classes, classes), classes)
        members = move_to(y[:, None] == classes[None, :], rows)
        weight = read_weights(sample_weight, rows, is_part=is_part)
        if self.class_weight is not None:
            balance = self._class_weights(y, classes, members, weight)
            weight = balance if weight is None else move_to(balance, rows, weight.dtype) * weight
            weight = read_weights(weight, rows, is_part=is_part)
        columns = array_namespace(members).astype(members, widest(members)["dtype"])
        loss = loss_for(self.loss, n_columns(columns.shape[1]))
        return CodedTargets(loss.encode(columns), weight, classes, is_single=False)

    def after(self, classes: Array | None, is_single: bool) -> Labels:
        """Read labels of these classes, or with ``may_grow`` of more."""
        return replace(self, classes=classes)

    def _class_weights(self, y: Array, classes: Array, members: Array, weight: Array | None) -> Array:
        """Weigh every sample by its class; "balanced" gives all classes the same total weight, whatever their samples weigh."""
        xp = array_namespace(members)
        columns = xp.astype(members, widest(members)["dtype"])
        if isinstance(self.class_weight, str):
            totals = xp.sum(columns if weight is None else columns * weight[:, None], axis=0)
            has_weight = xp.astype(totals > 0, totals.dtype)
            weights = has_weight * xp.sum(totals) / (xp.sum(has_weight) * xp.where(totals > 0, totals, 1.0))
        elif not is_non_numpy(y):
            return compute_sample_weight(self.class_weight, y)
        else:
            by_class = [float(self.class_weight.get(label, 1.0)) for label in to_numpy(classes).tolist()]
            weights = move_to(np.array(by_class), columns, columns.dtype)
        return columns @ weights

    def survey(self, source: Source) -> TargetSurvey:
        """Read all labels: find the classes, and the total weight."""
        of_labels: _LabelWeights = source.execution.total(
            lambda targets: _label_weights(*targets), source.block_targets
        )
        classes = of_labels.classes if self.classes is None else self.classes
        check_classes(classes)
        weights = self.class_weight
        if isinstance(weights, str):  # the shares of classes are known only from all blocks together
            totals = {label: total for label, total in of_labels.by_label.items() if total > 0}
            weights = {label: sum(totals.values()) / (len(totals) * total) for label, total in totals.items()}
        total_weight = sum(total * (weights or {}).get(label, 1.0) for label, total in of_labels.by_label.items())
        reader = replace(self, class_weight=weights, classes=classes)
        return TargetSurvey(reader, n_columns(len(classes)), total_weight, classes, is_single=False)


TargetReader: TypeAlias = Numbers | Labels  # how targets are read, block by block


def _label_weights(y: Any, weight: Any) -> _LabelWeights:
    """Sum up what the samples of each label weigh in a block."""
    labels, where = np.unique(to_numpy(y).ravel(), return_inverse=True)
    weights = None if weight is None else np.asarray(weight, dtype=float)
    totals = np.bincount(where, weights=weights, minlength=len(labels)).astype(float)
    return _LabelWeights(dict(zip(labels.tolist(), totals.tolist(), strict=True)))


@dataclass(frozen=True, eq=False)
class _LabelWeights:
    """The total weight of the samples of each label; those of parts add up."""

    by_label: dict[Any, float]

    def __add__(self, other: _LabelWeights) -> _LabelWeights:
        total = dict(self.by_label)
        for label, weight in other.by_label.items():
            total[label] = total.get(label, 0.0) + weight
        return _LabelWeights(total)

    @property
    def classes(self) -> Array:
        """All labels, sorted."""
        return np.unique(np.array(list(self.by_label)))


def labels_of(scores: Array, classes: Array) -> Array:
    """Choose the class of each sample, given its score (n,) for the second of two classes, or one for each, (n, K).

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.samples.targets import labels_of
    >>> labels_of(np.array([-1.0, 2.0]), np.array(["ash", "birch"]))
    array(['ash', 'birch'], dtype='<U5')
    """
    xp = array_namespace(scores)
    index = xp.astype(scores > 0, xp.int64) if scores.ndim == 1 else xp.argmax(scores, axis=1)
    return array_namespace(classes).take(classes, move_to(index, classes), axis=0)


def union(first: Array, second: Array) -> Array:
    """Join two sets of labels, sorted; refuse text among numbers, which NumPy would silently turn into text.

    Examples
    --------
    >>> from tracelearn.samples.targets import union
    >>> union(["ash", "cedar"], ["birch", "cedar"])
    array(['ash', 'birch', 'cedar'], dtype='<U5')
    """
    first = to_numpy(first)
    second = to_numpy(second)
    is_text = [labels.dtype.kind in "US" for labels in (first, second)]
    is_object = "O" in (first.dtype.kind, second.dtype.kind)
    try:
        if is_text[0] != is_text[1] and not is_object:
            raise TypeError
        return np.union1d(first, second)
    except TypeError:
        raise InputError(
            f"Expected labels of one kind, got {first.tolist()[:3]} and {second.tolist()[:3]}: name the classes in the same "
            "way everywhere."
        ) from None


def recode(moments: Moments, old_classes: Array, new_classes: Array) -> Moments:
    """Find the moments of the same samples, coded for more classes, so that sites which saw different ones can be summed.

    Labels are coded -1 and 1: in one column for two classes, which is 1 for the second; else in one column for each class.
    Every new column is an old one, an old one with its sign turned, or a constant -1, so nothing is rounded.

    Parameters
    ----------
    moments : Moments
        Of samples with labels among ``old_classes``.
    old_classes : sorted array of at least one label
    new_classes : sorted array of labels, among them all of ``old_classes``

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import Moments
    >>> from tracelearn.samples.targets import recode
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> two = Moments.of(X, np.array([-1.0, 1.0, 1.0]))  # "ash", "cedar", "cedar"
    >>> three = recode(two, np.array(["ash", "cedar"]), np.array(["ash", "birch", "cedar"]))
    >>> bool(three.y_mean[1] == -1.0), bool(three.y_mean[0] == -three.y_mean[2])
    (True, True)
    """
    old_classes = to_numpy(old_classes)
    new_classes = to_numpy(new_classes)
    if np.array_equal(old_classes, new_classes):
        return moments
    missing = np.setdiff1d(old_classes, new_classes)
    if missing.size or len(old_classes) == 0:
        raise InputError(
            f"Expected new classes that contain the old ones, {old_classes.tolist()}, got {new_classes.tolist()}: join both "
            "sets of labels first."
        )
    if moments.n_targets != n_columns(len(old_classes)):
        raise InputError(
            f"Expected moments of {n_columns(len(old_classes))} targets for {len(old_classes)} classes, got "
            f"{moments.n_targets}: pass the classes that these moments were coded for."
        )
    factors, constants = _recoding(len(old_classes), np.searchsorted(new_classes, old_classes), len(new_classes))
    xp = array_namespace(moments.gram)
    kind = {"dtype": moments.y_mean.dtype, "device": device(moments.y_mean)}
    A = xp.asarray(factors, **kind)
    b = xp.asarray(constants, **kind)
    cancelled = moments.cancelled
    if cancelled is not None:
        y_sums = cancelled.y_sums @ xp.abs(A) + moments.weight * xp.abs(b)
        cancelled = replace(cancelled, y_squares=cancelled.y_squares @ A**2, y_sums=y_sums)
    # Every column of A has at most one entry, so squares need no products of different targets.
    return replace(
        moments,
        y_mean=moments.y_mean @ A + b,
        cross=moments.cross @ A,
        target_sq=moments.target_sq @ A**2,
        cancelled=cancelled,
    )


def _recoding(n_old: int, places: Array, n_new: int) -> tuple[Array, Array]:
    """Find A and b such that targets T of the old classes are targets ``T A + b`` of the new ones."""
    # Scores of the old classes one by one: with two classes the first is the second with its sign turned.
    scores = np.array([[-1.0, 1.0]]) if n_old == 2 else np.eye(n_old)
    A = np.zeros((scores.shape[0], n_new))
    b = np.full(n_new, -1.0)
    A[:, places] = scores
    b[places] = 0.0
    return (A[:, 1:], b[1:]) if n_new == 2 else (A, b)
