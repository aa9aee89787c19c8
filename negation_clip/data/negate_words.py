"""The words that the caption negator reads a caption by, and how they inflect.

Determiners, prepositions, verbs and the like tell where a noun phrase of a caption ends; a word in none of these lists
is taken as part of one.
"""

from __future__ import annotations

from functools import lru_cache

NUMBERS = frozenset("one two three four five six seven eight nine ten eleven twelve dozens hundreds".split())
MANY = frozenset("some many several few numerous various multiple other different lots plenty tons more".split()) | (
    NUMBERS - {"one"}
)
POSSESSIVES = frozenset("his her its their my your our".split())
# What a subject with these says may be denied of some and hold of the rest: "many dogs are not brown" contradicts
# nothing. The second kind stands before "of".
QUANTIFIERS = frozenset("some few most other many several numerous various multiple more lots plenty".split())
AMOUNTS = frozenset("lot lots plenty tons dozens hundreds thousands number variety majority half one".split())
# Pronouns whose denial has a word of its own.
NO_ONE = {
    "everyone": "no one",
    "everybody": "nobody",
    "everything": "nothing",
    "someone": "no one",
    "somebody": "nobody",
    "something": "nothing",
}
FLOATING = frozenset("all both each".split())  # "the dogs are all sitting"
SINGULAR = frozenset("a an one another this that each".split())
WHOLE = frozenset("all both each every most half either".split())  # "not all dogs" denies less than "no dogs"
DETERMINERS = SINGULAR | MANY | POSSESSIVES | WHOLE | frozenset("the these those any no".split())

PREPOSITIONS = frozenset(
    "in on at by with near under over above below behind beside besides between among amongst amidst through "
    "throughout along across around against into onto toward towards from inside outside beneath underneath atop "
    "past up down off for to of during like as within alongside amid upon aboard out via per w/".split()
)
_LONG = (
    "in front of,in back of,on top of,in the middle of,in the center of,in the corner of,on the side of,"
    "by the side of,at the side of,on the edge of,at the edge of,on the back of,in the back of,at the end of,"
    "at the top of,at the bottom of,on the bottom of,on the front of,at the base of,to the left of,to the right of,"
    "on the other side of,on either side of,to the side of,in the midst of,next to,close to,near to,out of,off of,"
    "along with,together with,in between,in to,on to,inside of,outside of,up to,up against,up on,up in,out on,out in,"
    "out into,over to,across from,away from,down by,down on,down in,in and out of,back to,instead of,because of,"
    "such as,full of,up and down,as well as"
).split(",")
# By their first word, the longest first.
LONG_PREPOSITIONS = {
    first: sorted((tuple(p.split()) for p in _LONG if p.split()[0] == first), key=len, reverse=True)
    for first in {p.split()[0] for p in _LONG}
}
# Prepositions that say where something is, so that "but not" may stand before them.
PLACE = frozenset(
    "in on at near under over above below behind beside between among through along across around against into onto "
    "toward towards inside outside beneath underneath atop past down up off alongside aboard within".split()
) | set(_LONG) - {"along with", "together with", "such as", "full of", "as well as", "instead of", "because of"}
# Of those, the ones that hold between two things side by side: "a dog on a sofa" shows a sofa.
BESIDE = frozenset(
    (
        "in,on,at,near,under,above,below,behind,beside,inside,atop,against,alongside,in front of,on top of,next to,"
        "close to,in the middle of,on the side of,on the edge of,at the edge of,to the left of,to the right of"
    ).split(",")
)
PARTICLES = frozenset(
    "together outside inside outdoors indoors away back around out up down off on over past along by nearby alone "
    "there here upside sideways abroad downhill uphill downtown overhead ahead apart forward backwards close asleep "
    "still everywhere somewhere home too also just only quite rather almost barely really quickly slowly later now "
    "again".split()
)
PRONOUNS = frozenset(
    "it they them he him she himself herself itself themselves we us i you me someone somebody something anything "
    "everyone everybody everything others what".split()
)
ADVERBS = frozenset(
    "almost barely just also still quite rather really only too now again always already partially".split()
)
RELATIVES = frozenset("that which who whom whose where when".split())
JOINING = frozenset("and or but nor yet while as because so if although though than &".split())
BE = frozenset("is are was were".split())
HAVE = frozenset("has have had".split())
MODAL = frozenset("can could will would may might must should".split())

