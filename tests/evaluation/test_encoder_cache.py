"""What `Encoder` keeps on disk: when it is read, what happens to damaged files, and several writers at once."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures_tiny import CONTEXT, tiny_clip, tiny_processor
from PIL import Image

from negation_clip.evaluation import Encoder, feature_cache
from negation_clip.evaluation.feature_cache import KEY_BYTES, FeatureCache

TEXTS = ["a cat", "a dog without a cat", "a fridge", "a kitchen with a table and no owl"]
PROCESSOR = tiny_processor()


@pytest.fixture
def model():
    return tiny_clip()


@pytest.fixture(scope="module")
def pictures():
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(256, size=(20 + i, 24, 3), dtype=np.uint8)) for i in range(8)]


@pytest.fixture
def files(pictures, tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(len(pictures))]
    for path, picture in zip(paths, pictures, strict=True):
        picture.save(path)
    return paths


def embedded(encoder, monkeypatch, call) -> int:
    """How many pictures or texts a call sends through the model, the cache's own probe apart."""
    seen = []
    with monkeypatch.context() as patch:
        for name in ("_image_features", "_text_features"):
            original = getattr(encoder, name)
            patch.setattr(encoder, name, lambda items, original=original: seen.append(len(items)) or original(items))
        call()
    return sum(seen) - 1


def npz_files(cache) -> list[Path]:
    return sorted(cache.rglob("*.npz"))


# --- what is read --------------------------------------------------------------------------------------------------


