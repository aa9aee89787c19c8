from __future__ import annotations

import dataclasses
import doctest
import importlib.util
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from negation_clip import queries
from negation_clip.cli import main
from negation_clip.data import benchmarks
from negation_clip.data.concepts import NAMES
from negation_clip.evaluation.query import negation_spans, noun_phrase, split_query
from negation_clip.queries import MAX_CHARACTERS, NEGATION_CUES, Cue, fold, parse

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared reference data")

# By kind: a query, what must be absent, what must be present (None: open to taste), parts separated by "|".
NEGATED = {
    "keywords": [
        ("beach no people", "people", "beach"),
        ("mountain lake no boats", "boats", "mountain lake"),
        ("city street, no cars", "cars", "city street"),
        ("no people beach", "people", "beach"),
        ("no clouds blue sky", "clouds", "blue sky"),
        ("living room no tv no sofa", "tv|sofa", "living room"),
        ("no text no watermark no logo", "text|watermark|logo", ""),
        ("sunset no people no buildings", "people|buildings", "sunset"),
        ("birthday cake no candles white background", "candles", "birthday cake|white background"),
        ("dog not cat", "cat", "dog"),
        ("dogs NOT cats", "cats", "dogs"),
        ("Pizza, no pineapple!", "pineapple", "Pizza"),
        ("salad - no tomatoes", "tomatoes", "salad"),
        ("street (no cars)", "cars", "street"),
        ("bedroom / no windows", "windows", "bedroom"),
        ("forest path w/o hikers", "hikers", "forest path"),
        ("no dogs", "dogs", ""),
        ("office with zero plants", "plants", "office"),
        ("forest no snow", "snow", "forest"),
        ("wedding photo no groom", "groom", None),
        ("red car no logo", "logo", "red car"),
        ("street food no meat close up", None, None),
        ("beach no umbrellas no people", "umbrellas|people", "beach"),
        ("no dog park", "dog park", ""),
        ("cat no collar", "collar", "cat"),
        ("office, no computers, plants", "computers", "office|plants"),
        ("without people: city street", "people", "city street"),
        ("NO PEOPLE", "PEOPLE", ""),
        ("man no beard glasses", None, None),
        ("plain t-shirt no print", "print", "plain t-shirt"),
        ("christmas tree no lights", "lights", "christmas tree"),
        ("coffee no milk no sugar", "milk|sugar", "coffee"),
        ("Tokyo street without signs", "signs", "Tokyo street"),
        ("snowy mountain; no skiers", "skiers", "snowy mountain"),
        ("bridge | no boats", "boats", "bridge"),
        ("no trees, desert", "trees", "desert"),
        ("bare wall, no pictures", "pictures", "bare wall"),
        ("no people please", "people", ""),
        ("sofa without pillows white wall", "pillows", "sofa|white wall"),
        ("no text, no watermark, white background", "text|watermark", "white background"),
        ("humans: none", "humans", ""),
        ("pizza: no olives", "olives", "pizza"),
        ("hide cats", "cats", ""),
        ("avoid showing people", "people", ""),
        ("car with out wheels", "wheels", "car"),
        ("landscape {no humans}", "humans", "landscape"),
        ("no dogs just cats", "dogs", "cats"),
    ],
    "emoji and marks that nobody sees": [
        ("no \U0001f415 dogs in the park", "dogs", "park"),
        ("beach with no \U0001f3d6\ufe0f umbrellas", "umbrellas", "beach"),
        ("kitchen without\u200b a fridge", "fridge", "kitchen"),
        ("kitchen with\u00adout a fridge", "fridge", "kitchen"),
        ("kitchen without\x07 a fridge", "fridge", "kitchen"),
        ("beach no\u202e people", "people", "beach"),
        ("\u2068no\u2069 people on the beach", "people", "beach"),
    ],
    "seeming": [
        ("the kitchen does not appear to have a fridge", "fridge", "kitchen"),
        ("a dog that doesn't appear to be wearing a collar", "collar", "dog"),
        ("the kitchen doesn't seem to have a fridge", "fridge", "kitchen"),
        ("a room that does not seem to have any windows", "windows", "room"),
        ("a cat that didn't happen to have a tail", "tail", "cat"),
    ],
    "minus operator": [
        ('park -dog -"parked car"', "dog|parked car", "park"),
        ("park -dog running kids", "dog", "park|running kids"),
        ("cat -dog", "dog", "cat"),
        ('kitchen -"coffee maker" -knife', "coffee maker|knife", "kitchen"),
        ("-people beach", "people", "beach"),
        ("sunset \u2212boat", "boat", "sunset"),
        ("beach -umbrella palm trees", "umbrella", "beach|palm trees"),
        ("park -\u201cparked car\u201d", "parked car", "park"),
        ("cat !dog", "dog", "cat"),
        ("wardrobe -t-shirt", "t-shirt", "wardrobe"),
        ("dog -leash -collar", "leash|collar", "dog"),
        ("-cat dog", "cat", "dog"),
        ("living room -sofa tv", "sofa", "living room|tv"),
        ('"red car" -"blue car"', "blue car", "red car"),
        ("beach -people -umbrella sunset", "people|umbrella", "beach|sunset"),
        ("fruit bowl -'green apple'", "green apple", "fruit bowl"),
        ("cats, -dogs", "dogs", "cats"),
        ("well-lit room -lamp", "lamp", "well-lit room"),
        ("landscape --humans", "humans", "landscape"),
        ('landscape "mountain lake" -"power lines"', "power lines", None),
    ],
    "contractions": [
        ("the shop isn't open", "open", "shop"),
        ("the shop isn\u2019t open", "open", "shop"),
        ("the shop isnt open", "open", "shop"),
        ("the dog isn't sleeping", "sleeping", "dog"),
        ("a door that isn\u2019t closed", "closed", "door"),
        ("a boy who doesnt have shoes", "shoes", "boy"),
        ("people who aren't wearing masks", "masks", "people"),
        ("a cat that won't sit", "sit", "cat"),
        ("there aint any cars", "cars", ""),
        ("ain't no dogs here", "dogs", ""),
        ("the fountain doesn't contain water", "water", "fountain"),
        ("she hasn't got an umbrella", "umbrella", ""),
        ("a street where there werent any cars", "cars", "street"),
        ("a clock that doesn\u2019t work", "work", "clock"),
        ("you can't see any people", "people", ""),
        ("i dont want people in the picture", "people", ""),
        ("please don't show dogs", "dogs", ""),
        ("Beach. Don't include umbrellas.", "umbrellas", "Beach"),
        ("The lights aren't visible in the window", "lights", None),
        ("a woman who isn't smiling", "smiling", "woman"),
        ("a woman who isn\u2019t smiling", "smiling", "woman"),
        ("a woman who isnt smiling", "smiling", "woman"),
        ("the car hasn't got wheels", "wheels", "car"),
        ("kids that dont wear helmets", "helmets", "kids"),
        ("the bus wasn't red", "red", "bus"),
        ("a street that doesn't have cars", "cars", "street"),
        ("there isn't a cloud in the sky", "cloud", "sky"),
        ("there aren't any people here", "people", ""),
        ("a plane that can't fly", "fly", "plane"),
        ("a plane that cannot fly", "fly", "plane"),
        ("this kitchen hasn't any windows", "windows", "kitchen"),
        ("the room didn\u2019t have a bed", "bed", "room"),
        ("trees that havent got leaves", "leaves", "trees"),
        ("photos that don't contain text", "text", ""),
        ("a house that wasn't painted white", "painted white", "house"),
        ("I can't see a dog", "dog", ""),
        ("the tv isn't on", "tv on", "tv"),
        ("don't show me cats", "cats", ""),
        ("a kitchen that's not clean", "clean", "kitchen"),
        ("a kitchen thats not clean", "clean", "kitchen"),
    ],
    "exceptions": [
        ("fruit except bananas", "bananas", "fruit"),
        ("all animals except dogs", "dogs", "animals"),
        ("vegetables excluding carrots", "carrots", "vegetables"),
        ("a vehicle other than a car", "car", "vehicle"),
        ("everything but the dog", "dog", ""),
        ("anything but cats", "cats", ""),
        ("a salad with everything except onions", "onions", "salad"),
        ("pets apart from cats", "cats", "pets"),
        ("toys, not including dolls", "dolls", "toys"),
        ("birds with the exception of pigeons", "pigeons", "birds"),
        ("a breakfast that excludes eggs", "eggs", "breakfast"),
        ("no furniture except a bed", "furniture", "bed"),
        ("no animals other than a dog", "animals", "dog"),
        ("a bicycle instead of a car", "car", "bicycle"),
        ("tea rather than coffee", "coffee", "tea"),
        ("paper cups as opposed to plastic cups", "plastic cups", "paper cups"),
        ("all fruit except apples", "apples", "fruit"),
        ("everything except the kitchen sink", "kitchen sink", ""),
        ("flowers other than roses", "roses", "flowers"),
        ("animals excluding cats and dogs", "cats|dogs", "animals"),
        ("dogs, except poodles", "poodles", "dogs"),
        ("a drink other than water on a table", "water", "drink|table"),
        ("any animal but a cat", "cat", "animal"),
        ("every car except red ones", "red ones", "car"),
        ("vegetables aside from tomatoes", "tomatoes", "vegetables"),
        ("a dog instead of a cat", "cat", "dog"),
        ("instead of a car, a bicycle", "car", "bicycle"),
        ("no vehicles except bicycles", "vehicles", "bicycles"),
        ("a meal that excludes meat", "meat", "meal"),
        ("exclude people", "people", ""),
        ("street photos excluding cars", "cars", "street photos"),
        ("a room without furniture except a chair", "furniture", "room|chair"),
        ("cats in place of dogs", "dogs", "cats"),
        ("everyone but the bride", "bride", ""),
        ("red cars except a ferrari", "ferrari", "red cars"),
    ],
    "free of": [
        ("a road free of traffic", "traffic", "road"),
        ("a plate devoid of food", "food", "plate"),
        ("a square empty of people", "people", "square"),
        ("a beach clear of seaweed", "seaweed", "beach"),
        ("a sky void of clouds", "clouds", "sky"),
        ("a shallow area absent of water", "water", "shallow area"),
        ("a garden lacking flowers", "flowers", "garden"),
        ("a house that lacks a roof", "roof", "house"),
        ("a lack of furniture in the room", "furniture", "room"),
        ("a market in the absence of customers", "customers", "market"),
        ("a car-free street", "car", "street"),
        ("people-free beach at dawn", "people", "beach|dawn"),
        ("a chair-less room", "chair", "room"),
        ("glass-free picture frame", "glass", "picture frame"),
        ("non-yellow trucks", "yellow", "trucks"),
        ("a pizza minus the cheese", "cheese", "pizza"),
        ("an ice cream cone sans sprinkles", "sprinkles", "ice cream cone"),
        ("a sky free of clouds", "clouds", "sky"),
        ("a table clear of dishes", "dishes", "table"),
        ("a road empty of cars", "cars", "road"),
        ("a planet devoid of life", "life", "planet"),
        ("cloud-free sky over a lake", "cloud", "sky|lake"),
        ("a snow-free mountain", "snow", "mountain"),
        ("a beard-less man", "beard", "man"),
        ("non-wooden chairs", "wooden", "chairs"),
        ("a dish that lacks vegetables", "vegetables", "dish"),
        ("a face lacking expression", "expression", "face"),
        ("a kitchen in the absence of light", "light", "kitchen"),
        ("wall free from graffiti", "graffiti", "wall"),
    ],
    "missing": [
        ("a bike missing its front wheel", "front wheel", "bike"),
        ("a puzzle with a missing piece", "piece", "puzzle"),
        ("a house with the roof missing", "roof", "house"),
        ("the chairs are missing from the dining room", "chairs", "dining room"),
        ("a birthday table, candles missing", "candles", "birthday table"),
        ("a desk but the computer is absent", "computer", "desk"),
        ("a birthday party, the cake is nowhere to be seen", "cake", "birthday party"),
        ("a street with pedestrians absent", "pedestrians", "street"),
        ("a plate with the fork not visible", "fork", "plate"),
        ("a farm, tractor not in sight", "tractor", "farm"),
        ("a shelf where the books are not there", "books", "shelf"),
        ("the moon cannot be seen", "moon", ""),
        ("a car missing a door", "door", "car"),
        ("a face with an eyebrow missing", "eyebrow", "face"),
        ("a clock with no hands", "hands", "clock"),
        ("a clock missing its hands", "hands", "clock"),
        ("a doll with one arm missing", "arm", "doll"),
        ("keyboard with missing keys", "keys", "keyboard"),
        ("a bicycle whose front wheel is missing", "front wheel", "bicycle"),
        ("the sun is not visible", "sun", ""),
        ("a crosswalk, pedestrians are absent", "pedestrians", "crosswalk"),
        ("a bus stop where the bench is missing", "bench", "bus stop"),
        ("a picnic where food is nowhere in sight", "food", "picnic"),
        ("a parade with the band nowhere to be found", "band", "parade"),
        ("cups and plates are missing from the table", "cups|plates", "table"),
        ("a court, players not present", "players", "court"),
        ("an open window but the bench next to it is not present", "bench", "open window"),
        ("a cat sitting on top of a backpack that is missing", "backpack", "cat"),
        ("no dogs can be seen in the park", "dogs", "park"),
        ("a photo in which no dogs can be seen", "dogs", ""),
        ("in front of an absent crowd", "crowd", None),
        ("two trucks but none sitting in the street", "sitting in the street", "two trucks"),
        ("a maze with no exit", "exit", "maze"),
        ("a street with no parking meter", "parking meter", "street"),
    ],
    "pronouns": [
        ("nobody in the pool", "people", "pool"),
        ("no one on the bench", "people", "bench"),
        ("no-one on the stairs", "people", "stairs"),
        ("an office with nobody in it", "people", "office"),
        ("a swing with no one on it", "people", "swing"),
        ("not a soul on the beach", "people", "beach"),
        ("a street where nobody is walking", "people walking", "street"),
        ("none of the children are smiling", "smiling", "children"),
        ("none of the chairs have cushions", "cushions", "chairs"),
        ("not one car on the road", "car", "road"),
        ("a shop that is no longer open", "open", "shop"),
        ("a man never wearing a hat", "hat", "man"),
        ("nobody on the street", "people", "street"),
        ("No one in the classroom", "people", "classroom"),
        ("a bench with nobody sitting on it", None, "bench"),
        ("none of the windows are open", "open", "windows"),
        ("none of the dogs has a leash", "leash", "dogs"),
        ("a beach and nobody on it", "people", "beach"),
        ("there is nobody in the room", "people", "room"),
        ("a street without anyone", "people", "street"),
        ("a park without anybody in it", "people", "park"),
        ("there's no one at the table", "people", "table"),
        ("not a single person on the beach", "person", "beach"),
        ("a house that no longer has a roof", "roof", "house"),
        ("nobody is in the office", "people", "office"),
        ("an airport without a soul", "people", "airport"),
        ("nobody else in the room", "people", "room"),
        ("a group of people without anybody wearing a hat", "people wearing a hat", "group of people"),
        ("hardly a soul on the street", "people", "street"),
        ("barely anyone at the beach", "people", "beach"),
        ("neither of the dogs is brown", "brown", "dogs"),
    ],
    "lists": [
        ("table with plates but no forks or knives, and a candle", "forks|knives", "table|plates|candle"),
        ("a table without plates, forks or knives", "plates|forks|knives", "table"),
        ("a desk with no lamp, no phone and no computer", "lamp|phone|computer", "desk"),
        ("a room without chairs and without tables", "chairs|tables", "room"),
        ("a bowl with no apples, oranges, or pears", "apples|oranges|pears", "bowl"),
        ("a street with no cars, buses and trucks", "cars|buses|trucks", "street"),
        ("a street without cars, buses, and trucks", "cars|buses|trucks", "street"),
        ("a kitchen with neither a stove nor a sink", "stove|sink", "kitchen"),
        ("a room with neither windows nor doors", "windows|doors", "room"),
        ("a man without a hat, a coat or gloves", "hat|coat|gloves", "man"),
        ("a garden with no flowers nor trees", "flowers|trees", "garden"),
        ("no cats and dogs", "cats|dogs", ""),
        ("a meal without meat and/or fish", "meat|fish", "meal"),
        ("a woman without a scarf and gloves", "scarf|gloves", "woman"),
        ("neither a car nor a bus on the road", "car|bus", "road"),
        ("no cats or dogs", "cats|dogs", ""),
        ("a room without a bed, desk, or chair", "bed|desk|chair", "room"),
        ("soup without onions and garlic", "onions|garlic", "soup"),
        ("neither snow nor ice on the road", "snow|ice", "road"),
        ("a desk without a phone or a lamp", "phone|lamp", "desk"),
        ("a street with no people, no cars and no bikes", "people|cars|bikes", "street"),
        ("there are no chairs, no tables", "chairs|tables", ""),
        ("a farm with neither cows nor sheep nor pigs", "cows|sheep|pigs", "farm"),
        ("without trees or bushes, a plain field", "trees|bushes", "plain field"),
        ("a plate with neither rice or beans", "rice|beans", "plate"),
        ("a bag containing no books, pens or keys", "books|pens|keys", "bag"),
        ("a sandwich without lettuce, tomato and cheese", "lettuce|tomato|cheese", "sandwich"),
        ("a street with no cars and no people and many trees", "cars|people", "street|many trees"),
        ("a burger with no onions, no pickles, and extra cheese", "onions|pickles", "burger|extra cheese"),
        (
            "a plate of pasta without sauce, cheese or basil next to a fork",
            "sauce|cheese|basil",
            "plate of pasta|fork",
        ),
    ],
    "scope ends": [
        ("no parking sign with no cars under it", "cars", "no parking sign"),
        ("a park with no dogs but with children", "dogs", "park|children"),
        ("a table with no plates; a vase of flowers", "plates", "table|vase of flowers"),
        ("a man without a hat, holding an umbrella", "hat", "man|holding an umbrella"),
        ("a street without cars and with bicycles", "cars", "street|bicycles"),
        ("no dog. a red ball.", "dog", "red ball"),
        ("a room with no windows, and a big lamp", "windows", "room|big lamp"),
        ("a beach without people next to a lighthouse", "people", "beach|lighthouse"),
        ("a cake with no candles on a wooden table", "candles", "cake|wooden table"),
        ("a kitchen with no oven although there is a fridge", "oven", "kitchen|fridge"),
        ("no hat but a scarf", "hat", "scarf"),
        ("a road with no cars (and a bridge)", "cars", "road|bridge"),
        ("a woman with no bag and a red coat", "bag", "woman|red coat"),
        ("no snow, a green field", "snow", "green field"),
        ("a field without cows in front of a barn", "cows", "field|barn"),
        ("a café without people, with flowers on the tables", "people", "café|flowers|tables"),
        ("a table without a cloth but with a vase", "cloth", "table|vase"),
        ("a man with no hat and a blue shirt", "hat", "man|blue shirt"),
        ("a beach with no people, but a dog is running", "people", None),
        ("a garden without flowers; a fountain in the middle", "flowers", None),
        ("no dogs in the park", "dogs", "park"),
        ("no boats on a lake with mountains behind", "boats", None),
        ("a bus without passengers at a station", "passengers", "bus|station"),
        ("a kitchen with no stove, and a window over the sink", "stove", "kitchen|window|sink"),
        ("a hotel room without a tv, with a balcony", "tv", "hotel room|balcony"),
        ("a plate with no food next to a glass of milk", "food", "plate|glass of milk"),
        ("a woman without shoes walking on grass", "shoes", None),
        ("a cake without candles and with strawberries", "candles", "cake|strawberries"),
        ("a dog without a leash near a fence", "leash", "dog|fence"),
        ("a street with no cars. There are many trees.", "cars", "street|many trees"),
        ("a lamp without a shade, a book and glasses", None, None),
        ("no curtains on the windows", "curtains", "windows"),
        ("a city without skyscrapers under a blue sky", "skyscrapers", "city|blue sky"),
        ("a bike without wheels leaning against a wall", "wheels", "bike|wall"),
        ("a dog without a collar or leash sitting on a couch", "collar|leash", "dog|couch"),
        ("a man without his glasses on", "glasses", "man"),
        ("a man with no shoes or socks on", "shoes|socks", "man"),
        ("women without hats, men with hats", "hats", "women|men|hats"),
    ],
    "relative clauses": [
        ("a man who is not wearing a hat", "hat", "man"),
        ("a room that has no chairs", "chairs", "room"),
        ("a dog that does not have a collar", "collar", "dog"),
        ("a bus which isn't red", "red", "bus"),
        ("a house where there are no windows", "windows", "house"),
        ("a bowl that contains no soup", "soup", "bowl"),
        ("a child who has no shoes on", "shoes", "child"),
        ("a bench that nobody is sitting on", None, "bench"),
        ("a lamp which is not lit", "lit", "lamp"),
        ("a bridge that does not show any cars", "cars", "bridge"),
        ("a man that isn't holding a phone", None, "man"),
        ("a girl who does not wear glasses", "glasses", "girl"),
        ("a car that has no doors", "doors", "car"),
        ("a wall on which there are no pictures", "pictures", "wall"),
        ("a fridge that is not open", "open", "fridge"),
        ("a cup which contains no coffee", "coffee", "cup"),
        ("a street where there is no traffic", "traffic", "street"),
        ("a dog who isn't on a leash", "on a leash", "dog"),
        ("a cat that never sleeps", "sleeps", "cat"),
        ("shoes that do not have laces", "laces", "shoes"),
        ("a tree which has lost... no leaves", None, None),
        ("the people who are not dancing", "dancing", "people"),
    ],
    "actions": [
        ("holding a cup but not drinking", "drinking", "holding a cup"),
        ("a dog lying down, not running", "running", "dog lying down"),
        ("a man who refuses to eat", "eat", "man"),
        ("a girl sitting but not on a chair", "on a chair", "girl sitting"),
        ("a boy not looking at the camera", "looking at the camera", "boy"),
        ("a woman standing without smiling", "smiling", "woman standing"),
        ("a player who fails to catch the ball", "catch the ball", "player"),
        ("a cat not sleeping on the sofa", "sleeping on the sofa", "cat"),
        ("a man not playing the guitar", "playing the guitar", "man"),
        ("kids not in the water", "in the water", "kids"),
        ("a man holding a phone who does not talk on the phone", "talk on the phone", "man holding a phone"),
        ("a bird with wings spread but not flying", "flying", None),
        ("a boy holding a ball but not throwing it", "throwing it", "boy holding a ball"),
        ("a man standing, not sitting", "sitting", "man standing"),
        ("a dog running without a leash", "leash", "dog running"),
        ("a chef not cooking", "cooking", "chef"),
        ("a train not moving", "moving", "train"),
        ("a couple not holding hands", "holding hands", "couple"),
        ("a man on a bike not wearing a helmet", "helmet", "man|bike"),
        ("a woman looking at a menu without eating", "eating", None),
        ("birds not in flight", "in flight", "birds"),
        ("children not playing in the garden", "playing in the garden", "children"),
        ("a player not swinging the bat", "swinging the bat", "player"),
        ("a man who never smiles", "smiles", "man"),
        ("a house not made of wood", "made of wood", "house"),
        ("a street not crowded with people", "crowded with people", "street"),
        ("a bench not next to a tree", "next to a tree", "bench"),
        ("a dog playing but not with a ball", "with a ball", "dog playing"),
    ],
    "questions": [
        ("is there no dog?", "dog", ""),
        ("is there a room without windows?", "windows", "room"),
        ("why is there no cat on the sofa?", "cat", "sofa"),
        ("which photos have no people?", "people", ""),
        ("can you find a beach without people", "people", "beach"),
        ("show me kitchens without a fridge", "fridge", "kitchens"),
        ("i want a picture of a street with no cars", "cars", "street"),
        ("are there no cars?", "cars", ""),
        ("do you have pictures of cats without fur?", "fur", "cats"),
        ("where is a beach with no tourists", "tourists", "beach"),
        ("Find me photos of dogs that are not barking", "barking", "dogs"),
        ("looking for a house without a garage", "garage", "house"),
        ("please show streets with no cars", "cars", "streets"),
        ("give me a kitchen, no island", "island", "kitchen"),
    ],
    "typing": [
        ("BEACH WITHOUT PEOPLE!!!", "PEOPLE", "BEACH"),
        ("Kitchen Without A Fridge", "Fridge", "Kitchen"),
        ("\U0001f3d6\ufe0f no people", "people", None),
        ("kitchen without a fridge \U0001f642", "fridge", None),
        ("  a  park   without\tbenches ", "benches", "park"),
        ("kitchen,without a fridge", "fridge", "kitchen"),
        ("Beach... no people?", "people", "Beach"),
        ("kitchen \u2014 no fridge", "fridge", "kitchen"),
        ("a café without people", "people", "café"),
        ("a beach w/out umbrellas", "umbrellas", "beach"),
        ('"kitchen without a fridge"', "fridge", "kitchen"),
        ("Kitchen without a fridge.", "fridge", "Kitchen"),
        ("kitchen WITHOUT a fridge", "fridge", "kitchen"),
        ("kitchen without a fridge!!!???", "fridge", "kitchen"),
        ("\tkitchen\nwithout\na\nfridge ", "fridge", "kitchen"),
        ("kitchen -- no fridge", "fridge", "kitchen"),
        ("kitchen (without a fridge)", "fridge", "kitchen"),
        ("kitchen... without a fridge \U0001f600\U0001f600", "fridge", "kitchen"),
        ("dog \U0001f415 without a leash", "leash", None),
        ("kitchen without a fridge #kitchen", "fridge", None),
    ],
    "approximate": [
        ("a beach with hardly any people", "people", "beach"),
        ("barely any clouds in the sky", "clouds", "sky"),
        ("almost no snow on the roof", "snow", "roof"),
        ("a street with next to no traffic", "traffic", "street"),
        ("a desert with little to no vegetation", "vegetation", "desert"),
        ("scarcely any boats in the harbour", "boats", "harbour"),
        ("hardly any trees in the desert", "trees", "desert"),
        ("a street with almost no people", "people", "street"),
        ("a man with barely any hair", "hair", "man"),
        ("virtually no traffic on the highway", "traffic", "highway"),
    ],
    "mixed": [
        ("garden no gnome", "gnome", "garden"),
        ("desk setup no monitor no keyboard", "monitor|keyboard", "desk setup"),
        ("no crowds eiffel tower", "crowds", "eiffel tower"),
        ("portrait woman -hat -glasses", "hat|glasses", "portrait woman"),
        ('tree -"palm tree"', "palm tree", "tree"),
        ('-"stop sign" street corner', "stop sign", "street corner"),
        ("The kids aren\u2019t playing", "playing", "kids"),
        ("a cat that hasn\u2019t got a tail", "tail", "cat"),
        ("windows which dont have curtains", "curtains", "windows"),
        ("he isn't holding an umbrella", None, ""),
        ("every fruit except mangoes", "mangoes", "fruit"),
        ("a plate of food except peas", "peas", "plate of food"),
        ("birds excluding ducks, geese and swans", "ducks|geese|swans", "birds"),
        ("hillside free of trees", "trees", "hillside"),
        ("a harbour free from boats", "boats", "harbour"),
        ("an ice-free lake", "ice", "lake"),
        ("a pizza with neither olives, mushrooms, nor onions", "olives|mushrooms|onions", "pizza"),
        ("a tray without cups, saucers or spoons on a bed", "cups|saucers|spoons", "tray|bed"),
        ("a wall with no clock or calendar and a window", "clock|calendar", "wall|window"),
        ("a field with no fence, but with a tree", "fence", "field|tree"),
        ("a bedroom without a bed; a mattress on the floor", "bed", "bedroom|mattress|floor"),
        ("a car with no wheels. It is red.", "wheels", None),
        ("a house whose windows are not lit", "lit", None),
        ("a sofa on which nobody sits", None, "sofa"),
        ("a child who isn't wearing shoes or socks", "shoes|socks", "child"),
        ("a man with an umbrella who is not walking", "walking", "man|umbrella"),
        ("a swimmer who does not wear goggles", "goggles", "swimmer"),
        ("a waiter holding a tray without glasses", "glasses", None),
        ("is there a beach with no waves?", "waves", "beach"),
        ("A RED CAR WITH NO DOORS", "DOORS", "RED CAR"),
        ("a street,no cars", "cars", "street"),
        ("street w/o cars!!", "cars", "street"),
        ("not a single boat on the lake", "boat", "lake"),
        ("no animals whatsoever", "animals", ""),
        ("no food visible on the plate", "food", "plate"),
        ("a stage with nobody on it", "people", "stage"),
        ("a vase lacking any flowers", "flowers", "vase"),
        ("a jacket that lacks buttons", "buttons", "jacket"),
        ("the dog's leash is missing", None, None),
        ("a table with one chair missing", None, "table"),
        ("a meadow where there are no cows to be seen", "cows", "meadow"),
        ("a lake with absolutely no boats", "boats", "lake"),
        ("a train with zero passengers", "passengers", "train"),
        ("a mug that doesn't contain any coffee", "coffee", "mug"),
        ("a man without either shoes or a shirt", "shoes|shirt", "man"),
        ("a clean desk, never any paper", "paper", "clean desk"),
        ("a bird not sitting on a wire", "sitting on a wire", "bird"),
        ("a woman not in white", "in white", "woman"),
        ("snow without footprints", "footprints", "snow"),
        ("a bench with nothing on it", None, "bench"),
        ("an uncluttered desk with no monitor", "monitor", "uncluttered desk"),
        ("dishes other than pasta", "pasta", "dishes"),
    ],
}
# By kind: a query that denies nothing named, and what must be present.
AFFIRMATIVE = {
    "plain": [
        ("a kitchen", "kitchen"),
        ("a dog and a cat on a sofa", "dog|cat|sofa"),
        ("a photo of an elephant next to a car", "elephant|car"),
        ("", ""),
        ("without", None),
        ("no", None),
        ("not", None),
    ],
    "signs and names": [
        ("don't walk sign at a crossing", "don't walk sign|crossing"),
        ("no entry sign next to a bicycle", "no entry sign|bicycle"),
        ("no smoking sign on a wall", "no smoking sign|wall"),
        ("no dogs allowed sign at the park", "no dogs allowed sign|park"),
        ("no swimming sign at a lake", "no swimming sign|lake"),
        ("a do not disturb sign on a door", "do not disturb sign|door"),
        ("no left turn sign by the road", "no left turn sign|road"),
        ('a "no parking" sign', None),
        ("a sign that says no dogs", None),
        ("a t-shirt reading never give up", None),
        ("no man's land", "no man's land"),
        ("a no-fly zone map", None),
        ("no vacancy sign outside a motel", "no vacancy sign|motel"),
        ("Dr. No poster", None),
        ("No. 5 perfume bottle", "No. 5 perfume bottle"),
        ("no 7 bus at a stop", "no 7 bus|stop"),
        ("\u2116 3 on a door", None),
        ("the book Not a Box on a shelf", None),
        ("Not a Box", "Not a Box"),
        ('"No Country for Old Men" poster', None),
        ("forget-me-not flowers in a vase", "forget-me-not flowers|vase"),
        ("a no frills bathroom", None),
        ("a cabin in the middle of nowhere", None),
        ("missing cat poster on a tree", "missing cat poster|tree"),
        ("free parking garage", "free parking garage"),
        ("free range chickens", "free range chickens"),
        ("comic sans font", "comic sans font"),
        ("sans serif lettering", "sans serif lettering"),
        ("ground zero memorial", "ground zero memorial"),
        ("a minus sign", "minus sign"),
        ("no trespassing sign on a fence", "no trespassing sign|fence"),
        ("a no u-turn sign", "no u-turn sign"),
        ("a red no entry sign", "red no entry sign"),
        ("no diving sign by the pool", "no diving sign|pool"),
        ("do not enter sign", "do not enter sign"),
        ("don't feed the ducks sign", None),
        ("no pets allowed sign", "no pets allowed sign"),
        ("no cell phones sign", "no cell phones sign"),
        ("a sign saying no smoking", None),
        ("sign with the words do not touch", None),
        ("no-parking zone", "no-parking zone"),
        ("no food or drink sign in a museum", None),
        ("Chanel No. 5", None),
        ("Chanel No 5 bottle", None),
        ("house no. 12", None),
        ("platform no 9", None),
        ("Mr. No", None),
        ("Not Afraid album cover", None),
        ("Never Let Me Go book", None),
        ("forget-me-nots in a garden", None),
        ("a no-brainer", None),
        ("touch-me-not plant", "touch-me-not plant"),
        ("the Nothing Phone on a desk", None),
        ("no left turn traffic sign", None),
        ("no man is an island poster", None),
        ("a not-for-profit shop", None),
        ("knots and nots", None),
        ("Notting Hill street", "Notting Hill street"),
        ("a nobel prize medal", "nobel prize medal"),
        ("nowhere", None),
        ("a stop sign", "stop sign"),
        ("No Name brand chips", None),
        ("a sign with NO PARKING written on it", None),
        ("please do not sit sign on a chair", None),
        ("a don't panic button", "don't panic button"),
        ("the sign says no dogs but there is a cat", None),
        ("no-entry sign on a gate", "no-entry sign|gate"),
        ("an absent minded professor", None),
    ],
    "inside words": [
        ("nonstick pan on a stove", "nonstick pan|stove"),
        ("a knot in a rope", "knot|rope"),
        ("a notebook on a desk", "notebook|desk"),
        ("north pole", "north pole"),
        ("nontoxic paint", "nontoxic paint"),
        ("non-alcoholic beer", "non-alcoholic beer"),
        ("a wireless mouse on a desk", "wireless mouse|desk"),
        ("a sleeveless shirt", "sleeveless shirt"),
        ("a homeless man", "homeless man"),
        ("a seamless pattern", "seamless pattern"),
        ("stainless steel pot", "stainless steel pot"),
        ("a shirtless man on a court", "shirtless man|court"),
        ("a hands-free phone holder", "hands-free phone holder"),
        ("duty-free shop", "duty-free shop"),
        ("gluten free bread", "gluten free bread"),
        ("royalty free image of a dog", None),
        ("a canted roof", "canted roof"),
        ("snow on a wanted poster", "snow|wanted poster"),
        ("a noodle bowl", "noodle bowl"),
        ("another dog", "dog"),
        ("a nonstop flight", "nonstop flight"),
        ("an unlit candle", "unlit candle"),
        ("a leafless tree", "leafless tree"),
        ("a cordless drill", "cordless drill"),
        ("a strapless dress", "strapless dress"),
        ("a cantaloupe", "cantaloupe"),
        ("a topless tower", None),
        ("a freestyle swimmer", None),
        ("freezer full of ice", None),
        ("minuscule print", None),
        ("excluded", None),
        ("an exceptional view", None),
        ("a free-range hen", "free-range hen"),
        ("sugar-free soda", None),
        ("non-fiction books", None),
        ("non smoking area", None),
        ("canon camera", "canon camera"),
        ("a wont", None),
        ("a nun and a monk", "nun|monk"),
        ("snot", None),
        ("nothingness", None),
    ],
    "hyphens and dashes": [
        ("t-shirt on a line", "t-shirt|line"),
        ("x-ray of a hand", "x-ray of a hand"),
        ("well-lit room", "well-lit room"),
        ("thermometer at -20", None),
        ("temperature of -5 degrees", None),
        ("cat - portrait", "cat|portrait"),
        ("museum \u2013 main hall", "museum|main hall"),
        ("jack-o-lantern on a porch", "jack-o-lantern|porch"),
        ("black-and-white photo of a dog", None),
        ("a father-in-law with 2-3 dogs", None),
        ("- a dog", "dog"),
        ("wow! a dog", None),
        ("e-mail icon", None),
        ("a 20-30 year old man", None),
        ("dog \u2013 cat", "dog|cat"),
        ("-5 °C", None),
        ("ice cream - vanilla", "ice cream|vanilla"),
        ("Coca-Cola can", "Coca-Cola can"),
        ("x - y", None),
        ("a --- b", None),
        ("mid-air jump", None),
        ("-", None),
        ("rock-'n'-roll band", None),
        ("spider-man", "spider-man"),
    ],
    "idioms": [
        ("why not a beach", None),
        ("not bad for a cake", None),
        ("can't help smiling", None),
        ("a bride who couldn't be happier", None),
        ("no doubt a cat", None),
        ("whether or not it rains", None),
        ("last but not least a dog", None),
        ("isn't she lovely", None),
        ("cute dog, isn't it?", None),
        ("a house not far from the lighthouse", None),
        ("a sunset like no other", None),
        ("i can't wait for christmas", None),
        ("not only a dog but also a cat", "dog|cat"),
        ("no less than five dogs", None),
        ("at least three dogs", None),
        ("a never-ending staircase", None),
        ("not to mention the dogs", None),
        ("no wonder the cat is fat", None),
        ("a view not to be missed", None),
        ("don't worry be happy mural", None),
        ("no matter the weather", None),
        ("isn't it a lovely dog", None),
        ("a smile she can't hide", None),
        ("aren't they cute", None),
        ("couldn't be better weather", None),
        ("without a doubt a beagle", None),
        ("not just dogs", "dogs"),
        ("not only cats but dogs too", None),
        ("nothing beats a sunset", None),
        ("no fewer than three cats", None),
        ("no bigger than a coin", None),
        ("i can't find a picture of a red car", None),
        ("i don't know the name of this flower", None),
        ("oh no a dog", None),
    ],
    "only": [
        ("nothing but sand", "sand"),
        ("nothing except sand", "sand"),
        ("nothing other than sand", "sand"),
        ("an empty room except for a chair", "empty room|chair"),
        ("only sand", "sand"),
        ("just a dog", "dog"),
        ("a beach with nothing but palm trees", "beach|palm trees"),
        ("no one but a lifeguard", "lifeguard"),
        ("none other than a cat", "cat"),
        ("only dogs", "dogs"),
        ("nothing but blue sky", "blue sky"),
        ("a street with nothing but snow", "street|snow"),
        ("an empty table except for a cup", None),
        ("a black cat except for white paws", None),
        ("solely a chair", "chair"),
        ("an exclusively white room", None),
        ("a bare room apart from a bed", None),
        ("only a dog and nothing else", "dog"),
        ("nothing in the fridge except milk", "fridge|milk"),
    ],
    "double negation": [
        ("not without a hat", "hat"),
        ("a beach never without tourists", "beach|tourists"),
        ("no shortage of cats", "cats"),
        ("a street not lacking trees", "street|trees"),
        ("a shelf with no lack of books", "shelf|books"),
        ("a garden that is not free of weeds", "garden|weeds"),
        ("no dog without a leash", None),
        ("a team that isn't missing a player", None),
        ("no missing tiles", "tiles"),
        ("not without people", "people"),
        ("a street that isn't without trees", "street|trees"),
        ("never without an umbrella", "umbrella"),
        ("no lack of people", "people"),
        ("a man who is never without his hat", "man|hat"),
        ("no shortage of snow on the mountain", "snow|mountain"),
        ("no house without a garden", None),
        ("the dog is not missing", None),
        ("a kitchen that doesn't lack light", None),
        ("nobody without a mask", None),
        ("a room not devoid of furniture", "room|furniture"),
        ("not free of dust", "dust"),
    ],
    "quantities": [
        ("few people on the platform", None),
        ("a few people on the platform", None),
        ("no more than two dogs", None),
        ("not many boats in the harbour", None),
        ("not all of the lights are on", None),
        ("a barely visible moon", None),
        ("not many people", None),
        ("not all dogs", None),
        ("few cars", None),
        ("at most two dogs", None),
        ("fewer than three cats", None),
        ("not every window is open", None),
        ("quite a few people", None),
        ("a barely open door", None),
        ("not enough light", None),
    ],
    "mixed": [
        ("no loitering sign outside a shop", "no loitering sign|shop"),
        ("a no trucks allowed sign", "no trucks allowed sign"),
        ("no right turn sign on a pole", "no right turn sign|pole"),
        ("'do not enter' sign", None),
        ("a nonslip mat in a shower", "nonslip mat|shower"),
        ("a notepad and a pen", "notepad|pen"),
        ("cannon on a hill", "cannon|hill"),
        ("a northern cardinal", "northern cardinal"),
        ("a nobleman on a horse", "nobleman|horse"),
        ("a noodle soup without-borders logo", None),
        ("an all-in-one printer", "all-in-one printer"),
        ("a mid-century chair", "mid-century chair"),
        ("-10 degrees on a thermometer", None),
        ("Rolls-Royce on a road", "Rolls-Royce|road"),
        ("a dog \u2014 close up", None),
        ("not just a pretty face mug", None),
        ("nothing but trees as far as the eye can see", None),
        ("a field of nothing but tulips", None),
        ("no ordinary cat", None),
        ("not without its charm", None),
        ("a never ending road", None),
        ("hotel with no shortage of pillows", "hotel|pillows"),
        ("a man never without a cigar", "man|cigar"),
        ("no fewer than six boats", None),
        ("just sand", None),
        ("couldn't be a nicer day", None),
        ("don't you love sunsets", None),
        ("isn't this a cute puppy", None),
        ("The Neverending Story dvd", None),
        ("Dr No dvd cover", None),
        ("bus no. 42", None),
        ("a nought and a cross", None),
        ("an exit sign", "exit sign"),
        ("limitless sky", None),
        ("a boundless ocean", None),
    ],
}
FOREIGN = [
    "Küche ohne Kühlschrank",
    "der Hund ist nicht im Garten",
    "ein Strand ohne Menschen",
    "plage sans personnes",
    "un chien sans collier",
    "cuisine sans réfrigérateur",
    "playa sin gente",
    "no hay perros en la playa",
    "una cocina sin nevera",
    "spiaggia senza persone",
    "praia sem pessoas",
    "strand zonder mensen",
    "plaza bez ludzi",
    "pantai tanpa orang",
    "\u043f\u043b\u044f\u0436 \u0431\u0435\u0437 \u043b\u044e\u0434\u0435\u0439",
    "\u6ca1\u6709\u4eba\u7684\u6d77\u6ee9",
    "\u4eba\u306e\u3044\u306a\u3044\u30d3\u30fc\u30c1",
    "\u0634\u0627\u0637\u0626 \u0628\u062f\u0648\u0646 \u0646\u0627\u0633",
    "\ud574\ubcc0\uc5d0 \uc0ac\ub78c\uc774 \uc5c6\ub2e4",
    "Straße ohne Autos",
    "Hund ohne Leine",
    "ein Zimmer ohne Fenster",
    "keine Menschen am Strand",
    "une rue sans voitures",
    "il n'y a pas de chien",
    "perro sin correa",
    "calle sin coches",
    "montañas sin nieve",
    "una playa sin personas",
    "non c'è nessuno in spiaggia",
    "cane senza guinzaglio",
    "rua sem carros",
    "cachorro sem coleira",
    "hond zonder riem",
    "strand utan människor",
    "gata utan bilar",
    "\u0441\u043e\u0431\u0430\u043a\u0430 \u0431\u0435\u0437 \u043f\u043e\u0432\u043e\u0434\u043a\u0430",
    "\u72ac\u306a\u3057",
    "\u4e0d\u8981\u72d7\u7684\u516c\u56ed",
    "\uac1c\uac00 \uc5c6\ub294 \uacf5\uc6d0",
    "\u0915\u0941\u0924\u094d\u0924\u0947 \u0915\u0947 \u092c\u093f\u0928\u093e",
    "\u05db\u05dc\u05d1 \u05d1\u05dc\u05d9 \u05e8\u05e6\u05d5\u05e2\u05d4",
    "\u03c3\u03ba\u03cd\u03bb\u03bf\u03c2 \u03c7\u03c9\u03c1\u03af\u03c2 \u03bb\u03bf\u03c5\u03c1\u03af",
    "köpeksiz park yok",
    "đư\u1eddng ph\u1ed1 không có xe",
    "ulica bez samochodów",
    "koira ilman hihnaa",
    "ohne Hut",
    "ein Mann ohne Bart",
    "une femme sans chapeau",
    "maison sans fenêtre",
    "mujer sin sombrero",
    "uomo senza cappello",
    "mulher sem chapéu",
    "een man zonder hoed",
    "en man utan hatt",
    "człowiek bez kapelusza",
    "\u5e3d\u5b50\u3092\u304b\u3076\u3063\u3066\u3044\u306a\u3044\u7537",
    "\u0447\u0435\u043b\u043e\u0432\u0435\u043a \u0431\u0435\u0437 \u0448\u043b\u044f\u043f\u044b",
    "şapkasız adam yok",
    "mężczyzna bez kapelusza",
    "kein Baum",
]
ENGLISH = [
    "sans serif font on a poster",
    "sin city poster",
    "original sin painting",
    "a red die on a table",
    "die cast car",
    "las vegas at night",
    "el capitan in yosemite",
    "a café without people",
    "jalapeño peppers",
    "a naïve painting of a cat",
    "beach sans people",
    "art nouveau lamp",
    "man with a hat",
    "a sign with the word ohne",
    "dog \U0001f415 in the snow",
    "chili con carne in a bowl",
    "mit dome at night",
    "comic sans poster",
    "a sign in \u4e2d\u6587",
    "sin city casino",
    "a naïve art piece",
    "crème brûlée on a plate",
    "a résumé on a desk",
    "Beyoncé on stage",
    "São Paulo skyline",
    "Zürich old town",
    "der Kaiser portrait of a man",
    "la croix can on a table",
    "el paso texas",
    "Los Angeles skyline at sunset",
    "man in a hat",
    "war memorial",
    "a die",
    "gift box",
    "house on a hill",
    "a cafe sans chairs",
    "pho and banh mi",
    "sushi bento",
    "a piñata at a party",
    "ein",
    "kimono",
    "les paul guitar",
    "MIT campus in boston",
    "a hay bale",
    "Big Sur coast",
    "a den with a fire",
    "a man in a fedora",
    "an entrée on a plate",
    "El Niño damage",
    "pico de gallo bowl",
    "San Francisco",
    "ein stein mug",
]


