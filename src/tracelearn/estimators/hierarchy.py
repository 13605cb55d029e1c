"""A tree of binary trace norm models for many classes, from the moments of each class.

Invariant: a node learns from the sum of its classes' moments, those of the left child with target -1 and those of the
right one with +1. That sum is the moments of the node's samples, so no node reads samples again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial, reduce
from numbers import Real
from operator import add
from typing import Any, Self

import numpy as np
from array_api_compat import device
from scipy.cluster.hierarchy import linkage
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, to_numpy
from tracelearn.confounds import Regression
from tracelearn.errors import InputError, brief
from tracelearn.estimators.base import TensorInput, settings_of
from tracelearn.estimators.classifier import PredictsLabels, TraceNormClassifier
from tracelearn.estimators.online import expected_classes
from tracelearn.estimators.prediction import ScoresSamples
from tracelearn.estimators.weights import as_tensors
from tracelearn.fitting import Fitted, WarmStart, fit_linear, reporter, warn_of_fit
from tracelearn.losses import SquaredError
from tracelearn.moments import Moments
from tracelearn.samples.learning import learning
from tracelearn.samples.reading import Reader, Spec, read
from tracelearn.samples.samples import Block
from tracelearn.samples.scikit_learn import Interval, StrOptions
from tracelearn.samples.source import as_source
from tracelearn.samples.targets import Labels, labels_of

__all__ = ["HierarchicalTraceNormClassifier"]

# Parameters that the model of every node shares.
_SHARED = ("alpha", "ridge", "penalty", "mode_weights", "fit_intercept", "tol", "max_iter", "verbose")

Tree = Any  # the index of a class, or a pair of trees
Node = tuple[tuple[int, ...], tuple[int, ...]]  # the classes on its left and on its right, by index, sorted


@dataclass(frozen=True, eq=False)
class _Grown:
    """A tree of models: the model of each of its nodes, from the root down, left before right."""

    tree: Tree
    fits: dict[Node, Fitted]
    node_spec: Spec
    regression: Regression | None  # of all samples by their confounds


class HierarchicalTraceNormClassifier(PredictsLabels, ScoresSamples, ClassifierMixin, TensorInput):
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
    # Parameters that every node shares and that cannot be chosen, since nodes learn from moments of unscaled samples.
    loss = "squared_error"
    solver = "auto"
    scaling = None
    target_mode = False

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's convention
        **{name: TraceNormClassifier._parameter_constraints[name] for name in (*_SHARED, "tensor_shape")},
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

    # --- learning ----------------------------------------------------------------------------------------------------

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
        return self._learn(X, y, sample_weight, confounds, None, None)

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
        before = getattr(self, "_spec", None)
        classes = expected_classes(before, classes, may_grow=False)
        return self._learn(X, y, sample_weight, confounds, classes, before)

    def _learn(self, X: Any, y: Any, sample_weight: Any, confounds: Any, classes: Any, before: Spec | None) -> Self:
        """Add samples to those that were learned before, if any were, and grow the tree of all."""
        spec, class_moments = self._summarised(X, y, sample_weight, confounds, classes, before)
        starts = {} if before is None else getattr(self, "_warm_starts", {})
        self._publish(spec, class_moments, self._grow(spec, class_moments, starts))
        return self

    def _summarised(
        self, X: Any, y: Any, sample_weight: Any, confounds: Any, classes: Any, before: Spec | None
    ) -> tuple[Spec, list[Moments]]:
        """Sum up the moments of the samples of each class, in addition to those of earlier samples."""
        if before is not None:
            self._check_confounds(confounds)
        modes = None if before is None else before.modes
        source = as_source(X, y, sample_weight, confounds, modes_of_fit=modes)
        reader = Reader(type(self).__name__, Labels(SquaredError(), classes=classes), self.tensor_shape).after(before)
        spec, samples = read(source, reader)
        summarise = partial(_moments_of_classes, n_classes=spec.classes.shape[0], shape=spec.sample_shape)
        moments = samples.execution.total(summarise, samples.blocks)
        if before is None:
            return spec, list(moments)
        past = [of_class.scaled(self.forgetting) for of_class in self.class_moments_]
        return spec, [earlier + new for earlier, new in zip(past, moments, strict=True)]

    def _grow(self, spec: Spec, class_moments: list[Moments], warm_starts: dict[Node, WarmStart]) -> _Grown:
        """Find the tree of all classes that have samples, and solve the problem of each of its nodes."""
        scales = _class_scales(self.class_weight, spec.classes, class_moments)
        if not scales:
            raise InputError("Expected a class with samples of weight above zero, got none: change class_weight.")
        moments = {k: class_moments[k].scaled(scale) for k, scale in scales.items()}
        regression = None
        if spec.n_confounds:
            total = reduce(add, moments.values())
            regression = Regression.of_joint(total if self.fit_intercept else total.uncentred(), spec.n_features)
            moments = {k: regression.residual_moments(of_class) for k, of_class in moments.items()}
        if isinstance(self.tree, str):
            tree = _tree_of_means(moments, self.tree)
        else:
            tree = _tree_of_indices(self.tree, to_numpy(spec.classes).tolist())
        tree = _arranged(tree, set(moments))
        nodes = _nodes(tree)
        node_spec = replace(spec, classes=np.array([-1, 1]), n_targets=1, n_confounds=0, modes=None, is_flat=False)
        settings = settings_of(self)
        report = reporter(type(self).__name__, self.verbose)
        fits = {}
        moments_below: dict[tuple[int, ...], Moments] = {(k,): of_class for k, of_class in moments.items()}
        for left, right in reversed(nodes):  # the lower ones first
            node_moments = _with_target(moments_below.pop(left), -1.0) + _with_target(moments_below.pop(right), 1.0)
            moments_below[_merged(left, right)] = node_moments
            start = warm_starts.get((left, right))
            fits[left, right] = fit_linear(node_moments, node_spec, settings, start=start, report=report)
            warn_of_fit(fits[left, right], settings, "TraceNormClassifier")  # whose CV can choose alpha
        return _Grown(tree, {node: fits[node] for node in nodes}, node_spec, regression)

    def _publish(self, spec: Spec, class_moments: list[Moments], grown: _Grown) -> None:
        """Write all fitted attributes: nothing else does."""
        labels = to_numpy(spec.classes).tolist()
        fits = list(grown.fits.values())
        for name in ("modes_", "feature_names_in_", "confound_coef_"):
            if name in vars(self):
                delattr(self, name)
        like = class_moments[0].x_mean
        xp = array_namespace(like)
        no_row = xp.reshape(like[:0], (0, *spec.sample_shape))  # of one class alone there are no nodes
        coef = xp.concat([fitted.coef for fitted in fits] or [no_row])
        intercept = xp.concat([fitted.intercept for fitted in fits] or [like[:0]])
        if grown.regression is not None:
            rows = as_dtype(xp.reshape(coef, (-1, spec.n_features)), like.dtype)
            self.confound_coef_ = grown.regression.weights(rows)
            intercept = intercept - self.confound_coef_ @ grown.regression.centre
        if spec.modes is not None:
            self.modes_ = spec.modes
        if spec.feature_names is not None:
            self.feature_names_in_ = spec.feature_names
        self._spec = spec
        self.classes_ = spec.classes
        self.sample_shape_ = spec.sample_shape
        self.n_features_in_ = spec.n_features
        self.class_moments_ = class_moments
        self.tree_ = _labelled(grown.tree, labels)
        self.nodes_ = [([labels[k] for k in left], [labels[k] for k in right]) for left, right in grown.fits]
        shared = {name: getattr(self, name) for name in _SHARED}
        self.estimators_ = [TraceNormClassifier.from_fitted(grown.node_spec, fitted, **shared) for fitted in fits]
        self.coef_ = xp.reshape(coef, (coef.shape[0], spec.n_features)) if spec.is_flat else coef
        self.intercept_ = intercept
        self.alpha_ = np.array([float(fitted.alpha[0]) for fitted in fits])
        self.n_iter_ = max((fitted.n_iter for fitted in fits), default=0)
        self.dual_gap_ = max((fitted.gap for fitted in fits), default=0.0)
        self._warm_starts = {node: fitted.warm_start for node, fitted in grown.fits.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Leave warm starts out of pickles and files: a loaded model learns on from zero, and reaches the same weights."""
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_warm_starts", None)
        return state

    # --- the model ---------------------------------------------------------------------------------------------------

    @property
    def coef_tensor_(self) -> Array:
        """The weights of each node as tensors, whether samples came flat or not."""
        check_is_fitted(self)
        return as_tensors(self.coef_, self.sample_shape_, is_single=False)

    def _paths(self) -> list[dict[int, float] | None]:
        """List for each class the nodes on its path, with the sign of its side; None for a class that is not in the tree."""
        check_is_fitted(self)
        paths: list[dict[int, float] | None] = []
        for label in to_numpy(self.classes_).tolist():
            path = {
                n: 1.0 if label in right else -1.0
                for n, (left, right) in enumerate(self.nodes_)
                if label in left or label in right
            }
            paths.append(path if path or label == self.tree_ else None)
        return paths

    def decision_function(self, X: Any, confounds: Any = None) -> Array:
        """Score every sample: one column for each class, or for two classes one score that is positive for the second.

        The score of a class is the smallest of the scores of the nodes on its path, each with the sign of its side. All of them
        are positive only for the class where the descent ends.
        """
        paths = self._paths()
        scores = self._applied(partial(_class_scores, paths), "decision_function", X, confounds)
        return scores[:, 1] if len(paths) == 2 else scores

    def predict(self, X: Any, confounds: Any = None) -> Array:
        """Predict the label of each sample: the leaf at which its descent of the tree ends."""
        return self._applied(partial(_predicted, self._paths(), self.classes_), "predict", X, confounds)


