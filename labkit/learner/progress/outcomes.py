"""What comes out where a notebook asks for a prediction: the choices, which one it is, why.

They stand here and not in the notebooks, so that nobody reads them before the cell has run;
`tinyllm build` writes the choices into the cell `predict-...`. A key is the lab's number and
the name of the figure, or of the cell, that shows it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """choices    {letter: text}
    right      the letter of what comes out
    why        one sentence
    """

    choices: dict[str, str]
    right: str
    why: str


def _of(*choices: str, why: str) -> Outcome:
    """The choices get letters; the right one begins with a star."""
    letters = "abcdef"[: len(choices)]
    (right,) = (a for a, text in zip(letters, choices, strict=True) if text[0] == "*")
    texts = (text.removeprefix("*") for text in choices)
    return Outcome(dict(zip(letters, texts, strict=True)), right, why)


# fmt: off
OUTCOMES = {
    # Lab 00
    "0.tokens": _of("about 8 each", "*8, and more than 20", "34 and 35, one for each letter",
        why="Words of the stories are one token each; strange ones fall into fragments."),
    "0.attention": _of("none does", "one does, with about a tenth of its attention",
        "*one does, with a third of its attention or more",
        why="Training made it look for what is asked; nobody told it to."),
    # Lab 01
    "1.why": _of("about 7", "about 40", "*above 200",
        why="1.1 to the 60th is about 300: a tenth too much is multiplied sixty times, not "
        "added."),
    "1.cloud": _of("on a circle", "on a line", "*on two spots",
        why="The mean takes one dimension, the spread another: in the plane only a sign is "
        "left."),
    "1.overflow": _of("the right values", "inf", "nan", "*zeros",
        why="The square of 300 is beyond 65504 and becomes inf; one over its root is 0."),
    "1.warm-up": _of("pre, no warm-up", "pre, with warm-up", "*post, no warm-up",
        "post, with warm-up",
        why="Its first steps, at full rate, spoil the stack, and it stays at the frequencies."),
    "1.places": _of("*post", "pre", "sandwich", "output",
        why="Post keeps the stream at size 1; elsewhere it grows with the depth, and the last "
        "norm divides the gradient by that."),
    "1.living": _of("*layer_norm, with the same weights", "RMSNorm without its weights",
        "no norm, the weights alone",
        why="The mean was hardly worth keeping; the size, and the strength of each feature, "
        "are what the layers behind were trained to read."),
    # Lab 02
    "2.why": _of("in \"dog bites man\"", "in \"man bites dog\"", "*in neither: it is the same",
        why="Scores are products of query and key, and neither knows its place."),
    "2.base": _of("tens of thousands", "hundreds of thousands", "*millions",
        why="Its speed is 1e6 to the power -126/128, and a turn is 2 pi: 5 million positions."),
    "2.narrow": _of("512, and the table hurts more", "512, and the angles hurt more",
        "385, and the table hurts more", "*385, and the angles hurt more",
        why="Eight bits count to 256, then in steps of 2; a rounded angle is wrong by ever "
        "more the farther one goes, a rounded table by 0.002 at most."),
    "2.stripes": _of("rows, and they move on", "diagonals, and they move on",
        "rows, and nothing changes", "*diagonals, and nothing changes",
        why="The score hangs on the offset alone, which is constant along a diagonal and "
        "stays if both move."),
    "2.layouts": _of("yes, no, no", "*yes, yes, no", "yes, yes, yes", "no, no, no",
        why="It turns every pair as yours does, only other pairs."),
    "2.living": _of("no rotation", "neighbours for pairs", "a smaller base",
        "*1000 positions later",
        why="Only distances reach the scores, and those stay."),
    # Lab 03
    "3.first": _of("all five, equally", "all five, by their scores", "the last alone",
        "*the first alone",
        why="It lines its mask up with the first key: the one query is taken for position 0."),
    "3.scale": _of("about a tenth", "about a half", "*more than four fifths",
        why="Scores of size sqrt(128) = 11 leave the softmax no choice; divided by that, the "
        "best key gets about a tenth."),
    "3.leak": _of("as far as the right one", "less far", "*farther",
        why="Its rows are no tokens any more, the mask guards rows, and the model reads the "
        "answer."),
    "3.growth": _of("about 10", "about 30", "*over 100",
        why="Nothing holds the lengths of queries and keys; with the norm only its weight can "
        "grow, and it about doubled."),
    "3.caches": _of("one with MQA", "one with GQA", "*one with MLA",
        why="DeepSeek-V3 keeps one latent for 128 heads: 0.10 KiB for a billion parameters, "
        "PaLM with its single KV head 0.22."),
    "3.living": _of("*repeat in the place of repeat_interleave", "no QK-Norm",
        "QK-Norm, but no 1/sqrt(D)",
        why="Most query heads then read keys and values of a head they were not trained with."),
    # Lab 04
    "4.why": _of("a poor wave", "*a straight line", "nothing at all",
        why="Two matrices in a row are one matrix, however wide the middle."),
    "4.trap": _of("x * torch.sigmoid(x)", "*x / (1 + torch.exp(-x))",
        "x * torch.exp(x) / (1 + torch.exp(x))",
        why="At -100 it divides by inf, which gives a right 0; on the way back inf meets 0."),
    "4.break": _of("its opposite", "*the very same", "something else altogether",
        why="Minus times minus is plus: without a bend the layer cannot tell x from -x."),
    "4.multiply": _of("8", "128", "*more than 500",
        why="Straight pieces come nearer and nearer to a product and never arrive; two gated "
        "units are exact."),
    "4.ratio": _of("in all of them", "in some", "*in none",
        why="The dense models have 3 to 5: I is a choice of its own, a field of the "
        "config."),
    "4.living": _of("ReLU", "GELU", "*nothing, a straight gate",
        why="That the gate shuts for negative numbers is what counts, not the shape of its "
        "corner."),
    # Lab 05
    "5.sizes": _of("less than 6 %", "6 %", "*more",
        why="Attention and the head work for every token; only experts are picked."),
    "5.gradient": _of("k = 1, norm_topk_prob False", "*k = 1, norm_topk_prob True",
        "k = 2, norm_topk_prob False", "k = 2, norm_topk_prob True",
        why="One weight divided by itself is 1, whatever the router says: nothing to learn."),
    "5.low": _of("above 1", "exactly 1", "*below 1",
        why="The picks go one way and the probability the other: low is not the same as even."),
    "5.pooled": _of("8 each, 8 together", "*8 each, 4 together", "8 each, 1 together",
        why="In one list one collapsed layer seems to even out the other."),
    "5.words": _of("a place in the sentence", "a subject", "*a kind of word",
        "nothing to name",
        why="Articles, names, ends of sentences; there is no expert for kites."),
    "5.living": _of("it costs more", "*it costs less", "the same",
        why="The best one carries more than half of the weight; what wrong ones say was meant "
        "for other tokens."),
    # Lab 06
    "6.keep": _of("*Qwen3DecoderLayer", "WebLayer", "both alike",
        why="It adds to the stream itself; the other adds to a normed copy, in every layer."),
    "6.padding": _of("*no mask, that alone", "the positions alone", "both", "neither",
        why="RoPE sees only distances, and those are right wherever the text stands; without "
        "the mask the text reads its padding."),
    "6.tie": _of("*the number of parameters", "head - embedding", "the logit", "none of them",
        why="Equal numbers give equal logits; that they are counted twice shows at once, and "
        "that they part only after a step."),
    "6.scores": _of("all of them", "*V, one row", "T, one of each row", "a single one",
        why="Only the last row scores what comes next; lab 07 ends the waste."),
    "6.where": _of("vocabulary", "attention", "*the feed-forward layers",
        why="They hold the most in every dense model: 44 % here, 77 % in 32B; in a mixture "
        "nearly everything is experts."),
    "6.years": _of("2020", "2022", "*2024",
        why="Before that the table still holds models with LayerNorm, or with other codes for "
        "positions."),
    # Lab 07
    "7.why": _of("*about 20", "about 200", "about 1,000",
        why="Within a sentence little is possible, and the model knows it."),
    "7.hand": _of("about 10 times", "about 100 times", "*about 500 times",
        why="Each new token reads all before it again: half a million against a thousand."),
    "7.causal": _of("*not at all, but for rounding", "a little, most at the last",
        "far, everywhere",
        why="No token ever looks at a later one, so old results keep their meaning."),
    "7.bytes": _of("less than the weights", "about as much", "*three times the weights",
        why="112 KiB a token, 32,768 times: 3.5 GiB, for a single text."),
    "7.twice": _of("all", "*that depends on the beginning", "none",
        why="It read the beginning twice, a text like others: what it says betrays little, "
        "its scores betray all."),
    "7.seeds": _of("the two greedy ones alone", "*the two greedy ones, and two at 0.7",
        "all three at 0.7", "no two of them",
        why="Greedy draws nothing; dice with the same seed fall the same way."),
    # Lab 08
    "8.why": _of("about 0.0007", "*about 7", "about 1500",
        why="It is ln V, minus the logarithm of 1 / V."),
    "8.shift": _of("with the shift", "*without the shift", "about the same",
        why="To repeat what one has just read is easy, and worth nothing."),
    "8.heart": _of("near ln V", "near 1", "*near 0",
        why="A batch that is seen a hundred times can be learnt by heart; if not, the code is "
        "wrong."),
    "8.overfit": _of("lower as well, only less", "where it was", "*higher than it was",
        why="It becomes sure of what one batch says, and is wrong elsewhere: overfitting."),
    "8.zero": _of("it crashes", "it stands still", "*it learns, less well",
        why="AdamW divides by the size of the gradients; plain descent steps ever farther."),
    "8.validation": _of("far above the training loss, as with the batch by heart", "*near it",
        why="What is never seen twice cannot be learnt by heart."),
    # Lab 09
    "9.sizes": _of("smaller", "about as large", "*about four times as large",
        why="40,960 tokens of 112 KiB are 4.7 GB, the weights 1.2 GB."),
    "9.load": _of("at loading", "*at the first reading", "at the second reading",
        why="A mapped file counts only where it was touched, and reading a text touches all."),
    "9.strict": _of("layers.0.self_attn.q_norm", "layers.0.input_layernorm",
        "the last layer's self_attn.o_proj", "norm", "*embed_tokens",
        why="Without its words the model knows nothing; some of the others you might never "
        "notice."),
    "9.margin": _of("anywhere", "*low, where the two best lie close", "at the end of the text",
        why="Rounding moves a logit a little, and changes only what was a toss-up."),
    "9.turns": _of("two", "*three", "four",
        why="The message ends itself and begins a system message, which the visitor wrote."),
}
# fmt: on
