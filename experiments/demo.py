"""The tour of ``make demo``: the paper's experiment at a small scale, then the default search on scikit-learn's digits."""

from __future__ import annotations

import sys
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from experiments.paper.__main__ import main as repeat_paper
from experiments.paper.page import REPORT
from tracelearn import TensorClassifier
from tracelearn.report import write_model_page

OUT = Path("out/demo")


def fit_digits(page: Path) -> float:
    """Fit images of digits, write the page of the model, and return its accuracy on images it has not seen."""
    X, y = load_digits(return_X_y=True)
    X, X_new, y, y_new = train_test_split(X.reshape(-1, 8, 8), y, stratify=y, random_state=0)
    model = TensorClassifier().fit(X, y)
    write_model_page(model, page, X_new, y_new, mode_names=("row", "column"))
    return float(model.score(X_new, y_new))


def main() -> int:
    """Run both parts, and say which two files to open."""
    print("The paper's experiment at a small scale: six algorithms learn for ten seconds each", flush=True)
    exit_code = repeat_paper(["--scale", "quick", "--out", str(OUT / "paper")])
    if exit_code:
        return exit_code
    print("\nDigits: TensorClassifier().fit(X, y), with no options", flush=True)
    accuracy = fit_digits(OUT / "digits.html")
    print(f"accuracy on new images: {100 * accuracy:.1f} %")
    print("\nOpen these two files in a browser:")
    print(f"  {OUT / 'paper' / REPORT}: every claim of the paper next to what this machine measured")
    print(f"  {OUT / 'digits.html'}: what the model of the digits has learned")
    return 0


if __name__ == "__main__":
    sys.exit(main())
