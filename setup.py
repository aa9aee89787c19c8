"""Package metadata. The top-level folders `modeling/`, `trainers/`, `hub_cards/` and `recipes/` are installed under
the library's own name (`negation_clip.modeling`, ...), so that nothing generic lands in site-packages."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = next(
    line.split('"')[1]
    for line in (ROOT / "negation_clip" / "__init__.py").read_text(encoding="utf-8").splitlines()
    if line.startswith("__version__")
)

# Code folders are flat packages; data folders may hold files of any kind at any depth.
CODE = ("modeling", "trainers")
DATA = ("hub_cards", "recipes")

packages = find_packages(include=["negation_clip", "negation_clip.*"])
packages += [f"negation_clip.{folder}" for folder in CODE + DATA]

# Lower bounds are versions the test suite has run with; constraints.txt pins the whole tested set.
TRACKING = ["tensorboard>=2.21", "trackio>=0.43"]
SPACE = ["gradio>=6.31"]
TEST = [
    *("pytest>=9.2", "pytest-xdist>=3.8", "hypothesis>=6.170", "geoopt>=0.5.1", "scikit-learn>=1.9"),
    *("webdataset>=1.0.2", "build>=1.6", "playwright>=1.65", *SPACE, *TRACKING),
]
LINT = ["ruff>=0.17.6"]

setup(
    name="negation-clip",
    version=VERSION,
    description="CLIP-style dual encoders that understand negation: HanCLIP, PHyCLIP and steering, on transformers.",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0",
    license_files=["LICENSE", "NOTICE", "negation_clip/assets/*/LICENSE.txt"],
    keywords=["CLIP", "negation", "vision-language", "hyperbolic", "retrieval", "transformers"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.11",
    packages=packages,
    package_dir={f"negation_clip.{folder}": folder for folder in CODE + DATA},
    package_data={
        "negation_clip": ["py.typed", "assets/**/*"],
        "negation_clip.trainers": ["accelerate_configs/*.yaml"],
        **{f"negation_clip.{folder}": ["**/*"] for folder in DATA},
    },
    exclude_package_data={"": ["**/__pycache__/*"]},
    include_package_data=False,
    install_requires=[
        "torch>=2.13,<3",
        "transformers>=5.24,<6",
        "safetensors>=0.8",
        "huggingface_hub>=2.4,<3",
        "accelerate>=1.15,<2",
        "datasets>=5.2,<6",
        "peft>=0.21.2,<1",
        "evaluate>=0.4.6,<1",
        "pillow>=12.3",
        "numpy>=2.4,<3",
        "jinja2>=3.1",
        "matplotlib>=3.11",
        "pyyaml>=6.0.4",
        "tqdm>=4.70",
        "shtab>=1.13",
    ],
    extras_require={
        "demo": SPACE,
        "data": ["webdataset>=1.0.2"],
        "judge": ["torchvision"],
        "steering": ["scikit-learn>=1.9"],
        "tracking": TRACKING,
        "test": TEST,
        "lint": LINT,
        "dev": TEST + LINT + ["pre-commit"],
    },
    entry_points={"console_scripts": ["negation-clip = negation_clip.cli:main"]},
)
