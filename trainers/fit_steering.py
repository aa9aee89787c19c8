"""Fit directions of negation for a dual encoder, and choose how strongly and where to steer.

    python trainers/fit_steering.py --config recipes/steering.yaml --output_dir runs/steering
    python trainers/fit_steering.py --model openai/clip-vit-base-patch32 --pairs pairs.json --output_dir runs/steering
    python trainers/fit_steering.py --captions captions.txt --validation exclusion --gate cue --output_dir runs/cue

Writes `model/` (with processor; loads with `AutoModel`), `fit.json` (accuracy of the probes by layer, the grid, what
was chosen), `grid.csv` and the plots `accuracy.png` and `grid.png` into the output folder. With
`--push_to_hub --hub_model_id me/name` the model goes to the Hub at the end: docs/hub.md.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints

from negation_clip.trainers.runs import check_output, prepare_output, run_script, write_json

if TYPE_CHECKING:
    import numpy as np
    import torch

    from negation_clip import Encoder, SteeredClipModel
    from negation_clip.trainers.push import PushArguments

logger = logging.getLogger(__name__)

TASKS = ("mcq", "exclusion", "none")
_PROBES, _GRID = "probes.safetensors", "grid.json"
# Of a configuration: where it came from and what wrote it. Weights have a dtype of their own.
_PROVENANCE = {"_name_or_path", "transformers_version", "architectures", "auto_map", "dtype"}


@dataclass
class SteeringArguments:
    """What is fitted, on what, and what is chosen.

    > Parameters that control the data

    Attributes:
        model (`str`): folder or Hub id of a dual encoder that `SteeredClipModel` can wrap, or `"base"`.
        pairs (`str`, *optional*): pairs of an affirmative and a negated caption: see `load_pairs`.
        captions (`str`, *optional*): affirmative captions in place of pairs, which are then negated by rules: see
            `negate_captions`. `"scenes"` are those of the embedded world.
        columns (`list[str]`): names of the columns of `pairs`.
        caption_column (`str`): name of the column of `captions`.
        dataset_split (`str`): split, if `pairs` or `captions` are a dataset.
        size (`int`, *optional*): number of captions; 4000 of `"scenes"` by default, else all.

    > Parameters that control the probes

    Attributes:
        holdout (`int`): the last so many pairs are not fitted, but give the accuracy.
        inverse_penalty (`float`): C of the logistic regression.
        intercept (`bool`): whether the probes have one. The published ones do not.

    > Parameters that control the choice

    Attributes:
        direction (`str`): `"fitted"`: along the directions of the probes; `"query"`: each text away from what it
            denies, which needs the gate `"cue"`.
        gate (`str`): of the model: `"always"`, `"probe"` or `"cue"`. The probe of the layer with the highest accuracy
            decides, the first one of several.
        alpha (`float`), layers (`list[int]`, *optional*): strength and layers where nothing is validated.
        validation (`str`): `"mcq"` or `"exclusion"` on the embedded world's validation split; `"none"` for no grid.
        validation_size (`int`): pictures of it.
        alphas (`list[float]`): strengths in the grid; 0, the plain model, is always there.
        layer_blocks (`int`): the text layers are cut into so many blocks, and every run of neighbouring blocks is in
            the grid.

    > Parameters that control the run

    Attributes:
        output_dir (`str`): where everything is written.
        batch_size (`int`): texts or pictures per forward pass.
        device (`str`, *optional*): where the model runs.
        seed (`int`): of the rules that negate captions.
        overwrite, resume (`bool`): what to do with an output folder that holds a run: replace it, or go on, keeping
            the probes and what the grid has already measured.
    """

    model: str = field(default="base", metadata={"help": "folder or Hub id of a dual encoder, or 'base'"})
    pairs: str | None = field(default=None, metadata={"help": "json, jsonl, csv or tsv file, or dataset"})
    captions: str | None = field(default=None, metadata={"help": "captions to be negated: file, dataset or 'scenes'"})
    columns: list[str] = field(
        default_factory=lambda: ["affirmative", "negated"], metadata={"help": "columns of the pairs"}
    )
    caption_column: str = field(default="caption", metadata={"help": "column of the captions"})
    dataset_split: str = field(default="train", metadata={"help": "split of a dataset"})
    size: int | None = field(default=None, metadata={"help": "number of captions to be negated"})

    holdout: int = field(default=100, metadata={"help": "pairs at the end that are not fitted"})
    inverse_penalty: float = field(default=1.0, metadata={"help": "C of the logistic regression"})
    intercept: bool = field(default=False, metadata={"help": "probes with an intercept"})

    direction: str = field(default="fitted", metadata={"help": "fitted, or query: away from what a text denies"})
    gate: str = field(default="probe", metadata={"help": "which texts are steered: always, probe or cue"})
    alpha: float = field(default=0.13, metadata={"help": "strength, without validation"})
    layers: list[int] | None = field(default=None, metadata={"help": "layers, without validation; all by default"})
    validation: str = field(default="mcq", metadata={"help": "mcq, exclusion or none"})
    validation_size: int = field(default=500, metadata={"help": "pictures of the validation task"})
    alphas: list[float] = field(
        default_factory=lambda: [0.05, 0.1, 0.13, 0.2, 0.3, 0.5], metadata={"help": "strengths in the grid"}
    )
    layer_blocks: int = field(default=4, metadata={"help": "blocks of layers in the grid"})

    output_dir: str = field(default="runs/steering", metadata={"help": "output folder"})
    batch_size: int = field(default=128, metadata={"help": "texts or pictures per forward pass"})
    device: str | None = field(default="cpu", metadata={"help": "where the model runs"})
    seed: int = field(default=0, metadata={"help": "seed of the rules that negate captions"})
    overwrite: bool = field(default=False, metadata={"help": "replace an earlier run in the output folder"})
    resume: bool = field(default=False, metadata={"help": "go on with an earlier run in the output folder"})


@dataclass
class Probes:
    """Linear probes of negation, one per text layer.

    Attributes:
        weight (`np.ndarray`): `(n_layers, D)` float32; w·h + b > 0 says negated.
        bias (`np.ndarray`): `(n_layers,)` float32, zeros without intercept.
        accuracy (`np.ndarray`): `(n_layers,)`, of the held-out captions of both sides.
        affirmative_accuracy, negated_accuracy (`np.ndarray`): `(n_layers,)`, of one side.
    """

    weight: np.ndarray
    bias: np.ndarray
    accuracy: np.ndarray
    affirmative_accuracy: np.ndarray
    negated_accuracy: np.ndarray

    @property
    def directions(self) -> np.ndarray:
        """`(n_layers, D)`: w/‖w‖, which points to negation."""
        import numpy as np

        return self.weight / np.linalg.norm(self.weight, axis=1, keepdims=True)


@dataclass
class SteeringFit:
    """What [`fit_steering`] found.

    Attributes:
        model (`SteeredClipModel`): steers with the directions, strength and layers that were chosen.
        encoder (`Encoder`): the same with its processor.
        probes (`Probes`): probes and their accuracy.
        pairs (`int`): number of pairs, the held-out ones included.
        grid (`list[dict]`): a row per setting: `alpha`, `layers`, `score`, and the task's parts of it.
        chosen (`dict`): `alpha`, `layers`, `direction`, `gate`, `probe_layer`, `score` and `plain_score` (`None` if
            nothing was validated).
    """

    model: SteeredClipModel
    encoder: Encoder
    probes: Probes
    pairs: int
    grid: list[dict]
    chosen: dict

    @property
    def directions(self) -> np.ndarray:
        """`(n_layers, D)`, unit vectors."""
        return self.probes.directions

    def report(self) -> dict:
        """Everything but the tensors, for a JSON file."""
        names = ("accuracy", "affirmative_accuracy", "negated_accuracy")
        by_layer = zip(*(getattr(self.probes, name).tolist() for name in names), strict=True)
        layers = [{"layer": i, **dict(zip(names, row, strict=True))} for i, row in enumerate(by_layer)]
        return {"pairs": self.pairs, "layers": layers, "grid": self.grid, "chosen": self.chosen}


def fit_steering(
    model="base",
    pairs=None,
    *,
    captions=None,
    processor=None,
    validation: str | Callable[[Encoder], float | dict] | None = "mcq",
    output_dir: str | Path | None = None,
    **options,
) -> SteeringFit:
    """Fits directions of negation and chooses how strongly and in which layers to steer.

    In the residual stream of the text tower, at the token that is pooled, a logistic regression per layer tells
    negated from affirmative captions; its weights are the direction. Source: "When Negation Is a Geometry Problem in
    Vision-Language Models" (2026). The probes' defaults are those of its published script: no intercept, C = 1, the
    last 100 pairs held out.

    Args:
        model: folder or Hub id of a dual encoder, `"base"`, or the model itself, of a type that [`SteeredClipModel`]
            can wrap. It is copied.
        pairs: affirmative and negated captions, in any form that `load_pairs` takes.
        captions: affirmative captions in place of pairs, in any form that `negate_captions` takes.
        processor: of a `model` that is given itself.
        validation: `"mcq"`, `"exclusion"`, `"none"`, or a function from an [`Encoder`] of the steered model to a score
            (more is better) or a dictionary with `score`. Called once for each setting of the grid.
        output_dir: folder to write to; nothing is written without it.
        options: other fields of `SteeringArguments`.

    Returns:
        `SteeringFit`

    Raises:
        ImportError: scikit-learn is not installed.
        FileNotFoundError: a file that does not exist.
        ValueError: pairs that cannot be used (row named), fewer than are held out, an option out of range, a
            `validation` that gives no score.

    Example:
        >>> fit = fit_steering("base", captions="scenes", validation="exclusion", gate="cue")
        >>> fit.chosen["alpha"], fit.probes.accuracy
        >>> fit.encoder.encode_texts(["a dog but no cat"])
    """
    from negation_clip.trainers.push import start_of

    # Never the default: a card takes the licence from here.
    named = {"model": str(model) if isinstance(model, (str, Path)) else start_of(model)}
    named |= {"validation": validation} if isinstance(validation, str) else {}
    named |= {"output_dir": str(output_dir)} if output_dir is not None else {}
    return _fit(SteeringArguments(**named, **options), model, processor, pairs, captions, validation, output_dir)


def main(arguments: SteeringArguments, publishing: PushArguments | None = None) -> dict:
    """Fit and save.

    Args:
        arguments (`SteeringArguments`): what.
        publishing (`PushArguments`, *optional*): where to send the model; nowhere by default.

    Returns:
        `dict`: what `fit.json` holds, and `model`, the path.

    Raises:
        OSError: a Hub that refuses the model. Then all has been saved, and the message says which command sends it.
        Others: see [`fit_steering`].
    """
    from negation_clip.trainers.push import push_options, send

    a = arguments
    fit = _fit(a, a.model, None, a.pairs, a.captions, a.validation, a.output_dir)
    print("layer  held-out accuracy")
    for layer, accuracy in enumerate(fit.probes.accuracy):
        print(f"{layer:5}  {100 * accuracy:6.2f} %")
    chosen = fit.chosen
    print(f"alpha {chosen['alpha']}, layers {chosen['layers']}, gate {chosen['gate']}", end="")
    print("" if chosen["score"] is None else f": {a.validation} {chosen['plain_score']:.4f} -> {chosen['score']:.4f}")
    if publishing is not None and publishing.push_to_hub:
        plan = send(a.output_dir, publishing.hub_model_id, **push_options(publishing, fit.model))
        print(f"sent: {plan.url}")
    return {"model": str(Path(a.output_dir) / "model"), **fit.report()}


def _fit(arguments: SteeringArguments, model, processor, pairs, captions, validation, output_dir) -> SteeringFit:
    from negation_clip.data.negation_pairs import load_pairs, negate_captions
    from negation_clip.trainers.push import with_licence

    a, start = _plain_options(arguments), time.perf_counter()
    validation = "none" if validation is None else validation
    _check(a, validation)
    _require_sklearn()
    if (pairs is None) == (captions is None):
        raise ValueError("give either pairs or captions, which are then negated, and not both")
    if pairs is not None:
        pairs = load_pairs(pairs, a.columns, a.dataset_split)
    else:
        pairs = negate_captions(captions, a.caption_column, a.dataset_split, a.size, a.seed)
    if a.holdout >= len(pairs):
        raise ValueError(f"holdout={a.holdout} leaves nothing to fit: there are {len(pairs)} pairs")
    out = None if output_dir is None else Path(output_dir)
    if out is not None:
        check_output(out, a.overwrite, a.resume)
        facts = with_licence(dataclasses.asdict(a))  # while what the output folder may replace is there

    encoder = _load(model, processor, a)
    steered = encoder.model
    steered.set_steering(alpha=a.alpha, layers=a.layers)  # says what is wrong with them before the work
    if out is not None:
        prepare_output(out, a.overwrite, a.resume)
    key = _key(encoder, pairs, a)
    probes = _read_probes(out, key) if a.resume else None
    if probes is None:
        encoder.report_truncation([negated for _, negated in pairs])
        sides = [collect_activations(encoder, [pair[side] for pair in pairs]) for side in (0, 1)]
        probes = fit_probes(*sides, a.holdout, a.inverse_penalty, a.intercept)
        if out is not None:
            _write_probes(out, key, probes)
    steered.set_steering(
        directions=_tensor(probes.directions),
        probe=(_tensor(probes.weight), _tensor(probes.bias)),
        direction=a.direction,
        gate=a.gate,
        probe_layer=int(probes.accuracy.argmax()),
    )
    chosen = {"alpha": a.alpha, "layers": a.layers, "score": None, "plain_score": None}
    grid: list[dict] = []
    if validation != "none":
        task = WorldTask(validation, a.validation_size) if isinstance(validation, str) else validation
        # A function may have changed since, so that its measures are not taken from an earlier run.
        kept = out if isinstance(validation, str) else None
        grid = search(
            encoder,
            task,
            a.alphas,
            a.layer_blocks,
            kept,
            f"{key} {a.direction} {a.gate} {validation} {a.validation_size}",
        )
        chosen = choose(grid)
        steered.set_steering(alpha=chosen["alpha"], layers=chosen["layers"])
        if not chosen["alpha"]:
            logger.warning("No setting of the grid is better than the plain model: alpha is 0, nothing is steered.")
    chosen |= {"direction": a.direction, "gate": a.gate, "probe_layer": steered.config.probe_layer}
    fit = SteeringFit(steered, encoder, probes, len(pairs), grid, chosen)
    if out is not None:
        _save(fit, facts, out, time.perf_counter() - start)
    return fit


def _plain_options(a: SteeringArguments) -> SteeringArguments:
    """The same with plain numbers, lists and texts, which a file can hold, in place of other libraries' and paths."""
    import torch
    from huggingface_hub.dataclasses import type_validator

    from negation_clip.modeling.modeling_steered import plain_value

    wider = {float: float | int, list[float]: list[float | int]}
    values = {
        name: str(value) if isinstance(value, (Path, torch.device)) else plain_value(value)
        for name, value in vars(a).items()
    }
    for name, expected in get_type_hints(SteeringArguments).items():
        try:
            type_validator(name, values[name], wider.get(expected, expected))
        except TypeError as error:
            wanted = getattr(expected, "__name__", expected) if isinstance(expected, type) else expected
            raise ValueError(f"{name} must be {wanted}, got {values[name]!r}") from error
    return dataclasses.replace(a, **values)


