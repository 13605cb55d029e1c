"""A bounded part of the fuzzing in ``tests/fuzz.py``: the same inputs every time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(os.name != "posix", reason="needs limits on memory and time")
def test_hostile_files_are_read_or_refused_in_one_sentence(tmp_path):
    command = [
        sys.executable,
        ROOT / "tests" / "fuzz.py",
        "--inputs",
        "1200",
        "--seconds",
        "300",
        "--out",
        tmp_path / "counts.json",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    report = json.loads((tmp_path / "counts.json").read_text())
    assert not report["findings"], done.stdout
    assert {"model", "moments", "checkpoint", "command", "value"} == set(report["kinds"])
    assert all(tally["refused"] > 10 for tally in report["kinds"].values())
