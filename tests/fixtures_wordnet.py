"""A few lines in the form of WordNet's `data.noun` and `index.noun`."""

from __future__ import annotations

from pathlib import Path

DATA = (
    "00001740 03 n 01 entity 0 002 ~ 00015388 n 0000 ~ 00021939 n 0000 | that which exists",
    "00015388 03 n 02 animal 0 beast 0 002 @ 00001740 n 0000 ~ 02083346 n 0000 | a living organism",
    "00021939 03 n 01 artifact 0 001 @ 00001740 n 0000 | a man-made object",
    "01317541 05 n 02 domestic_animal 0 domesticated_animal 0 001 @ 00015388 n 0000 | tame",
    "02083346 05 n 02 canine 0 canid 0 001 @ 00015388 n 0000 | with nonretractile claws",
    "02084071 05 n 03 dog 0 domestic_dog 0 Canis_familiaris 0 004 @ 02083346 n 0000 @ 01317541 n 0000 "
    '%p 02158846 n 0000 + 01234567 v 0101 | a member of the genus Canis; "the dog barked all night"',
    "02120997 05 n 01 feline 0 001 @ 00015388 n 0000 | with retractile claws",
    "02121620 05 n 02 cat 0 true_cat 0 001 @ 02120997 n 0000 | a feline | with fur",
    "02958343 06 n 0b car 0 auto 0 automobile 0 machine 6 motorcar 0 a 0 b 0 c 0 d 0 e 0 f 0 001 @ 00021939 n 0000 "
    "| four wheels",
    "09213565 15 n 01 Cat 1 001 @i 00021939 n 0000 | the name of a ship",
)
INDEX = (
    "animal n 1 2 @ ~ 1 1 00015388  ",
    "car n 1 2 @ ~ 1 1 02958343  ",
    "cat n 2 1 @ 2 1 02121620 09213565  ",
    "dog n 1 3 @ %p + 1 1 02084071  ",
    "domestic_dog n 1 1 @ 1 0 02084071  ",
)
LICENCE = "  1 This software and database is being provided to you, the LICENSEE  \n  2 by a test  \n"


def write_wordnet(folder: Path) -> Path:
    """Writes the two files and returns their folder."""
    folder.mkdir(parents=True)
    for name, lines in (("data.noun", DATA), ("index.noun", INDEX)):
        (folder / name).write_text(LICENCE + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder
