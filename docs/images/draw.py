"""Draw the pictures of the first pages from the code on them: ``python docs/images/draw.py``.

The picture of the README needs EEG that is not part of the repository. ``python docs/images/draw.py FOLDER`` draws it from
``eeg_spatial.npz`` there: 80 epochs of 23 electrodes × 102 times, ``X``, with the side that a person attends to, ``y`` (the
demonstration data of the R package eegUtils 0.8.0, MIT licence).
"""

import doctest
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeClassifierCV
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score

from tracelearn import TraceNormClassifierCV

HERE = Path(__file__).parent


def run(page: str) -> dict[str, Any]:
    """Run the examples of a page, and return the names that they leave behind."""
    names: dict[str, Any] = {}
    test = doctest.DocTestParser().get_doctest((HERE.parent / page).read_text(), names, page, page, 0)
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, clear_globs=False)
    return test.globs


def image(ax: Any, values: Any, x: Any, y: Any, **labels: str) -> None:
    """Draw a matrix with colours that are white at zero."""
    top = np.abs(values).max()
    ax.pcolormesh(x, y, values, cmap="RdBu_r", vmin=-top, vmax=top, shading="nearest")
    ax.set(**labels)


@plt.rc_context({"figure.constrained_layout.use": True, "savefig.dpi": 110, "font.size": 9})
def main(folder: Path = HERE) -> None:
    """Draw all pictures."""
    eeg, series, spectra = (run(page) for page in ("eeg.md", "series.md", "images_spectra.md"))

    figure, ax = plt.subplots(figsize=(4.5, 2.6))
    image(ax, np.squeeze(eeg["model"].patterns_), eeg["epochs"].times, range(8), xlabel="time (s)")
    ax.set_yticks(range(8), eeg["names"])
    figure.savefig(folder / "eeg.png")

    figure, ax = plt.subplots(figsize=(4.5, 2.6))
    channels = ["x", "y", "temperature"]
    image(ax, series["between"].fillna(0.0).to_numpy(), range(3), range(3))
    ax.set_xticks(range(3), channels)
    ax.set_yticks(range(3), channels)
    ax.invert_yaxis()
    figure.savefig(folder / "series.png")

    figure, axes = plt.subplots(1, 2, figsize=(4.5, 2.6), sharey=True)
    pair = (spectra["model"].patterns_, "found"), (spectra["dyes"][0], "simulated")
    for ax, (values, title) in zip(axes, pair, strict=True):
        image(ax, values, spectra["emission"], spectra["excitation"], title=title, xlabel="emission (nm)")
    axes[0].set_ylabel("excitation (nm)")
    figure.savefig(folder / "images_spectra.png")


def mean_accuracy(model: Any, X: Any, y: Any) -> float:
    """Score a model on ten times five folds."""
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=10, random_state=0)
    return float(np.mean(cross_val_score(model, X, y, cv=folds)))


@plt.rc_context({"figure.constrained_layout.use": True, "savefig.dpi": 140, "font.size": 9})
def draw_readme(data: Path, folder: Path = HERE) -> None:
    """Draw the weights of ridge regression and of the trace norm for the same epochs, with their accuracies."""
    with np.load(data / "eeg_spatial.npz") as file:
        X, y = file["X"].astype(float), file["y"]
    flat = RidgeClassifierCV(np.logspace(-3, 7, 21))
    low_rank = TraceNormClassifierCV()
    rows = X.reshape(len(X), -1)
    ridge_weights = flat.fit(rows, y).coef_.reshape(X.shape[1:])
    panels = (
        (X[0] - X[0].mean(axis=1, keepdims=True), "one epoch of 80"),
        (ridge_weights, f"ridge regression: accuracy {mean_accuracy(flat, rows, y):.2f}"),
        (np.squeeze(low_rank.fit(X, y).coef_), f"trace norm: accuracy {mean_accuracy(low_rank, X, y):.2f}"),
    )
    figure, axes = plt.subplots(1, 3, figsize=(9.5, 2.9), sharey=True)
    for ax, (values, title) in zip(axes, panels, strict=True):
        image(ax, values, range(X.shape[2]), range(X.shape[1]), title=title, xlabel="time (samples)")
    axes[0].set_ylabel("electrode")
    figure.savefig(folder / "readme.png")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        draw_readme(Path(sys.argv[1]))
    else:
        main()
