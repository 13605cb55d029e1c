"""Time predictions as a server makes them: ``python -m benchmarks.latency``, the table of docs/serving.md."""

import time
from collections.abc import Callable

import numpy as np
import onnxruntime
from sklearn.datasets import load_digits

from tracelearn import ModeWhitener, TensorClassifier, TraceNormClassifier, to_onnx

N_TRAINED = 1_000


def milliseconds(predict: Callable[[], object], repeats: int) -> float:
    """Return the median processor time of a call, after a first one that does not count: the machine may be busy."""
    predict()
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        predict()
        seconds.append(time.process_time() - start)
    return 1e3 * float(np.median(seconds))


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X = X.reshape(-1, 8, 8)[:N_TRAINED]
    sample = X[:1]
    models = {
        'TraceNormClassifier(loss="log_loss")': TraceNormClassifier(loss="log_loss"),
        "TensorClassifier(views=[None, ModeWhitener()])": TensorClassifier(views=[None, ModeWhitener()]),
        "TensorClassifier()": TensorClassifier(),
    }
    print("model: one sample, 1,000 samples; the same with ONNX")
    for name, model in models.items():
        model.fit(X, y[:N_TRAINED])
        times = [
            milliseconds(lambda: model.predict_proba(sample), 300),  # noqa: B023 - called here
            milliseconds(lambda: model.predict_proba(X), 30),  # noqa: B023
        ]
        session = onnxruntime.InferenceSession(to_onnx(model, dtype="float64").SerializeToString())
        times += [
            milliseconds(lambda: session.run(None, {"X": sample}), 300),  # noqa: B023
            milliseconds(lambda: session.run(None, {"X": X}), 30),  # noqa: B023
        ]
        print(f"{name}: " + ", ".join(f"{value:.2f} ms" for value in times))


if __name__ == "__main__":
    main()
