"""What a true negation may deny: vocabularies of nouns, with what is known of them.

Each noun has other names, kinds of thing that it is, words that make it likely to be in a picture though no caption
names it, and places where it is met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from .negate_words import singular


@dataclass(frozen=True)
class Noun:
    """Something that a true negation may deny.

    Attributes:
        name (`str`): how it is called in annotations.
        said (`str`): how a caption calls it; the name by default.
        others (`tuple[str, ...]`): other names of it and of its kinds.
        broader (`tuple[str, ...]`): what it is a kind of.
        likely (`tuple[str, ...]`): words whose picture is likely to show it, named or not.
        places (`tuple[str, ...]`): where it is met.
    """

    name: str
    said: str = ""
    others: tuple[str, ...] = ()
    broader: tuple[str, ...] = ()
    likely: tuple[str, ...] = ()
    places: tuple[str, ...] = ()

    def __post_init__(self):
        if not self.said:
            object.__setattr__(self, "said", self.name)

    @cached_property
    def names(self) -> frozenset[str]:
        """The last words of all its names, in the singular and as given: "dog" for "hot dog"."""
        last = {phrase.lower().split()[-1] for phrase in (self.name, self.said, *self.others)}
        return frozenset(last | {singular(word) for word in last})


# Words of captions that stand for a place. A thing of the vocabulary stands for the places where it is met.
PLACES = {
    "street": "street road sidewalk city town traffic intersection highway building crosswalk curb corner alley "
    "downtown parking garage driveway sign lane bridge church shop store market",
    "kitchen": "kitchen counter stove dishwasher cabinet countertop chef cook cooking fridge pan pot",
    "table": "table plate meal dinner lunch breakfast restaurant food dish salad soup tray dessert eating "
    "diner cafe meat vegetable bread cheese fries pasta coffee cutting fruit",
    "bathroom": "bathroom shower bathtub tub mirror restroom urinal commode towel",
    "home": "room bedroom living lamp pillow blanket sofa fireplace rug curtain house dresser television "
    "floor carpet apartment",
    "office": "office desk computer monitor work cubicle screen printer",
    "park": "park bench grass tree lawn playground yard garden path picnic",
    "farm": "farm barn hay pasture field fence grazing herd goat chicken pen",
    "wild": "zoo savanna safari enclosure wild desert forest jungle bush grassland river",
    "sport": "court game player ball match baseball tennis soccer team stadium racket bat trick ramp "
    "skateboarder pitcher",
    "water": "beach ocean sea water lake harbor shore sand wave river dock surfer pier boat sail",
    "snow": "snow slope skier mountain snowboarder ski hill winter",
    "sky": "sky airport runway cloud plane jet flying kite tarmac",
    "station": "station platform passenger luggage rail track railroad subway airport",
    "clothes": "suit shirt dress jacket coat hat scarf shoes wearing dressed groom bride",
}

PEOPLE = frozenset(
    "people person man woman boy girl child kid baby toddler infant lady guy gentleman adult teenager player "
    "skier surfer snowboarder skateboarder boarder rider cyclist bicyclist biker motorcyclist pedestrian crowd "
    "family couple team someone somebody batter pitcher catcher umpire chef cook waiter waitress worker officer "
    "policeman fireman firefighter soldier farmer student teacher doctor nurse musician singer artist guitarist "
    "drummer pianist violinist dancer friend mother father mom dad son daughter brother sister parent groom bride "
    "passenger driver customer vendor tourist athlete swimmer runner jogger hiker climber fisherman hunter "
    "audience spectator fan individual human sailor priest monk nun king queen shopper commuter referee coach "
    "lifeguard pilot astronaut scientist engineer carpenter plumber mechanic barber photographer journalist "
    "butcher baker cowboy clown magician juggler cashier clerk lawyer judge guard gardener painter patient jockey "
    "goalkeeper quarterback teammate opponent guest visitor neighbor".split()
)
_PEOPLE = " ".join(sorted(PEOPLE))
_PERSON_SIGNS = (
    "he she him her his they them their who whose male female group hand hands finger arm arms leg legs face foot "
    "feet riding wearing holding skiing surfing skateboarding snowboarding skating playing game match wedding "
    "parade party street crowded busy market restaurant playground traffic picnic meeting race being cooking "
    "baseball tennis soccer child's man's woman's person's"
)
_FOOD = "food fruit snack meal lunch dinner breakfast dessert dish vegetable veggie produce grocery buffet"
_ANIMAL = "animal pet wildlife creature livestock"
_VEHICLE = "vehicle traffic automobile transportation"

# name | said | other names / broader | likely with | places
_COCO = f"""
person||{_PEOPLE}/|{_PERSON_SIGNS}|street table park sport water snow station home
bicycle||bike cycle tricycle cyclist biker/{_VEHICLE}|cycling rack|street park
car||automobile taxi cab suv van sedan limo jeep minivan/{_VEHICLE}|street road highway parking intersection
  city|street
