"""Conversion of MERU, HyCoCLIP and PHyCLIP checkpoints: a forward of the published description, files, bad input."""

from __future__ import annotations

import json
import logging
import math
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fixtures_phyclip_literal import expmap0, literal_objective, pairwise_inner, pairwise_product_distance, to_points
from fixtures_tiny import tiny_tokenizer
from huggingface_hub import ModelCard
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoImageProcessor, AutoModel, AutoProcessor

from negation_clip import Encoder, cli
from negation_clip.cards import model_card
from negation_clip.convert import convert_lorentz
from negation_clip.convert.lorentz import (
    DEAD_SCALARS,
    IGNORED_KEYS,
    PRESETS,
    _Architecture,
    _heads,
    convert_state_dict,
    load_checkpoint,
)

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
WIDTH, PATCH, GRID, LAYERS, TEXT_WIDTH, CONTEXT, PROJECTION = 24, 4, 3, 2, 32, 12, 32
VOCABULARY = len(tiny_tokenizer())
HEADS = {"heads": 3, "text_heads": 2}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def checkpoint(family="meru", factors=4, vocabulary=VOCABULARY, seed=0):
    """A state dict of the published layout, every tensor random and of a size that shows."""
    generator = torch.Generator().manual_seed(seed)

    def rand(*shape, std=0.1, mean=0.0):
        return mean + std * torch.randn(shape, generator=generator)

    state = {"logit_scale": rand(mean=2.7), "curv": rand(), "visual_alpha": rand(mean=-1.5)}
    state["textual_alpha"] = rand(mean=-1.5)
    state["pixel_mean"] = torch.tensor(STD if family == "hycoclip" else MEAN).view(3, 1, 1)  # a bug of theirs
    state["pixel_std"] = torch.tensor(STD).view(3, 1, 1)

    def norm(name, width):
        state[f"{name}.weight"], state[f"{name}.bias"] = rand(width, mean=1), rand(width)

    def linear(name, rows, columns, joint="."):
        state[f"{name}{joint}weight"], state[f"{name}{joint}bias"] = rand(rows, columns, std=columns**-0.5), rand(rows)

    state["visual.cls_token"] = rand(1, 1, WIDTH, std=1)
    state["visual.pos_embed"] = rand(1, GRID**2 + 1, WIDTH, std=1)
    state["visual.patch_embed.proj.weight"] = rand(WIDTH, 3, PATCH, PATCH, std=0.2)
    state["visual.patch_embed.proj.bias"] = rand(WIDTH)
    for i in range(LAYERS):
        block = f"visual.blocks.{i}"
        norm(f"{block}.norm1", WIDTH)
        linear(f"{block}.attn.qkv", 3 * WIDTH, WIDTH)
        linear(f"{block}.attn.proj", WIDTH, WIDTH)
        norm(f"{block}.norm2", WIDTH)
        linear(f"{block}.mlp.fc1", 4 * WIDTH, WIDTH)
        linear(f"{block}.mlp.fc2", WIDTH, 4 * WIDTH)
    norm("visual.norm", WIDTH)
    state["textual.posit_embed"] = rand(CONTEXT, TEXT_WIDTH, std=1)
    state["textual.attn_mask"] = torch.ones(CONTEXT, CONTEXT).triu(1).bool()
    state["textual.token_embed.weight"] = rand(vocabulary, TEXT_WIDTH, std=1)
    for i in range(LAYERS):
        block = f"textual.resblocks.{i}"
        linear(f"{block}.attn.in_proj", 3 * TEXT_WIDTH, TEXT_WIDTH, joint="_")
        linear(f"{block}.attn.out_proj", TEXT_WIDTH, TEXT_WIDTH)
        norm(f"{block}.ln_1", TEXT_WIDTH)
        linear(f"{block}.mlp.c_fc", 4 * TEXT_WIDTH, TEXT_WIDTH)
        linear(f"{block}.mlp.c_proj", TEXT_WIDTH, 4 * TEXT_WIDTH)
        norm(f"{block}.ln_2", TEXT_WIDTH)
    norm("textual.ln_final", TEXT_WIDTH)
    state["visual_proj.weight"] = rand(PROJECTION, WIDTH, std=WIDTH**-0.5)
    state["textual_proj.weight"] = rand(PROJECTION, TEXT_WIDTH, std=TEXT_WIDTH**-0.5)
    if family == "phyclip":
        for name, mean in (("curvs", 0), ("visual_concept_alphas", -1), ("textual_concept_alphas", -1)):
            for i in range(factors):
                state[f"{name}.{i}"] = rand(std=0.5, mean=mean).clamp_max(0 if mean else 9)
    return state


