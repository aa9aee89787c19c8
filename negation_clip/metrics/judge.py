"""A multimodal language model as judge of retrieved pictures: reading its answers, and summing them up.

The protocol of "When Negation Is a Geometry Problem in Vision-Language Models" (2026, https://arxiv.org/abs/2603.20554):
for "a kitchen without a fridge" the judge is asked of each retrieved picture a context question ("is this a
kitchen?"), which must get a yes, then a negation question ("is there a fridge?"), which must get a no.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from numbers import Integral

from .scores import as_list

#: What an answer can be. The last two are outcomes of their own, never a "no".
ANSWERS = ("yes", "no", "unparsed", "refused")

_REASONING_END = re.compile(r"</(?:think|thinking|thought|reasoning)>|◁/think▷")
_REASONING_START = re.compile(r"<(?:think|thinking|thought|reasoning)>|◁think▷")
# "yes or no" repeats the instruction, "yes and no" answers nothing.
_BOTH_WORDS = re.compile(r"\b(?:yes|no)\s*(?:/|\bor\b|\band\b)\s*(?:yes|no)\b")
# "No idea", "no entry sign" and "no people are visible" are no answers: what follows "no" must end or begin a clause.
_WORD = (
    r"(?:(?P<yes{0}>yes|yeah|yep|yup)\b(?!-\w)"
    r"|(?P<no{0}>no|nope|nah)(?=\s*(?:$|[.,;:!?…–—\n]|-(?!\w))"
    r"|\s+(?:no|there|it|i|i'm|he|she|they|we|you|this|that|these|those|the|sorry)\b))"
)
_LEADING = re.compile(
    r"\W*(?:(?:assistant|judge|model|response|output|a)\s*:\W*)?"
    r"(?:(?:well|sure|certainly|of course|okay|ok|hmm|oh|so|thus|therefore|definitely|clearly|probably)\b[\s,.!:…]*)*"
    r"(?:(?:based on|judging (?:by|from)|looking at|from|in|given|according to)\b[^.!?,;\n]{1,80},\s*"
    r"|i(?:'d| would) say(?: that)?[\s,:]+|i (?:think|believe)(?: that)?[\s,:]+)?" + _WORD.format("")
)
_STATED = re.compile(
    r"(?<!if the )(?<!whether the )(?P<final>\bfinal\s+)?\banswer\b(?:\s+to\s+(?:the|this|your)\s+question)?\s*"
    r"(?:(?:is|would be|must be|should be|[:=–-])\s*)+(?:(?:a|clearly|definitely|therefore)\s+)*" + _WORD.format("")
)
_CLOSING = re.compile(
    r"(?:^|[.!?:\n])\W*(?:(?:so|thus|therefore|hence|conclusion|in conclusion|overall)\b[\s,:]*)?"
    r"(?:(?P<yes>yes)|(?P<no>no))\W*$"
)
_UNSURE = re.compile(
    r"\b(?:not (?:sure|certain|clear)|unsure|uncertain|unclear|(?:do not|don't) know|hard to (?:say|tell)"
    r"|(?:can ?not|can't|impossible to|unable to) (?:tell|say|determine|judge))\b"
)
_UNSEEN = re.compile(
    r"\b(?:can ?not|can't|could not|couldn't|unable to|not able to|do not|don't)\s+(?:actually\s+|directly\s+)?"
    r"(?:see|view|access|open|load|display|process|have)\s+(?:access\s+to\s+)?(?:the|this|that|your|any)\s+"
    r"(?:image|picture|photo)s?\b(?!\s+(?:of|on|in)\b)"
    r"|\bno\s+(?:image|picture|photo)s?\s+(?:was|were|is|has been|have been)?\s*(?:provided|attached|given|uploaded)"
)
_REFUSAL = re.compile(
    r"\b(?:can ?not|can't|won't|will not|unable to|not able to|not allowed to|decline to)\s+(?:\w+\s+)?"
    r"(?:help|assist|comply|answer|provide|fulfill?|engage|discuss|respond)\b"
    r"|\bas an ai\b|\bagainst my (?:guidelines|policy|policies|programming)\b"
)


def parse_answer(text: str | None) -> str:
    """What a judge's free-text answer to a yes/no question says.

    Reasoning blocks, markup and special tokens are taken off. Then the answer is what the text says first ("No, there
    isn't."), states ("The answer is yes"), or ends on ("… Therefore, no."); a *final answer* goes before the others,
    and where they disagree there is none. The words alone, anywhere in the text, count for nothing: for most negation
    questions "no" is the right answer, so a text must not become a "no" by accident. English only.

    Args:
        text: the answer as it came; `None` (an API's empty message) says nothing.

    Returns:
        `"yes"`, `"no"`, `"refused"` (the judge declines to answer) or `"unparsed"` (it says neither, says both, is
        unsure, or says that it cannot see the picture). The four words themselves are left as they are.

    Raises:
        ValueError: not a string.

    Example:
        >>> [parse_answer(text) for text in ("Yes.", "**No**", "No, there isn't. Yes, I'm sure.", "The answer is yes")]
        ['yes', 'no', 'no', 'yes']
        >>> [parse_answer(text) for text in ("", "Not sure", "Yes and no", "No people are visible.")]
        ['unparsed', 'unparsed', 'unparsed', 'unparsed']
        >>> parse_answer("<think>Yes, a fridge? No, a cupboard.</think> No."), parse_answer("I can't help with that.")
        ('no', 'refused')
    """
    if text is None:
        return "unparsed"
    if not isinstance(text, str):
        raise ValueError(f"text must be a string, got {text!r}.")
    text = _plain(text)
    bare = text.strip(" .,;:!?\n")
    if bare in ANSWERS:
        return bare
    if bare in ("y", "n"):
        return {"y": "yes", "n": "no"}[bare]
    if _UNSEEN.search(text):
        return "unparsed"
    first_sentence = re.split(r"[.!?\n]", text.lstrip(" .!?\n"), maxsplit=1)[0]
    if _REFUSAL.search(first_sentence) and not first_sentence.startswith("yes"):
        return "refused"

    stated = list(_STATED.finditer(text))
    final = [match for match in stated if match["final"]]
    if final:
        found = final[-1:]
    else:
        closing = None if _UNSURE.search(text) else _CLOSING.search(text)
        found = [match for match in (_LEADING.match(text), *stated[-1:], closing) if match]
    said = {"yes" if match["yes"] else "no" for match in found}
    if len(said) == 1:
        return said.pop()
    return "refused" if not said and _REFUSAL.search(text) else "unparsed"


def _plain(text: str) -> str:
    """Lower case, without reasoning, special tokens and markup."""
    text = unicodedata.normalize("NFKC", text).lower()
    text = re.sub("[\u2018\u2019\u02bc]", "'", text)
    text = _without_reasoning(text)
    # Chat templates may open the block in the prompt, and a limit on tokens may cut it off before its end.
    text = _REASONING_END.split(text)[-1]
    text = _REASONING_START.split(text)[0]
    text = re.sub(r"<answer>|\\boxed\{", " final answer: ", text)
    text = re.sub(r"<\|[^|>]*\|>|</?\w+>", " ", text)
    text = re.sub(r"[*_`~#\"“”«»\\$]", "", text)
    text = re.sub(r"[()\[\]{}>]", " ", text)
    # Long runs of signs tell nothing, but patterns take quadratic time on them.
    text = re.sub(r"\W{32,}", lambda run: run[0][:16] + run[0][-16:], text)
    return _BOTH_WORDS.sub(" ", text).strip()


def _without_reasoning(text: str) -> str:
    """Takes off closed blocks of reasoning in one pass, as `<(tag)>.*?</tag>` would, however many are not closed."""
    kept, at, open_ended = [], 0, set()
    for opening in _REASONING_START.finditer(text):
        if opening.start() < at or opening[0] in open_ended:
            continue
        closing = opening[0][0] + "/" + opening[0][1:]
        end = text.find(closing, opening.end())
        if end < 0:
            open_ended.add(opening[0])
            continue
        kept += [text[at : opening.start()], " "]
        at = end + len(closing)
    return "".join([*kept, text[at:]])


def judge_summary(context: Sequence, negation: Sequence, ks: Sequence[int] | None = None) -> dict:
    """Sums up a judge's answers about the pictures that a model retrieved.

    Four measures at every cut-off k:

    | | of | share with |
    |---|---|---|
    | `context` | the first k pictures of every query | context answer yes |
    | `negation_given_context` | those of them with context answer yes | negation answer no |
    | `both` | the first k pictures of every query | context yes and negation no |
    | `any` | queries | at least one such picture among the first k |

    A collapsed model, which returns the same pictures whatever is asked, passes negation questions easily; its
    context rate shows it. An answer that is neither yes nor no leaves its picture *undecided*: `rate` is that of the
    decided ones, `lower` and `upper` are what it would be if all undecided ones counted against the model or for it.
    Report the bounds wherever they differ.

    Args:
        context: `(n, k)` answers to the context question, per query in the order of retrieval, each one of
            [`ANSWERS`] (see [`parse_answer`]); or `(n,)`, of the first picture alone.
        negation: same shape, answers to the negation question. `None` where it was not asked, which is only allowed
            where the context answer is not yes.
        ks: cut-offs. By default 1 and the number of pictures per query.

    Returns:
        Dictionary with `n` (queries), `k` (pictures per query), `n_asked`, `n_unparsed` and `n_refused` (over all
        questions that were asked) and, for every cut-off, `top{k}`: the four measures, each a dictionary with `rate`,
        `lower` and `upper` in [0, 1], or `None` where there is nothing to take a share of, `n` (what it is a share
        of) and `n_undecided`.

    Raises:
        ValueError: no queries, rows of different length, an answer that is not one of the four (query and picture
            named), a missing negation answer, or a cut-off outside 1 to k.

    Example:
        Four pictures of kitchens; a fridge is denied in two, an answer cannot be read, and one has a fridge:

        >>> summary = judge_summary([["yes"] * 4], [["no", "no", "unparsed", "yes"]])
        >>> rate = summary["top4"]["negation_given_context"]
        >>> round(rate["rate"], 4), rate["lower"], rate["upper"], rate["n_undecided"], summary["n_unparsed"]
        (0.6667, 0.5, 0.75, 1, 1)

        No picture shows the context: there is nothing of which negation could be judged.

        >>> judge_summary(["no", "no"], [None, None])["top1"]["negation_given_context"]["rate"] is None
        True
    """
    context_rows, negation_rows = _answers(context, "context"), _answers(negation, "negation")
    n, k = len(context_rows), len(context_rows[0])
    if [len(row) for row in negation_rows] != [k] * n:
        raise ValueError(f"negation must have the shape of context, ({n}, {k}).")
    for query, rows in enumerate(zip(context_rows, negation_rows, strict=True)):
        for rank, (shown, denied) in enumerate(zip(*rows, strict=True)):
            if shown is None or (denied is None and shown == "yes"):
                which = "context" if shown is None else "negation"
                raise ValueError(f"{which}: query {query}, picture {rank} has no answer, but it needs one.")
    ks = {1, k} if ks is None else ks
    ks = as_list(sorted(ks) if isinstance(ks, set | frozenset) else ks, "ks")
    for cut in ks:
        if not isinstance(cut, Integral) or isinstance(cut, bool) or not 1 <= cut <= k:
            raise ValueError(f"ks must be whole numbers from 1 to {k}, the pictures per query, got {cut!r}.")

    asked = [answer for row in (*context_rows, *negation_rows) for answer in row if answer is not None]
    result: dict = {
        "n": n,
        "k": k,
        "n_asked": len(asked),
        "n_unparsed": asked.count("unparsed"),
        "n_refused": asked.count("refused"),
    }
    for cut in ks:
        queries = [
            list(zip(shown[:cut], denied[:cut], strict=True))
            for shown, denied in zip(context_rows, negation_rows, strict=True)
        ]
        pictures = [picture for query in queries for picture in query]
        both = [[_both(*picture) for picture in query] for query in queries]
        result[f"top{cut}"] = {
            "context": _share([_right(shown, "yes") for shown, _ in pictures]),
            "negation_given_context": _share_given_context(pictures),
            "both": _share([outcome for query in both for outcome in query]),
            "any": _share([True if True in query else None if None in query else False for query in both]),
        }
    return result


def judge_consistency(answers: Sequence[str], opposite: Sequence[str]) -> dict:
    """Does a judge contradict itself when the question is turned round?

    Ask of the same picture "is there a fridge?" and "is the picture free of fridges?": exactly one must get a yes. A
    judge that says yes to everything has consistency 0, however good its rates look.

    Args:
        answers: `(n,)` answers to the questions, each one of [`ANSWERS`].
        opposite: `(n,)` answers to the opposite questions.

    Returns:
        Dictionary with `n`, `n_decided` (pairs in which both answers are yes or no) and `consistency`, the share of
        those with one yes and one no; `None` if there are none.

    Raises:
        ValueError: nothing to measure, different lengths, or an answer that is not one of the four (row named).

    Example:
        >>> judge_consistency(["yes", "no", "yes", "unparsed"], ["no", "yes", "yes", "no"])
        {'n': 4, 'n_decided': 3, 'consistency': 0.6666666666666666}
    """
    answers, opposite = as_list(answers, "answers"), as_list(opposite, "opposite")
    if len(answers) != len(opposite) or len(answers) == 0:
        raise ValueError(
            f"answers and opposite must be of one length above 0, got {len(answers)} and {len(opposite)}."
        )
    for name, given in (("answers", answers), ("opposite", opposite)):
        for row, answer in enumerate(given):
            if answer not in ANSWERS:
                raise ValueError(f"{name}: row {row} is {answer!r}, must be one of {', '.join(ANSWERS)}.")
    decided = [pair for pair in zip(answers, opposite, strict=True) if set(pair) <= {"yes", "no"}]
    return {
        "n": len(answers),
        "n_decided": len(decided),
        "consistency": sum(a != b for a, b in decided) / len(decided) if decided else None,
    }


def _answers(values: Sequence, name: str) -> list[list[str | None]]:
    """Rows of answers, checked; a flat sequence becomes rows of one."""
    values = as_list(values, name)
    rows = [
        [row] if row is None or isinstance(row, str) else as_list(row, f"{name}: query {query}")
        for query, row in enumerate(values)
    ]
    if not rows or not rows[0]:
        raise ValueError(f"{name} is empty: there is nothing to sum up.")
    for query, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ValueError(f"{name}: query {query} has {len(row)} answers, but query 0 has {len(rows[0])}.")
        for rank, answer in enumerate(row):
            if answer is not None and answer not in ANSWERS:
                raise ValueError(
                    f"{name}: query {query}, picture {rank} is {answer!r}, must be one of {', '.join(ANSWERS)}; "
                    "parse_answer turns what a judge says into these."
                )
    return rows


def _right(answer: str | None, wanted: str) -> bool | None:
    return answer == wanted if answer in ("yes", "no") else None


def _both(shown: str, denied: str | None) -> bool | None:
    """One known failure decides, whatever the other answer would have been."""
    outcomes = _right(shown, "yes"), _right(denied, "no")
    return False if False in outcomes else None if None in outcomes else True


def _share(outcomes: list[bool | None]) -> dict:
    """Share of True, with None counted neither way, against, and for."""
    right, undecided, n = outcomes.count(True), outcomes.count(None), len(outcomes)
    decided = n - undecided
    return {
        "rate": right / decided if decided else None,
        "lower": right / n if n else None,
        "upper": (right + undecided) / n if n else None,
        "n": n,
        "n_undecided": undecided,
    }


def _share_given_context(pictures: list[tuple]) -> dict:
    """Like [`_share`], where a picture whose context is undecided may or may not belong to those counted."""
    result = _share([_right(denied, "no") for shown, denied in pictures if shown == "yes"])
    perhaps = [_right(denied, "no") for shown, denied in pictures if _right(shown, "yes") is None]
    if perhaps:
        n, right = result["n"], sum(denied == "no" for shown, denied in pictures if shown == "yes")
        failures = sum(outcome is not True for outcome in perhaps)  # counted in, they lower the rate
        successes = sum(outcome is not False for outcome in perhaps)  # and these raise it
        result["lower"] = right / (n + failures) if n + failures else 1.0
        result["upper"] = (right + result["n_undecided"] + successes) / (n + successes) if n + successes else 0.0
        result["n_undecided"] += len(perhaps)
    return result