def rows(table):
    return [pytest.param(*row, id=f"{kind}: {row[0]}") for kind, cases in table.items() for row in cases]


def concepts(parts):
    """Concepts without case, determiners and plural, which are open to taste."""
    found = set()
    for part in parts:
        words = re.findall(r"[\w'.-]+", part.lower())
        while len(words) > 1 and words[0] in (
            "a",
            "an",
            "the",
            "any",
            "some",
            "many",
            "several",
            "his",
            "her",
            "their",
        ):
            words = words[1:]
        words = [word[:-1] if re.search(r"[^s]s$", word) and len(word) > 3 else word for word in words]
        found.add(" ".join(words))
    return found - {""}


def check_consistency(text):
    query = parse(text)
    assert query == parse(text)
    assert query.original == text and query.text == fold(text)
    assert query.negated == bool(query.absent) == bool(query.cues) == (query.cue is not None)
    if query.negated:
        assert query.cues[0][:3] == (query.cue, *query.span)
        assert '"' not in query.kept and not query.unsupported_language
    else:
        assert query.span is None and query.kept == query.text
    for cue in query.cues:
        assert isinstance(cue, Cue) and text[cue.start : cue.end] == cue.text != ""
        assert 0 <= cue.phrase[0] <= cue.start < cue.end <= cue.phrase[1] <= len(text)
    assert all(concept and concept == concept.strip() for concept in query.present + query.absent)
    return query