def _check(a: SteeringArguments, validation) -> None:
    if isinstance(validation, str) and validation not in TASKS:
        raise ValueError(f"validation={validation!r}: choose {', '.join(TASKS)}")
    if a.gate not in ("always", "probe", "cue"):
        raise ValueError(f"gate={a.gate!r}: choose always, probe or cue")
    if a.direction not in ("fitted", "query"):
        raise ValueError(f"direction={a.direction!r}: choose fitted or query")
    if a.direction == "query" and a.gate != "cue":
        raise ValueError(f"direction='query' is for texts that deny something: it needs gate='cue', not {a.gate!r}")
    for name in ("holdout", "layer_blocks", "batch_size", "validation_size"):
        if getattr(a, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(a, name)}")
    if not a.inverse_penalty > 0:
        raise ValueError(f"inverse_penalty must be above 0, got {a.inverse_penalty}")
    if validation != "none" and not set(a.alphas) - {0}:
        raise ValueError("alphas must hold a strength above 0, from which to choose")
    if bad := [alpha for alpha in [a.alpha, *a.alphas] if not 0 <= alpha <= 1]:
        raise ValueError(f"alpha and alphas must be in [0, 1], got {bad[0]}")


def _require_sklearn() -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise ImportError("probes are fitted with scikit-learn: pip install 'negation-clip[steering]'") from error


