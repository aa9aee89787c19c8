"""What `accelerate launch` makes of the configuration for FSDP2."""

from __future__ import annotations

from pathlib import Path

from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env

FILE = Path(__file__).parents[1] / "trainers" / "accelerate_configs" / "fsdp2.yaml"


def fsdp_environment() -> dict[str, str]:
    """The environment variables by which processes are told of FSDP."""
    arguments = launch_command_parser().parse_args(["--config_file", str(FILE), "script.py"])
    told = prepare_multi_gpu_env(_validate_launch_command(arguments)[0])
    return {name: value for name, value in told.items() if "FSDP" in name}
