"""Ask a model for stories about every word of its card, in every form, and count the requests
that it grants."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from labkit.model.chat.manners import LISTS, REFUSALS, STORY_LENGTH, not_granted
from storyworld import prompt
from storyworld.grammar import articles
from storyworld.reader import split_sentences
from storyworld.scores import reply

ASKED = "Tell me a story about {about}."
FORMS = {  # {heading of the card's column: the words in the request}
    "alone": "{word}",
    "with an article": "{a_word}",
    "with a name": "Mia and {a_word}",
    "two of them": "{a_word} and {a_next}",
    "in a place": "{a_word} in the garden",
}
USUAL = dict.fromkeys(LISTS, "with an article") | {"names": "alone", "counted": "alone"}
Answers = Callable[[list[str]], dict[str, str]]


def requests(most: int | None = None) -> Iterator[tuple[str, str, str, str]]:
    """Yield (list of words, word, form, request) for the first `most` words of each list.

    Names and plurals take no article.
    """
    for kind, words in LISTS.items():
        is_bare, article = kind in ("names", "counted"), "the" if kind == "places" else "a"
        with_article = words if is_bare else [f"{article} {word}" for word in words]
        for number, word in enumerate(words[:most]):
            slots = {
                "word": word,
                "a_word": with_article[number],
                "a_next": with_article[(number + 1) % len(words)],
            }
            for form, about in FORMS.items():
                left_out = "in a place" if kind == "places" else is_bare and "with an article"
                if form != left_out:
                    text = ASKED.format(about=articles(about.format(**slots)))
                    yield kind, word, form, text


def asked_words(answers: Answers, most: int | None = None) -> dict[str, dict[str, dict]]:
    """{list of words: {form: {"granted": 21, "told": 1, "refused": 0, "missing": ["owl"]}}}.

    A story grants a request if it mentions everything that was asked for; "told" counts other
    stories, "refused" other answers. `answers` maps prompts to answers of the model.
    """
    rows = list(requests(most))
    written = answers([prompt(text) for *_, text in rows])
    found: dict[str, dict[str, dict]] = {}
    for kind, word, form, text in rows:
        empty = {"granted": 0, "told": 0, "refused": 0, "missing": []}
        counts = found.setdefault(kind, {}).setdefault(form, empty)
        answer = reply(written[prompt(text)])
        is_story = len(split_sentences(answer)) >= STORY_LENGTH and answer not in REFUSALS
        is_granted = is_story and not not_granted(text, answer)
        counts["granted" if is_granted else "told" if is_story else "refused"] += 1
        if not is_granted and form == USUAL.get(kind):
            counts["missing"].append(word)
    return found
