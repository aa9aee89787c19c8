"""The measures themselves. A published Space holds their source in this place, so that it needs nothing of ours
installed: what `negation_clip.metrics.single_file` returns for `single_file("json_lists", "judge")`.
"""

from negation_clip.metrics import judge_summary, parse_answer
from negation_clip.metrics.json_lists import json_list

__all__ = ["json_list", "judge_summary", "parse_answer"]
