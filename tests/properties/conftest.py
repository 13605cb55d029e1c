"""Write down how many inputs the property tests tried, where many were asked for (``PROPERTIES_FACTOR``)."""

import json
import os
from pathlib import Path

from properties.inputs import DEEP, OUTCOMES, TRIED


def pytest_sessionfinish(session, exitstatus):
    if not DEEP or not TRIED:
        return
    path = Path(os.environ.get("PROPERTIES_OUT", "out/properties.json"))
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {
        "inputs": sum(TRIED.values()),
        "passed": int(exitstatus) == 0,
        "inputs_by_test": dict(sorted(TRIED.items())),
        "outcomes": dict(sorted(OUTCOMES.items())),
    }
    path.write_text(json.dumps(found, indent=2) + "\n")
