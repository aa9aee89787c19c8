"""Publishing: what goes and what stays, against a server that speaks the Hub's protocol, and loading it back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fixtures_hub import TOKEN, hub_of_this_process
from fixtures_tiny import tiny_clip, tiny_processor
from huggingface_hub import ModelCard
from huggingface_hub.errors import HfHubHTTPError
from safetensors.torch import load_file, save_file

from negation_clip import HanClipModel, PhyClipConfig, PhyClipModel, cli
from negation_clip.cards import CONVERTED
from negation_clip.hub import find_model, plan_push, push, shorten_paths
from negation_clip.trainers.lora import add_lora

HANCLIP_FILES = {
    "README.md",
    "config.json",
    "model.safetensors",
    "configuration_hanclip.py",
    "modeling_hanclip.py",
    "backbone_families.py",
    "objectives.py",
    "poincare.py",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
}
LOG = {"arguments": {"model": "base", "dataset": "scenes", "lora_rank": 4, "overwrite": False}, "steps": 3, "log": []}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What a training leaves: adapter, merged model, log, and much that must not go."""
    run = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    model = add_lora(HanClipModel.from_backbone(tiny_clip()), rank=4)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(run / "adapter")
    merged = model.merge_and_unload()
    merged.config.backbone_config._name_or_path = "/home/someone/models/secret-project"
    merged.save_pretrained(run / "model")
    tiny_processor().save_pretrained(run / "model")
    (run / "training_log.json").write_text(json.dumps(LOG))
    (run / "training.png").write_bytes(b"\x89PNG not really")
    (run / "checkpoint-3").mkdir()
    (run / "checkpoint-3" / "optimizer.pt").write_bytes(b"large")
    for stray in (
        "training_args.bin",
        "notes.txt",
        "model/training_args.bin",
        "model/pytorch_model.bin",
        "model/.env",
    ):
        (run / stray).write_bytes(b"must stay")
    return run


@pytest.fixture
def run(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def hub(monkeypatch):
    with hub_of_this_process(monkeypatch) as server:
        yield server


def files(server, repo: str, kind: str = "model") -> dict[str, bytes]:
    return server.repos[kind, repo].files


# --- what goes ------------------------------------------------------------------------------------------------------


def test_a_plan_holds_the_model_its_code_and_the_card_and_nothing_else(run):
    plan = plan_push(run, "someone/hanclip-tiny")
    assert set(plan.files) == HANCLIP_FILES | {"training.png"}
    assert plan.form == "merged" and plan.card_error is None and plan.url is None
    assert plan.sizes["model.safetensors"] == (run / "model" / "model.safetensors").stat().st_size
    assert "nothing was sent" in str(plan) and "model.safetensors" in str(plan)


def test_an_adapter_goes_without_the_model(run):
    plan = plan_push(run, "someone/hanclip-tiny-lora", "adapter")
    assert set(plan.files) == {"README.md", "adapter_config.json", "adapter_model.safetensors", "training.png"}
    # the card that peft writes is a form to fill in
    assert "More Information Needed" not in plan.files["README.md"].decode()


def test_paths_of_this_machine_are_taken_out(run):
    config = json.loads((run / "model" / "config.json").read_text())
    assert "secret-project" in json.dumps(config)
    results = {"command": "negation-clip evaluate scenes --model /home/someone/runs/mine --output out"}
    (run / "results.json").write_text(json.dumps(results))
    plan = plan_push(run, "someone/hanclip-tiny")
    assert "secret-project" not in plan.files["config.json"].decode()
    sent = json.loads(plan.files["results.json"])["command"]
    assert sent == "negation-clip evaluate scenes --model mine --output out"
    # a changed copy, not a changed file
    assert json.loads((run / "model" / "config.json").read_text()) == config
    # apart from paths, nothing is lost
    del config["backbone_config"]["_name_or_path"]
    again = json.loads(plan.files["config.json"])
    again["backbone_config"].pop("_name_or_path", None)
    assert again == config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--images /data/coco/val2017 --k 5", "--images val2017 --k 5"),
        ("/home/a/b/", "b"),
        ("C:\\Users\\me\\model.pt", "model.pt"),
        ("https://huggingface.co/home/x and ../data/y and runs/home/z", None),
        ("org/model, 3/4 of 1/2, and/or", None),
        ("--data /gpfs/users/alice/secret/clip", "--data clip"),
        ("/raid/alice/x and /lustre/a/b and /Volumes/My/c", "x and b and c"),
        ("file:///home/me/x", "x"),
        ("~/secret/x", "x"),
        ("/home/me/My Drive/model", "model"),
        ("C:/Users/me/model.pt", "model.pt"),
        ("server:/srv/me/model and PATH=/a/b:/home/me/bin", "server:model and PATH=b:bin"),
        ("~me/secret/x and about ~3/4 of it", "x and about ~3/4 of it"),
        (r"\\server\share\x", "x"),
    ],
)
def test_shorten_paths_touches_absolute_paths_only(text, expected):
    assert shorten_paths(text) == (text if expected is None else expected)


