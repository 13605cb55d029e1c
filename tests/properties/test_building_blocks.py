"""Moments, norms, proximal points, transformers, files and functions: finite or refused, repeatable, nothing written to."""

import math

import numpy as np
import pytest
from hypothesis import strategies as st
from properties.inputs import attempt, bits, datasets, shapes, tries

from tracelearn import (
    ModePCA,
    Moments,
    TensorStandardScaler,
    TraceNormRegressor,
    load,
    open_source,
    save,
    tensor_trace_norm,
)
from tracelearn.arrays.tensors import n_rank, unfold
from tracelearn.datasets import make_low_rank_regression, make_rank_tensors
from tracelearn.penalties import PENALTIES, as_penalty
from tracelearn.solvers.apg import prox_adm

pytestmark = pytest.mark.slow

SIZES = [1.0, 1e-3, 1e6, 1e-50, 1e50]


def length(T):
    """Find the Euclidean length of all entries, safe from overflow."""
    scale = np.abs(T).max() or 1.0
    return scale * np.linalg.norm(T / scale)


@st.composite
def tensors(draw, sizes=SIZES):
    """Draw a tensor and the seed it came from: full, of rank one, of one entry, or zero."""
    shape, rng = draw(shapes()), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["full", "rank one", "one entry", "zero"]))
    W = np.ones(())
    for size in shape:
        W = np.multiply.outer(W, rng.standard_normal(size))
    if kind == "full":
        W = rng.standard_normal(shape)
    elif kind == "one entry":
        W = np.zeros(shape)
        W[tuple(rng.integers(0, size) for size in shape)] = 1.0
    return (0.0 if kind == "zero" else draw(st.sampled_from(sizes))) * W


# --- moments ---------------------------------------------------------------------------------------------------------


@tries(80, data=datasets(least=2), cut=st.floats(0.0, 1.0))
def test_moments_are_finite_add_up_and_repeat(data, cut):
    X, weight = data.X, data.weight
    largest = np.abs(X.astype(np.float64)).max()
    if not 1e-15 < largest < 1e50 or np.abs(data.y.astype(float)).max() > 1e50:
        return  # estimators refuse these
    whole, _ = attempt(lambda: Moments.of(X, data.y, weight), data.arrays)
    again, _ = attempt(lambda: Moments.of(X, data.y, weight), data.arrays)
    fields = ("x_mean", "y_mean", "gram", "cross", "target_sq")
    for name in fields:
        assert np.isfinite(getattr(whole, name)).all(), name
        assert bits(getattr(whole, name)) == bits(getattr(again, name))
    n = int(cut * len(X))
    parts = [slice(0, n), slice(n, None)]
    first, second = (Moments.of(X[p], data.y[p], None if weight is None else weight[p]) for p in parts)
    joined = first + second
    # Rounding is relative to the samples, not to what is left of them about their mean.
    size = whole.weight * max(largest, np.abs(whole.x_mean).max()) ** 2
    np.testing.assert_allclose(joined.gram, whole.gram, rtol=0, atol=1e-13 * size)
    assert np.all(np.diagonal(whole.gram) >= 0.0)


# --- norms and proximal points ---------------------------------------------------------------------------------------


@tries(60, W=tensors([*SIZES, 1e-300, 1e150, 1e300]), name=st.sampled_from(sorted(PENALTIES)))
def test_a_norm_is_finite_and_scales_with_its_argument(W, name):
    norm = as_penalty(name, W.shape)
    for value in (norm.value, norm.dual_norm):
        once, half = float(value(W[None])[0]), float(value(0.5 * W[None])[0])
        assert math.isfinite(once)
        assert once >= 0.0
        assert half == once / 2 or math.isclose(half, once / 2, rel_tol=1e-12, abs_tol=1e-306)
    assert (float(norm.value(W[None])[0]) > 0.0) == bool(W.any())
    squeezed = W.reshape([size for size in W.shape if size > 1] or [1])
    whole = (W.ndim if name == "overlapped" else 1.0), (squeezed.ndim if name == "overlapped" else 1.0)
    if name == "latent":  # a mode of size one has the norm of the whole tensor as its only singular value
        assert float(norm.value(W[None])[0]) <= float(as_penalty(name, squeezed.shape).value(squeezed[None])[0]) * (
            1 + 1e-12
        )
    if name == "overlapped":
        ones = W.ndim - sum(size > 1 for size in W.shape) if squeezed.shape != (1,) else W.ndim - 1
        found = whole[0] * tensor_trace_norm(W)
        np.testing.assert_allclose(found, whole[1] * tensor_trace_norm(squeezed) + ones * length(W), rtol=1e-10)


@tries(
    60,
    P=tensors(),
    name=st.sampled_from(sorted(PENALTIES)),
    alpha=st.sampled_from([0.0, 1e-12, 0.1, 1.0, 1e12]),
    curvature=st.sampled_from([1.0, 1e-3, 1e6]),
)
def test_a_proximal_point_is_finite_and_no_longer_than_where_it_came_from(P, name, alpha, curvature):
    size = np.abs(P).max() or 1.0
    strength = np.array([alpha * size * curvature])
    before = bits(P)
    W, split = prox_adm(as_penalty(name, P.shape), P[None], strength, curvature)
    assert bits(P) == before
    assert np.isfinite(W).all()
    assert np.isfinite(split.parts).all()
    assert length(W) <= length(P) * (1 + 1e-9)
    if alpha == 0.0:
        np.testing.assert_allclose(W[0], P, atol=1e-6 * size)
    if alpha == 1e12:
        assert np.abs(W).max() <= 1e-6 * size


