"""Lab 00: wrong versions of the practice exercise."""

from solutions.mistakes import mistake


@mistake("next_token", "it chooses at every token; only the last one says what comes next")
def at_every_token(logits):
    return logits.argmax(dim=-1)


@mistake("next_token", "it reads the scores at the first token; the last one has seen the text")
def at_the_first_token(logits):
    return logits[:, 0].argmax(dim=-1)


@mistake("next_token", "it reads the last text of the batch: the tokens are the second axis")
def of_the_last_text(logits):
    return logits[-1].argmax(dim=-1)


@mistake("next_token", "it says how high the best score is; wanted is where it stands")
def the_score(logits):
    return logits[:, -1].max(dim=-1).values


@mistake("next_token", "it takes the lowest score")
def the_lowest(logits):
    return logits[:, -1].argmin(dim=-1)


@mistake("next_token", "it searches the whole batch at once, so all texts get one id")
def one_for_all(logits):
    return logits[:, -1].argmax()


@mistake("next_token", "it compares the texts with each other: the vocabulary is the last axis")
def over_the_texts(logits):
    return logits[:, -1].argmax(dim=0)