def test_an_access_token_in_a_file_is_refused_and_not_shown(run, monkeypatch):
    config = json.loads((run / "model" / "config.json").read_text())
    (run / "model" / "config.json").write_text(json.dumps({**config, "note": TOKEN}))
    with pytest.raises(ValueError, match=r"config.json, line \d+, holds an access token") as caught:
        plan_push(run, "someone/x")
    assert TOKEN not in str(caught.value)
    # the user's own, whatever it looks like
    own = "tok3n-of-a-mirror"
    monkeypatch.setenv("HF_TOKEN", own)
    (run / "model" / "config.json").write_text(json.dumps({**config, "note": f"x{own}x"}))
    with pytest.raises(ValueError, match="holds an access token") as caught:
        plan_push(run, "someone/x")
    assert own not in str(caught.value)


@pytest.mark.parametrize("secret", ["ghp_" + "a1" * 18, "AKIA" + "Q7" * 8, "sk-" + "b2" * 15, "glpat-" + "c3" * 12])
def test_secrets_of_other_services_are_refused(run, secret):
    (run / "results.json").write_text(json.dumps({"note": secret}))
    with pytest.raises(ValueError, match="results.json, line 2, holds an access token") as caught:
        plan_push(run, "someone/x")
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"source": "/home/someone/secret/clip"}, "names a path of this machine: /home/someone/secret/clip"),
        ({"note": "ghp_" + "a1" * 18}, "holds an access token"),
    ],
)
def test_the_metadata_of_the_weights_are_looked_at_too(run, metadata, says):
    weights = run / "model" / "model.safetensors"
    save_file(load_file(weights), weights, {"format": "pt", **metadata})
    with pytest.raises(ValueError, match=f"the metadata of model.safetensors, line [23], {says}") as caught:
        plan_push(run, "someone/x")
    assert "a1a1" not in str(caught.value)


def test_where_an_adapter_was_loaded_from_stays_here(run):
    path = run / "adapter" / "adapter_config.json"
    config = json.loads(path.read_text())
    for given, kept in (("/home/someone/my clip", None), ("org/clip", "org/clip")):
        path.write_text(json.dumps({**config, "base_model_name_or_path": given}))
        sent = json.loads(plan_push(run, "someone/x", "adapter").files["adapter_config.json"])
        assert sent.get("base_model_name_or_path") == kept


def test_a_text_of_the_licence_goes_along(run, hub):
    (run / "model" / "LICENSE").write_text("See /usr/share/common-licenses/GPL-3, which is no path of this machine.")
    others = ["licensed_data.csv", "license.key", "license_server.py", "NOTICE.pkl", "license_key.txt", "license.json"]
    others.append("license" + "-a" * 60 + "!")  # names of any length are told apart at once
    texts = ["LICENSE-APACHE-2.0.txt", "COPYING.LESSER", "third_party_NOTICES.html", "UNLICENSE"]
    for name in (*others, *texts):
        (run / "model" / name).write_text("a")
    (run / "LICENSE.md").write_text("of something else")
    push(run, "someone/x", token=TOKEN)
    assert set(files(hub, "someone/x")) == HANCLIP_FILES | {"training.png", "LICENSE", *texts}
    (run / "model" / "LICENSE").write_text(TOKEN)
    with pytest.raises(ValueError, match="LICENSE, line 1, holds an access token"):
        plan_push(run, "someone/x")


