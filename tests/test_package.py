from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.resources
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import types
import venv
import zipfile
from pathlib import Path

import pytest
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.version import Version
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


# --- version -------------------------------------------------------------------------------------------------------


def test_the_version_is_the_same_everywhere():
    version = Version(negation_clip.__version__)
    assert str(version) == negation_clip.__version__ == importlib.metadata.version("negation-clip")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    # `setup.py` reads it; nothing else says it
    assert not re.search(r"version\s*=\s*[\"']", (ROOT / "setup.py").read_text(encoding="utf-8"))
    assert "version" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8").replace("target-version", "")


def test_the_changelog_tells_of_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (.*)", text, re.M)
    released = [re.fullmatch(r"\[(\S+)\] - \d{4}-\d\d-\d\d", title) for title in titles if title != "[Unreleased]"]
    assert all(released), titles
    versions = [Version(match[1]) for match in released]
    assert versions == sorted(set(versions), reverse=True)
    this = Version(negation_clip.__version__)
    if titles[0] == "[Unreleased]":  # of what is in the making
        assert "[Unreleased]" not in titles[1:] and all(version <= this for version in versions)
    else:
        assert versions[0] == this


# --- sdist and wheel -----------------------------------------------------------------------------------------------

INSTALLED_AS = {
    "negation_clip": "negation_clip",
    "modeling": "negation_clip/modeling",
    "trainers": "negation_clip/trainers",
    "hub_cards": "negation_clip/hub_cards",
    "recipes": "negation_clip/recipes",
}
# What only serves work on the repository.
NOT_RELEASED = (".ci", ".github", ".gitignore", ".gitattributes", ".pre-commit-config.yaml")
# What no other file would miss; a folder stands for all that is in it.
MUST_HOLD = """
    py.typed metrics cli.py completion.py assets/base/model.safetensors assets/base/tokenizer.json
    assets/scenes/noto.png assets/scenes/LICENSE.txt assets/clip_bpe/LICENSE.txt
    assets/clip_bpe/bpe_simple_vocab_16e6.txt.gz modeling/modeling_hanclip.py trainers/train_hanclip.py
    trainers/accelerate_configs/ddp_cpu.yaml hub_cards/model_card_template.md hub_cards/dataset_card_template.md
    hub_cards/metrics/negbench/app.py recipes/hanclip.yaml recipes/steering.yaml recipes/expected/negbench.yaml
""".split()
FILE_LIMIT = 100 * 10**6  # of a file on PyPI, in bytes


