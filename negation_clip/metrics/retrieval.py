"""Text-to-image and image-to-text retrieval with several captions per image."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from numbers import Integral

import numpy as np

from .scores import as_list, as_scores

RSUM_KS = (1, 5, 10)
# One shuffled gallery in a hundred slips through; a working model is orders of magnitude away.
CHANCE_SIGNIFICANCE = 0.01
CHANCE_MIN_GALLERY = 100


def retrieval(
    scores,
    text_to_image: Sequence[int | Iterable[int]],
    ks: Sequence[int] = RSUM_KS,
    *,
    texts: Sequence[str] | None = None,
    image_ids: Sequence[Hashable] | None = None,
    allow_chance: bool = False,
    per_query: bool = False,
) -> dict:
    """Ranks images for every text and texts for every image.

    Two figures go by the name "recall@k" and differ as soon as a query has several right candidates: *hit@k*, the
    share of queries with at least one right candidate among the first k (what CLIP papers print), and *true
    recall@k*, the mean share of a query's right candidates found there. Both are reported, under separate names. A
    wrong candidate with the same score as a right one is ranked above it.

    Args:
        scores: `(n_texts, n_images)` similarities, more is better.
        text_to_image: per text the column of its image, or several of them (list, tuple or set).
        ks: cut-offs; one larger than the gallery is clipped to it.
        texts: `(n_texts,)` the captions. Equal ones become one query whose right images are those of all of them;
            without this, the twin of a caption used for two images counts as a mistake.
        image_ids: `(n_images,)` names of the images, such as paths. Columns of equal name become one image.
            (`text_to_image` always speaks of columns. Merged rows and columns keep the higher score of each cell;
            it only matters if the duplicates were not encoded alike.)
        allow_chance: accept results no better than chance.
        per_query: also return each query's rank.

    Returns:
        Dictionary with, for every k, `t2i_r{k}` and `i2t_r{k}` (hit@k) and `t2i_recall{k}` and `i2t_recall{k}` (true
        recall@k), all in [0, 1]; `rsum`, the sum of the six hit rates at 1, 5 and 10 in percentage points, whatever
        `ks` is; `n_texts`, `n_images` (after merging) and `n_images_without_text`, which stay in the gallery but
        ask no image-to-text question. With `per_query`, `t2i_ranks` and `i2t_ranks`: per query (after merging, images
        without a text left out) the number of wrong candidates before the first right one, so that hit@k is the share
        of ranks below k, and `bootstrap_interval` of it an interval.

    Raises:
        ValueError: scores that are not finite (row named), a text without image, an index out of range, `ks` that are
            not positive, `texts` or `image_ids` of another length; on a gallery of 100 or more, a text-to-image hit@1
            that is not significantly above chance (one-sided binomial test at 0.01), unless `allow_chance`.

    Example:
        Three images with 2, 1 and 2 captions:

        >>> scores = [[.9, .2, .1], [.3, .8, .1], [.6, .5, .4], [.1, .2, .7], [.2, .3, .25]]
        >>> result = retrieval(scores, [0, 0, 1, 2, 2], ks=(1, 2))
        >>> result["t2i_r1"], result["t2i_r2"], round(result["i2t_r1"], 4), round(result["i2t_recall1"], 4)
        (0.4, 1.0, 0.6667, 0.3333)

        One caption for two images is one query, and either image is right:

        >>> retrieval([[.4, .6], [.4, .6]], [0, 1], ks=(1,), texts=["a red bus", "a red bus"])["t2i_r1"]
        1.0
        >>> retrieval(scores, [0, 0, 1, 2, 2], per_query=True)["t2i_ranks"]
        [0, 1, 1, 0, 1]
    """
    scores = as_scores(scores)
    positives = _positives(text_to_image, *scores.shape)
    ks = as_list(sorted(ks) if isinstance(ks, set | frozenset) else ks, "ks")
    for k in ks:
        if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
            raise ValueError(f"ks must be positive whole numbers, got {k!r}.")
    if texts is not None:
        scores, groups = _merge_rows(scores, texts, "texts")
        merged: list[set[int]] = [set() for _ in scores]
        for group, columns in zip(groups, positives, strict=True):
            merged[group] |= columns
        positives = merged
    if image_ids is not None:
        transposed, groups = _merge_rows(scores.T, image_ids, "image_ids")
        scores = transposed.T
        positives = [{groups[column] for column in columns} for columns in positives]

    n_texts, n_images = scores.shape
    texts_of: list[list[int]] = [[] for _ in range(n_images)]
    for text, columns in enumerate(positives):
        for column in columns:
            texts_of[column].append(text)

    text_ranks = [_ranks(row, sorted(columns)) for row, columns in zip(scores, positives, strict=True)]
    image_ranks = [_ranks(row, rows) for row, rows in zip(scores.T, texts_of, strict=True) if rows]
    if not allow_chance and n_images >= CHANCE_MIN_GALLERY:
        _check_above_chance(sum(int(ranks[0] == 0) for ranks in text_ranks), positives, n_images)

    result: dict = {}
    for k in ks:
        for direction, ranks in (("t2i", text_ranks), ("i2t", image_ranks)):
            result[f"{direction}_r{k}"] = _hit(ranks, k)
            result[f"{direction}_recall{k}"] = float(np.mean([(r < k).mean() for r in ranks]))
    result["rsum"] = 100 * sum(_hit(ranks, k) for ranks in (text_ranks, image_ranks) for k in RSUM_KS)
    result["n_texts"], result["n_images"] = n_texts, n_images
    result["n_images_without_text"] = sum(not rows for rows in texts_of)
    if per_query:
        result["t2i_ranks"], result["i2t_ranks"] = ([int(r[0]) for r in ranks] for ranks in (text_ranks, image_ranks))
    return result


def _positives(text_to_image, n_texts: int, n_images: int) -> list[set[int]]:
    entries = as_list(text_to_image, "text_to_image")
    if len(entries) != n_texts:
        raise ValueError(f"text_to_image must have one entry per text ({n_texts}), got {len(entries)}.")
    positives = []
    for row, entry in enumerate(entries):
        several = isinstance(entry, Iterable) and not isinstance(entry, str | bytes | Mapping)
        columns = as_list(list(entry), "text_to_image") if several else [entry]
        if not columns:
            raise ValueError(f"text_to_image: text {row} has no image; leave texts without a right image out.")
        for column in columns:
            whole = isinstance(column, Integral) or (isinstance(column, float) and column.is_integer())
            if not whole or isinstance(column, bool) or not 0 <= column < n_images:
                raise ValueError(
                    f"text_to_image: text {row} names image {column!r}, but the columns are 0 to {n_images - 1}."
                )
        positives.append({int(column) for column in columns})
    return positives


def _merge_rows(scores: np.ndarray, labels: Sequence[Hashable], name: str) -> tuple[np.ndarray, list[int]]:
    """Merges rows of equal label by their maximum; returns the merged scores and each old row's new row."""
    labels = as_list(labels, name)
    if len(labels) != len(scores):
        raise ValueError(f"{name} must have {len(scores)} entries, got {len(labels)}.")
    index: dict[Hashable, int] = {}
    groups = []
    for row, label in enumerate(labels):
        if label is None or (label == label) is not True or not isinstance(label, Hashable):  # pandas' NA is neither
            raise ValueError(f"{name}: entry {row} is {label!r}, which is no name; what lacks one would be merged.")
        groups.append(index.setdefault(label, len(index)))
    if len(index) == len(groups):
        return scores, groups
    first = np.unique(groups, return_index=True)[1]
    merged = scores[first]
    for row in sorted(set(range(len(groups))) - set(first.tolist())):
        np.maximum(merged[groups[row]], scores[row], out=merged[groups[row]])
    return merged, groups


