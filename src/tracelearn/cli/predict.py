"""``tracelearn predict``: what a model says of the samples in a file."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from tracelearn.cli.mistakes import printable
from tracelearn.cli.progress import Bar
from tracelearn.cli.shared import (
    Confounds,
    Data,
    Groups,
    Input,
    Samples,
    aligns_by_group,
    as_text,
    blame_file,
    check_file,
    check_out,
    echo,
    load_file,
    read_format,
    takes,
)
from tracelearn.errors import refuse
from tracelearn.io.model_header import read_header
from tracelearn.samples.modes import check_file_modes

__all__ = ["Predictions", "load_to_predict", "predict_all", "predict_command"]

_SUFFIXES = (".npy", ".npz", ".csv")
_FORMULAS = tuple("=+-@\t\r\n＝＋－＠")  # what a spreadsheet computes rather than shows


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions with the scores or probabilities behind them, and the truth where it is known."""

    prediction: NDArray[Any]
    scores: NDArray[Any] | None
    truth: NDArray[Any] | None
    classes: list[str]
    is_probability: bool
    bounds: tuple[NDArray[Any], NDArray[Any]] | None = None  # lower and upper ends of 90 % intervals

    def columns(self) -> dict[str, NDArray[Any]]:
        """Name every column of the table."""
        columns = {"index": np.arange(len(self.prediction)), **_named("prediction", self.prediction, [])}
        if self.scores is not None:
            columns |= _named("probability" if self.is_probability else "score", self.scores, self.classes)
        return columns

    def compared(self, model: Any) -> Any:
        """Compare with the truth, or refuse targets that the model cannot have been fitted to."""
        from tracelearn.report.scores import compare

        truth, shape, advice = np.asarray(self.truth), self.prediction.shape, "name the target the model was fitted to."
        if hasattr(model, "classes_"):
            got = f"targets of shape {truth.shape}" if truth.ndim != 1 else str(truth[0])
            is_other = truth.ndim != 1 or (truth.dtype.kind in "OSUT") != (self.prediction.dtype.kind in "OSUT")
            refuse(is_other, f"Expected labels such as {self.classes[0]} in the target, got {got}: {advice}")
            return compare(truth, self.prediction, model.classes_)
        is_number, got = truth.dtype.kind in "fiub", f"{truth.dtype} values of shape {truth.shape}: {advice}"
        refuse(truth.shape != shape or not is_number, f"Expected numbers of shape {shape} in the target, got {got}")
        refuse(
            is_number and not np.all(np.isfinite(truth)),
            "Expected finite numbers in the target, got NaN or infinity: leave out such samples.",
        )
        return compare(truth, self.prediction, bounds=self.bounds)


def _named(name: str, values: NDArray[Any], labels: list[str]) -> dict[str, NDArray[Any]]:
    if values.ndim == 1:
        return {name: values}
    ends = labels or [str(number) for number in range(1, values.shape[1] + 1)]
    return {f"{name}_{end}": values[:, k] for k, end in enumerate(ends)}


def predict_all(
    model: Any,
    source: Any,
    bar: Any,
    *,
    proba: bool = False,
    with_bounds: bool = False,
    confounds: NDArray[Any] | None = None,
    groups: NDArray[Any] | None = None,
) -> Predictions:
    """Predict block by block, so that the samples need not fit in memory; those of a group that is aligned need to."""
    method = "predict_proba" if proba else "decision_function"
    expected, got = (0 if a is None else a.shape[-1] for a in (getattr(model, "confound_coef_", None), confounds))
    refuse(
        proba and not hasattr(model, method),
        f"Expected a model with probabilities for --proba, got a {type(model).__name__} without: fit one with --loss log_loss.",
    )
    refuse(
        hasattr(model, "lags_"),
        "Expected a model of single samples, got one of recordings, which are predicted whole: use predict in Python.",
    )
    refuse(
        expected != got,
        f"Expected {expected or 'no'} names of confounds, as in fit, got {got or 'none'}: correct --confounds.",
    )
    from tracelearn.report.scores import bounds_of, join_bounds  # after what may be refused: it takes a second

    check_file_modes(source.modes, getattr(model, "modes_", None))
    blocks = source.batches()
    if aligns_by_group(model):
        refuse(
            groups is None, "Expected --groups with a model that aligns samples by group, got none: name their column."
        )
        samples, targets, _ = zip(*blocks, strict=True)
        blocks = [(np.concatenate(samples), None if targets[0] is None else np.concatenate(targets), None)]
    predictions, scores, truths, bounds, count = [], [], [], [], 0
    for X, y, _ in bar.follow("predicting", blocks, source.n_samples):
        arguments: dict[str, Any] = {} if confounds is None else {"confounds": confounds[count : count + len(X)]}
        if aligns_by_group(model):
            arguments["groups"] = groups
        count += len(X)
        predictions.append(np.asarray(model.predict(X, **arguments)))
        if hasattr(model, method):
            scores.append(np.asarray(getattr(model, method)(X, **arguments)))
        if with_bounds:
            bounds.append(bounds_of(model, X, **arguments))
        if y is not None:
            truths.append(np.asarray(y))
    return Predictions(
        np.concatenate(predictions),
        np.concatenate(scores) if scores else None,
        as_text(np.concatenate(truths)) if truths else None,
        [str(label) for label in getattr(model, "classes_", [])],
        proba,
        join_bounds(bounds) if bounds else None,
    )


