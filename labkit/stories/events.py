"""Every event of a story: what it needs and changes, and the sentences that tell it.

A row of EVENTS is "kind: steps", and below it stand the sentences, with bars between. The
steps are done in order by `world.World`: "has a x; together a b; hold b x; debt b a" says that
a must have x, that a and b must be in one place, that b then holds x, and that b has something
to thank a for. A plot that a step refuses cannot be written, and a text that breaks one is
caught with the reason.

A sentence has slots. Persons: {a} and {b}; {A} is never replaced by a pronoun, {a!} is the
name itself. Things: {x}, {y} and the container {v}. Places: {at} is "in the garden", {to} is
"garden". {s} is a spot in a place, "under the bench"; {k} what a person is, "rabbit"; {n} a
number and {f} what is counted; {g} is "her" or "his" and {h} "she" or "he", both for {a}.
"""

import re
from collections.abc import Iterator

from labkit.stories.words import VERBS

EVENTS = """
# people and where they are
intro: new a k
  Once upon a time, there was a {k} named {A}. | There was once a {k} named {A}.
  This is the story of a {k} named {A}. | {A} was a {k}. | {A} was a cheerful {k}.
  In a little house lived a {k} named {A}. | Far away lived a {k} named {A}.
intro_at: new a k; at a p
  A {k} named {A} was {at}. | {A}, a young {k}, was {at}. | A {k} named {A} was sitting {at}.
  {A}, a curious {k}, was {at}.
friend: new b k
  {a} had a friend, a {k} named {B}. | {a} had a good friend named {B}, a {k}.
  The best friend of {A} was a {k} named {B}. | {A} and a {k} named {B} were friends.
be: at a p
  {a} was {at}. | {a} was sitting {at}. | {a} was spending the day {at}. | {a} was resting {at}.
  {a} was playing {at}. | {a} was having a good time {at}.
with: together a b
  {b} was there with {A}. | {b} was with {A}. | {b} sat beside {A}. | {b} kept {A} company.
meet_new: new b k; together a b
  {a} met a {k} named {B}. | There {A} met {B}, a {k}. | A {k} named {B} greeted {A}.
  {a} came across {B}, a {k}.
meet: together a b
  {a} met {b} there. | {a} saw {b} and waved. | {a} said hello to {b}.
  "Hello, {b!}!" said {A}. | "Good to see you, {b!}!" said {A}.
go: go a p
  {a} went to the {to}. | {a} walked to the {to}. | {a} ran to the {to}.
  {a} hurried to the {to}. | {a} made {g} way to the {to}. | {a} skipped to the {to}.
  {a} set off for the {to}.
  "I am off to the {to}," said {A} and left.
go_back: been a p; go a p
  {a} went back to the {to}. | {a} returned to the {to}.
go_both: together a b; go a p; go b p
  {A} and {B} went to the {to}. | {A} and {B} walked to the {to} together.
  {A} and {B} set out for the {to}. | {a} took {b} along to the {to}.
# things and who has them
have: create x; hold a x; own a x
  {a} had a {x}. | {a} was carrying a {x}. | {a} owned a {x}. | {a} was very proud of {g} {x}.
  {a} had brought a {x}. | {a} had been given a {x}.
see: create x; spot_here a s; lay x s
  {a} saw a {x} {s}. | {a} noticed a {x} {s}. | {a} spotted a {x} {s}.
find_new: create x; spot_here a s; hold a x; own a x
  {a} found a {x} {s}. | {a} looked {s} and found a {x}.
take: reach a x; hold a x; own_if_free a x
  {a} took the {x}. | {a} picked up the {x}. | {a} picked the {x} up.
put_in: has a x; reach a v; container v; into x v
  {a} put the {x} into the {v}. | {a} placed the {x} in the {v}.
  {a} packed the {x} into the {v}.
take_out: inside x v; reach a v; hold a x
  {a} took the {x} out of the {v}. | {a} opened the {v} and took out the {x}.
  {a} reached into the {v} and pulled out the {x}.
put: has a x; spot_here a s; lay x s
  {a} put the {x} {s}. | {a} laid the {x} {s}. | {a} left the {x} {s}.
hide: has a x; spot_here a s; lay x s
  {a} hid the {x} {s}. | {a} secretly hid the {x} {s}.
like: real x
  {a} liked the {x}. | {a} loved the {x}. | "What a lovely {x}!" said {A}.
want: lacks a x
  {a} wished for the {x}. | {a} wanted to have the {x}.
  "I would like to have that {x}," said {A}.
show: has a x; together a b
  {a} showed the {x} to {b}. | {a} showed {b} the {x}. | {a} let {b} see the {x}.
give: has a x; together a b; hold b x; own b x; glad b; debt b a
  {A} gave the {x} to {B}. | {A} gave {B} the {x}. | {A} handed the {x} to {B}.
  {A} passed the {x} to {B}. | "This {x} is for you, {b!}," said {A}.
  {B} got the {x} from {A}. | {A} let {B} have the {x}.
give_back: has a x; owner b x; together a b; hold b x; glad b; debt b a
  {A} gave the {x} back to {B}. | {A} brought the {x} back to {B}.
  "Here is your {x}, {b!}," said {A}.
lend: has a x; owner a x; together a b; hold b x; debt b a
  {A} lent the {x} to {B}. | {B} borrowed the {x} from {A}.
  "You may borrow my {x}, {b!}," said {A}.
offer: has a x; has b y; together a b
  "I will give you my {x} for your {y}," {A} told {B}. | {a} offered {b} the {x} for the {y}.
  "Shall we swap my {x} for your {y}?" {A} asked {B}.
agree:
  "That is a good idea," said {A}. | "Yes, gladly!" said {A}. | {a} nodded.
  {a} agreed at once.
swap: together a b; swap a b x y; glad a; glad b; debt a b; debt b a
  {a} traded the {x} for the {y} of {B}. | {A} gave {B} the {x} and got the {y}.
  {A} and {B} swapped the {x} and the {y}.
# looking for things
lose: has a x; vanish x; sorrow a x lost
  {a} lost the {x}. | {a} dropped the {x} somewhere. | "Oh no, I have lost my {x}!" cried {A}.
  {a} reached for the {x}, but it was gone. | {a} noticed that the {x} was gone.
ask: lacks a x; owner a x; near a b
  "Have you seen my {x}?" {A} asked {B}. | "Where is my {x}?" asked {A}.
  "{b!}, do you know where the {x} is?" asked {A}. | {a} asked {b} about the {x}.
look: lacks a x; spot_here a s; not_at x s
  {a} looked {s}, but the {x} was not there. | {a} looked for the {x} {s}, but found nothing.
  {a} searched {s}, but the {x} was not there. | "The {x} is not {s}," said {A}.
tell_spot: is_at x s; debt_all a
  "The {x} is {s}," said {A}. | "I saw the {x} {s}," said {A}. | {a} said that the {x} was {s}.
  "Look {s} for the {x}!" said {A}.
tell_place: is_in x p; debt_all a
  "The {x} is {at}," said {A}. | "I saw the {x} {at}," said {A}. | {a} had seen the {x} {at}.
has_now: has a x
  Now {A} had the {x}. | So now {A} had the {x}. | From then on, {A} had the {x}.
tell_who: has b x; debt_all a
  "{B} has the {x}," said {A}. | {a} said that {B} had the {x}.
find: spot_here a s; is_at x s; hold a x; glad_owner a x; debt_owner a x
  {a} found the {x} {s}. | {a} looked {s} and found the {x}.
  {a} looked {s}, and there was the {x}! | "Here is the {x}, {s}!" cried {A} and took it.
find_in: inside x v; reach a v; hold a x; glad_owner a x; debt_owner a x
  {a} looked into the {v} and found the {x}. | {a} found the {x} in the {v}.
search:
  {a} looked everywhere. | {a} searched high and low.
help: together a b
  "I will help you, {b!}," said {A}. | {a} wanted to help {b}. | "Do not worry, {b!}," said {A}.
# food and weather
hungry: hunger a
  {a} was hungry. | {a} was very hungry. | "I am so hungry," said {A}.
cook: create x; food x; hold a x; own a x
  {a} made a {x}. | {a} made a {x} from scratch. | {a} prepared a {x}.
eat: has a x; food x; gone x; fed a
  {a} ate the {x}. | {a} ate up the {x}. | {a} sat down and ate the {x}.
  {a} ate the {x} to the last crumb.
share: has a x; food x; together a b; gone x; fed a; fed b; debt b a
  {a} shared the {x} with {b}. | {A} and {B} ate the {x} together.
full: is_fed a
  {a} was not hungry any more. | "Now I am full," said {A}.
sun: turn sun
  The sun was shining. | It was a sunny day. | It was a warm and sunny day.
rain: turn rain
  It began to rain. | Dark clouds came, and it started to rain. | It rained hard.
  Big drops began to fall.
clear: turn clear
  The rain stopped. | The rain stopped, and the sun came out.
wet: raining; outdoors a; soak a
  {a} got wet. | {a} got wet from head to toe. | "I am all wet!" cried {A}.
shelter: raining; indoors p; go a p
  {a} ran to the {to} to get dry. | {a} hurried out of the rain to the {to}.
dry: is_wet a; indoor_or_clear a
  {a} was soon dry again. | {a} got warm and dry.
umbrella: raining; outdoors a; has a x; noun x umbrella
  {a} opened the {x} and stayed dry. | {a} stayed dry under the {x}.
# broken things, feelings, thanks
break: has a x; harm x; sorrow a x broken
  {a} dropped the {x}, and it broke. | The {x} of {A} broke. | {a} broke the {x}.
fix: broken x; together_with a x; mend x; glad_owner a x; debt_owner a x
  {a} fixed the {x}. | {a} mended the {x}. | {a} repaired the {x} with care.
fixed: mended x
  The {x} was as good as new. | The {x} was no longer broken.
happy: cheerful a; glad a
  {a} was happy. | {a} was very happy. | {a} was glad. | {a} felt happy.
  {a} was as happy as could be.
smile: cheerful a
  {a} smiled. | {a} laughed. | {a} clapped {g} hands. | {a} danced for joy.
  {a} sang a little song. | {a} jumped up and down.
sad: gloomy a
  {a} was sad. | {a} was very sad. | {a} felt sad. | {a} began to cry.
  {a} sighed.
sad_lost: gloomy a; is_lost a x
  {a} was sad because {h} could not find the {x}.
happy_has: cheerful a; has a x; was_lost a x
  {a} was happy because {h} had the {x} again.
both_happy: cheerful a; cheerful b; together a b
  {A} and {B} were happy. | {A} and {B} laughed. | {A} and {B} hugged.
thank: owes a b; together a b; thanked a b
  "Thank you, {b!}!" said {A}. | {a} thanked {b}. | "That is very kind of you, {b!}," said {A}.
  {a} said, "Thank you so much!" and hugged {b}.
welcome: was_thanked a b
  "You are welcome, {b!}," said {A}. | "It was nothing, {b!}," said {A}.
# counting
count_have: count a f 0; more a f n
  {a} had {n} {f}.
count_find: count a f 0; more a f n
  {a} found {n} {f}. | {a} gathered {n} {f}. | {a} collected {n} {f}.
count_more: some a f; more a f n
  {a} found {n} more {f}. | {a} gathered {n} more {f}.
count_give: together a b; fewer a f n; more b f n; debt b a
  {A} gave {n} {f} to {B}. | {A} gave {B} {n} {f}. | {B} got {n} {f} from {A}.
count_eat: edible f; fewer a f n; fed a
  {a} ate {n} {f}. | {a} tasted {n} {f}.
count_lose: fewer a f n
  {a} lost {n} {f} on the way.
count_now: count a f n
  {a} had {n} {f} now. | "Now I have {n} {f}," said {A}.
count_left: count a f n
  {a} had {n} {f} left.
count_none: count a f 0
  {a} had no {f} left.
# endings
friends: together a b
  {A} and {B} became good friends. | From that day on, {A} and {B} were friends.
  {A} and {B} promised to meet again.
keep: has a x
  {a} kept the {x} for a long time. | {a} took good care of the {x}. | {a} held the {x} tight.
  {a} always took the {x} along from then on.
never_again: has a x; was_lost a x
  {a} never lost the {x} again.
good_day:
  It had been a good day. | What a day it had been! | It was a day to remember.
  Nobody wanted the day to end. | And so the day was over.
goodbye: together a b
  "Goodbye, {b!}!" said {A}. | {a} waved goodbye to {b}.
sleep: at_if a p
  {a} fell asleep {at}. | {a} was tired and fell asleep. | {a} yawned and fell asleep.
use: has a x; use x
"""


def rows(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """(what stands before the colon, what stands behind it, the sentences below)"""
    for head, rest, told in re.findall(r"^(\w+):(.*)((?:\n  .*)*)", text, re.MULTILINE):
        yield head, rest, re.split(r" \| |\n  ", told.strip()) if told else []


# kind: its steps, each with its arguments
RULES = {
    kind: [step.split() for step in steps.split(";") if step] for kind, steps, _ in rows(EVENTS)
}
SENTENCES = {kind: told for kind, _, told in rows(EVENTS) if told}
# every thing is used in its own way
SENTENCES |= {f"use:{verb}": [f"{{a}} {verb} the {{x}}."] for verb in VERBS.values()}
