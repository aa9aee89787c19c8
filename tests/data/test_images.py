"""Pictures in other modes than 8 bits: grey by its range, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from negation_clip.data.images import load_image

RAMP = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)  # 0, 257, …, 65535


@pytest.mark.parametrize("suffix", [".png", ".tiff", ".pgm"])
def test_grey_of_16_bits_is_scaled_by_its_range(tmp_path, suffix):
    path = tmp_path / f"ramp{suffix}"
    if suffix == ".pgm":
        path.write_bytes(b"P5 16 16 65535\n" + RAMP.astype(">u2").tobytes())
    else:
        Image.fromarray(RAMP).save(path)
    found = load_image([str(path)], 0)
    assert found.mode == "RGB"
    assert np.array_equal(np.asarray(found)[..., 0], np.arange(256).reshape(16, 16))
    in_memory = load_image([Image.fromarray(RAMP)], 0)
    assert np.array_equal(np.asarray(in_memory)[..., 2], np.arange(256).reshape(16, 16))


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_grey_of_32_bits_is_taken_in_range_and_refused_outside(tmp_path, dtype):
    ramp = np.arange(256).reshape(16, 16)
    Image.fromarray(ramp.astype(dtype)).save(tmp_path / "good.tiff")
    assert np.array_equal(np.asarray(load_image([str(tmp_path / "good.tiff")], 0))[..., 0], ramp)
    assert np.asarray(load_image([Image.fromarray(np.zeros((4, 4), dtype))], 0)).max() == 0
    for bad in (ramp * 257, ramp - 1):
        with pytest.raises(OSError, match=r"32 bits a pixel with values from -?\d+ to \d+.*save it with 8 or 16 bits"):
            load_image([Image.fromarray(bad.astype(dtype))], 0)


@pytest.mark.parametrize(("size", "good"), [((0, 5), False), ((1, 501), False), ((1002, 2), False), ((500, 1), True)])
@pytest.mark.parametrize("mode", ["RGB", "F"])
def test_a_line_or_nothing_is_no_picture(tmp_path, size, good, mode):
    picture = Image.new(mode, size)
    if min(size):
        picture.save(tmp_path / "line.tiff")
    for entry in [picture] + [str(tmp_path / "line.tiff")] * bool(min(size)):
        if good:
            assert load_image([entry], 0).size == size
        else:
            with pytest.raises(OSError, match=f"a picture of {size[0]} by {size[1]} pixels"):
                load_image([entry], 0)


def test_shares_of_white_and_nan_are_refused():
    for bad in (np.linspace(0, 1, 16), np.array([np.nan] + [9.0] * 15)):
        with pytest.raises(OSError, match="32 bits a pixel"):
            load_image([Image.fromarray(bad.reshape(4, 4).astype(np.float32))], 0)
    # of whole numbers 1 is nearly black
    assert np.asarray(load_image([Image.fromarray(np.eye(4, dtype=np.int32))], 0)).max() == 1