# What ends a noun phrase.
CLOSED = PREPOSITIONS | JOINING | RELATIVES | BE | HAVE | MODAL | (PARTICLES - frozenset(("close", "home", "back")))
# Determiners that can be a whole noun phrase.
STAND_ALONE = frozenset("one another other others each some more all both".split())

# Nouns and adjectives that look like a verb's -ing form.
ING_NOUNS = frozenset(
    "building ceiling clothing evening morning wedding railing string ring king wing spring thing something anything "
    "nothing everything icing frosting lighting pudding awning bedding siding stuffing dressing topping stocking "
    "sling swing flooring paneling molding earring offspring seating sibling duckling darling topping "
    "toppings dumpling herring viking bling ping paving lightning interesting upcoming neverending charming amazing "
    "surprising clearing plumbing wiring rigging railing "
    "".split()
)
# These are verbs if they have an object ("crossing a street"), nouns otherwise ("a railroad crossing").
ING_EITHER = frozenset("crossing opening setting covering coating filling lining landing painting drawing".split())
# An -ing form that makes one noun with the word after it.
ING_COMPOUNDS = {
    first: frozenset(second.split())
    for first, second in (
        pair.split(":")
        for pair in (
            "living:room area space rooms quarters",
            "parking:lot lots meter meters garage space spaces sign signs area spot spots deck ticket voucher",
            "cutting:board boards",
            "dining:room table area hall set tables rooms car",
            "swimming:pool pools suit trunks",
            "shopping:bag bags center centers cart carts mall area plaza district basket street",
            "baking:sheet sheets dish pan pans tray soda",
            "cooking:pot pots pan pans utensils apron oil show class",
            "washing:machine machines",
            "sewing:machine",
            "fishing:rod rods pole poles boat boats net nets pier trip line",
            "sleeping:bag bags",
            "racing:bike bikes car cars motorcycle motorcycles track uniform suit event",
            "rocking:chair chairs horse",
            "running:track shoes water",
            "skating:rink park ramp",
            "skateboarding:park trick tricks ramp",
            "skiing:gear trip slope outfit",
            "serving:tray dish plate spoon trays platter",
            "drinking:glass glasses fountain water",
            "frying:pan pans",
            "mixing:bowl bowls",
            "measuring:cup cups tape",
            "wrapping:paper",
            "waiting:room area",
            "walking:path trail stick sign",
            "boarding:gate area pass",
            "landing:strip gear",
            "loading:dock platform area zone",
            "playing:field card cards",
            "watering:hole can",
            "rolling:hills pin suitcase",
            "folding:chair chairs bicycle table",
            "sliding:door doors",
            "crossing:sign guard light",
            "ironing:board",
            "changing:table room",
            "sitting:room area",
            "jumping:competition rope",
            "cleaning:supplies products",
            "gaming:console unit controller system",
            "shipping:container containers",
            "tea:set",
            "batting:cage helmet",
            "warning:sign signs",
            "eating:utensils utensil area",
            "paring:knife",
            "switching:station",
        )
    )
}
TRANSITIVE_ING = frozenset("holding wearing riding eating using playing carrying taking".split())
# Two words that are one verb: "a man cross country skiing".
VERBAL_PREFIXES = frozenset(
    "snow wind skate kite water wake body boogie paddle para jet sky cross country ice roller horse horseback bull "
    "rock base dirt mountain surf sand tail sight window down hang".split()
)
PREFIXED = frozenset(
    "boarding surfing skiing skating sailing riding gliding diving climbing biking jumping seeing shopping sledding "
    "fishing racing gating hilling".split()
)

