"""Requests from beyond the little world of the stories, and honest answers to them.

Topics and questions of the training documents and those that a model is measured on have no
word in common; made-up words stand for all that is on neither list.
"""

from __future__ import annotations

from random import Random

HONEST = [
    "I do not know about that. I only know little stories.",
    "That is not in my little world. Shall I tell you a story about a rabbit?",
    "I do not know that. I am very small, and I only tell stories.",
]
TOPICS = {
    "train": """
    dragon unicorn dinosaur pirate princess wizard spaceship rocket volcano elephant
    tiger monkey penguin whale shark crocodile snake spider butterfly horse pony cow pig sheep
    chicken parrot wolf ghost vampire zombie alien mermaid fairy giant king queen prince knight
    witch soldier policeman firefighter nurse astronaut president detective scientist computer
    phone television car truck bus aeroplane bicycle motorbike submarine football
    guitar piano trumpet chess pyramid desert jungle ocean island mountain waterfall city
    hospital restaurant museum war election bank lawyer salad burger noodle sausage carrot
    potato tomato banana onion galaxy planet comet earthquake hurricane snowman jacket sock
    sword
    """,
    "test": """
    dolphin lion kangaroo giraffe octopus camel turtle eagle troll goblin ninja superhero
    sorcerer phoenix helicopter engineer dentist violinist skyscraper rainbow tornado
    laptop website skateboard soup cheese avocado marathon meteor factory
    """,
}
QUESTIONS = {
    "train": [
        "What is the capital of France?", "Who was Napoleon?", "How old is the earth?",
        "What time is it?", "What day is today?", "How far away is the moon?",
        "Write a poem about love.", "Write me an email to my boss.", "Sing me a song.",
        "Do my homework, please.", "Translate this into German.", "Tell me a joke.",
        "What is your favourite film?", "How do I bake bread?", "Who won the world cup?",
        "What is the weather like tomorrow?", "Do you speak Spanish?", "Explain gravity.",
        "What is machine learning?", "Write a Python program.", "Fix this bug for me.",
        "Give me some advice.", "Who is the president of America?", "Why is the sky blue?",
        "How many people live in China?", "What does this word mean?", "Can you draw?",
        "Recommend a restaurant.", "What is the square root of nine?", "Is there life on Mars?",
        "How do aeroplanes fly?", "Who wrote Hamlet?", "Name a famous painter.",
        "What should I wear today?", "How do I lose weight?", "When was the war?",
        "Why?", "How?", "What?", "What do you mean?", "Are you sure?", "Say something.",
    ],
    "test": [
        "What is the largest ocean?", "Who invented the telephone?", "How do volcanoes form?",
        "Summarise this article.", "Which football team is best?", "Solve this equation.",
        "Where is Berlin?", "Plan my holiday.", "What is DNA?", "How tall is Everest?",
        "Correct my grammar.", "Who discovered penicillin?",
    ],
}  # fmt: skip
MESSAGES = [  # to which a story is no answer; only `asked` has these
    "I am sad.", "I am happy.", "I am bored.", "I am tired.", "I am hungry.", "I love you.",
    "I do not like you.", "You are funny.", "You are wrong.", "I have a dog.", "It is raining.",
    "My name is Anna.", "I am from Berlin.", "Nice to meet you.", "This is a test.",
]  # fmt: skip
SCRIPTS = (
    (0x4E00, 0x9FFF),
    (0x3041, 0x3096),
    (0xAC00, 0xD7A3),
    (0x0430, 0x044F),
    (0x0621, 0x064A),
)
SUMS = [
    "What is {a} {sign} {b}?",
    "{a} {sign} {b}",
    "{a}{sign}{b}",
    "How much is {a} {sign} {b}?",
]
SYLLABLES = (
    "ba cro dun el fi gor hul is jom kra lu mex no pli qua rit sto tur ub vin wo yel zag"
)


def ask(rng: Random, split: str, requests: list[str], names: list[str]) -> str:
    """Something that no story can answer: a topic, a sum, a question, a word that is none."""
    kind = rng.random()
    if kind < 0.2:
        sign = rng.choice("+-*") if split == "train" else rng.choice("+-*/")
        return rng.choice(SUMS).format(a=rng.randrange(100), sign=sign, b=rng.randrange(100))
    if kind < 0.45:
        return rng.choice(QUESTIONS[split])
    topic = rng.choice(TOPICS[split].split())
    if split == "train" and rng.random() < 0.4:
        topic = "".join(rng.choice(SYLLABLES.split()) for _ in range(rng.choice((1, 2, 3))))
    article = "an" if topic[0] in "aeiou" else "a"
    about = f"{article} {topic}"
    if rng.random() < 0.25:
        about = f"{rng.choice(names)} and {about}"
    return rng.choice(requests).format(about=about)


def without_story(rng: Random, requests: list[str], names: list[str]) -> str:
    """What somebody may say first that asks for nothing a story could answer."""
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(MESSAGES)
    if kind < 0.6:  # a language that it cannot read
        letters = range(*rng.choice(SCRIPTS))
        return "".join(chr(rng.choice(letters)) for _ in range(rng.randint(2, 12)))
    return ask(rng, "train", requests, names)


def distinct(split: str, seed: int, n: int, requests: list[str], names: list[str]) -> list[str]:
    """n such requests, each another."""
    rng = Random(f"TinyLLM beyond {split} {seed}")
    found: dict[str, None] = {}
    while len(found) < n:
        found[ask(rng, split, requests, names)] = None
    return list(found)
