"""What trainers and training scripts send to the Hub, when, and what happens if it is not taken."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from fixtures_grounded import grounded_samples, make_model, squeezing_processor
from fixtures_hub import TOKEN, Repo, fake_hub, hub_of_this_process
from fixtures_launch import ACCELERATE
from fixtures_quadruplets import tiny_quadruplets
from fixtures_tiny import tiny_clip, tiny_processor
from huggingface_hub import ModelCard, constants
from peft import PeftModel
from test_cards import results_of
from test_hub import HANCLIP_FILES, load_back
from transformers import AutoModel, CLIPModel, CLIPProcessor, TrainerCallback

from negation_clip import HanClipModel, PhyClipModel, cli, embedded_path
from negation_clip.cards import model_card
from negation_clip.data.grounded_memory import GroundedSamples
from negation_clip.hub import push
from negation_clip.trainers import fit_steering, pretrain_clip, train_hanclip
from negation_clip.trainers import push as pushing
from negation_clip.trainers.hanclip_trainer import HanClipTrainer, HanClipTrainingArguments
from negation_clip.trainers.lora import add_lora
from negation_clip.trainers.phyclip_trainer import PhyClipTrainer, PhyClipTrainingArguments

ROOT = Path(__file__).parents[2]
REPO, LAST = "someone/tiny", "End of training"
# What nothing that is written may hold.
OTHER_TOKEN = "hf_" + "secretsecretsecretsecret"
QUICK = {
    "per_device_train_batch_size": 8,
    "max_steps": 2,
    "logging_steps": 1,
    "save_strategy": "no",
    "learning_rate": 0.05,
    "warmup_steps": 0,
    "disable_tqdm": True,
    "use_cpu": True,
}
PUSH = {"push_to_hub": True, "hub_model_id": REPO, "hub_token": TOKEN, "hub_licence": "mit", "hub_strategy": "end"}


@pytest.fixture
def hub(monkeypatch):
    with hub_of_this_process(monkeypatch) as server:
        yield server


def hanclip_trainer(folder, callbacks=None, lora=True, clip=None, **options):
    torch.manual_seed(0)
    model = HanClipModel.from_backbone(tiny_clip() if clip is None else clip)
    model = add_lora(model, "both", rank=2) if lora else model
    arguments = HanClipTrainingArguments(output_dir=str(folder), **{**QUICK, **PUSH, **options})
    data = tiny_quadruplets(16)
    evaluation = data if arguments.do_eval else None
    return HanClipTrainer(model, arguments, tiny_processor(), data, evaluation, callbacks=callbacks)


def repo(server, name: str = REPO):
    return server.repos["model", name]


def text_features(model) -> torch.Tensor:
    tokens = tiny_processor()(text=["a dog", "no cat"], padding=True, return_tensors="pt")
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    with torch.no_grad():
        return inner.eval().get_text_features(**tokens).pooler_output


def pushed_model(server, folder: Path, name: str = REPO):
    folder.mkdir(parents=True)
    for path, content in repo(server, name).files.items():
        (folder / path).write_bytes(content)
    return AutoModel.from_pretrained(folder)


def assert_final(server, trainer, folder: Path) -> None:
    """What is on the Hub is what the trainer has now."""
    found = pushed_model(server, folder)
    torch.testing.assert_close(text_features(found), text_features(trainer.model), rtol=0, atol=1e-6)


def assert_nowhere(secret: str, folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files and not [path for path in files if secret.encode() in path.read_bytes()]


# --- what goes ------------------------------------------------------------------------------------------------------


def test_a_lora_model_goes_merged_and_nothing_else_goes(hub, tmp_path, capsys, caplog):
    caplog.set_level(logging.DEBUG)
    trainer = hanclip_trainer(tmp_path / "out", save_strategy="steps", save_steps=1)
    trainer.train()
    assert repo(hub).files == {}  # hub_strategy is "end"
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    plan = trainer.push_to_hub()
    assert set(repo(hub).files) == set(plan.files) == HANCLIP_FILES
    assert repo(hub).messages == [LAST] and plan.url.startswith(hub.endpoint) and not repo(hub).private
    assert_final(hub, trainer, tmp_path / "loaded")
    assert (text_features(trainer.model) - text_features(HanClipModel.from_backbone(tiny_clip()))).abs().max() > 1e-3
    # the model in training is as it was
    assert isinstance(trainer.model, PeftModel)
    assert all(torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items())
    # training_args.bin, which stays, holds the arguments without the token, and so does everything else
    assert (tmp_path / "out" / "checkpoint-2" / "training_args.bin").is_file() and trainer.args.hub_token == TOKEN
    assert_nowhere(TOKEN, tmp_path)
    said = capsys.readouterr()
    assert TOKEN not in said.out + said.err + caplog.text
    assert not [name for name, content in repo(hub).files.items() if str(tmp_path).encode() in content]
    card = ModelCard(repo(hub).files["README.md"].decode())
    assert card.data.license == "mit" and "Not measured." in card.text and card.data.eval_results is None
    assert not (tmp_path / "out" / "_hub").exists()


def test_an_adapter_goes_if_it_is_asked_for_and_with_it_its_geometry(hub, tmp_path):
    clip = CLIPModel.from_pretrained(embedded_path("base"))
    trainer = hanclip_trainer(tmp_path, clip=clip, hub_form="adapter", hub_licence=None, hub_private_repo=True)
    with torch.no_grad():
        trainer.hanclip.geometry.logit_scale.fill_(1.25)
    trainer.push_to_hub("Adapter only")
    assert set(repo(hub).files) == {"README.md", "adapter_config.json", "adapter_model.safetensors"}
    assert repo(hub).private and repo(hub).messages == ["Adapter only"]
    card = ModelCard(repo(hub).files["README.md"].decode())
    # the embedded model brings its licence and its name
    assert card.data.license == "apache-2.0" and 'embedded_path("base"), similarity="poincare"' in card.text
    for name, content in repo(hub).files.items():
        (tmp_path / "adapter").mkdir(exist_ok=True)
        (tmp_path / "adapter" / name).write_bytes(content)
    again = PeftModel.from_pretrained(HanClipModel.from_backbone(clip), tmp_path / "adapter")
    assert again.get_base_model().geometry.logit_scale.item() == 1.25
    # the same call for the other form, which the argument overrides
    trainer.push_to_hub(form="merged")
    assert "model.safetensors" in repo(hub).files and "adapter_model.safetensors" not in repo(hub).files


def test_figures_go_if_they_are_of_this_model(hub, tmp_path):
    trainer = hanclip_trainer(tmp_path / "out")
    trainer.create_model_card()
    card = (tmp_path / "out" / "README.md").read_text()
    assert "Not measured." in card and "license: mit" in card
    results = tmp_path / "results.json"
    results.write_text(json.dumps(results_of(tmp_path / "out" / "hub" / "model")))
    trainer.push_to_hub(results=[results], finetuned_from="them/clip")
    card = ModelCard(repo(hub).files["README.md"].decode())
    assert {one.metric_value for one in card.data.eval_results} == {0.625, 0.875, 0.75}
    assert card.data.base_model == "them/clip"
    trainer.train()
    with pytest.raises(OSError, match="no figures of .*hub/model as it is now"):
        trainer.push_to_hub(results=[results])
    assert len(repo(hub).messages) == 1


@pytest.mark.parametrize("kind", ["phyclip", "clip"])
def test_models_that_are_trained_whole(hub, tmp_path, kind):
    options = {**QUICK, **PUSH, "hub_model_id": "tiny", "hub_licence": None}
    arguments = PhyClipTrainingArguments(output_dir=str(tmp_path / "out"), **options)
    data = GroundedSamples(grounded_samples(16))
    facts = {"model": kind, "data": "scenes"}
    trainer = PhyClipTrainer(make_model(kind), arguments, squeezing_processor(), data, facts=facts)
    assert trainer.hub_model_id == REPO  # the Hub says whose it is
    trainer.train()
    trainer.save_model()  # pushes, as `Trainer` does; what it writes itself is not sent
    assert (tmp_path / "out" / "training_args.bin").is_file() and repo(hub).messages == ["Model save"]
    found = pushed_model(hub, tmp_path / "loaded")
    assert type(found) is (PhyClipModel if kind == "phyclip" else CLIPModel)
    torch.testing.assert_close(text_features(found), text_features(trainer.model))
    assert json.loads(repo(hub).files["config.json"])["architectures"] == [type(found).__name__]
    names = set(repo(hub).files)
    assert not [name for name in names if "/" in name or name.endswith((".bin", ".pt", ".pth"))]
    assert ("modeling_phyclip.py" in names) is (kind == "phyclip")
    assert "| data | scenes |" in repo(hub).files["README.md"].decode()
    assert_nowhere(TOKEN, tmp_path)


def test_what_is_given_to_the_call_is_what_is_asked_of_the_hub(hub, tmp_path, monkeypatch):
    """Without `push_to_hub` in the arguments: the repository is made by the call."""
    options = {"push_to_hub": False, "hub_licence": None, "hub_model_id": None, "hub_token": None}
    trainer = hanclip_trainer(tmp_path / "named", **options)
    assert not hub.requests
    with pytest.raises(ValueError, match="licence is not known.*hub_licence"):
        trainer.push_to_hub(token=TOKEN)
    assert not hub.requests
    calls = []
    monkeypatch.setattr(pushing, "push", lambda *args, **kwargs: calls.append((args, kwargs)))
    trainer.push_to_hub("hello", token=TOKEN, revision="dev", private=True, license="mit", finetuned_from="a/b")
    assert repo(hub, "someone/named").private
    (args, kwargs), asked = calls[0], {"revision": "dev", "token": TOKEN, "licence": "mit", "base_model": "a/b"}
    assert args == (tmp_path / "named" / "hub", "someone/named")
    assert kwargs == {**asked, "private": True, "form": None, "message": "hello", "results": ()}
    trainer.push_to_hub(license="mit")
    assert calls[1][1]["token"] is None and calls[1][1]["revision"] is None and calls[1][1]["private"] is None


def test_what_is_to_be_private_is_not_trained_for_a_public_repository(hub, tmp_path):
    hanclip_trainer(tmp_path / "open")
    with pytest.raises(ValueError, match="is on the Hub already, and public, so nothing was sent") as caught:
        hanclip_trainer(tmp_path / "closed", hub_private_repo=True)
    assert "hf auth login" not in str(caught.value)


def test_a_push_in_the_background(hub, tmp_path):
    trainer = hanclip_trainer(tmp_path / "out")
    trainer.train()
    plan = trainer.push_to_hub(blocking=False).result(timeout=60)
    assert plan.url and set(repo(hub).files) == HANCLIP_FILES
    assert_final(hub, trainer, tmp_path / "loaded")


# --- beside the training --------------------------------------------------------------------------------------------

EVERY = {"hub_strategy": "every_save", "save_strategy": "steps", "save_steps": 1, "max_steps": 3}


def test_every_save_sends_the_model_and_last_the_final_one(hub, tmp_path):
    trainer = hanclip_trainer(tmp_path / "out", **EVERY, hub_always_push=True, save_total_limit=1)
    trainer.train()
    assert repo(hub).messages == [f"Training in progress, step {step}" for step in (1, 2, 3)]
    for files in list(repo(hub).revisions.values())[1:]:
        assert set(files) == HANCLIP_FILES
    assert len({files["model.safetensors"] for files in list(repo(hub).revisions.values())[1:]}) == 3
    assert_final(hub, trainer, tmp_path / "loaded")
    assert_nowhere(TOKEN, tmp_path)


class Spaces(TrainerCallback):
    """What trackio's callback is told of a Space when a push begins."""

    def __init__(self):
        self.named = []

    def on_push_begin(self, args, state, control, **kwargs):
        self.named.append(args.trackio_static_space_id)