VERBS = tuple(
    "accompany add adjust admire aim appear approach arrange ask attempt balance bark bathe beg bend bite blow "
    "board bounce bow browse brush build bump burn buy carry catch celebrate chase chat check chew chop clean "
    "climb close collect come compete consist contain cook cover crawl cross crouch cruise cry cuddle cut dance "
    "decorate deliver dig dine direct display dive do drag draw drink drive drop eat embrace enjoy enter "
    "examine exit face fall feature feed feel fight fill find fix flip float fly fold follow gallop gather gaze "
    "get give glide go grab graze greet grill grind grip groom grow guide hang haul head help herd hit hold "
    "hover hug include inspect iron jog juggle jump kick kiss kneel lay lead lean leap lick lie lift line "
    "listen load look lounge make march meet mix move munch nap navigate nibble nuzzle observe offer operate "
    "order overlook pack paddle paint park pass peel peer perform pet pick pitch place play plow point pose "
    "pour practice prepare present press pull purchase push put race raise reach read relax remove rest return "
    "ride rise roam roll rub run rush sail say scratch sell serve shake share shave shear shine shoot shop show "
    "sing sip sit skate skateboard ski sled sleep slice slide smell smile smoke sniff snowboard snuggle soar "
    "speak spin splash spray spread squat stand stare start stay steer step stick stir stop stretch stroll surf "
    "swim swing take talk taste teach tend throw toss touch tow trail travel trot try tug turn type unload use "
    "visit wade wait walk wander wash watch wave wear work wrap write yawn zoom".split()
)
# Third person forms that are as often the plural of a noun.
ALSO_NOUNS = frozenset(
    "displays drives fights helps hits kicks moves peels pulls returns rises sleds smells starts tosses tows tugs "
    "boards bows brushes buildings catches checks climbs cooks covers crosses cuts dives drinks drops faces feeds "
    "flies folds grills hands heads holds lands leads lies lights lines looks loads offers orders paints parks "
    "passes pets picks pitches places plants plays points poses presents races rests rides rolls runs sails shakes "
    "shares shops shots shows signs skates skis skateboards slices slides smiles smokes snowboards spins splashes "
    "spreads stands steps sticks stops strolls surfs swings talks tastes throws tours trails turns types uses visits "
    "walks watches waves works wraps".split()
)
# Past participles that may follow their noun ("a cat perched on"); "jumped" and the like are past tense there.
PARTICIPLES = frozenset(
    "prepared presented used rolled laid raised lifted bent crossed extended pointed arranged attached baked "
    "blocked broken built carved caught chained chopped clustered cluttered coated cooked covered crowded "
    "crushed cut put hit shut decorated depicted designed displayed docked drawn draped dressed driven eaten enclosed "
    "engulfed equipped fastened fenced filled flanked flooded flown folded framed fried frosted frozen "
    "garnished gathered grouped held housed huddled hung illuminated inserted kept laden lined lit littered "
    "loaded located made marked mixed moored mounted nestled packed painted parked perched piled pictured "
    "placed planted plated plugged poised posted preserved printed propped reflected ridden roasted scattered "
    "seated seen separated served set shaped shown silhouetted situated sliced smothered split sprinkled spread "
    "stacked stationed stocked stopped stored strapped stuck stuffed submerged surrounded suspended taken "
    "tethered tied tipped topped towed tucked wedged worn wrapped written".split()
)
_IRREGULAR_PAST = (
    "ate:eat,blew:blow,bought:buy,brought:bring,built:build,came:come,caught:catch,did:do,drank:drink,drew:draw,"
    "drove:drive,fell:fall,flew:fly,fought:fight,found:find,gave:give,got:get,grew:grow,held:hold,hung:hang,kept:keep,"
    "knelt:kneel,cut:cut,hit:hit,put:put,set:set,shut:shut,split:split,spread:spread,laid:lay,leapt:leap,made:make,met:meet,ran:run,rode:ride,sang:sing,sat:sit,saw:see,sold:sell,"
    "spoke:speak,stood:stand,stuck:stick,swam:swim,swung:swing,took:take,taught:teach,threw:throw,told:tell,went:go,"
    "wore:wear,wrote:write"
)
HAVE_DONE = frozenset(
    "been gone fallen landed stopped swung thrown hit caught come become begun taken put got gotten left lost run "
    "won eaten started finished".split()
)
ADJECTIVES = frozenset(
    "black white red green blue yellow orange brown grey gray pink purple silver gold golden beige tan dark light "
    "bright big large small little tiny huge giant tall short long old young new elderly clean dirty empty full open "
    "closed wet dry hot cold warm cool fresh wooden metal stone brick glass plastic paper round square striped plaid "
    "colorful pretty beautiful nice cute happy sad good bad busy quiet modern antique vintage ornate fancy plain "
    "shiny rusty rusted messy neat tidy cloudy sunny snowy rainy grassy rocky sandy dusty muddy foggy clear deep "
    "shallow high low left right front back side upper lower top bottom open raw ripe delicious tasty healthy whole "
    "half double single asian chinese professional electric digital wild fluffy furry fat thin skinny lone several "
    "very cross tall ready curious colored different various assorted".split()
)
# Other adjectives that often stand before "looking".
LOOKS = frozenset(
    "strange odd weird funny spooky scary creepy goofy silly angry mean tired serious unusual interesting regal "
    "fierce rustic expensive cheap comfortable cozy retro futuristic mad lonely lost tough rough gross appetizing "
    "yummy scruffy shabby stylish unique exotic ordinary normal average similar decent great better evil "
    "friendly".split()
)
COLORS = frozenset("black white red green blue yellow brown grey gray pink purple".split())

