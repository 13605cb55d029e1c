"""Runs commands in forks of one process, each with a fault planted; imports take seconds, and a crash needs them only once.

A request is a line of JSON, ``{"call": [...], "fault": [name, number] or null}``. The answer is the number of the
process, which the caller may kill; on an empty line, its exit code and what it said.
"""

import contextlib
import io
import json
import os
import resource
import signal
import sys
import tempfile
import traceback

import matplotlib.figure  # noqa: F401 - forks share what is imported here
import numpy as np

from tracelearn import load, save
from tracelearn.cli import main
from tracelearn.io import writing


def kill_at(step):
    """Die at a step of writing: with half of a file written, before it is safe on disk, before and after it gets its name."""
    left = [step]

    def pass_step():
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def stepping(function):
        def call(*args):
            pass_step()
            return function(*args)

        return call

    class Halving(io.FileIO):
        def write(self, data):
            half = len(data) // 2
            super().write(data[:half])
            pass_step()
            return half + super().write(data[half:])

    os.fsync, os.replace = stepping(os.fsync), stepping(os.replace)
    writing.open = lambda path, mode: Halving(path, mode.replace("b", "")) if "w" in mode else open(path, mode)


def full_disk(size):
    """Let the system refuse to make a file larger than this."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def little_memory(size):
    """Let the system refuse more memory than there is now and a bit."""
    with open("/proc/self/statm", encoding="ascii") as file:
        size += int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


FAULTS = {"kill": kill_at, "disk": full_disk, "memory": little_memory}


def work(request, said):
    """Do what is asked for, as a program of its own would; whatever it says goes into a pipe, which no limit touches."""
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.stdout = sys.stderr = os.fdopen(1, "w")
    signal.alarm(60)  # what hangs is a failure of its own
    if request["fault"]:
        name, number = request["fault"]
        FAULTS[name](number)
    code = 0
    try:
        # Ctrl-C is heard in here only: before and after, it would end this script instead of the command.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        try:
            call(*request["call"])
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    except SystemExit as leave:
        code = leave.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)


def call(name, *arguments):
    """Call save, or a command."""
    if name == "save":
        save(load(arguments[0]), arguments[1])
    else:
        main([name, *arguments])


def warm_up():
    """Have everything imported that the first run of a command imports."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.suppress(SystemExit),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        X = np.random.default_rng(0).standard_normal((20, 3, 2))
        np.savez(f"{folder}/data.npz", X=X, y=X[:, 0, 0])
        main(["fit", f"{folder}/data.npz", "--alpha", "0.1", "--cv", "2", "--out", f"{folder}/model"])


def serve():
    """Answer requests until there are no more."""
    warm_up()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # forks inherit it
    for line in iter(sys.stdin.readline, ""):
        heard, said = os.pipe()
        child = os.fork()
        if child == 0:
            work(json.loads(line), said)
        os.close(said)
        print(child, flush=True)  # noqa: T201
        sys.stdin.readline()  # until then the child keeps its number, whatever becomes of it
        with os.fdopen(heard) as pipe:
            told = pipe.read()
        _, status = os.waitpid(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), told]), flush=True)  # noqa: T201


if __name__ == "__main__":
    serve()