def released_files() -> list[str]:
    """The files that belong in a release: what git tracks or would track; all files, where there is no git."""
    if (ROOT / ".git").exists():
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    else:
        paths = (path for path in ROOT.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        names = [path.relative_to(ROOT).as_posix() for path in paths]
        names = [name for name in names if ".egg-info/" not in name and name not in ("PKG-INFO", "setup.cfg")]
    names = [name for name in names if not name.startswith(NOT_RELEASED) and (ROOT / name).is_file()]
    return sorted(names)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel, built from the sdist beside it, which is built from a copy of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in released_files():
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "source" / name)
    (folder / "source" / "runs").mkdir()
    (folder / "source" / "runs" / "results.json").write_text("{}")  # what a run leaves must not be released
    # Without isolation: the tests' environment has what building needs, and there may be no network.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), "source"]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory):
    """Runs words in a virtual environment that has the wheel, and of this one only what the wheel depends on."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    pip += ["install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    # Paths in a .pth file are searched last, and their own .pth files, such as that of an editable install, are not
    # read.
    here = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    (site / "dependencies.pth").write_text("\n".join(here))
    empty = folder / "empty"
    empty.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*words, program: str = "negation-clip"):
        return subprocess.run(
            [python.with_name(program), *words],
            cwd=empty,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1800,
        )

    run.site, run.folder = site, empty
    return run


@pytest.mark.slow
def test_wheel_holds_the_package_and_nothing_else(wheel):
    expected = {
        f"{target}/{name.partition('/')[2]}"
        for name in released_files()
        if (target := INSTALLED_AS.get(name.partition("/")[0])) and "/" in name
    }
    with zipfile.ZipFile(wheel) as zipped:
        everything = zipped.namelist()
    about = {name.partition(".dist-info/")[2] for name in everything if ".dist-info/" in name}
    assert {name for name in everything if ".dist-info/" not in name} == expected
    licences = {"LICENSE", "NOTICE", *(f"negation_clip/assets/{name}/LICENSE.txt" for name in ("scenes", "clip_bpe"))}
    assert {f"licenses/{name}" for name in licences} | {"METADATA", "entry_points.txt"} <= about
    for name in MUST_HOLD:
        assert any(f"{held}/".startswith(f"negation_clip/{name}/") for held in everything), f"the wheel lacks {name}"
    assert wheel.stat().st_size < FILE_LIMIT


@pytest.mark.slow
def test_sdist_of_the_wheel_holds_what_is_tracked(wheel):
    (archive,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        files = {member.name.partition("/")[2] for member in tar.getmembers() if member.isfile()}
    made = {name for name in files if name.startswith("negation_clip.egg-info/")} | {"PKG-INFO", "setup.cfg"}
    assert files - made == set(released_files())
    assert {"tests/test_package.py", "tests/conftest.py", "constraints.txt", "Makefile"} <= files
    assert archive.stat().st_size < FILE_LIMIT


@pytest.mark.slow
def test_metadata_of_the_wheel_is_what_an_index_accepts(wheel):
    version = negation_clip.__version__
    assert wheel.name == f"negation_clip-{version}-py3-none-any.whl"
    assert (wheel.parent / f"negation_clip-{version}.tar.gz").is_file()
    with zipfile.ZipFile(wheel) as zipped:
        about = Metadata.from_email(zipped.read(f"negation_clip-{version}.dist-info/METADATA"), validate=True)
    assert about.name == "negation-clip" and str(about.version) == version
    assert about.description_content_type == "text/markdown"
    assert about.description.strip() == (wheel.parent / "source" / "README.md").read_text(encoding="utf-8").strip()
    assert about.license_expression == "Apache-2.0"
    assert {"torch", "transformers", "shtab"} <= {one.name for one in about.requires_dist if one.marker is None}


@pytest.mark.slow
def test_every_module_and_name_is_in_the_installed_wheel(clean):
    done = clean(
        "-c",
        """
import importlib, importlib.metadata, pkgutil, negation_clip
from importlib.resources import files
from transformers import AutoConfig
print(negation_clip.__file__)
for found in pkgutil.walk_packages(negation_clip.__path__, "negation_clip."):
    if ".hub_cards." not in found.name:
        print(importlib.import_module(found.name).__file__)
for name in negation_clip.__all__:
    getattr(negation_clip, name)
for package in ("negation_clip.hub_cards", "negation_clip.recipes"):
    print(files(package))
print(__import__("inspect").getfile(type(AutoConfig.for_model("hanclip"))))
print(negation_clip.embedded_path("base"))
print(importlib.metadata.distribution("negation-clip").locate_file(""))
""",
        program="python",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) > 80 and all(Path(line).is_relative_to(clean.site) for line in lines), done.stdout


@pytest.mark.slow
def test_every_help_of_the_installed_wheel(clean):
    assert clean("--version").stdout == f"negation-clip {negation_clip.__version__}\n"
    done = clean(
        "-c",
        """
import argparse
from negation_clip import cli
def commands(parser, words=()):
    yield words
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from commands(sub, (*words, name))
for words in commands(cli.make_parser()):
    try:
        cli.main([*words, "--help"])
    except SystemExit as end:
        assert end.code == 0, words
for shell in ("bash", "zsh", "tcsh"):
    assert cli.main(["completion", shell]) == 0
""",
        program="python",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: negation-clip") > 20 and done.stdout.count("vl-checklist") > 3


@pytest.mark.slow
def test_the_installed_wheel_runs_the_demo(clean):
    done = clean("demo", "--quick", "--output-dir", "demo")
    assert done.returncode == 0, done.stderr
    assert (clean.folder / "demo" / "report.html").is_file()
    assert (clean.folder / "demo" / "hanclip" / "model" / "model.safetensors").is_file()
    done = clean("parse", "a dog but no cat")
    assert done.returncode == 0 and "cat" in done.stdout