def test_worked_examples():
    outcome = doctest.testmod(queries)
    assert outcome.failed == 0 and outcome.attempted > 0


@pytest.mark.parametrize(("text", "absent", "present"), rows(NEGATED))
def test_what_is_denied_and_what_is_kept(text, absent, present):
    query = check_consistency(text)
    assert query.negated
    if absent is not None:
        assert concepts(query.absent) == concepts(absent.split("|"))
    if present is not None:
        assert concepts(query.present) == concepts(present.split("|"))


@pytest.mark.parametrize(("text", "present"), rows(AFFIRMATIVE))
def test_nothing_named_is_denied(text, present):
    query = check_consistency(text)
    assert not query.negated and not query.unsupported_language
    if present is not None:
        assert concepts(query.present) == concepts(present.split("|"))


@pytest.mark.parametrize("text", FOREIGN)
def test_other_languages_are_told_and_not_read(text):
    query = check_consistency(text)
    assert query.unsupported_language and not query.negated
    assert query.present == query.absent == []


@pytest.mark.parametrize("text", ENGLISH)
def test_english_with_foreign_words_is_english(text):
    assert not check_consistency(text).unsupported_language


@pytest.mark.parametrize(
    ("text", "cues"),
    [
        ("kitchen without a fridge", [("without", 8, 15)]),
        ("beach no people", [("no", 6, 8)]),
        ("  beach   no  people", [("no", 10, 12)]),
        ("beach\tno\u3000people ", [("no", 6, 8)]),
        ("the shop isn't open", [("n't", 11, 14)]),
        ("the shop isn\u2019t open", [("n\u2019t", 11, 14)]),
        ("the  shop  isn\u2019t open", [("n\u2019t", 13, 16)]),
        ("the shop isnt open", [("nt", 11, 13)]),
        ("the shop is not open", [("not", 12, 15)]),
        ("a plane that cannot fly", [("cannot", 13, 19)]),
        ("table with plates but no forks or knives, and a candle", [("no", 22, 24)]),
        ("no parking sign with no cars under it", [("no", 21, 23)]),
        ("nobody in the pool", [("nobody", 0, 6)]),
        ("no one on the bench", [("no one", 0, 6)]),
        ('park -dog -"parked car"', [("-dog", 5, 9), ('-"parked car"', 10, 23)]),
        ("park -\u201cparked car\u201d", [("-\u201cparked car\u201d", 5, 18)]),
        ("\U0001f3d6\ufe0f no people", [("no", 3, 5)]),
        ("a car-free street, no dogs", [("-free", 5, 10), ("no", 19, 21)]),
        ("non-yellow trucks", [("non", 0, 3)]),
        ("a cat but the dog is missing", [("missing", 21, 28)]),
        ("a road free of cars and devoid of people", [("free of", 7, 14), ("devoid of", 24, 33)]),
        ("neither a cat nor a dog", [("neither", 0, 7)]),
    ],
)  # fmt: skip
def test_cues_are_where_they_stand_in_the_original(text, cues):
    assert [cue[:3] for cue in check_consistency(text).cues] == cues


