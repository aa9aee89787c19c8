"""`Encoder` in several processes: the same rows as in one, each input embedded once, and no one left waiting.

This file is also the script that the processes run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fixtures_launch import ACCELERATE, TORCHRUN
from fixtures_tiny import tiny_clip, tiny_processor
from PIL import Image

from negation_clip.evaluation import Encoder

ROOT = Path(__file__).parents[2]
TEXTS = ["a cat", "a dog without a cat", "a fridge", "a kitchen with a table and no owl", "a cat", "a bus"]
N_GOOD = 6


def make_images(folder: Path) -> list:
    """Seven files, one of them corrupt, one missing, one twice, and a picture in memory twice."""
    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(256, size=(20 + i, 24, 3), dtype=np.uint8)) for i in range(N_GOOD)]
    paths = [folder / f"{i}.png" for i in range(7)]
    for path, picture in zip(paths, pictures[:5], strict=False):
        picture.save(path)
    paths[5].write_bytes(b"not a picture")
    return [*paths[:3], paths[5], *paths[3:5], paths[6], paths[0], pictures[5], pictures[5].copy()]


def outcome(call) -> list[str]:
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return ["", ""]


def measure(folder: Path, rank: int, size: int) -> None:
    """Everything that the tests look at, written to files of this process."""
    model, processor = tiny_clip(), tiny_processor()
    encoder = Encoder(model, processor, batch_size=2, progress=True)
    images = make_images(folder / f"of {rank}")  # each process has files of its own, as on machines of their own
    arrays, found = {}, {"size": size, "rank": rank}

    arrays["images"] = encoder.encode_images(images)
    found["bad"] = [[bad.row, Path(bad.name).name, bad.reason] for bad in encoder.bad_images]
    arrays["one"] = encoder.encode_images(images[:1])
    arrays["texts"] = encoder.encode_texts(TEXTS)
    arrays["query"] = encoder.encode_query(["a dog without a cat", "a bus"], "compose")

    # The bad pictures are in the share of one process or other; all raise, and about all of them.
    strict = Encoder(model, processor, on_bad_image="raise")
    found["strict"] = outcome(lambda: strict.encode_images(images))
    found["all bad"] = outcome(lambda: encoder.encode_images([images[3]]))
    found["wrong type"] = outcome(lambda: encoder.encode_images([*images, 3]))
    original = model.get_text_features
    if rank == size - 1:
        model.get_text_features = None
    found["failure"] = outcome(lambda: encoder.encode_texts(TEXTS))
    model.get_text_features = original
    found["other texts"] = outcome(lambda: encoder.encode_texts([TEXTS[rank]]))
    found["other images"] = outcome(lambda: encoder.encode_images([images[rank]]))
    found["other number"] = outcome(lambda: encoder.encode_texts(TEXTS[: 3 + rank]))
    found["other work"] = outcome(lambda: (encoder.encode_texts if rank else encoder.encode_images)(images[:1] * 3))
    if rank == 0:
        arrays["alone"] = Encoder(model, processor, distributed=False).encode_texts(TEXTS)

    kept, passes = Encoder(model, processor, batch_size=2, cache_dir=folder / "cache"), []
    forward = kept._image_features
    kept._image_features = lambda items: passes.append(len(items)) or forward(items)
    for name in ("cached", "again"):
        passes.clear()
        arrays[name] = kept.encode_images(images)
        found[f"passes {name}"] = sum(passes) - 1  # for the cache's own probe
    np.savez(folder / f"{rank}.npz", **arrays)
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


def launch(folder: Path, launcher: tuple[str, ...], size: int) -> list[tuple[dict, dict]]:
    for rank in range(size):
        (folder / f"of {rank}").mkdir()
    paths = [str(ROOT), str(ROOT / "tests")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, str(size), __file__, str(folder)]
    done = subprocess.run(command, env=environment, timeout=600, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (folder / "stderr").write_text(done.stderr, encoding="utf-8")
    return [
        (dict(np.load(folder / f"{rank}.npz")), json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")))
        for rank in range(size)
    ]


@pytest.mark.parametrize(
    ("launcher", "size"),
    [
        (ACCELERATE, 2),
        pytest.param(ACCELERATE, 3, marks=pytest.mark.slow),
        pytest.param(TORCHRUN, 1, marks=pytest.mark.slow),
    ],
    ids=["accelerate-2", "accelerate-3", "torchrun-1"],
)
def test_several_processes_equal_one(tmp_path, launcher, size):
    results = launch(tmp_path, launcher, size)
    assert [(found["rank"], found["size"]) for _, found in results] == [(rank, size) for rank in range(size)]
    (tmp_path / "here").mkdir()
    encoder, images = Encoder(tiny_clip(), tiny_processor()), make_images(tmp_path / "here")
    expected = {"images": encoder.encode_images(images), "one": encoder.encode_images(images[:1])}
    expected |= {"texts": encoder.encode_texts(TEXTS), "cached": expected["images"], "again": expected["images"]}
    expected["query"] = encoder.encode_query(["a dog without a cat", "a bus"], "compose")
    assert np.isnan(expected["images"][[3, 6]]).all() and np.isnan(expected["images"]).sum() == 2 * 16

    for rank, (arrays, found) in enumerate(results):
        for name, value in expected.items():
            np.testing.assert_allclose(arrays[name], value, atol=1e-5, err_msg=name)
            np.testing.assert_array_equal(arrays[name], results[0][0][name], err_msg=name)
        assert found["bad"] == [
            [3, "5.png", "not an image that Pillow can read"],
            [6, "6.png", "No such file or directory"],
        ]
        assert found["strict"][0] == "ValueError" and "2 of 10 images missing or unreadable" in found["strict"][1]
        assert "5.png" in found["strict"][1] and "6.png" in found["strict"][1]
        assert found["all bad"][0] == "ValueError" and "1 of 1 images" in found["all bad"][1]
        assert found["wrong type"][0] == "TypeError" and "row 10 is a int" in found["wrong type"][1]
        if rank == size - 1:
            assert found["failure"][0] == "TypeError"
        else:
            assert found["failure"][0] == "RuntimeError"
            assert f"process {size - 1} of {size} failed: TypeError" in found["failure"][1]
        for name in ("other texts", "other images", "other number"):
            if size == 1:
                assert found[name] == ["", ""]
            else:
                assert found[name][0] == "RuntimeError", name
                assert f"the {size} processes were given different models, pictures or texts" in found[name][1]
    for other in range(1, size):  # which cannot embed paths as texts
        assert results[other][1]["other work"][0] == "TypeError"
        assert "process 1 of" in results[0][1]["other work"][1]

    np.testing.assert_allclose(results[0][0]["alone"], expected["texts"], atol=1e-5)
    # Two files and a picture occur twice, of which the picture's copies may fall to two processes.
    assert N_GOOD <= sum(found["passes cached"] for _, found in results) <= N_GOOD + (size > 1)
    assert sum(found["passes again"] for _, found in results) == 0

    stderr = (tmp_path / "stderr").read_text(encoding="utf-8")
    assert stderr.count("2 of 10 images missing or unreadable, whose embeddings are NaN") == 3  # by one process


if __name__ == "__main__":
    from accelerate import PartialState

    state = PartialState(cpu=True)
    measure(Path(sys.argv[1]), state.process_index, state.num_processes)
    state.destroy_process_group()
