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
    "without, w/o, w/out, with out, sans, minus, lacking, lacks, lack, lack of, "
    "a lack of, absence of, in the absence of, the absence of, excluding, excludes, exclude, omitting, omits, "
    "omit, leaving out, leaves out, leave out, instead of, in place of, rather than, as opposed to, free of, free "
    "from, devoid of, void of, empty of, clear of, bare of, bereft of, absent of, deprived of, stripped of, not "
    "including, not counting, filter out, get rid of"
)
# Those that cancel out with a denial before them: "no room lacks a window", but not "no food excluding bananas".
LACKING = _phrases(
    "without, w/o, w/out, with out, sans, lacking, lacks, lack, free of, free from, devoid of, void of, empty of, "
    "clear of, bare of, bereft of, deprived of, stripped of"
)
# The same with a verb in the infinitive.
REFUSALS = _phrases("refuses to, refuse to, refused to, refusing to, fails to, fail to, failed to, unable to")
# The same at the beginning of a query, before "the", a plural or "-ing".
REQUESTS_TO_OMIT = _phrases("hide, remove, delete, erase, forget, avoid, avoiding, skip, ignore, ignoring, hold")
# Exceptions to what was said before them: absent, unless that was a denial itself ("empty except for a chair").
EXCEPTIONS = _phrases(
    "except for, except, excepting, with the exception of, other than, apart from, aside from, save for, besides"
)
# "everything but onions"; the pronoun itself names nothing.
TOTALS = _phrases("everything, anything, everyone, everybody, anyone, anybody, all, any, every")
NOBODY = _phrases("nobody, no one, noone, not a soul, not one person")
# "nobody's swimming", but "nobody's dog"
NOBODY_IS = _phrases("nobody's, noone's, no one's, no-one's, nothing's, nobodys, noones, no ones")
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
# Other spellings of single words.
SPELLINGS = {
    "w/": "with",
    "w\\o": "w/o",
    "wearin": "wearing",
    "dosent": "doesn't",
    "dosen't": "doesn't",
    "doesnot": "doesn't",
}
# "no sign of cars" is "no cars".
SIGNS_OF = _words("sign signs trace traces evidence hint hints view sight glimpse")
# What says, after "not", that something cannot be seen.
VISIBLE = _words(
    "allowed permitted needed wanted required there present visible shown seen pictured depicted featured included "
    "displayed found spotted"
)
IN_SIGHT = _words("sight view frame shot picture image photo photograph scene background foreground distance")

# --- what holds a cue but denies nothing --------------------------------------------------------------------------

