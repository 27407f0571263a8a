"""The words of the stories: data only, no code that decides anything."""


def words(text: str) -> list[str]:
    return text.split()


GIRLS = words("Anna Clara Ella Emma Ivy Lily Lucy Maya Mia Nora Rosie Ruby Tilly Zoe")
BOYS = words("Ben Felix Finn Hugo Jack Leo Max Milo Noah Oscar Otto Sam Theo Tom")
GENDER = dict.fromkeys(GIRLS, "f") | dict.fromkeys(BOYS, "m")
JOBS = words("farmer baker teacher gardener sailor painter doctor shepherd")
ANIMALS = words("rabbit fox bear mouse duck owl cat dog hedgehog squirrel frog goat")
KIND_GENDER = {"girl": "f", "boy": "m"}  # all other kinds may be either
KINDS = ["girl", "boy", *JOBS, *ANIMALS]

# place: how one is there, and its spots; a spot belongs to one place only
PLACES = {
    "kitchen": ("in", "under the table;on the shelf;in the cupboard;behind the stove"),
    "bedroom": ("in", "under the bed;behind the curtain;in the wardrobe;under the pillow"),
    "attic": ("in", "behind the mirror;under the rug;beside the old trunk"),
    "cellar": ("in", "behind the barrel;on the stairs;beside the broom"),
    "barn": ("in", "in the hay;behind the ladder;under the cart"),
    "library": ("in", "on the bookcase;behind the globe;beside the armchair"),
    "bakery": ("in", "on the counter;behind the oven;beside the flour"),
    "school": ("at", "on the desk;behind the blackboard;under the coats"),
    "workshop": ("in", "under the workbench;behind the toolbox;beside the paint"),
    "castle": ("in", "behind the throne;under the tapestry;beside the suit of armour"),
    "garden": ("in", "behind the bush;under the apple tree;between the roses;beside the well"),
    "park": ("in", "under the bench;beside the fountain;behind the statue"),
    "forest": ("in", "under the oak tree;behind the rock;in the hollow log;among the ferns"),
    "market": ("at", "under the stall;behind the wagon;beside the pumpkins"),
    "beach": ("at", "in the sand;behind the dune;under the pier"),
    "river": ("by", "under the bridge;in the reeds;beside the canoe"),
    "hill": ("on", "behind the windmill;under the pine tree;beside the signpost"),
    "farm": ("at", "behind the tractor;beside the henhouse;in the straw"),
    "lake": ("by", "under the willow;on the jetty;beside the rowing boat"),
    "meadow": ("in", "in the tall grass;beside the beehive;behind the fence"),
    "playground": ("at", "under the slide;behind the sandpit;beside the swings"),
    "station": ("at", "under the clock;beside the tracks;behind the luggage"),
}
SPOTS = {place: spots.split(";") for place, (_, spots) in PLACES.items()}
PLACE_OF_SPOT = {spot: place for place, spots in SPOTS.items() for spot in spots}
INDOORS = words("kitchen bedroom attic cellar barn library bakery school workshop castle")
OUTDOORS = [place for place in PLACES if place not in INDOORS]

