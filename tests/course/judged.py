"""Messages to a model of little stories, and what is wrong with an answer to each."""

from storyworld import HONEST
from storyworld.questions import UNTOLD

OWL = "A boy named Sam was in the park. He had a key. He lost the key. He was sad."
KITE = ("Tell me a story about a kite.", "Mia had a kite. Mia flew it. Mia was happy.")
JUDGED = (  # message, earlier turns, answer, unknown words in the message, the fault
    ("Tell me a story about an owl.", (), OWL, [], ("left out", ["owl"])),
    ("Tell me a story about Sam and a red key.", (), OWL, [], ("left out", ["red key"])),
    ("Tell me a story about a key in the school.", (), OWL, ["school"],
     ("left out", ["school"])),
    ("Tell me a sad story about Sam.", (), OWL, ["sad"], ("", [])),
    ("Tell me two stories about dragons.", (), HONEST[0],
     ["two", "stories", "dragons"], ("", [])),
    ("a story about a cat who can fly", (), "Hello!", ["fly"], ("no answer", [])),
    ("Where is the kite?", KITE, "Mia has it.", [], ("", [])),
    ("Where is the kite?", KITE, "It is behind the tractor.", [],
     ("contradicted", ["Mia has it."])),
    ("who has the kite", KITE, "Ben has it.", [], ("contradicted", ["Mia has it."])),
    ("Where's the kite?", KITE, "Ben has it.", [], ("contradicted", ["Mia has it."])),
    ("Where was the kite?", KITE, "Mia has it.", [], ("", [])),
    ("Was Sam hungry?", (OWL,), "Yes, he is.", [], ("unsettled", [])),
    ("Why is Sam sad?", (OWL,), "Because he lost the key.", [], ("", [])),
    ("What color is the kite?", KITE, "It is red.", ["color"], ("unsettled", [])),
    ("Did it rain?", KITE, "No, it did not.", [], ("unsettled", [])),
    ("Where is the kite?", KITE, UNTOLD, [], ("contradicted", ["Mia has it."])),
    ("Ben was in the park. He made a kite out of a hat. Who has the hat?", (), "Ben has it.",
     [], ("unclear", ["He made a kite out of a hat."])),
    ("Anna had a pie. Lily was with Anna. She ate the pie. What did Lily eat?", (),
     "She ate the pie.", [], ("unclear", ["She ate the pie."])),
    ('"Hello, Ben!" said Mia. Mia had a cup. Who has the cup?', (), "Ben has it.", [],
     ("contradicted", ["Mia has it."])),
    ("Where is the owl?", KITE, "Mia has it.", [], ("unsettled", [])),
    ("Peter has a key. Who has the key?", (), "Ben has it.", ["Peter"],
     ("unclear", ["Peter has a key."])),
    ("Do you like me?", (), " o has it.", [], ("no answer", [])),
    ("Where are you from?", (), "I am well, thank you. Shall I tell you a story?", [],
     ("no answer", [])),
    ("Who are you?", (), "I am a very small language model. I tell stories.", [], ("", [])),
)  # fmt: skip