# What is written on signs; longer names are made from these ("no parking zone"), but not "no parking meter".
SIGN_TEXTS = _phrases(
    "no entry, no parking, no smoking, no trespassing, no stopping, no exit, no u-turn, no u turn, no limit, no "
    "access, no vacancy, no admittance, no littering, no loitering, no outlet, no internet connection"
)
NAMES = _phrases(
    "do not enter, don't walk, do not walk, do not disturb, do not cross, don't enter, don't disturb, no man's "
    "land, no mans land, no man is an island, not for sale, not in service, no frills, no kill, no bake, no mow, "
    "no name, no fly zone, no brainer, comic sans, sans serif, sans souci, noto sans, open sans, fira sans, "
    "ground zero, zero gravity, zero waste, zero degrees, coke zero, patient zero, year zero, minus sign, minus "
    "symbol, missing person, missing persons, missing link, middle of nowhere, middle of no where, road to "
    "nowhere, bridge to nowhere, never never land, have and have not, haves and have nots, never ending, absent "
    "minded, zero calories, zero emissions, 404 not found, page not found, file not found, not found error, not found "
    "page, no image available, no photo available, no caller id, no internet dinosaur, no poo shampoo, bar "
    "none"
)
# Names of things, books, films, bands and games.
TITLES = _phrases(
    "forget me not, forget me nots, touch me not, touch me nots, see no evil, hear no evil, speak no evil, doctors "
    "without borders, reporters without borders, engineers without borders, no country for old men, no time to "
    "die, no man's sky, no mans sky, no way home, not without my daughter, never let me go, never let go, never "
    "look back, never say never, never have i ever, never been kissed, rebel without a cause, girl with no name, "
    "man with no name, men without hats, no limits, no fear, no future, no nukes, no war, no hate, no scrubs, no "
    "surrender, no regrets, no mercy, no nonsense, no drama, no woman no cry, no justice no peace, nothing compares "
    "to you, nothing else matters, not guilty, not today satan"
)
IDIOMS = _phrases(
    "no doubt, no matter, no wonder, no problem, no worries, no thanks, no thank you, no way, no idea, no big deal, "
    "no such luck, no time to, no end of, no end in sight, no stranger, no exception, no place like, like no other, "
    "no ordinary, no longer than, no later than, oh no, no no, yes or no, yes and no, no pain no gain, no strings "
    "attached, no offense, no pressure, no less, no less than, no fewer, no fewer than, no more no less, in no "
    "time, by no stretch, whether or not, or not, if not, why not, why don't, not only, not just, not merely, not "
    "simply, not solely, not to mention, not bad, not too bad, not half bad, not far, not so far, not too far, not "
    "long, not least, not the least, not unlike, not uncommon, not to scale, not to be missed, not a problem, not a "
    "big deal, not again, not sure, believe it or not, more often than not, last but not least, nothing if not, "
    "nothing like, nothing new, nothing short of, nothing special, nothing wrong, nothing less than, sweet nothing, "
    "sweet nothings, never mind, never fails, never gets old, never seen before, never before, never ever, never "
    "give up, never forget, now or never, better than never, without a doubt, without any doubt, without any "
    "question, without doubt, without question, without fail, without saying, without further ado, without "
    "exception, without equal, second to none, save for later, apart from each other, apart from one another, none "
    "the less, none the worse, can't help, cannot help, can't help but, can't wait, cannot wait, can't beat, can't "
    "get enough, can't go wrong, can't miss, can't stop, can't believe, can't decide, can't hide, cannot believe, "
    "couldn't agree more, couldn't ask for, couldn't care less, couldn't help, couldn't resist, don't worry, don't "
    "forget, don't miss, don't mind, don't know, do not know, don't care, don't remember, don't think twice, "
    "do not forget, do not miss, wouldn't mind, free and clear, free of charge, as is his wont, for lack of, but for, "
    "all but forgotten, all but gone, all but empty, missing you, missing out, at least, everything but the kitchen "
    "sink, who doesn't love, who doesn't like, not your average, not your typical, not your usual, not your ordinary, "
    "not your everyday, who does not love, who does not like, who wouldn't love, who wouldn't want"
)
# Names of goods when a noun follows: "no iron shirt", but "a room with no iron".
GOODS = _phrases(
    "no iron, no slip, no sew, no pull, no contact, no drill, no show, no signal, no knead, no churn, no dig, no "
    "rinse, no wash, no spill, no fuss, no cook, no bark, no chew, no touch, no scratch, no tie shoelaces, no tie "
    "laces, no tie shoe laces, no tie blanket, no tie shoestrings"
)
# Double negations whose first word is no negator of its own, or whose second is no cue.
DOUBLE = _phrases(
    "no shortage of, no lack of, no absence of, no dearth of, no scarcity of, nothing missing, nothing without, "
    "never short of, not short of, hardly without, rarely without, seldom without, scarcely without, cannot do "
    "without, can't do without, can't live without, cannot live without"
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
# "cannot find any dogs"
FINDING = _words("find see spot notice detect locate found")
# After "does not" or "never" they deny again.
LACK = _words("lack lacks lacking exclude excludes omit omits avoid avoids miss misses")
QUANTITIES = _words("many much enough all every always")
# Before "few" they make it some.
SOME_FEW = _words("a the these those last first next every past")

# Politeness, of which nothing is to be seen.
POLITE = _phrases(
    "pls, plz, please, pretty please, thx, thanks, thank you, thank u, thanks in advance, many thanks, ty, tysm, hi, "
    "hello, hey, kindly, preferably, ideally, hopefully, if possible, if you can, if u can"
)

# Heads of names made from a prohibition: "no dogs allowed sign".
SIGN_HEADS = _words(
    "sign signs signage symbol symbols sticker stickers notice notices placard placards poster posters signal "
    "signals button icon logo emoji label banner policy rule warning plaque flyer tape"
)
# Those that a denial of a bare noun before them is written on, whatever it is: "no junk mail sticker".
BARE_SIGN_HEADS = _words("sign sticker symbol notice placard signage")
ZONE_HEADS = _words("zone zones area areas section lane lanes")
# What signs forbid, beside words in "-ing".
FORBIDDEN = _words(
    "entry access admittance vacancy u-turn u-turns uturn turn turns left right outlet exit through dogs pets "
    "dog pet bikes bicycles bicycle trucks food drink drinks cell phones phone photos photography cameras "
    "flash guns weapons skateboards skateboard fly drone drones shoes shirt wake entrance thoroughfare "
    "straight horn"
)
# Signs that are no prohibition: "no stop sign" denies one.
KINDS_OF_SIGNS = _words(
    "stop street road traffic neon warning welcome exit wooden metal wet shop store sale direction directional "
    "highway crossing speed yield dollar euro percent peace plus equal name open closed restaurant hotel bar cafe "
    "motel gas bus subway metro price bumper wall window car laptop brand company band movie film concert travel "
    "vintage election campaign political big small large old new hand handwritten painted led light lit illuminated "
    "visible street-name billboard advertising zodiac star v hashtag school zone construction detour wanted art "
    "motivational anime club music framed"
)
NOT_FORBIDDEN = _words("warning crossing neon wedding welcoming advertising working flashing glowing")
ZONES = _words("smoking parking fishing swimming hunting passing fly wake camping diving drone stopping standing")
# What is said or written is a name too.
SAYS = _words(
    "says say saying said reads reading titled called named labeled labelled spells spelling entitled marked "
    "words word text letters message slogan"
)
# In the titles of books and films, which denials of things hardly hold: "no room for love poster".
TITLE_WORDS = _words("for to me my you your us i it we like is are can let too enough more")
# "NO PARKING written on it"
WRITTEN = _words("written printed lettered embroidered")
MEDIA = _words(
    "poster book cover album movie film logo song dvd cd novel game show t-shirt shirt soundtrack band mural mug "
    "tattoo screenshot meme sticker lyrics figurine flag hoodie doormat"
)
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
    "people crowd car cars traffic smoke clutter dust plastic meat pet dog cat kid child litter cloud trash snow ice "
    "watermark logo text fog furniture"
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

# --- where a noun phrase without function words ends: "no fridge | white cabinets" ---------------------------------

ADJECTIVES = COLOURS | _words(
    "beige turquoise teal maroon violet big large small little tiny huge tall short long wide narrow old new young "
    "modern contemporary vintage antique retro rustic wooden golden metallic dark bright sunny cloudy rainy snowy "
    "foggy misty windy stormy beautiful pretty cute happy sad colorful colourful striped floral wavy curly blonde "
    "brunette bald bearded blurry shallow minimalist minimalistic cozy cosy elderly messy tidy dirty clean shiny "
    "realistic cinematic dramatic aerial lush fluffy furry fuzzy hairy thick thin fresh ripe giant massive enormous "
    "gigantic sandy rocky grassy dusty muddy leafy natural hardwood marble brick concrete leather denim velvet wicker "
    "oak crowded waterproof"
)
# Adjectives that may as well stand after what they describe: "no door open".
OTHER_ADJECTIVES = _words(
    "open empty full fine heavy solid plain real fake broken soft hard rough smooth round square sharp flat high low "
    "single double faux steep calm wild busy bare dead alive wet dry cold warm first second other more"
)
# With an adjective, and with a colour, they are one: "no year old kid", "no ice blue eyes".
BEFORE_ADJECTIVES = _words(
    "very too so really quite extra super half semi light deep pale hot brand life mile foot feet inch meter metre "
    "year years month day of to for or and"
)
BEFORE_COLOURS = _words("pitch jet snow ice sea navy lime baby sky blood cherry neon olive rose coal")
# Second halves of adjectives: "no snow covered trees".
COMPOUND_PARTICIPLES = _words(
    "covered filled shaped coloured colored sized based dried topped lined coated flavored flavoured themed baked "
    "fried painted mounted powered cooked roasted smoked glazed infused related faced legged haired eyed"
)
# Things that one has on or about oneself, and that hardly ever begin a compound: "no hat man", "no leash beach".
WHOLE = _words(
    "leash collar beard moustache mustache hat cap helmet shirt t-shirt jacket coat scarf tie dress skirt makeup "
    "make-up glasses sunglasses shoes mask jewelry jewellery necklace umbrella smile watermark caption text logo "
    "saddle harness background people person fridge refrigerator sofa couch roof fence traffic furniture clutter "
    "camera"
)
# What they do begin: "hat rack".
PARTS = _words(
    "rack racks stand stands shop store box case holder hook hooks button buttons sleeve sleeves pocket pockets bag "
    "bags tag tags stain stains band tag rings ring clip strap straps lens door doors handle shelf shelves drawer "
    "cushion cushions cover covers bed tile tiles post posts light lights cone cones jam sign signs lamp design box "
    "line lines frame message messages bubble book page field editor carrier carriers size code shoes magnet "
    "magnets owner owners trainer store pin pins clasp collar strings shirt shirts pants"
)
# Where or how a picture was taken; nothing that a keyword query denies in the end: "no dogs beach".
SETTINGS = _words(
    "beach beaches sunset sunrise forest woods street city desert mountain mountains lake sea ocean sky night winter "
    "summer autumn spring outdoors indoors outdoor indoor background portrait close-up closeup macro photo photos "
    "photograph photography wallpaper landscape illustration painting drawing sketch isolated vector 4k hd kitchen "
    "bathroom bedroom office garden countryside skyline interior exterior selfie aesthetic"
)
COMPOUND_SETTINGS = _phrases(
    "dog beach, ski mountain, shopping street, main street, high street, wedding photo, wedding photos, family "
    "photo, family photos, family portrait, group photo, oil painting, wall painting, passport photo, stock photo, "
    "home office, post office, box office, ticket office, roof garden, rose garden, vegetable garden, flower "
    "garden, old city, street photography, night sky, pencil drawing, inner city, theme city"
)
# After these alone, "not" denies nothing more: "not smiling | black hat".
INTRANSITIVE = _words(
    "smiling laughing sleeping running walking sitting standing flying swimming jumping barking crying moving dancing "
    "posing blinking talking working barefoot frowning raining snowing"
)
# Marks on pictures, which nobody asks for after "no text".
OVERLAYS = _words(
    "text texts watermark watermarks logo logos caption captions subtitle subtitles signature signatures timestamp "
    "border borders letters words writing lettering numbers typography blur noise grain filter filters"
)

# --- grammar ------------------------------------------------------------------------------------------------------

ARTICLES = _words("a an the")
POSSESSIVES = _words("its his her their my your our this that these those")
NUMBERS = _words("some many several numerous various lots plenty two three four five six")
DETERMINERS = (
    ARTICLES
    | POSSESSIVES
    | _words(
        "any some one single visible other of even either actual each every many several few much more further "
        "additional another both various"
    )
)
PRONOUNS = _words(
    "it he she they we you i i'd i'll we'd you'd him them us me himself herself itself themselves everything "
    "anything everyone something anyone someone there here there's theres there're it's i'm he's she's they're all"
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
    "wear wears wearing want need like wish bear bearing add use any"
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
    "allowed please else anymore altogether"
)
PARTICLES = _words("on off up down out in")
# The same where a phrase ends: "passing by", "a path leading through".
LOOSE_PARTICLES = _words("by past along through across over behind above below underneath")
# Nouns and adjectives in two words of which the second is no preposition.
COMPOUND_PREPOSITIONS = _phrases(
    "see through, close up, make up, pop up, push up, pull up, pick up, drive through, lace up, button down, roll up, "
    "built in, walk in, plug in, pull out, slip on, clip on"
)
# Of something that was named: "in the side of it".
PARTS_OF = _words("side sides middle center centre top bottom front back corner corners edge edges end rest surface")
CLAUSE_ENDS = _words(
    "but yet however though although while whereas because since unless until if when where with as whose "
    "plus despite then so except besides just who which who's whos"
)
CONJUNCTIONS = _words("and or nor and/or & n' plus +")
FRAMES = _words(
    "picture image photo photograph scene pictures images photos photographs scenes shot snapshot pic pics "
    "view views close-up closeup"
)
# How pictures are made: "photos not taken at night".
TAKEN = _words("taken shot captured photographed filmed recorded snapped")
# What leads from a picture to what is to be seen on it.
SHOWING = _words(
    "with of showing shows show containing contains contain featuring features feature depicting depicts depict "
    "including includes include having have has"
)
# Pronouns that stand for pictures: "skip anything with people".
ANY_PICTURES = _words("anything everything any all ones stuff those")
# "show me …", "find a …": who asks for something; fillers go whatever follows.
REQUESTS = _words("show find search look looking give get see want need like")
AFTER_REQUESTS = DETERMINERS | FRAMES | _words("me us for to all")
FILLERS = _words(
    "please can could i we you me us is are was were am be do does did has have would to of for that and "
    "which what why how where also rather about"
)
# Parts of who or what has or lacks something: "no hat | on his head".
BODY = _words(
    "head neck hand hands foot feet face back finger fingers wrist wrists arm arms shoulder shoulders lap body hair "
    "eyes eye ears ear nose mouth lips leg legs tail ankle ankles chest waist belly knees skin chin"
)
# What leads over from the clause before to a denial: ", but there is", "that has".
GLUE = (
    RELATIVES
    | ALMOST
    | _words(
        "but and yet with there there's theres there're is are was were has have had having though although while "
        "however do does did being contains containing features featuring shows showing where a an when can could "
        "will would it's wearing so absolutely completely got whose because since preferably ideally hopefully "
        "certainly definitely really literally obviously totally entirely basically truly simply actually surely "
        "clearly apparently honestly currently also perhaps maybe"
    )
)
# Before "the picture" and "it" in such a lead.
BEFORE_GLUE = _words(", ; . but and yet though although however that which where because since as like i please")
ING_NOUNS = _words(
    "building buildings ceiling wedding painting clothing furniture railing awning string ring king wing "
    "thing things spring swing evening morning earring earrings lighting seating bedding icing topping "
    "toppings frosting dressing stuffing lining sling ceilings paintings wings rings strings everything "
    "anything nothing something pudding herring duckling parking swimming living dining"
)
ED_NOUNS = _words("bed beds red shed sled seed weed reed feed speed breed bleed tweed hundred sacred naked steed")
PARTICIPLES = _words("took worn made held lit shown drawn sat parked eaten thrown grown hung built")
# Where something is rather than what it does, before a preposition.
POSTURES = _words(
    "sitting standing lying laying resting leaning hanging parked placed located situated perched seated "
    "mounted stacked topped filled covered"
)
PEOPLE = _words("people men women children kids adults humans persons crowds")
# What does things: "without people walking", but "a man without a hat | riding a horse".
ANIMATE = PEOPLE | _words(
    "person man woman child kid boy girl boys girls baby babies adult human crowd anyone anybody dog dogs cat cats "
    "bird birds horse horses cow cows sheep animal animals player players car cars bus buses truck trucks train "
    "trains boat boats plane planes bicycles bikes water passenger passengers guest guests worker workers student "
    "students tourist tourists visitor visitors customer customers pedestrian pedestrians swimmer swimmers surfer "
    "surfers skier skiers hiker hikers rider riders driver drivers soldier soldiers spectator spectators guy guys "
    "lady ladies friend friends toddler toddlers puppy puppies kitten kittens duck ducks fish insects"
)
# Plurals that go with the noun after them.
PLURALS_IN_COMPOUNDS = _words("sports glass glasses news arms clothes jeans series species gas bus ads christmas")

# --- other languages ----------------------------------------------------------------------------------------------

# Words that are hardly English.
FOREIGN = _words(
    "ohne kein keine keinen keiner und nicht eine einen einem einer dem ist auf für zum zur über vom zonder geen "
    "niet een senza della nella nello degli gli questo nessun nessuna nessuno persone spiaggia avec une aucun aucune "
    "aux chien chienne plage personnes homme voiture voitures ningún ninguna ningun una personne perros perro gente "
    "playa gatos gato cocina nevera calle coche coches não uma pessoas praia nenhum nenhuma utan uden uten och ingen "
    "inga ett på bez żadnych ludzi žádný tanpa tidak dengan orang pantai nélkül fără ilman olmayan yok không và için "
    "voglio hanno sono cani gatti finestre finestra sedie sedia tavolo macchina macchine albero alberi cappello "
    "capelli bambini bambino ragazza ragazzo uomo uomini niente nulla c'è c'e quiero tiene tienen lleva llevan nadie "
    "ninguno ventanas hombres sillas silla árbol arboles texto montaña montañas habitación habitacion ruedas toit "
    "texte arbres neige montagne chambres fenetre fenetres lunettes cheveux filles garcon enfants oiseau oiseaux n'y "
    "n'a n'est n'ont c'est d'un d'une qu'il hunde katze katzen menschen leute fenster halsband rauchen nao cachorro "
    "cachorros homem mulher carros cadeira cadeiras telhado janela janelas ninguém ninguem coleira huis hond honden "
    "baard mensen straat auto's roken bilar människor mennesker træer biler ragazze gatta"
)
# Two words that no English query has side by side.
FOREIGN_PAIRS = _phrases(
    "non ha, non ci, non si, non vedo, non indossa, non porta, non è, non e, non sta, non fa, non guarda, non "
    "sorride, non mostra, non contiene, non tiene, no veo, no esta, no está, no es, no lleva, a pas, y a, "
    "est pas, ont pas, ne porte, pas d, nao tem, nao ha"
)
# Endings of what Spanish and Portuguese name after "sin" and "sem".
IBERIAN_ENDINGS = _words("ro ra to ta do da no na jo ja go ga ca lo la os as es io ia so sa cho rro te he ne em")
# Words of other languages that English uses too, in names or otherwise: they only add up.
HALF_FOREIGN = _words(
    "die ein im am sin sans con la le el los las de du del un en et y na w do da di il lo e o van op te se som att "
    "au ni pas que por para mare hay den der das des les sur est het og dans nie femme rue sem mit maison ciel "
    "enfant fille frau nada hombre mensch persona imagen fleurs gens barbe testo carro collare stanza cielo zimmer "
    "baum himmel arbre chambre nieve hatt strasse ventana cuarto mujer"
)
# Endings that deny what stands before them.
TURKISH_WITHOUT = _words("sız siz suz süz")
# Denials that are all the grammar of a query such as "playa sin gente".
FOREIGN_DENIALS = _words("sin sans sem mit non pas hay")
ENGLISH = _words(
    "a an the of with and on at without no not there that this by is are from for near under but or to two "
    "three who which his her its holding wearing"
)
FOREIGN_NAMES = _phrases(
    "las vegas, los angeles, el paso, el nino, el niño, la la land, sin city, sin bin, original sin, deadly sin, "
    "deadly sins, mortal sin, of sin, comic sans, sans serif, sans souci, die cast, el capitan, le mans, la croix, "
    "le creuset, en route, en suite, de facto, a la carte, à la mode, a la mode, du jour, au lait, tour de france, "
    "cirque du soleil, notre dame, costa del sol, playa del carmen, día de los muertos, dia de los muertos, cinco de "
    "mayo, paso doble, puerto rico, tierra del fuego, pico de gallo, arroz con pollo, chili con carne, dulce de "
    "leche, eau de toilette, crème de la crème, pas de deux, faux pas, joie de vivre, coq au vin, c'est la vie, déjà "
    "vu, mit dome, de niro, van gogh, da vinci, rio de janeiro, les paul, big sur, hay bale, hay bales, hay stack, "
    "hay field, hay ride, hay barn, des moines, pas de chat, pas de trois, pas de quatre, grand pas, sine qua non, "
    "persona non grata, non sequitur, non stop, sin tax, sin wagon, sin eater, sem image, sem images"
)
# Accents that English keeps.
LOANS = _words(
    "café cafés fiancé fiancée résumé crêpe crêpes jalapeño jalapeños piñata piñatas façade façades naïve "
    "décor sauté sautéed entrée entrées purée crème brûlée pâté soufflé soufflés éclair éclairs flambé touché "
    "cliché clichés matinée protégé señor señorita niño piñon açaí über doppelgänger château châteaux rosé "
    "papier-mâché mâché frappé ménage à déjà vu pokémon beyoncé zoë noël são zürich"
)
