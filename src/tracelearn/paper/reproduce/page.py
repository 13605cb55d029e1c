"""The report: one HTML file with everything in it, to read on any screen, by day and by night, without a network."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from tracelearn.files.models import write_atomically
from tracelearn.paper.reproduce import figures
from tracelearn.paper.reproduce.claims import PAPER_ACCURACY, power
from tracelearn.paper.reproduce.settings import ALGORITHMS, OURS
from tracelearn.report.pages import document, read_text, table

__all__ = ["REPORT", "render", "write"]

REPORT = "report.html"
_VERDICTS = {"agree": "agree", "partly": "partly", "not": "not confirmed", "open": "open"}

Results = dict[str, Any]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}&nbsp;%"


def _above(excess: float) -> str:
    return f"{1 + excess:.1f} times" if excess >= 1 else f"{100 * excess:.2g}\N{NO-BREAK SPACE}% above"


def _duration(seconds: float) -> str:
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f}&nbsp;ms"
    return f"{seconds:.1f}&nbsp;s" if seconds < 9.95 else f"{seconds:,.0f}&nbsp;s"


def _figure(kind: str, results: Results, caption: str) -> str:
    if kind not in figures.available(results):
        return ""
    wide, narrow = (figures.svg(kind, results, narrow=narrow) for narrow in (False, True))
    return (
        f'<figure aria-label="{escape(caption)}"><div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _lead(results: Results) -> str:
    ours = results["algorithms"].get(OURS)
    text = (
        f"The paper reports that a linear model with a tensor trace norm tells the rank of a tensor to within one in "
        f"<b>{_percent(PAPER_ACCURACY)}</b> of all cases. "
    )
    if ours is not None:
        text += (
            f"Here, on {results['n_train']:,} training and {results['n_test']:,} test tensors, the same model reaches "
            f"<b>{_percent(ours['final_accuracy'])}</b> after <b>{_duration(ours['seconds'][-1])}</b> of learning, with "
            f"a proof that no other weights are better by more than {power(ours['gap'])} of the objective at zero."
        )
    notes = ""
    if not results["complete"]:
        done = ", ".join(results["algorithms"]) or "nothing"
        notes += f'<p class="note">This run was interrupted. Finished: {escape(done)}.</p>'
    if results["scale"] == "quick":
        notes += (
            f'<p class="note">This is the quick scale: every algorithm learns for at most {results["budget"]:g} s, so '
            f"the slow ones are still on their way when their curves end. The paper’s own size is "
            f"<code>tracelearn reproduce --scale full</code>.</p>"
        )
    return f'<p class="lead">{text}</p>{notes}'


def _claims(results: Results) -> str:
    rows = [
        [
            escape(claim["claim"]),
            escape(claim["measured"]),
            f'<span class="verdict {claim["verdict"]}">{_VERDICTS[claim["verdict"]]}</span>',
        ]
        for claim in results["claims"]
    ]
    return "<h2>Claim by claim</h2>" + table(["The paper says", "This run measured", "Verdict"], rows, "claims stack")


def _curves(results: Results) -> str:
    return (
        "<h2>The two figures</h2>"
        "<p>Colour tells the inner solver, the style of the line how the algorithm meets the data: solid for a batch, "
        "dashed for one tensor at a time, dotted for mini-batches. Time is learning time alone; the models were scored "
        "on the test tensors with the clock stopped. A ring marks the point of lowest error, a dot the last one.</p>"
        + _figure("figure_a", results, "(a) Mean squared rank error on the test tensors, over learning time.")
        + _figure(
            "figure_b", results, "(b) Share of test tensors whose rank is predicted to within η, over learning time."
        )
    )


def _final_table(results: Results) -> str:
    rows = []
    for name in [*ALGORITHMS, OURS]:
        curve = results["algorithms"].get(name)
        if curve is None:
            rows.append([f"<b>{name}</b>", *["–"] * 6])
            continue
        state = "diverged" if curve.get("diverged") else "yes" if curve["converged"] else "no"
        rows.append(
            [
                f"<b>{name}</b>",
                _duration(curve["seconds"][-1]),
                f"{curve['n_seen'][-1]:,}",
                f"{curve['final_mse']:.3f}",
                _percent(curve["final_accuracy"]),
                f"{curve['best_mse']:.3f} · {_percent(curve['best_accuracy'])}",
                state,
            ]
        )
    head = ["Algorithm", "Learning time", "Tensors seen", "Error", "Accuracy", "Best on the way", "Converged"]
    rule = (
        "<p>Converged means: by the paper’s stopping rule, within the budget; for online algorithms, in the last update; "
        f"for {OURS}, that the duality gap is at most the tolerance of {power(results['tol'])}.</p>"
    )
    return "<h2>Where each one ended</h2>" + table(head, rows, "numbers stack") + rule


def _minibatch(results: Results) -> str:
    if "minibatch" not in results:
        return ""
    rows = [
        [
            f"{row['batch_size']:,}",
            f"{1e6 * row['kronecker_seconds_per_sample']:,.0f} µs",
            f"{1e6 * row['blas_seconds_per_sample']:,.0f} µs",
            f"{row['kronecker_samples_per_second']:,.0f}",
            f"{row['blas_samples_per_second']:,.0f}",
            f"{row['kronecker_speedup']:,.1f} ×",
            f"{row['blas_speedup']:,.1f} ×",
        ]
        for row in results["minibatch"]["rows"]
    ]
    head = ["μ", "Statistics, Kronecker", "Statistics, rank-k", "Samples/s, Kronecker", "Samples/s, rank-k"]
    head += ["Speed-up, Kronecker", "Speed-up, rank-k"]
    return (
        "<h2>Mini-batches: the predicted speed-up</h2>"
        "<p>The paper adds up a Kronecker square for every tensor of a mini-batch (Eq. 28), sees larger batches learn "
        "more slowly, and predicts a speed-up by the factor μ if that cost could be avoided. It can: laid out as a "
        "matrix, the sum of Kronecker squares is the Gram matrix of the flattened tensors, and a batch is one rank-k "
        f"update of BLAS. An update below is the statistics plus {results['max_iter_per_update']} iterations of APG_ADM; "
        "both ways run the same iterations.</p>"
        + _figure("figure_minibatch", results, "Tensors learned per second over the size of the mini-batch.")
        + table(head, rows, "numbers stack")
    )


def _traps(results: Results) -> str:
    cap, constants = results["max_iter_per_update"], results["constants"]
    parts = [
        "<h2>Two traps</h2>"
        f"<p><b>The printed tolerance never lets the online algorithms go on.</b> With ε = {power(constants['eps1'])} and the "
        f"printed step the second tensor alone takes minutes. So an update is capped at <b>{cap} iterations</b> here, and "
        f"a proximal point inside at {results['inner_iter_per_update']} ({constants['inner_iter']} for the batch algorithms); "
        f"both are options, and the paper is silent on both.</p>"
    ]
    optimum = results.get("batch_optimum")
    if optimum is not None:
        excess = [
            f"{name} ended with an objective {_above(curve['excess_objective'])} the optimum"
            for name, curve in results["algorithms"].items()
            if "excess_objective" in curve
        ]
        parts.append(
            f"<p><b>At λ = {constants['lam']:g} the exact optimum overfits {results['n_batch']:,} tensors.</b> Solved to a "
            f"gap of {power(optimum['gap'])} in {_duration(optimum['seconds'])}, it has an error of "
            f"{optimum['train_mse']:.3f} on the tensors it learned from and {optimum['mse']:.3f} on new ones, an accuracy "
            f"of <b>{_percent(optimum['accuracy'])}</b>. Iterates on the way to it do better: stopping early regularises. "
            f"That is why the curves mark the best point as well as the last. "
            f"{escape('; '.join(excess))}{'.' if excess else ''}</p>"
        )
    if "lipschitz" in results:
        bounds = results["lipschitz"]
        parts.append(
            "<h2>Why the paper’s runs are slow</h2>"
            f"<p>Every step has length 1/L. Lemma 3.1 gives L = {bounds['paper']:,.0f} on the {results['n_batch']:,} "
            f"tensors; the smallest valid constant, twice the largest eigenvalue of the sum of x xᵀ, is "
            f"{bounds['tight']:,.0f}: <b>{bounds['paper'] / bounds['tight']:,.0f} times smaller</b>. With the bias "
            f"eliminated by centring it is {bounds['tight_centred']:,.0f}, or "
            f"{bounds['paper'] / bounds['tight_centred']:,.0f} times smaller. Steps that are so much too short need "
            "thousands of iterations.</p>"
        )
    return "".join(parts)


def _setup(results: Results) -> str:
    constants = results["constants"]
    shape = "×".join(map(str, results["shape"]))
    return (
        "<h2>The set-up</h2>"
        f"<p>A {shape} tensor of rank r is a sum of r outer products of vectors that are uniform on (0, 1). The paper says "
        f"“varied ranks”; r is uniform from 1 to {results['ranks'][-1]} here, since 1 to 4 give its accuracy. The model "
        "⟨W, X⟩ + b predicts r, with the sum of squared errors and λ times the tensor trace norm of W; a prediction is "
        f"right if it is less than η = {results['eta']:g} off. Constants are the paper’s: λ = {constants['lam']:g}, "
        f"β = {power(constants['beta'])}, γ = {power(constants['gamma'])}, "
        f"ε₁ = ε₂ = {power(constants['eps1'])}, L of Lemma 3.1. Batch "
        f"algorithms learn from the first {results['n_batch']:,} tensors; online ones draw from all "
        f"{results['n_train']:,} in random order, each once, singly or {results['batch_size']} at a time. {OURS} solves "
        "the problem on all of them at the same λ: it sums up the tensors in one pass, then runs ADMM until the duality "
        "gap is small enough.</p>"
    )


def _again(results: Results) -> str:
    command = (
        f"tracelearn reproduce --scale {results['scale']} --seed {results['seed']} --budget {results['budget']:g} "
        f"--max-rank {results['ranks'][-1]} --batch-size {results['batch_size']} "
        f"--max-iter-per-update {results['max_iter_per_update']} "
        f"--inner-iter-per-update {results['inner_iter_per_update']}"
    )
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    machine = results["machine"]
    return (
        f"<h2>Do it again</h2><pre><code>pip install 'tracelearn[all]'\n{command}</code></pre>"
        f"<p>{escape(versions)}; {machine['cores']} cores ({escape(machine['architecture'])}). The seed decides the data "
        "and their order; times are those of this machine. All numbers of this page are in <code>results.json</code>."
        "</p><p>The paper: “Trace Norm Regularized Tensor Classification and Its Online Learning Approaches”.</p>"
    )


def render(results: Results) -> str:
    """Make the page from the results alone."""
    sections = (_lead, _claims, _curves, _final_table, _minibatch, _traps, _setup, _again)
    body = "".join(f"<section>{html}</section>" for html in (section(results) for section in sections) if html)
    return document(
        "How many rank-one terms? A reproduction",
        f'<p class="kicker">tracelearn reproduce</p><h1>How many rank-one terms make a tensor?</h1>{body}',
        read_text("tracelearn.paper.reproduce", "page.css"),
    )


def write(results: Results, out: Path) -> Path:
    """Write the page whole or not at all; return its path."""
    path = out / REPORT
    write_atomically(path, render(results).encode())
    return path
