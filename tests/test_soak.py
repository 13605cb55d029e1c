"""The long haul of ``tests/soak.py``, for some seconds: two kills, and every comparison of the long one."""

import os

import pytest
import soak


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
@pytest.mark.slow
def test_a_stream_that_is_killed_and_merged_stays_exact_and_small(tmp_path, monkeypatch):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    monkeypatch.chdir(root)
    found = soak.soak(0.1, tmp_path / "soak", quiet=True)
    assert soak.verdict(found) == []
    assert found["kills"] >= 2
    assert found["n_samples"] > 0


def test_the_verdict_names_what_failed():
    good = {"distance": 1e-4, "error_next": {"online": 1.0, "offline": 1.0}}
    found = {
        "resident_mib": [100.0] * 8,
        "looks": [good],
        "weight_error": 0.0,
        "steps_back": 0,
        "differing_errors": 0,
        "merge_distance": 0.0,
    }
    assert soak.verdict(found) == []
    assert soak.verdict({**found, "resident_mib": [100.0] * 4 + [200.0] * 4}) == ["memory grew"]
    assert soak.verdict({**found, "weight_error": 1e-6}) == ["a sample was lost or learned twice"]
    worse = {"distance": 0.1, "error_next": {"online": 1.1, "offline": 1.0}}
    assert len(soak.verdict({**found, "looks": [good, worse]})) == 2
    assert len(soak.verdict({**found, "merge_distance": 0.1})) == 1