def _ranks(row: np.ndarray, positives: list[int]) -> np.ndarray:
    """Ranks (0 = first) of a query's right candidates, ascending; ties with wrong candidates are lost."""
    row = np.ascontiguousarray(row)  # a column would be read with a stride once per right candidate
    own = np.sort(row[positives])[::-1]
    at_least = (row >= own[:, None]).sum(axis=1)
    right_at_least = (own >= own[:, None]).sum(axis=1)
    return at_least - right_at_least + np.arange(len(own))


def _hit(ranks: list[np.ndarray], k: int) -> float:
    # No clipping needed: every rank is below the size of the gallery.
    return float(np.mean([r[0] < k for r in ranks]))


def _check_above_chance(hits: int, positives: list[set[int]], n_images: int) -> None:
    n = len(positives)
    chance = min(sum(map(len, positives)) / (n * n_images), 1 - 1e-9)
    i = np.arange(1, n + 1)
    log_terms = np.cumsum(np.log((n - i + 1) / i)) + i * np.log(chance) + (n - i) * np.log1p(-chance)
    p_value = float(np.exp(log_terms[hits - 1 :]).sum()) if hits else 1.0
    if p_value >= CHANCE_SIGNIFICANCE:
        raise ValueError(
            f"Text-to-image hit@1 is {hits}/{n} = {hits / n:.4f} on {n_images} images, not significantly above chance "
            f"({chance:.4f}). Likely causes: text_to_image does not match the order of the columns, the scores are "
            "transposed or are distances (less = closer), captions of another split, collapsed embeddings. "
            "If it is meant, pass allow_chance=True."
        )