motorcycle||motorbike bike moped scooter motorcyclist biker/{_VEHICLE}||street
airplane||plane jet airliner jetliner aircraft biplane jumbo/{_VEHICLE}|airport runway tarmac flying|sky
bus||trolley coach decker/{_VEHICLE}|station|street station
train||locomotive engine tram subway railway railroad trolley caboose/{_VEHICLE}|track rail station|station
truck||pickup lorry trailer van tow/{_VEHICLE}|highway|street farm
boat||ship sailboat canoe kayak yacht ferry raft rowboat vessel sail/{_VEHICLE}|harbor marina dock pier|water
traffic light||light signal stoplight/|intersection traffic|street
fire hydrant||hydrant/||street park
stop sign||sign/|intersection|street
parking meter||meter/||street
bench||seat seating pew/|park|park street station
bird||pigeon seagull gull duck goose geese owl parrot eagle hawk chicken swan crow flock pelican finch
  sparrow/{_ANIMAL}|flying birdcage|park water wild sky
cat||kitten kitty feline tabby/{_ANIMAL}||home office
dog||puppy pup canine poodle hound terrier retriever corgi pug dachshund/{_ANIMAL}|leash|park home street water
horse||pony mare colt foal stallion equestrian jockey/{_ANIMAL}|carriage riding saddle|farm street
sheep||lamb ram ewe goat/{_ANIMAL}|herd wool|farm
cow||cattle bull calf ox steer/{_ANIMAL}|herd|farm
elephant||tusk trunk/{_ANIMAL}|herd|wild
bear||cub panda teddy/{_ANIMAL}||wild
zebra||/{_ANIMAL}|herd|wild
giraffe||/{_ANIMAL}|herd|wild
backpack||pack rucksack/bag luggage|hiking hiker student|street station snow
umbrella||parasol/|rain rainy|street water
handbag||purse bag tote/luggage||street station
tie||necktie bowtie bow/|suit|clothes office
suitcase||briefcase/luggage bag baggage|airport|station home
frisbee||disc disk/toy|toss catch catching throwing|park sport
skis||ski skier skiing/|slope|snow
snowboard||board snowboarder snowboarding/|slope|snow
sports ball|ball|football soccer baseball basketball tennis volleyball softball/toy|game match player batter
  pitcher racket court kick play playing swing bat bowling|sport park
kite||sail/toy|flying string|sky water park
baseball bat||bat/|baseball batter swing softball|sport
baseball glove||glove mitt/|baseball catcher softball|sport
skateboard||board skate skateboarder skateboarding longboard/|trick ramp|street sport park
surfboard||board surfer surfing surf/|wave|water
tennis racket||racket racquet/|tennis court|sport
bottle||beer/container|wine alcohol bar drink sink|table kitchen
wine glass||glass glasses/|wine|table
cup||mug glass/|coffee tea drink beverage breakfast|table office
fork||/utensil silverware cutlery|eating salad restaurant meal setting|table
knife||knives/utensil silverware cutlery|cutting sliced slice cut setting|table kitchen
spoon||/utensil silverware cutlery|soup cereal setting|table kitchen
bowl||/container|soup cereal salad|table kitchen
banana||/{_FOOD}|bunch|table kitchen
apple||/{_FOOD}||table kitchen
sandwich||burger hamburger sub bun/{_FOOD}||table
orange||citrus tangerine/{_FOOD}|juice|table kitchen
broccoli||/{_FOOD}|stir|table
carrot||/{_FOOD}|stew soup|table
hot dog||hotdog sausage dog frank/{_FOOD}|bun|table
pizza||/{_FOOD}|slice|table
donut||doughnut pastry/{_FOOD}|bakery|table
cake||cupcake pastry pie/{_FOOD}|birthday wedding party candle|table
chair||seat seating stool armchair recliner/furniture|table dining desk office restaurant|home table office
couch||sofa loveseat sectional seat/furniture|living lounge|home
potted plant||plant flower tree pot fern houseplant/||home office
bed||mattress bunk cot/furniture|bedroom blanket pillow sheets|home
dining table|table|desk counter/furniture|dining restaurant meal dinner plate bowl dish food cake glass cup wine
  chair eating|home