def _load(model, processor, a: SteeringArguments) -> Encoder:
    """The model, wrapped and with nothing steered yet, and its processor."""
    from transformers import AutoProcessor

    from negation_clip import Encoder, SteeredClipModel
    from negation_clip.model_place import check_device, model_place

    check_device(a.device)
    if isinstance(model, (str, Path)):
        model = model_place(model, "model")
        processor = AutoProcessor.from_pretrained(model, backend="pil") if processor is None else processor
    elif processor is None:
        raise ValueError("a model that is given itself needs its processor")
    steered = SteeredClipModel.from_backbone(model)
    return Encoder(steered, processor, batch_size=a.batch_size, device=a.device)


def _tensor(array: np.ndarray) -> torch.Tensor:
    import torch

    return torch.from_numpy(array)


def collect_activations(encoder: Encoder, texts: Sequence[str]) -> np.ndarray:
    """Activations of texts at the pooled token after every text layer, nothing steered.

    Args:
        encoder (`Encoder`): of a `SteeredClipModel`.
        texts (sequence of `str`): captions; batched by length.

    Returns:
        `np.ndarray`: `(n, n_layers, D)` float32.
    """
    import numpy as np
    import torch
    from tqdm.auto import tqdm

    model = encoder.model.eval()
    lengths = [len(ids) for ids in encoder.processor.tokenizer(list(texts), verbose=False)["input_ids"]]
    order = np.argsort(lengths, kind="stable")
    found = np.empty((len(texts), *model.steering.directions.shape), dtype=np.float32)
    with tqdm(total=len(texts), unit=" texts", desc="Activations", disable=None) as bar, torch.no_grad():
        for begin in range(0, len(texts), encoder.batch_size):
            rows = order[begin : begin + encoder.batch_size]
            inputs = encoder.tokenize([texts[row] for row in rows])
            found[rows] = model.get_text_activations(**inputs).float().cpu().numpy()
            bar.update(len(rows))
    return found


