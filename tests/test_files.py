"""Models and moments in files: exact when they are good, refused in one sentence when they are not."""

import copy
import errno
import io
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
import zipfile

import joblib
import numpy as np
import pytest
import skops.io
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from tracelearn import (
    HierarchicalTraceNormClassifier,
    ModePCA,
    Moments,
    TensorStandardScaler,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
    files,
    load,
    save,
)

SHAPE = (3, 2, 2)
rng = np.random.default_rng(0)
X = rng.standard_normal((60, *SHAPE)) + 1.0
y = X[:, 0, 0, 0] - X[:, 1, 1, 0] + 0.3 * rng.standard_normal(60)
labels = np.array(["ash", "birch", "cedar"])[np.digitize(y, [-0.5, 0.5])]
two = np.where(y > 0, 7, -3)

MODELS = {
    "regressor": lambda: TraceNormRegressor(alpha=0.05).fit(X, y),
    "regressor, float32": lambda: TraceNormRegressor(alpha=0.05).fit(X.astype(np.float32), y),
    "regressor, two targets": lambda: TraceNormRegressor(alpha=0.05, class_mode=True).fit(X, np.stack([y, -y], axis=1)),
    "regressor, huber": lambda: TraceNormRegressor(alpha=0.05, loss="huber", mode_weights=[1, 0, 2]).fit(X, y),
    "regressor, latent": lambda: TraceNormRegressor(penalty="latent", tensor_shape=SHAPE).fit(X.reshape(60, -1), y),
    "regressor, few samples": lambda: TraceNormRegressor(penalty="scaled_latent").fit(X[:4], y[:4]),
    "regressor, parameters of NumPy": lambda: TraceNormRegressor(
        alpha=np.float32(0.1), max_iter=np.int64(500), mode_weights=np.ones(3), random_state=np.random.RandomState(3)
    ).fit(X, y),
    "classifier": lambda: TraceNormClassifier(alpha=0.05).fit(X, labels),
    "classifier, two classes": lambda: TraceNormClassifier(class_weight={7: 2.0, -3: 1.0}).fit(X, two),
    "classifier, true and false": lambda: TraceNormClassifier().fit(X, y > 0),
    "classifier, objects": lambda: TraceNormClassifier().fit(X, labels.astype(object)),
    "classifier, logistic": lambda: TraceNormClassifier(alpha=0.05, loss="logistic").fit(X, labels),
    "online": lambda: TraceNormClassifier(forgetting=0.9).partial_fit(X, labels, classes=["ash", "birch", "cedar", "elm"]),
    "regressor CV": lambda: TraceNormRegressorCV(alphas=4, cv=2).fit(X, y),
    "classifier CV": lambda: TraceNormClassifierCV(alphas=4, cv=2, ridges=(0.0, 0.1)).fit(X, labels),
    "hierarchy": lambda: HierarchicalTraceNormClassifier(tree=("cedar", ("ash", "birch"))).fit(X, labels),
    "unfitted hierarchy": HierarchicalTraceNormClassifier,
    "scaler": lambda: TensorStandardScaler(per=(0, 1)).fit(X),
    "compression": lambda: ModePCA((2, 1, 0.9)).fit(X),
    "unfitted": lambda: TraceNormClassifier(alpha=0.1 + 0.2),
    "pipeline": lambda: make_pipeline(TensorStandardScaler("global"), ModePCA(2), TraceNormRegressor()).fit(X, y),
    "pipeline with scikit-learn": lambda: make_pipeline(
        StandardScaler(), TraceNormClassifier(tensor_shape=SHAPE)
    ).fit(X.reshape(60, -1), labels),
}  # fmt: skip

# Those that go on learning from where they were, and from what.
TARGETS = {
    "regressor": y,
    "regressor, float32": y,
    "regressor, two targets": np.stack([y, -y], axis=1),
    "regressor, latent": y,
    "classifier": labels,
    "classifier, two classes": two,
    "classifier, true and false": y > 0,
    "classifier, objects": labels.astype(object),
    "online": labels,
}


def through_file(thing, folder):
    save(thing, folder / "thing.tracelearn")
    return load(folder / "thing.tracelearn")


def through_joblib(thing, folder):
    joblib.dump(thing, folder / "thing.joblib")
    return joblib.load(folder / "thing.joblib")


WAYS = {
    "save": through_file,
    "pickle": lambda thing, folder: pickle.loads(pickle.dumps(thing)),
    "joblib": through_joblib,
    "deepcopy": lambda thing, folder: copy.deepcopy(thing),
}


