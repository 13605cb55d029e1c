"""Mutation testing of the numerical core: ``python -m tests.mutants --count 400``.

cosmic-ray finds the mutants, changes the sources and keeps the results; this only draws a sample and runs the tests. They run
in a fork of a process that has the libraries in memory, which takes a tenth of the time of a new one. Sources and tests are
copied to ``out/mutants`` first, so that the repository is never changed. A run that was stopped goes on where it was, and a
larger count extends the sample. A survivor is a finding unless ``docs/trust/mutants.json`` says why it is harmless.
"""

import argparse
import collections
import hashlib
import importlib
import json
import os
import random
import re
import resource
import shutil
import sys
import time
from pathlib import Path

import pytest
from cosmic_ray.commands import init
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "out" / "mutants"
EXPLAINED = ROOT / "docs" / "trust" / "mutants.json"

# The tests of each module, quick and telling ones first: the first failure ends a mutant.
SOLVING = ["tests/test_datafits.py", "tests/contracts/test_solvers.py"]
TESTS = {
    "arrays/tensors": ["tests/test_tensors.py", "tests/test_linalg.py"],
    "arrays/linalg": ["tests/test_linalg.py", "tests/contracts/test_penalties.py", "tests/test_sparse.py"],
    "losses": ["tests/contracts/test_losses.py"],
    "moments": ["tests/contracts/test_moments.py", "tests/test_sparse.py"],
    "penalties": ["tests/contracts/test_penalties.py", "tests/test_prox.py", *SOLVING],
    "problems/operators": ["tests/test_operators.py", "tests/test_linalg.py", *SOLVING],
    "problems/sparse_operators": ["tests/test_sparse.py", "tests/test_datafits.py"],
    "problems/squares": ["tests/test_datafits.py", "tests/test_sparse.py", "tests/contracts/test_solvers.py"],
    "problems/sample_loss": ["tests/test_datafits.py", "tests/test_true_gaps.py", "tests/contracts/test_solvers.py"],
    "problems/problem": ["tests/test_certificate.py", *SOLVING],
    "problems/forms": ["tests/test_estimators.py", *SOLVING],
    "selection/path": ["tests/test_path.py", "tests/test_sparse.py"],
    "solvers": SOLVING,
}
# Slow repetitions of what other tests see: other array libraries, latent norms in every solver.
LEFT_OUT = (
    "not torch and not (strict and not test_moments) and not cross_validation and not completed and not several_classes_of"
    " and not probabilities and not many_features and not (test_sparse and True)"
    " and not (test_solvers and latent and not units)"
    " and not (test_prox and cvxpy) and not brings_no_two"
)
# Bit operations on floats fail at once, and a bar is nearly always part of a type.
NOT_TRIED = re.compile(r"core/ReplaceBinaryOperator_(BitOr_\w+|\w+_(RShift|LShift|BitOr|BitAnd|BitXor))$")
IN_MEMORY = ["array_api_compat.numpy", "cvxpy", "hypothesis.extra.numpy", "joblib", "mpmath", "scipy.sparse.linalg"]
IN_MEMORY += ["sklearn.linear_model", "sklearn.model_selection", "sklearn.utils.estimator_checks"]
CPU_SECONDS = 60
GIBIBYTE = 1 << 30


def part_of(module):
    """Name the key of TESTS that a file belongs to."""
    path = Path(module).relative_to("src/tracelearn").with_suffix("").as_posix()
    return next(part for part in TESTS if path == part or path.startswith(f"{part}/"))


def modules():
    """List the files of the numerical core."""
    core = ROOT / "src" / "tracelearn"
    files = [path for part in TESTS for name in (f"{part}.py", f"{part}/*.py") for path in core.glob(name)]
    return sorted(path.relative_to(ROOT) for path in files if path.name != "__init__.py")


def passes(part):
    """Run the tests of a part in a fork, within limits of time and memory; say whether all passed."""
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (16 * GIBIBYTE, 16 * GIBIBYTE))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", LEFT_OUT]
        os._exit(int(pytest.main([*options, *TESTS[part]])))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def tried(mutation):
    """Make one mutant, run its tests and put the source back."""
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    with use_mutation(mutation.module_path, operator, mutation.occurrence) as (before, after):
        alive = passes(part_of(mutation.module_path))
    changed = [(a, b) for a, b in zip(before.splitlines(), after.splitlines(), strict=False) if a != b]
    lines = changed[0] if changed else ("", "")
    return WorkResult(
        WorkerOutcome.NORMAL,
        test_outcome=TestOutcome.SURVIVED if alive else TestOutcome.KILLED,
        diff="\n".join(line.strip() for line in lines),
    )


