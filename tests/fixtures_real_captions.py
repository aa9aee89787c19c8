"""Pictures of the embedded world in the forms of real data sets, with an oracle that knows what they show."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path

import torch

from negation_clip.data.captions import affirmative
from negation_clip.data.concepts import NAMES
from negation_clip.data.negate import CaptionNegator
from negation_clip.data.scenes import annotation, make_scene, png_bytes, scene_rng
from negation_clip.judge import SceneOracle
from negation_clip.judge.base import file_digest

PREFIX = "/workspace/datasets/cc3m"


@dataclass
class World:
    """Files of one set of pictures.

    Attributes:
        folder (`Path`): holds `pictures/`, and what was asked for.
        names (`list[str]`): of the pictures.
        captions (`list[list[str]]`): true ones, by picture.
        objects (`list[set[str]]`): what each picture shows.
        digests (`list[str]`): SHA-256 of each file.
    """

    folder: Path
    names: list[str] = field(default_factory=list)
    captions: list[list[str]] = field(default_factory=list)
    objects: list[set[str]] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    oracle: SceneOracle | None = None

    @property
    def pictures(self) -> Path:
        return self.folder / "pictures"

    def shows(self, digest: str, noun: str) -> bool:
        """Whether a picture shows a noun, which may be plural, have an article, or stand for a kind."""
        answer = self.oracle.answer(digest, f"is there {noun}?")
        assert answer in ("yes", "no"), (noun, answer)
        return answer == "yes"

    def ccneg(self, order=None, **changes) -> Path:
        """CC-Neg's file: commas on the true side only, capitals and full stops on the false side only."""
        negator, order = CaptionNegator("scenes"), range(len(self.names)) if order is None else order
        rows = []
        for i in order:
            true = self.captions[i][0].replace(" next to ", " , next to ")
            made = negator.negate(self.captions[i][0], "false")
            false = made.text.replace(",", "").capitalize() + "." if made else ""
            rows.append({"json": {"caption": true}, "sop_data": {"negative-prompt": false}})
        content = {"image_paths": [f"{PREFIX}/{self.names[i]}" for i in order], "annotations": rows}
        torch.save({**content, **changes}, self.folder / "ccneg.pt")
        return self.folder / "ccneg.pt"

    def coco(self, order=None) -> tuple[Path, Path]:
        """COCO's files of captions and of instances."""
        order = list(range(len(self.names)) if order is None else order)
        images = [{"id": i, "file_name": self.names[i]} for i in order]
        texts = [{"image_id": i, "caption": text} for i in order for text in self.captions[i]]
        boxes = [{"image_id": i, "category_id": NAMES.index(name)} for i in order for name in sorted(self.objects[i])]
        kinds = [{"id": i, "name": name} for i, name in enumerate(NAMES)]
        return (
            write_json(self.folder / "captions.json", {"images": images, "annotations": texts}),
            write_json(self.folder / "instances.json", {"images": images, "annotations": boxes, "categories": kinds}),
        )

    def voc(self) -> Path:
        """A folder of VOC's xml files; the pictures stay where they are."""
        folder = self.folder / "VOC"
        (folder / "Annotations").mkdir(parents=True, exist_ok=True)
        for name, objects in zip(self.names, self.objects, strict=True):
            items = "".join(
                f"<object><name>{item}</name><part><name>head</name></part></object>" for item in sorted(objects)
            )
            text = f"<annotation><filename>{name}</filename>{items}</annotation>"
            (folder / "Annotations" / f"{Path(name).stem}.xml").write_text(text, encoding="utf-8")
        return folder

    def table(self) -> Path:
        """A csv file of a picture and a caption a row."""
        path = self.folder / "captions.csv"
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("image", "caption"))
            writer.writerows(
                (name, text) for name, texts in zip(self.names, self.captions, strict=True) for text in texts
            )
        return path


def write_json(path: Path, value) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def make_world(folder: Path, size: int, captions: int = 2, pixels: int = 32) -> World:
    """Scenes with captions that name some or all of their objects, and nothing that an oracle could not check."""
    world, known = World(folder), {}
    world.pictures.mkdir()
    for i in range(size):
        scene, path = make_scene("train", i), world.pictures / f"{i:04d}.png"
        path.write_bytes(png_bytes(scene, pixels))
        texts = []
        for k in range(captions):
            rng = scene_rng("train", 0, i, purpose=k + 1)
            shown = None if k else sorted(rng.permutation(len(scene.objects))[: 1 + len(scene.objects) // 2].tolist())
            texts.append(affirmative(scene, rng, shown, detail=0).text)
        world.names.append(path.name)
        world.captions.append(texts)
        world.objects.append({item.name for item in scene.objects})
        world.digests.append(file_digest(path))
        known[world.digests[-1]] = {"background": scene.background, "objects": annotation(scene, pixels)}
    world.oracle = SceneOracle(known)
    return world