def fit_probes(
    affirmative: np.ndarray,
    negated: np.ndarray,
    holdout: int = 100,
    inverse_penalty: float = 1.0,
    intercept: bool = False,
) -> Probes:
    """A logistic regression per layer that tells negated (1) from affirmative (0) captions.

    L2 penalty, lbfgs, no scaling of the features, at most 1,000 iterations; in the dtype of the activations, in which
    float32 gives the published figures.

    Args:
        affirmative (`np.ndarray`): `(n, n_layers, D)`, activations of the affirmative captions.
        negated (`np.ndarray`): likewise of the negated ones; row i belongs to row i.
        holdout (`int`): the last so many rows of both are not fitted, but give the accuracy.
        inverse_penalty (`float`): C > 0.
        intercept (`bool`): whether to fit b.

    Returns:
        `Probes`

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: arrays of different shape, values that are not finite, one class only, too few rows, or a layer in
            which both sides are alike.
    """
    import numpy as np
    from tqdm.auto import tqdm

    _require_sklearn()
    from sklearn.linear_model import LogisticRegression

    if min(len(affirmative), len(negated)) == 0:
        raise ValueError(
            f"both classes are needed, got {len(affirmative)} affirmative and {len(negated)} negated captions"
        )
    if affirmative.ndim != 3 or affirmative.shape != negated.shape:
        raise ValueError(
            "affirmative and negated must have the same shape (pairs, layers, width), got "
            f"{affirmative.shape} and {negated.shape}"
        )
    fitted = len(affirmative) - holdout
    if holdout < 1 or fitted < 1:
        raise ValueError(f"holdout must leave pairs on both sides: it is {holdout} of {len(affirmative)}")
    for name, side in (("affirmative", affirmative), ("negated", negated)):
        if not np.isfinite(side).all():
            raise ValueError(f"{name}: row {np.argwhere(~np.isfinite(side))[0][0]} holds values that are not finite")
    labels = np.repeat([0, 1], fitted)
    weight, bias, right = [], [], []
    for layer in tqdm(range(affirmative.shape[1]), unit=" layers", desc="Probes", disable=None):
        x = np.concatenate([affirmative[:fitted, layer], negated[:fitted, layer]])
        probe = LogisticRegression(C=inverse_penalty, fit_intercept=intercept, max_iter=1000).fit(x, labels)
        if not probe.coef_.any():
            raise ValueError(f"layer {layer}: affirmative and negated captions have the same activations")
        weight.append(probe.coef_[0])
        bias.append(float(probe.intercept_[0]) if intercept else 0.0)
        tests = [side[fitted:, layer] @ weight[-1] + bias[-1] for side in (affirmative, negated)]
        right.append(((tests[0] <= 0).mean(), (tests[1] > 0).mean()))
    correct = np.array(right)
    return Probes(
        np.array(weight, dtype=np.float32),
        np.array(bias, dtype=np.float32),
        correct.mean(axis=1),
        correct[:, 0],
        correct[:, 1],
    )


