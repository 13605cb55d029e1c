"""A long haul: ``python -m tests.soak --minutes 20 --out out/soak``.

A stream with drift is learned by a process that is killed again and again and goes on from its checkpoint. Beside it, two
processes learn one half of the batches each, and are merged at every look. What is compared at every look: the samples that
were learned with those that were sent (none may be lost or counted twice), memory with memory before, the model with one
that is fitted at once, offline, to the same samples with the weights that forgetting left them, and the prequential error
with that of the offline models.
"""

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SHAPE = (6, 5, 4)
BATCH = 500
REFRESH = 20 * BATCH
FORGETTING = 0.98  # of a batch: a memory of about 50 batches
WINDOW = 500  # batches after which forgetting has left nothing: 0.98 ** 500 is 4e-5


def batch(index):
    """Make one batch of an endless stream whose weights turn slowly: batch number k is always the same."""
    rng = np.random.default_rng([2024, index])
    X = rng.standard_normal((BATCH, *SHAPE), dtype=np.float32) + 0.5
    angle = 2.0 * np.pi * index / 5000.0
    modes = [np.cos(angle + np.arange(size)) for size in SHAPE]
    W = np.einsum("i,j,k->ijk", *modes)
    return X, np.tensordot(X, W, 3) + rng.standard_normal(BATCH)


def source(start):
    """Begin the stream at any sample."""
    index = start // BATCH
    while True:
        yield batch(index)
        index += 1


def make_model():
    """Make the model that all learners are."""
    from tracelearn import TraceNormRegressor

    return TraceNormRegressor(alpha=0.02, forgetting=FORGETTING)


def learn(folder, limit):
    """Learn the stream until killed, or to a number of samples; say how much memory is held at every refresh."""
    from tracelearn import stream

    log = open(folder / "memory.jsonl", "a")

    def tell(report):
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        point = report.curve[-1] if report.curve else None
        log.write(json.dumps([report.n_samples, resident, point and point.error, time.time()]) + "\n")
        log.flush()

    model = make_model()
    options = {"checkpoint": folder / "run", "checkpoint_seconds": 1.0, "resume": True, "max_samples": limit}
    stream(source, model, refresh_samples=REFRESH, on_refresh=tell, **options)


def offline(n_seen):
    """Fit the last samples at once, each with the weight that forgetting left it."""
    from tracelearn import TraceNormRegressor

    last = n_seen // BATCH
    first = max(0, last - WINDOW)
    X, y = zip(*(batch(index) for index in range(first, last)), strict=True)
    weight = np.repeat(FORGETTING ** np.arange(last - first - 1, -1, -1.0), BATCH)
    return TraceNormRegressor(alpha=0.02, tol=1e-8).fit(np.concatenate(X), np.concatenate(y), sample_weight=weight)


def merged(n_batches):
    """Learn even and odd batches by two models and merge them; learn all by one."""
    from tracelearn import TraceNormRegressor

    halves = [TraceNormRegressor(alpha=0.02, tol=1e-8) for _ in range(2)]
    whole = TraceNormRegressor(alpha=0.02, tol=1e-8)
    for index in range(n_batches):
        X, y = batch(index)
        halves[index % 2].partial_fit(X, y)
        whole.partial_fit(X, y)
    return halves[0].merge(halves[1]), whole


def distance(one, other):
    """Compare weights, relative to their size."""
    return float(np.linalg.norm(one.coef_ - other.coef_) / np.linalg.norm(other.coef_))


