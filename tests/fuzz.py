"""Feeds damaged and hostile models, moments and checkpoints to their readers: ``python -m tests.fuzz --seconds 600 --out FILE``.

A file is read, or refused with one sentence in a ValueError or OSError. Nothing else may happen: no other exception, no crash,
no pickle, no program started, nothing written, no memory beyond a limit, no more than some seconds. Commands are given models
in which one value was changed, under a right checksum, and end in success or with one line; ``--kind value`` goes through all
values of all models in turn, in an order that the seed shuffles. Input number n of a seed is always the same, so that a finding
can be repeated with ``--seed S --first N --inputs 1``.
"""

import argparse
import contextlib
import copy
import io
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np

MEMORY = 4 << 30  # of addresses, beyond those that libraries reserve before the first input
SECONDS = 20  # of processor time for one file
LARGEST = 1 << 22  # entries of the samples that a model must predict
MODEL_SECONDS, MODEL_MEMORY = 2, 200 << 20  # for one file of a model or of moments
FORBIDDEN = (
    "pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.remove", "os.rename",
    "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.truncate", "shutil.", "subprocess.", "socket.",
    "ctypes.dlopen", "webbrowser.", "urllib.",
)  # fmt: skip


# --- files that are good ------------------------------------------------------------------------------------------------


def make_seeds(folder):
    """Write one good file of each kind, or a few; return their paths by kind."""
    from sklearn.pipeline import make_pipeline

    from tracelearn import (
        HierarchicalTraceNormClassifier,
        LaggedRegressor,
        Logarithm,
        ModePCA,
        ModeWhitener,
        Moments,
        SecondOrder,
        TensorClassifier,
        TensorRegressor,
        TensorStandardScaler,
        TraceNormClassifier,
        TraceNormRegressor,
        TraceNormRegressorCV,
        Views,
        save,
        stream,
    )
    from tracelearn.paper import PaperRegressor

    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3, 2))
    y = X[:, 0, 0] + 0.1 * rng.standard_normal(60)
    names = np.where(y > 0, "up", "down")
    save(TraceNormRegressor(alpha=0.1).fit(X, y), folder / "regressor.tracelearn")
    save(TraceNormClassifier(alpha=0.1).fit(X, names), folder / "classifier.tracelearn")
    save(HierarchicalTraceNormClassifier().fit(X, np.digitize(y, [-0.5, 0.5])), folder / "tree.tracelearn")
    save(make_pipeline(TensorStandardScaler(), TraceNormRegressor()).fit(X, y), folder / "pipeline.tracelearn")
    save(Moments.of(X, y), folder / "moments.tracelearn")
    save(TensorClassifier(alphas=3, cv=3).fit(X, names), folder / "search.tracelearn")
    save(TensorRegressor(alphas=3, cv=3, views=[None, SecondOrder(0)]).fit(X, y), folder / "joined.tracelearn")
    save(TraceNormRegressorCV(alphas=3, cv=3).fit(X, y), folder / "path.tracelearn")
    kept = TraceNormClassifier(alpha=0.1, target_mode=True, keep_moments=True, warm_start=True)
    save(kept.fit(X, np.digitize(y, [-0.5, 0.5])), folder / "kept.tracelearn")
    save(
        TraceNormRegressor(penalty="latent", keep_moments=True).fit(X, np.stack([y, -y], 1)), folder / "two.tracelearn"
    )
    views = Views([("raw", None), ("power", SecondOrder(0)), ("white", ModeWhitener()), ("pca", ModePCA())])
    save(make_pipeline(views, TraceNormClassifier()).fit(X, names), folder / "views.tracelearn")
    save(make_pipeline(Logarithm(), SecondOrder(0, mean=False)).fit(np.exp(X)), folder / "second.tracelearn")
    save(LaggedRegressor(2).fit(X[:, :, 0], y), folder / "lagged.tracelearn")
    save(TraceNormRegressor().fit(X, y, confounds=y[:, None] ** [1, 2]), folder / "confounds.tracelearn")
    save(PaperRegressor("OL_APG_ADM", max_iter=2).fit(X, y), folder / "paper.tracelearn")
    stream([(X, y)], TraceNormRegressor(alpha=0.1), refresh_samples=60, checkpoint=folder / "run")
    np.savez(folder / "stored.npz", X=X, y=y)
    np.savez_compressed(folder / "deflated.npz", X=X.astype(np.float32), y=names)
    seeds = {
        "model": [
            folder / "regressor.tracelearn",
            folder / "classifier.tracelearn",
            folder / "tree.tracelearn",
            folder / "pipeline.tracelearn",
            folder / "views.tracelearn",
            folder / "second.tracelearn",
            folder / "lagged.tracelearn",
            folder / "kept.tracelearn",
            folder / "two.tracelearn",
            folder / "paper.tracelearn",
            folder / "search.tracelearn",
            folder / "joined.tracelearn",
            folder / "path.tracelearn",
        ],
        "command": sorted(folder.glob("*.tracelearn")),
        "value": sorted(folder.glob("*.tracelearn")),
        "moments": [folder / "moments.tracelearn"],
        "checkpoint": list((folder / "run").glob("checkpoint-*")),
    }
    return seeds


