from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.resources
import re
import shutil
import subprocess
import sys
import tarfile
import types
import zipfile
from pathlib import Path

import pytest
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from packaging.requirements import Requirement
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForZeroShotImageClassification,
    CLIPConfig,
    CLIPModel,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import negation_clip
from negation_clip import _auto, cli

ROOT = Path(__file__).parents[1]


def run_python(code: str, **kwargs) -> str:
    """Runs `code` in a fresh interpreter and returns what it prints."""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **kwargs)
    assert process.returncode == 0, process.stderr
    return process.stdout


# --- import and registration ---------------------------------------------------------------------------------------


def test_import_loads_no_code_of_ours_but_the_registration():
    loaded = run_python(
        "import sys, negation_clip; print(*(m for m in sys.modules if m.split('.')[0] == 'negation_clip'))"
    )
    assert set(loaded.split()) == {"negation_clip", "negation_clip._auto", "negation_clip._lazy"}


def test_auto_classes_load_a_saved_hanclip_right_after_the_import(tmp_path):
    output = run_python(
        f"""
import sys, negation_clip
from transformers import AutoConfig, AutoModel, AutoModelForZeroShotImageClassification, CLIPConfig
tower = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
backbone = CLIPConfig(
    text_config=dict(tower, vocab_size=20), vision_config=dict(tower, image_size=16, patch_size=8), projection_dim=8
)
assert not any(name.startswith("negation_clip.modeling") for name in sys.modules)
config = AutoConfig.for_model("hanclip", backbone_config=backbone.to_dict())
AutoModel.from_config(config).save_pretrained({str(tmp_path)!r})
for auto in (AutoModel, AutoModelForZeroShotImageClassification):
    model = auto.from_pretrained({str(tmp_path)!r})
    print(type(model).__module__, type(model).__name__, type(model.config).__module__)
"""
    )
    expected = "negation_clip.modeling.modeling_hanclip HanClipModel negation_clip.modeling.configuration_hanclip"
    assert output.splitlines() == [expected] * 2


@pytest.fixture
def toy_classes(monkeypatch):
    """Registers a model whose modules come into being only afterwards, and takes it out again."""
    _auto.register(_auto.LazyModel("toy", "configuration_toy:ToyConfig", "modeling_toy:ToyModel", ("AutoModel",)))
    assert "toy" in CONFIG_MAPPING

    class ToyConfig(PreTrainedConfig):
        model_type = "toy"

    class ToyModel(PreTrainedModel):
        config_class = ToyConfig

    for module, cls in (("configuration_toy", ToyConfig), ("modeling_toy", ToyModel)):
        stub = types.ModuleType(module)
        setattr(stub, cls.__name__, cls)
        monkeypatch.setitem(sys.modules, f"negation_clip.modeling.{module}", stub)
    yield ToyConfig, ToyModel
    mapping = AutoModel._model_mapping
    for table in (CONFIG_MAPPING._mapping, CONFIG_MAPPING._modules, mapping._model_mapping, mapping._modules):
        del table["toy"]
    del mapping._reverse_config_mapping["ToyConfig"]


def test_registration_by_name_resolves_on_use(toy_classes):
    config_class, model_class = toy_classes
    assert type(AutoConfig.for_model("toy")) is config_class
    assert type(AutoModel.from_config(config_class())) is model_class
    assert CONFIG_MAPPING["toy"] is config_class
    assert AutoModel._model_mapping[config_class] is model_class


def test_registration_leaves_other_models_and_auto_classes_alone(toy_classes):
    config_class, _ = toy_classes
    assert AutoModel._model_mapping[CLIPConfig] is CLIPModel
    assert config_class not in AutoModelForZeroShotImageClassification._model_mapping
    assert CLIPConfig in AutoModelForZeroShotImageClassification._model_mapping


def test_zero_shot_pipeline_accepts_every_model():
    for model in _auto.MODELS:
        names = _auto.modeling_auto.MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES
        assert names[model.model_type] == model.model.split(":")[1]


def test_registering_twice_changes_nothing():
    tables = _auto.configuration_auto.CONFIG_MAPPING_NAMES, _auto.modeling_auto.MODEL_MAPPING_NAMES
    before = [dict(table) for table in tables]
    for model in _auto.MODELS:
        _auto.register(model)
    assert [dict(table) for table in tables] == before


def test_register_refuses_the_type_of_a_transformers_model():
    with pytest.raises(ValueError, match="'clip' belongs to CLIPConfig"):
        _auto.register(_auto.LazyModel("clip", "configuration_x:XConfig", "modeling_x:XModel"))
    assert _auto.configuration_auto.CONFIG_MAPPING_NAMES["clip"] == "CLIPConfig"
    assert _auto.modeling_auto.MODEL_MAPPING_NAMES["clip"] == "CLIPModel"