MASS = frozenset(
    "snow water grass food luggage furniture cheese broccoli rice sand bread fruit meat milk coffee tea beer wine "
    "juice hay dirt mud rain fog smoke traffic graffiti fur clothing butter ketchup mustard sauce soup pasta salad "
    "cream icing frosting bacon ham lettuce spinach corn garlic basil parsley pepperoni equipment trash garbage "
    "makeup sugar salt cereal gravy macaroni spaghetti silverware cutlery foliage vegetation shrubbery gravel "
    "concrete surf sunlight electronics soda yarn baseball tennis soccer golf artwork jewelry toast steam dust moss "
    "seaweed lace".split()
)
# These are without an article as often as with one: "a window of glass", "a glass".
MASS_TOO = frozenset(
    "ice art hair chocolate sausage chicken beef wood metal glass paper brush air light lighting basketball football "
    "straw cake pizza carpet tile stone brick leather plastic celery fabric turkey fish cloth".split()
)
PLURAL_ONLY = frozenset(
    "people men women children feet teeth geese mice sheep fish deer police cattle knives leaves wolves oxen skis "
    "scissors glasses pants jeans clothes shorts goggles binoculars headphones sunglasses personnel poultry calves "
    "halves loaves shelves scarves wives".split()
)
NOT_PLURAL = frozenset(
    "ferris bus grass glass dress cross tennis class mattress cactus lens canvas christmas series asparagus "
    "citrus octopus iris hummus moss ross swiss press mass business boss princess waitress compass fortress "
    "wilderness gas bass chess harness campus circus virus focus this its his as swans' hibiscus wii lettuce "
    "darkness lass news".split()
)
# Singular nouns that may stand bare after "and": "a knife and fork".
PAIRED = frozenset(
    "fork knife spoon tie coat hat jacket shirt cap vest saucer cup sink tub bathtub toilet shower mirror stove oven "
    "refrigerator microwave dishwasher mouse keyboard monitor laptop phone desk chair table lamp couch sofa bed "
    "dresser nightstand television tv fireplace rug helmet racket ball bat glove cat dog horse cow goat bird "
    "elephant giraffe zebra woman man boy girl child baby car truck bus bike bicycle motorcycle boat train umbrella "
    "backpack purse handbag bag bowl plate glass bottle vase flower plant tree bench house fence scarf sweater dress "
    "skirt suit belt fries bread sandwich pickle banana apple orange carrot donut drink salad book pen pencil "
    "notebook camera door window cabinet counter bridge street sidewalk lake river hill field beach towel sheet "
    "blanket pillow comb brush toothbrush toothpaste speaker printer clock candle calf foal lamb kitten puppy father "
    "mother son daughter".split()
)
# Heads that name a place in the picture, a measure or a time, not a thing that could be missing.
LIGHT = frozenset(
    "background foreground distance middle side sides front back top bottom edge end center corner day night "
    "afternoon evening morning noon dusk dawn sunset sunrise time row rows line half way air action display motion "
    "progress mid midair variety kind type view picture image photo photograph shot close-up closeup scene left "
    "right direction directions part place area position order use style lot bunch group couple pair piece pieces "
    "color colors size shape something thing things rest other others one ones each another fun turn turns process "
    "habitat setting case shade moment daytime nighttime summer winter spring fall autumn weather competition game "
    "match event trick tricks middle conditions years age lap arms mouth hand hands face head body reflection sun "
    "attempt".split()
)
FRAMES = frozenset(
    "picture image photo photograph shot view close-up closeup scene close painting drawing portrait pic snapshot "
    "overview up".split()
)
# "a group of people": what is denied is people.
GROUPS = frozenset(
    "group groups couple bunch crowd herd flock lot lots number variety assortment dozens tons plenty range array "
    "selection pair pairs mixture hundreds swarm pack gaggle handful row rows type types kind kinds sorts".split()
)
# Adjectives and nouns in -ly, which is otherwise the mark of an adverb.
NAMED_LY = frozenset(
    "family fly butterfly belly jelly lily assembly lovely friendly curly elderly ugly silly early hilly wooly bully "
    "chilly holly trolley daily homely cuddly bubbly".split()
)
ED_NOUNS = frozenset(
    "shred sacred hundred kindred watershed bloodshed seabed flowerbed speed breed steed moped biped".split()
)
# Singular nouns for several people, with a verb in the plural as often as not: "a couple cut a cake".
SEVERAL = frozenset("couple pair team crew family band".split())
# Who does what a verb says; "a man skis" is a sentence, "the traffic lights" is not.
LIVING = frozenset(
    "man woman boy girl person child kid baby toddler guy lady gentleman player skier surfer snowboarder "
    "skateboarder rider batter pitcher catcher umpire chef worker officer teenager adult mother father boarder "
    "cyclist dog cat horse cow bull elephant giraffe zebra bear bird sheep goat puppy kitten duck lion monkey herd "
    "group flock crowd couple team who he she it that".split()
)
NEGATION_CUES = frozenset(
    "no not without never nobody noone no-one none nothing neither nor nowhere cannot lacking lacks lack missing "
    "absent absence minus except excluding devoid excludes unlike non n't hardly".split()
)