def test_the_wording_of_a_cue_includes_its_verb():
    (cue,) = parse("a dog that does  not have a collar").cues
    assert cue.text == "not" and "a dog that does  not have a collar"[slice(*cue.phrase)] == "does  not have"
    assert split_query("a dog that does  not have a collar").cue == "does not have"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("kitchen without a fridge", "kitchen"),
        ("This image features a dog, but not a cat.", "This image features a dog"),
        ("table with plates but no forks or knives, and a candle", "table with plates, a candle"),
        ("a cake with no candles on a wooden table", "a cake on a wooden table"),
        ("a park with no dogs but with children", "a park with children"),
        ("a woman without glasses who is smiling", "a woman who is smiling"),
        ("a dog without a leash sitting on a couch", "a dog sitting on a couch"),
        ("a cat sitting next to a chair that is missing", "a cat sitting"),
        ("an owl-less old tree", "an old tree"),
        ("a car-free old road", "an old road"),
        ("a non-red apple", "an apple"),
        ("none of the dogs has a leash", "the dogs"),
        ("no one on the bench", "the bench"),
        ("no cars next to the river", "the river"),
        ('park -dog -"parked car"', "park"),
        ('"red barn" -cow', "red barn"),
        ("show me pictures with no people", ""),
        ("a picture without a dog", ""),
        ("a kitchen", "a kitchen"),
        ('a "no parking" sign', 'a "no parking" sign'),
    ],
)
def test_what_is_left_of_the_text(text, kept):
    assert check_consistency(text).kept == kept


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("nothing but sand", "only"),
        ("only a dog", "only"),
        ("an empty room except for a chair", "only"),
        ("no people, only trees", "only"),
        ("hardly any people on the beach", "approximate"),
        ("almost no snow", "approximate"),
        ("few people on the beach", "approximate"),
        ("not many boats", "approximate"),
        ("no more than two dogs", "approximate"),
        ("a not very tidy room", "approximate"),
        ("a few people on the beach", ""),
        ("no people on the beach", ""),
        ("not only dogs but also cats", ""),
        ("plage sans personnes", "unsupported_language"),
        ("a dog " * MAX_CHARACTERS, "truncated"),
    ],
)
def test_flags(text, flags):
    query = check_consistency(text)
    names = ("only", "approximate", "unsupported_language", "truncated")
    assert {name for name in names if getattr(query, name)} == set(flags.split())