def test_a_value_under_the_name_of_a_secret_is_refused(run):
    path = run / "model" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "api_key": "0123456789abcdef0123"}))
    with pytest.raises(ValueError, match="'api_key' looks like a secret") as caught:
        plan_push(run, "someone/x")
    assert "0123456789" not in str(caught.value)
    path.write_text(json.dumps({**config, "pad_token": "<|endoftext|>", "hub_token": None}))
    plan_push(run, "someone/x")


def test_a_model_without_processor_or_tokenizer_is_refused(run):
    processor = run / "model" / "processor_config.json"
    content = processor.read_text()
    processor.unlink()
    with pytest.raises(ValueError, match="holds no processor"):
        plan_push(run, "someone/x")
    processor.write_text(content)
    (run / "model" / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="holds no tokenizer"):
        plan_push(run, "someone/x")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("model/config.json", "[]", "config.json holds no JSON object, but a list"),
        ("model/config.json", "{", "config.json is no JSON file"),
        ("model/model.safetensors.index.json", "{}", "index.json names no shards"),
        ("results.json", "[1]", "results.json holds no JSON object"),
        ("results.json", '{"figures": [1, NaN]}', "results.json holds a NaN or an infinity, which are no JSON"),
        ("results.json", "[" * 200_000, "results.json is no JSON file"),
        ("model/model.safetensors.index.json", '{"weight_map": {"a": 1}}', "weight_map must name a file"),
        ("model/processor_config.json", '{"auto_map": {"AutoProcessor": "mine.P"}}', "mine.py is missing, which auto"),
        ("model/tokenizer_config.json", '{"auto_map": "mine.T"}', "tokenizer_config.json: auto_map must name a class"),
    ],
)
def test_damaged_files_are_named(run, name, content, says):
    (run / name).write_text(content)
    with pytest.raises((ValueError, FileNotFoundError), match=says):
        plan_push(run, "someone/x")


def test_the_code_of_a_tokenizer_goes_along(run):
    path = run / "model" / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "auto_map": {"AutoTokenizer": ["own_tokenizer.Slow", None]}}))
    (run / "model" / "own_tokenizer.py").write_text("from .own_words import WORDS\n")
    (run / "model" / "own_words.py").write_text("WORDS = []\n")
    assert {"own_tokenizer.py", "own_words.py"} <= set(plan_push(run, "someone/x").files)


@pytest.mark.parametrize("content", [b"---\nlicense: [mit\n---\n# X\n", b"---\nlicense: mit\n---\n# \xff\xfe\n"])
def test_a_card_that_cannot_be_read_is_named(run, content):
    (run / "model" / "README.md").write_bytes(content)
    assert "README.md is no card that can be read" in plan_push(run, "someone/x").card_error


def test_a_path_in_a_file_that_is_not_json_is_refused(run):
    (run / "model" / "README.md").write_text(
        f"---\nlicense: apache-2.0\n---\n# X\n{CONVERTED}\nOf /home/someone/x.\n\n## Use\n"
    )
    with pytest.raises(ValueError, match=r"README.md, line \d+, names a path of this machine: /home/someone/x"):
        plan_push(run, "someone/x")


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_link_out_of_the_folder_is_refused(run, tmp_path):
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    (run / "model" / "added_tokens.json").symlink_to(outside)
    with pytest.raises(ValueError, match=r"added_tokens.json is a link out of .*run"):
        plan_push(run, "someone/x")


@pytest.mark.parametrize("name", ["x", "a/b/c", "a b/c", "someone/-x", ""])
def test_what_is_no_repository_id_is_refused(run, name):
    with pytest.raises(ValueError, match="is no repository id"):
        plan_push(run, name)


def test_weights_in_other_formats_or_cut_short_are_refused(run):
    weights = run / "model" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"model.safetensors is no complete safetensors file"):
        plan_push(run, "someone/x")
    weights.unlink()
    with pytest.raises(ValueError, match=r"holds no safetensors weights; pytorch_model.bin is no safetensors file"):
        plan_push(run, "someone/x")


