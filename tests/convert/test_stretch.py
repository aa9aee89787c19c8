"""Stretching a text context: closed forms, unchanged short texts, files that agree, bad input."""

from __future__ import annotations

import pytest
import torch
from fixtures_tiny import tiny_clip, tiny_processor
from transformers import AutoProcessor, AutoTokenizer, CLIPModel

from negation_clip import Encoder, HanClipModel, cli
from negation_clip.convert import stretch_clip, stretch_text_context


def table(model):
    return model.text_model.embeddings.position_embedding.weight


def with_table(rows):
    """A tiny CLIP with these text positions."""
    model = tiny_clip(context=len(rows))
    with torch.no_grad():
        table(model).copy_(rows)
    return model


def test_steps_are_cut_in_four_and_the_last_goes_on():
    """A ramp with a bend at each row tells every weight of the interpolation."""
    rows = torch.arange(77.0) ** 2
    model = with_table(rows[:, None].expand(-1, 32))
    assert stretch_text_context(model) is model
    found = table(model)[:, 0]
    assert len(found) == model.config.text_config.max_position_embeddings == 248
    assert torch.equal(found[:20], rows[:20])
    for row in range(20, 77):
        step = rows[row + 1] - rows[row] if row < 76 else rows[76] - rows[75]
        expected = [rows[row] + j / 4 * step for j in range(4)]
        torch.testing.assert_close(found[20 + 4 * (row - 20) :][:4], torch.stack(expected), atol=0, rtol=1e-7)


@pytest.mark.parametrize(("kept", "length", "parts"), [(20, 44, 2), (20, 56, 3), (8, 80, 3), (1, 125, 4)])
def test_a_straight_line_stays_one(kept, length, parts):
    model = with_table(torch.arange(32.0)[:, None] * torch.linspace(-1, 1, 32))
    stretch_text_context(model, length, kept)
    beyond = kept + torch.arange(length - kept) / parts
    expected = torch.cat([torch.arange(float(kept)), beyond])[:, None] * torch.linspace(-1, 1, 32)
    torch.testing.assert_close(table(model), expected, atol=1e-5, rtol=1e-6)


def test_short_texts_keep_their_features_and_long_ones_have_some():
    before, after = tiny_clip(), stretch_text_context(tiny_clip(), 56)
    end = before.config.text_config.eos_token_id
    ids = torch.randint(1, 500, (3, 56), generator=torch.Generator().manual_seed(0))
    for row, last in enumerate((5, 19, 55)):
        ids[row, last:] = end
    with torch.no_grad():
        short = before.get_text_features(ids[:2, :20]).pooler_output
        found = after.get_text_features(ids).pooler_output
        torch.testing.assert_close(found[:2], short, atol=1e-6, rtol=1e-6)
        ids[2, 40] += 1
        assert (after.get_text_features(ids).pooler_output[2] - found[2]).abs().max() > 1e-3


def test_dtype_and_frozen_state_stay():
    model = tiny_clip().half().requires_grad_(False)
    stretch_text_context(model, 56)
    assert table(model).dtype == torch.float16 and not table(model).requires_grad
    assert table(stretch_text_context(tiny_clip(), 56)).requires_grad


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    tiny_clip().save_pretrained(folder)
    processor = tiny_processor()
    processor.tokenizer("a dog", truncation=True, padding=True)  # leaves a limit in its file
    processor.save_pretrained(folder)
    return folder


def test_config_tokenizer_and_processor_agree(base, tmp_path, capsys):
    arguments = ["convert", "stretch", str(base), str(tmp_path / "out"), "--context-length", "56"]
    assert cli.main(arguments) == 0
    folder = tmp_path / "out"
    assert capsys.readouterr().out.strip() == str(folder)
    model, info = CLIPModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()) and len(table(model)) == 56
    assert torch.equal(table(model), table(stretch_text_context(tiny_clip(), 56)))
    assert model.text_model.embeddings.position_ids.shape == (1, 56)

    caption = "a dog " * 25  # 52 tokens: beyond the old context, within the new one
    for tokenizer in (AutoTokenizer.from_pretrained(folder), AutoProcessor.from_pretrained(folder).tokenizer):
        assert tokenizer.model_max_length == 56
        assert len(tokenizer(caption, truncation=True)["input_ids"]) == 52
        assert len(tokenizer(caption * 2, truncation=True)["input_ids"]) == 56
    encoder = Encoder.from_pretrained(folder)
    assert encoder.max_length == 56
    assert encoder.encode_texts([caption]).shape == (1, 16) and encoder.n_truncated == 0
    hanclip = HanClipModel.from_backbone(folder)
    assert hanclip.config.backbone_config.text_config.max_position_embeddings == 56
    assert cli.main(arguments) == 2
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("length", "kept", "message"),
    [
        (249, 20, "32 positions of which 20 are kept stretch to 44, 56, 68 and so on, not to 249"),
        (32, 20, "stretch to 44, 56, 68 and so on, not to 32"),
        (12, 20, "not to 12"),
        (56, 0, "kept must be from 1 to 30 of the 32 positions, got 0"),
        (56, 31, "kept must be from 1 to 30 of the 32 positions, got 31"),
    ],
)
def test_length_that_does_not_come_out_is_named(base, tmp_path, length, kept, message):
    model = tiny_clip()
    with pytest.raises(ValueError, match=message):
        stretch_text_context(model, length, kept)
    assert len(table(model)) == model.config.text_config.max_position_embeddings == 32
    with pytest.raises(ValueError, match=message):
        stretch_clip(base, tmp_path / "out", context_length=length, kept=kept)
    assert list(tmp_path.iterdir()) == []


def test_another_model_is_refused(tmp_path):
    model = HanClipModel.from_backbone(tiny_clip())
    with pytest.raises(TypeError, match="takes a CLIPModel, got HanClipModel"):
        stretch_text_context(model)
    model.save_pretrained(tmp_path / "hanclip")
    with pytest.raises(ValueError, match="is a hanclip: only the text context of a CLIP"):
        stretch_clip(tmp_path / "hanclip", tmp_path / "out")
