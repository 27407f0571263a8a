"""What the figures of the notebooks show, in words: alternative text and caption in one.

They stand here and not in the cells, because a cell is read before it is run, and the text
says what comes out. A key is the lab's number and the figure's name: `show(figure, "1.cloud")`.
"""

CAPTIONS = {
    # Lab 01
    "1.why": "Gain 1.1 grows to over 200, gain 0.9 falls below 0.002.",
    "1.cloud": "LayerNorm sends the cloud to two spots: (1, -1) and (-1, 1).",
    "1.circle": "RMSNorm sends the cloud to a circle of radius 1.41 around 0.",
    "1.offset": "LayerNorm's mean stays 0; RMSNorm's rises from 0 towards 1.",
    "1.inside": "Float32 inside keeps sizes at 1; bfloat16 spreads them out.",
    "1.eps": "Yours bends at size 0.001, the version from the web only at 0.000001.",
    "1.stream": "The stream grows from 1 to about 4.5; model.norm makes it 1.",
    "1.gradients": (
        "With ReLU sublayers post is the flattest but for DeepNorm; with SwiGLU it is the "
        "steepest by far: the first sublayer gets a gradient thousands of times the last's."
    ),
    "1.warm-up": (
        "Pre learns with and without a warm-up. Post without one stays at what the letters' "
        "frequencies give; with one it learns."
    ),
    # Lab 03
    "3.leak": "The loss of the web version falls far below that of the right one: it leaks.",
    "3.growth": (
        "Without the norm scores grow to about 30, to over 100 and to many hundreds; with "
        "QK-Norm they stay below 10."
    ),
    "3.hand": (
        "Hidden before the softmax, key 4's share goes to the others; hidden after it, the "
        "share is lost and the others stay too low."
    ),
    "3.look-3-1": (
        "6 of 6 queries: a triangle of 15 keys is hidden (x). The last 3 of 6: a triangle of "
        "3. The last one: nothing is hidden."
    ),
    "3.scale": (
        "Without the scale the largest weight climbs from 0.3 to 0.9 as D grows; with it, it "
        "stays near 0.1."
    ),
    "3.look-3-2": (
        "Each letter shares its weight among the same letters so far; nothing lies above the "
        "diagonal."
    ),
    "3.heads": (
        "Eight query heads above; below them 8, 4 or 1 KV heads, each read by 1, 2 or 8 "
        "neighbouring query heads."
    ),
    "3.look-3-3": (
        "KV head read by query heads 0 to 7. Yours: four times 0, four times 1. Web: 0 and 1 "
        "in turn."
    ),
    "3.memory": (
        "Grouped-query attention makes the cache 2 times smaller in Qwen3-0.6B and 1.7B, 4 to "
        "8 times in the others, 16 times in 235B."
    ),
    "3.overflow": (
        "As they are, scores grow with the square of the entries and pass 65504 at a size "
        "near 40; normed, they stay near 43."
    ),
    "3.look-3-4": (
        "In the lower half of most maps, each letter that asks looks at the same letter among "
        "the first eight tokens."
    ),
    "3.break": (
        "With causal_mask(T, S) the pieces equal the whole. Lined up left, the first nine "
        "tokens agree and the later ones do not."
    ),
    "3.bug-hunt": (
        "Normed, scores without the scale spread out beyond 10; with the scale they stay "
        "within 4, the root of D."
    ),
    "3.caches": (
        "KV cache against size, one mark a model: for its size the one with MLA keeps least."
    ),
    "3.look-3-5": "Bytes a token and layer: MHA 8192, GQA 4096, MQA 512, MLA 1152.",
    # Lab 02
    "2.why": "Both sentences give each word the very same weight.",
    "2.clock": (
        "The first hand passes its start between 6 and 7; the second covers a sixth of a "
        "turn; the last two hardly move."
    ),
    "2.look-2-1": (
        "Feature 0 swings every 6 positions, later ones ever more slowly; features 32 to 63 "
        "repeat features 0 to 31."
    ),
    "2.base": (
        "One turn takes 6 positions for pair 0; for pair 63 it takes 54 thousand with base "
        "1e4 and 5 million with base 1e6."
    ),
    "2.narrow": (
        "The table's rounding stays below 0.002; rounded angles err more the farther one "
        "goes, up to 2, the most that cos allows."
    ),
    "2.look-2-2": "Two quarter turns give the negative row, four the first row.",
    "2.angle": "x cos and a part at right angles to it make the turned x.",
    "2.stripes": "Diagonal stripes: along each, the score is the same.",
    "2.break": (
        "With the query alone turned, the stripes lie flat: the score depends on the query's "
        "place, whatever the key's."
    ),
    "2.fade": (
        "Equal query and key: the score falls from 1 with distance, unevenly, and more slowly "
        "with base 1e6."
    ),
    "2.look-2-4": (
        "Waves that slow down from left to right; the three curves of dot products lie on one "
        "another."
    ),
    "2.look-2-5": "Head 0 hears a handful of tokens, head 7 nearly all of them.",
    "2.look-2-6": "Stripes along the diagonals again; above them all is -inf.",
    "2.look-2-7": "Fast pairs keep their speed, slow ones go to 1/factor.",
    # Lab 04
    "4.why": "Without a bend: a straight line. With ReLU: nearly the wave.",
    "4.look-4-1": "silu dips to -0.28 near x = -1.3; its slope peaks at 1.1.",
    "4.dead": (
        "With ReLU over a third of the units is dead at c = 8; with silu none is, at any c, "
        "in all 5 seeds."
    ),
    "4.double": (
        "ReLU's line has slope 1 on both logarithmic axes, the gated layer's line is twice as "
        "steep."
    ),
    "4.bug-hunt": (
        "Right: the left half, shut gates, is pale, and up's sign survives on the right. "
        "Wrong: large where the signs agree, else 0."
    ),
    "4.share": (
        "The share of mlp rises from 44 % in Qwen3-0.6B to 77 % in 32B, and to 95 and 97 % "
        "with experts."
    ),
    "4.work": (
        "mlp stays at 5.4 billion; attention starts at 1.5 billion and overtakes it at "
        "about 13,000 tokens."
    ),
    "4.look-4-3": (
        "relu, gelu and swish rise like x; geglu and swiglu rise like x squared, and have a "
        "bump left of zero."
    ),
    "4.race": "At rates 0.005 and 0.01 swiglu's mean loss is lower; at 0.02 relu's is.",
    # Lab 05
    "5.sizes": "Of Qwen3-30B-A3B 11 % are at work on a token, of 235B-A22B 9 %.",
    "5.look-5-1": (
        "Left, every column sums to 1. Right, two of its eight are left, and the sum is below "
        "1: high where the router was sure."
    ),
    "5.look-5-2": (
        "Random tokens: every expert sees some, round the even share of 8 (dashed). With a "
        "shared direction a few experts see most of them."
    ),
    "5.look-5-3": (
        "k = 1 begins near 1, k = 2 near 2; both climb to 8 as expert 0 gets all the "
        "probability."
    ),
    "5.train": (
        "Without the loss (dashed) a few experts take nearly all and the last ones nothing; "
        "with it (solid) all lie near the even line."
    ),
    "5.load": (
        "Marks, recorded under the pooled loss: far from even in either layer, level only "
        "when pooled. Bars: the weights of today, with a loss for each layer."
    ),
    # Lab 06
    "6.look-6-1": (
        "What attention and mlp add stays small from the first layer to the last; the stream "
        "grows slowly, from 1 to about one and a half."
    ),
    "6.keep": (
        "Your layers (solid) keep more of the input than the circulating one (dashed), at "
        "every depth and in each seed."
    ),
    "6.look-6-2": (
        "Left a triangle: a token moves its own output and later ones. Right, a token of "
        "padding moves its own output alone; the padded queries, which see no key, are moved "
        "by all."
    ),
    "6.look-6-3": (
        "One column a word of the story: the darker, the more probable it is after that layer. "
        "The last row is the model's own."
    ),
    "6.published": (
        "Your totals lie on the published ones. Active and total part in the two mixtures "
        "alone."
    ),
    "6.where": (
        "mlp is the largest part of every dense model, experts nearly all of a mixture; the "
        "share of the vocabulary shrinks as models grow."
    ),
    "6.family": (
        "LayerNorm, post-norm and other position codes stand on the left; in the last two "
        "years all dots of norm and position lie on RMSNorm and RoPE."
    ),
    "6.family-sizes": (
        "Wider models mostly have more layers. KV heads: with MHA on the diagonal, with GQA at "
        "2 to 16, with MQA at 1."
    ),
    # Lab 07
    "7.look-7-1": (
        "Five places fill at once, then one with each update; what was there stays, and places "
        "that no token has reached are empty."
    ),
    "7.look-7-2": (
        "Bars end at the marks. top_k 3 leaves three tokens, steep or flat; top_p 0.75 leaves "
        "more on the flat row than on the steep one."
    ),
    "7.time": (
        "Without a cache a token takes longer the more are written; with it the time stays low "
        "and hardly grows."
    ),
    # Lab 08
    "8.why": (
        "The smaller the probability of what came, the larger the loss: an even guess costs ln "
        "of how many tokens there are."
    ),
    "8.look-8-1": (
        "Sure and right: the loss falls to 0. Sure and wrong: it grows in a straight line."
    ),
    "8.break-shift": (
        "Without the shift (dashed) the loss falls faster and much lower than with it."
    ),
    "8.look-8-2": (
        "A straight rise for 100 steps, then half a cosine down to the floor, which it keeps "
        "after step 1000."
    ),
    "8.heart": (
        "The loss falls from ln V to nearly 0. The norm rises above the limit in the first "
        "steps, where it is clipped, then falls to nearly 0, too."
    ),
    "8.overfit": (
        "The batch that is learnt goes to nearly 0. The other falls at first, then rises above "
        "ln V."
    ),
    "8.bug-hunt": (
        "0 where all parts count equally many labels; the more are left out in one part, the "
        "larger the difference."
    ),
    "8.moe": (
        "The three losses fall alike. Without the balance loss the busiest experts have far "
        "more than their share; with it the work is more even, not even."
    ),
    # Lab 09
    "9.sizes": (
        "For Qwen3-0.6B: 1.19 GB of weights, 4.7 GB of cache, 107 GB of scores in one layer."
    ),
    "9.strip": (
        "Special tokens (black) open and close each turn; the assistant's, the last, is opened "
        "and left open."
    ),
}