class WorldTask:
    """A validation task on the embedded world; pictures are drawn and embedded once, since steering leaves them alone.

    Args:
        kind (`str`): `"mcq"` or `"exclusion"`.
        size (`int`): pictures in the gallery, or queries.
        split (`str`): of the embedded world.
    """

    def __init__(self, kind: str, size: int, split: str = "validation"):
        from negation_clip.data import benchmarks

        self.kind = kind
        if kind == "mcq":
            self.scenes = benchmarks.retrieval(split, size).scenes
            self.questions = benchmarks.multiple_choice(split, self.scenes)
        else:
            self.pairs = benchmarks.exclusion(split, size)
            self.scenes = [*self.pairs.without, *self.pairs.with_it]
        self._images: np.ndarray | None = None

    def __call__(self, encoder: Encoder) -> dict[str, float]:
        """Measures a model.

        Args:
            encoder (`Encoder`): its images must be those of the first call's.

        Returns:
            `dict`: `score` in [0, 1]; for `"mcq"` also the accuracy by type of question.
        """
        import numpy as np

        from negation_clip import metrics

        if self._images is None:
            self._images = encoder.encode_images([scene.render() for scene in self.scenes])
        images = self._images
        if self.kind == "exclusion":
            texts = encoder.encode_texts([query.text for query in self.pairs.queries])
            scores = encoder.similarity(images, texts).T
            n = len(texts)
            found = metrics.exclusion(np.diagonal(scores[:, :n]), np.diagonal(scores[:, n:]))
            return {"score": float(found["accuracy"])}
        options = self.questions.options
        texts = encoder.encode_texts([text for four in options for text in four]).reshape(len(options), 4, -1)
        scores = np.concatenate(
            [encoder.similarity(images[[i]], four) for i, four in zip(self.questions.scenes, texts, strict=True)]
        )
        found = metrics.negbench_mcq(scores, [0] * len(scores), self.questions.templates)
        return {"score": float(found["strict_accuracy"]), **found["accuracy_by_template"]}


