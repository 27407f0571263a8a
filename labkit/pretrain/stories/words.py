"""The words and sentences of the stories: data only, no code that decides anything.

A sentence template has slots. Persons: {a} and {b}; {A} is never replaced by a pronoun, {a!}
is the name itself. Things: {x}, {y} and the container {v}. Places: {at} is "in the garden",
{to} is "garden". {s} is a spot in a place, "under the bench"; {k} what a person is, "rabbit";
{n} a number and {f} what is counted; {g} is "her" or "his" and {h} "she" or "he", both for {a}.
"""


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
    "make": words("old new little shiny wooden golden silver tiny"),
    "taste": words("sweet warm fresh big round tasty"),
}
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

# words before a sentence, and the time of day they name (0 morning .. 4 night, None: no time)
PREFIXES = {
    "Then ": None, "After that, ": None, "Soon ": None, "A little later, ": None, "So ": None,
    "Next, ": None, "But ": None, "At last, ": None, "In the end, ": None, "One day, ": None,
    "Suddenly, ": None, "Meanwhile, ": None, "First, ": None, "Later, ": None,
    "One morning, ": 0, "Early in the morning, ": 0, "At noon, ": 1, "One afternoon, ": 2,
    "That afternoon, ": 2, "In the afternoon, ": 2, "That evening, ": 3, "In the evening, ": 3,
    "That night, ": 4,
}  # fmt: skip

SENTENCES = {
    # people and where they are
    "intro": [
        "Once upon a time, there was a {k} named {A}.",
        "There was once a {k} named {A}.",
        "This is the story of a {k} named {A}.",
        "{A} was a {k}.",
        "{A} was a cheerful {k}.",
    ],
    "intro_at": [
        "A {k} named {A} was {at}.",
        "{A}, a young {k}, was {at}.",
        "A {k} named {A} was sitting {at}.",
        "{A}, a curious {k}, was {at}.",
    ],
    "friend": [
        "{a} had a friend, a {k} named {B}.",
        "{a} had a good friend named {B}, a {k}.",
        "The best friend of {A} was a {k} named {B}.",
    ],
    "be": [
        "{a} was {at}.",
        "{a} was sitting {at}.",
        "{a} was spending the day {at}.",
        "{a} was resting {at}.",
    ],
    "be_both": ["{A} and {B} were {at}.", "{A} and {B} were spending the day {at}."],
    "meet_new": [
        "{a} met a {k} named {B}.",
        "There {A} met {B}, a {k}.",
        "A {k} named {B} greeted {A}.",
        "{a} came across {B}, a {k}.",
    ],
    "meet": [
        "{a} met {b} there.",
        "{a} saw {b} and waved.",
        "{a} said hello to {b}.",
        '"Hello, {b!}!" said {A}.',
        '"Good to see you, {b!}!" said {A}.',
    ],
    "go": [
        "{a} went to the {to}.",
        "{a} walked to the {to}.",
        "{a} ran to the {to}.",
        "{a} hurried to the {to}.",
        "{a} made {g} way to the {to}.",
        '"I am off to the {to}," said {A} and left.',
    ],
    "go_back": ["{a} went back to the {to}.", "{a} returned to the {to}."],
    "go_both": [
        "{A} and {B} went to the {to}.",
        "{A} and {B} walked to the {to} together.",
        "{A} and {B} set out for the {to}.",
        "{a} took {b} along to the {to}.",
    ],
    # things and who has them
    "have": [
        "{a} had a {x}.",
        "{a} was carrying a {x}.",
        "{a} owned a {x}.",
        "{a} was very proud of {g} {x}.",
    ],
    "see": ["{a} saw a {x} {s}.", "{a} noticed a {x} {s}.", "{a} spotted a {x} {s}."],
    "find_new": ["{a} found a {x} {s}.", "{a} looked {s} and found a {x}."],
    "take": ["{a} took the {x}.", "{a} picked up the {x}.", "{a} picked the {x} up."],
    "put_in": [
        "{a} put the {x} into the {v}.",
        "{a} placed the {x} in the {v}.",
        "{a} packed the {x} into the {v}.",
    ],
    "take_out": [
        "{a} took the {x} out of the {v}.",
        "{a} opened the {v} and took out the {x}.",
        "{a} reached into the {v} and pulled out the {x}.",
    ],
    "put": ["{a} put the {x} {s}.", "{a} laid the {x} {s}.", "{a} left the {x} {s}."],
    "hide": ["{a} hid the {x} {s}.", "{a} secretly hid the {x} {s}."],
    "like": ["{a} liked the {x}.", "{a} loved the {x}.", '"What a lovely {x}!" said {A}.'],
    "want": [
        "{a} wished for the {x}.",
        "{a} wanted to have the {x}.",
        '"I would like to have that {x}," said {A}.',
    ],
    "show": [
        "{a} showed the {x} to {b}.",
        "{a} showed {b} the {x}.",
        "{a} let {b} see the {x}.",
    ],
    "give": [
        "{a} gave the {x} to {b}.",
        "{a} gave {b} the {x}.",
        "{a} handed the {x} to {b}.",
        "{a} passed the {x} to {b}.",
        '"This {x} is for you, {b!}," said {A}.',
        "{b} got the {x} from {A}.",
    ],
    "give_back": [
        "{a} gave the {x} back to {b}.",
        "{a} brought the {x} back to {b}.",
        '"Here is your {x}, {b!}," said {A}.',
    ],
    "lend": [
        "{a} lent the {x} to {b}.",
        "{b} borrowed the {x} from {A}.",
        '"You may borrow my {x}, {b!}," said {A}.',
    ],
    "offer": [
        '"I will give you my {x} for your {y}," {A} told {B}.',
        "{a} offered {b} the {x} for the {y}.",
        '"Shall we swap my {x} for your {y}?" {A} asked {B}.',
    ],
    "agree": ['"That is a good idea," said {A}.', '"Yes, gladly!" said {A}.', "{a} nodded."],
    "swap": [
        "{a} traded the {x} for the {y} of {B}.",
        "{a} gave {b} the {x} and got the {y}.",
        "{A} and {B} swapped the {x} and the {y}.",
    ],
    # looking for things
    "lose": [
        "{a} lost the {x}.",
        "{a} dropped the {x} somewhere.",
        '"Oh no, I have lost my {x}!" cried {A}.',
        "{a} reached for the {x}, but it was gone.",
    ],
    "ask": [
        '"Have you seen my {x}?" {A} asked {B}.',
        '"Where is my {x}?" asked {A}.',
        '"{b!}, do you know where the {x} is?" asked {A}.',
        "{a} asked {b} about the {x}.",
    ],
    "look": [
        "{a} looked {s}, but the {x} was not there.",
        "{a} looked for the {x} {s}, but found nothing.",
        "{a} searched {s}, but the {x} was not there.",
        '"The {x} is not {s}," said {A}.',
    ],
    "tell_spot": [
        '"The {x} is {s}," said {A}.',
        '"I saw the {x} {s}," said {A}.',
        "{a} said that the {x} was {s}.",
        '"Look {s} for the {x}!" said {A}.',
    ],
    "tell_place": [
        '"The {x} is {at}," said {A}.',
        '"I saw the {x} {at}," said {A}.',
        "{a} had seen the {x} {at}.",
    ],
    "tell_who": ['"{B} has the {x}," said {A}.', "{a} said that {B} had the {x}."],
    "find": [
        "{a} found the {x} {s}.",
        "{a} looked {s} and found the {x}.",
        "{a} looked {s}, and there was the {x}!",
        '"Here is the {x}, {s}!" cried {A} and took it.',
    ],
    "find_in": [
        "{a} looked into the {v} and found the {x}.",
        "{a} found the {x} in the {v}.",
    ],
    "search": ["{a} looked everywhere.", "{a} searched high and low."],
    "help": [
        '"I will help you, {b!}," said {A}.',
        "{a} wanted to help {b}.",
        '"Do not worry, {b!}," said {A}.',
    ],
    # food and weather
    "hungry": ["{a} was hungry.", "{a} was very hungry.", '"I am so hungry," said {A}.'],
    "cook": ["{a} made a {x}.", "{a} made a {x} from scratch.", "{a} prepared a {x}."],
    "eat": ["{a} ate the {x}.", "{a} ate up the {x}.", "{a} sat down and ate the {x}."],
    "share": ["{a} shared the {x} with {b}.", "{A} and {B} ate the {x} together."],
    "full": ["{a} was not hungry any more.", '"Now I am full," said {A}.'],
    "sun": ["The sun was shining.", "It was a sunny day.", "It was a warm and sunny day."],
    "rain": [
        "It began to rain.",
        "Dark clouds came, and it started to rain.",
        "It rained hard.",
    ],
    "clear": ["The rain stopped.", "The rain stopped, and the sun came out."],
    "wet": ["{a} got wet.", "{a} got wet from head to toe.", '"I am all wet!" cried {A}.'],
    "shelter": ["{a} ran to the {to} to get dry.", "{a} hurried out of the rain to the {to}."],
    "dry": ["{a} was soon dry again.", "{a} got warm and dry."],
    "umbrella": ["{a} opened the {x} and stayed dry.", "{a} stayed dry under the {x}."],
    # broken things, feelings, thanks
    "break": [
        "{a} dropped the {x}, and it broke.",
        "The {x} of {A} broke.",
        "{a} broke the {x}.",
    ],
    "fix": ["{a} fixed the {x}.", "{a} mended the {x}.", "{a} repaired the {x} with care."],
    "fixed": ["The {x} was as good as new.", "The {x} was no longer broken."],
    "happy": ["{a} was happy.", "{a} was very happy.", "{a} was glad.", "{a} felt happy."],
    "smile": ["{a} smiled.", "{a} laughed.", "{a} clapped {g} hands.", "{a} danced for joy."],
    "sad": ["{a} was sad.", "{a} was very sad.", "{a} felt sad.", "{a} began to cry."],
    "sad_lost": ["{a} was sad because {h} could not find the {x}."],
    "happy_has": ["{a} was happy because {h} had the {x} again."],
    "both_happy": ["{A} and {B} were happy.", "{A} and {B} laughed.", "{A} and {B} hugged."],
    "thank": [
        '"Thank you, {b!}!" said {A}.',
        "{a} thanked {b}.",
        '"That is very kind of you, {b!}," said {A}.',
        '{a} said, "Thank you so much!" and hugged {b}.',
    ],
    "welcome": ['"You are welcome, {b!}," said {A}.', '"It was nothing, {b!}," said {A}.'],
    # counting
    "count_have": ["{a} had {n} {f}."],
    "count_find": ["{a} found {n} {f}.", "{a} gathered {n} {f}.", "{a} collected {n} {f}."],
    "count_more": ["{a} found {n} more {f}.", "{a} gathered {n} more {f}."],
    "count_give": [
        "{a} gave {n} {f} to {b}.",
        "{a} gave {b} {n} {f}.",
        "{b} got {n} {f} from {A}.",
    ],
    "count_eat": ["{a} ate {n} {f}.", "{a} tasted {n} {f}."],
    "count_lose": ["{a} lost {n} {f} on the way."],
    "count_now": ["{a} had {n} {f} now.", '"Now I have {n} {f}," said {A}.'],
    "count_left": ["{a} had {n} {f} left."],
    "count_none": ["{a} had no {f} left."],
    # endings
    "friends": [
        "{A} and {B} became good friends.",
        "From that day on, {A} and {B} were friends.",
        "{A} and {B} promised to meet again.",
    ],
    "keep": [
        "{a} kept the {x} for a long time.",
        "{a} took good care of the {x}.",
        "{a} held the {x} tight.",
        "{a} always took the {x} along from then on.",
    ],
    "never_again": ["{a} never lost the {x} again."],
    "good_day": [
        "It had been a good day.",
        "What a day it had been!",
        "It was a day to remember.",
    ],
    "goodbye": ['"Goodbye, {b!}!" said {A}.', "{a} waved goodbye to {b}."],
    "sleep": ["{a} fell asleep {at}.", "{a} was tired and fell asleep."],
}
for _noun, _verb in VERBS.items():
    SENTENCES.setdefault("use:" + _verb, [f"{{a}} {_verb} the {{x}}."])

QUESTIONS = {
    "where_thing": ["Where is the {x}?"],
    "who_has": ["Who has the {x}?"],
    "where_person": ["Where is {A}?"],
    "did_give": ["Did {A} give the {x} to {B}?"],
    "who_gave": ["Who gave the {x} to {B}?"],
    "how_many": ["How many {f} does {A} have?"],
    "who_found": ["Who found the {x}?"],
    "where_found": ["Where did {A} find the {x}?"],
    "where_hid": ["Where did {A} hide the {x}?"],
    "why_sad": ["Why was {A} sad?"],
    "colour": ["What colour is the {x}?"],
    "what_kind": ["Who is {A}?"],
    "what_ate": ["What did {A} eat?"],
    "what_in": ["What is in the {v}?"],
    "who_fixed": ["Who fixed the {x}?"],
    "is_hungry": ["Is {A} hungry?"],
    "did_rain": ["Did it rain?"],
}