# --- public names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", negation_clip.__all__)
def test_public_name_resolves_to_the_object_itself(name):
    module = importlib.import_module(f"negation_clip.{negation_clip._EXPORTS[name]}")
    assert getattr(negation_clip, name) is getattr(module, name)
    assert name in dir(negation_clip)


def test_type_checkers_see_the_same_names_as_the_interpreter():
    tree = ast.parse(Path(negation_clip.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and node.test.id == "TYPE_CHECKING")
    static = {alias.name: statement.module for statement in block.body for alias in statement.names}
    assert static == negation_clip._EXPORTS
    assert sorted(static) == negation_clip.__all__


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'negation_clip' has no attribute 'HanClipModle'"):
        _ = negation_clip.HanClipModle
    with pytest.raises(ImportError, match="HanClipModle"):
        exec("from negation_clip import HanClipModle")


# --- requirements --------------------------------------------------------------------------------------------------


def read_constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_constraints_are_plain_public_versions():
    for name, version in read_constraints().items():
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", name), name
        assert re.fullmatch(r"[0-9]+(\.[0-9a-z]+)*", version), f"{name}=={version}"


def test_every_requirement_is_pinned_within_its_bounds():
    pins = {name.lower().replace("_", "-"): version for name, version in read_constraints().items()}
    for text in importlib.metadata.requires("negation-clip"):
        requirement = Requirement(text)
        name = requirement.name.lower().replace("_", "-")
        extra = re.search(r'extra == "(\w+)"', str(requirement.marker))
        if extra and extra[1] not in ("test", "lint"):
            continue
        assert name in pins, f"constraints.txt lacks {name}"
        assert requirement.specifier.contains(pins[name]), f"{text} excludes the tested {pins[name]}"
        assert ">=" in str(requirement.specifier), f"{text} has no lower bound"


# --- command line --------------------------------------------------------------------------------------------------


def fake_target(monkeypatch, module: str, function: str, effect=None) -> list[dict]:
    """Puts a module with one recording function in the place of the real one."""
    calls = []

    def record(**kwargs):
        calls.append(kwargs)
        if isinstance(effect, BaseException):
            raise effect
        return effect

    stub = types.ModuleType(module)
    setattr(stub, function, record)
    monkeypatch.setitem(sys.modules, module, stub)
    return calls


def test_only_given_options_reach_the_library(monkeypatch):
    calls = fake_target(monkeypatch, "negation_clip.data.export", "export_scenes")
    assert cli.main(["scenes", "export", "out"]) == 0
    assert cli.main(["scenes", "export", "out", "--split", "test", "--size", "8", "--seed", "3", "--overwrite"]) == 0
    assert calls == [
        {"directory": "out"},
        {"directory": "out", "split": "test", "size": 8, "seed": 3, "overwrite": True},
    ]


def test_demo_takes_several_seeds(monkeypatch):
    calls = fake_target(monkeypatch, "negation_clip.demo", "run_demo")
    assert cli.main("demo --output-dir runs/x --seeds 0 1 2 --quick --resume --recipe paper".split()) == 0
    assert calls == [{"output_dir": "runs/x", "seeds": [0, 1, 2], "quick": True, "resume": True, "recipe": "paper"}]


def test_evaluate_says_where_its_results_are(monkeypatch, capsys):
    calls = fake_target(monkeypatch, "negation_clip.evaluation.command", "run_evaluate", {"tests": {}})
    words = "evaluate negbench a.csv --model base --model x=m --remap a/b=c --remap d=e --output out --split test"
    assert cli.main(words.split()) == 0
    assert capsys.readouterr().out.endswith("written to out: report.html, results.json, results.csv\n")
    assert calls == [
        {
            "task": "negbench",
            "data": ["a.csv"],
            "model": ["base", "x=m"],
            "remap": {"a/b": "c", "d": "e"},
            "output": "out",
            "split": ["test"],
        }
    ]


@pytest.mark.parametrize("error", [ValueError("size:\nmust be positive"), FileNotFoundError("no such folder: out")])
def test_refused_input_is_one_line_and_status_2(monkeypatch, capsys, error):
    fake_target(monkeypatch, "negation_clip.data.export", "export_scenes", error)
    assert cli.main(["scenes", "export", "out"]) == 2
    assert capsys.readouterr().err == f"negation-clip: error: {' '.join(str(error).split())}\n"
    with pytest.raises(type(error)):
        cli.main(["--traceback", "scenes", "export", "out"])


def test_a_defect_is_not_dressed_up_as_bad_input(monkeypatch, capsys):
    fake_target(monkeypatch, "negation_clip.data.export", "export_scenes", TypeError("defect"))
    assert cli.main(["scenes", "export", "out"]) == 1
    assert capsys.readouterr().err.startswith("negation-clip: TypeError: defect (negation-clip --traceback")
    with pytest.raises(TypeError, match="defect"):
        cli.main(["--traceback", "scenes", "export", "out"])


def test_interrupt_ends_quietly(monkeypatch, capsys):
    fake_target(monkeypatch, "negation_clip.demo", "run_demo", KeyboardInterrupt())
    assert cli.main(["demo", "--output-dir", "x"]) == 130
    assert capsys.readouterr().err == "negation-clip: interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["scenes"], "required: COMMAND"),
        (["demo"], "--output-dir"),
        (["demo", "--output-dir", "x", "--seeds", "one"], "invalid int value: 'one'"),
        (["demo", "--output-dir", "x", "--overwrite", "--resume"], "not allowed with"),
        (["train"], "invalid choice: 'train'"),
    ],
)
def test_wrong_usage_is_status_2(capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_info:
        cli.main(arguments)
    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err


def test_console_script_is_installed_and_knows_its_version(capsys):
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="negation-clip")
    assert script.load() is cli.main
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"negation-clip {negation_clip.__version__}\n"


