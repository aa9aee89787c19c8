"""A page to look at quadruplets before anything is trained on them."""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment
from PIL import Image

from .images import load_image

_SIDE = 224
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222 }
article { display: flex; gap: 1rem; border-top: 1px solid #ccc; padding: 1rem 0 }
figure { margin: 0; flex: 0 0 auto } figcaption { font-size: 12px; color: #555 }
img { display: block; max-width: 224px; border: 1px solid #ddd }
dl { margin: 0; display: grid; grid-template-columns: auto 1fr; gap: .2rem .8rem; align-content: start }
dt { font-weight: 600 } dd { margin: 0 }
.true { color: #00704f } .false { color: #b0301a } .unverified { color: #8a5a00 }
small { color: #555 }
</style></head><body>
<h1>{{ title }}</h1>
<p>{{ rows | length }} of {{ total }} rows, drawn at random. P and P′ should be true of the picture, N false.
{% if twins %}P′ should be false of the second picture.{% endif %}</p>
{% for row in rows %}<article>
{% for shown in row.pictures %}<figure><img src="{{ shown.uri }}" alt="{{ shown.name }} of row {{ row.number }}">
<figcaption>{{ shown.name }}</figcaption></figure>
{% endfor %}<dl>
<dt>P</dt><dd class="true">{{ row.positive }}</dd>
<dt>P′</dt><dd class="true">{{ row.negated_positive }}</dd>
<dt>N</dt><dd class="false">{{ row.negative }}</dd>
<dt>absent</dt><dd class="{{ row.verified }}">{{ row.absent }} ({{ row.verified }})</dd>
<dt>denied by N</dt><dd>{{ row.denied }}</dd>
<dt></dt><dd><small>{{ row.split }} {{ row.number }}, {{ row.source }} {{ row.image_id }}; {{ row.pattern }};
{{ row.negative_pattern }}</small></dd>
</dl></article>
{% endfor %}</body></html>
"""


def write_preview(data: Mapping, path: str | Path, rows: int = 50, seed: int = 0, title: str = "Quadruplets") -> None:
    """Writes an HTML page of some quadruplets with their pictures: one file, without scripts, that loads nothing.

    Args:
        data (`datasets.DatasetDict`): what [`build_quadruplets`] has made, or what was loaded from its folder.
        path (`str` or `Path`): the file to write.
        rows (`int`): how many rows, drawn from all splits.
        seed (`int`): of the draw.
        title (`str`): heading of the page.

    Raises:
        ValueError: `rows` below 1.
        OSError: a picture that cannot be opened.
    """
    if rows < 1:
        raise ValueError(f"rows={rows}: at least one row must be shown")
    places = [(split, number) for split, part in data.items() for number in range(len(part))]
    chosen = sorted(random.Random(seed).sample(range(len(places)), min(rows, len(places))))
    shown, columns = [], []
    for split, number in (places[place] for place in chosen):
        row = data[split][number]
        columns = [name for name in ("image", "negative_image") if name in row]
        pictures = [{"name": name.replace("_", " "), "uri": _uri(load_image([row[name]], 0))} for name in columns]
        texts = {name: value for name, value in row.items() if name not in columns}
        shown.append({**texts, "split": split, "number": number, "pictures": pictures})
    page = Environment(autoescape=True).from_string(_PAGE)
    html = page.render(title=title, rows=shown, total=len(places), twins=len(columns) > 1)
    Path(path).write_text(html, encoding="utf-8")


def _uri(image: Image.Image) -> str:
    image.thumbnail((_SIDE, _SIDE))
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


__all__ = ["write_preview"]
