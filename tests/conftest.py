"""Keeps the tests offline and away from the user's caches; runs before anything imports transformers or datasets."""

from __future__ import annotations

import os
import tempfile

# Removed when the interpreter exits. Remote model code is cached under HF_HOME, and a stale copy must not be tested.
_HF_HOME = tempfile.TemporaryDirectory(prefix="negation-clip-tests-")

os.environ.update(
    HF_HOME=_HF_HOME.name,
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_EVALUATE_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    TOKENIZERS_PARALLELISM="false",
    MPLBACKEND="Agg",
)
for _name in ("HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_MODULES_CACHE", "TRANSFORMERS_CACHE"):
    os.environ.pop(_name, None)

from fixtures_browser import browser  # noqa: E402, F401
