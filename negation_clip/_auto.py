"""Makes the Auto classes and pipelines of transformers know this package's models without importing them.

`AutoConfig.register` and `AutoModel.register` take classes, so they would load all modeling code at import. The
mappings behind the Auto classes hold *names* for the built-in models and import a model's module on first use; our
models are entered in the same way, with a stand-in for that module which imports the real one on access.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from transformers.models.auto import configuration_auto, modeling_auto


@dataclass(frozen=True)
class LazyModel:
    """A model of this package as the Auto classes see it, by names only.

    Args:
        model_type (`str`): Value of `model_type` in the config.
        config (`str`): Config class, as `"module:Class"` relative to `negation_clip.modeling`.
        model (`str`): Model class, written likewise.
        auto_classes (`tuple[str, ...]`): Names of the transformers Auto classes that load the model.
    """

    model_type: str
    config: str
    model: str
    auto_classes: tuple[str, ...] = ("AutoModel", "AutoModelForZeroShotImageClassification")


MODELS = (
    LazyModel("hanclip", "configuration_hanclip:HanClipConfig", "modeling_hanclip:HanClipModel"),
    LazyModel("phyclip", "configuration_phyclip:PhyClipConfig", "modeling_phyclip:PhyClipModel"),
    LazyModel("steered_clip", "configuration_steered:SteeredClipConfig", "modeling_steered:SteeredClipModel"),
)


class _LazyModule:
    """Stands in for `transformers.models.<model_type>` and resolves the model's two classes on access."""

    def __init__(self, model: LazyModel):
        self._modules = dict(reversed(target.split(":")) for target in (model.config, model.model))

    def __getattr__(self, name: str):
        if name not in self._modules:
            raise AttributeError(name)
        return getattr(importlib.import_module(f"negation_clip.modeling.{self._modules[name]}"), name)


def register(model: LazyModel) -> None:
    """Enters `model` in transformers' config mapping and in the mapping of each of its Auto classes.

    Entering the same model again changes nothing.

    Args:
        model (`LazyModel`): The names to enter.

    Raises:
        ValueError: If transformers has a config class of another name for this `model_type`.
    """
    model_type, config_name, model_name = model.model_type, model.config.split(":")[1], model.model.split(":")[1]
    known = configuration_auto.CONFIG_MAPPING_NAMES.setdefault(model_type, config_name)
    if known != config_name:
        raise ValueError(
            f"model_type {model_type!r} belongs to {known} in the installed transformers; {config_name} of "
            "negation_clip needs another model_type."
        )
    module = _LazyModule(model)
    configuration_auto.CONFIG_MAPPING._modules[model_type] = module
    for name in model.auto_classes:
        mapping = getattr(modeling_auto, name)._model_mapping
        mapping._reverse_config_mapping[config_name] = model_type
        mapping._model_mapping[model_type] = model_name
        mapping._modules[model_type] = module