def _class_scores(paths: list[dict[int, float] | None], scores: Array) -> Array:
    """Score every class (n, K) by the smallest score (n, nodes) along its path; classes without samples get minus infinity."""
    xp = array_namespace(scores)
    kind = {"dtype": scores.dtype, "device": device(scores)}
    columns = []
    for path in paths:
        column = xp.full(scores.shape[0], -math.inf if path is None else math.inf, **kind)
        for node, sign in (path or {}).items():
            column = xp.minimum(column, sign * scores[:, node])
        columns.append(column)
    return xp.stack(columns, axis=1)


def _predicted(paths: list[dict[int, float] | None], classes: Array, scores: Array) -> Array:
    """Choose the class of each sample, given its scores at all nodes."""
    return labels_of(_class_scores(paths, scores), classes)


def _moments_of_classes(block: Block, *, n_classes: int, shape: tuple[int, ...]) -> tuple[Moments, ...]:
    """Sum up the moments of the samples of each class, with their confounds, in a block whose labels are coded -1 and 1."""
    codes = to_numpy(block.Y)
    moments = []
    for k in range(n_classes):
        is_of_class = codes[:, k] > 0 if n_classes > 2 else (codes[:, 0] > 0) == bool(k)
        members = block.take(np.flatnonzero(is_of_class))
        # Targets are zero here: whether a class has -1 or 1 depends on the node, see ``_with_target``.
        without_target = replace(members, Y=0.0 * members.Y[:, :1])
        moments.append(without_target.add_to(None, shape).freeze())
    return tuple(moments)


