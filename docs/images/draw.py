"""Draw the pictures of the first pages from the code on them: ``python docs/images/draw.py``."""

import doctest
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np

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

    times, names = eeg["epochs"].times, eeg["names"]
    faces = 1e6 * eeg["epochs"]["face"].get_data()
    true = np.outer(eeg["topography"], np.exp(-(((times - 0.17) / 0.03) ** 2)))
    figure, axes = plt.subplots(1, 3, figsize=(9.5, 2.6), sharey=True)
    shown = (
        (faces[0], "one epoch"),
        (np.squeeze(eeg["model"].patterns_), "pattern found in 64 epochs"),
        (true, "simulated signal"),
    )
    for ax, (values, title) in zip(axes, shown, strict=True):
        image(ax, values, times, range(8), title=title, xlabel="time (s)")
    axes[0].set_yticks(range(8), names)
    figure.savefig(folder / "index.png")

    figure, ax = plt.subplots(figsize=(4.5, 2.6))
    image(ax, shown[1][0], times, range(8), xlabel="time (s)")
    ax.set_yticks(range(8), names)
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


if __name__ == "__main__":
    main()
