/* Words of the field, explained on a tap: here and on the pages of the labs. "a|b" are two forms of a
   word; "-is" is what it means. */
"use strict";

globalThis.TinyLLM = globalThis.TinyLLM || {};

(function (T) {
  T.words ??= { en: {} };
  Object.assign(T.words.en, {
    "term.token": "tokens|token",
    "term.token-is": "A piece of text: a word, a part of one, or a mark. The model reads and writes the numbers of tokens.",
    "term.kv-head": "KV heads|KV head",
    "term.kv-head-is": "A head of keys and values. Several query heads read the same one, which makes the cache smaller.",
    "term.query-head": "query heads|query head",
    "term.query-head-is": "A head that asks with a query which earlier tokens matter, and mixes the values of these tokens.",
    "term.qk-norm": "QK-Norm",
    "term.qk-norm-is": "RMSNorm on each query and key, before the rotation. It keeps the scores of attention from growing.",
    "term.rope": "RoPE",
    "term.rope-is": "Rotary position embedding: pairs of features turn by an angle that grows with the position.",
    "term.nats": "nats|nat",
    "term.nats-is": "A unit of surprise: minus the natural logarithm of the probability that the model gave the token that came. Lower is better.",
    "term.rmsnorm": "RMSNorm",
    "term.rmsnorm-is": "Divides a vector by its root mean square and scales each feature by a learned weight.",
    "term.swiglu": "SwiGLU",
    "term.swiglu-is": "The feed-forward part: a gate, opened by SiLU, times a second projection, projected back.",
    "term.logits": "logits|logit",
    "term.logits-is": "One score per token of the vocabulary. Softmax makes probabilities of them.",
    "term.stream": "residual stream",
    "term.stream-is": "The vector of a token that runs through all layers. Each part reads it and adds its output to it.",
    "term.router": "router",
    "term.router-is": "A small matrix that scores the experts for a token. The best few of them compute.",
    "term.top-k": "top-k",
    "term.top-k-is": "Only the k likeliest tokens can be drawn.",
    "term.top-p": "top-p",
    "term.top-p-is": "Only the fewest likeliest tokens can be drawn whose probabilities sum to p.",
    "term.prefill": "prefill",
    "term.prefill-is": "Reading the whole prompt at once, before the first new token.",
    "term.perplexity": "perplexity",
    "term.perplexity-is": "e to the power of the loss: among how many equally likely tokens the model seems to guess.",
  });

  /* [forms, meaning] of each term, in the language of the page */
  T.terms = () => Object.keys(T.words.en).filter((key) => key.startsWith("term.") && !key.endsWith("-is"))
    .map((key) => [T.word(key), T.word(`${key}-is`)]);
})(globalThis.TinyLLM);