def layer_spans(n_layers: int, blocks: int) -> list[list[int]]:
    """The layer subsets of the grid: every run of neighbouring blocks.

    Args:
        n_layers (`int`): of the text tower.
        blocks (`int`): number of blocks, of equal size up to one layer; at most `n_layers`.

    Returns:
        `list[list[int]]`: the shortest first.

    Example:
        >>> layer_spans(4, 2)
        [[0, 1], [2, 3], [0, 1, 2, 3]]
    """
    blocks = min(blocks, n_layers)
    edges = [round(i * n_layers / blocks) for i in range(blocks + 1)]
    spans = [list(range(edges[i], edges[j])) for i in range(blocks) for j in range(i + 1, blocks + 1)]
    return sorted(spans, key=lambda span: (len(span), span))


def search(
    encoder: Encoder,
    task: Callable[[Encoder], float | dict],
    alphas: Sequence[float],
    blocks: int,
    output_dir: Path | None = None,
    key: str = "",
) -> list[dict]:
    """Measures every setting of the grid; the model is left at the last one.

    Args:
        encoder (`Encoder`): of a `SteeredClipModel` with directions.
        task: from encoder to score, or to a dictionary with `score`.
        alphas (sequence of `float`): strengths.
        blocks (`int`): see [`layer_spans`].
        output_dir (`Path`, *optional*): where every measure is kept, and looked for.
        key (`str`): measures under another key are not taken.

    Returns:
        `list[dict]`: rows with `alpha`, `layers`, `score` and what else the task gives; the plain model comes first.

    Raises:
        ValueError: the task gives no number, a dictionary without `score`, or one with `alpha` or `layers`.
    """
    from tqdm.auto import tqdm

    path = None if output_dir is None else output_dir / _GRID
    known: dict[str, dict] = {}
    if path is not None and path.exists():
        with _says_what_is_damaged(path):
            stored = json.loads(path.read_text(encoding="utf-8"))
            known = stored["measured"] if stored["key"] == key else {}
    model = encoder.model
    everything = list(range(model.config.text_config.num_hidden_layers))
    settings = [(0.0, everything)]
    settings += [(a, span) for span in layer_spans(len(everything), blocks) for a in sorted(set(alphas) - {0.0})]
    rows = []
    for alpha, layers in tqdm(settings, unit=" settings", desc="Grid", disable=None):
        name = f"{alpha} {layers}"
        if name not in known:
            model.set_steering(alpha=alpha, layers=layers)
            known[name] = _measured(task(encoder), to_file=path is not None)
            if path is not None:
                write_json(path, {"key": key, "measured": known})
        rows.append({"alpha": alpha, "layers": layers, **known[name]})
    return rows