def look(folder):
    """Compare the newest checkpoint with an offline fit, and both on the samples that come next."""
    from tracelearn import stream

    model = make_model()
    report = stream(source, model, refresh_samples=REFRESH, checkpoint=folder / "run", resume=True, max_samples=1)
    exact = offline(report.n_samples)
    errors = {}
    nexts = [batch(report.n_samples // BATCH + index) for index in range(20)]
    for name, one in (("online", model), ("offline", exact)):
        errors[name] = float(np.mean([np.mean((one.predict(X) - y) ** 2) for X, y in nexts]))
    return {"n_samples": report.n_samples, "distance": distance(model, exact), "error_next": errors}


def soak(minutes, folder, quiet=False):
    """Start, kill and start again until the time is over; return what was seen."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(1)
    end = time.monotonic() + 60.0 * minutes
    kills, looks = 0, []
    command = [sys.executable, "-m", "tests.soak", "--learner", "--out", str(folder)]
    life = max(2.0, minutes * 60.0 / 20.0)  # seconds of learning, more or less, before it is killed
    while kills < 2 or time.monotonic() < end:
        with subprocess.Popen(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}) as learner:
            _wait_for_learning(folder, learner)
            time.sleep(min(max(1.0, end - time.monotonic()), chance.uniform(0.5, 1.5) * life))
            learner.send_signal(signal.SIGKILL)
        kills += 1
        looks.append(look(folder))
        if not quiet:
            print(json.dumps(looks[-1]), flush=True)  # noqa: T201
    n = looks[-1]["n_samples"]
    return {
        **_judge(folder, looks),
        "kills": kills,
        "n_samples": n,
        "looks": looks,
        "merge_distance": distance(*merged(40)),
    }


def _wait_for_learning(folder, learner):
    """Wait until a learner has written a checkpoint of its own."""
    before = set(folder.glob("run/checkpoint-*"))
    while learner.poll() is None and set(folder.glob("run/checkpoint-*")) <= before:
        time.sleep(0.05)
    if learner.returncode is not None:
        raise RuntimeError(f"the learner ended by itself, with {learner.returncode}")


def _judge(folder, looks):
    from tracelearn import stream

    rows = [json.loads(line) for line in (folder / "memory.jsonl").read_text().splitlines() if line.endswith("]")]
    # A run after a kill tells again of samples that came after its checkpoint: the same errors, or something was lost.
    told, differing = {}, 0
    for n_seen, _, error, _ in rows:
        differing += n_seen in told and told[n_seen] != error
        told[n_seen] = error
    counted = looks[-1]["n_samples"]
    model = make_model()
    report = stream([], model, checkpoint=folder / "run", resume=True, max_samples=1)
    lost = sum(later["n_samples"] < earlier["n_samples"] for earlier, later in itertools.pairwise(looks))
    expected = (1.0 - FORGETTING ** (counted // BATCH)) / (1.0 - FORGETTING) * BATCH
    weight = float(model.moments_.weight)
    return {
        "weight_error": abs(weight / expected - 1.0),  # samples lost or learned twice would show here
        "steps_back": lost,
        "differing_errors": differing,
        "resumed_at": report.n_samples,
        "resident_mib": [round(row[1] / 2**20, 1) for row in rows],
        "curve": sorted((n, error) for n, error in told.items() if error is not None),
        "seconds_learning": round(
            sum(b[3] - a[3] for a, b in itertools.pairwise(rows) if 0 < b[0] - a[0] <= REFRESH), 1
        ),
    }


def verdict(found):
    """Name what failed; nothing is what we want."""
    memory = found["resident_mib"]
    early, late = np.median(memory[: max(1, len(memory) // 4)]), np.median(memory[-max(1, len(memory) // 4) :])
    errors = [(one["error_next"]["online"], one["error_next"]["offline"]) for one in found["looks"]]
    failed = {
        "a sample was lost or learned twice": found["weight_error"] > 1e-9
        or found["steps_back"]
        or found["differing_errors"],
        "memory grew": late > 1.1 * early + 10.0,
        "the model is not that of an offline fit": max(one["distance"] for one in found["looks"]) > 0.01,
        "the error is not that of an offline fit": max(abs(a / b - 1.0) for a, b in errors) > 0.01,
        "merged models are not the model of all": found["merge_distance"] > 1e-3,
    }
    return [name for name, bad in failed.items() if bad]


def draw(found, path):
    """Draw error and memory over samples."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5.0), layout="constrained")
    above, below = figure.subplots(2, 1)
    n, error = zip(*found["curve"], strict=True)
    above.plot(np.array(n) / 1e6, error, linewidth=0.8, color="#7aa6c2", label="prequential error")
    at = [one["n_samples"] / 1e6 for one in found["looks"]]
    above.plot(at, [one["error_next"]["offline"] for one in found["looks"]], "k.", label="offline refit, next samples")
    above.set(xlabel="samples, millions", ylabel="mean squared error", ylim=(0.0, None))
    above.legend()
    below.plot(found["resident_mib"], linewidth=0.8, color="#333333")
    below.set(
        xlabel="refresh, over all restarts", ylabel="resident memory, MiB", ylim=(0.0, 1.2 * max(found["resident_mib"]))
    )
    figure.savefig(path, dpi=150)


def main():
    """Run from the command line; the exit code is 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--out", type=Path, default=Path("out/soak"))
    parser.add_argument("--learner", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.learner:
        learn(options.out, None)
        return
    if options.out.exists() and any(options.out.iterdir()):
        sys.exit(f"Expected an empty folder, got {options.out}: remove it or name another with --out.")
    began = time.monotonic()
    found = soak(options.minutes, options.out)
    found = {"minutes": round((time.monotonic() - began) / 60.0, 1), "failed": verdict(found), **found}
    (options.out / "soak.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found, options.out / "soak.png")
    keys = (
        "minutes",
        "n_samples",
        "kills",
        "failed",
        "weight_error",
        "steps_back",
        "differing_errors",
        "merge_distance",
    )
    print(json.dumps({key: found[key] for key in keys}))  # noqa: T201
    sys.exit(1 if found["failed"] else 0)


if __name__ == "__main__":
    main()