toilet||commode urinal/|bathroom restroom stall|bathroom
tv|television|screen monitor/electronics|wii video living|home
laptop||computer notebook macbook/electronics|desk typing|office home
mouse|computer mouse|mice/|computer desk laptop keyboard|office
remote|remote control|controller/|wii tv television couch|home
keyboard||piano keys/|computer laptop desk typing|office
cell phone||phone cellphone smartphone telephone iphone mobile/electronics|talking selfie|street office home
microwave||/appliance|kitchen|kitchen
oven||stove range/appliance|kitchen baking|kitchen
toaster||/appliance|toast kitchen|kitchen
sink||basin faucet/|bathroom kitchen restroom|bathroom kitchen
refrigerator||fridge freezer/appliance|kitchen magnet|kitchen
book||novel magazine notebook bookshelf bookcase/|reading library shelf|home office
clock||watch timepiece/|time tower|home office street
vase||pot jar/|flower bouquet rose|home table
scissors||shears/|cutting cut|office home
teddy bear||bear teddy plush stuffed/toy animal|child|home
hair drier|hair dryer|dryer drier blowdryer/|hair|bathroom
toothbrush||brush/|teeth brushing|bathroom
"""


def _parse(table: str) -> tuple[Noun, ...]:
    nouns = []
    for line in table.strip().replace("\n  ", " ").splitlines():
        name, said, names, likely, places = line.split("|")
        others, broader = names.split("/")
        cells = (tuple(cell.split()) for cell in (others, broader, likely, places))
        nouns.append(Noun(name, said, *cells))
    return tuple(nouns)


@lru_cache(maxsize=1)
def coco_nouns() -> tuple[Noun, ...]:
    """The 80 classes of COCO, under its names and in its order."""
    return _parse(_COCO)


@lru_cache(maxsize=1)
def scene_nouns() -> tuple[Noun, ...]:
    """The embedded world's concepts, each met where its family is."""
    from .concepts import CONCEPTS, ancestors

    nouns = []
    for concept in CONCEPTS:
        broader = {word for node in ancestors(concept.name)[:-1] for word in node.split()}
        nouns.append(Noun(concept.name, broader=tuple(sorted(broader)), places=(concept.context,)))
    return tuple(nouns)


def vocabulary_of(given: str | Sequence[str] | Mapping[str, Sequence[str]]) -> tuple[Noun, ...]:
    """A vocabulary from what `CaptionNegator` takes.

    Args:
        given: `"coco"`, `"scenes"`, nouns in the singular, or a mapping from noun to its other names.

    Returns:
        `tuple[Noun, ...]`

    Raises:
        ValueError: if it is unknown or empty, or an entry is no noun.
    """
    if isinstance(given, str):
        known = {"coco": coco_nouns, "scenes": scene_nouns}
        if given not in known:
            raise ValueError(
                f"vocabulary={given!r} is unknown, expected 'coco', 'scenes', a list of nouns or a mapping"
            )
        return known[given]()
    entries = given if isinstance(given, Mapping) else dict.fromkeys(given, ())
    if not entries:
        raise ValueError("the vocabulary is empty: at least one noun is needed")
    for name, others in entries.items():
        if isinstance(others, str):
            raise ValueError(f"the other names of {name!r} are one string: a list is wanted")
        for noun in (name, *others):
            if not isinstance(noun, str) or not noun.strip():
                raise ValueError(f"the vocabulary holds {noun!r}: each entry is a noun")
    return tuple(Noun(name, others=tuple(others)) for name, others in entries.items())