def _measured(found, to_file: bool) -> dict:
    """What a validation function gave, as a dictionary with a number as `score`."""
    from negation_clip.modeling.modeling_steered import plain_value

    found = found if isinstance(found, Mapping) else {"score": found}
    row = {name: plain_value(value) for name, value in found.items()}
    if "score" not in row:
        raise ValueError(f"validation gave a dictionary without 'score', the number to choose by: it has {list(row)}")
    if taken := row.keys() & {"alpha", "layers"}:
        raise ValueError(f"validation gave {sorted(taken)[0]!r}, which is the name of a column of the grid: rename it")
    for name, value in row.items() if to_file else ():
        try:
            json.dumps({name: value})
        except (TypeError, ValueError) as error:
            kind = type(value).__name__
            raise ValueError(f"validation gave {name!r} as {kind}, which the grid's file cannot hold") from error
    try:
        return {**row, "score": float(row["score"])}
    except (TypeError, ValueError) as error:
        raise ValueError(f"validation gave {row['score']!r} as a score: a number is wanted, more is better") from error


def choose(grid: Sequence[dict]) -> dict:
    """The best row of a grid; of several, the one that changes least: smaller α first, then fewer layers.

    Args:
        grid (sequence of `dict`): from [`search`].

    Returns:
        `dict`: `alpha`, `layers`, `score`, `plain_score`.

    Raises:
        ValueError: a score that is not finite.
    """
    import math

    if bad := [row for row in grid if not math.isfinite(row["score"])]:
        raise ValueError(f"alpha={bad[0]['alpha']}, layers={bad[0]['layers']}: the score is {bad[0]['score']}")
    best = min(grid, key=lambda row: (-row["score"], row["alpha"], len(row["layers"])))
    return {**{name: best[name] for name in ("alpha", "layers", "score")}, "plain_score": grid[0]["score"]}