COLOURS = words("red blue green yellow white black brown purple orange pink")
ADJECTIVES = {
    "colour": COLOURS,
    "make": words("old new little big shiny wooden golden silver tiny"),
    "taste": words("sweet warm fresh big round tasty"),
}
# two things of one sort are told apart by these
PAIRS = words("red/blue green/yellow white/black brown/purple orange/pink")
PAIRS += words("old/new golden/silver shiny/wooden little/big")
OPPOSITES = dict(pair.split("/") for pair in PAIRS)
# thing: the adjectives that suit it, and what one does with it (verb, rest)
THINGS = {
    "ball": "colour;threw", "kite": "colour;flew", "drum": "make;played", "doll": "make;hugged",
    "book": "colour;read", "map": "make;studied", "key": "make;polished", "lantern": "make;lit",
    "hat": "colour;wore", "scarf": "colour;wore", "umbrella": "colour;shook",
    "whistle": "make;blew", "bell": "make;rang", "flute": "make;played", "rope": "make;pulled",
    "shovel": "make;cleaned", "teapot": "colour;polished", "pencil": "colour;sharpened",
    "letter": "make;read", "feather": "colour;stroked", "watch": "make;wound",
    "ring": "make;wore", "necklace": "make;wore", "crown": "make;wore",
    "toy boat": "colour;pulled", "toy train": "colour;pushed", "robot": "make;wound",
    "puzzle": "make;studied", "paintbrush": "colour;cleaned", "camera": "make;cleaned",
    "compass": "make;studied", "flag": "colour;waved", "violin": "make;played",
    "telescope": "make;cleaned", "ribbon": "colour;waved", "teddy bear": "colour;hugged",
    "picture": "make;studied", "coin": "make;polished", "cup": "colour;cleaned",
    "spoon": "make;polished",
}  # fmt: skip
FOODS = words("cake pie sandwich pancake bun muffin pizza pretzel waffle biscuit")
CONTAINERS = words("box basket bag chest jar sack tin backpack suitcase bucket")
GROUPS = {noun: note.split(";")[0] for noun, note in THINGS.items()}
GROUPS |= dict.fromkeys(FOODS, "taste") | dict.fromkeys(CONTAINERS, "colour")
VERBS = {noun: note.split(";")[1] for noun, note in THINGS.items()}
PLURALS = {
    "apple": "apples", "pear": "pears", "plum": "plums", "nut": "nuts", "berry": "berries",
    "egg": "eggs", "cherry": "cherries", "cookie": "cookies", "shell": "shells",
    "button": "buttons", "marble": "marbles", "pebble": "pebbles", "flower": "flowers",
    "leaf": "leaves",
}  # fmt: skip
EDIBLE = words("apple pear plum nut berry egg cherry cookie")
NUMBERS = words("one two three four five six seven eight nine ten eleven twelve")

# words before a sentence, and the time of day they name (0 morning .. 4 night, -1 a new day,
# None: no time)
PREFIXES = {
    "Then ": None, "After that, ": None, "Soon ": None, "A little later, ": None, "So ": None,
    "Next, ": None, "But ": None, "At last, ": None, "In the end, ": None, "One day, ": None,
    "Suddenly, ": None, "Meanwhile, ": None, "First, ": None, "Later, ": None,
    "One morning, ": 0, "Early in the morning, ": 0, "At noon, ": 1, "One afternoon, ": 2,
    "That afternoon, ": 2, "In the afternoon, ": 2, "That evening, ": 3, "In the evening, ": 3,
    "That night, ": 4, "The next day, ": -1,
}  # fmt: skip

# first as the documents ask, then in other words, which only `asked` uses
QUESTIONS = {
    "where_thing": [
        *("Where is the {x}?", "Where is the {x} now?", "Where can I find the {x}?"),
        "Do you know where the {x} is?",
    ],
    "who_has": ["Who has the {x}?", "Who has the {x} now?", "Who has got the {x}?"],
    "where_person": [
        *("Where is {A}?", "Where is {A} now?", "Where can I find {A}?"),
        *("Do you know where {A} is?", "Where did {A} go?"),
    ],
    "did_give": [
        *("Did {A} give the {x} to {B}?", "Did {A} give {B} the {x}?"),
        *("Has {A} given the {x} to {B}?", "Did {B} get the {x} from {A}?"),
    ],
    "who_gave": [
        *("Who gave the {x} to {B}?", "Who gave {B} the {x}?"),
        "From whom did {B} get the {x}?",
    ],
    "how_many": [
        *("How many {f} does {A} have?", "How many {f} has {A} got?"),
        *("How many {f} does {A} have now?", "How many {f} did {A} have in the end?"),
    ],
    "who_found": [
        "Who found the {x}?",
        "Who has found the {x}?",
        "Who was it that found the {x}?",
    ],
    "where_found": [
        *("Where did {A} find the {x}?", "Where was the {x} when {A} found it?"),
        "Where has {A} found the {x}?",
    ],
    "where_hid": ["Where did {A} hide the {x}?", "Where has {A} hidden the {x}?"],
    "why_sad": ["Why was {A} sad?", "Why is {A} sad?", "What made {A} sad?"],
    "colour": ["What colour is the {x}?", "What color is the {x}?", "Which colour is the {x}?"],
    "what_kind": ["Who is {A}?", "What is {A}?", "Who or what is {A}?"],
    "what_ate": ["What did {A} eat?", "What has {A} eaten?", "What did {A} have to eat?"],
    "what_in": ["What is in the {v}?", "What is inside the {v}?", "What does the {v} hold?"],
    "who_fixed": ["Who fixed the {x}?", "Who mended the {x}?", "Who repaired the {x}?"],
    "is_hungry": ["Is {A} hungry?", "Is {A} still hungry?", "Was {A} hungry in the end?"],
    "did_rain": ["Did it rain?", "Was there any rain?", "Did it rain that day?"],
}
