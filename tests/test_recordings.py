"""Epochs of MNE, volumes in NIfTI and folders of images: what was written is what is learned from."""

import os
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tracelearn import TraceNormClassifier, open_source


def read(source, start=0):
    X, y, _ = zip(*source.batches(start), strict=True)
    return np.concatenate(X), None if y[0] is None else np.concatenate(y)


@pytest.mark.parametrize(
    ("library", "extra", "name"),
    [("nibabel", "nifti", "a.nii.gz"), ("mne", "mne", "a-epo.fif"), ("PIL", "images", "a/1.png")],
)
def test_a_missing_library_is_named_with_its_extra(library, extra, name, tmp_path, monkeypatch):
    (tmp_path / "d" / name).parent.mkdir(parents=True)
    (tmp_path / "d" / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"tracelearn.io.{extra}", raising=False)
    with pytest.raises(ImportError, match=rf"{library}.*: pip install 'tracelearn\[{extra}\]'\.$"):
        open_source(tmp_path / "d" if extra == "images" else tmp_path / "d" / name)


# --- epochs of MNE ----------------------------------------------------------------------------------------------------


@pytest.fixture
def epochs(tmp_path):
    mne = pytest.importorskip("mne", reason="MNE is an extra")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    info = mne.create_info(["Fz", "Cz", "C3", "Oz", "EOG"], 100.0, ["eeg"] * 4 + ["eog"])
    events = np.stack([np.arange(20), np.zeros(20, int), np.arange(20) % 2 + 1], 1)
    metadata = pandas.DataFrame({"rating": np.arange(20) / 2, "subject": [f"s{i % 3}" for i in range(20)]})
    made = mne.EpochsArray(
        rng.standard_normal((20, 5, 7)),
        info,
        events,
        event_id={"left": 1, "right": 2},
        metadata=metadata,
        verbose="error",
    )
    made.info["bads"] = ["C3"]
    made.save(tmp_path / "sub-01-epo.fif", fmt="double", verbose="error")
    return made, tmp_path / "sub-01-epo.fif"


@pytest.mark.slow
def test_events_are_the_targets_of_epochs(epochs):
    made, path = epochs
    source = open_source(path, block_bytes=3 * 21 * 8)
    assert (source.n_samples, source.sample_shape) == (20, (3, 7))
    expected = made.get_data(picks=["Fz", "Cz", "Oz"])
    for start in (0, 5):
        X, y = read(source, start)
        assert_array_equal(X, expected[start:])
        assert y.tolist() == (["left", "right"] * 10)[start:]
    assert_array_equal(read(open_source(path, target="rating"))[1], np.arange(20) / 2)
    assert read(open_source(path, target="subject"))[1][4] == "s1"
    assert source.column("subject").tolist() == [f"s{i % 3}" for i in range(20)]
    assert [mode.name for mode in source.modes] == ["channel", "time"]
    assert source.modes[0].values.tolist() == ["Fz", "Cz", "Oz"]
    assert_allclose(source.modes[1].values, made.times)
    model = TraceNormClassifier().fit(path)
    assert_allclose(model.coef_, TraceNormClassifier().fit(expected, ["left", "right"] * 10).coef_, atol=1e-8)