def assert_same(left, right):
    """Compare to the last bit, attribute by attribute."""
    assert type(left) is type(right)
    if isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right, strict=True)
    elif isinstance(left, np.random.RandomState):
        assert_same(left.get_state(), right.get_state())
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            assert_same(a, b)
    elif hasattr(left, "__dict__") and not isinstance(left, type):
        assert_same(vars(left), vars(right))
    else:
        assert left == right or (left != left and right != right)


def test_a_model_without_one_of_its_parameters_is_refused(tmp_path):
    model = TraceNormRegressor(alpha=0.1).fit(X, y)
    del model.alpha
    (tmp_path / "m.tracelearn").write_bytes(files.pack("model", model))
    with pytest.raises(
        ValueError, match=r"^Expected content that tracelearn can write and read, .* no attribute 'alpha'"
    ):
        load(tmp_path / "m.tracelearn")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_what_comes_back_is_the_same_to_the_last_bit(name, way, tmp_path):
    model = MODELS[name]()
    again = WAYS[way](model, tmp_path)
    assert_same(model, again)
    if name in TARGETS:
        samples = X.astype(model.coef_.dtype)
        for one in (model, again):
            one.partial_fit(samples[:20] + 0.1, TARGETS[name][:20])
        assert model.n_iter_ == again.n_iter_
        np.testing.assert_array_equal(model.coef_, again.coef_)
        np.testing.assert_array_equal(model.predict(samples), again.predict(samples))


@pytest.mark.parametrize("way", WAYS)
def test_a_tree_goes_on_learning(way, tmp_path):
    model = HierarchicalTraceNormClassifier().fit(X, labels)
    again = WAYS[way](model, tmp_path)
    assert list(again._models.values()) == again.estimators_  # the same objects, not copies of them
    for one in (model, again):
        one.partial_fit(X[:9], labels[:9])
    np.testing.assert_array_equal(model.coef_, again.coef_)


def test_moments_come_back(tmp_path):
    moments = Moments.of(X, y)
    assert_same(moments, through_file(moments, tmp_path))


def test_a_saved_model_is_some_hundred_kilobytes_and_its_header_can_be_read_by_hand(tmp_path):
    save(MODELS["regressor"](), tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    magic, line, _ = data.split(b"\n", 2)
    header = json.loads(line)
    assert magic == b"tracelearn file"
    assert (header["format"], header["kind"]) == (1, "model")
    assert len(data) < 200_000


# --- what is refused ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "model.tracelearn"
    save(TraceNormRegressor(alpha=0.05).fit(X, y), path)
    return path.read_bytes()


def refused(data, message, folder):
    path = folder / "other.tracelearn"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"(?s)^Expected .*{message}") as refusal:
        load(path)
    assert "\n" not in str(refusal.value)
    return refusal


def packed(payload, kind="model"):
    return b"tracelearn file\n" + files.Header.of(kind, payload).line() + payload


@given(data=st.data())
def test_no_bit_can_change_unnoticed(good, tmp_path_factory, data):
    size = len(good)
    # Headers are short and payloads long: look at both.
    place = data.draw(st.integers(0, size - 1) | st.integers(0, 300))
    mask = data.draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128]) | st.integers(1, 255))
    damaged = bytearray(good)
    damaged[place] ^= mask
    refused(bytes(damaged), "", tmp_path_factory.mktemp("flip"))


def test_no_bit_of_the_header_can_change_unnoticed(good, tmp_path):
    for place in range(good.index(b"\n", 20) + 1):
        for bit in range(8):
            damaged = bytearray(good)
            damaged[place] ^= 1 << bit
            refused(bytes(damaged), "", tmp_path)


def test_a_header_that_says_the_same_in_other_words_is_refused(good, tmp_path):
    refused(good.replace(b'"format":1', b'"format": 1', 1), "tracelearn wrote", tmp_path)
    refused(good.replace(b'"format":1', b'"format":1,"format":1', 1), "tracelearn wrote", tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 16, 60, 0.5, -1])
def test_a_file_that_was_cut_off_is_refused(good, tmp_path, keep):
    cut = good[: int(len(good) * keep)] if isinstance(keep, float) else good[:keep]
    assert isinstance(refused(cut, "got", tmp_path).value, files.DamagedFileError)


def test_a_file_that_was_added_to_is_refused(good, tmp_path):
    refused(good + b"x", "cut off or added to", tmp_path)


def test_a_foreign_file_is_refused(tmp_path):
    refused(b"PK\x03\x04 something else entirely", "tracelearn wrote", tmp_path)
    refused(skops.io.dumps(TraceNormRegressor()), "tracelearn wrote", tmp_path)
    refused(b"tracelearn file\n" + b"{" * 5000, "tracelearn wrote", tmp_path)
    refused(b"tracelearn file\n[1]\n", "tracelearn wrote", tmp_path)