def _with_target(moments: Moments, target: float) -> Moments:
    """Set the target of all samples to one number; as a constant it has neither variance nor covariance."""
    xp = array_namespace(moments.gram)
    return replace(
        moments,
        y_mean=xp.full_like(moments.y_mean, target),
        cross=xp.zeros_like(moments.cross),
        target_sq=xp.zeros_like(moments.target_sq),
    )


def _class_scales(class_weight: Any, classes: Array, moments: list[Moments]) -> dict[int, float]:
    """Find the factor that ``class_weight`` gives each class, by its index; classes without any weight are left out."""
    labels = to_numpy(classes).tolist()
    weights = {k: of_class.weight for k, of_class in enumerate(moments) if of_class.weight > 0.0}
    if class_weight is None:
        return dict.fromkeys(weights, 1.0)
    if isinstance(class_weight, str):
        return {k: sum(weights.values()) / (len(weights) * weight) for k, weight in weights.items()}
    unknown = [label for label in class_weight if label not in labels]
    if unknown:
        raise InputError(
            f"Expected class_weight to name classes among {brief(labels)}, got {brief(unknown)}: use labels of y."
        )
    scales = {k: float(class_weight.get(labels[k], 1.0)) for k in weights}
    return {k: scale for k, scale in scales.items() if scale != 0.0}


