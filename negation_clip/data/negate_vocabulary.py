"""What a true negation may deny: vocabularies of nouns, with what is known of them.

Each noun has other names, kinds of thing that it is, words that make it likely to be in a picture though no caption
names it, and places where it is met.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from .negate_words import ADJECTIVES, CLOSED, DETERMINERS, NEGATION_CUES, singular


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

    def named_by(self, words: Collection[str]) -> bool:
        """Whether one of these words, in the singular, is a name of it; of a person, any word for people."""
        return not self.names.isdisjoint(words) or self.name == PERSON and any(map(is_person, words))


PERSON = "person"


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
# More words for people: kin, ages, forms of address, jobs, ranks, roles, groups.
_MORE_PEOPLE = frozenset(
    "aunt auntie uncle niece nephew grandma grandpa grandmother grandfather granny grandad granddad nana "
    "granddaughter grandson grandparent grandchild grandchildren grandkid cousin sibling twin triplet relative "
    "husband wife wives spouse fiance fiancee boyfriend girlfriend newlywed widow mum mama mommy papa daddy "
    "stepmother stepfather teen tween preteen preschooler youth youngster adolescent newborn tot senior elder "
    "elderly retiree anyone anybody everyone everybody figure dude bro chick lad lass lassie fella fellow bloke "
    "chap gal folk mate buddy pal chum hippie punk cop constable sheriff deputy detective agent spy marine sergeant "
    "colonel lieutenant corporal cadet troop squad veteran recruit knight samurai ninja pirate guardian medic "
    "paramedic surgeon vet midwife physician therapist resident intern apprentice assistant attendant accountant "
    "consultant merchant tenant occupant participant contestant migrant immigrant servant peasant client recipient "
    "president senator diplomat candidate politician monarch prince princess duke duchess emperor empress pope "
    "bishop imam rabbi pastor clergy pilgrim geisha maid butler valet bellhop janitor usher host hostess steward "
    "stewardess captain crew chauffeur cabbie barista sommelier busboy actress ballerina mime diva celebrity model "
    "mascot acrobat gymnast goalie goaltender shortstop halfback fullback cornerback matador shepherd boxer fighter "
    "lumberjack blacksmith scout hostage inmate thief beggar orphan scholar pupil graduate grad freshman sophomore "
    "faculty staff personnel colleague companion civilian citizen native tribe choir orchestra quartet quintet trio "
    "ensemble troupe congregation mob gang bachelor bridesmaid nanny stevedore passerby passersby bystander guide "
    "ref novice amateur expert champion roommate classmate housewife hero heroine villain santa witch paparazzi "
    "warrior heir youths bullfighter trooper merrymaker mayor chieftain".split()
)
_PEOPLE = " ".join(sorted(PEOPLE | _MORE_PEOPLE))
# Who acts, by the end of the word: a kayaker, a sculptor, a florist, a librarian, a mountaineer, a policewoman.
_WHO_ACTS = (
    "er",
    "or",
    "ist",
    "ian",
    "eer",
    "man",
    "men",
    "woman",
    "women",
    "person",
    "people",
    "boy",
    "girl",
    "child",
    "children",
)
# What ends so and is nobody: things, places, animals, verbs, comparatives.
_NOBODY = frozenset(
    "accelerator adder after alligator amber amplifier anchor another anther antler armor badger banister banner "
    "barrier beaker beaver beer better bigger binder blazer bleacher blender blister boiler bolder boulder border "
    "brighter broader broiler bumper bunker burger burner butter buzzer calculator camcorder camper cancer canister "
    "cater center chamber chandelier chapter character charger cheaper cheer cheeseburger chopper cider clever "
    "clipper closer cluster clutter coaster colander color compressor computer conditioner condor connector consider "
    "container conveyor cooker cooler copper copier copter cornflower corner corridor counter cover cracker crater "
    "cruiser cucumber cursor cutter cylinder dagger danger darker decor deer deliver detector diaper dimmer diner "
    "dinner disaster discover dishwasher dispenser divider door drawer dresser drier dryer dumpster duster earlier "
    "easier eager either elevator enter escalator eraser ever exterior extinguisher farther faster fatter favor "
    "feather feeder fender fertilizer fewer fiber filler filter finer finger flatter flavor flicker floor flounder "
    "flower flyer folder former freezer fritter fryer fuller further gather generator ginger girder glacier glider "
    "glitter grasshopper greater greener grinder gutter halter hammer hamper hamster hamburger hanger harbor heater "
    "heather heavier helicopter higher holder holster honor hopper horror hotter hover however humor humidifier "
    "hunger indicator inner interior juicer jumper ladder larger later lather latter lawnmower layer leather ledger "
    "leftover lesser letter lever lighter linger liquor liter litter lobster locker loafer longer louder lower lumber "
    "luster mailer maneuver manner manor marker matter meager meter mirror mixer motor mower muffler nearer neater "
    "neither never newer newspaper nicer number odor offer older opener order other otter outdoor outer over oyster "
    "pacifier paper parlor peeler pepper perimeter pier planner planter plaster platter plunger pointer poker poster "
    "powder power prayer printer processor projector propeller proper quarter quicker quiver radiator rafter rather "
    "razor reactor receiver recliner recorder refrigerator register remainder remember retriever richer river rocker "
    "roller rooster rotor router rubber rudder ruler rumor saber sander sandpaper scanner scissor scooter screwdriver "
    "sensor sever shaker sharper shatter shaver shelter shimmer shorter shoulder shower shredder shudder shutter "
    "silver simmer simpler skewer skyscraper slicer slider slipper slower smaller smoother sneaker softer sooner "
    "speaker spider spinner splatter splinter sprinkler stapler steamer steer sticker stopper stroller stronger "
    "stretcher suffer summer super supper sunflower suspender sweater sweeter taller tanker tater terror terrier "
    "theater thicker thinner thermometer thunder tiger tighter timber timer toaster together toner topper tower "
    "tracker tractor trailer transfer transformer trigger trimmer tumbler typewriter udder under upper utter vapor "
    "vigor visor voucher wafer warmer washer water weather wetter whether whisker whisper whiter wider wiener winter "
    "wonder wrapper younger zipper career pioneer sheer veneer assist checklist consist exist insist persist playlist "
    "resist twist waist wrist abdomen omen ottoman ramen regimen snowman snowmen specimen talisman asian amphibian "
    "brazilian canadian dalmatian egyptian hungarian indian italian meridian norwegian obsidian persian russian "
    "vegetarian victorian airliner jetliner freighter schooner trawler decanter doberman rottweiler schnauzer "
    "hairdryer barometer kilometer centimeter deeper".split()
)


@lru_cache(maxsize=65536)
def is_person(word: str) -> bool:
    """Whether a word in the singular is one for people, or ends like one for somebody who acts.

    It rather takes a thing for a person than a person for a thing: that a person is not denied is no fault.

    Example:
        >>> [is_person(word) for word in ("grandma", "kayaker", "florist", "policewoman", "tower", "wrist", "dog")]
        [True, True, True, True, False, False, False]
    """
    if word in PEOPLE or word in _MORE_PEOPLE:
        return True
    if len(word) < 5 or not word.endswith(_WHO_ACTS) or word in _NOBODY or word in _things():
        return False
    return word not in ADJECTIVES | CLOSED | DETERMINERS | NEGATION_CUES


@lru_cache(maxsize=1)
def _things() -> frozenset[str]:
    """Names of COCO's things, such as "toaster" and "retriever"."""
    return frozenset().union(*(noun.names for noun in coco_nouns() if noun.name != PERSON))


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
bicycle||bike cycle tricycle cyclist biker tandem unicycle bmx velocipede/{_VEHICLE}|cycling rack bicyclist rider
  biking|street park
