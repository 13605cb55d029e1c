"""``tracelearn predict``: what a model says of the samples in a file."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import rich.console
import typer
from numpy.typing import NDArray

from tracelearn.cli.mistakes import MistakeError
from tracelearn.cli.options import Samples
from tracelearn.cli.progress import Bar
from tracelearn.cli.shared import check_out, load_file, open_data
from tracelearn.estimators.scores import accuracy, r_squared
from tracelearn.files.models import write_atomically
from tracelearn.samples import Source

__all__ = ["Found", "check_truth", "load_to_predict", "predict_all", "predict_command"]

_SUFFIXES = (".npy", ".npz", ".csv")


@dataclass(frozen=True, eq=False)
class Found:
    """Predictions with the scores or probabilities behind them, and the truth where it is known."""

    prediction: NDArray[Any]
    scores: NDArray[Any] | None
    truth: NDArray[Any] | None
    classes: list[str]
    is_probability: bool

    def columns(self) -> dict[str, NDArray[Any]]:
        """Name every column of the table."""
        columns = {"index": np.arange(len(self.prediction)), **_named("prediction", self.prediction, [])}
        if self.scores is not None:
            columns |= _named("probability" if self.is_probability else "score", self.scores, self.classes)
        return columns


def _named(name: str, values: NDArray[Any], labels: list[str]) -> dict[str, NDArray[Any]]:
    if values.ndim == 1:
        return {name: values}
    ends = labels or [str(number) for number in range(1, values.shape[1] + 1)]
    return {f"{name}_{end}": values[:, k] for k, end in enumerate(ends)}


def _score_method(model: Any, *, proba: bool) -> str | None:
    """Choose what is told beside a prediction."""
    if not proba:
        return "decision_function" if hasattr(model, "decision_function") else None
    if not hasattr(model, "predict_proba"):
        raise MistakeError(
            f"Expected a model with probabilities for --proba, got a {type(model).__name__} without: fit one with "
            "--loss logistic."
        )
    return "predict_proba"


def predict_all(model: Any, source: Source, bar: Bar, *, proba: bool = False) -> Found:
    """Predict block by block, so that the samples need not fit in memory."""
    method = _score_method(model, proba=proba)
    predictions, scores, truths = [], [], []
    try:
        for X, y, _ in bar.follow("predicting", source.batches(), source.n_samples):
            predictions.append(np.asarray(model.predict(X)))
            if method is not None:
                scores.append(np.asarray(getattr(model, method)(X)))
            if y is not None:
                truths.append(np.asarray(y))
    except ValueError as error:
        raise MistakeError(str(error)) from error
    return Found(
        np.concatenate(predictions),
        np.concatenate(scores) if scores else None,
        np.concatenate(truths) if truths else None,
        [str(label) for label in getattr(model, "classes_", [])],
        proba,
    )


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Make text of Python objects: files that hold them could run code."""
    return values.astype(str) if values.dtype.kind == "O" else values


def _as_csv(found: Found) -> str:
    columns = found.columns()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    return text.getvalue()


def _as_bytes(found: Found, suffix: str) -> bytes:
    """Write predictions in the format of a suffix."""
    if suffix == ".csv":
        return _as_csv(found).encode()
    data = io.BytesIO()
    prediction, scores = _plain(found.prediction), found.scores
    if suffix == ".npy":
        np.save(data, scores if found.is_probability and scores is not None else prediction)
        return data.getvalue()
    arrays = {"prediction": prediction}
    if scores is not None:
        arrays["probabilities" if found.is_probability else "scores"] = scores
        arrays["classes"] = np.array(found.classes)
    np.savez(data, **arrays)  # type: ignore[arg-type]
    return data.getvalue()


def check_truth(model: Any, found: Found, truth: NDArray[Any]) -> None:
    """Refuse targets that the model cannot have been fitted to."""
    if hasattr(model, "classes_"):
        if (truth.dtype.kind in "OSUT") != (found.prediction.dtype.kind in "OSUT"):
            raise MistakeError(
                f"Expected labels such as {found.classes[0]} in the target, got {truth[0]!s}: name the target the model was "
                "fitted to."
            )
    elif truth.shape != found.prediction.shape or truth.dtype.kind not in "fiub":
        raise MistakeError(
            f"Expected numbers of shape {found.prediction.shape} in the target, got {truth.dtype} values of shape "
            f"{truth.shape}: name the target the model was fitted to."
        )
    elif not np.all(np.isfinite(truth)):
        raise MistakeError("Expected finite numbers in the target, got NaN or infinity: leave out such samples.")


def _quality(model: Any, found: Found) -> str:
    """Compare with the truth, where it is known."""
    if found.truth is None:
        return ""
    check_truth(model, found, found.truth)
    if hasattr(model, "classes_"):
        return f", accuracy {accuracy(found.truth, found.prediction):.4f}"
    return f", R² {r_squared(found.truth.astype(float), found.prediction):.4f}"


def load_to_predict(model: Path) -> Any:
    """Load what can predict, or say in one sentence why not."""
    loaded = load_file(model)
    if not hasattr(loaded, "predict"):
        raise MistakeError(f"Expected a model that predicts, got {type(loaded).__name__} in {model}: name a model.")
    return loaded


def predict_command(
    model: Annotated[Path, typer.Argument(help="File of a model.", show_default=False)],
    data: Annotated[
        Path, typer.Argument(help="File of samples: .npz, .npy, .zarr, .h5 or .parquet.", show_default=False)
    ],
    samples: Samples = "X",
    target: Annotated[
        str | None, typer.Option(help="Name of the targets in the file, or another file, to compare with.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the predictions: .npy, .npz or .csv.", show_default="CSV, printed")
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Probabilities instead of scores (logistic loss).")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Say nothing but the predictions and what went wrong.")
    ] = False,
) -> None:
    """Predict the samples in a file with a model."""
    if out is not None and out.suffix.lower() not in _SUFFIXES:
        raise MistakeError(f"Expected a file that ends in {', '.join(_SUFFIXES)}, got {out}: name it so.")
    check_out(out, "predictions", force=force)
    loaded = load_to_predict(model)
    source = open_data(data, samples, target)
    with Bar(rich.console.Console(quiet=quiet)) as bar:
        found = predict_all(loaded, source, bar, proba=proba)
    told = f"{len(found.prediction):,} samples predicted{_quality(loaded, found)}"
    if out is None:
        typer.echo(_as_csv(found), nl=False)
    else:
        write_atomically(out, _as_bytes(found, out.suffix.lower()))
        told = f"{told}: {out}"
    if not quiet:
        typer.echo(told, err=out is None)  # what is piped on stays a table
