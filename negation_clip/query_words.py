"""The words that `negation_clip.queries` knows: cues, names and idioms that hold one, words that end a clause.

Lower case, straight apostrophes. Nothing is computed here.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


# --- cues: of two phrases with the same beginning the longer one wins ---------------------------------------------

# They deny the noun phrase or the "-ing" clause that follows.
WITHOUT = _phrases(
    "without, w/o, w/out, with out, wihout, withot, witout, whithout, sans, minus, lacking, lacks, lack, lack of, "
    "a lack of, absence of, in the absence of, the absence of, excluding, excludes, exclude, omitting, omits, "
    "omit, leaving out, leaves out, leave out, instead of, in place of, rather than, as opposed to, free of, free "
    "from, devoid of, void of, empty of, clear of, bare of, bereft of, absent of, deprived of, stripped of, not "
    "including, not counting, filter out, get rid of"
)
# The same with a verb in the infinitive.
REFUSALS = _phrases("refuses to, refuse to, refused to, refusing to, fails to, fail to, failed to, unable to")
# The same at the beginning of a query, before "the", a plural or "-ing".
REQUESTS_TO_OMIT = _phrases("hide, remove, avoid, skip, ignore")
# Exceptions to what was said before them: absent, unless that was a denial itself ("empty except for a chair").
EXCEPTIONS = _phrases(
    "except for, except, excepting, with the exception of, other than, apart from, aside from, save for, besides"
)
# "everything but onions"; the pronoun itself names nothing.
TOTALS = _phrases("everything, anything, everyone, everybody, anyone, anybody, all, any, every")
NOBODY = _phrases("nobody, no one, noone, not a soul, not one person")
HARDLY = _phrases(
    "hardly any, barely any, scarcely any, hardly a, barely a, scarcely a, few or no, few if any, hardly anyone, "
    "hardly anybody, barely anyone, barely anybody, scarcely anyone, scarcely anybody, little or no, little to no"
)
ALMOST = _words("almost nearly virtually practically")
# How contractions look when the apostrophe is left out.
BARE_CONTRACTIONS = {
    word.replace("'", ""): word
    for word in _phrases(
        "isn't, aren't, wasn't, weren't, hasn't, haven't, hadn't, don't, doesn't, didn't, can't, couldn't, won't, "
        "wouldn't, shouldn't, mustn't, needn't, ain't"
    )
}
# "no sign of cars" is "no cars".
SIGNS_OF = _words("sign signs trace traces evidence hint hints view sight glimpse")
# What says, after "not", that something cannot be seen.
VISIBLE = _words("there present visible shown seen pictured depicted featured included displayed found spotted")
IN_SIGHT = _words("sight view frame shot picture image photo photograph scene background foreground distance")

# --- what holds a cue but denies nothing --------------------------------------------------------------------------

# What is written on signs; longer names are made from these ("no parking zone"), but not "no parking meter".
SIGN_TEXTS = _phrases(
    "no entry, no parking, no smoking, no trespassing, no stopping, no exit, no u-turn, no u turn, no limit, no "
    "access, no vacancy, no admittance, no littering, no loitering, no outlet"
)
NAMES = _phrases(
    "do not enter, don't walk, do not walk, do not disturb, do not cross, don't enter, don't disturb, no man's "
    "land, no mans land, no man is an island, not for sale, not in service, no frills, no kill, no bake, no mow, "
    "no name, no fly zone, no brainer, comic sans, sans serif, sans souci, noto sans, open sans, fira sans, "
    "ground zero, zero gravity, zero waste, zero degrees, coke zero, patient zero, year zero, minus sign, minus "
    "symbol, missing person, missing persons, missing link, middle of nowhere, middle of no where, road to "
    "nowhere, bridge to nowhere, never never land, have and have not, haves and have nots, never ending, absent "
    "minded, zero calories, zero emissions"
)
IDIOMS = _phrases(
    "no doubt, no matter, no wonder, no problem, no worries, no thanks, no thank you, no way, no idea, no big "
    "deal, no such luck, no time to, no end of, no end in sight, no stranger, no exception, no place like, like "
    "no other, no ordinary, no longer than, no later than, oh no, no no, yes or no, yes and no, no pain no gain, "
    "no strings attached, no offense, no pressure, no less, no less than, no fewer, no fewer than, no more no "
    "less, in no time, by no stretch, whether or not, or not, if not, why not, why don't, not only, not just, not "
    "merely, not simply, not solely, not to mention, not bad, not too bad, not half bad, not far, not so far, not "
    "too far, not long, not least, not the least, not unlike, not uncommon, not to scale, not to be missed, not a "
    "problem, not a big deal, not again, not sure, believe it or not, more often than not, last but not least, "
    "nothing if not, nothing like, nothing new, nothing short of, nothing special, nothing wrong, nothing less "
    "than, sweet nothing, sweet nothings, never mind, never fails, never gets old, never seen before, never "
    "before, never ever, never give up, never forget, now or never, better than never, without a doubt, without "
    "doubt, without question, without fail, without saying, without further ado, without exception, without "
    "equal, second to none, none the less, none the worse, can't help, cannot help, can't help but, can't wait, "
    "cannot wait, can't beat, can't get enough, can't go wrong, can't miss, can't stop, can't believe, can't "
    "decide, can't hide, cannot believe, couldn't agree more, couldn't care less, couldn't help, couldn't resist, "
    "don't worry, don't forget, don't miss, don't mind, don't know, do not know, don't care, don't remember, "
    "don't think twice, do not forget, do not miss, wouldn't mind, free and clear, free of charge, as is his "
    "wont, for lack of, but for, missing you, missing out"
)
# Double negations whose first word is no negator of its own, or whose second is no cue.
DOUBLE = _phrases(
    "no shortage of, no lack of, no absence of, no dearth of, no scarcity of, nothing missing, nothing without, "
    "cannot do without, can't do without, can't live without, cannot live without"
)
APPROXIMATE = _phrases(
    "no more than, not more than, at most, not many, not much, not all, not every, not everyone, not everybody, "
    "not everything, not enough, not always, not often, not a lot, not lots, less than, fewer than, not a few, "
    "not that many, not too many, not so many, not very many, not that much, not too much, not very much, not "
    "quite all, not nearly enough"
)
ONLY = _phrases(
    "nothing but, nothing except, nothing except for, nothing other than, nothing besides, nothing else, nothing "
    "more than, nothing apart from, nothing aside from, nobody but, nobody except, nobody other than, nobody else "
    "but, no one but, no one except, no one other than, no one else but, none but, none other than, no other "
    "than, only, solely, exclusively, just a, just an, just one, just the, just some, just my, just two, just "
    "three"
)
# "not very red" denies red, roughly; "not really red" denies it.
DEGREES = _words(
    "very so too that quite entirely fully completely exactly especially particularly necessarily precisely"
)
# "i cannot tell" says nothing of the picture.
THINKING = _words("find remember recall tell say think know believe decide wait help care mind understand")
QUANTITIES = _words("many much enough all every always")
# Before "few" they make it some.
SOME_FEW = _words("a the these those last first next every past")

# Heads of names made from a prohibition: "no dogs allowed sign".
SIGN_HEADS = _words(
    "sign signs signage symbol symbols sticker stickers notice notices placard placards poster posters signal "
    "signals button icon logo emoji label banner policy rule warning plaque flyer tape"
)
ZONE_HEADS = _words("zone zones area areas section lane lanes")
# What signs forbid, beside words in "-ing".
FORBIDDEN = _words(
    "entry access admittance vacancy u-turn u-turns uturn turn turns left right outlet exit through dogs pets "
    "dog pet bikes bicycles bicycle trucks food drink drinks cell phones phone photos photography cameras "
    "flash guns weapons skateboards skateboard fly drone drones shoes shirt wake entrance thoroughfare "
    "straight horn"
)
NOT_FORBIDDEN = _words("warning crossing neon wedding welcoming advertising working flashing glowing")
ZONES = _words("smoking parking fishing swimming hunting passing fly wake camping diving drone stopping standing")
# What is said or written is a name too.
SAYS = _words(
    "says say saying said reads reading titled called named labeled labelled spells spelling entitled marked "
    "words word text letters message slogan"
)
# "NO PARKING written on it"
WRITTEN = _words("written printed lettered embroidered")
MEDIA = _words("poster book cover album movie film logo song dvd cd novel game show t-shirt shirt soundtrack")
# A missing cat has its name on one of these.
POSTERS = _words("poster posters flyer flyers sign notice")

# "-free" that is about nothing to be seen.
NOT_VISIBLE = _words(
    "hands duty tax toll royalty copyright care cruelty risk stress rent scot sugar gluten fat dairy lactose "
    "alcohol caffeine nut allergy gmo bpa interest cost charge debt drug guilt worry trouble maintenance oil "
    "cage grain carbon emission chemical fragrance germ error bug ad pain wire"
)
# "X free" in two words, where X is something to be seen.
FREE_OF = _words(
    "people crowd car cars traffic smoke clutter dust plastic meat pet dog cat kid child litter cloud trash snow ice"
)
# "non-" that is part of a name.
NON_WORDS = _words(
    "alcoholic stick slip stop toxic fiction profit binary violent smoking smoker smokers dairy gmo fat skid "
    "woven verbal native existent linear vegetarian veg iron contact commercial standard traditional "
    "conventional uniform descript fungible refillable reflective resident player essential perishable "
    "denominational league political medical military governmental emergency returnable believer friction "
    "partisan invasive stretch"
)
# What comes after "empty except for" is there, and so it is after "a black cat except for".
EMPTY = _words("empty bare blank deserted plain naked nude bald vacant barren unfurnished alone abandoned solid")
COLOURS = _words("black white red blue green yellow brown grey gray orange purple pink")

# --- grammar ------------------------------------------------------------------------------------------------------

ARTICLES = _words("a an the")
POSSESSIVES = _words("its his her their my your our this that these those")
NUMBERS = _words("some many several numerous lots plenty two three four five six")
DETERMINERS = (
    ARTICLES
    | POSSESSIVES
    | _words(
        "any some one single visible other of even either actual each every many several few much more further "
        "additional another both"
    )
)
PRONOUNS = _words(
    "it he she they we you i him them us me himself herself itself themselves everything anything everyone "
    "something anyone someone there here there's theres there're it's i'm he's she's they're all"
)
BE = _words("is are was were am be been being")
AUXILIARIES = BE | _words("has have had having do does did can could will would shall should may might must")
FINITE = _words("is are was were has have had does do did can could will would wears holds carries")
# Before "not" they say that a verb follows.
MODALS = _words("do does did can could will would should may might must")
RELATIVES = _words("that which who that's thats who's whos which's")
# After "does not" and alone after "not", they lead to a thing and are no actions of their own.
SEEMING = frozenset({"appear", "seem", "happen"})
POSSESSION = _words(
    "have has had having own owns got get feature features featuring show shows showing contain contains "
    "containing include includes including depict depicts depicting display displays displaying see seeing "
    "wear wears wearing want need like wish bear bearing any"
)
# What may stand between two denials that cancel out: "cannot be without", "do not want to".
BETWEEN_DENIALS = ARTICLES | _words("be been being ever entirely completely have go want see got any to")
PREPOSITIONS = _words(
    "in on at under near by beside behind above below between among across along around through inside "
    "outside onto into against beneath underneath toward towards from during after before beyond upon within "
    "alongside atop amid amidst over past nearby throughout opposite down up off"
)
# Prepositions unless nothing follows: "nobody around", "lying down".
ADVERBS = _words(
    "here there around nearby inside outside anywhere whatsoever visible present shown seen pictured left now "
    "allowed please else"
)
PARTICLES = _words("on off up down out in")
CLAUSE_ENDS = _words(
    "but yet however though although while whereas because since unless until if when where with as whose "
    "plus despite then so except besides just who which who's whos"
)
CONJUNCTIONS = _words("and or nor and/or & n' plus")
FRAMES = _words(
    "picture image photo photograph scene pictures images photos photographs scenes shot snapshot pic pics "
    "view views close-up closeup"
)
# "show me …", "find a …": who asks for something; fillers go whatever follows.
REQUESTS = _words("show find search look looking give get see want need like")
AFTER_REQUESTS = DETERMINERS | FRAMES | _words("me us for to all")
FILLERS = _words(
    "please can could i we you me us is are was were am be do does did has have would to of for that and "
    "which what why how where also rather about"
)
# What leads over from the clause before to a denial: ", but there is", "that has".
GLUE = (
    RELATIVES
    | ALMOST
    | _words(
        "but and yet with there there's theres there're is are was were has have had having though although while "
        "however do does did being contains containing features featuring shows showing where a an when can could "
        "will would it's wearing so absolutely completely"
    )
)
# Before "the picture" and "it" in such a lead.
BEFORE_GLUE = _words(", ; . but and yet though although however that which where i please")
ING_NOUNS = _words(
    "building buildings ceiling wedding painting clothing furniture railing awning string ring king wing "
    "thing things spring swing evening morning earring earrings lighting seating bedding icing topping "
    "toppings frosting dressing stuffing lining sling ceilings paintings wings rings strings everything "
    "anything nothing something pudding herring duckling parking swimming living dining"
)
ED_NOUNS = _words("bed beds red shed sled seed weed reed feed speed breed bleed tweed hundred sacred naked steed")
PARTICIPLES = _words("worn made held lit shown drawn sat parked eaten thrown grown hung built")
# Where something is rather than what it does, before a preposition.
POSTURES = _words(
    "sitting standing lying laying resting leaning hanging parked placed located situated perched seated "
    "mounted stacked topped filled covered"
)
PEOPLE = _words("people men women children kids adults humans persons crowds")
# What does things: "without people walking", but "a man without a hat | riding a horse".
ANIMATE = PEOPLE | _words(
    "person man woman child kid boy girl boys girls baby babies adult human crowd anyone anybody dog dogs cat "
    "cats bird birds horse horses cow cows sheep animal animals player players car cars bus buses truck "
    "trucks train trains boat boats plane planes bicycles bikes water"
)
# Plurals that go with the noun after them.
PLURALS_IN_COMPOUNDS = _words("sports glass glasses news arms clothes jeans series species gas bus ads christmas")

# --- other languages ----------------------------------------------------------------------------------------------

# Words that are hardly English.
FOREIGN = _words(
    "ohne kein keine keinen keiner und nicht eine einen einem einer dem ist auf für zum zur über vom "
    "zonder geen niet een senza della nella nello degli gli questo nessun nessuna nessuno persone spiaggia "
    "avec une aucun aucune aux chien chienne plage personnes homme voiture voitures ningún ninguna ningun una "
    "personne perros perro gente playa gatos gato cocina nevera calle coche coches não uma pessoas praia nenhum "
    "nenhuma utan uden uten och ingen inga ett på bez żadnych ludzi žádný tanpa tidak dengan orang pantai "
    "nélkül fără ilman olmayan yok không và için"
)
# Words of other languages that English uses too, in names or otherwise: they only add up.
HALF_FOREIGN = _words(
    "die ein im am sin sans con la le el los las de du del un en et y na w do da di il lo e o van op te se "
    "som att au ni pas que por para mare hay den der das des les sur est het og dans nie femme rue sem mit"
)
# Denials that are all the grammar of a query such as "playa sin gente".
FOREIGN_DENIALS = _words("sin sans sem mit")
ENGLISH = _words(
    "a an the of with and on at without no not there that this by is are from for near under but or to two "
    "three who which his her its holding wearing"
)
FOREIGN_NAMES = _phrases(
    "las vegas, los angeles, el paso, el nino, el niño, la la land, sin city, sin bin, original sin, deadly sin, "
    "deadly sins, mortal sin, of sin, comic sans, sans serif, sans souci, die cast, el capitan, le mans, la "
    "croix, le creuset, en route, en suite, de facto, a la carte, à la mode, a la mode, du jour, au lait, tour de "
    "france, cirque du soleil, notre dame, costa del sol, playa del carmen, día de los muertos, dia de los "
    "muertos, cinco de mayo, paso doble, puerto rico, tierra del fuego, pico de gallo, arroz con pollo, chili con "
    "carne, dulce de leche, eau de toilette, crème de la crème, pas de deux, faux pas, joie de vivre, coq au vin, "
    "déjà vu, mit dome, de niro, van gogh, da vinci, rio de janeiro, les paul, big sur, hay bale, hay bales, des "
    "moines"
)
# Accents that English keeps.
LOANS = _words(
    "café cafés fiancé fiancée résumé crêpe crêpes jalapeño jalapeños piñata piñatas façade façades naïve "
    "décor sauté sautéed entrée entrées purée crème brûlée pâté soufflé soufflés éclair éclairs flambé touché "
    "cliché clichés matinée protégé señor señorita niño piñon açaí über doppelgänger château châteaux rosé "
    "papier-mâché mâché frappé ménage à déjà vu pokémon beyoncé zoë noël são zürich"
)
