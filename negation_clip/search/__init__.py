"""Search in pictures by what must be in them and what must not: readings, indexes, and the engine of the demo Space.

Names are imported on first use, so that importing the package does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from negation_clip._lazy import lazy_exports

if TYPE_CHECKING:
    from .engine import Answer, Choice, Concept, Found, Hit, SearchEngine
    from .gallery import Gallery, open_pictures
    from .index import build_index, load_index
    from .models import EMBEDDED_MODELS, SearchModel
    from .reading import Reading, edited, read

__all__ = [
    "EMBEDDED_MODELS",
    "Answer",
    "Choice",
    "Concept",
    "Found",
    "Gallery",
    "Hit",
    "Reading",
    "SearchEngine",
    "SearchModel",
    "build_index",
    "edited",
    "load_index",
    "open_pictures",
    "read",
]

_EXPORTS = {
    **dict.fromkeys(("Answer", "Choice", "Concept", "Found", "Hit", "SearchEngine"), "engine"),
    **dict.fromkeys(("Gallery", "open_pictures"), "gallery"),
    **dict.fromkeys(("build_index", "load_index"), "index"),
    **dict.fromkeys(("EMBEDDED_MODELS", "SearchModel"), "models"),
    **dict.fromkeys(("Reading", "edited", "read"), "reading"),
}

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
