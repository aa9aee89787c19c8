"""The nouns of the embedded world: 132 concepts in 18 families under an is-a tree.

Every concept is drawn in two styles (see `negation_clip.data.atlas`), and has one name, the one people say.
Two facts about pairs of concepts shape the data: concepts of one *context* (families met in the same places) occur
together more often than chance, so that what is absent is plausible; and a fixed tenth of all pairs, the
*held-out pairs*, never occurs in training, neither in a picture nor in a caption (the idea of N-COCO).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

# family: (parent, context, {name: emoji short name})
_FAMILIES: dict[str, tuple[str, str, dict[str, str]]] = {
    "person": (
        "being",
        "town",
        {
            "baby": "baby",
            "clown": "clown_face",
            "astronaut": "astronaut",
            "princess": "princess",
            "farmer": "farmer",
            "ninja": "ninja",
            "mermaid": "mermaid",
        },
    ),
    "mammal": (
        "animal",
        "field",
        {
            "dog": "dog",
            "cat": "cat2",
            "horse": "racehorse",
            "cow": "cow2",
            "pig": "pig",
            "rabbit": "rabbit2",
            "lion": "lion_face",
            "elephant": "elephant",
            "monkey": "monkey",
            "panda": "panda_face",
        },
    ),
    "bird": (
        "animal",
        "field",
        {
            "rooster": "rooster",
            "penguin": "penguin",
            "duck": "duck",
            "eagle": "eagle",
            "owl": "owl",
            "parrot": "parrot",
            "flamingo": "flamingo",
        },
    ),
    "sea animal": (
        "animal",
        "water",
        {
            "fish": "tropical_fish",
            "whale": "whale",
            "shark": "shark",
            "octopus": "octopus",
            "crab": "crab",
            "turtle": "turtle",
            "squid": "squid",
        },
    ),
    "insect": (
        "animal",
        "field",
        {
            "butterfly": "butterfly",
            "bee": "bee",
            "ant": "ant",
            "ladybug": "ladybug",
            "snail": "snail",
            "spider": "spider",
        },
    ),
    "fruit": (
        "food",
        "table",
        {
            "apple": "apple",
            "banana": "banana",
            "grape": "grapes",
            "strawberry": "strawberry",
            "pineapple": "pineapple",
            "watermelon": "watermelon",
            "cherry": "cherries",
            "lemon": "lemon",
            "kiwi": "kiwifruit",
        },
    ),
    "vegetable": (
        "food",
        "table",
        {
            "carrot": "carrot",
            "corn cob": "corn",
            "tomato": "tomato",
            "broccoli": "broccoli",
            "eggplant": "eggplant",
            "mushroom": "mushroom",
            "cucumber": "cucumber",
            "pepper": "hot_pepper",
        },
    ),
    "dish": (
        "food",
        "table",
        {
            "pizza": "pizza",
            "burger": "hamburger",
            "taco": "taco",
            "hotdog": "hotdog",
            "cake": "birthday",
            "donut": "doughnut",
            "cookie": "cookie",
            "croissant": "croissant",
            "cheese": "cheese_wedge",
        },
    ),
    "drink": (
        "food",
        "table",
        {
            "coffee": "coffee",
            "beer": "beer",
            "wine glass": "wine_glass",
            "cocktail": "cocktail",
            "bottle": "baby_bottle",
        },
    ),
    "road vehicle": (
        "vehicle",
        "town",
        {
            "car": "car",
            "bus": "bus",
            "truck": "truck",
            "train": "steam_locomotive",
            "bicycle": "bike",
            "motorcycle": "racing_motorcycle",
            "tractor": "tractor",
            "ambulance": "ambulance",
            "scooter": "scooter",
        },
    ),
    "craft": (
        "vehicle",
        "water",
        {
            "airplane": "airplane",
            "helicopter": "helicopter",
            "rocket": "rocket",
            "sailboat": "boat",
            "canoe": "canoe",
            "ship": "ship",
        },
    ),
    "furniture": (
        "household thing",
        "home",
        {
            "chair": "chair",
            "bed": "bed",
            "sofa": "couch_and_lamp",
            "door": "door",
            "bathtub": "bathtub",
            "lamp": "bulb",
            "clock": "alarm_clock",
            "candle": "candle",
            "key": "key",
        },
    ),
    "clothing": (
        "household thing",
        "home",
        {
            "shirt": "shirt",
            "dress": "dress",
            "boot": "boot",
            "hat": "tophat",
            "scarf": "scarf",
            "sock": "socks",
            "crown": "crown",
            "umbrella": "umbrella",
            "handbag": "handbag",
        },
    ),
    "instrument": (
        "hobby thing",
        "home",
        {
            "guitar": "guitar",
            "violin": "violin",
            "drum": "drum_with_drumsticks",
            "trumpet": "trumpet",
            "saxophone": "saxophone",
            "piano": "musical_keyboard",
        },
    ),
    "gear": (
        "hobby thing",
        "home",
        {
            "hammer": "hammer",
            "axe": "axe",
            "saw": "carpentry_saw",
            "camera": "camera",
            "phone": "iphone",
            "laptop": "computer",
            "book": "closed_book",
            "football": "soccer",
            "basketball": "basketball",
        },
    ),
    "plant": (
        "outdoor thing",
        "field",
        {
            "tree": "deciduous_tree",
            "palm": "palm_tree",
            "cactus": "cactus",
            "rose": "rose",
            "sunflower": "sunflower",
            "tulip": "tulip",
        },
    ),
    "sky thing": (
        "outdoor thing",
        "field",
        {"sun": "sunny", "moon": "crescent_moon", "star": "star", "cloud": "cloud", "rainbow": "rainbow"},
    ),
    "building": (
        "outdoor thing",
        "town",
        {"house": "house", "church": "church", "castle": "european_castle", "tent": "tent", "fountain": "fountain"},
    ),
}

# the levels above a family; every path leaf -> family -> group -> kind -> "thing" has the same length
_GROUPS = {
    "being": "living thing",
    "animal": "living thing",
    "food": "artefact",
    "vehicle": "artefact",
    "household thing": "artefact",
    "hobby thing": "artefact",
    "outdoor thing": "surrounding",
}

HELD_OUT_SHARE = 0.1


@dataclass(frozen=True)
class Concept:
    """One noun of the embedded world.

    Attributes:
        id (`int`): its index in `CONCEPTS`, 0 based.
        name (`str`): singular noun, as a caption says it.
        family (`str`): the node above it in the is-a tree.
        context (`str`): where it is met; concepts of one context occur together more often than chance.
        emoji (`str`): short name of the emoji that draws it.
    """

    id: int
    name: str
    family: str
    context: str
    emoji: str


CONCEPTS: tuple[Concept, ...] = tuple(
    Concept(i, name, family, context, emoji)
    for i, (name, family, context, emoji) in enumerate(
        (name, family, context, emoji)
        for family, (_, context, members) in _FAMILIES.items()
        for name, emoji in members.items()
    )
)
NAMES: tuple[str, ...] = tuple(concept.name for concept in CONCEPTS)
FAMILIES: dict[str, tuple[int, ...]] = {
    family: tuple(c.id for c in CONCEPTS if c.family == family) for family in _FAMILIES
}
CONTEXTS: dict[str, tuple[int, ...]] = {
    context: tuple(c.id for c in CONCEPTS if c.context == context) for context in sorted({c.context for c in CONCEPTS})
}
PARENTS: dict[str, str] = (
    {c.name: c.family for c in CONCEPTS}
    | {family: group for family, (group, _, _) in _FAMILIES.items()}
    | _GROUPS
    | {kind: "thing" for kind in _GROUPS.values()}
)


def ancestors(name: str) -> list[str]:
    """The path from a concept (or an inner node) up to the root of the is-a tree, without the node itself.

    Args:
        name (`str`): a concept's name, a family, a group or a kind.

    Returns:
        `list[str]`: nearest first, ending in `"thing"`.

    Raises:
        KeyError: if there is no such node.

    Example:
        >>> ancestors("dog")
        ['mammal', 'animal', 'living thing', 'thing']
    """
    path = []
    while name != "thing":
        name = PARENTS[name]
        path.append(name)
    return path


@lru_cache(maxsize=1)
def held_out_pairs() -> frozenset[frozenset[int]]:
    """The pairs of concepts that training never shows or names together.

    A tenth of all pairs, chosen by a hash of the names, so that the choice depends on nothing else and stays the same
    when a concept is added.

    Returns:
        `frozenset[frozenset[int]]`: two-element sets of concept ids.
    """

    def unit(a: str, b: str) -> float:
        digest = hashlib.sha256("|".join(sorted((a, b))).encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64

    pairs = combinations(CONCEPTS, 2)
    return frozenset(frozenset((a.id, b.id)) for a, b in pairs if unit(a.name, b.name) < HELD_OUT_SHARE)