_IRREGULAR = {
    "person": "people",
    "man": "men",
    "woman": "women",
    "child": "children",
    "mouse": "mice",
    "foot": "feet",
    "tooth": "teeth",
    "goose": "geese",
    "knife": "knives",
    "leaf": "leaves",
    "wolf": "wolves",
    "shelf": "shelves",
    "loaf": "loaves",
    "calf": "calves",
    "scarf": "scarves",
    "ox": "oxen",
}
_SAME = frozenset("sheep fish deer skis scissors broccoli squid aircraft people".split())


def with_article(noun: str) -> str:
    """The noun phrase with "a" or "an", by its sound; "any" before what has no singular.

    Example:
        >>> [with_article(noun) for noun in ("umbrella", "unicorn", "hourglass", "broccoli", "skis")]
        ['an umbrella', 'a unicorn', 'an hourglass', 'any broccoli', 'any skis']
    """
    last = noun.split()[-1].lower()
    if last in MASS or is_plural(last):
        return f"any {noun}"
    first = noun.lower()
    silent = first.startswith(("hour", "honest", "heir"))
    consonant = first.startswith(("uni", "use", "usu", "eu", "one", "ute", "uke", "u-"))
    consonant = consonant and not first.startswith(("unin", "unim"))
    return f"{'an' if silent or first[0] in 'aeiou' and not consonant else 'a'} {noun}"


def plural(noun: str) -> str:
    """The plural of a noun or a compound.

    Example:
        >>> [plural(noun) for noun in ("wine glass", "cherry", "knife", "potato", "sheep", "piano")]
        ['wine glasses', 'cherries', 'knives', 'potatoes', 'sheep', 'pianos']
    """
    *rest, last = noun.split()
    if last in _IRREGULAR:
        last = _IRREGULAR[last]
    elif last in _SAME or last in MASS or last in PLURAL_ONLY:
        pass
    elif last.endswith("y") and last[-2:-1] not in "aeiou":
        last = last[:-1] + "ies"
    elif last.endswith(("s", "ch", "sh", "x", "z")) or last in ("potato", "tomato", "mango", "hero", "buffalo"):
        last += "es"
    else:
        last += "s"
    return " ".join([*rest, last])


_SINGULARS = {several: one for one, several in _IRREGULAR.items()} | {
    "axes": "axe",
    "buses": "bus",
    "cactuses": "cactus",
    "octopuses": "octopus",
    "potatoes": "potato",
    "tomatoes": "tomato",
    "mangoes": "mango",
}
_ENDS_IN_IE = frozenset("cookie brownie smoothie veggie selfie hoodie movie birdie kiddie rookie zombie genie".split())


@lru_cache(maxsize=65536)
def singular(word: str) -> str:
    """The singular of one word, which may be one already.

    Example:
        >>> [singular(word) for word in ("buses", "children", "knives", "cherries", "cookies", "grass", "couches")]
        ['bus', 'child', 'knife', 'cherry', 'cookie', 'grass', 'couch']
    """
    if word in _SINGULARS:
        return _SINGULARS[word]
    if word in NOT_PLURAL or word in _SAME or word in PLURAL_ONLY or not word.endswith("s") or word.endswith("ss"):
        return word
    if word.endswith("ies") and len(word) > 4 and word[:-1] not in _ENDS_IN_IE:
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("sses", "ches", "shes", "xes", "zes")) else word[:-1]


def is_plural(word: str) -> bool:
    """Whether a word looks like the plural of a noun."""
    if word in PLURAL_ONLY:
        return True
    return word.endswith("s") and not word.endswith(("ss", "us", "'s")) and word not in NOT_PLURAL and len(word) > 3


def third_person(verb: str) -> str:
    """The form after "he": rides, catches, carries, does."""
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "ch", "sh", "x", "z", "o")) else "s")


def _past(verb: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    if verb in _DOUBLED:
        return verb + verb[-1] + "ed"
    return verb + "ed"


_DOUBLED = frozenset(
    "beg chat chop clip drag drop flip grab grin grip hug jog nap pat pet plan plot rub ship shop sip skip slip snap "
    "stir step stop tap top trot trip tug wrap zip".split()
)
BASE_OF = {third_person(verb): verb for verb in VERBS}
PAST_OF = {_past(verb): verb for verb in VERBS} | dict(pair.split(":") for pair in _IRREGULAR_PAST.split(","))
