"""Classes as targets: what the moments of labelled samples become when more classes are known.

Invariant: the moments of samples coded for some classes, recoded, are those of the same samples coded for more, and
nothing is rounded on the way. Sites that saw different classes can therefore be summed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from array_api_compat import device

from tracelearn.arrays.array_api import Array, array_namespace, move_to, to_numpy
from tracelearn.losses import n_columns
from tracelearn.moments import Moments

__all__ = ["labels_of", "recode", "union"]


def labels_of(scores: Array, classes: Array) -> Array:
    """Choose the class of each sample, given its score (n,) for the second of two classes, or one for each, (n, K).

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn.estimators.classes import labels_of
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
    >>> from tracelearn.estimators.classes import union
    >>> union(["ash", "cedar"], ["birch", "cedar"])
    array(['ash', 'birch', 'cedar'], dtype='<U5')
    """
    first, second = to_numpy(first), to_numpy(second)
    try:
        if (first.dtype.kind in "US") != (second.dtype.kind in "US") and "O" not in (
            first.dtype.kind,
            second.dtype.kind,
        ):
            raise TypeError
        return np.union1d(first, second)
    except TypeError:
        raise ValueError(
            f"Expected labels of one kind, got {first.tolist()[:3]} and {second.tolist()[:3]}: name the classes in the same "
            "way everywhere."
        ) from None


def recode(moments: Moments, old_classes: Array, new_classes: Array) -> Moments:
    """Find the moments of the same samples, coded for more classes.

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
    >>> from tracelearn.estimators.classes import recode
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> two = Moments.of(X, np.array([-1.0, 1.0, 1.0]))  # "ash", "cedar", "cedar"
    >>> three = recode(two, np.array(["ash", "cedar"]), np.array(["ash", "birch", "cedar"]))
    >>> bool(three.y_mean[1] == -1.0), bool(three.y_mean[0] == -three.y_mean[2])
    (True, True)
    """
    old_classes, new_classes = to_numpy(old_classes), to_numpy(new_classes)
    if np.array_equal(old_classes, new_classes):
        return moments
    missing = np.setdiff1d(old_classes, new_classes)
    if missing.size or len(old_classes) == 0:
        raise ValueError(
            f"Expected new classes that contain the old ones, {old_classes.tolist()}, got {new_classes.tolist()}: join both "
            "sets of labels first."
        )
    if moments.n_targets != n_columns(len(old_classes)):
        raise ValueError(
            f"Expected moments of {n_columns(len(old_classes))} targets for {len(old_classes)} classes, got "
            f"{moments.n_targets}: pass the classes that these moments were coded for."
        )
    factors, constants = _affine(len(old_classes), np.searchsorted(new_classes, old_classes), len(new_classes))
    xp = array_namespace(moments.gram)
    kind = {"dtype": moments.y_mean.dtype, "device": device(moments.y_mean)}
    A, b = xp.asarray(factors, **kind), xp.asarray(constants, **kind)
    # Every column of A has at most one entry, so squares need no products of different targets.
    return replace(moments, y_mean=moments.y_mean @ A + b, cross=moments.cross @ A, target_sq=moments.target_sq @ A**2)


def _affine(n_old: int, places: Array, n_new: int) -> tuple[Array, Array]:
    """Find A and b such that targets T of the old classes are targets ``T A + b`` of the new ones."""
    # Scores of the old classes one by one: with two classes the first is the second with its sign turned.
    scores = np.array([[-1.0, 1.0]]) if n_old == 2 else np.eye(n_old)
    A, b = np.zeros((scores.shape[0], n_new)), np.full(n_new, -1.0)
    A[:, places] = scores
    b[places] = 0.0
    return (A[:, 1:], b[1:]) if n_new == 2 else (A, b)
