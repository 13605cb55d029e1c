"""Run the first Python example of README.md with the package that is installed: ``make release``."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def first_example():
    """Return the first block of Python of the README."""
    return re.search(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)[1]


if __name__ == "__main__":
    exec(compile(first_example(), str(README), "exec"), {"__name__": "__main__"})