def sample(items, count, seed):
    """Draw some mutants, and count all by module; more of them with the same seed begin with the same."""
    everyone = [item for item in items if not NOT_TRIED.match(item.mutations[0].operator_name)]
    everyone.sort(key=lambda item: (str(item.mutations[0].module_path), *place(item.mutations[0])))
    random.Random(seed).shuffle(everyone)
    return everyone[:count], collections.Counter(part_of(item.mutations[0].module_path) for item in everyone)


def place(mutation):
    """Order mutants within a file."""
    return *mutation.start_pos, mutation.operator_name, mutation.occurrence


def explanations():
    """Read why survivors are harmless: (module, line, line as mutated) -> reason."""
    known = json.loads(EXPLAINED.read_text())["survivors"] if EXPLAINED.exists() else []
    return {(one["module"], one["line"], one["mutant"]): one["reason"] for one in known}


def summary(chosen, there, results, seed):
    """Count by module and list the survivors, each with the reason why it is harmless, if one is known."""
    reasons, counts, survivors = explanations(), collections.defaultdict(collections.Counter), []
    for item in sorted(chosen, key=lambda item: (str(item.mutations[0].module_path), *place(item.mutations[0]))):
        mutation, result = item.mutations[0], results[item.job_id]
        counts[part_of(mutation.module_path)][result.test_outcome.value] += 1
        if result.test_outcome == TestOutcome.SURVIVED:
            module = str(mutation.module_path)
            line, mutant = result.diff.split("\n")
            reason = reasons.get((module, line, mutant), "")
            survivors.append(
                {"module": module, "at": mutation.start_pos[0], "line": line, "mutant": mutant, "reason": reason}
            )
    return {
        "mutants": there.total(),
        "tried": len(chosen),
        "seed": seed,
        "killed": sum(count["killed"] for count in counts.values()),
        "modules": {
            part: {"mutants": there[part], "tried": counts[part].total(), "killed": counts[part]["killed"]}
            for part in TESTS
        },
        "survivors": survivors,
    }


def session():
    """Name the store of results after the sources: results of others say nothing about these."""
    sources = b"".join((ROOT / path).read_bytes() for path in modules())
    return COPY / f"{hashlib.sha256(sources).hexdigest()[:12]}.sqlite"


def prepare():
    """Copy what is mutated and what is run, make it the code that the tests import, and see them pass."""
    COPY.mkdir(parents=True, exist_ok=True)
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, COPY / name, dirs_exist_ok=True)
    shutil.copy2(ROOT / "pyproject.toml", COPY)
    os.chdir(COPY)
    sys.path.insert(0, str(COPY / "src"))
    for name in IN_MEMORY:
        importlib.import_module(name)
    for part, files in TESTS.items():
        if not passes(part):
            sys.exit(f"Expected the tests of {part} to pass without a mutant, and some do not: {' '.join(files)}.")
    sys.dont_write_bytecode = True  # two mutants of one second would share their bytecode


def main():
    """Run from the command line; the exit code is 1 if a survivor is not explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="try the survivors again, with the tests of now")
    options = parser.parse_args()
    prepare()
    with use_db(str(session()), WorkDB.Mode.create) as work:
        if not work.num_work_items:
            init(modules(), work, {})
        chosen, there = sample(work.work_items, options.count, options.seed)
        results = dict(work.results)
        for number, item in enumerate(chosen):
            known = results.get(item.job_id)
            if known is None or (options.again and known.test_outcome == TestOutcome.SURVIVED):
                began = time.monotonic()
                found = tried(item.mutations[0])
                work.set_result(item.job_id, found)
                where = f"{item.mutations[0].module_path}:{item.mutations[0].start_pos[0]}"
                took = f"{time.monotonic() - began:.1f} s"
                print(f"{number + 1}/{len(chosen)} {found.test_outcome.value} {where} {took}", flush=True)  # noqa: T201
        report = summary(chosen, there, dict(work.results), options.seed)
    (ROOT / "out" / "mutants.json").write_text(json.dumps(report, indent=1) + "\n")
    unexplained = [one for one in report["survivors"] if not one["reason"]]
    print(json.dumps(unexplained, indent=1))  # noqa: T201
    sys.exit(1 if unexplained else 0)


if __name__ == "__main__":
    main()