@pytest.mark.slow
def test_damaged_epochs_are_one_sentence(epochs):
    path = epochs[1]
    whole = path.read_bytes()
    for length in (0, 10, 500, len(whole) // 2):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"^Expected .*, got ") as info:
            read(open_source(path))
        assert "\n" not in str(info.value)


@pytest.fixture
def split_epochs(tmp_path):
    """Epochs that MNE wrote to two files, the first of which names the second."""
    mne = pytest.importorskip("mne", reason="MNE is an extra")
    values = np.random.default_rng(2).standard_normal((40, 2, 5000))
    info = mne.create_info(["Fz", "Cz"], 100.0, "eeg")
    events = np.stack([np.arange(40), np.zeros(40, int), np.arange(40) % 2 + 1], 1)
    made = mne.EpochsArray(values, info, events, verbose="error")
    made.save(tmp_path / "s-epo.fif", split_size="2MB", verbose="error")
    assert (tmp_path / "s-epo-1.fif").exists()
    return values, tmp_path / "s-epo.fif"


@pytest.mark.slow
def test_epochs_in_several_files_are_read(split_epochs):
    values, path = split_epochs
    assert_allclose(read(open_source(path))[0], values, rtol=1e-6)


# --- volumes in NIfTI -------------------------------------------------------------------------------------------------


def save(values, path, affine=None, kind="Nifti1Image", **header):
    nibabel = pytest.importorskip("nibabel", reason="NIfTI is an extra")
    image = getattr(nibabel, kind)(values, np.eye(4) if affine is None else affine)
    if header:
        image.header.set_slope_inter(**header)
    nibabel.save(image, path)
    return path


@pytest.fixture
def volumes(tmp_path):
    values = np.random.default_rng(1).standard_normal((5, 4, 3, 20)).astype(np.float32)
    np.save(tmp_path / "y.npy", np.arange(20) % 2)
    return values


@pytest.mark.parametrize("name", ["bold.nii", "bold.nii.gz"])
@pytest.mark.parametrize("kind", ["Nifti1Image", "Nifti2Image"])
def test_volumes_are_samples_along_the_fourth_axis(name, kind, volumes, tmp_path):
    path = save(volumes, tmp_path / name, kind=kind)
    source = open_source(path, target=tmp_path / "y.npy", block_bytes=60 * 4 * 7)
    assert (source.n_samples, source.sample_shape, source.dtype) == (20, (5, 4, 3), np.float32)
    for start in (0, 9):
        X, y = read(source, start)
        assert_array_equal(X, np.moveaxis(volumes, 3, 0)[start:])
        assert_array_equal(y, (np.arange(20) % 2)[start:])


def test_numbers_that_are_stored_with_a_scale_are_scaled(volumes, tmp_path):
    stored = (volumes * 100).astype(np.int16)
    nibabel = pytest.importorskip("nibabel", reason="NIfTI is an extra")
    path = save(stored, tmp_path / "bold.nii", slope=0.5, inter=3.0)
    expected = np.moveaxis(nibabel.load(path).get_fdata(), 3, 0)
    source = open_source(path, target=None)
    assert source.dtype == np.float64
    assert_array_equal(read(source)[0], expected)


def test_a_mask_leaves_the_box_around_it(volumes, tmp_path):
    used = np.zeros((5, 4, 3), np.uint8)
    used[1:4, 2, 1:] = 1
    used[2, 2, 1] = 0
    volumes[0, 0, 0] = np.nan  # outside
    volumes[2, 2, 1] = np.nan  # in the box, and not in the mask
    path, mask = save(volumes, tmp_path / "bold.nii.gz"), save(used, tmp_path / "mask.nii")
    whole = np.moveaxis(volumes, 3, 0)
    box = open_source(path, target=tmp_path / "y.npy", mask=mask, block_bytes=200)
    assert box.sample_shape == (3, 1, 2)
    assert_array_equal(read(box)[0], np.where(used, whole, 0)[:, 1:4, 2:3, 1:])
    assert TraceNormClassifier().fit(box).sample_shape_ == (3, 1, 2)


def test_volumes_and_masks_that_do_not_fit_are_one_sentence(volumes, tmp_path):
    path = save(volumes, tmp_path / "bold.nii")
    for bad, message in (
        ({"mask": save(np.zeros((5, 4, 3), np.uint8), tmp_path / "none.nii")}, "Expected voxels in the mask"),
        ({"mask": save(np.ones((4, 4, 3), np.uint8), tmp_path / "small.nii")}, "on the grid of the samples"),
        ({"mask": save(np.ones((5, 4, 3), np.uint8), tmp_path / "far.nii", 2 * np.eye(4))}, "the same affine"),
        ({"sample_axis": 1}, "Expected sample_axis only with files that have one"),
    ):
        with pytest.raises(ValueError, match=message):
            open_source(path, target=None, **bad)
    with pytest.raises(ValueError, match="Expected four axes"):
        open_source(save(volumes[..., 0], tmp_path / "one.nii"), target=None)
    for name in ("bold.nii", "bold.nii.gz"):
        whole = save(volumes, tmp_path / name).read_bytes()
        for length in (0, 100, len(whole) // 2):
            (tmp_path / name).write_bytes(whole[:length])
            with pytest.raises(ValueError, match=r"^Expected .*, got ") as info:
                read(open_source(tmp_path / name, target=None))
            assert "\n" not in str(info.value)


# --- folders of images ------------------------------------------------------------------------------------------------


def draw(path, values, **options):
    image = pytest.importorskip("PIL.Image", reason="images are an extra")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(values).save(path, **options)


@pytest.fixture
def pictures():
    return np.random.default_rng(3).integers(0, 255, (12, 6, 5), np.uint8)


@pytest.mark.parametrize("kind", ["png", "tif", "bmp"])
@pytest.mark.parametrize("depth", ["grey", "colour", "16 bit"])
def test_folders_are_the_labels_of_images(kind, depth, pictures, tmp_path):
    if depth == "16 bit" and kind == "bmp":
        pytest.skip("the format has no such images")
    values = {"grey": pictures, "colour": np.stack([pictures] * 3, -1), "16 bit": 200 * pictures.astype(np.uint16)}[
        depth
    ]
    for i, value in enumerate(values):
        draw(tmp_path / "photos" / ("cat" if i < 7 else "dog") / "more" / f"{i:02d}.{kind}", value)
    (tmp_path / "photos" / "cat" / ".hidden.png").write_text("no image")
    (tmp_path / "photos" / "notes.txt").write_text("no image")
    source = open_source(tmp_path / "photos", block_bytes=5 * values[0].nbytes)
    assert (source.n_samples, source.sample_shape, source.dtype) == (12, values.shape[1:], values.dtype)
    X, y = read(source, 2)
    assert_array_equal(X, values[2:])
    assert y.tolist() == ["cat"] * 5 + ["dog"] * 5
    assert TraceNormClassifier().fit(tmp_path / "photos").classes_.tolist() == ["cat", "dog"]


def test_a_table_names_images_and_their_targets(pictures, tmp_path):
    pytest.importorskip("pyarrow", reason="tables need pyarrow, an extra")
    for i, value in enumerate(pictures):
        draw(tmp_path / f"{i}.png", value)
    rows = [f"{i}.png,{i / 2},{'ab'[i % 2]}" for i in reversed(range(10))]
    (tmp_path / "metadata.csv").write_text("\n".join(["file_name,size,label", *rows]))
    X, y = read(open_source(tmp_path, target="size"))
    assert_array_equal(X, pictures[9::-1])
    assert_array_equal(y, np.arange(10)[::-1] / 2)
    assert read(open_source(tmp_path, target="label"))[1].tolist() == ["b", "a"] * 5
    with pytest.raises(ValueError, match="which are 'X', 'size', 'label', got 'y'"):
        open_source(tmp_path)
    (tmp_path / "metadata.csv").write_text("file_name,y\n../secret.png,1\n")
    with pytest.raises(ValueError, match=r"got no '\.\./secret\.png'"):
        open_source(tmp_path)


def test_images_of_another_size_or_kind_are_one_sentence(pictures, tmp_path):
    for i, value in enumerate(pictures):
        draw(tmp_path / "a" / f"{i:02d}.png", value)
    draw(tmp_path / "a" / "10.png", pictures[0, :5])
    with pytest.raises(
        ValueError, match=r"^Expected images of 5 × 6 pixels of mode L, .* got 5 × 5 of mode L in '.*10.png'"
    ):
        read(open_source(tmp_path))
    draw(tmp_path / "a" / "10.png", pictures[0])
    (tmp_path / "a" / "11.png").write_bytes((tmp_path / "a" / "10.png").read_bytes()[:50])
    with pytest.raises(ValueError, match=r"^Expected a whole file"):
        read(open_source(tmp_path))
    (tmp_path / "a" / "11.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n")  # Pillow would start Ghostscript
    with pytest.raises(ValueError, match=r"^Expected a whole file .*UnidentifiedImageError"):
        read(open_source(tmp_path))


@pytest.mark.skipif(os.name != "posix", reason="needs links and pipes")
@pytest.mark.parametrize("make", [lambda path: os.symlink("/etc/passwd", path), os.mkfifo], ids=["link", "pipe"])
def test_links_and_pipes_among_images_are_refused(make, pictures, tmp_path):
    draw(tmp_path / "a" / "1.png", pictures[0])
    make(tmp_path / "a" / "2.png")
    with pytest.raises(ValueError, match=r"^Expected only files and folders in"):
        open_source(tmp_path)