car||automobile taxi cab suv van sedan limo jeep minivan coupe convertible hatchback roadster wagon hearse hotrod
  racecar sportscar hummer camaro mustang corvette ferrari porsche bmw toyota honda mercedes audi volkswagen chevy
  chevrolet ford tesla lexus prius beetle dodge buick cadillac crossover dragster buggy cruiser/{_VEHICLE}|street road
  highway parking intersection city motorist chauffeur cabbie driver carpool dealership windshield traffic
  driveway|street
motorcycle||motorbike bike moped scooter motorcyclist biker harley vespa chopper dirtbike ducati kawasaki yamaha
  suzuki sidecar triumph/{_VEHICLE}|rider biking motocross helmet|street
airplane||plane jet airliner jetliner aircraft biplane jumbo glider seaplane boeing airbus cessna bomber 747 warplane
  propeller/{_VEHICLE}|airport runway tarmac flying fighter pilot aviator stewardess hangar airline|sky
bus||trolley coach decker minibus omnibus shuttle schoolbus doubledecker greyhound/{_VEHICLE}|station busload|street
  station
train||locomotive engine tram subway railway railroad trolley caboose metro amtrak monorail streetcar freight boxcar
  express steamer/{_VEHICLE}|track rail station conductor railway|station
truck||pickup lorry trailer van tow semi firetruck dumptruck tractor rig flatbed engine wrecker tanker camper wheeler
  hauler bulldozer/{_VEHICLE}|highway trucker|street farm
