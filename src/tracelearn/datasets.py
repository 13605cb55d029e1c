"""Seeded synthetic problems with known answers, shared by tests, examples, benchmarks and the reproduction."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["Epochs", "Persons", "make_epochs", "make_low_rank_regression", "make_persons", "make_rank_tensors"]

Floats = np.ndarray[Any, np.dtype[np.float64]]


def make_rank_tensors(
    n_samples: int,
    *,
    shape: tuple[int, ...] = (10, 10, 10),
    ranks: tuple[int, int] = (1, 4),
    random_state: int | None = None,
) -> tuple[Floats, Floats]:
    """Draw tensors whose CP rank is the target: the rank identification problem of the paper's section 6.

    A tensor of rank r is the sum of r outer products of vectors that are uniform on (0, 1); r is uniform from
    ``ranks[0]`` to ``ranks[1]``. The paper says "varied ranks": 1 to 4 give its 95.9 % within one rank.

    Examples
    --------
    >>> from tracelearn.datasets import make_rank_tensors
    >>> X, y = make_rank_tensors(3, shape=(4, 5, 6), random_state=0)
    >>> X.shape, sorted(set(y) - {1.0, 2.0, 3.0, 4.0})
    ((3, 4, 5, 6), [])
    """
    rng = np.random.default_rng(random_state)
    rank = rng.integers(ranks[0], ranks[1] + 1, n_samples)
    X = np.zeros((n_samples, *shape))
    for component in range(ranks[1]):
        term = (component < rank).astype(float)
        for size in shape:
            term = term[..., None] * rng.uniform(size=(n_samples, size)).reshape(
                n_samples, *(1,) * (term.ndim - 1), size
            )
        X += term
    return X, rank.astype(float)


def make_low_rank_regression(
    n_samples: int,
    shape: tuple[int, ...],
    *,
    rank: int = 2,
    noise: float = 0.5,
    correlation: float = 0.0,
    random_state: int | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Draw Gaussian tensors and a target that is linear in them with weights of low multilinear rank.

    Parameters
    ----------
    noise : standard deviation of the noise, relative to that of the signal
    correlation : of neighbouring entries along every mode; 0.95 looks like channels and smooth time

    Returns
    -------
    X : array of shape ``(n_samples, *shape)``
    y : array of shape (n_samples,)
    W : array of shape ``shape``, the true weights

    Examples
    --------
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(5, (3, 4), rank=1, random_state=0)
    >>> X.shape, y.shape, W.shape
    ((5, 3, 4), (5,), (3, 4))
    """
    rng = np.random.default_rng(random_state)
    X: Any = rng.standard_normal((n_samples, *shape))
    W: Any = rng.standard_normal((min(rank, *shape),) * len(shape))
    for mode, size in enumerate(shape):
        if correlation:
            mixing = np.linalg.cholesky(correlation ** np.abs(np.subtract.outer(np.arange(size), np.arange(size))))
            X = np.moveaxis(np.tensordot(X, mixing, (mode + 1, 1)), -1, mode + 1)
        W = np.moveaxis(np.tensordot(W, rng.standard_normal((size, W.shape[mode])), (mode, 1)), -1, mode)
    signal = X.reshape(n_samples, -1) @ W.ravel()
    return X, signal + noise * signal.std() * rng.standard_normal(n_samples), W


class Persons(NamedTuple):
    """Simulated trials of several persons, as ``make_persons`` draws them.

    ``X`` are signals of shape (n_trials, channels, times), ``y`` the condition of each trial, 0 or 1, ``person`` the number
    of the person. ``topographies`` (persons, 2, channels) are, for each person, how the source whose power differs between the
    conditions reaches the channels, and the source that has a deflection in condition 1; ``course`` (times,) is that deflection.

    Examples
    --------
    >>> from tracelearn.datasets import make_persons
    >>> make_persons(3, 10, random_state=0).person.shape
    (30,)
    """

    X: Floats
    y: np.ndarray[Any, np.dtype[np.int64]]
    person: np.ndarray[Any, np.dtype[np.int64]]
    topographies: Floats
    course: Floats


