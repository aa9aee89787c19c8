"""CLIP-style dual encoders that understand negation, on top of transformers.

Importing the package enters its models in the Auto classes of transformers, so that `AutoModel.from_pretrained` and
`pipeline("zero-shot-image-classification")` load them; the code of a model is imported when it is first used, and so
is everything named in `__all__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._auto import MODELS, register
from ._lazy import lazy_exports

if TYPE_CHECKING:
    from .convert import convert_clip, convert_lorentz, stretch_clip
    from .data.scenes import load_scenes
    from .embedded import embedded_path, load_embedded
    from .evaluation import Encoder
    from .modeling.configuration_hanclip import HanClipConfig
    from .modeling.configuration_phyclip import PhyClipConfig
    from .modeling.configuration_steered import SteeredClipConfig
    from .modeling.modeling_hanclip import HanClipModel, HanClipOutput
    from .modeling.modeling_phyclip import PhyClipModel, PhyClipOutput
    from .modeling.modeling_steered import SteeredClipModel
    from .trainers.fit_steering import fit_steering
    from .trainers.hanclip_trainer import HanClipTrainer
    from .trainers.phyclip_trainer import PhyClipTrainer

__version__ = "0.1.0"

__all__ = [
    "Encoder",
    "HanClipConfig",
    "HanClipModel",
    "HanClipOutput",
    "HanClipTrainer",
    "PhyClipConfig",
    "PhyClipModel",
    "PhyClipOutput",
    "PhyClipTrainer",
    "SteeredClipConfig",
    "SteeredClipModel",
    "convert_clip",
    "convert_lorentz",
    "embedded_path",
    "fit_steering",
    "load_embedded",
    "load_scenes",
    "stretch_clip",
]

_EXPORTS = {
    "Encoder": "evaluation",
    "HanClipConfig": "modeling.configuration_hanclip",
    "HanClipModel": "modeling.modeling_hanclip",
    "HanClipOutput": "modeling.modeling_hanclip",
    "HanClipTrainer": "trainers.hanclip_trainer",
    "PhyClipConfig": "modeling.configuration_phyclip",
    "PhyClipModel": "modeling.modeling_phyclip",
    "PhyClipOutput": "modeling.modeling_phyclip",
    "PhyClipTrainer": "trainers.phyclip_trainer",
    "SteeredClipConfig": "modeling.configuration_steered",
    "SteeredClipModel": "modeling.modeling_steered",
    "convert_clip": "convert",
    "convert_lorentz": "convert",
    "embedded_path": "embedded",
    "fit_steering": "trainers.fit_steering",
    "load_embedded": "embedded",
    "load_scenes": "data.scenes",
    "stretch_clip": "convert",
}

for _model in MODELS:
    register(_model)

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