# --- what is done to them -----------------------------------------------------------------------------------------------


def mutate(data, chance, others):
    """Damage bytes in one of the ways that disks, networks and strangers do."""
    for _ in range(chance.choice((1, 1, 2, 5))):
        data = chance.choice((_flip, _flip, _cut, _splice, _drop, _repeat, _large, _word))(bytes(data), chance, others)
    return data


def _place(data, chance):
    """Choose a place; headers and ends, where structure lies, more often than the middle."""
    size = max(1, len(data))
    return chance.choice(
        (chance.randrange(size), chance.randrange(min(size, 300)), size - 1 - chance.randrange(min(size, 300)))
    )


def _flip(data, chance, others):
    changed = bytearray(data or b"\0")
    for _ in range(chance.choice((1, 1, 3, 20))):
        changed[_place(changed, chance)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(data, chance, others):
    return data[: _place(data, chance)]


def _splice(data, chance, others):
    other = chance.choice(others)
    return data[: _place(data, chance)] + other[_place(other, chance) :]


def _drop(data, chance, others):
    start = _place(data, chance)
    return data[:start] + data[start + chance.choice((1, 2, 4, 100)) :]


def _repeat(data, chance, others):
    start = _place(data, chance)
    part = data[start : start + chance.choice((1, 4, 50))]
    return data[:start] + part * chance.choice((2, 10, 1000)) + data[start:]


def _large(data, chance, others):
    number = chance.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1))
    size = chance.choice((2, 4, 8))
    start = _place(data, chance)
    return data[:start] + (number % 256**size).to_bytes(size, chance.choice(("little", "big"))) + data[start + size :]


def _word(data, chance, others):
    word = chance.choice(
        (b"..", b"/etc/passwd", b"|O", b"pickle", b"99999999999999", b"-1", b"null", b"nan", b"\xff\xfe", b"[" * 5000)
    )
    start = _place(data, chance)
    return data[:start] + word + data[start + chance.choice((0, len(word))) :]


def resealed(data, change, chance):
    """Change what a file of ours holds, a document and its arrays, and write the checksum anew, as a stranger would."""
    from tracelearn.io.model_header import MAGIC, Header

    _, line, document, rest = data.split(b"\n", 3)
    document = json.loads(document)
    arrays = []
    for dtype, shape, order in document["arrays"]:
        array = np.ndarray(shape, dtype, rest, order=order).copy()
        arrays.append(array)
        rest = rest[array.nbytes :]
    payload = change(document["content"], arrays, chance)
    if change is many_changes and chance.random() < 0.3:
        payload = mutate(payload, chance, [payload])
    return MAGIC + Header.of(json.loads(line)["kind"], payload).line() + payload


