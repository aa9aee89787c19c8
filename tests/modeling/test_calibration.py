"""The feature scale that puts a backbone's features at a given place in the ball."""

from __future__ import annotations

import math

import pytest
import torch
from fixtures_tiny import tiny_clip

from negation_clip.modeling.modeling_hanclip import HanClipModel


def wrapped(**options):
    return HanClipModel.from_backbone(tiny_clip(), **options)


def features_of_norms(norms):
    directions = torch.nn.functional.normalize(
        torch.randn(len(norms), 16, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    return torch.as_tensor(norms, dtype=torch.float32)[:, None] * directions


@pytest.mark.parametrize("curvature", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("radius", [0.3, 0.5, 0.9])
def test_equal_norms_give_the_closed_form(curvature, radius):
    model = wrapped(curvature=curvature)
    scale = model.calibrate_feature_scale(features_of_norms([17.0] * 5), radius)
    assert scale == pytest.approx(math.atanh(radius) / (curvature**0.5 * 17.0), rel=1e-5)
    assert model.geometry.log_feature_scale.item() == pytest.approx(math.log(scale), abs=1e-6)


@pytest.mark.parametrize("norm", [1e-3, 1.0, 17.0, 1e4])
def test_mean_of_the_points_lies_where_it_was_asked_for(norm):
    model = wrapped(curvature=2.0)
    spread = features_of_norms(norm * torch.linspace(0.3, 3, 50))
    model.calibrate_feature_scale(spread)
    assert (2.0**0.5 * model.embed(spread).norm(dim=-1)).mean().item() == pytest.approx(0.5, abs=2e-4)


def test_learned_curvature_counts():
    model = wrapped(curvature=1.0, learn_curvature=True)
    with torch.no_grad():
        model.geometry.log_curvature.fill_(math.log(4.0))
    assert model.calibrate_feature_scale(features_of_norms([3.0])) == pytest.approx(math.atanh(0.5) / 6, rel=1e-5)


def test_scale_is_trainable_and_saved(tmp_path):
    model = wrapped()
    scale = model.calibrate_feature_scale(features_of_norms([5.0, 7.0]))
    assert model.geometry.log_feature_scale.requires_grad
    model.save_pretrained(tmp_path)
    loaded = HanClipModel.from_pretrained(tmp_path)
    assert loaded.geometry.log_feature_scale.exp().item() == pytest.approx(scale, rel=1e-6)


def test_bad_input_is_named():
    model = wrapped()
    for features in (torch.zeros(3, 16), torch.ones(0, 16), torch.full((2, 16), float("nan"))):
        with pytest.raises(ValueError, match="`features` must be vectors of finite norm"):
            model.calibrate_feature_scale(features)
    for radius in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="`radius` .* must be in"):
            model.calibrate_feature_scale(torch.ones(2, 16), radius)
    with pytest.raises(ValueError, match="similarity='poincare'"):
        wrapped(similarity="cosine").calibrate_feature_scale(torch.ones(2, 16))
