"""The floor: scikit-learn's Ridge reads the same samples and solves one linear system. It answers another question."""

from sklearn.linear_model import Ridge

from benchmarks.harness import Race
from benchmarks.problems import Problem

FAMILY = "floor"
NAMES = ("Ridge(cholesky)",)


def cannot(problem: Problem, name: str) -> str:
    return ""


def run(problem: Problem, name: str, watch: Race) -> None:
    watch(Ridge(alpha=1.0, solver="cholesky").fit(problem.rows, problem.y).coef_)