def _payload(content, arrays, table=None):
    """Put a document together, with a true table of its arrays unless there is another."""
    arrays = [np.asarray(array, order="C") for array in arrays]
    table = [[array.dtype.str, array.shape, "C"] for array in arrays] if table is None else table
    line = json.dumps({"arrays": table, "content": content}).encode()
    return line + b"\n" + b"".join(array.tobytes() for array in arrays)


def many_changes(content, arrays, chance):
    """Change an array, the content that refers to arrays in several places, or what the document says of arrays."""
    table = None
    kind = chance.choice(("content", "content", "array", "table"))
    if kind == "content" or not arrays:
        for _ in range(chance.choice((1, 1, 3))):
            _change_json(content, chance, (*VALUES, *_nodes(chance, len(arrays))))
    elif kind == "array":
        index = chance.randrange(len(arrays))
        arrays[index] = _other_array(arrays[index], chance)
    else:
        table = [[array.dtype.str, list(array.shape), "C"] for array in arrays]
        index = chance.randrange(len(arrays))
        table[index][chance.randrange(3)] = chance.choice((*VALUES, *HOSTILE_ARRAYS))
    return _payload(content, arrays, table)


# What a document may say of an array: dtypes and shapes.
HOSTILE_ARRAYS = (
    "|O", "<U1000000", "|V1000000000", "<M8[ns]", "<c16", "|b1", "<f2", "<U0", "f8,f8", [["a", "<f8"]],
    [2**40], [60, 2**50], [2**62, 2**62], [-1, 6], [60, 0], [], [60, 3, 2], [10**30], [60] * 64, [60.0], ["60"], "F", "K",
)  # fmt: skip


def one_change(content, arrays, chance):
    """Change one value of a document, or one array that stays a good one."""
    if arrays and chance.random() < 0.3:
        index = chance.randrange(len(arrays))
        arrays[index] = _other_array(arrays[index], chance)
    else:
        _change_json(content, chance, (*VALUES, *_nodes(chance, len(arrays))))
    return _payload(content, arrays)


def replacements(seeds, seed):
    """List all values of all models with all that is put in their place: (model, where in it, what).

    Where is a path in the content, or the index of an array.
    """
    found = []
    for path in seeds["value"]:
        document = json.loads(path.read_bytes().split(b"\n", 3)[2])
        for place in _places(document["content"]):
            found += [(path, place, value) for value in (*LEAVES, "dropped")]
        for index in range(len(document["arrays"])):
            found += [(path, index, other) for other in OTHERS]
    random.Random(seed).shuffle(found)
    return found


def _places(part, above=()):
    """Find the places of all values in a JSON document, of those that hold others too."""
    for key in part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ():
        yield (*above, key)
        yield from _places(part[key], (*above, key))


def replaced(content, arrays, chance, replacement):
    """Put one thing in the place of one value or array."""
    _, place, value = replacement
    if isinstance(place, int):
        arrays[place] = _other_array(arrays[place], chance, value)
        return _payload(content, arrays)
    part = content
    for key in place[:-1]:
        part = part[key]
    if value == "dropped":
        del part[place[-1]]
    else:
        part[place[-1]] = value
    return _payload(content, arrays)


OTHERS = ("flat", "deeper", "shorter", "empty", "number", "type", "value", "value", "value")


def _other_array(array, chance, other=None):
    """Make an array of another shape, type or content."""
    other = other or chance.choice(OTHERS)
    if other in ("flat", "deeper"):
        return array.ravel() if other == "flat" else array[..., None]
    if other in ("shorter", "empty"):
        return np.atleast_1d(array)[: -1 if other == "shorter" else 0]
    if other == "number" or array.dtype.kind != "f" or not array.size:
        return np.array(3.0)
    if other == "type":
        return array.astype(chance.choice(("U5", "S3", "c16", "M8[s]", "b1", "i8", "f2", "f4")), casting="unsafe")
    array.flat[chance.randrange(array.size)] = chance.choice((np.nan, np.inf, -np.inf, 1e308, -1.0, 0.0, 1e-320))
    return array


