"""A tree of binary trace norm models for many classes, from the moments of each class.

Invariant: a node learns from the sum of its classes' moments, those of the left child with target -1 and those of the
right one with +1. That sum is the moments of the node's samples, so no node reads samples again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from numbers import Real
from operator import add
from typing import Any, Self

import numpy as np
from scipy.cluster.hierarchy import linkage
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array
from tracelearn.confounds import Regression
from tracelearn.estimators import TraceNormClassifier
from tracelearn.moments import Moments
from tracelearn.samples.checks import check_finite, learning, read_confounds, read_labels, read_samples, read_weights
from tracelearn.samples.samples import Block, Samples, unnamed
from tracelearn.samples.scikit_learn import Interval, StrOptions

__all__ = ["HierarchicalTraceNormClassifier"]

_SHARED = ("alpha", "ridge", "penalty", "mode_weights", "fit_intercept", "tensor_shape", "tol", "max_iter", "verbose")


@dataclass(frozen=True)
class _Node:
    """Two groups of classes, by their index, told apart by one model."""

    left: frozenset[int]
    right: frozenset[int]


class HierarchicalTraceNormClassifier(ClassifierMixin, BaseEstimator):
    """Classification of tensors into many classes by a tree of binary trace norm models.

    The tree joins the classes whose means are closest, then the groups. At each of its K - 1 nodes one squared loss
    model, certified as that of ``TraceNormClassifier``, separates the classes on the left from those on the right, and a
    sample descends from the root to a class. All nodes learn from the moments of the classes, so samples are read once.

    It helps where class means crowd in fewer dimensions than there are classes, as they do in a hierarchy: a flat model
    has one score for each class against all others, and a class that lies between others never scores highest. Where
    means spread over more dimensions than there are classes it does not help: every step down can err, and the flat
    ``TraceNormClassifier``, or its ``target_mode=True``, is as good or better, quicker, and needs less memory. The
    example ``plot_hierarchy.py`` shows both sides.

    Parameters
    ----------
    alpha : float or "auto", default="auto"
        Strength of the trace norm, at every node. "auto" is a share of each node's own largest, as in ``TraceNormClassifier``.
    ridge : float, default=0.0
        Strength of the squared norm, at every node.
    tree : {"ward", "average", "complete"} or nested pairs of labels, default="ward"
        How class means are joined, or the tree itself, such as ``(("cat", "dog"), ("car", "bus"))``.
    penalty : {"overlapped", "latent", "scaled_latent"}, default="overlapped"
    mode_weights : sequence of N floats, default=None
    class_weight : dict or "balanced", default=None
        Applied to the moments of the classes: with "balanced" all classes weigh the same, in ``partial_fit`` too.
    fit_intercept : bool, default=True
    tensor_shape : sequence of ints, default=None
        The shape of a sample if X is flat, of shape (n_samples, n_features).
    tol : float, default=1e-6
        Relative duality gap to reach at every node.
    max_iter : int, default=1000
    forgetting : float in (0, 1], default=1.0
        The factor by which each call of ``partial_fit`` multiplies the weight of all earlier samples.
    verbose : int, default=0

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    tree_ : nested pairs of labels
        The tree that was found; the side with the class that comes first in ``classes_`` is the left one.
    nodes_ : list of (left labels, right labels)
        From the root down, left before right.
    estimators_ : list of TraceNormClassifier
        The model of each node, with its own ``coef_``, ``mode_ranks_``, ``patterns_`` and ``dual_gap_``; it predicts -1
        for left and 1 for right.
    coef_ : array of shape (n_nodes, I1, ..., IN), or (n_nodes, n_features) for flat samples
        The weights of each node.
    coef_tensor_ : array of shape (n_nodes, I1, ..., IN)
    intercept_ : array of shape (n_nodes,)
    confound_coef_ : array of shape (n_nodes, n_confounds)
        Where ``fit`` had confounds, their weights in the score of each node. One regression of all samples by them, from the sum
        of ``class_moments_``, in which they are features after those of the samples, serves all nodes; ``estimators_`` are
        models of what it leaves.
    alpha_ : array of shape (n_nodes,)
        The strength of the trace norm that was used.
    n_iter_ : int
    dual_gap_ : float
        The largest over all nodes.
    class_moments_ : list of Moments, one for each class
        All that was learned from the samples, with one p by p matrix for each class: for large p compress the samples
        first, as with ``ModePCA``.
    sample_shape_ : tuple of ints
    n_features_in_ : int
        Number of entries of a sample.

    Notes
    -----
    The paper leaves "hierarchy methods" for many classes as future work (section 7). Means are joined by Ward's criterion
    in the plain metric: it makes balanced trees, hence few steps to err in. A metric whitened by the covariance within
    classes was tried: accuracies changed by about one point in either direction, for one more p by p factorisation.

    Examples
    --------
    >>> import numpy as np
    >>> from tracelearn import HierarchicalTraceNormClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.choice(["cat", "dog", "bus", "car"], 200)
    >>> X = rng.normal(size=(200, 4, 3))
    >>> X[:, 0] += 4.0 * np.isin(y, ["cat", "dog"])[:, None]
    >>> X[:, 1] += 2.0 * np.isin(y, ["cat", "car"])[:, None]
    >>> model = HierarchicalTraceNormClassifier().fit(X, y)
    >>> model.tree_
    (('bus', 'car'), ('cat', 'dog'))
    >>> model.coef_.shape, model.score(X, y) > 0.9
    ((3, 4, 3), True)
    """

    class_moments_: list[Moments]
    _flat = False  # whether samples of more than one mode came flat

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's convention
        **{name: TraceNormClassifier._parameter_constraints[name] for name in _SHARED},
        "tree": [StrOptions({"ward", "average", "complete"}), list, tuple],
        "class_weight": TraceNormClassifier._parameter_constraints["class_weight"],
        "forgetting": [Interval(Real, 0, 1, closed="right")],
    }

    def __init__(
        self,
        alpha: Any = "auto",
        *,
        ridge: float = 0.0,
        tree: Any = "ward",
        penalty: str = "overlapped",
        mode_weights: Any = None,
        class_weight: Any = None,
        fit_intercept: bool = True,
        tensor_shape: Any = None,
        tol: float = 1e-6,
        max_iter: int = 1000,
        forgetting: float = 1.0,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.ridge = ridge
        self.tree = tree
        self.penalty = penalty
        self.mode_weights = mode_weights
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.tensor_shape = tensor_shape
        self.tol = tol
        self.max_iter = max_iter
        self.forgetting = forgetting
        self.verbose = verbose

    @learning
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, confounds: Any = None) -> Self:
        """Learn from all samples at once.

        Parameters
        ----------
        X : array of shape (n_samples, I1, ..., IN), or (n_samples, n_features) with ``tensor_shape``
        y : array of labels of shape (n_samples,)
        sample_weight : array of shape (n_samples,), default=None
        confounds : array of shape (n_samples,) or (n_samples, n_confounds), default=None
            Regressed out of the samples; predictions need those of their samples then.
        """
        self._models: dict[_Node, TraceNormClassifier] = {}
        self._learn(X, y, sample_weight, confounds, None, first=True)
        return self

    @learning
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None, confounds: Any = None
    ) -> Self:
        """Learn from more samples; afterwards the model is the one of all samples so far, to ``tol``.

        The samples are added to ``class_moments_``, the tree is found anew, and nodes that stay start from their last
        solution. A class that has not come yet has no place in the tree, and is not predicted.

        Parameters
        ----------
        X, y, sample_weight, confounds : as for ``fit``
        classes : array of all labels that will ever come, needed in the first call
        """
        first = not hasattr(self, "class_moments_")
        if first and classes is None:
            raise ValueError(
                "Expected classes in the first call of partial_fit, got None: name all labels that will ever come."
            )
        if not first and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"Expected the classes of the first call, {self.classes_.tolist()}, got {np.unique(classes).tolist()}."
            )
        if first:
            self._models = {}
        known = np.unique(classes) if first else self.classes_
        self._learn(X, y, sample_weight, confounds, known, first=first)
        return self

    def _learn(self, X: Any, y: Any, sample_weight: Any, confounds: Any, classes: Any, *, first: bool) -> None:
        for name in ("modes_", "confound_coef_") if first else ():
            self.__dict__.pop(name, None)
        X, y, modes = unnamed(X, y, getattr(self, "modes_", None))
        self.__dict__.update({} if modes is None else {"modes_": modes})
        rows, shape = read_samples(self, X, reset=first)
        labels, known = read_labels(y, rows, classes)
        weight, C = read_weights(sample_weight, rows), self._read_confounds(confounds, len(rows), any_number=first)
        self.classes_, self.sample_shape_, self._dtype = known, shape, rows.dtype
        if first:
            self._flat = len(shape) > 1 and len(np.shape(X)) == 2
            past = [Moments.zero(rows.shape[1] + (0 if C is None else C.shape[1]))] * len(known)
        else:
            past = [moments.scaled(self.forgetting) for moments in self.class_moments_]
        self.class_moments_ = [
            _add(moments, rows, weight, C, labels == label, shape) for moments, label in zip(past, known, strict=True)
        ]
        self._grow()

    def _read_confounds(self, confounds: Any, n: int, *, any_number: bool) -> Array | None:
        """Read confounds (n, q), as many as in ``fit`` unless it is the one that asks."""
        found = None if confounds is None else read_confounds(confounds, n)
        expected, got = (0 if a is None else a.shape[1] for a in (getattr(self, "confound_coef_", None), found))
        if not any_number and got != expected:
            raise ValueError(
                f"Expected {expected or 'no'} confounds of each sample, as in fit, got {got or 'none'}: pass "
                f"{'confounds=' if expected else 'samples alone'}."
            )
        return found

    # Text formats have no dictionary of nodes: written as a list, read as what it was.

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if "_models" not in state:
            return state
        models = [(sorted(node.left), sorted(node.right), model) for node, model in state["_models"].items()]
        return {**state, "_models": models, "estimators_": None}  # the models once more

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_models" in state:
            models = {_Node(frozenset(left), frozenset(right)): model for left, right, model in state["_models"]}
            state = {**state, "_models": models, "estimators_": list(models.values())}
        super().__setstate__(state)

    # --- the tree ----------------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Find the tree and the model of each of its nodes."""
        scales = self._class_scales()
        if not scales:
            raise ValueError("Expected a class with samples of weight above zero, got none: change class_weight.")
        moments = {k: self.class_moments_[k].scaled(scale) for k, scale in scales.items()}
        moments, regression = self._without_confounds(moments)
        tree = self._join(moments) if isinstance(self.tree, str) else self._read_tree(self.tree)
        tree = _ordered(_pruned(tree, set(scales)))
        models: dict[_Node, TraceNormClassifier] = {}
        self._solve(tree, moments, models)
        self._seen = sorted(scales)
        self._models = {node: models[node] for node in _nodes(tree)}
        self.tree_ = _labelled(tree, self.classes_.tolist())
        self._describe(regression)

    def _without_confounds(self, moments: dict[int, Moments]) -> tuple[dict[int, Moments], Regression | None]:
        """Regress confounds, if there are any, out of the moments of all classes, as the sum of them says."""
        total = reduce(add, moments.values())
        if total.n_features == self.n_features_in_:
            return moments, None
        regression = Regression.of_joint(total if self.fit_intercept else total.uncentred(), self.n_features_in_)
        return {k: regression.residual_moments(own) for k, own in moments.items()}, regression

    def _join(self, moments: dict[int, Moments]) -> Any:
        """Join the closest means, and so on until one is left."""
        trees: list[Any] = list(moments)
        if len(trees) > 1:
            means = np.stack([own.x_mean for own in moments.values()])
            for left, right, *_ in linkage(means - means.mean(axis=0), method=self.tree):
                trees.append((trees[int(left)], trees[int(right)]))
        return trees[-1]

    def _read_tree(self, tree: Any) -> Any:
        """Replace the labels of a given tree by their index."""
        index = {label: k for k, label in enumerate(self.classes_.tolist())}

        def read(part: Any) -> Any:
            if isinstance(part, list | tuple):
                if len(part) != 2:
                    raise ValueError(f"Expected a tree of nested pairs of labels, got {len(part)} parts in {part!r}.")
                return read(part[0]), read(part[1])
            label = part.item() if isinstance(part, np.generic) else part
            if label not in index:
                raise ValueError(f"Expected labels among {list(index)} in the tree, got {part!r}.")
            return index[label]

        found = read(tree)
        leaves = sorted(_leaves(found))
        if leaves != list(range(len(index))):
            raise ValueError(
                f"Expected every one of the labels {list(index)} once in the tree, got {[list(index)[k] for k in leaves]}."
            )
        return found

    def _class_scales(self) -> dict[int, float]:
        """Find the factor that ``class_weight`` gives each class; classes without any weight are left out."""
        labels = self.classes_.tolist()
        weights = {k: moments.weight for k, moments in enumerate(self.class_moments_) if moments.weight > 0.0}
        if self.class_weight is None:
            return dict.fromkeys(weights, 1.0)
        if isinstance(self.class_weight, str):
            return {k: sum(weights.values()) / (len(weights) * weight) for k, weight in weights.items()}
        unknown = [label for label in self.class_weight if label not in labels]
        if unknown:
            raise ValueError(f"Expected class_weight to name classes among {labels}, got {unknown}.")
        scales = {k: float(self.class_weight.get(labels[k], 1.0)) for k in weights}
        return {k: scale for k, scale in scales.items() if scale != 0.0}

    def _solve(self, tree: Any, moments: dict[int, Moments], models: dict[_Node, TraceNormClassifier]) -> Moments:
        """Solve every node, the lower ones first, and return the moments of all classes below."""
        if not isinstance(tree, tuple):
            return moments[int(tree)]
        left, right = (self._solve(child, moments, models) for child in tree)
        both: Moments = _with_target(left, -1.0) + _with_target(right, 1.0)
        node = _node(tree)
        models[node] = self._node_model(node, both)
        return both

    def _node_model(self, node: _Node, moments: Moments) -> TraceNormClassifier:
        before = self._models.get(node)
        model = TraceNormClassifier(**{name: getattr(self, name) for name in _SHARED})
        model.n_features_in_, model.classes_, model._dtype = self.n_features_in_, np.array([-1, 1]), self._dtype
        model.sample_shape_, model._goes_on = self.sample_shape_, True
        if before is not None and hasattr(before, "_solution"):
            model._solution, model._solved = before._solution, before._solved
        # Moments are another p by p matrix for each node, and the sum of those of its classes.
        model._fit_moments(moments, warm=before is not None, keep=False)
        return model

    def _describe(self, regression: Regression | None) -> None:
        labels = self.classes_.tolist()
        models = list(self._models.values())
        self.nodes_ = [
            ([labels[k] for k in sorted(node.left)], [labels[k] for k in sorted(node.right)]) for node in self._models
        ]
        self.estimators_ = models
        empty = np.zeros((0, *self.sample_shape_), self._dtype)
        coef = np.concatenate([empty, *(model.coef_tensor_ for model in models)])
        self.coef_ = coef.reshape(len(coef), -1) if self._flat else coef
        self.intercept_ = np.concatenate([np.zeros(0), *(model.intercept_ for model in models)])
        if regression is not None:
            self.confound_coef_ = regression.weights(coef.reshape(len(coef), self.n_features_in_).astype(np.float64))
            self.intercept_ = self.intercept_ - self.confound_coef_ @ regression.centre
        self.alpha_ = np.array([model.alpha_ for model in models], dtype=float)
        self.n_iter_ = max((model.n_iter_ for model in models), default=0)
        self.dual_gap_ = max((model.dual_gap_ for model in models), default=0.0)

    # --- the model ---------------------------------------------------------------------------------------------------

    @property
    def coef_tensor_(self) -> Array:
        """The weights of each node as tensors, whether samples came flat or not."""
        check_is_fitted(self)
        return self.coef_.reshape(len(self.coef_), *self.sample_shape_)

    def _class_scores(self, X: Any, confounds: Any) -> Array:
        check_is_fitted(self)
        X, _, _ = unnamed(X, 0, getattr(self, "modes_", None))
        rows, _ = read_samples(self, X, reset=False)
        C = self._read_confounds(confounds, len(rows), any_number=False)
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            steps = rows @ self.coef_.reshape(-1, rows.shape[1]).T + self.intercept_
            steps = steps if C is None else steps + C @ self.confound_coef_.T
        check_finite(steps, "scores", overflows=True)
        scores = np.full((rows.shape[0], len(self.classes_)), -np.inf, steps.dtype)
        for k in self._seen:
            signs = np.array([(k in node.right) * 1.0 - (k in node.left) for node in self._models])
            path = np.flatnonzero(signs)
            scores[:, k] = np.min(steps[:, path] * signs[path], axis=1, initial=np.inf)
        return scores

    def decision_function(self, X: Any, confounds: Any = None) -> Array:
        """Score every sample: one column for each class, or for two classes one score that is positive for the second.

        The score of a class is the weakest link of its path: the smallest of the scores of the steps that lead to it.
        Only for the class where the descent ends are all of them positive.
        """
        scores = self._class_scores(X, confounds)
        return scores[:, 1] if len(self.classes_) == 2 else scores

    def predict(self, X: Any, confounds: Any = None) -> Array:
        """Predict the label of each sample: where its descent of the tree ends."""
        scores = self._class_scores(X, confounds)
        return self.classes_[np.argmax(scores, axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None, confounds: Any = None) -> float:
        """Return the accuracy."""
        return float(accuracy_score(y, self.predict(X, confounds), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _add(
    past: Moments, rows: Array, weight: Array | None, confounds: Array | None, own: Array, shape: tuple[int, ...]
) -> Moments:
    """Add the samples of one class, and their confounds, to its moments."""
    if not np.any(own):
        return past
    weight, confounds = (None if a is None else a[own] for a in (weight, confounds))
    block = Block(rows[own], np.zeros((int(own.sum()), 1)), weight, confounds=confounds)
    return Samples.of(block, shape).moments(past)


def _with_target(moments: Moments, target: float) -> Moments:
    """Give all samples one target: a constant has neither variance nor covariance."""
    zero = np.zeros_like
    return replace(moments, y_mean=np.array([target]), cross=zero(moments.cross), target_sq=zero(moments.target_sq))


def _leaves(tree: Any) -> list[int]:
    return [leaf for child in tree for leaf in _leaves(child)] if isinstance(tree, tuple) else [tree]


def _node(tree: tuple[Any, Any]) -> _Node:
    return _Node(frozenset(_leaves(tree[0])), frozenset(_leaves(tree[1])))


def _nodes(tree: Any) -> Iterator[_Node]:
    """Walk the nodes from the root down, left before right."""
    if isinstance(tree, tuple):
        yield _node(tree)
        for child in tree:
            yield from _nodes(child)


def _pruned(tree: Any, keep: set[int]) -> Any:
    """Cut off the classes that have no samples."""
    if not isinstance(tree, tuple):
        return tree if tree in keep else None
    left, right = (_pruned(child, keep) for child in tree)
    return (left, right) if left is not None and right is not None else right if left is None else left


def _ordered(tree: Any) -> Any:
    """Put the side with the smallest index left, so that equal trees look equal and 1 means the later of two classes."""
    if not isinstance(tree, tuple):
        return tree
    left, right = (_ordered(child) for child in tree)
    return (left, right) if min(_leaves(left)) < min(_leaves(right)) else (right, left)


def _labelled(tree: Any, labels: list[Any]) -> Any:
    return tuple(_labelled(child, labels) for child in tree) if isinstance(tree, tuple) else labels[tree]