def test_logs_become_a_space_only_if_it_is_named(hub, tmp_path):
    for name in (None, "someone/logs"):
        spaces = Spaces()
        hanclip_trainer(tmp_path / "out", [spaces], trackio_static_space_id=name).push_to_hub()
        assert spaces.named == [name or False]


class AtTheEnd(TrainerCallback):
    """Lets go of an event when the training is over."""

    def __init__(self):
        self.event = threading.Event()

    def on_train_end(self, args, state, control, **kwargs):
        self.event.set()


def test_a_slow_push_is_not_queued_up_and_the_final_model_goes_nevertheless(hub, tmp_path, monkeypatch):
    end = AtTheEnd()

    def slow(*args, **kwargs):
        assert end.event.wait(60)
        return push(*args, **kwargs)

    monkeypatch.setattr(pushing, "push", slow)
    trainer = hanclip_trainer(tmp_path / "out", [end], **EVERY)
    trainer.train()
    assert repo(hub).messages == ["Training in progress, step 1", LAST]
    assert_final(hub, trainer, tmp_path / "loaded")


def test_the_best_model_is_the_final_one(hub, tmp_path):
    options = {**EVERY, "hub_always_push": True, "eval_strategy": "steps", "eval_steps": 1}
    options |= {"load_best_model_at_end": True, "greater_is_better": True}  # the loss falls, so the first is the best
    trainer = hanclip_trainer(tmp_path / "out", **options)
    trainer.train()
    assert trainer.state.best_global_step < 3 and repo(hub).messages[-2:] == ["Training in progress, step 3", LAST]
    assert_final(hub, trainer, tmp_path / "loaded")


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_push_that_fails_costs_neither_the_training_nor_the_model(hub, tmp_path, caplog, monkeypatch):
    trainer = hanclip_trainer(tmp_path / "out", **{**EVERY, "max_steps": 2}, hub_always_push=True)
    hub.fail_next += [("/commit/", 503)] * 3  # of both steps, and the attempt at the end of `train`
    trainer.train()
    assert trainer.state.global_step == 2 and repo(hub).files == {}
    warnings = [record.message for record in caplog.records if "was not sent to someone/tiny: " in record.message]
    assert len(warnings) == 3 and "503" in warnings[0]
    hub.fail_next.append(("/commit/", 403))
    says = "the model is saved in .*hub, but was not sent to someone/tiny: .*403.*Log in by `hf auth login`"
    with pytest.raises(OSError, match=says) as caught:
        trainer.push_to_hub()
    assert TOKEN not in str(caught.value)
    # the command that it names sends the model
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    words = shlex.split(str(caught.value).partition("To send it: ")[2])
    assert words[0] == "negation-clip" and words[-2:] == ["--licence", "mit"]
    assert cli.main(words[1:]) == 0
    assert_final(hub, trainer, tmp_path / "loaded")
    assert_nowhere(TOKEN, tmp_path)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(
    ("fail", "says"), [((), "401"), ((("/repos/create", 503),), "503"), ((("/auth-check/write", 403),), "403")]
)
def test_a_hub_that_refuses_the_model_is_met_before_the_training(hub, tmp_path, fail, says, there):
    if there:
        hub.repos["model", REPO] = Repo()
    hub.fail_next += list(fail)
    with pytest.raises(OSError, match=f"someone/tiny cannot be opened on the Hub: .*{says}.*hf auth login") as caught:
        hanclip_trainer(tmp_path / "out", hub_token=TOKEN if fail else OTHER_TOKEN)
    assert OTHER_TOKEN not in str(caught.value) and not any(repo.files for repo in hub.repos.values())


