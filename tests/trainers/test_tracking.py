"""What `report_to` sends where: the loss, its terms and the learning rate reach the tracker's files, no token does.

Run as a script it is a training of one step that allows no connection to another machine. Trackers read their folders
from the environment when they are imported, so each has a process of its own.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

TERMS = ("align", "image_vs_negative", "text_vs_negative", "angular_positive", "angular_negative")
LOGGED = ("loss", *TERMS, "effective_negatives", "effective_negatives_align", "learning_rate")
TOKEN = "hf_neverwrittendown"


def train(name: str, folder: str) -> None:
    from fixtures_quadruplets import tiny_quadruplets
    from fixtures_tiny import tiny_clip, tiny_processor

    from negation_clip.modeling.modeling_hanclip import HanClipModel
    from negation_clip.trainers.hanclip_trainer import HanClipTrainer, HanClipTrainingArguments
    from negation_clip.trainers.lora import add_lora

    arguments = HanClipTrainingArguments(
        output_dir=f"{folder}/run",
        report_to=name,
        project="tracking",
        run_name="tiny",
        hub_token=TOKEN,
        per_device_train_batch_size=4,
        max_steps=1,
        logging_steps=1,
        save_strategy="no",
        use_cpu=True,
    )
    model = add_lora(HanClipModel.from_backbone(tiny_clip()), "text", rank=2)
    trainer = HanClipTrainer(model, arguments, tiny_processor(), tiny_quadruplets(8))
    trainer.train()
    (entry,) = (entry for entry in trainer.state.log_history if "loss" in entry)
    Path(folder, "log.json").write_text(json.dumps(entry))
    trainer.end()


def only_at_home(connect):
    """`socket.connect` that reaches this machine alone."""

    def guarded(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            print(f"a connection to {address}", file=sys.stderr)
            os._exit(3)  # an exception might be caught
        return connect(self, address)

    return guarded


def tracked(name: str, folder: Path) -> dict:
    """What the training logged, after it has run with a tracker."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TRACKIO_", "WANDB_"))}
    environment = {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
        "TRACKIO_DIR": str(folder / "trackio"),
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "WANDB_CACHE_DIR": str(folder / "cache"),
        "WANDB_DATA_DIR": str(folder / "data"),
        "HOME": str(folder),
    }
    command = [sys.executable, __file__, name, str(folder)]
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr[-4000:]
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert not [file.name for file in files if TOKEN.encode() in file.read_bytes()]
    log = json.loads((folder / "log.json").read_text())
    assert all(math.isfinite(log[key]) for key in LOGGED)
    return log


def test_tensorboard(tmp_path):
    log = tracked("tensorboard", tmp_path)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (file,) = tmp_path.rglob("events.out.tfevents*")
    events = EventAccumulator(str(file.parent)).Reload()
    for name in LOGGED:
        (event,) = events.Scalars(f"train/{name}")
        assert event.step == 1 and event.value == pytest.approx(log[name], rel=1e-6), name


@pytest.mark.slow
def test_trackio_writes_into_its_folder(tmp_path):
    log = tracked("trackio", tmp_path)
    (file,) = (tmp_path / "trackio").glob("tracking*.db")
    with sqlite3.connect(file) as database:
        rows = [
            json.loads(text) for (text,) in database.execute("SELECT metrics FROM metrics WHERE run_name = 'tiny'")
        ]
    (row,) = (row for row in rows if "train/loss" in row)
    assert {name: row[f"train/{name}"] for name in LOGGED} == pytest.approx({name: log[name] for name in LOGGED})


@pytest.mark.slow
def test_wandb_offline_writes_into_its_folder(tmp_path):
    tracked("wandb", tmp_path)
    (file,) = tmp_path.rglob("offline-run-*/*.wandb")
    content = file.read_bytes()
    assert not [name for name in LOGGED if f"train/{name}".encode() not in content]


if __name__ == "__main__":
    socket.socket.connect = only_at_home(socket.socket.connect)
    socket.socket.connect_ex = only_at_home(socket.socket.connect_ex)
    train(*sys.argv[1:])
