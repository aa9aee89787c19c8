"""Trainers and the scripts that `accelerate launch` starts."""
