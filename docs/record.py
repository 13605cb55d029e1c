"""Record ``tracelearn fit`` on a terminal, from start to end, into docs/commands.md: ``python docs/record.py``.

360 samples of 8 channels × 3 axes × 51 times in six classes, simulated: each class has a topography and a time course of its own.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np

PAGE = Path(__file__).with_name("commands.md")
MARKS = "<!-- recording:begin -->\n", "<!-- recording:end -->"
_COLOURS, _CODES = re.compile(r"\x1b\[[0-9;]*m"), re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def samples(path: Path) -> None:
    """Write the samples: six motions of 60 repetitions, in noise."""
    rng = np.random.default_rng(0)
    label, time = np.arange(360) % 6, np.linspace(0.0, 1.0, 51)
    channels, axes = rng.standard_normal((6, 8)), rng.standard_normal((6, 3))
    courses = np.sin(2 * np.pi * np.outer(np.arange(1, 7), time) + rng.uniform(0, 6, (6, 1)))
    signal = np.einsum("kc,ka,kt->kcat", channels, axes, courses)[label]
    motions = np.array(["bow", "jump", "nod", "sit", "turn", "wave"])
    np.savez(path, X=0.15 * signal + rng.standard_normal(signal.shape), y=motions[label], person=np.arange(360) // 36)


def recorded(command: list[str], folder: str) -> list[str]:
    """Run a command on a terminal of 80 columns and return every line that it showed, redrawn ones once for each text."""
    ours, terminal = pty.openpty()
    asked = {"COLUMNS": "80", "LINES": "24", "TERM": "xterm", "NO_COLOR": "1"}
    running = subprocess.Popen(
        command, cwd=folder, env={**os.environ, **asked}, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    shown = bytearray()
    with suppress(OSError):  # what Linux says at the end of a terminal
        while data := os.read(ours, 4096):
            shown.extend(data)
    if running.wait():
        raise SystemExit(f"{' '.join(command)} ended with {running.returncode}: {shown.decode()}")
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", _CODES.sub("\r", _COLOURS.sub("", shown.decode())))]
    return list(dict.fromkeys(line for line in lines if line.strip()))


def main() -> None:
    """Record, and put the recording between its marks."""
    words = ["fit", "motions.npz", "--groups", "person", "--mode-names", "channel,axis,time"]
    with tempfile.TemporaryDirectory() as folder:
        samples(Path(folder) / "motions.npz")
        lines = recorded([str(Path(sys.executable).with_name("tracelearn")), *words], folder)
    print("\n".join(lines))  # noqa: T201
    before, rest = PAGE.read_text().split(MARKS[0])
    text = "\n".join([f"`tracelearn {' '.join(words)}` shows", "", "```text", *lines, "```"])
    PAGE.write_text(f"{before}{MARKS[0]}{text}\n{MARKS[1]}{rest.split(MARKS[1], 1)[1]}")


if __name__ == "__main__":
    main()