def test_one_query_one_text_however_it_is_typed():
    typed = ("the shop isn't open", "the  shop isn\u2019t open", " the shop isn\u02bct\topen", "the shop isn`t open")
    readings = [parse(text) for text in typed]
    assert {query.text for query in readings} == {"the shop isn't open"}
    assert all(query.absent == ["open"] and query.present == ["shop"] for query in readings)


@pytest.mark.parametrize(
    "word", [*"abc", "no", "not a dog,", "isn't", "in", "a or b,", '-"', "'", "x-", "missing", "e\u0301"]
)
def test_long_texts_are_cut(word):
    text = f"{word} " * MAX_CHARACTERS
    query = check_consistency(text)
    assert query.truncated and query.text == fold(text)
    assert not parse("a " * (MAX_CHARACTERS // 2)).truncated
    assert parse("a dog, " * MAX_CHARACTERS + "no cat").absent == []


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_any_string_is_read(text):
    check_consistency(text)


WORDS = [
    *NEGATION_CUES,
    "-dog",
    "car-free",
    "missing",
    "everything",
    "but",
    "nothing",
    "only",
    "hardly",
    "non-red",
    "sign",
]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from([*WORDS, *"a the dog cats is red and or on with who , . ? \" ' ( -".split()]), max_size=12
    )
)
def test_any_jumble_of_words_is_read(words):
    text = " ".join(words)
    query = check_consistency(text)
    assert parse(query.text).absent == query.absent
    assert parse(text.upper()).negated == query.negated or "-" in text