def _cell(value: Any) -> Any:
    """Write text so that neither a terminal obeys it nor a spreadsheet computes it."""
    if not isinstance(value, str):
        return value
    return f"'{printable(value)}" if value.startswith(_FORMULAS) else printable(value)


def _as_csv(predictions: Predictions) -> str:
    columns = predictions.columns()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows(map(_cell, row) for row in zip(*(values.tolist() for values in columns.values()), strict=True))
    return text.getvalue()


def _as_bytes(predictions: Predictions, suffix: str) -> bytes:
    """Write predictions in the format of a suffix; Python objects as text, since files that hold them could run code."""
    if suffix == ".csv":
        return _as_csv(predictions).encode()
    data = io.BytesIO()
    prediction = predictions.prediction
    scores = predictions.scores
    prediction = prediction.astype(str) if prediction.dtype.kind == "O" else prediction
    if suffix == ".npy":
        np.save(data, scores if predictions.is_probability and scores is not None else prediction)
        return data.getvalue()
    arrays = {"prediction": prediction}
    if scores is not None:
        arrays |= {
            "probabilities" if predictions.is_probability else "scores": scores,
            "classes": np.array(predictions.classes),
        }
    np.savez(data, **arrays)  # type: ignore[arg-type]
    return data.getvalue()


def load_to_predict(model: Path) -> Any:
    """Load what can predict, or say in one sentence why not; of moments the header of their file says it at once."""
    check_file(model)
    kind = read_header(model).kind
    loaded = load_file(model) if kind == "model" else None
    name = kind if loaded is None else type(loaded).__name__
    refuse(not hasattr(loaded, "predict"), f"Expected a model that predicts, got {name} in {model}: name a model.")
    return loaded


@takes(file_format=read_format)
def predict_command(
    model: Annotated[Path, typer.Argument(help="File of a model.", show_default=False)],
    data: Data,
    samples: Samples = "X",
    target: Annotated[
        str | None, typer.Option(help="Name of the targets in the file, or another file, to compare with.")
    ] = None,
    groups: Groups = None,
    confounds: Confounds = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the predictions: .npy, .npz or .csv.", show_default="CSV, printed")
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Probabilities instead of scores.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing but the predictions, errors and warnings.")
    ] = False,
    *,
    file_format: dict[str, Any],
) -> None:
    """Predict the samples in a file with a model."""
    refuse(
        out is not None and out.suffix.lower() not in _SUFFIXES,
        f"Expected a file that ends in {', '.join(_SUFFIXES)}, got {out}: name it so.",
    )
    inputs = Input(data, samples, target, file_format, groups, confounds)
    check_out(out, "predictions", force=force, inputs=(model, *inputs.files))
    loaded = load_to_predict(model)
    source = inputs.open(model=loaded)
    grouping = inputs.read_groups(source)
    confounding = inputs.read_confounds(source)
    from tracelearn.io.writing import write_atomically

    with Bar(quiet=quiet) as bar, blame_file(model):
        predictions = predict_all(loaded, source, bar, proba=proba, confounds=confounding, groups=grouping)
    result = f"{len(predictions.prediction):,} samples predicted"
    if predictions.truth is not None:
        result += ", {} {:.4f}".format(*predictions.compared(loaded).headline)
    if out is None:
        typer.echo(_as_csv(predictions), nl=False)
    else:
        write_atomically(out, _as_bytes(predictions, out.suffix.lower()))
    if not quiet:
        echo(result if out is None else f"{result}: {out}", err=out is None)  # what is piped on stays a table