# --- functions on tensors --------------------------------------------------------------------------------------------


@tries(60, W=tensors([1.0, 1e-150, 1e150, 1e300]), mode=st.integers(0, 4))
def test_functions_on_tensors_are_finite(W, mode):
    mode %= W.ndim
    assert sorted(unfold(W, mode).ravel()) == sorted(W.ravel())
    assert 0 <= n_rank(W, mode) <= W.shape[mode]


@tries(30, shape=shapes(), n=st.integers(1, 8), rank=st.integers(1, 4), seed=st.integers(0, 2**31))
def test_synthetic_problems_are_finite_and_repeat(shape, n, rank, seed):
    X, y, W = make_low_rank_regression(n, shape, rank=rank, random_state=seed)
    assert np.isfinite(X).all()
    assert np.isfinite(y).all()
    assert X.shape == (n, *shape)
    assert W.shape == shape
    assert bits(X, y, W) == bits(*make_low_rank_regression(n, shape, rank=rank, random_state=seed))
    T, ranks = make_rank_tensors(n, shape=shape, ranks=(1, rank), random_state=seed)
    assert np.isfinite(T).all()
    assert 1 <= ranks.min() <= ranks.max() <= rank
    assert bits(T, ranks) == bits(*make_rank_tensors(n, shape=shape, ranks=(1, rank), random_state=seed))


# --- transformers ----------------------------------------------------------------------------------------------------


@tries(80, data=datasets(), per=st.sampled_from(["feature", "global", 0]), mean=st.booleans(), std=st.booleans())
def test_scaling_is_finite_can_be_undone_and_never_writes_to_its_input(data, per, mean, std):
    scaler = TensorStandardScaler(per, with_mean=mean, with_std=std)
    found, _ = attempt(lambda: scaler.fit(data.X, None, data.weight).transform(data.X), data.arrays)
    if found is None:
        return
    assert np.isfinite(found).all()
    again, _ = attempt(lambda: scaler.transform(data.X), data.arrays)
    assert bits(again) == bits(found)
    back, _ = attempt(lambda: scaler.inverse_transform(found), [found])
    X = data.X.astype(np.float64)
    eps = 1e-3 if found.dtype == np.float32 else 1e-9
    np.testing.assert_allclose(back, X, rtol=eps, atol=eps * max(np.abs(X).max(), 1e-300))


@tries(80, data=datasets(), components=st.sampled_from([None, 1, 2, 0.5, 0.99]), sweeps=st.sampled_from([0, 1]))
def test_compression_is_finite_and_never_writes_to_its_input(data, components, sweeps):
    pca = ModePCA(components, n_iter=sweeps)
    found, _ = attempt(lambda: pca.fit(data.X, None, data.weight).transform(data.X), data.arrays)
    if found is None:
        return
    assert np.isfinite(found).all()
    for rows in pca.components_:
        np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-9)
    if components is None:
        back = pca.inverse_transform(found)
        X = data.X.astype(np.float64)
        eps = 1e-3 if found.dtype == np.float32 else 1e-9
        np.testing.assert_allclose(back, X, atol=eps * max(np.abs(X).max(), 1e-300))


# --- files -----------------------------------------------------------------------------------------------------------


@tries(25, data=datasets(), suffix=st.sampled_from([".npz", ".npy", ".zarr", ".h5"]))
def test_what_is_read_from_a_file_is_what_was_written(data, suffix, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    X, y, path = np.array(data.X), np.array(data.y), folder / f"X{suffix}"
    target = "y"
    if suffix == ".npz":
        np.savez(path, X=X, y=y)
    elif suffix == ".npy":
        np.save(path, X)
        target = folder / "y.npy"
        np.save(target, y)
    elif suffix == ".zarr":
        import zarr

        group = zarr.open_group(path, mode="w")
        group.create_array("X", data=X)
        group.create_array("y", data=y)
    else:
        import h5py

        with h5py.File(path, "w") as file:
            file["X"], file["y"] = X, y
    options = {"alpha": 0.1, "max_iter": 30}
    kept, _ = attempt(lambda: TraceNormRegressor(**options).fit(X, y), [X, y])
    read, _ = attempt(lambda: TraceNormRegressor(**options).fit(open_source(path, target=target)), [])
    # From files products of numbers are summed, and those of single precision may leave its range; in memory few samples are not.
    may_leave = X.dtype.kind == "f" and X.dtype.itemsize < 8 and not 1e-15 <= np.max(np.abs(X.astype(float))) <= 1e15
    assert (kept is None) == (read is None) or (may_leave and read is None)
    if kept is not None and read is not None and data.X.dtype.str in ("<f8", "<f4"):
        size = np.var(data.y.astype(np.float64))
        np.testing.assert_allclose(read.objective_, kept.objective_, rtol=1e-3, atol=1e-3 * size)


@tries(25, data=datasets(), penalty=st.sampled_from(sorted(PENALTIES)))
def test_a_saved_model_predicts_the_same_bits(data, penalty, tmp_path_factory):
    model, _ = attempt(lambda: TraceNormRegressor(penalty=penalty, max_iter=30).fit(data.X, data.y, data.weight), [])
    if model is None:
        return
    path = tmp_path_factory.mktemp("models") / "model"
    save(model, path)
    assert bits(load(path).predict(data.X)) == bits(model.predict(data.X))