def test_no_hub_at_all(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        with hub_of_this_process(patch):
            trainer = hanclip_trainer(tmp_path / "out")
        patch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # the port of `discard`: nobody listens
        with pytest.raises(OSError, match="was not sent to someone/tiny: .*To send it: negation-clip push"):
            trainer.push_to_hub()
    with pytest.raises(OSError, match="cannot be opened on the Hub: .*offline"):  # as all tests are
        hanclip_trainer(tmp_path / "other")
    assert (tmp_path / "out" / "hub" / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hub_strategy": "checkpoint"}, "hub_strategy=checkpoint would publish checkpoints, which hold pickles"),
        ({"hub_strategy": "all_checkpoints"}, "choose end or every_save"),
        ({"hub_form": "lora"}, "hub_form='lora': choose merged or adapter"),
        ({"hub_model_id": "a/b/c"}, "'a/b/c' is no repository id"),
        ({"hub_model_id": "a b"}, "a b' is no repository id"),
        ({"hub_token": OTHER_TOKEN + "\n"}, "the access token holds spaces, line ends"),
        ({"hub_token": ""}, "the access token is empty"),
    ],
)
def test_arguments_of_a_push_that_could_not_be_done(tmp_path, options, says):
    with pytest.raises(ValueError, match=says) as caught:
        HanClipTrainingArguments(output_dir=str(tmp_path), **{**QUICK, **PUSH, **options})
    assert "secretsecret" not in str(caught.value)
    without = {**PUSH, **options, "push_to_hub": False}
    HanClipTrainingArguments(output_dir=str(tmp_path), **{**QUICK, **without})