def test_a_format_of_the_future_is_refused(good, tmp_path):
    refused(good.replace(b'"format":1', b'"format":2', 1), "install a newer tracelearn", tmp_path)


def test_a_length_beyond_the_file_allocates_nothing(good, tmp_path):
    header = json.loads(good.split(b"\n", 2)[1])
    line = json.dumps({**header, "length": 1 << 60}, separators=(",", ":")).encode()
    refused(b"tracelearn file\n" + line + b"\n" + good.split(b"\n", 2)[2], str(1 << 60), tmp_path)


def evil():
    raise AssertionError("code of the file was run")


class Evil:
    def __setstate__(self, state):
        evil()

    def __reduce__(self):
        return evil, ()


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (TraceNormRegressor(alpha=evil), "evil"),
        (TraceNormRegressor(alpha=os.system), "system"),
        (TraceNormRegressor(alpha=np.sum), "sum"),
        (TraceNormRegressorCV(cv=KFold(3)), "KFold"),
        (make_pipeline(FunctionTransformer(evil), TraceNormRegressor()), "evil"),
        (LinearRegression(), "LinearRegression"),
        ({"a": 1}, "dict"),
        (zipfile.Path, "type"),
    ],
    ids=["function", "system", "sum", "splitter", "pipeline", "estimator", "dict", "type"],
)
def test_types_that_are_not_ours_are_refused_when_written_and_when_read(thing, name, tmp_path):
    with pytest.raises(ValueError, match=rf"^Expected .*{name}"):
        save(thing, tmp_path / "model.tracelearn")
    assert not list(tmp_path.iterdir())
    refused(packed(skops.io.dumps(thing)), name, tmp_path)


def test_nothing_is_built_of_a_file_with_a_foreign_type(tmp_path, monkeypatch):
    payload = skops.io.dumps(TraceNormRegressor(alpha=evil))
    built = []
    monkeypatch.setattr(TraceNormRegressor, "__setstate__", lambda self, state: built.append(state))
    refused(packed(payload), "evil", tmp_path)
    assert not built


def test_a_kind_must_be_what_it_says(tmp_path):
    refused(packed(skops.io.dumps(Moments.of(X, y)), "model"), "Moments", tmp_path)
    refused(packed(skops.io.dumps(TraceNormRegressor()), "moments"), "TraceNormRegressor", tmp_path)
    refused(packed(skops.io.dumps({}), "checkpoint"), "resume=True", tmp_path)


def rewritten(payload, change):
    """Change the members of a skops archive."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(payload)) as before, zipfile.ZipFile(target, "w") as after:
        for member in before.namelist():
            change(after, member, before.read(member))
    return target.getvalue()


def test_claims_larger_than_the_file_are_refused(good, tmp_path):
    payload = good.split(b"\n", 2)[2]

    def squeeze(archive, name, data):
        archive.writestr(name, data + b" " * 10_000_000, compress_type=zipfile.ZIP_DEFLATED)

    def inflate(archive, name, data):
        if name.endswith(".npy"):
            head = io.BytesIO()
            np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)})
            data = head.getvalue()
        archive.writestr(name, data)

    def nest(archive, name, data):
        archive.writestr(name, b"[" * 200_000 if name == "schema.json" else data)

    refused(packed(rewritten(payload, squeeze)), "larger than the file", tmp_path)
    refused(packed(rewritten(payload, inflate)), "an array of shape", tmp_path)
    refused(packed(rewritten(payload, nest)), "RecursionError", tmp_path)
    refused(packed(b"no archive"), "BadZipFile", tmp_path)
    refused(packed(b""), "BadZipFile", tmp_path)


def archive_of(members, **options):
    """Make an archive of (name or ZipInfo, data), whatever they are."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", **options) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return target.getvalue()


def npy_head(shape, dtype="<f8"):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": dtype, "fortran_order": False, "shape": shape})
    return head.getvalue()


def link(name):
    member = zipfile.ZipInfo(name)
    member.external_attr = 0o120777 << 16
    return member


def claiming(payload, size):
    """Let every member of an archive claim a size, in the directory and before its data."""
    data = bytearray(payload)
    for mark, at in ((b"PK\x01\x02", 20), (b"PK\x03\x04", 18)):
        place = data.find(mark)
        while place >= 0:
            data[place + at : place + at + 8] = size.to_bytes(4, "little") * 2
            place = data.find(mark, place + 4)
    return bytes(data)


def object_array():
    held = io.BytesIO()
    np.save(held, np.array([Evil()], dtype=object), allow_pickle=True)
    return held.getvalue()


