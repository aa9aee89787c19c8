"""What the benchmarks have measured, as a file beside the setting it was measured in."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path


def save_figures(path: str | Path, args: argparse.Namespace, results, **more) -> None:
    """Writes JSON with `results` and `setting`: the options, versions, threads and processor.

    Args:
        path (`str` or `Path`): the file; its folder is made if it is missing.
        args (`argparse.Namespace`): options of the benchmark.
        results: JSON values.
        **more: what else belongs to the setting.
    """
    loaded = {name: sys.modules[name] for name in ("torch", "transformers") if name in sys.modules}
    setting = {
        **{name: value for name, value in vars(args).items() if name != "worker"},
        **more,
        "python": platform.python_version(),
        **{name: module.__version__ for name, module in loaded.items()},
        **({"threads_of_torch": loaded["torch"].get_num_threads()} if "torch" in loaded else {}),
        "processor": platform.processor() or platform.machine(),
        "processors": os.cpu_count(),
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"setting": setting, "results": results}, indent=2) + "\n", encoding="utf-8")