def test_every_picture_and_text_is_embedded_once_per_folder(model, files, pictures, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    plain, kept = Encoder(model, PROCESSOR), Encoder(model, PROCESSOR, cache_dir=cache, batch_size=3)
    assert embedded(kept, monkeypatch, lambda: kept.encode_images(files[:5])) == 5
    # another list that shares some, another way to give them, another encoder
    again = Encoder(tiny_clip(), PROCESSOR, cache_dir=str(cache))
    entries = [{"path": None, "bytes": path.read_bytes()} for path in files]
    assert embedded(again, monkeypatch, lambda: again.encode_images([files[0], *entries[3:]])) == 3
    assert embedded(again, monkeypatch, lambda: again.encode_images([*files, files[0]])) == 0
    np.testing.assert_allclose(again.encode_images(entries), plain.encode_images(pictures), atol=1e-5)

    assert embedded(kept, monkeypatch, lambda: kept.encode_texts(TEXTS[:2])) == 2
    assert embedded(again, monkeypatch, lambda: again.encode_texts([*TEXTS, TEXTS[0], "A cat"])) == 2
    np.testing.assert_allclose(again.encode_texts(TEXTS), plain.encode_texts(TEXTS), atol=1e-5)
    assert {path.suffix for path in cache.rglob("*") if path.is_file()} == {".npz"}
    assert len(list(cache.iterdir())) == 2


def test_what_is_read_comes_from_the_file(model, tmp_path):
    encoder = Encoder(model, PROCESSOR, cache_dir=tmp_path)
    encoder.encode_texts(TEXTS)
    (path,) = npz_files(tmp_path)
    with np.load(path) as file:
        keys, embeds = file["keys"], file["embeds"]
    assert (keys.dtype, keys.shape) == (np.uint8, (4, KEY_BYTES)) and (embeds.dtype, embeds.shape) == ("f4", (4, 16))
    np.savez(path, keys=keys, embeds=np.zeros_like(embeds))
    assert (encoder.encode_texts(TEXTS) == 0).all()


def test_a_change_of_anything_that_matters_is_noticed(model, pictures, tmp_path):
    def check(model=model, processor=PROCESSOR, new=(True, True), **options):
        plain, kept = (Encoder(model, processor, cache_dir=cache, **options) for cache in (None, tmp_path))
        before = {path.parent for path in npz_files(tmp_path)}
        np.testing.assert_array_equal(kept.encode_texts(TEXTS), plain.encode_texts(TEXTS))
        np.testing.assert_array_equal(kept.encode_images(pictures), plain.encode_images(pictures))
        made = {path.parent.name.split("-")[0] for path in npz_files(tmp_path) if path.parent not in before}
        assert ("texts" in made, "images" in made) == new

    check()
    check(new=(False, False))
    check(max_length=4, new=(True, False))
    check(dtype="bfloat16")
    other = tiny_processor()
    other.image_processor.image_mean = [0.1, 0.2, 0.3]
    check(processor=other, new=(False, True))
    other = tiny_processor()
    other.tokenizer.padding_side = "left"
    check(processor=other, new=(True, False))
    # hooks leave no trace in the weights
    handle = model.text_projection.register_forward_hook(lambda module, args, output: -output)
    check(new=(True, False))
    handle.remove()
    check(new=(False, False))
    with torch.no_grad():
        model.text_projection.weight += 0.1
    check(new=(True, False))
    with torch.no_grad():
        model.visual_projection.weight += 0.1
    check(new=(False, True))
    model.text_model.encoder.layers[0].mlp.fc1.weight.data *= 1.01
    check(new=(True, False))
    check(tiny_clip(), new=(False, False))
    check(tiny_clip(seed=1))


def test_a_change_between_calls_of_one_encoder_is_noticed(model, tmp_path):
    encoder = Encoder(model, PROCESSOR, cache_dir=tmp_path)
    for step in (lambda weight: weight.mul_(1.01), lambda weight: weight.data.add_(0.01), lambda weight: None):
        with torch.no_grad():
            step(model.text_model.encoder.layers[1].self_attn.v_proj.weight)
        np.testing.assert_array_equal(encoder.encode_texts(TEXTS), Encoder(model, PROCESSOR).encode_texts(TEXTS))
    # a token that the probe does not hold
    row = PROCESSOR.tokenizer("fridge")["input_ids"][1]
    with torch.no_grad():
        model.text_model.embeddings.token_embedding.weight[row] += 1
    np.testing.assert_array_equal(encoder.encode_texts(TEXTS), Encoder(model, PROCESSOR).encode_texts(TEXTS))


def test_adapters_switched_on_and_off(tmp_path, pictures):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules=r"text_model.*(q_proj|v_proj)", init_lora_weights=False)
    model = get_peft_model(tiny_clip(), config)
    base = Encoder(tiny_clip(), PROCESSOR)
    kept, plain = Encoder(model, PROCESSOR, cache_dir=tmp_path), Encoder(model, PROCESSOR)
    for _ in range(2):
        np.testing.assert_array_equal(kept.encode_texts(TEXTS), plain.encode_texts(TEXTS))
        assert not np.allclose(kept.encode_texts(TEXTS), base.encode_texts(TEXTS), atol=1e-2)
        with model.disable_adapter():
            np.testing.assert_allclose(kept.encode_texts(TEXTS), base.encode_texts(TEXTS), atol=1e-5)
    # pictures are those of the base model, whose embeddings serve
    expected = Encoder(tiny_clip(), PROCESSOR, cache_dir=tmp_path).encode_images(pictures)
    folders = len(list(tmp_path.glob("images-*")))
    np.testing.assert_array_equal(kept.encode_images(pictures), expected)
    assert len(list(tmp_path.glob("images-*"))) == folders == 1


def test_a_tokenizer_that_reads_texts_differently(model, tmp_path):
    from tokenizers.normalizers import Lowercase, Replace, Sequence

    kept, plain = Encoder(model, PROCESSOR, cache_dir=tmp_path), Encoder(model, PROCESSOR)
    kept.encode_texts(TEXTS)
    other = tiny_processor()  # with the same vocabulary
    other.tokenizer.backend_tokenizer.normalizer = Sequence([Lowercase(), Replace("fridge", "owl")])
    found = Encoder(model, other, cache_dir=tmp_path).encode_texts(TEXTS)
    expected = plain.encode_texts([text.replace("fridge", "owl") for text in TEXTS])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not np.allclose(found, plain.encode_texts(TEXTS), atol=1e-2)