def make_persons(
    n_persons: int = 12,
    n_trials: int = 40,
    *,
    n_channels: int = 8,
    n_times: int = 50,
    mixing: float = 0.3,
    gain: float = 0.5,
    power: float = 1.0,
    deflection: float = 0.4,
    confounded: bool = False,
    random_state: int | None = None,
) -> Persons:
    """Draw signals of persons that differ in how their sources mix and in gain, while the sources do the same in all of them.

    Every person has as many sources as there are channels. In condition 1 one source has more power and another one a
    deflection. How sources reach the channels is common to all, but then channels leak into each other in a person's own way.

    Parameters
    ----------
    n_trials : of each person
    mixing : float, default=0.3
        How much channels leak into each other, and differ in gain, in each person's own way.
    gain : float, default=0.5
        The standard deviation, from person to person, of the logarithm of the gain.
    power : float, default=1.0
        What condition 1 adds to the logarithm of the power of the first source.
    deflection : float, default=0.4
        The largest size of the deflection of the second source in condition 1, relative to its standard deviation.
    confounded : bool, default=False
        Whether all trials of a person are of one condition: then the person is the label.

    Examples
    --------
    >>> from tracelearn.datasets import make_persons
    >>> X, y, person, topographies, course = make_persons(3, 10, random_state=0)
    >>> X.shape, topographies.shape, course.shape
    ((30, 8, 50), (3, 2, 8), (50,))
    """
    rng = np.random.default_rng(random_state)
    person = np.repeat(np.arange(n_persons), n_trials)
    y = rng.permutation(n_persons)[person] % 2 if confounded else rng.permuted(np.arange(n_persons * n_trials) % 2)
    n = len(y)
    # Neighbouring times are alike, as in filtered recordings.
    signals = rng.standard_normal((n, n_channels, n_times + 4))
    sources = sum(signals[..., start : start + n_times] for start in range(5)) / np.sqrt(5.0)
    sources *= np.exp(0.3 * rng.standard_normal((n, n_channels, 1)))  # the power of sources varies from trial to trial
    sources *= np.linspace(1.5, 0.5, n_channels)[:, None]
    sources[:, 0] *= np.exp(0.5 * power * y)[:, None]
    course = np.exp(-0.5 * ((np.arange(n_times) / n_times - 0.5) / 0.08) ** 2)
    sources[:, 1] += 1.5 * deflection * y[:, None] * course
    common = rng.standard_normal((n_channels, n_channels))
    own = rng.standard_normal((n_persons, n_channels, n_channels))
    values, vectors = np.linalg.eigh((own + np.swapaxes(own, 1, 2)) / np.sqrt(2.0))
    # Of every person a symmetric matrix between channels, the exponential of a random one: gains of channels, and what leaks.
    between = (vectors * np.exp(mixing * values)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    mixings = between @ common * np.exp(gain * rng.standard_normal((n_persons, 1, 1)))
    X = mixings[person] @ sources + 0.2 * rng.standard_normal((n, n_channels, n_times))
    topographies = np.swapaxes(mixings[:, :, :2], 1, 2)
    return Persons(X, y, person, topographies / np.linalg.norm(topographies, axis=2, keepdims=True), course)


class Epochs(NamedTuple):
    """Simulated epochs, as ``make_epochs`` draws them.

    ``X`` is power of shape (n_epochs, sensors, times, frequencies), ``y`` the condition, "idle" or "move". The three arrays
    after them are the coordinates of the modes: degrees on the ring, seconds, hertz. ``truth`` are the topography, the time
    course and the spectrum of what "move" adds, as vectors of length 1.

    Examples
    --------
    >>> from tracelearn.datasets import make_epochs
    >>> epochs = make_epochs(20, random_state=0)
    >>> [len(vector) for vector in epochs.truth] == list(epochs.X.shape[1:])
    True
    """

    X: Floats
    y: np.ndarray[Any, np.dtype[np.str_]]
    sensors: Floats
    times: Floats
    frequencies: Floats
    truth: tuple[Floats, Floats, Floats]


# Of each source: place on the ring and width there in radians, frequency and width in hertz, strength. The first one is
# what the conditions differ in; the second, next to it in space and frequency and stronger, is there to mislead.
_SOURCES = (
    (1.0, 0.25, 12.0, 1.5, 1.0),
    (1.7, 0.5, 10.0, 1.0, 2.0),
    (4.0, 0.3, 20.0, 3.0, 1.0),
    (5.2, 0.6, 6.0, 1.0, 1.0),
)
_RATE, _WINDOW, _STEP = 100, 40, 10
_CLOCK = np.arange(200) / _RATE
_TAPER = np.hanning(_WINDOW)


def _coloured(white: Floats, gain: Floats) -> Floats:
    """Filter white noise by a gain over frequency, to unit variance."""
    shaped: Floats = np.fft.irfft(np.fft.rfft(white) * gain, len(_CLOCK))
    return shaped / float(shaped.std())


def _power(signals: Floats) -> Floats:
    """Turn (..., samples) into power (..., windows, frequencies between 2.5 and 30 Hz)."""
    starts = range(0, len(_CLOCK) - _WINDOW + 1, _STEP)
    windows = np.stack([signals[..., start : start + _WINDOW] for start in starts], axis=-2)
    power: Floats = np.abs(np.fft.rfft(windows * _TAPER)[..., 1:13]) ** 2
    return power


def make_epochs(n_epochs: int, *, n_sensors: int = 24, effect: float = 8.0, random_state: int | None = None) -> Epochs:
    """Simulate EEG: rhythms of four sources, mixed into sensors on a ring, on pink noise; then power over time and frequency.

    In half of the epochs, condition "move", the source at 12 Hz is stronger around 1.2 s. A stronger rhythm at 10 Hz
    overlaps it in space and frequency and says nothing about the condition. Powers of independent sources add, so what the
    condition adds to the mean of the samples is a tensor of rank one.

    Parameters
    ----------
    effect : float, default=8.0
        Largest power that "move" adds to the source, relative to what it has otherwise.

    Examples
    --------
    >>> from tracelearn.datasets import make_epochs
    >>> epochs = make_epochs(20, random_state=0)
    >>> epochs.X.shape, sorted(set(epochs.y.tolist()))
    ((20, 24, 17, 12), ['idle', 'move'])
    """
    rng = np.random.default_rng(random_state)
    pitches = np.fft.rfftfreq(len(_CLOCK), 1 / _RATE)
    angles = np.linspace(0.0, 2.0 * np.pi, n_sensors, endpoint=False)
    moves = rng.integers(2, size=n_epochs).astype(bool)
    course = np.exp(-0.5 * ((_CLOCK - 1.2) / 0.25) ** 2)
    signals = 0.7 * _coloured(rng.standard_normal((n_epochs, n_sensors, len(_CLOCK))), np.maximum(pitches, 0.5) ** -0.5)
    topographies, gains = [], []
    for place, width, pitch, breadth, strength in _SOURCES:
        topographies.append(np.exp((np.cos(angles - place) - 1.0) / width))
        gains.append(np.exp(-0.5 * ((pitches - pitch) / breadth) ** 2))
        rhythm = strength * _coloured(rng.standard_normal((n_epochs, len(_CLOCK))), gains[-1])
        rhythm *= 1.0 + 0.5 * rng.standard_normal((n_epochs, 1))
        if len(gains) == 1:
            rhythm *= np.sqrt(1.0 + effect * moves[:, None] * course)
        signals += topographies[-1][:, None] * rhythm[:, None, :]
    X = _power(signals)
    # The power that a window lets through: of the time course its squared taper, of the spectrum the power of every pitch.
    waves = np.exp(2j * np.pi * pitches[:, None] * _CLOCK[:_WINDOW]) * _TAPER
    spectrum = gains[0] ** 2 @ np.abs(np.fft.fft(waves)[:, 1:13]) ** 2
    starts = np.arange(0, len(_CLOCK) - _WINDOW + 1, _STEP)
    time_course = np.array([course[start : start + _WINDOW] @ _TAPER**2 for start in starts])
    topography = topographies[0] ** 2
    middles = (starts + _WINDOW // 2) / _RATE
    frequencies = np.arange(1, 13) * _RATE / _WINDOW
    return Epochs(
        X / X.std(),
        np.where(moves, "move", "idle"),
        np.degrees(angles),
        middles,
        frequencies,
        (_normalised(topography), _normalised(time_course), _normalised(spectrum)),
    )


def _normalised(vector: Floats) -> Floats:
    """Bring a vector to length 1."""
    return vector / float(np.linalg.norm(vector))
