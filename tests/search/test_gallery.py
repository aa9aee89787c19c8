"""Pictures that people bring along: limits, broken files, and what is kept of them."""

from __future__ import annotations

import io
import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from negation_clip.search.gallery import (
    MAX_BYTES,
    MAX_PICTURES,
    MAX_PIXELS,
    MAX_RATIO,
    Gallery,
    delete_older,
    load_on_white,
    open_pictures,
    shown_copy,
)


def encoded(format: str, size=(40, 30), **options) -> bytes:
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(buffer, format=format, **options)
    return buffer.getvalue()


def png_that_claims(width: int, height: int) -> bytes:
    """A few bytes whose head promises a picture of that size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + data + chunk(b"IEND", b"")


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_usual_formats_are_read(format, tmp_path):
    (tmp_path / "deep").mkdir()
    path = tmp_path / "deep" / f"picture.{format.lower()}"
    path.write_bytes(encoded(format))
    names, pictures = open_pictures([path, ("other", path.read_bytes())])
    assert names == [path.name, "other"]
    assert [(one.mode, one.size) for one in pictures] == [("RGB", (40, 30))] * 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"this is no picture", "holiday.png is not a picture that can be read: JPEG, PNG, WEBP, GIF and BMP can"),
        (b"", "holiday.png is not a picture"),
        (encoded("TIFF"), "holiday.png is not a picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "holiday.png is not a picture"),
        (encoded("JPEG", (400, 300))[:900], "holiday.png is damaged"),
        (encoded("PNG", (400, 300))[:300], "holiday.png is damaged"),
        (png_that_claims(6000, 6000), "holiday.png is 6000 × 6000 pixels: at most 25 million"),
        (png_that_claims(60000, 60000), "holiday.png has far too many pixels: at most 25 million"),
        (png_that_claims(1, 200_000), "holiday.png is 1 × 200000 pixels, which is too narrow: .* 50 times the other"),
        (png_that_claims(200_000, 2), "holiday.png is 200000 × 2 pixels, which is too narrow"),
        (bytes(MAX_BYTES + 1), "holiday.png has 8.0 MB: a picture may have 8"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_reason(content, message, tmp_path):
    path = tmp_path / "holiday.png"
    path.write_bytes(content)
    for file in (path, ("holiday.png", content)):
        with pytest.raises(ValueError, match=message) as caught:
            open_pictures([("good.png", encoded("PNG")), file])
        assert str(tmp_path) not in str(caught.value)


def test_the_number_is_limited():
    with pytest.raises(ValueError, match=f"{MAX_PICTURES + 1} pictures are too many: choose at most {MAX_PICTURES}"):
        open_pictures([("x.png", encoded("PNG"))] * (MAX_PICTURES + 1))
    with pytest.raises(ValueError, match="at least one picture"):
        open_pictures([])


def test_a_picture_just_within_the_limit_is_read():
    side = int(MAX_PIXELS**0.5)
    buffer = io.BytesIO()
    Image.new("1", (side, side)).save(buffer, format="PNG")
    assert open_pictures([("large.png", buffer.getvalue())])[1][0].size == (side, side)


def test_a_picture_just_wide_enough_is_read():
    assert open_pictures([("wide.png", encoded("PNG", (MAX_RATIO, 1)))])[1][0].size == (MAX_RATIO, 1)
    with pytest.raises(ValueError, match="too narrow"):
        open_pictures([("wide.png", encoded("PNG", (MAX_RATIO + 1, 1)))])


def saved(image: Image.Image, format: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=format, **options)
    return buffer.getvalue()


RED, FRAMES = (255, 0, 0), [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
RAMP = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)


@pytest.mark.parametrize(
    ("content", "first", "last"),
    [
        (saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"), RED, RED),
        (saved(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:]), RED, RED),  # of what moves, the beginning
        (saved(FRAMES[0], "WEBP", save_all=True, append_images=FRAMES[1:], lossless=True), RED, RED),
        (saved(FRAMES[0], "PNG", save_all=True, append_images=FRAMES[1:]), RED, RED),
        (saved(FRAMES[0], "MPO", save_all=True, append_images=FRAMES[1:]), RED, RED),
        (saved(Image.fromarray(RAMP), "PNG"), (0, 0, 0), (255, 255, 255)),  # 16 bits
        (saved(Image.fromarray(np.eye(8, dtype=bool)), "PNG"), (255, 255, 255), (255, 255, 255)),
        (saved(FRAMES[0].convert("P"), "PNG"), RED, RED),
    ],
)
def test_unusual_pictures_are_shown_as_they_are_meant(content, first, last):
    (picture,) = open_pictures([("x", content)])[1]
    assert picture.mode == "RGB"
    for place, colour in ((0, 0), first), ((picture.width - 1, picture.height - 1), last):
        np.testing.assert_allclose(picture.getpixel(place), colour, atol=3)


def test_a_name_cannot_turn_what_is_said_about_it():
    turning = "\u202egnp.exe\u2066 \u05e9\u05dc\u05d5\u05dd\x07.png"
    names, _ = open_pictures([(turning, encoded("PNG"))])
    assert names == ["gnp.exe \u05e9\u05dc\u05d5\u05dd.png"]
    with pytest.raises(ValueError, match="^gnp.exe"):
        open_pictures([(turning, b"")])


def test_pictures_stand_upright_and_nothing_but_the_picture_is_kept():
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "taken at home"
    _, (picture,) = open_pictures([("x.jpg", encoded("JPEG", exif=exif, comment=b"secret"))])
    assert picture.size == (30, 40)
    kept = shown_copy(picture)
    copy = Image.open(io.BytesIO(kept))
    assert not copy.getexif() and b"secret" not in kept and b"home" not in kept
    assert max(Image.open(io.BytesIO(shown_copy(picture.resize((3000, 1000))))).size) <= 192


def test_old_files_are_deleted_and_young_ones_left(tmp_path):
    for name in ("old", "deep/old", "deep/young", "gone/old"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
        if name.endswith("old"):
            os.utime(tmp_path / name, (0, 0))
    for _ in range(2):  # what is deleted makes its folder young again
        os.utime(tmp_path / "deep", (0, 0))
        delete_older(tmp_path, 600)
        if (tmp_path / "gone").exists():
            os.utime(tmp_path / "gone", (0, 0))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "young"]


def test_some_of_a_gallery():
    gallery = Gallery(["a", "b", "c"], [b"1", b"2", b"3"], {"m": np.arange(6.0).reshape(3, 2)}, own=True)
    part = gallery.take([2, 0])
    assert (part.names, part.pictures, part.own) == (["c", "a"], [b"3", b"1"], True)
    assert part.embeds["m"].tolist() == [[4, 5], [0, 1]]


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ("holiday.png", TypeError, "files must be a list of paths.*; got str"),
        (None, TypeError, "got NoneType"),
        (b"\x89PNG", TypeError, "got bytes"),
        (7, TypeError, "got int"),
        ([3], TypeError, r"files\[0\] is a int"),
        ([("x.png", encoded("PNG")), ("x.png", "text")], TypeError, r"files\[1\] is a tuple"),
        ([Image.new("RGB", (4, 4))], TypeError, r"files\[0\] is a Image"),
        (["./no such picture.png"], FileNotFoundError, "no such picture.png: there is no such file"),
        ([os.curdir], ValueError, "is no file"),
        ([], ValueError, "choose at least one picture"),
    ],
)
def test_what_are_no_pictures_is_said(files, error, message):
    with pytest.raises(error, match=message):
        open_pictures(files)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="devices")
def test_a_device_is_not_read():
    with pytest.raises(ValueError, match="zero is no file"):
        open_pictures(["/dev/zero"])


def test_a_gallery_is_whole():
    with pytest.raises(ValueError, match="needs a picture"):
        Gallery([], [], {})
    with pytest.raises(ValueError, match="names 1 pictures, but holds 2 embeddings by 'm'"):
        Gallery(["a"], [b"1"], {"m": np.zeros((2, 2))})


def transparent(mode: str) -> Image.Image:
    """Left half opaque red or dark, right half transparent above black."""
    if mode == "P":
        image = Image.new("P", (8, 4), 0)
        image.putpalette([0, 0, 0, 255, 0, 0])
        image.paste(1, (0, 0, 4, 4))
        image.info["transparency"] = 0
        return image
    image = Image.new(mode, (8, 4), 0)
    image.paste((255, 0, 0, 255) if mode == "RGBA" else (128, 255), (0, 0, 4, 4))
    return image


@pytest.mark.parametrize(
    ("mode", "format"), [("RGBA", "PNG"), ("LA", "PNG"), ("P", "PNG"), ("P", "GIF"), ("RGBA", "WEBP")]
)
def test_transparent_pictures_stand_on_white(mode, format, tmp_path):
    options = {"lossless": True} if format == "WEBP" else {}
    transparent(mode).save(tmp_path / "x", format=format, **options)
    for picture in (open_pictures([tmp_path / "x"])[1][0], load_on_white(tmp_path / "x")):
        assert picture.mode == "RGB" and picture.getpixel((7, 2)) == (255, 255, 255)
        assert picture.getpixel((0, 2)) == ((128,) * 3 if mode == "LA" else (255, 0, 0))


def test_half_transparent_is_half_white():
    buffer = io.BytesIO()
    Image.new("RGBA", (4, 4), (0, 0, 0, 51)).save(buffer, format="PNG")
    assert load_on_white(buffer).getpixel((1, 1)) == (204, 204, 204)  # 255 * (1 - 51 / 255)
