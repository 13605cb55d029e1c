"""A whole cross-validated path against one fit."""

from benchmarks.harness import Row, at_most, interleaved
from benchmarks.problems import Problem
from tracelearn import TraceNormRegressorCV

TITLE = "path and cross-validation"


def ask(quick: bool) -> list[Row]:
    problem = Problem.gaussian(20_000, (10, 10, 10), 0.1)
    search = TraceNormRegressorCV(alphas=50)
    took = interleaved(
        {"search": lambda: search.fit(problem.X, problem.y), "fit": lambda: problem.fit(1e-6)},
        1 if quick else 5,
        warm=not quick,
    )
    ratio = took["search"].median / took["fit"].median
    return [
        Row(
            TITLE,
            "50 alphas × 5 folds, Gaussian 20,000 × 10×10×10, against one fit",
            "search / fit",
            ratio,
            **at_most(10.0, ratio),
            ours=took["search"].median,
            other=took["fit"].median,
            note=f"alpha chosen is {search.alpha_ / search.alphas_[0]:.2g} α_max; both sides are ours",
        )
    ]