# --- trees of classes: pairs of pairs, down to the index of a class ----------------------------------------------------


def _tree_of_means(moments: dict[int, Moments], method: str) -> Tree:
    """Join the two classes, or trees, whose means are closest, again and again until there is one tree."""
    trees: list[Tree] = list(moments)
    if len(trees) > 1:
        means = np.stack([to_numpy(of_class.x_mean) for of_class in moments.values()])
        for first, second, *_ in linkage(means - means.mean(axis=0), method=method):
            trees.append((trees[int(first)], trees[int(second)]))
    return trees[-1]


def _tree_of_indices(tree: Any, labels: list[Any]) -> Tree:
    """Replace the labels of a user's tree by their indices; refuse a tree that has not every label once."""

    def indexed(subtree: Any) -> Tree:
        if isinstance(subtree, list | tuple):
            if len(subtree) != 2:
                raise InputError(
                    f"Expected a tree of nested pairs of labels, got {len(subtree)} parts in {brief(subtree)}: nest them."
                )
            return indexed(subtree[0]), indexed(subtree[1])
        label = subtree.item() if isinstance(subtree, np.generic) else subtree
        if label not in labels:
            raise InputError(
                f"Expected labels among {brief(labels)} in the tree, got {brief(subtree)}: use labels of y."
            )
        return labels.index(label)

    tree_of_indices = indexed(tree)
    leaves = _leaves(tree_of_indices)
    if leaves != tuple(range(len(labels))):
        raise InputError(
            f"Expected every one of the labels {brief(labels)} once in the tree, got {brief([labels[k] for k in leaves])}: name "
            "each in one pair."
        )
    return tree_of_indices


def _arranged(tree: Tree, with_samples: set[int]) -> Tree:
    """Cut off the classes that have no samples, and put the side with the smallest index first; None for an empty tree.

    So trees that differ in the order of their sides alone become equal. The second side is the right one, coded 1.
    """
    if not isinstance(tree, tuple):
        return tree if tree in with_samples else None
    sides = [side for side in (_arranged(child, with_samples) for child in tree) if side is not None]
    if len(sides) < 2:
        return sides[0] if sides else None
    return tuple(sorted(sides, key=_leaves))


def _leaves(tree: Tree) -> tuple[int, ...]:
    """List the classes of a tree, sorted."""
    return _merged(*map(_leaves, tree)) if isinstance(tree, tuple) else (tree,)


def _merged(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """Join the classes of two sides, sorted."""
    return tuple(sorted(left + right))


def _nodes(tree: Tree) -> list[Node]:
    """List the nodes from the root down, the first side before the second."""
    if not isinstance(tree, tuple):
        return []
    left, right = tree
    return [(_leaves(left), _leaves(right)), *_nodes(left), *_nodes(right)]


def _labelled(tree: Tree, labels: list[Any]) -> Any:
    """Replace indices by labels."""
    return tuple(_labelled(child, labels) for child in tree) if isinstance(tree, tuple) else labels[tree]
