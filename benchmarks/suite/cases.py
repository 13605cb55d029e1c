"""The problems of the suite, one function each: a new function with the decorator is a new problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.problems import Problem
from tracelearn.datasets import make_low_rank_regression


@dataclass(frozen=True)
class Case:
    """What a problem is called, and how it is made: in full, or small to try the suite out."""

    title: str
    make: Callable[[bool], Problem]


CASES: dict[str, Case] = {}


def case(title: str) -> Callable[[Callable[[bool], Problem]], Callable[[bool], Problem]]:
    def register(make: Callable[[bool], Problem]) -> Callable[[bool], Problem]:
        CASES[make.__name__] = Case(title, make)
        return make

    return register


def describe(problem: Problem) -> str:
    """Say the size of a problem: samples × shape, loss and targets."""
    shape = "×".join(map(str, problem.shape))
    targets = "" if problem.n_targets == 1 else f", {problem.n_targets} targets"
    coupled = " as a mode" if problem.target_mode else ""
    return f"{len(problem.X):,} samples of {shape}, {problem.loss} loss{targets}{coupled}"


@case("the paper's tensors")
def paper(quick: bool) -> Problem:
    """The paper's rank identification with its λ = 1."""
    return Problem.paper(500 if quick else 2_000)


@case("Gaussian, order 2")
def order2(quick: bool) -> Problem:
    return Problem.gaussian(200, (8, 8), 0.1) if quick else Problem.gaussian(500, (20, 20), 0.1)


@case("Gaussian, order 3")
def order3(quick: bool) -> Problem:
    return Problem.gaussian(300, (5, 5, 5), 0.1) if quick else Problem.gaussian(2_000, (7, 7, 7), 0.1)


@case("Gaussian, order 4")
def order4(quick: bool) -> Problem:
    return Problem.gaussian(300, (3, 3, 3, 3), 0.1) if quick else Problem.gaussian(2_000, (5, 5, 5, 5), 0.1)


@case("ill-conditioned: correlated channels, smooth time")
def correlated(quick: bool) -> Problem:
    n, shape = (300, (4, 6, 3)) if quick else (1_000, (8, 10, 4))
    X, y, _ = make_low_rank_regression(n, shape, correlation=0.95, random_state=0)
    return Problem.at(0.01, X, y)


@case("fewer samples than features")
def wide(quick: bool) -> Problem:
    return Problem.gaussian(60, (6, 6, 6), 0.1) if quick else Problem.gaussian(200, (12, 12, 12), 0.1)


@case("many classes, each with its own weights")
def classes(quick: bool) -> Problem:
    return Problem.at(0.1, *_classes(quick))


@case("many classes, the class as a mode")
def class_mode(quick: bool) -> Problem:
    return Problem.at(0.1, *_classes(quick), target_mode=True)


@case("two classes, logistic")
def logistic(quick: bool) -> Problem:
    n, shape = (200, (4, 4, 3)) if quick else (600, (8, 8, 4))
    X, y, _ = make_low_rank_regression(n, shape, random_state=0)
    return Problem.at(0.05, X, np.where(y > 0, 1.0, -1.0), "log_loss")


def _classes(quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Draw classes whose means share a subspace in every mode; one target a class, 1 for its own and -1 for others."""
    n, K, shape, rank = (200, 4, (4, 4, 3), 2) if quick else (1_000, 10, (6, 6, 4), 2)
    rng = np.random.default_rng(0)
    means = rng.standard_normal((K, *(rank,) * len(shape)))
    for mode, size in enumerate(shape):
        means = np.moveaxis(np.tensordot(means, rng.standard_normal((size, rank)), (mode + 1, 1)), -1, mode + 1)
    label = rng.integers(K, size=n)
    X = means[label] / means.std() + 2.0 * rng.standard_normal((n, *shape))
    return X, 2.0 * np.eye(K)[label] - 1.0