# --- model card ----------------------------------------------------------------------------------------------------


def test_model_card_template_renders_a_card_that_the_hub_can_read():
    results = [
        EvalResult("zero-shot-retrieval", "emoji-scenes", "Emoji scenes", "exclusion_accuracy", 0.875),
        EvalResult("zero-shot-retrieval", "emoji-scenes", "Emoji scenes", "rsum", 561.5),
    ]
    data = ModelCardData(
        license="apache-2.0", library_name="transformers", model_name="HanCLIP tiny", eval_results=results
    )
    card = ModelCard.from_template(
        data,
        template_path=str(importlib.resources.files("negation_clip.hub_cards") / "model_card_template.md"),
        model_name=data.model_name,
        eval_results=data.eval_results,
        repo_id="someone/hanclip-tiny",
        summary="A CLIP that takes no for an answer.",
        training={"learning rate": 1e-3, "seed": 0},
        results_command="negation-clip evaluate scenes --model someone/hanclip-tiny",
    )
    read = ModelCard(str(card)).data
    assert read.model_name == "HanCLIP tiny" and read.license == "apache-2.0"
    assert {(result.metric_type, result.metric_value) for result in read.eval_results} == {
        ("exclusion_accuracy", 0.875),
        ("rsum", 561.5),
    }
    assert 'AutoModel.from_pretrained("someone/hanclip-tiny", trust_remote_code=True)' in card.text
    assert "| Emoji scenes | exclusion_accuracy | 0.875 |" in card.text
    assert "| learning rate | 0.001 |" in card.text
    assert "`negation-clip evaluate scenes --model someone/hanclip-tiny`" in card.text
    assert "{{" not in str(card) and "{%" not in str(card)


# --- sdist and wheel -----------------------------------------------------------------------------------------------

INSTALLED_AS = {
    "negation_clip": "negation_clip",
    "modeling": "negation_clip/modeling",
    "trainers": "negation_clip/trainers",
    "hub_cards": "negation_clip/hub_cards",
    "recipes": "negation_clip/recipes",
}


@pytest.mark.slow
def test_sdist_builds_a_wheel_that_holds_the_package_and_nothing_else(tmp_path):
    source = tmp_path / "source"
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    for folder in (*INSTALLED_AS, "tests", "docs", "benchmarks"):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignore)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, source)
    expected = {
        f"{target}/{path.relative_to(source / folder).as_posix()}"
        for folder, target in INSTALLED_AS.items()
        for path in (source / folder).rglob("*")
        if path.is_file()
    }

    # A wheel straight from the tree could hold what the sdist lacks, so it is built from the unpacked sdist.
    run_python("from setuptools import build_meta; build_meta.build_sdist('dist')", cwd=source)
    (archive,) = (source / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "sdist", filter="data")
    (unpacked,) = (tmp_path / "sdist").iterdir()
    for name in ("LICENSE", "NOTICE", "constraints.txt", "Makefile", "tests/test_package.py"):
        assert (unpacked / name).is_file(), f"the sdist lacks {name}"
    run_python(f"from setuptools import build_meta; build_meta.build_wheel({str(tmp_path)!r})", cwd=unpacked)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as zipped:
        names = {name for name in zipped.namelist() if ".dist-info/" not in name}
        assert any(name.endswith("dist-info/licenses/NOTICE") for name in zipped.namelist())
    assert names == expected

    target = tmp_path / "site"
    with zipfile.ZipFile(wheel) as zipped:
        zipped.extractall(target)
    # In front of this environment's own copy; every module must come from the wheel.
    output = run_python(
        f"import sys; sys.path.insert(0, {str(target)!r})\n"
        """
import importlib.resources
import negation_clip.modeling, negation_clip.trainers
from transformers import AutoConfig
print(negation_clip.__file__, negation_clip.modeling.__file__, negation_clip.trainers.__file__, sep="\\n")
for package in ("negation_clip.hub_cards", "negation_clip.recipes", "negation_clip"):
    print(importlib.resources.files(package))
import inspect
print(inspect.getfile(type(AutoConfig.for_model("hanclip"))))
""",
        cwd=tmp_path,
    )
    assert all(Path(line).is_relative_to(target) for line in output.splitlines()), output