def test_a_model_without_its_code_is_refused(run):
    (run / "model" / "objectives.py").unlink()
    with pytest.raises((ValueError, OSError), match=r"objectives"):
        plan_push(run, "someone/x")
    path = run / "model" / "config.json"
    config = json.loads(path.read_text())
    del config["auto_map"]["AutoModelForZeroShotImageClassification"]
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"auto_map names no AutoModelForZeroShotImageClassification"):
        plan_push(run, "someone/x")


def test_find_model_says_what_is_missing(tmp_path, run):
    with pytest.raises(FileNotFoundError, match="is no folder: name the output folder of a training"):
        find_model(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"holds no config.json \(model/\) or adapter_config.json \(adapter/\)"
    ):
        find_model(tmp_path / "empty")
    with pytest.raises(ValueError, match="form must be one of merged, adapter"):
        find_model(run, "lora")
    assert find_model(run / "adapter") == (run / "adapter", "adapter")
    shutil.rmtree(run / "model")
    assert find_model(run) == (run / "adapter", "adapter")
    with pytest.raises(FileNotFoundError, match=r"holds no config.json \(model/\), neither"):
        find_model(run, "merged")


# --- pushing --------------------------------------------------------------------------------------------------------


def test_push_sends_one_commit_of_exactly_the_planned_files(run, hub):
    plan = push(run, "someone/hanclip-tiny", private=True, token=TOKEN)
    repo = hub.repos["model", "someone/hanclip-tiny"]
    assert set(repo.files) == HANCLIP_FILES | {"training.png"}
    assert repo.private and len(repo.messages) == 1 and "merged model" in repo.messages[0]
    assert plan.url.startswith(hub.endpoint) and f"sent: {plan.url}" in str(plan)
    assert repo.files["model.safetensors"] == (run / "model" / "model.safetensors").read_bytes()
    assert ModelCard(repo.files["README.md"].decode()).data.license == "apache-2.0"


def test_a_push_that_broke_off_is_repeated_and_sends_no_large_file_twice(run, hub):
    hub.fail_next.append(("/commit/", 503))
    with pytest.raises(HfHubHTTPError):
        push(run, "someone/hanclip-tiny", token=TOKEN)
    assert files(hub, "someone/hanclip-tiny") == {}
    sent = list(hub.uploads)
    assert len(sent) == 2  # the weights and the plot
    push(run, "someone/hanclip-tiny", token=TOKEN)
    assert set(files(hub, "someone/hanclip-tiny")) == HANCLIP_FILES | {"training.png"}
    assert hub.uploads == sent
    # once more: nothing has changed, so there is no commit
    push(run, "someone/hanclip-tiny", token=TOKEN)
    assert len(hub.repos["model", "someone/hanclip-tiny"].messages) == 1


@pytest.mark.parametrize(
    "place",
    ["/repos/create", "/branch/", "/tree/", "/validate-yaml", "/preupload/", "/objects/batch", "/lfs/", "/commit/"],
)
def test_a_push_may_break_off_anywhere(run, hub, place):
    """What is on the Hub is what was there before, and the same call brings the rest."""
    hub.fail_next.append((place, 400))
    with pytest.raises((HfHubHTTPError, OSError, RuntimeError, ValueError)):
        push(run, "someone/x", token=TOKEN, revision="dev")
    assert not hub.fail_next and all(not held for repo in hub.repos.values() for held in repo.revisions.values())
    push(run, "someone/x", token=TOKEN, revision="dev")
    repo = hub.repos["model", "someone/x"]
    assert set(repo.revisions[repo.branches["dev"]]) == HANCLIP_FILES | {"training.png"}
    assert not repo.files and len(hub.uploads) == len(set(hub.uploads)) == 2


def test_a_branch_is_brought_up_to_date_and_main_left_alone(run, hub):
    push(run, "someone/x", token=TOKEN)
    repo = hub.repos["model", "someone/x"]
    before = repo.files
    for form, expected in (("adapter", "adapter_model.safetensors"), ("merged", "model.safetensors")):
        push(run, "someone/x", form, token=TOKEN, revision="dev")
        held = repo.revisions[repo.branches["dev"]]
        assert [name for name in held if name.endswith(".safetensors")] == [expected]
    assert repo.files is before
    with pytest.raises(ValueError, match="the revision must be the name of a branch"):
        push(run, "someone/x", token=TOKEN, revision="")