def attention(x, weight, bias, heads, causal):
    n, length, width = x.shape
    q, k, v = (x @ weight.T + bias).reshape(n, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-1, -2) / math.sqrt(width // heads)
    if causal:
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
    return (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(n, length, width)


class Published:
    """The published description, written out: raw features, points, scores and loss of a state dict, in float64."""

    def __init__(self, state, heads, text_heads, boxes):
        self.p = {name: value.double() for name, value in state.items()}
        self.heads, self.text_heads, self.boxes = heads, text_heads, boxes
        lists = ("curvs", "visual_concept_alphas", "textual_concept_alphas")
        found = [[value for key, value in self.p.items() if key.startswith(f"{name}.")] for name in lists]
        scalars = found if found[0] else [[self.p[name]] for name in DEAD_SCALARS]
        self.log_curv, self.image_alpha, self.text_alpha = map(torch.stack, scalars)
        self.c, self.scale = self.log_curv.exp(), self.p["logit_scale"].exp()

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.p[f"{name}.weight"], self.p[f"{name}.bias"], eps=1e-5)

    def linear(self, x, name):
        return x @ self.p[f"{name}.weight"].T + self.p[f"{name}.bias"]

    def image(self, pictures):
        """Raw features of `(B, 3, H, W)` in [0, 1]."""
        p = self.p
        x = (pictures.double() - p["pixel_mean"]) / p["pixel_std"]
        weight = p["visual.patch_embed.proj.weight"]
        x = F.conv2d(x, weight, p["visual.patch_embed.proj.bias"], stride=weight.shape[-1]).flatten(2).transpose(1, 2)
        x = torch.cat([p["visual.cls_token"].expand(len(x), -1, -1), x], dim=1) + p["visual.pos_embed"]
        for i in range(LAYERS):
            block = f"visual.blocks.{i}"
            qkv = (p[f"{block}.attn.qkv.weight"], p[f"{block}.attn.qkv.bias"])
            x = x + self.linear(
                attention(self.norm(x, f"{block}.norm1"), *qkv, self.heads, False), f"{block}.attn.proj"
            )
            hidden = F.gelu(self.linear(self.norm(x, f"{block}.norm2"), f"{block}.mlp.fc1"))
            x = x + self.linear(hidden, f"{block}.mlp.fc2")
        return self.norm(x, "visual.norm")[:, 0] @ p["visual_proj.weight"].T

    def text(self, ids):
        """Raw features of `(B, L)`, padded with 0 and pooled at the largest id."""
        p = self.p
        x = p["textual.token_embed.weight"][ids] + p["textual.posit_embed"][: ids.shape[1]]
        for i in range(LAYERS):
            block = f"textual.resblocks.{i}"
            qkv = (p[f"{block}.attn.in_proj_weight"], p[f"{block}.attn.in_proj_bias"])
            x = x + self.linear(
                attention(self.norm(x, f"{block}.ln_1"), *qkv, self.text_heads, True), f"{block}.attn.out_proj"
            )
            x = x + self.linear(
                F.gelu(self.linear(self.norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc")), f"{block}.mlp.c_proj"
            )
        x = self.norm(x, "textual.ln_final")
        return x[torch.arange(len(x)), ids.argmax(dim=1)] @ p["textual_proj.weight"].T

    def points(self, features, alpha):
        return to_points(features, alpha, self.c, expmap0)


def pictures(n, size=GRID * PATCH, seed=0):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(seed))


def padded(lengths, vocabulary=VOCABULARY, seed=0):
    ids = torch.zeros(len(lengths), CONTEXT, dtype=torch.int64)
    for row, length in enumerate(lengths):
        words = torch.randint(1, vocabulary - 2, (length,), generator=torch.Generator().manual_seed(seed + row))
        ids[row, :length] = words
        ids[row, 0], ids[row, length - 1] = vocabulary - 2, vocabulary - 1
    return ids


def normalised(images, processor):
    mean, std = (torch.tensor(values, dtype=torch.float64).view(3, 1, 1) for values in processor)
    return (images.double() - mean) / std


def save(state, path):
    if path.suffix == ".safetensors":
        save_file({name: value.contiguous() for name, value in state.items()}, path)
    elif path.stem == "bare":
        torch.save(state, path)
    else:
        optimizer = {"state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 1}]}
        torch.save({"model": state, "optimizer": optimizer, "scheduler": {"last_epoch": 3}, "iteration": 3}, path)
    return path


OPTIONS = {"meru": {"family": "meru"}, "hycoclip": {"family": "hycoclip"}, "phyclip": {}}


# --- the numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", OPTIONS)
def test_converted_model_computes_what_is_published(tmp_path, family):
    state = checkpoint(family)
    suffix = {"meru": "checkpoint_final.pth", "hycoclip": "bare.pth", "phyclip": "model.safetensors"}[family]
    folder = convert_lorentz(save(state, tmp_path / suffix), tmp_path / "out", **HEADS, **OPTIONS[family])
    model, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values())
    config = model.config
    assert config.num_factors == (4 if family == "phyclip" else 1) and config.projection_dim == PROJECTION
    assert (config.box_targets, config.margin_inter) == ("full", 1 if family == "meru" else 0.7)
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    pixel = (processor.image_mean, processor.image_std)

    published = Published(state, **HEADS, boxes=family != "meru")
    images, texts = pictures(3), padded([4, 2, CONTEXT, 7])
    features = published.image(images), published.text(texts)
    points = published.points(features[0], published.image_alpha), published.points(features[1], published.text_alpha)
    distance = pairwise_product_distance(*points, published.c)
    inner = pairwise_inner(*points, published.c).sum(dim=0)

    for dtype, atol in ((torch.float32, 2e-5), (torch.float64, 1e-12)):
        model = model.to(dtype)
        with torch.no_grad():
            pixel_values = normalised(images, pixel).to(dtype)
            output = model(input_ids=texts, pixel_values=pixel_values)
            found = {
                "image features": (model.get_image_features(pixel_values).pooler_output, features[0]),
                "text features": (model.get_text_features(texts).pooler_output, features[1]),
                "image points": (output.image_embeds, points[0].flatten(1)),
                "text points": (output.text_embeds, points[1].flatten(1)),
                "logits": (output.logits_per_image, -published.scale * distance),
                "inner": (model.similarity(output.image_embeds, output.text_embeds, "inner"), inner),
            }
        for name, (ours, theirs) in found.items():
            # the literal distance has a guard of 1e-8 in it
            bound = max(atol, 1e-8) if name == "logits" else atol
            torch.testing.assert_close(
                ours.double(), theirs, atol=bound, rtol=bound, msg=lambda m, n=name: f"{n}: {m}"
            )

    boxes = {}
    if published.boxes:
        crops, phrases = pictures(3, seed=9), padded([3, 5, 4], seed=9)
        boxes = {"box_pixel_values": normalised(crops, pixel), "box_input_ids": phrases}
        points += (published.points(published.image(crops), published.image_alpha),)
        points += (published.points(published.text(phrases), published.text_alpha),)
    points = [points[0], points[1][:3], *points[2:]]
    expected, _ = literal_objective(
        *points, logit_scale=published.scale, c=published.c, margin_inter=1.0 if family == "meru" else 0.7
    )
    loss = model(input_ids=texts[:3], pixel_values=normalised(images, pixel), **boxes, return_loss=True).loss
    torch.testing.assert_close(loss, expected, atol=1e-7, rtol=1e-7)


@pytest.mark.skipif(not (GOLDEN / "model_meru_io.npz").exists(), reason="reference outputs are not at hand")
def test_meru_reference_outputs_are_reproduced(tmp_path):
    data = np.load(GOLDEN / "model_meru_io.npz")
    folder = convert_lorentz(GOLDEN / "model_meru.safetensors", tmp_path / "out", family="meru", heads=3)
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    model = AutoModel.from_pretrained(folder)
    # They cut what is longer than the context and put the end token last.
    texts = torch.zeros(6, 16, dtype=torch.int64)
    for row, length in enumerate(data["in.token_lengths"]):
        kept = min(length, 16)
        texts[row, :kept] = torch.from_numpy(data["in.tokens"][row, :kept])
        texts[row, kept - 1] = 99
    images = normalised(torch.from_numpy(data["in.images"]), (processor.image_mean, processor.image_std))
    for kind, dtype, bound in (("f32", torch.float32, 1e-5), ("f64", torch.float64, 1e-8)):
        model = model.to(dtype)
        with torch.no_grad():
            output = model(input_ids=texts, pixel_values=images.to(dtype))
            found = {
                "image.project0": model.get_image_features(images.to(dtype)).pooler_output,
                "text.project0": model.get_text_features(texts).pooler_output,
                "image.project1": output.image_embeds,
                "text.project1": output.text_embeds,
                "logits": output.logits_per_image,
                "eval_similarity": model.similarity(output.image_embeds, output.text_embeds, "inner"),
            }
        for name, value in found.items():
            expected = torch.from_numpy(data[f"{kind}.{name}"])
            torch.testing.assert_close(value, expected, atol=bound, rtol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
    output = model(input_ids=texts[:5], pixel_values=images, return_loss=True)
    output.loss.backward()
    for name, value in (
        ("loss", output.loss.detach()),
        ("contrastive_loss", output.loss_terms["contrastive"]),
        ("entailment_loss", output.loss_terms["entailment"]),
        ("logit_scale", model.logit_scale.detach().exp()),
        ("curv", model.curvatures[0].detach()),
    ):
        assert value.item() == pytest.approx(data[f"f64.forward.{name}"].item(), rel=1e-7), name
    norms = json.loads((GOLDEN / "models_meta.json").read_text("utf-8"))["models"]["meru"]["grad_norms_f64"]
    for theirs, ours in (
        ("visual_proj.weight", "visual_projection.weight"),
        ("textual.token_embed.weight", "text_model.embeddings.token_embedding.weight"),
        ("visual.cls_token", "vision_model.embeddings.cls_token"),
        ("curv", "geometry.log_curvatures"),
        ("visual_alpha", "geometry.log_image_scales"),
        ("textual_alpha", "geometry.log_text_scales"),
        ("logit_scale", "geometry.logit_scale"),
    ):
        assert model.get_parameter(ours).grad.norm().item() == pytest.approx(norms[theirs], rel=1e-5), theirs


def test_what_is_ignored_is_listed_and_takes_no_part():
    state = checkpoint("phyclip")
    weights, facts, ignored = convert_state_dict(state)
    assert set(ignored) == {*IGNORED_KEYS, *DEAD_SCALARS}
    changed = {**state, **{name: torch.tensor(7.0) for name in DEAD_SCALARS}}
    again, _, _ = convert_state_dict(changed)
    assert weights.keys() == again.keys() and all(torch.equal(weights[name], again[name]) for name in weights)
    for name in (*DEAD_SCALARS, "textual.attn_mask"):
        del changed[name]
    assert convert_state_dict(changed)[2] == ["pixel_mean", "pixel_std"]
    assert set(convert_state_dict(checkpoint("meru"))[2]) == set(IGNORED_KEYS)
    a = facts["architecture"]
    assert (a.width, a.layers, a.patch, a.grid, a.context, a.vocabulary, a.factors) == (
        *(WIDTH, LAYERS, PATCH, GRID, CONTEXT, VOCABULARY),
        4,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_checkpoints_of_any_precision_become_float32(dtype):
    state = {name: value.to(dtype) if value.is_floating_point() else value for name, value in checkpoint().items()}
    weights, facts, _ = convert_state_dict(state)
    assert {value.dtype for value in weights.values()} == {torch.float32}
    assert torch.equal(weights["visual_projection.weight"], state["visual_proj.weight"].float())
    assert facts["pixel_mean"] == state["pixel_mean"].flatten().tolist()


def published_architecture(preset, **changes):
    p = PRESETS[preset]
    known = {"width": p.width, "mlp": 4 * p.width, "layers": p.layers, "patch": 16, "grid": 14, "text_width": 512}
    known |= {"text_mlp": 2048, "text_layers": 12, "context": 77, "vocabulary": 49408, "projection": 512}
    return _Architecture(**{**known, "factors": None, **changes})


@pytest.mark.parametrize(("preset", "heads"), [("vit-s", 12), ("vit-b", 12), ("vit-l", 16)])
def test_presets_know_the_published_heads(preset, heads):
    architecture = published_architecture(preset)
    assert _heads(architecture, preset, None, None) == (heads, 8)
    with pytest.raises(ValueError, match=f"give --heads, or --preset {preset}, whose shapes these are"):
        _heads(architecture, None, None, None)
    with pytest.raises(ValueError, match=f"is no {preset}: it has {{'layers': 7}}"):
        _heads(published_architecture(preset, layers=7), preset, None, None)
    with pytest.raises(ValueError, match="heads=6 contradicts the preset"):
        _heads(architecture, preset, 6, None)


# --- the folder ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """A HyCoCLIP with tokenizer, whose evaluation is the published one."""
    folder = tmp_path_factory.mktemp("converted")
    tiny_tokenizer(77).save_pretrained(folder / "tokenizer")
    path = save(checkpoint("hycoclip"), folder / "hycoclip_vit_tiny.pth")
    options = {"tokenizer": folder / "tokenizer", "score": "inner", **HEADS}
    return convert_lorentz(path, folder / "deep" / "out", family="hycoclip", **options)


def test_folder_is_complete_and_nothing_is_left_beside_it(converted):
    names = {path.name for path in converted.iterdir()}
    assert {"config.json", "model.safetensors", "README.md", "tokenizer.json", "modeling_phyclip.py"} <= names
    assert [path.name for path in converted.parent.iterdir()] == ["out"]
    assert {value.dtype for value in load_file(converted / "model.safetensors").values()} == {torch.float32}


def test_pictures_are_squeezed_to_a_square_and_normalised_by_the_checkpoint(converted):
    processor = AutoProcessor.from_pretrained(converted, backend="pil")
    noise = np.random.default_rng(0).integers(0, 256, (20, 40, 3), dtype=np.uint8)
    picture = Image.fromarray(noise)
    found = processor(images=[picture], return_tensors="pt")["pixel_values"][0]
    squeezed = np.asarray(picture.resize((GRID * PATCH, GRID * PATCH), Image.Resampling.BICUBIC), dtype=np.float32)
    expected = (squeezed / 255 - np.float32(STD)) / np.float32(STD)  # the mean is the wrong one that is stored
    np.testing.assert_allclose(found, expected.transpose(2, 0, 1), atol=1e-5)


def test_encoder_reads_the_folder_and_pools_at_the_end_token(converted):
    encoder = Encoder.from_pretrained(converted)
    assert encoder.max_length == CONTEXT and encoder.model.config.score == "inner"
    texts = ["a dog", "a dog next to a tree on a table with a bus and an owl and a cat"]
    found = encoder.encode_texts(texts)
    tokens = encoder.processor.tokenizer(texts, truncation=True, max_length=CONTEXT)["input_ids"]
    assert len(tokens[1]) == CONTEXT and tokens[1][-1] == VOCABULARY - 1
    ids = torch.zeros(2, CONTEXT, dtype=torch.int64)
    for row, values in enumerate(tokens):
        ids[row, : len(values)] = torch.tensor(values)
    published = Published(checkpoint("hycoclip"), **HEADS, boxes=True)
    np.testing.assert_allclose(found, published.text(ids), atol=2e-5)
    scores = encoder.similarity(encoder.encode_images([Image.new("RGB", (9, 5), "orange")]), found)
    assert scores.shape == (1, 2) and np.isfinite(scores).all()


def test_card_says_whence_it_comes_and_under_which_licence(converted):
    card = ModelCard.load(converted / "README.md")
    assert card.data.license == "cc-by-nc-4.0" and card.data.library_name == "transformers"
    for text in ("HyCoCLIP", "hycoclip_vit_tiny.pth", "CC BY-NC 4.0", "(0.229, 0.224, 0.225)", "`textual.attn_mask`"):
        assert text in card.text
    assert 'score="inner"' in card.text and "no tokenizer" not in card.text


@pytest.mark.parametrize("pushed", [False, True])
def test_code_in_the_card_ranks_as_the_model_does(converted, pushed):
    """Hyperbolic points are no features, and no cosine compares them; also in the card that a push writes."""
    card = model_card(converted, "someone/out") if pushed else ModelCard.load(converted / "README.md")
    name = "someone/out" if pushed else "out"
    code = "\n".join(re.findall(r"```python\n(.*?)```", card.text, re.S))
    assert f'"{name}"' in code
    scope: dict = {}
    exec(compile(code.replace(f'"{name}"', repr(str(converted))), "card", "exec"), scope)
    model, processor = scope["model"], scope["processor"]
    inputs = processor(text=["a kitchen without a fridge"], images=scope["images"], return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).logits_per_image[:, 0] / model.logit_scale.exp()
    torch.testing.assert_close(scope["scores"], expected)


def test_without_a_tokenizer_the_card_says_so(tmp_path, caplog):
    path = save(checkpoint("phyclip"), tmp_path / "model.pth")
    with caplog.at_level(logging.WARNING):
        folder = convert_lorentz(path, tmp_path / "out", **HEADS)
    assert "no tokenizer was given" in caplog.text
    card = ModelCard.load(folder / "README.md").text
    assert "There is no tokenizer in this folder" in card and f"end token {VOCABULARY - 1}" in card
    assert not list(folder.glob("tokenizer*"))
    assert AutoImageProcessor.from_pretrained(folder, backend="pil").size == {"height": 12, "width": 12}


def test_tokenizer_is_clips_where_the_vocabulary_is(tmp_path):
    path = save(checkpoint("phyclip", vocabulary=49408), tmp_path / "model.pth")
    folder = convert_lorentz(path, tmp_path / "out", **HEADS)
    tokenizer = AutoProcessor.from_pretrained(folder, backend="pil").tokenizer
    assert tokenizer("a photo of a cat")["input_ids"] == [49406, 320, 1125, 539, 320, 2368, 49407]
    assert tokenizer.model_max_length == CONTEXT
    assert "no tokenizer" not in ModelCard.load(folder / "README.md").text


def test_command_line_converts(tmp_path, capsys):
    path = save(checkpoint("phyclip"), tmp_path / "model.pth")
    arguments = ["convert", "lorentz", str(path), str(tmp_path / "out"), "--heads", "3", "--text-heads", "2"]
    assert cli.main([*arguments, "--score", "inner", "--product", "l2"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))
    assert (config["score"], config["product"], config["vision_config"]["num_attention_heads"]) == ("inner", "l2", 3)
    assert cli.main(arguments) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("trust", [False, True])
def test_folder_loads_in_a_fresh_process(converted, trust):
    first = "sys.modules['negation_clip'] = None" if trust else "import negation_clip"
    code = f"import sys\n{first}\nfrom transformers import AutoModel\n"
    code += f"print(type(AutoModel.from_pretrained(sys.argv[1], trust_remote_code={trust})).__name__)"
    done = subprocess.run([sys.executable, "-c", code, converted], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["PhyClipModel"]


# --- bad input -----------------------------------------------------------------------------------------------------


class Payload:
    """Unpickling it with code allowed writes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("protocol", ["zip", "legacy", "pickle"])
def test_code_in_a_pickle_is_refused_and_not_run(tmp_path, protocol):
    path, evil = tmp_path / "model.pth", tmp_path / "evil"
    content = {"model": checkpoint(), "note": Payload(evil)}
    if protocol == "pickle":
        path.write_bytes(pickle.dumps({"model": {}, "note": Payload(evil)}))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=protocol == "zip")
    with pytest.raises(ValueError, match=r"model\.pth holds .* can run any code while it is read.*torch\.save"):
        convert_lorentz(path, tmp_path / "out", family="meru", **HEADS)
    assert not evil.exists() and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.pth", b"", r"model\.pth is empty"),
        ("model.safetensors", b"", r"model\.safetensors is empty"),
        ("model.pth", b"<html>", r"is no torch checkpoint: such files do not begin with b'<htm'"),
        ("model.pth", b"PK\x03\x04 and no more", "damaged torch checkpoint: it breaks off before the end of its zip"),
        ("model.pth", b"\x80\x02 and no more", "is no torch checkpoint, or a damaged one|or is damaged"),
        ("model.safetensors", b"none", "is no safetensors file, or a damaged one"),
        ("model.pth", [1, 2], "holds list, not a state dict"),
        ("model.pth", {}, "holds an empty dict, not a state dict"),
        ("model.pth", {"model": [torch.ones(1)]}, "holds list, not a state dict"),
        ("model.pth", {"state_dict": {"a": torch.ones(1)}}, "'state_dict' is dict, not a tensor"),
        ("model.pth", {"model": {"a": 3}}, "no state dict under 'model': 'a' is int"),
    ],
)
def test_file_that_is_no_checkpoint_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(ValueError, match=message) as error:
        load_checkpoint(path)
    assert str(path) in str(error.value)


def test_truncated_checkpoint_is_named(tmp_path):
    path = save(checkpoint(), tmp_path / "model.pth")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ValueError, match="damaged torch checkpoint: it breaks off") as error:
        load_checkpoint(path)
    assert "pickle" not in str(error.value)


@pytest.mark.parametrize("wrapper", ["model", "state_dict", "model_state_dict", None])
def test_names_and_places_that_training_gives_are_known(tmp_path, wrapper):
    state = {f"module._orig_mod.{name}": value for name, value in checkpoint("phyclip").items()}
    path = tmp_path / "model.pth"
    torch.save({wrapper: state, "epoch": 3} if wrapper else state, path)
    folder = convert_lorentz(path, tmp_path / "out", **HEADS)
    expected = convert_state_dict(checkpoint("phyclip"))[0]
    found = load_file(folder / "model.safetensors")
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def without(*prefixes):
    def change(state):
        return {name: value for name, value in state.items() if not name.startswith(prefixes)}

    return change


def replaced(name, value):
    return lambda state: {**state, name: value(state.get(name)) if callable(value) else value}


BROKEN = {
    "open_clip": (lambda state: {"visual.conv1.weight": torch.ones(2)}, r"no key 'visual\.patch_embed\.proj\.weight'"),
    "missing": (without("visual.blocks.1.mlp.fc2.bias"), r"no key 'visual\.blocks\.1\.mlp\.fc2\.bias'"),
    "gap": (without("textual.resblocks.0."), r"no key 'textual\.resblocks\.0"),
    "no mean": (without("pixel_mean"), r"no key 'pixel_mean', though \d+ of \d+ keys are those of a MERU, HyCo"),
    "no curvature": (
        without("curv", "visual_concept", "textual_concept"),
        "no curvature, neither 'curv' nor 'curvs.0'",
    ),
    "no third factor": (without("curvs.2"), r"of 'curvs\.N' there are numbers \[0, 1, 3\], and \[2\] are missing"),
    "fewer scales": (without("textual_concept_alphas.3"), "'curvs': 4, .*'textual_concept_alphas': 3"),
    "extra": (replaced("visual.head.weight", torch.ones(3)), r"unexpected keys visual\.head\.weight"),
    "shape": (replaced("visual.norm.weight", torch.ones(7)), r"'visual\.norm\.weight' has shape \(7,\).*\(24,\)"),
    "axes": (replaced("textual.posit_embed", torch.ones(7)), r"'textual\.posit_embed' has shape \(7,\).* 2 axes"),
    "nan": (replaced("textual.ln_final.bias", lambda x: x * torch.nan), r"'textual\.ln_final\.bias' .* not finite"),
    "curvature": (
        replaced("curvs.1", torch.tensor(200.0)),
        r"'curvs\.1' is 200, the logarithm of a number that float",
    ),
    "scale": (
        replaced("textual_concept_alphas.0", torch.tensor(-1e3)),
        r"'textual_concept_alphas\.0' is -1000, the log",
    ),
    "temperature": (replaced("logit_scale", torch.tensor(99.0)), "'logit_scale' is 99, the logarithm of a number"),
    "grid": (replaced("visual.pos_embed", torch.ones(1, 9, WIDTH)), "a class token and 8 patches.*no square grid"),
    "patches": (replaced("visual.patch_embed.proj.weight", torch.ones(24, 3, 4, 2)), "patches of 4x2 pixels"),
    "mask": (replaced("textual.attn_mask", lambda x: ~x), "'textual.attn_mask' is not causal"),
    "deviation": (replaced("pixel_std", lambda x: x * 0), "'pixel_std' must be positive"),
    "quantised": (
        replaced("visual_proj.weight", lambda x: (100 * x).to(torch.int8)),
        r"'visual_proj\.weight' is a strided tensor of int8: weights must be dense floating-point numbers",
    ),
    "complex": (replaced("curvs.2", torch.tensor(0.1j)), r"'curvs\.2' is a strided tensor of complex64"),
    "sparse": (
        replaced("visual.norm.weight", lambda x: x.to_sparse()),
        r"'visual\.norm\.weight' is a sparse_coo tensor of float32",
    ),
    "no storage": (
        replaced("textual.ln_final.bias", lambda x: x.to("meta")),
        r"'textual\.ln_final\.bias' is a meta strided tensor of float32",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_other_layout_is_an_error_that_says_where(tmp_path, name):
    change, message = BROKEN[name]
    path = save(change(checkpoint("phyclip")), tmp_path / "model.pth")
    with pytest.raises(ValueError, match=message) as error:
        convert_lorentz(path, tmp_path / "out", **HEADS)
    assert str(path) in str(error.value)
    assert [found.name for found in tmp_path.iterdir()] == ["model.pth"]


def test_projection_that_the_factors_do_not_divide_is_named():
    with pytest.raises(ValueError, match=r"projects to 32 features, which 3 factors \('curvs\.\*'\) do not divide"):
        convert_state_dict(checkpoint("phyclip", factors=3))


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("meru", {}, "give --family meru or --family hycoclip"),
        ("meru", {"family": "phyclip"}, "one curvature 'curv'.*is no PHyCLIP"),
        ("phyclip", {"family": "meru"}, r"has 4 factors \('curvs\.\*'\) and is no meru"),
        ("phyclip", {"family": "clip"}, "unknown family 'clip'"),
        ("phyclip", {"heads": None}, r"heads of the image tower \(width 24, 2 layers\) cannot be read.*give --heads"),
        ("phyclip", {"heads": 5}, "heads=5 does not divide the width 24"),
        ("phyclip", {"text_heads": None}, "width 32, which heads of 64 do not divide: give --text-heads"),
        ("phyclip", {"preset": "vit-b"}, "is no vit-b: it has {'width': 24, .*the preset {'width': 768"),
        ("phyclip", {"preset": "vit-h"}, "unknown preset 'vit-h'"),
        ("phyclip", {"score": "cosine"}, "score must be 'distance' or 'inner', got 'cosine'"),
        ("phyclip", {"tokenizer": "."}, "'.*' holds no tokenizer that can be read"),
        ("phyclip", {"tokenizer": "other"}, r"has \d+ tokens, start token \d+ and end token \d+; the .*needs 700"),
    ],
)
def test_options_that_do_not_fit_are_named_and_nothing_is_written(tmp_path, family, options, message):
    vocabulary = 700 if options.get("tokenizer") else VOCABULARY
    path = save(checkpoint(family, vocabulary=vocabulary), tmp_path / "model.pth")
    tiny_tokenizer().save_pretrained(tmp_path / "other")
    if "tokenizer" in options:
        options = {"tokenizer": tmp_path / options["tokenizer"]}
    with pytest.raises(ValueError, match=message):
        convert_lorentz(path, tmp_path / "out", **{**HEADS, **options})
    assert sorted(found.name for found in tmp_path.iterdir()) == ["model.pth", "other"]


def test_folder_that_exists_is_refused_and_left_alone(tmp_path):
    path = save(checkpoint("phyclip"), tmp_path / "model.pth")
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError, match="out exists already: name a new folder"):
        convert_lorentz(path, tmp_path / "out", **HEADS)
    assert list((tmp_path / "out").iterdir()) == []
    for name in ("model.pth/out", "model.pth/new/out"):
        with pytest.raises(FileExistsError, match=r"out would lie below the file .*model\.pth: name a new folder"):
            convert_lorentz(path, tmp_path / name, **HEADS)
    with pytest.raises(FileNotFoundError, match="no such checkpoint file"):
        convert_lorentz(tmp_path / "none.pth", tmp_path / "new", **HEADS)


def test_nothing_half_written_is_left_when_writing_fails(tmp_path, monkeypatch):
    path = save(checkpoint("phyclip"), tmp_path / "model.pth")

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(ModelCard, "save", full)
    with pytest.raises(OSError, match="no space left"):
        convert_lorentz(path, tmp_path / "out", **HEADS)
    assert [found.name for found in tmp_path.iterdir()] == ["model.pth"]
