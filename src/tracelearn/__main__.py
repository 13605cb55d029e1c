"""``python -m tracelearn`` is the command ``tracelearn``."""

from tracelearn.cli import main

if __name__ == "__main__":
    main()