boat||ship sailboat canoe kayak yacht ferry raft rowboat vessel sail gondola dinghy trawler tugboat tug catamaran
  schooner barge houseboat speedboat motorboat liner pontoon punt skiff sloop galleon longboat freighter steamer
  steamboat lifeboat sampan trimaran paddleboat hydrofoil watercraft armada/{_VEHICLE}|harbor marina dock pier kayaker
  kayaking canoeist canoeing rower rowing sailor sailing paddler boater boating fisherman angler gondolier ferryman
  regatta yachtsman captain skipper oarsman oarsmen|water
traffic light||light signal stoplight semaphore/|intersection traffic crossing|street
fire hydrant||hydrant fireplug/||street park
stop sign||sign/|intersection|street
parking meter||meter/||street
bench||seat seating pew settle bleachers bleacher/|park|park street station
bird||pigeon seagull gull duck goose geese owl parrot eagle hawk chicken swan crow flock pelican finch sparrow
  cockatoo cockatiel parakeet macaw budgie canary robin cardinal bluebird jay magpie raven rook heron egret crane
  stork ibis spoonbill flamingo ostrich emu penguin puffin peacock peahen turkey rooster hen cock duckling gosling
  mallard cygnet drake falcon osprey vulture condor kestrel buzzard woodpecker hummingbird swallow swift wren warbler
  starling blackbird thrush oriole kingfisher cormorant albatross tern sandpiper plover quail pheasant partridge
  grouse dove lark nightingale toucan kiwi cuckoo fowl poultry songbird raptor waterfowl tit loon roadrunner fledgling
  hatchling/{_ANIMAL}|flying birdcage nest feeder birdhouse|park water wild sky
cat||kitten kitty feline tabby siamese abyssinian calico tomcat persian sphynx ragdoll bengal coon tortoiseshell
  shorthair longhair tom moggy tortie manx burmese bobtail pussycat/{_ANIMAL}|litterbox litter|home office
dog||puppy pup canine poodle hound terrier retriever corgi pug dachshund doggy doggie pooch mutt mongrel husky
  labrador lab chihuahua bulldog bloodhound greyhound whippet spaniel beagle collie sheepdog rottweiler doberman
  schnauzer pinscher dalmatian mastiff dane pomeranian pekingese shitzu tzu maltese bichon frise malamute akita shiba
  inu samoyed setter pointer weimaraner vizsla newfoundland bernard shihtzu labradoodle goldendoodle cockapoo yorkie
  westie scottie papillon basset cocker spitz chow heeler kelpie wolfhound deerhound borzoi saluki cavapoo pitbull
  dingo stray/{_ANIMAL}|leash kennel fetch walker mushing shepherd boxer|park home street water
horse||pony mare colt foal stallion equestrian jockey filly gelding thoroughbred mustang bronco bronc steed palomino
  percheron friesian clydesdale appaloosa arabian pinto shetland racehorse workhorse equine yearling horseback
  cob/{_ANIMAL}|carriage riding saddle rider cowboy cowgirl rodeo polo dressage gallop galloping|farm street