def test_texts_cut_to_the_same_tokens_keep_their_own_place(model, tmp_path):
    long = "cat " * CONTEXT
    kept, plain = Encoder(model, PROCESSOR, cache_dir=tmp_path), Encoder(model, PROCESSOR)
    for texts in ([long + "dog", long + "owl"], [long + "dog", "a cat"]):
        np.testing.assert_allclose(kept.encode_texts(texts), plain.encode_texts(texts), atol=1e-5)


# --- interruption and damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_run_resumes(model, files, tmp_path, monkeypatch, error):
    cache = tmp_path / "cache"
    encoder = Encoder(model, PROCESSOR, cache_dir=cache, batch_size=2)
    original, calls = model.get_image_features, []

    def stop(**inputs):
        calls.append(len(inputs["pixel_values"]))
        if len(calls) == 4:  # the probe and two batches are done
            raise error("stopped")
        return original(**inputs)

    monkeypatch.setattr(model, "get_image_features", stop)
    with pytest.raises(error, match="stopped"):
        encoder.encode_images(files)
    monkeypatch.undo()
    assert embedded(encoder, monkeypatch, lambda: encoder.encode_images(files)) == len(files) - 4
    np.testing.assert_allclose(encoder.encode_images(files), Encoder(model, PROCESSOR).encode_images(files), atol=1e-5)


def test_what_is_done_is_written_before_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(feature_cache, "_ROWS", 3)
    cache = FeatureCache(tmp_path)
    for i in range(7):
        cache.add(bytes([i]) * KEY_BYTES, np.full(4, i, dtype=np.float32))
    other = FeatureCache(tmp_path)  # as a process would that starts after this one was killed
    assert [other.get(bytes([i]) * KEY_BYTES) is not None for i in range(7)] == [True] * 6 + [False]
    assert (cache.get(bytes([6]) * KEY_BYTES) == 6).all() and (other.get(bytes([5]) * KEY_BYTES) == 5).all()


def test_bad_pictures_are_not_kept(model, files, tmp_path, monkeypatch):
    files[2].write_bytes(b"broken")
    encoder = Encoder(model, PROCESSOR, cache_dir=tmp_path / "cache")
    encoder.encode_images(files)
    assert [bad.row for bad in encoder.bad_images] == [2]
    assert embedded(encoder, monkeypatch, lambda: encoder.encode_images(files)) == 0
    assert [bad.row for bad in encoder.bad_images] == [2]
    Image.new("RGB", (9, 9), "red").save(files[2])
    assert embedded(encoder, monkeypatch, lambda: encoder.encode_images(files)) == 1 and not encoder.bad_images


def damages(whole: bytes) -> dict[str, bytes]:
    found = {"empty": b"", "half": whole[: len(whole) // 2], "text": b"not an archive", "end": whole[:-1]}
    for place in range(0, len(whole), 23):
        found[f"byte {place}"] = whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
    return found


def test_a_damaged_file_is_noticed_and_embedded_again(model, tmp_path, caplog):
    cache = tmp_path / "cache"
    encoder = Encoder(model, PROCESSOR, cache_dir=cache)
    expected, noticed = encoder.encode_texts(TEXTS), 0
    (path,) = npz_files(cache)
    whole = path.read_bytes()
    for name, data in damages(whole).items():
        for file in npz_files(cache):
            file.unlink()
        path.write_bytes(data)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = encoder.encode_texts(TEXTS)
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=name)
        if caplog.records:  # a byte of a time stamp, say, matters to nobody
            noticed += 1
            (record,) = caplog.records
            assert str(path) in record.message and "embedded again" in record.message
            assert not path.exists()
    assert noticed > len(whole) / 23 / 2


@pytest.mark.parametrize(
    "arrays",
    [
        {"keys": np.zeros((2, 5), np.uint8), "embeds": np.zeros((2, 16), np.float32)},
        {"keys": np.zeros((2, KEY_BYTES), np.uint8)},
        {"keys": np.zeros((2, KEY_BYTES), np.uint8), "embeds": np.zeros((1, 16), np.float32)},
        {"keys": np.zeros((2, KEY_BYTES), np.uint8), "embeds": np.array([{}, {}])},
    ],
)
def test_a_file_of_another_kind_is_no_cache(tmp_path, arrays, caplog):
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)
    with caplog.at_level(logging.WARNING):
        assert FeatureCache(tmp_path).get(bytes(KEY_BYTES)) is None
    assert "is damaged" in caplog.text and not path.exists()