def test_a_card_that_could_not_be_made_is_told_before_anything_is_asked_of_the_hub(hub, tmp_path):
    for options, says in (
        ({"hub_licence": None}, "licence is not known"),
        ({"hub_licence": "My Own"}, "'My Own' is no identifier"),
        ({"hub_form": "adapter"}, "an adapter needs its backbone"),
    ):
        with pytest.raises(ValueError, match=says):
            hanclip_trainer(tmp_path, **options)
    assert not hub.requests


def test_the_licence_is_that_of_the_folder_which_the_training_began_with(hub, tmp_path, monkeypatch):
    """Wherever the training is when it pushes, and whatever has become of the folder."""
    monkeypatch.chdir(tmp_path)
    tiny_clip().save_pretrained("start")
    Path("start", "README.md").write_text(
        "---\nlicense: other\nlicense_name: Mine\nlicense_link: https://a.b/c\n---\n"
    )
    clip = CLIPModel.from_pretrained("start")
    with pytest.raises(ValueError, match="licensed other, and a copy cannot be licensed mit"):
        hanclip_trainer(tmp_path / "out", clip=clip)
    assert not hub.requests
    trainer = hanclip_trainer(tmp_path / "out", clip=clip, hub_licence=None)
    (tmp_path / "start").rename(tmp_path / "gone")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    trainer.push_to_hub()
    data = ModelCard(repo(hub).files["README.md"].decode()).data
    assert (data.license, data.license_name, data.license_link) == ("other", "Mine", "https://a.b/c")
    assert not [name for name, content in repo(hub).files.items() if str(tmp_path).encode() in content]