sheep||lamb ram ewe goat merino bighorn mutton/{_ANIMAL}|herd wool shepherd shearing shearer|farm
cow||cattle bull calf ox steer heifer bullock bovine longhorn holstein angus yak zebu bison buffalo oxen highlander
  hereford/{_ANIMAL}|herd cowboy cowgirl rancher milking rodeo|farm
elephant||tusk trunk pachyderm calf mammoth jumbo/{_ANIMAL}|herd mahout|wild
bear||cub panda teddy grizzly kodiak koala polar bruin/{_ANIMAL}||wild
zebra||foal colt mare stallion/{_ANIMAL}|herd|wild
giraffe||calf/{_ANIMAL}|herd|wild
backpack||pack rucksack knapsack daypack bookbag haversack/bag luggage|hiking hiker student backpacker backpacking
  trekker|street station snow
umbrella||parasol brolly sunshade canopy/|rain rainy|street water
handbag||purse bag tote clutch satchel pocketbook shoulderbag/luggage|shopper|street station
tie||necktie bowtie bow cravat ascot tuxedo/|suit businessman groom tux|clothes office
suitcase||briefcase duffel carryon trunk valise/luggage bag baggage|airport traveler traveller|station home
frisbee||disc disk/toy|toss catch catching throwing|park sport
skis||ski skier skiing/|slope|snow
snowboard||board snowboarder snowboarding/|slope|snow
sports ball|ball|football soccer baseball basketball tennis volleyball softball golf rugby cricket handball beachball
  netball kickball dodgeball lacrosse/toy|game match player batter pitcher racket court kick play playing swing bat
  bowling goalie goalkeeper goaltender golfer bowler quarterback linebacker shortstop outfielder infielder cricketer
  footballer midfielder striker batsman golfing dribbling dribble dunk dunking dunks volley serve serving juggler
  juggling pitch kicks kicking putt putting keeper fielder goaltending basketballer hitter umpire|sport park
kite||sail parasail paraglider/toy|flying string|sky water park
baseball bat||bat/|baseball batter swing softball hitter cricketer batsman cricket slugger|sport
baseball glove||glove mitt/|baseball catcher softball shortstop outfielder infielder baseman pitcher fielder|sport
skateboard||board skate skateboarder skateboarding longboard pennyboard/|trick ramp skater kickflip ollie
  halfpipe|street sport park
surfboard||board surfer surfing surf longboard paddleboard bodyboard boogieboard/|wave bodyboarder paddleboarder
  windsurfer windsurfing|water
tennis racket||racket racquet/|tennis court badminton squash serve volley wimbledon|sport
bottle||beer flask thermos decanter carafe vial ketchup canteen flagon/container|wine alcohol bar drink sink champagne
  whiskey vodka liquor ketchup bartender sommelier vineyard lager|table kitchen
wine glass||glass glasses goblet flute stemware chalice tumbler champagne martini cocktail/|wine champagne merlot
  chardonnay sommelier|table
cup||mug glass teacup tumbler goblet espresso latte cappuccino chalice stein mocha macchiato tankard/|coffee tea drink
  beverage breakfast cocoa espresso latte cappuccino barista|table office
fork||pitchfork/utensil silverware cutlery|eating salad restaurant meal setting steak spaghetti pasta chopsticks
  lasagna dining|table
knife||knives dagger machete cleaver blade penknife switchblade pocketknife scalpel/utensil silverware cutlery|cutting
  sliced slice cut setting steak chef chopping carving slicing butcher|table kitchen
spoon||ladle teaspoon tablespoon/utensil silverware cutlery|soup cereal setting porridge oatmeal stew chili
  gumbo|table kitchen
bowl||tureen punchbowl/container|soup cereal salad ramen pho chili oatmeal porridge stew noodles gumbo salsa curry
  risotto|table kitchen
banana||plantain/{_FOOD}|bunch smoothie split sundae|table kitchen
apple||mcintosh fuji gala applesauce/{_FOOD}|orchard|table kitchen
sandwich||burger hamburger sub bun cheeseburger blt hoagie panini reuben wrap slider baguette bagel gyro pita whopper
  toastie cubano pastrami torta/{_FOOD}|fries deli|table