def test_what_is_to_be_private_is_not_sent_to_where_it_is_public(run, hub):
    push(run, "someone/open", token=TOKEN)
    before = dict(files(hub, "someone/open"))
    (run / "secret.png").write_bytes(b"of the customer")
    with pytest.raises(ValueError, match="someone/open is on the Hub already, and public, so nothing was sent"):
        push(run, "someone/open", private=True, token=TOKEN)
    assert files(hub, "someone/open") == before
    for _ in range(2):  # one that is private already
        push(run, "someone/closed", private=True, token=TOKEN)
    push(run, "someone/closed", token=TOKEN)
    assert hub.repos["model", "someone/closed"].private


def test_a_hub_that_is_not_there_is_named(run, hub, monkeypatch, capsys):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # the port of `discard`: nobody listens
    assert cli.main(["push", str(run), "someone/x"]) == 2
    error = capsys.readouterr().err
    assert "the Hub at http://127.0.0.1:9 cannot be reached" in error and error.count("\n") == 1


def test_a_token_of_the_environment_that_cannot_be_sent_is_not_shown(run, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_über" + "secret" * 4)
    with pytest.raises(ValueError, match="the access token holds spaces") as caught:
        push(run, "someone/x")
    assert "secret" not in str(caught.value)


def test_what_an_earlier_push_left_behind_is_deleted(run, hub):
    push(run, "someone/hanclip-tiny", "adapter", token=TOKEN)
    theirs = {
        "kept.csv",
        "onnx/config.json",
        "docs/figure.png",
        "figure.png",
        "requirements.txt",
        "app.py",
        "x/a.safetensors",
    }
    hub.repos["model", "someone/hanclip-tiny"].files.update(dict.fromkeys(theirs, b"by hand"))
    push(run, "someone/hanclip-tiny", "merged", token=TOKEN)
    assert set(files(hub, "someone/hanclip-tiny")) == HANCLIP_FILES | {"training.png"} | theirs


def test_a_dry_run_needs_no_network_and_no_token(run, capsys):
    assert cli.main(["push", str(run), "someone/x", "--dry-run", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert set(listed["files"]) == HANCLIP_FILES | {"training.png"} and listed["url"] is None


def test_without_a_card_nothing_is_sent_but_a_dry_run_lists_the_rest(run, hub):
    (run / "training_log.json").unlink()  # now no licence is known
    plan = push(run, "someone/x", dry_run=True)
    assert cli.main(["push", str(run), "someone/x", "--dry-run"]) == 2
    assert "README.md" not in plan.files and "licence is not known" in plan.card_error
    assert "no README.md: the licence is not known" in str(plan)
    with pytest.raises(ValueError, match="no card could be made, so nothing was sent: the licence is not known"):
        push(run, "someone/x", token=TOKEN)
    assert not hub.requests
    push(run, "someone/x", licence="mit", token=TOKEN)
    assert ModelCard(files(hub, "someone/x")["README.md"].decode()).data.license == "mit"


def test_a_wrong_token_is_an_error_that_does_not_show_it(run, hub):
    with pytest.raises(HfHubHTTPError, match="(?s)401.*Log in by `hf auth login`") as caught:
        push(run, "someone/x", token="hf_" + "wrong" * 6)
    assert "wrongwrong" not in str(caught.value)
    assert not hub.repos


# --- loading back ---------------------------------------------------------------------------------------------------

LOAD = """
import json, sys, warnings
warnings.simplefilter("ignore")
way, repo = sys.argv[1:3]
if way == "remote code":
    sys.modules["negation_clip"] = None  # any import of it fails
else:
    import negation_clip
import torch
from PIL import Image
from transformers import AutoModel, AutoProcessor, pipeline

options = {"trust_remote_code": True} if way == "remote code" else {}
processor = AutoProcessor.from_pretrained(repo, **options)
tokens = processor(text=["a dog", "no cat"], padding=True, return_tensors="pt")
pixels = processor(images=[Image.new("RGB", (32, 32), "orange")], return_tensors="pt")
if way == "adapter":
    from peft import PeftModel
    model = PeftModel.from_pretrained(negation_clip.HanClipModel.from_backbone(sys.argv[3]), repo)
    model = model.merge_and_unload().eval()
else:
    model = AutoModel.from_pretrained(repo, **options)
with torch.no_grad():
    print(json.dumps({
        "text": model.get_text_features(**tokens).pooler_output.tolist(),
        "image": model.get_image_features(**pixels).pooler_output.tolist(),
        "labels": [] if way == "adapter" else [
            found["label"] for found in pipeline("zero-shot-image-classification", model=repo, **options)(
                Image.new("RGB", (32, 32), "orange"), candidate_labels=["dog", "cat"])
        ],
    }))
"""


def load_back(server, cache, *arguments: str) -> dict:
    environment = {**os.environ, **server.environment(cache), "HF_TOKEN": ""}
    command = [sys.executable, "-c", LOAD, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_what_was_pushed_loads_back_in_every_way(run, hub, tmp_path):
    """Package imported, custom code alone, pipeline, adapter: one and the same embedding, another than the base's."""
    push(run, "someone/merged", token=TOKEN)
    push(run, "someone/adapter", "adapter", token=TOKEN)
    base = tmp_path / "base"
    tiny_clip().save_pretrained(base)
    tiny_processor().save_pretrained(base)
    shutil.copy(run / "model" / "config.json", tmp_path)
    # the adapter's repository has no processor of its own: the backbone has
    for path in run.glob("model/*tokenizer*"):
        shutil.copy(path, run / "adapter")
    shutil.copy(run / "model" / "processor_config.json", run / "adapter")
    push(run, "someone/adapter", "adapter", token=TOKEN)

    found = {
        way: load_back(hub, tmp_path / f"cache-{way}", way, *rest)
        for way, *rest in (
            ("package", "someone/merged"),
            ("remote code", "someone/merged"),
            ("adapter", "someone/adapter", str(base)),
        )
    }
    model = HanClipModel.from_pretrained(run / "model")
    processor = tiny_processor()
    with torch.no_grad():
        tokens = processor(text=["a dog", "no cat"], padding=True, return_tensors="pt")
        expected = model.get_text_features(**tokens).pooler_output
        plain = tiny_clip().get_text_features(**tokens).pooler_output
    assert (expected - plain).abs().max() > 1e-3
    for way, one in found.items():
        torch.testing.assert_close(torch.tensor(one["text"]), expected, rtol=0, atol=1e-5, msg=way)
        torch.testing.assert_close(torch.tensor(one["image"]), torch.tensor(found["package"]["image"]))
    assert found["package"]["labels"] == found["remote code"]["labels"]
    assert sorted(found["package"]["labels"]) == ["cat", "dog"]


def test_a_phyclip_goes_with_its_own_code(tmp_path):
    clip = tiny_clip().config
    config = PhyClipConfig(
        vision_config=clip.vision_config.to_dict(),
        text_config=clip.text_config.to_dict(),
        projection_dim=16,
        factor_dim=4,
    )
    PhyClipModel(config).save_pretrained(tmp_path)
    tiny_processor().save_pretrained(tmp_path)
    plan = plan_push(tmp_path, "someone/phyclip-tiny", licence="mit")
    code = {name for name in plan.files if name.endswith(".py")}
    assert {"configuration_phyclip.py", "modeling_phyclip.py", "lorentz.py", "phyclip_objectives.py"} <= code
    assert "modeling_hanclip.py" not in code


def test_a_sharded_model_goes_with_its_index(run):
    weights = load_file(run / "model" / "model.safetensors")
    (run / "model" / "model.safetensors").unlink()
    names = sorted(weights)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for shard, keys in shards.items():
        save_file({key: weights[key] for key in keys}, run / "model" / shard, {"format": "pt"})
    index = {"metadata": {}, "weight_map": {key: shard for shard, keys in shards.items() for key in keys}}
    (run / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
    plan = plan_push(run, "someone/x")
    assert {*shards, "model.safetensors.index.json"} <= set(plan.files)
    (run / "model" / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model-00002-of-00002.safetensors is missing"):
        plan_push(run, "someone/x")
