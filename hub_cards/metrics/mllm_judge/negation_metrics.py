"""The measures themselves. A published Space holds their source in this place, made by
`negation_clip.metrics.single_file.single_file("judge")`, so that it needs nothing of ours installed.
"""

from negation_clip.metrics import judge_summary, parse_answer

__all__ = ["judge_summary", "parse_answer"]