orange||citrus tangerine clementine mandarin satsuma/{_FOOD}|juice|table kitchen
broccoli||floret crucifer/{_FOOD}|stir salad stirfry|table
carrot||crudites/{_FOOD}|stew soup salad slaw coleslaw stirfry roast|table
hot dog||hotdog sausage dog frank bratwurst wiener frankfurter corndog brat weiner kielbasa chorizo/{_FOOD}|bun|table
pizza||margherita calzone pepperoni stromboli flatbread neapolitan/{_FOOD}|slice pizzeria pepperoni|table
donut||doughnut pastry cruller beignet eclair fritter churro krispy/{_FOOD}|bakery|table
cake||cupcake pastry pie cheesecake tart torte gateau tiramisu shortcake brownie muffin fruitcake bundt pavlova
  strudel meringue babka panettone cobbler/{_FOOD}|birthday wedding party candle baker confectioner|table
chair||seat seating stool armchair recliner rocker highchair wheelchair beanbag throne barstool deckchair lawnchair
  ottoman lounger chaise/furniture|lap table dining desk office restaurant barber dentist classroom barstool|home table
  office
couch||sofa loveseat sectional seat futon settee daybed chaise divan davenport sofabed lounge sleeper/furniture|living
  lounge lap|home
potted plant||plant flower tree pot fern houseplant cactus succulent bonsai orchid tulip rose daisy sunflower lily
  bouquet shrub bush ivy aloe geranium begonia ficus poinsettia violet carnation hydrangea palm petunia dahlia
  marigold daffodil iris lavender chrysanthemum peony topiary planter herb basil flowerpot seedling sapling
  vine/|gardener florist greenhouse gardening nursery|home office
bed||mattress bunk cot crib cradle hammock futon bassinet headboard bunkbed daybed sofabed playpen
  berth/furniture|bedroom blanket pillow sheets patient nap sleepover pajamas hotel|home
dining table|table|desk counter nightstand sideboard workbench countertop workstation tabletop/furniture|dining
  restaurant meal dinner plate bowl dish food cake glass cup wine chair eating diner banquet buffet feast supper
  picnic|home
toilet||commode urinal lavatory loo bidet latrine john potty outhouse lav/|bathroom restroom stall|bathroom
tv|television|screen monitor flatscreen telly hdtv projector/electronics|wii video living gamer gaming nintendo xbox
  playstation|home
laptop||computer notebook macbook chromebook ultrabook thinkpad netbook pc tablet/electronics|desk typing programmer
  coder|office home
mouse|computer mouse|mice trackball/|computer desk laptop keyboard gamer gaming programmer coder mousepad|office
remote|remote control|controller clicker wiimote gamepad joystick/|wii video tv television couch gamer gaming nintendo
  xbox playstation nunchuck|home
keyboard||piano keys synthesizer keypad/|computer laptop desk typing gamer gaming programmer coder pianist|office
cell phone||phone cellphone smartphone telephone iphone mobile android blackberry handset landline payphone nokia
  handphone galaxy/electronics|talking selfie texting|street office home
microwave||/appliance|kitchen|kitchen
oven||stove range cooktop hob kiln rotisserie grill tandoor aga burner/appliance|kitchen baking baker roast roasting
  pizzeria|kitchen
toaster||/appliance|toast kitchen|kitchen
sink||basin faucet washbasin washstand lavatory tap/|bathroom kitchen restroom plumber|bathroom kitchen
refrigerator||fridge freezer icebox minifridge/appliance|kitchen magnet|kitchen
book||novel magazine notebook bookshelf bookcase paperback textbook cookbook bible dictionary diary album encyclopedia
  comic hardcover storybook atlas scrapbook journal workbook hymnal/|reading library shelf librarian reader author
  classroom bookstore student novelist|home office
clock||watch timepiece wristwatch stopwatch alarm sundial hourglass chronometer chronograph rolex cuckoo
  pendulum/|time tower|home office street
vase||pot jar urn jug amphora/|flower bouquet rose florist|home table
scissors||shears clippers secateurs snips/|cutting cut barber hairdresser tailor haircut|office home
teddy bear||bear teddy plush stuffed plushie cuddly plushy/toy animal|child toy|home
hair drier|hair dryer|dryer drier blowdryer hairdryer hairdrier/|hair hairdresser salon|bathroom
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