def test_a_failed_write_leaves_nothing(model, tmp_path, monkeypatch):
    encoder = Encoder(model, PROCESSOR, cache_dir=tmp_path / "cache")

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        encoder.encode_texts(TEXTS)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_a_cache_that_is_a_file_is_named_before_the_work(model, files, tmp_path, monkeypatch):
    (tmp_path / "cache").touch()
    encoder = Encoder(model, PROCESSOR, cache_dir=tmp_path / "cache")
    assert embedded(encoder, monkeypatch, lambda: pytest.raises(OSError, encoder.encode_images, files)) == 0
    with pytest.raises(OSError, match="cache"):
        encoder.encode_images(files)


# --- many files and many writers -----------------------------------------------------------------------------------


def test_small_files_become_one(model, tmp_path, monkeypatch):
    encoder = Encoder(model, PROCESSOR, cache_dir=tmp_path)
    texts = [" and ".join(["a cat"] * (1 + i % 9) + ["an owl"] * (i // 9)) for i in range(36)]
    for text in texts:
        encoder.encode_texts([text])
        assert len(npz_files(tmp_path)) <= 33
    assert len(set(texts)) == 36
    assert embedded(encoder, monkeypatch, lambda: encoder.encode_texts(texts)) == 0
    np.testing.assert_allclose(encoder.encode_texts(texts), Encoder(model, PROCESSOR).encode_texts(texts), atol=1e-5)


def test_files_that_another_process_has_merged_meanwhile(tmp_path):
    def key(i: int) -> bytes:
        return bytes([i]) * KEY_BYTES

    for i in range(32):
        with FeatureCache(tmp_path) as cache:
            cache.add(key(i), np.full(4, i, dtype=np.float32))
    early = FeatureCache(tmp_path)
    with FeatureCache(tmp_path) as cache:
        cache.add(key(32), np.full(4, 32, dtype=np.float32))
    assert len(npz_files(tmp_path)) == 1
    assert all((early.get(key(i)) == i).all() for i in range(33))


WRITER = """
import importlib.util, sys, time, numpy as np
from pathlib import Path
folder, number = Path(sys.argv[1]), int(sys.argv[2])
spec = importlib.util.spec_from_file_location("feature_cache", sys.argv[3])  # alone, which is quick
feature_cache = importlib.util.module_from_spec(spec)
spec.loader.exec_module(feature_cache)
feature_cache._ROWS = 2
(folder / f"ready{number}").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
for i in range(40):
    cache = feature_cache.FeatureCache(folder / "cache")
    for j in (i, 40 * number + i):
        key = j.to_bytes(20, "big")
        found = cache.get(key)
        assert found is None or (found == j).all()
        cache.add(key, np.full(8, j, dtype=np.float32))
    cache.flush()
"""


def test_two_processes_write_at_once(tmp_path):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path, str(number), feature_cache.__file__], stderr=subprocess.PIPE
        )
        for number in (1, 2)
    ]
    while not all((tmp_path / f"ready{number}").exists() or writers[number - 1].poll() for number in (1, 2)):
        time.sleep(0.01)
    (tmp_path / "go").touch()
    for writer in writers:
        _, errors = writer.communicate(timeout=300)
        assert writer.returncode == 0 and not errors, errors.decode()
    cache = FeatureCache(tmp_path / "cache")
    for j in range(120):
        assert (cache.get(j.to_bytes(20, "big")) == j).all()
    assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {".npz"}
    assert len(npz_files(tmp_path)) <= 2 * 33