def test_a_model_that_is_steered_brings_its_own_licence_not_that_of_the_default(tmp_path):
    """Whether it is named or given itself."""
    tiny_clip().save_pretrained(tmp_path / "start")
    tiny_processor().save_pretrained(tmp_path / "start")
    (tmp_path / "start" / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    pairs = [(f"a {word}", f"no {word}") for word in ("dog", "cat", "car", "cup", "tree", "boat")]
    loaded = CLIPModel.from_pretrained(tmp_path / "start")
    for number, (model, known) in enumerate(
        [
            (tmp_path / "start", "cc-by-nc-4.0"),
            (loaded, "cc-by-nc-4.0"),
            (tiny_clip(), None),
            (CLIPModel.from_pretrained(embedded_path("base")), "apache-2.0"),
        ]
    ):
        processor = tiny_processor() if known != "apache-2.0" else None
        processor = processor or CLIPProcessor.from_pretrained(embedded_path("base"), backend="pil")
        out = tmp_path / str(number)
        fit_steering.fit_steering(
            model, pairs, processor=processor, validation=None, output_dir=out, holdout=2, device="cpu"
        )
        if known is None:
            with pytest.raises(ValueError, match="the licence is not known"):
                model_card(out, REPO)
            continue
        card = model_card(out, REPO)
        assert card.data.license == known
        assert ("the embedded CLIP of negation-clip" in card.text) is (known == "apache-2.0")


def test_what_has_no_place_in_the_card_is_refused(hub, tmp_path):
    trainer = hanclip_trainer(tmp_path)
    asked = len(hub.requests)
    with pytest.raises(ValueError, match="tags, dataset: the card says what"):
        trainer.push_to_hub(tags=["best"], dataset="coco")
    with pytest.raises(ValueError, match="model_name: the card says"):
        trainer.create_model_card(model_name="x")
    assert len(hub.requests) == asked and not (tmp_path / "hub").exists()


def test_a_token_that_cannot_be_sent_is_not_shown(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(ValueError, match="the access token holds spaces") as caught:
        push(tmp_path / "run", REPO, token=OTHER_TOKEN + "\r\n")
    assert OTHER_TOKEN not in str(caught.value)


def test_a_disk_that_takes_no_more(hub, tmp_path, monkeypatch, caplog):
    trainer = hanclip_trainer(tmp_path / "out", **EVERY)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pushing, "write_json", full)
    trainer.train()
    assert trainer.state.global_step == 3 and repo(hub).files == {}
    assert "cannot be written to" in caplog.text and not (tmp_path / "out" / "_hub").exists()
    with pytest.raises(OSError, match=r"the model to be pushed cannot be written to .*hub: .*No space left"):
        trainer.push_to_hub()


# --- the scripts ----------------------------------------------------------------------------------------------------


def test_a_wrong_token_costs_no_earlier_run(hub, tmp_path):
    options = ["--config", str(ROOT / "recipes" / "tiny.yaml"), f"--output_dir={tmp_path}", "--quadruplets=8"]
    options += ["--push_to_hub=true", f"--hub_model_id={REPO}", f"--hub_token={OTHER_TOKEN}", "--overwrite=true"]
    (tmp_path / "_negation_clip_run").touch()
    (tmp_path / "weights").write_text("of days")
    with pytest.raises(OSError, match="someone/tiny cannot be opened on the Hub: .*401"):
        train_hanclip.main(*train_hanclip.parse(options))
    assert (tmp_path / "weights").is_file() and not (tmp_path / "run.json").exists()


def script(server, name: str, out: Path, *options, launch=()):
    environment = {**os.environ, **server.environment(out.parent / "cache"), "OMP_NUM_THREADS": "1", "HF_TOKEN": ""}
    command = [sys.executable, *launch, ROOT / "trainers" / f"{name}.py", *options, f"--output_dir={out}"]
    command += ["--push_to_hub=true", f"--hub_model_id={REPO}", f"--hub_token={TOKEN}"]
    done = subprocess.run(map(str, command), capture_output=True, text=True, timeout=600, env=environment, cwd=ROOT)
    assert TOKEN not in done.stdout + done.stderr
    assert_nowhere(TOKEN, out)
    return done


@pytest.mark.slow
def test_the_hanclip_script_pushes_what_loads_back(tmp_path):
    with fake_hub() as server:
        done = script(server, "train_hanclip", tmp_path / "out", "--config=recipes/tiny.yaml", "--save_strategy=epoch")
        assert done.returncode == 0, done.stderr
        assert f"sent: {server.endpoint}" in done.stdout and not (tmp_path / "out" / "hub").exists()
        files = repo(server).files
        assert set(files) == HANCLIP_FILES | {"training.png"}
        assert files["model.safetensors"] == (tmp_path / "out" / "model" / "model.safetensors").read_bytes()
        card = ModelCard(files["README.md"].decode())
        assert card.data.license == "apache-2.0" and "| lora_rank | 4 |" in card.text
        log = json.loads((tmp_path / "out" / "training_log.json").read_text())
        assert log["arguments"]["licence"] == {"license": ["apache-2.0"]}
        found = [load_back(server, tmp_path / way, way, REPO) for way in ("package", "remote code")]
    assert found[0] == found[1] and sorted(found[0]["labels"]) == ["cat", "dog"]


@pytest.mark.slow
def test_the_phyclip_script_on_two_processes_pushes_once(tmp_path):
    with fake_hub() as server:
        out, recipe = tmp_path / "out", "--config=recipes/phyclip_tiny.yaml"
        done = script(server, "train_phyclip", out, recipe, "--hub_strategy=end", launch=(*ACCELERATE, "2"))
        assert done.returncode == 0, done.stderr
        assert json.loads((out / "run.json").read_text())["processes"] == 2
        assert repo(server).messages == [LAST] and done.stdout.count("sent: ") == 1
        log = json.loads((out / "training_log.json").read_text())
        assert log["arguments"]["licence"] == {"license": ["apache-2.0"]}
        assert {"modeling_phyclip.py", "training.png"} <= set(repo(server).files)
        found = load_back(server, tmp_path / "loaded", "remote code", REPO)
    assert sorted(found["labels"]) == ["cat", "dog"]


@pytest.mark.slow
def test_a_script_whose_push_fails_has_saved_all_and_says_how_to_go_on(tmp_path):
    with fake_hub() as server:
        out = tmp_path / "out"
        server.fail_next.append(("/preupload/", 403))
        options = ("--config=recipes/tiny.yaml", "--hub_strategy=end")
        done = script(server, "train_hanclip", out, *options)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert f"To send it: negation-clip push {out} {REPO}" in done.stderr
        assert {"model", "adapter", "run.json", "training_log.json", "training.png"} <= {p.name for p in out.iterdir()}
        environment = {**os.environ, **server.environment(tmp_path / "cache"), "HF_TOKEN": TOKEN}
        command = [sys.executable, "-m", "negation_clip.cli", "push", str(out), REPO]
        again = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert again.returncode == 0, again.stderr
        assert set(repo(server).files) == HANCLIP_FILES | {"training.png"}


@pytest.mark.slow
def test_the_other_scripts_push_through_the_same_way(hub, tmp_path, capsys):
    options = ["--push_to_hub=true", f"--hub_model_id={REPO}", f"--hub_token={TOKEN}"]
    out = tmp_path / "steering"
    fit = ["--captions=scenes", "--size=40", "--holdout=8", "--validation=none", f"--output_dir={out}"]
    fit_steering.main(*fit_steering.parse([*fit, *options]))
    assert {"model.safetensors", "modeling_steered.py", "accuracy.png"} <= set(repo(hub).files)
    card = repo(hub).files["README.md"].decode()
    assert "license: apache-2.0" in card and "the embedded CLIP of negation-clip" in card

    tiny = {"scenes": 6, "tokenizer_captions": 300, "validation_scenes": 4, "vision_width": 32, "vision_layers": 1}
    tiny |= {"text_width": 32, "text_layers": 1, "projection_dim": 8, "vocab_size": 1000, "pixels": 32, "max_steps": 2}
    tiny |= {"per_device_train_batch_size": 4, "save_strategy": "steps", "save_steps": 1, "use_cpu": True}
    out = tmp_path / "pretrained"
    given = [f"--{name}={value}" for name, value in {**tiny, "output_dir": out}.items()]
    options[1] = "--hub_model_id=someone/pretrained"
    pretrain_clip.main(*pretrain_clip.parse([*given, "--disable_tqdm=true", *options]))
    files = repo(hub, "someone/pretrained").files
    assert set(files) >= {"README.md", "config.json", "model.safetensors", "tokenizer.json"}
    assert not [name for name in files if "/" in name or name.endswith((".bin", ".pt", ".npy"))]
    assert "license: apache-2.0" in files["README.md"].decode()
    for log in (out / "model" / "training_log.json", tmp_path / "steering" / "fit.json"):
        assert json.loads(log.read_text())["arguments"]["licence"] == {"license": ["apache-2.0"]}
    assert files["model.safetensors"] == (out / "model" / "model.safetensors").read_bytes()
    assert_nowhere(TOKEN, tmp_path)
    assert TOKEN not in capsys.readouterr().out

    with pytest.raises(ValueError, match="push_to_hub needs hub_model_id"):
        fit_steering.parse([*fit, "--push_to_hub=true"])
    with pytest.raises(ValueError, match="'tiny' is no repository id"):
        fit_steering.parse([*fit, "--push_to_hub=true", "--hub_model_id=tiny"])
