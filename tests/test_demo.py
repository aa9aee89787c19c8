"""The demo end to end, in a form of seconds."""

import json

import pytest

from negation_clip.demo import SPLITS, find_recipe, gallery_rows, run_demo, summarise

KEYS = ("base", "hanclip", "compose", "hanclip+compose", "strip", "blind")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "run"
    return out, run_demo(out, recipe="tiny", size=24)


def test_results(demo):
    out, results = demo
    assert json.loads((out / "results.json").read_text("utf-8")) == json.loads(json.dumps(results))
    for key in KEYS:
        assert set(results[key]) == set(SPLITS)
        for found in results[key].values():
            assert {"strict", "positive", "negative", "hybrid", "tie_rate"} <= set(found["mcq"])
            if key != "blind":
                assert {"accuracy"} <= set(found["exclusion"]) and {"accuracy"} <= set(found["zero_shot"])
                assert {"t2i_r1", "i2t_r10", "rsum"} <= set(found["retrieval"]) & set(found["negated_retrieval"])
                assert set(found["radius"]) == {"image", "positive", "negated_positive", "negative"}
    # the base is measured, not the fine-tuned model under its name
    assert results["base"] != results["hanclip"]


def test_model_on_disk_loads_with_auto_model(demo):
    from transformers import AutoModel

    import negation_clip  # noqa: F401

    out, _ = demo
    model = AutoModel.from_pretrained(out / "hanclip" / "model")
    assert model.config.model_type == "hanclip"
    assert (out / "hanclip" / "model" / "model.safetensors").exists()
    assert (out / "hanclip" / "adapter" / "adapter_model.safetensors").exists()


def test_report_and_plots(demo):
    out, _ = demo
    html = (out / "report.html").read_text("utf-8")
    assert "<html" in html and "data:image/png;base64," in html
    for name in ("scores", "training", "radius"):
        assert (out / f"{name}.png").stat().st_size > 1000


def test_an_earlier_run_is_not_mixed(demo):
    out, results = demo
    with pytest.raises(ValueError, match="overwrite"):
        run_demo(out, recipe="tiny", size=24)
    with pytest.raises(ValueError, match="same settings"):
        run_demo(out, recipe="tiny", size=25, resume=True)
    again = run_demo(out, recipe="tiny", size=24, resume=True)
    assert again["hanclip"] == results["hanclip"]


def test_unknown_recipe_names_those_there_are():
    with pytest.raises(ValueError, match="hanclip") as error:
        find_recipe("no-such-recipe")
    assert "phyclip" not in str(error.value) and "steering" not in str(error.value)  # no recipes of this script


def test_summary_is_mean_and_spread():
    def run(value):
        return {
            key: {"test": {"mcq": {"strict": value, "chosen_wrong": {}}}} for key in ("hanclip", "hanclip+compose")
        }

    found = summarise({"0": run(0.5), "1": run(0.7)})["hanclip"]["test"]["mcq.strict"]
    assert found["mean"] == pytest.approx(0.6)
    assert found["std"] == pytest.approx(0.2 / 2**0.5)
    assert found["n"] == 2


def test_gallery_marks_by_truth():
    from negation_clip import Encoder, load_embedded
    from negation_clip.evaluation.world import World

    world, encoder = World.build("test", 200), Encoder(*load_embedded("base"), batch_size=200)
    rows = gallery_rows(world, {"base": encoder}, {"base": world.encode(encoder)})
    assert 1 <= len(rows) <= 8
    for row in rows:
        denied = row["asks"].split(", no ")[1]
        for shown in row["base"]:
            assert shown["right"] == (not shown["why"])
            assert (denied in shown["alt"].split(", ")) == (f"shows {denied}" in shown["why"])


def test_a_wrong_recipe_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "wrong.yaml").write_text("lora_rnk: 4\n", encoding="utf-8")
    (tmp_path / "broken.yaml").write_text("{lora_rank: [", encoding="utf-8")
    for name, message in (("wrong", "lora_rank"), ("broken", "no YAML file")):
        with pytest.raises(ValueError, match=message):
            run_demo(tmp_path / "out", recipe=tmp_path / f"{name}.yaml", size=4)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("seeds", [(), (-1,), (0, 0)])
def test_seeds_that_are_none_are_refused_before_anything_is_done(tmp_path, seeds):
    with pytest.raises(ValueError, match="seeds must be different numbers from 0 on"):
        run_demo(tmp_path / "out", seeds=seeds)
    assert not (tmp_path / "out").exists()