def _nodes(chance, n_arrays):
    """Make values of the format: arrays that are named often, keys that collide, lists in lists, other types."""
    array = {"$array": chance.randrange(n_arrays + 1)}
    kind = chance.choice(("TraceNormRegressor", "Moments", "Split", "Pipeline", "ModePCA", "Huber", "subprocess.Popen"))
    deep = []
    for _ in range(chance.choice((3, 200))):
        deep = [deep]
    return (
        array, [array] * 400, {"$tuple": [array] * 3}, {"$dtype": "<f8"},
        {"$dict": [[n * (2**61 - 1), n] for n in range(2900)]}, {"$dict": [["a", 1], [1, 2]]}, {"$dtype": "|V999999"},
        {"$object": [kind, {}]}, {"$object": [kind, {"steps": [], "memory": None, "verbose": 0}]},
        {"$tuple": [chance.choice((0, 1, 3, 12, -1, 10**12)) for _ in range(chance.choice((1, 3)))]}, deep,
    )  # fmt: skip


VALUES = (
    None, True, -1, -0.5, 0, 1, 3, 2**70, 1e308, float("nan"), float("inf"), "", "..", "a\x1b[2J", "os", "system", "builtins",
    "eval", "numpy", "ndarray", "TraceNormClassifier", [], {}, [[[]]], [1, 2], 99999, "|O", "pickle",
)  # fmt: skip


LEAVES = (
    None, True, -1, 0, 3, 2**70, 1e308, -0.5, float("nan"), "", "a\x1b[2J\nb", "x" * 2000, [], {}, [1, 2], {"a": [None]},
    {"$tuple": [0, -1]}, {"$array": 0}, {"$dtype": "|O"}, {"$object": ["Moments", {}]},
)  # fmt: skip


def _change_json(document, chance, values=VALUES):
    """Change one value somewhere in a JSON document."""
    part, place = document, None
    while part and isinstance(part, dict | list) and (place is None or chance.random() < 0.7):  # no deeper than need be
        key = chance.choice(list(part) if isinstance(part, dict) else range(len(part)))
        part, place = part[key], (part, key)
    if place:
        part, key = place
        if chance.random() < 0.15:
            del part[key]
        else:
            part[key] = copy.deepcopy(chance.choice(values))  # which would else be in itself after another change


def _other_than_a_file(path, chance):
    """Put a link, a pipe or a folder in the place of a file; the link may lead to a device that never ends."""
    target = chance.choice(
        ("/dev/zero", "/dev/random", "/etc/passwd", "/proc/self/environ", str(path.parent), "nowhere")
    )
    path.unlink()
    chance.choice((lambda: os.symlink(target, path), lambda: os.mkfifo(path), path.mkdir))()


def refer_elsewhere(path, chance):
    """Put a pipe next to a file, and a link, a pipe or a folder in its place: nobody may follow it, or wait for it."""
    os.mkfifo(path.with_name("pipe"))
    _other_than_a_file(path, chance)


def make_input(kind, seeds, folder, chance, replacement):
    """Write one hostile input; return its path."""
    seed = replacement[0] if kind == "value" else chance.choice(seeds[kind])
    path = folder / seed.name
    data = seed.read_bytes()
    if kind == "checkpoint" and chance.random() < 0.05:
        path.write_bytes(data)
        refer_elsewhere(path, chance)
        return path
    if kind == "value":
        data = resealed(data, partial(replaced, replacement=replacement), chance)
    elif kind == "command":
        data = resealed(data, one_change, chance)
    elif kind in ("model", "moments", "checkpoint") and chance.random() < 0.8:
        data = resealed(data, many_changes, chance)
    else:
        data = mutate(data, chance, [other.read_bytes() for other in seeds[kind]])
    path.write_bytes(data)
    return path


# --- reading them -------------------------------------------------------------------------------------------------------


