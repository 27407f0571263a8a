"""A tokenizer and a model small enough to be made in a second."""

import dataclasses
import json

import tokenizers
import transformers
from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from labkit.model.checkpoint import save
from tests.course.reference import oracle

# Qwen's own rules: where words end before pairs of bytes are merged
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>"),
    *("<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>"),
    *("<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>"),
]
ORDINARY = [  # Qwen3 adds these as tokens that are not special
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
    *("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>"),
]

# Qwen3's template for system, user and assistant messages, without tools
TEMPLATE = """\
{%- set ns = namespace(last=messages|length - 1, searching=true) %}
{%- for message in messages[::-1] %}
    {%- if ns.searching and message.role == "user" %}
        {%- set ns.searching = false %}
        {%- set ns.last = messages|length - 1 - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role in ("user", "system") %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set thought = '' %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {%- set thought = '<think>\\n' + thought + '\\n</think>\\n\\n' %}
            {%- set content = thought + content.lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}
    {%- else %}
        {{- raise_exception('no role ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

TEXTS = [
    "Anna has a red ball. The ball is in the garden. Who has the ball? Anna has it.",
    "Zoë's café serves naïve crème brûlée for 12 € — 你好\uff0c世界\uff01 🙂🙃👩‍👩‍👧",
    "def f(x):\n    return x * 2  # twice\n\n\n\tdone\r\n",
]


def write_tokenizer(folder, template=TEMPLATE, vocab_size=420):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ORDINARY])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
    }
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_chat_folder(folder, tokenizer_folder, **changes):
    """A random dense model with the tokenizer's vocabulary; it babbles."""
    size = tokenizers.Tokenizer.from_file(
        str(tokenizer_folder / "tokenizer.json")
    ).get_vocab_size()
    values = {"vocab_size": size, "max_position_embeddings": 160, **changes}
    config = dataclasses.replace(oracle.DENSE, **values)
    save(oracle.ours(config), config, folder, tokenizer_folder)
    return folder


def write_released(folder, tokenizer_folder, config, dtype, shard="1GB"):
    """A random model, tokenizer and settings as `transformers` itself writes them, laid out
    like a Qwen3 on the hub: vocabulary padded, two stop ids, template beside the tokenizer."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    config = dataclasses.replace(
        config, vocab_size=len(tokenizer) + 13, max_position_embeddings=1024
    )
    start = folder / "start"
    start.mkdir(parents=True)
    oracle.save(oracle.ours(config), start)
    model = oracle.load_hf(start).to(dtype)
    ids = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    model.generation_config = transformers.GenerationConfig(
        do_sample=True, temperature=0.6, top_k=20, top_p=0.95, eos_token_id=ids
    )
    model.save_pretrained(folder / "released", max_shard_size=shard)
    tokenizer.save_pretrained(folder / "released")
    return folder / "released"
