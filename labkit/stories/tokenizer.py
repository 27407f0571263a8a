"""A byte-level BPE tokenizer trained on the stories, in the layout that Hugging Face loads.

Any text can be encoded and decoded without loss, since the 256 bytes are all in the
vocabulary. The chat template is Qwen's `<|im_start|>role ... <|im_end|>`, without tools and
thinking. Training is deterministic: the same documents give the same file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from labkit.stories import END_OF_TEXT, END_OF_TURN, START_OF_TURN, split_text

SPECIAL_TOKENS = [END_OF_TEXT, START_OF_TURN, END_OF_TURN]  # ids 0, 1, 2
VOCAB_SIZE = 1536
DOCUMENTS = 10_000  # more do not add a merge
# words with their leading space, numbers digit by digit, line ends by themselves
PIECES = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s"
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def train(texts: Iterable[str], vocab_size: int = VOCAB_SIZE):
    """A `tokenizers.Tokenizer` trained on texts.

    Special tokens stand in the texts but are never split or merged. A vocabulary below 259
    (256 bytes and 3 special tokens) raises ValueError.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    least = 256 + len(SPECIAL_TOKENS)
    if vocab_size < least:
        raise ValueError(f"vocab_size is {vocab_size}; bytes and special tokens need {least}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((plain(text) for text in texts), trainer)
    return tokenizer


def plain(text: str) -> str:
    """A text without special tokens, so that no merge is learned from their letters."""
    for token in SPECIAL_TOKENS:
        text = text.replace(token, "\n")
    return text


def save(tokenizer, folder: str | Path) -> None:
    """Write tokenizer.json and tokenizer_config.json, as transformers.AutoTokenizer reads them.

    A chat ends with <|im_end|>, which is therefore the eos token; padding is <|endoftext|>.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TURN,
        "pad_token": END_OF_TEXT,
        "bos_token": None,
        "unk_token": None,
        "additional_special_tokens": [START_OF_TURN, END_OF_TURN],
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1_000_000,
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / "tokenizer_config.json").write_text(text, "utf-8")


def train_on_stories(documents: int = DOCUMENTS, vocab_size: int = VOCAB_SIZE):
    """The tokenizer of the course, from the first documents of the training split."""
    return train(split_text("train", documents), vocab_size)
