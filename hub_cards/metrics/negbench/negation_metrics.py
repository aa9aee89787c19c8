"""The measures themselves. A published Space holds their source in this place, made by
`negation_clip.metrics.single_file.single_file("negbench", "retrieval")`, so that it needs nothing of ours installed.
"""

from negation_clip.metrics import negbench_mcq, retrieval

__all__ = ["negbench_mcq", "retrieval"]