def _key(encoder: Encoder, pairs: list[tuple[str, str]], a: SteeringArguments) -> str:
    """Hash of all that the probes depend on, and the pictures' embeddings that the grid is measured with."""
    import torch

    def settings(config):
        """A configuration without what tells where and by what it was written."""
        if not isinstance(config, dict):
            return config
        return {name: settings(value) for name, value in config.items() if name not in _PROVENANCE}

    backbone, processor = encoder.model.backbone, encoder.processor
    tokens = processor.tokenizer([text for pair in pairs for text in pair], verbose=False)["input_ids"]
    parts = [pairs, a.holdout, a.inverse_penalty, a.intercept, tokens, encoder.max_length]
    parts += [settings(backbone.config.to_dict()), settings(processor.image_processor.to_dict())]
    digest = hashlib.blake2b(json.dumps(parts, sort_keys=True, default=str).encode(), digest_size=16)
    for name, value in sorted(backbone.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _write_probes(out: Path, key: str, probes: Probes) -> None:
    from safetensors.numpy import save_file

    aside = out / f"{_PROBES}.part"
    save_file(dataclasses.asdict(probes), aside, metadata={"key": key})
    aside.replace(out / _PROBES)


def _read_probes(out: Path | None, key: str) -> Probes | None:
    from safetensors import safe_open

    if out is None or not (out / _PROBES).exists():
        return None
    with _says_what_is_damaged(out / _PROBES), safe_open(out / _PROBES, framework="np") as file:
        if file.metadata()["key"] != key:
            return None
        return Probes(**{name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118


@contextmanager
def _says_what_is_damaged(path: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is damaged and cannot be gone on with: delete it, or --overwrite the run") from error


def _save(fit: SteeringFit, facts: Mapping, out: Path, seconds: float) -> None:
    fit.model.save_pretrained(out / "model")
    fit.encoder.processor.save_pretrained(out / "model")
    report = {"arguments": facts, "seconds": round(seconds, 1), **fit.report()}
    write_json(out / "fit.json", report)
    plot_accuracy(fit.probes, out / "accuracy.png")
    if fit.grid:
        with (out / "grid.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(name for row in fit.grid for name in row)))
            writer.writeheader()
            writer.writerows({**row, "layers": " ".join(map(str, row["layers"]))} for row in fit.grid)
        plot_grid(fit.grid, out / "grid.png")


def plot_accuracy(probes: Probes, path: str | Path) -> None:
    """Draws the held-out accuracy of the probes by layer.

    Args:
        probes (`Probes`): the probes.
        path (`str` or `Path`): picture file to write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.add_subplot()
    layers = range(len(probes.accuracy))
    axes.plot(layers, 100 * probes.accuracy, "o-", color="#0072B2", label="both")
    axes.plot(layers, 100 * probes.affirmative_accuracy, "^:", color="#009E73", label="affirmative")
    axes.plot(layers, 100 * probes.negated_accuracy, "v:", color="#D55E00", label="negated")
    axes.set(xlabel="text layer", ylabel="held-out accuracy (%)", title="Probe of negation")
    axes.set_xticks(list(layers))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)


def plot_grid(grid: Sequence[dict], path: str | Path) -> None:
    """Draws the scores of a grid, strengths against layers, and marks the chosen one.

    Args:
        grid (sequence of `dict`): from [`search`].
        path (`str` or `Path`): picture file to write.
    """
    from matplotlib.figure import Figure

    plain, *rows = grid
    alphas = sorted({row["alpha"] for row in rows})
    spans = sorted({tuple(row["layers"]) for row in rows}, key=lambda span: (len(span), span))
    score = {(row["alpha"], tuple(row["layers"])): 100 * row["score"] for row in rows}
    table = [[score[alpha, span] for alpha in alphas] for span in spans]
    figure = Figure(figsize=(1.8 + 0.8 * max(len(alphas), 3), 1.6 + 0.35 * max(len(spans), 3)), layout="constrained")
    axes = figure.add_subplot()
    figure.colorbar(axes.imshow(table, aspect="auto", cmap="viridis"), label="score (%)")
    best, middle = choose(grid), (max(map(max, table)) + min(map(min, table))) / 2
    for i, span in enumerate(spans):
        for j, alpha in enumerate(alphas):
            chosen = alpha == best["alpha"] and list(span) == best["layers"]
            text = f"{table[i][j]:.1f}"
            place = {"ha": "center", "va": "center", "fontsize": 7, "weight": "bold" if chosen else "normal"}
            colour = "black" if table[i][j] > middle else "white"
            axes.text(j, i, f"[{text}]" if chosen else text, color=colour, **place)
    axes.set_xticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    axes.set_yticks(range(len(spans)), [f"{s[0]}–{s[-1]}" if len(s) > 1 else str(s[0]) for s in spans])
    axes.set(xlabel="α", ylabel="layers", title=f"plain model {100 * plain['score']:.1f} %")
    figure.savefig(path, dpi=150)


def parse(argv: list[str] | None = None):
    """Arguments from `--config file.yaml` and the command line, which wins."""
    from negation_clip.trainers.arguments import parse_arguments
    from negation_clip.trainers.push import PushArguments

    return parse_arguments((SteeringArguments, PushArguments), argv, description=__doc__)


if __name__ == "__main__":
    run_script(parse, main)