def read(kind, path):
    """Read a file as a user would; a file that is taken must be what it says."""
    from tracelearn import TraceNormRegressor, load, stream

    if kind in ("model", "moments"):
        model = load(path)
        if hasattr(model, "sample_shape_"):  # what was read must be of use
            is_lagged = hasattr(model, "lags_")  # it predicts recordings, and has the shape of its weights
            shape = (20, model.n_features_in_) if is_lagged else (2, *model.sample_shape_)
            for name in ("predict", "decision_function", "transform"):
                if hasattr(model, name) and math.prod(shape) <= LARGEST:  # ``load`` tries no larger ones out either
                    getattr(model, name)(np.ones(shape))
    elif kind in ("command", "value"):
        command(path)
    elif kind == "checkpoint":
        stream([], TraceNormRegressor(alpha=0.1), checkpoint=path.parent, resume=True, max_samples=1)
        data = path.parent.parent / "seeds" / "stored.npz"
        said("stream", data, "--alpha", "0.1", "--resume", "--checkpoint", path.parent, "--quiet")


def command(path):
    """Give a model to the commands that read one; each succeeds or says one line. The line of ``inspect`` is raised."""
    seeds, out = path.parent.parent / "seeds", path.parent
    data = str(
        seeds
        / ("stored.npz" if path.stem in ("regressor", "two", "pipeline", "paper", "joined", "path") else "deflated.npz")
    )
    refusal = said("inspect", path)
    said("inspect", path, "--json")
    said("inspect", path, "--html", out / "page", "--data", data, "--force")
    said("predict", path, data, "--out", out / "found.csv", "--force")
    said("merge", path, seeds / path.name, "--out", out / "merged", "--force")
    if refusal:
        raise ValueError(refusal)


def said(*arguments):
    """Run a command; return what it refused with, in one line, or nothing where it succeeded."""
    from tracelearn.cli import main

    told, shown = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(told):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as leaving:
            code = leaving.code
    lines = told.getvalue()
    if "\x1b" in shown.getvalue() + lines:
        raise AssertionError(f"{arguments[0]} writes to the terminal what it obeys")
    refusals = [line for line in lines.splitlines() if line.startswith("tracelearn: Expected")]
    if code != 0 and (code != 2 or len(refusals) != 1 or not lines.startswith("tracelearn: ")):
        raise AssertionError(f"{arguments[0]} ended with {code}: {lines}")
    return refusals[0].removeprefix("tracelearn: ") if code else None


def _is_sentence(text):
    return "\n" not in text and text.startswith(("Expected", "[Errno"))


class Watch:
    """Notes what Python does while a file is read, and what of it is forbidden."""

    def __init__(self, folder):
        self.folder, self.on, self.seen = str(folder), False, []
        sys.addaudithook(self)

    def __call__(self, event, args):
        if not self.on:
            return
        writes = event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+")
        own = event in ("open", "os.remove", "os.rename", "os.mkdir") and str(args[0]).startswith(self.folder)
        if (writes or event.startswith(FORBIDDEN)) and not own:
            self.seen.append(f"{event} {args!r}"[:200])


def judge(kind, path, watch):
    """Read one input; return what came of it, "read" or "refused", or a finding that begins with "!"."""
    is_model = kind in ("model", "moments")
    most_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.setitimer(signal.ITIMER_PROF, MODEL_SECONDS if is_model else SECONDS)
    signal.alarm(6 * SECONDS)  # what waits for ever uses no processor: the process ends, and whoever started it tells
    watch.seen, watch.on = [], True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(kind, path)
        found = "read"
    except (ValueError, OSError) as error:
        found = "refused" if _is_sentence(str(error)) else f"! sentence: {str(error)!r}"
    except BaseException as error:
        found = f"! {type(error).__name__}: {error}"
    finally:
        watch.on = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most_before) << 10
    if is_model and grown > MODEL_MEMORY:
        found = f"! took {grown >> 20} MB"
    return f"! did {watch.seen[0]}" if watch.seen else found