SCHEMA = ("schema.json", b"{}")
HOSTILE = {
    "pickle bomb": (lambda: pickle.dumps([Evil()]), "BadZipFile"),
    "pickle in an archive": (lambda: archive_of([SCHEMA, ("1.pkl", pickle.dumps(Evil()))]), "other names"),
    "pickle under the name of an array": (lambda: archive_of([SCHEMA, ("1.npy", pickle.dumps(Evil()))]), "magic"),
    "pickle in an array": (lambda: archive_of([SCHEMA, ("1.npy", object_array())]), "Python objects"),
    "terabytes in a header": (lambda: archive_of([SCHEMA, ("1.npy", npy_head((1 << 40,)))]), "an array of shape"),
    "terabytes in two sizes": (lambda: archive_of([SCHEMA, ("1.npy", npy_head((1 << 20, 1 << 22)))]), "an array of shape"),
    "sizes that overflow": (lambda: archive_of([SCHEMA, ("1.npy", npy_head((1 << 32, 1 << 32)))]), "an array of shape"),
    "a negative size": (lambda: archive_of([SCHEMA, ("1.npy", npy_head((-1,)))]), "an array of shape"),
    "one entry of terabytes": (lambda: archive_of([SCHEMA, ("1.npy", npy_head((1,), "|V1099511627776"))]), "Error"),
    "a claim of gigabytes": (lambda: claiming(archive_of([SCHEMA, ("1.npy", npy_head((1,)))]), 0xFFFFFFF0), "larger than"),
    "a bomb": (
        lambda: archive_of([SCHEMA, ("1.npy", bytes(200 << 20))], compression=zipfile.ZIP_DEFLATED),
        "compressed",
    ),
    "a bomb in a bomb": (
        lambda: archive_of([SCHEMA, ("1.zip", archive_of([("1.npy", bytes(20 << 20))], compression=zipfile.ZIP_DEFLATED))]),
        "other names",
    ),
    "two hundred thousand members": (
        lambda: archive_of([SCHEMA]) + b"PK\x01\x02" * 200_000 + archive_of([SCHEMA]),
        "too many members",
    ),
    "a way up": (lambda: archive_of([SCHEMA, ("../1.npy", b"")]), "other names"),
    "a way from the root": (lambda: archive_of([SCHEMA, ("/nowhere/1.npy", b"")]), "other names"),
    "a way of Windows": (lambda: archive_of([SCHEMA, ("C:\\\\1.npy", b"")]), "other names"),
    "a folder": (lambda: archive_of([SCHEMA, ("a/", b"")]), "other names"),
    "a link": (lambda: archive_of([SCHEMA, (link("1.npy"), b"/etc/passwd")]), "a link"),
    "one name twice": (lambda: archive_of([SCHEMA, SCHEMA]), "twice"),
    "no schema": (lambda: archive_of([("1.npy", npy_head((0,)))]), "schema.json"),
    "a schema that is no JSON": (lambda: archive_of([("schema.json", b"\xff\xfe")]), "got some that it cannot"),
    "a schema that is a number": (lambda: archive_of([("schema.json", b"1")]), "got some that it cannot"),
    "a schema of depth": (lambda: archive_of([("schema.json", b'{"a":' * 100_000)]), "RecursionError"),
    "an unknown loader": (
        lambda: archive_of([("schema.json", b'{"__loader__":"EvilNode","__class__":"system","__module__":"os"}')]),
        r"os\.system",
    ),
    "a function": (
        lambda: archive_of([("schema.json", b'{"__loader__":"FunctionNode","__class__":"system","__module__":"os"}')]),
        r"os\.system",
    ),
    "an unknown type": (
        lambda: archive_of(
            [("schema.json", b'{"__loader__":"ObjectNode","__class__":"Popen","__module__":"subprocess","content":null,'
              b'"__id__":1,"protocol":2}')]
        ),
        r"subprocess\.Popen|got some that it cannot",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_payload_is_refused_before_it_costs_memory(name, tmp_path):
    make, message = HOSTILE[name]
    data = packed(make())
    path = tmp_path / "hostile.tracelearn"
    path.write_bytes(data)
    skops.io.loads(skops.io.dumps(1))  # what is loaded once is no cost of this file
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"(?s)^Expected .*({message})") as refusal:
            load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "\n" not in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert peak < 30 * len(data) + (4 << 20)
    assert list(tmp_path.iterdir()) == [path]


def test_a_payload_that_is_cut_off_under_a_header_that_fits_is_refused_wherever_it_is_cut(good, tmp_path):
    payload = good.split(b"\n", 2)[2]
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        starts = [member.header_offset for member in archive.infolist()]
    directory, end = payload.index(b"PK\x01\x02"), payload.rindex(b"PK\x05\x06")
    for place in (
        1,
        *starts[1:3],
        starts[1] + 10,
        starts[1] + 60,
        directory,
        directory + 20,
        end,
        end + 10,
        len(payload) - 1,
    ):
        refused(packed(payload[:place]), "", tmp_path)


def header_line(good, **changes):
    """Change a header; None leaves a field out."""
    fields = {**json.loads(good.split(b"\n", 2)[1]), **changes}
    line = json.dumps({name: value for name, value in fields.items() if value is not None}, separators=(",", ":"))
    return b"tracelearn file\n" + line.encode() + b"\n" + good.split(b"\n", 2)[2]


@pytest.mark.parametrize("version", [0, -1, None, "1", 1.0, True, [1], {}])
def test_a_format_that_never_was_is_refused(good, tmp_path, version):
    refused(header_line(good, format=version), "tracelearn wrote", tmp_path)
    # Also with a checksum that fits.
    payload = good.split(b"\n", 2)[2]
    blank = files.Header(version, "model", "0", len(payload), "")
    whole = files.Header(version, "model", "0", len(payload), blank.digest(payload))
    refused(b"tracelearn file\n" + whole.line() + payload, "tracelearn wrote", tmp_path)


def test_a_header_that_is_no_text_or_lacks_a_field_is_refused(good, tmp_path):
    rest = good.split(b"\n", 2)[2]
    for line in (b"\xff\xfe\x00", b"\xc3(", b"null", b"", b'"text"', b"{}", b"NaN", b"[" * 1000):
        refused(b"tracelearn file\n" + line + b"\n" + rest, "tracelearn wrote", tmp_path)
    for field in ("kind", "tracelearn", "length", "sha256"):
        refused(header_line(good, **{field: None}), "tracelearn wrote", tmp_path)
    for changes in ({"length": -1}, {"length": 1e3}, {"length": "9"}, {"kind": "other"}, {"kind": []}, {"more": 1}):
        refused(header_line(good, **changes), "got", tmp_path)


@pytest.mark.parametrize("keys", [{True: 2.0, False: 1.0}, {("a", "b"): 1.0}, {1: 1.0, "1": 2.0}])
def test_keys_that_would_come_back_as_others_are_refused(tmp_path, keys):
    with pytest.raises(ValueError, match=r"^Expected .* got"):
        save(TraceNormClassifier(class_weight=keys), tmp_path / "model")


# --- writing -----------------------------------------------------------------------------------------------------------


def test_writing_replaces_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "file"
    files.write_atomically(path, b"old")
    files.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    (tmp_path / "link").symlink_to(path)
    files.write_atomically(tmp_path / "link", b"newer")
    assert (tmp_path / "link").is_symlink()
    assert path.read_bytes() == b"newer"


@pytest.mark.parametrize("at", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_when_writing_fails_the_old_file_is_as_it_was(tmp_path, monkeypatch, at, error):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*args):
        raise error

    monkeypatch.setattr(os, at, fail)
    with pytest.raises(type(error)) as failure:
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    if isinstance(error, OSError):
        assert str(failure.value).startswith(f"Expected to write {path}, got No space left on device: ")
        assert failure.value.errno == errno.ENOSPC
        assert failure.value.__cause__ is error


@pytest.mark.parametrize("make", [os.mkdir, getattr(os, "mkfifo", os.mkdir)])
def test_what_is_no_file_is_not_replaced(tmp_path, make):
    path = tmp_path / "model"
    make(path)
    with pytest.raises(OSError, match=r"^Expected a file to write to, got .*model, which is a folder or a device: "):
        save(TraceNormRegressor(), path)
    assert not path.is_file()
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "model", tmp_path / "missing" / "model"):
        with pytest.raises(OSError, match=r"^Expected to write .*, got "):
            save(TraceNormRegressor(), path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_device_is_noticed(tmp_path, monkeypatch):
    def full(path, mode):
        open(path, mode).close()
        return open("/dev/full", "wb")

    monkeypatch.setattr(files, "open", full, raising=False)
    with pytest.raises(OSError, match="No space left on device"):
        files.write_atomically(tmp_path / "file", b"data")
    assert not list(tmp_path.iterdir())


def test_a_missing_skops_names_the_extra(tmp_path):
    code = (
        "import sys; sys.modules['skops'] = None\n"
        "import tracelearn\n"
        "try: tracelearn.save(tracelearn.TraceNormRegressor(), 'x')\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "tracelearn[files]" in done.stdout
