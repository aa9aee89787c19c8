"""The models that search: where they come from, and how they are loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from negation_clip.embedded import EMBEDDED, embedded_path

#: Strength and layers of steering by query on the embedded CLIP, chosen on the validation split (docs/steering.md).
STEERING = {"alpha": 0.3, "layers": [1, 2], "direction": "query", "gate": "cue"}


@dataclass(frozen=True)
class SearchModel:
    """A model of an index.

    Attributes:
        name (`str`): what it is called; unique.
        source (`str`): the name of an embedded model, a folder, or a Hub id.
        revision (`str`, *optional*): commit on the Hub.
        steering (`dict`, *optional*): options of `SteeredClipModel.from_backbone`, to steer it.
        version (`str`, *optional*): what `model_revision` said of it when the index was built.
    """

    name: str
    source: str
    revision: str | None = None
    steering: Mapping | None = None
    version: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine, and not an embedded model or one on the Hub."""
        return self.source not in EMBEDDED and Path(self.source).is_dir()

    def place(self) -> str:
        """Folder or Hub id."""
        return str(embedded_path(self.source)) if self.source in EMBEDDED else self.source

    def load(self, device: str = "cpu"):
        """The model as an `Encoder`.

        Args:
            device (`str`): where it runs.

        Returns:
            `negation_clip.Encoder`

        Raises:
            FileNotFoundError: there is no such model.
        """
        from negation_clip import Encoder, SteeredClipModel

        # A Space works on one process; nothing is to be shared with others.
        options = {"progress": False, "distributed": False, "on_bad_image": "raise"}
        encoder = Encoder.from_pretrained(self.place(), revision=self.revision, device=device, **options)
        if self.steering is None:
            return encoder
        return Encoder(SteeredClipModel.from_backbone(encoder.model, **self.steering), encoder.processor, **options)

    def as_dict(self) -> dict:
        """Its fields that are not `None`, as plain values."""
        return {name: value for name, value in asdict(self).items() if value is not None}


#: What the embedded world is searched with.
EMBEDDED_MODELS = (
    SearchModel("CLIP", "base"),
    SearchModel("HanCLIP", "hanclip"),
    SearchModel("CLIP, steered", "base", steering=STEERING),
)


def read_models(given: Sequence[str | SearchModel]) -> list[SearchModel]:
    """Models as they are named on the command line.

    Args:
        given: `"NAME=PLACE"` or `"PLACE"`, a place being `base`, `hanclip`, a folder or a Hub id, with `@COMMIT` after
            an id if it is to stay at one; or what is a [`SearchModel`] already.

    Returns:
        `list[SearchModel]`

    Raises:
        TypeError: no list of these.
        ValueError: none, an empty name or place, or two models of one name.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(f"models must be a list such as ['base', 'mine=me/clip'], got {given!r}")
    models = []
    for one in given:
        if not isinstance(one, str | Path | SearchModel):
            raise TypeError(f"model: {one!r} must be a string, such as 'base' or 'mine=me/clip', or a SearchModel")
        if not isinstance(one, SearchModel):
            # A folder may be called lr=0.1 or me@home.
            name, sign, place = ("", "", str(one)) if Path(one).is_dir() else str(one).partition("=")
            place, revision = (place if sign or not name else name), ""
            if not Path(place).is_dir():
                place, _, revision = place.partition("@")
            one = SearchModel(name if sign else place, place, revision or None)
        if not one.name.strip() or not one.source.strip():
            raise ValueError(
                f"model: {one.name}={one.source} must be a folder, a Hub id, base or hanclip, or NAME=that"
            )
        if one.name in [other.name for other in models]:
            raise ValueError(f"model: two models are called {one.name!r}; name them apart: NAME={one.source}")
        models.append(one)
    if not models:
        raise ValueError("model: name at least one")
    return models


__all__ = ["EMBEDDED_MODELS", "STEERING", "SearchModel", "read_models"]