def work(options):
    """Try inputs one after the other, and note each before it is read: whoever started us sees where a crash came."""

    def late(*_):
        raise TimeoutError("! too slow")

    signal.signal(signal.SIGPROF, late)
    base = Path(options.folder)
    os.chdir(base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (base / "seeds").mkdir(exist_ok=True)
        marker = base / "seeds.json"
        if not marker.exists():
            seeds = make_seeds(base / "seeds")
            marker.write_text(json.dumps({kind: [str(path) for path in paths] for kind, paths in seeds.items()}))
    seeds = {kind: [Path(path) for path in paths] for kind, paths in json.loads(marker.read_text()).items()}
    kinds = [kind for kind in seeds if options.kind in (None, kind)]
    for kind in kinds:  # libraries are imported, and good files are read, before limits and watch are on
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for path in seeds[kind]:
                read(kind, path)
    reserved = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY + reserved,) * 2)
    watch = Watch(base)
    order = replacements(seeds, options.seed) if "value" in kinds else []
    number, end = options.first, time.monotonic() + options.seconds
    while number < options.first + options.inputs and time.monotonic() < end:
        chance = random.Random(f"{options.seed}-{number}")
        kind = kinds[number % len(kinds)]
        folder = base / f"input-{number}"
        folder.mkdir()
        print(json.dumps([number, kind, "begun"]), flush=True)  # noqa: T201
        replacement = order[number // len(kinds) % len(order)] if kind == "value" else None
        found = judge(kind, make_input(kind, seeds, folder, chance, replacement), watch)
        if (base / "code-was-run").exists():
            found = "! code was run"
        print(json.dumps([number, kind, found]), flush=True)  # noqa: T201
        if not found.startswith("!"):
            shutil.rmtree(folder)
        number += 1


def fuzz(options):
    """Try inputs in processes that may crash; return counts and findings."""
    counts, findings = {}, []
    began, number = time.monotonic(), options.first
    with tempfile.TemporaryDirectory() as folder:
        while number < options.first + options.inputs and (left := options.seconds - time.monotonic() + began) > 0:
            command = [sys.executable, __file__, "--worker", "--folder", folder, "--seed", str(options.seed)]
            command += ["--first", str(number), "--inputs", str(options.first + options.inputs - number)]
            command += ["--seconds", str(left), *(["--kind", options.kind] if options.kind else [])]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            last = None
            for line in done.stdout.splitlines():
                number, kind, found = last = json.loads(line)
                if found != "begun":
                    tally = counts.setdefault(kind, {"read": 0, "refused": 0})
                    tally[found] = tally.get(found, 0) + 1 if not found.startswith("!") else tally.get(found, 0)
                    if found.startswith("!"):
                        findings.append({"seed": options.seed, "input": number, "kind": kind, "found": found})
            if last is None:
                raise RuntimeError(f"no input was tried: {done.stderr[-2000:]}")
            if last[2] == "begun":
                told = f"! ended with {done.returncode}: {done.stderr[-300:]}"
                findings.append({"seed": options.seed, "input": number, "kind": last[1], "found": told})
            number += 1
    counts = {kind: {key: n for key, n in tally.items() if not key.startswith("!")} for kind, tally in counts.items()}
    total = sum(sum(tally.values()) for tally in counts.values()) + len(findings)
    return {
        "inputs": total,
        "seconds": round(time.monotonic() - began, 1),
        "seed": options.seed,
        "kinds": counts,
        "findings": findings,
    }


def main():
    """Run from the command line; the exit code is 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--inputs", type=int, default=1 << 40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", default=None)
    parser.add_argument("--out", type=Path, default=None, help="file for the counts, as JSON")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    report = fuzz(options)
    text = json.dumps(report, indent=1)
    print(text)  # noqa: T201
    if options.out:
        options.out.write_text(text + "\n")
    sys.exit(1 if report["findings"] else 0)


if __name__ == "__main__":
    main()