@pytest.mark.parametrize("value", [None, 3, b"no dog", ["no dog"]])
def test_only_strings_are_queries(value):
    with pytest.raises(TypeError, match=f"must be a string, got {type(value).__name__}"):
        parse(value)


def test_a_parse_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        parse("no dog").negated = False


@pytest.mark.parametrize("split", ["test", "test_style", "test_pairs", "test_cues"])
def test_captions_of_the_scenes(split):
    gallery = benchmarks.retrieval(split, 60)
    assert not any(parse(caption.text).negated for caption in gallery.affirmative)
    for caption in gallery.negated:
        query = parse(caption.text)
        names = ["person"] if caption.cue == "nobody" else [NAMES[i] for i in caption.excluded]
        if caption.cue == "-less":  # binds one word, "corn cob-less"
            names = [names[0].split()[-1]]
        assert [noun_phrase(item) for item in query.absent] == list(map(noun_phrase, names))
        assert all(any(NAMES[i] in concept for concept in query.present) for i in caption.required)


@needs_shared
def test_queries_of_the_published_benchmark():
    texts = [row[0] for row in json.loads((SHARED / "simpleneg.json").read_text())]
    assert len(texts) == 900
    assert sum(parse(text).negated for text in texts) >= 0.97 * len(texts)


@needs_shared
def test_published_caption_pairs():
    affirmative, negated = zip(*json.loads((SHARED / "steering_pairs.json").read_text()).items(), strict=True)
    assert sum(parse(text).negated for text in affirmative) <= 0.01 * len(affirmative)
    assert sum(parse(text).negated for text in negated) >= 0.97 * len(negated)
    assert not any(parse(text).unsupported_language for text in (*affirmative, *negated))


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [("a shop that HASN'T dogs", 12, 18), ("does not contain dogs", 0, 16), ("not a single dog", 0, 12)],
)
def test_negation_spans_are_those_of_the_wording(text, start, end):
    assert negation_spans(text) == [(start, end)]


def test_command(capsys, monkeypatch):
    assert main(["parse", "kitchen without a fridge"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["negated"] and printed["absent"] == ["fridge"] and printed["span"] == [8, 15]
    assert printed["cues"] == [{"text": "without", "start": 8, "end": 15, "phrase": [8, 15]}]

    assert main(["parse", "a dog", "beach no people"]) == 0
    assert [json.loads(line)["absent"] for line in capsys.readouterr().out.splitlines()] == [[], ["people"]]

    monkeypatch.setattr("sys.stdin", io.StringIO("a dog\nthe shop isn\u2019t open\n"))
    assert main(["parse"]) == 0
    assert [json.loads(line)["cue"] for line in capsys.readouterr().out.splitlines()] == [None, "n\u2019t"]


def test_benchmark(tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("bench_parse", ROOT / "benchmarks" / "bench_parse.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    output = tmp_path / "new" / "parse.json"
    results = script.main(
        script.make_parser().parse_args(["--number", "30", "--repeats", "1", "--output", str(output)])
    )
    assert json.loads(output.read_text())["results"] == results and 0 < results["negated"] < 1
    assert "queries per second" in capsys.readouterr().out
