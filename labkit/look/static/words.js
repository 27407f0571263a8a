/* Every word that the page says, in one place: {language: {key: sentence}}. The
   tables of other languages come from the catalogs of labkit/lang, in page-data.js, and <html
   lang> names the one that is spoken; what a table lacks is said in English. What stands in {braces} is filled in. */
"use strict";

globalThis.TinyLLM = globalThis.TinyLLM || {};

(function (T) {
  T.words = {};
  T.words.en = {
    "page.title": "Look inside",
    "page.home": "← The course",
    "page.name": "TinyLLM: look inside the model",
    "page.tab": "{view} · TinyLLM",
    "page.about": "A language model that runs in this page, and nowhere else.",
    "page.skip": "To the view",
    "page.model": "Model",
    "page.dark": "Dark",
    "page.noscript": "The model is a program in this page: it needs JavaScript.",
    "page.views": "Views",
    "page.built": "You build this in {lab}.",
    "page.described": "{name}: {millions} million numbers · {layers} layers · {heads} query heads on {kvHeads} KV heads{experts}. It runs in this page, and nowhere else.",
    "page.described-experts": " · {experts} experts, {each} a token",

    "ask.section": "Request and answer",
    "ask.label": "Ask for something",
    "ask.go": "Ask",
    "ask.stop": "Stop",
    "ask.step": "+1 token",
    "ask.step-title": "Write one more token",
    "ask.samples": "Requests to pick from",
    "ask.text": "The text, token by token; arrow keys pick one",

    "status.first": "The model is being read …",
    "status.reading": "Reading {name}, {megabytes} MB …",
    "status.missing": "{source} could not be read. It lies beside this page, in the folder models; was it moved?",
    "status.ready": "The model answered with the likeliest token each time. Ask for something else.",
    "status.writing": "Writing …",
    "status.written": "{count} tokens, for which the engine took {seconds} s.",
    "status.ended": "The model ended its turn itself.",
    "status.least-sure": "It was least sure how to go on after “{token}”: that token is picked.",

    "verdict.problem": "{whose} does not run yet: {problem}. What you see here is the page's own engine with the weights of {name}; what you write next can be compared again.",
    "verdict.agree": "{whose} and this page agree to {gap}: {tokens} tokens, {layers} layers, {logits} logits each.",
    "verdict.differ": "{whose} and this page {where}; the logits differ by {gap}. {fine}Nothing is lost: `tinyllm assemble` names the part to look at. The views below show the page's own engine.",
    "verdict.up-to": "Up to layer {layer} they agree. ",
    "verdict.at-the-end": "differ after the last layer, in the final norm or the head",
    "verdict.at-layer": "differ from layer {layer} on (layers count from 0), there by {gap}",
    "verdict.no-number": "something that is no number",
    "whose.yours": "Your code",
    "whose.mixed": "Your code, the course's own in what is empty ({labs}),",
    "whose.course": "The course's own code, as nothing of yours is written,",
    "whose.package": "The code of {package}",

    "lab": "Lab {lab}",
    "lab.03": "03 attention",
    "lab.05": "05 mixture of experts",
    "lab.06": "06 decoder",
    "lab.07": "07 generation",

    "tokens.title": "The next token",
    "tokens.see": "Every token is drawn from a list of probabilities. The text is shaded where the model was unsure how to go on: pick a token there, turn the knobs, and see which tokens stay in the draw; pick a bar, and the story goes another way.",
    "tokens.temperature": "temperature",
    "tokens.temperature-help": "0 takes the best; above 1 flattens",
    "tokens.top-k": "top-k",
    "tokens.top-k-help": "only the k best tokens",
    "tokens.top-k-all": "all",
    "tokens.top-p": "top-p",
    "tokens.top-p-help": "the fewest best that sum to p",
    "tokens.model": "the model",
    "tokens.draw": "after the knobs",
    "tokens.bars": "Likeliest next tokens",
    "tokens.after": "after {token}",
    "tokens.kept": "{kept} of {all} tokens can be drawn.",
    "tokens.goes-on": "The text goes on with “{token}”.",
    "tokens.row": "{token}: model {model}, after the knobs {draw}",
    "tokens.row-taken": "{token}: model {model}, after the knobs {draw}, taken",
    "tokens.taken": "the text goes on with it",
    "tokens.cut": "cut",
    "tokens.sure": "the likeliest next token has {share}",
    "tokens.way": "How the guess forms",
    "tokens.way-see": "The stream of “{token}” on its way through the model, read by the last norm and the head after each step: what the model would say if it ended there.",
    "tokens.way-step": "layer {layer}: {attention}, then {mlp}",
    "tokens.way-embed": "as embedded",
    "tokens.way-attention": "attention",
    "tokens.way-experts": "experts",
    "tokens.way-mlp": "SwiGLU",

    "attention.title": "Attention",
    "attention.see": "Each square is one head: a row is a token, and the stronger a cell, the more that token takes from the one in the column. In layer 0 the diagonal stands out, what a token takes from itself; in the layers below, most comes from earlier tokens.",
    "attention.minis": "Layers down, heads across",
    "attention.mini": "layer {layer}, head {head}",
    "attention.map": "heat map",
    "attention.head": "Layer {layer}, head {head} (reads KV head {kvHead})",
    "attention.cell": "“{to}” takes {share} from “{from}”.",
    "attention.most": "“{token}” takes most from",
    "attention.itself": "{token} itself, {share}",
    "attention.back": "{token} {back} back, {share}",
    "attention.alt": "Attention of layer {layer}, head {head}, {tokens} tokens; arrow keys read single cells. {token} takes most from {top}.",

    "qknorm.title": "Queries and keys",
    "qknorm.see": "Before the norm (dashed) the length of queries and keys changes from token to token; after it (solid) all of a head are nearly of one length. Then each pair of features is turned by an angle that grows with the position: the length stays.",
    "qknorm.layer": "layer",
    "qknorm.head": "head",
    "qknorm.lengths": "Length of each token's query and key",
    "qknorm.pair-of": "One pair of features of the picked token's query",
    "qknorm.pair": "pair",
    "qknorm.pair-help": "0 turns fastest, {last} slowest",
    "qknorm.query-plain": "query, projected",
    "qknorm.key-plain": "key, projected",
    "qknorm.query-normed": "query, normed",
    "qknorm.key-normed": "key, normed",
    "qknorm.spread": "{name}: {least} to {most}",
    "qknorm.lengths-alt": "Lengths over {tokens} tokens. {spread}.",
    "qknorm.position": "position",
    "qknorm.stays": "{spread}. The rotation leaves the normed lengths as they are.",
    "qknorm.turned": "Pair {pair} (features {first} and {second}) turns by {turn} radians from one token to the next. At position {position} that makes {angle} radians, {turns} turns: from ({before}) to ({after}).",
    "qknorm.feature": "feature {feature}",
    "qknorm.legend-normed": "normed",
    "qknorm.legend-turned": "turned; the dots are the positions on the way",

    "experts.title": "Experts",
    "experts.see": "In a layer with experts, a router sends each token to a few of them: the text is shaded by the first choice, and the bars show how unevenly the work is spread.",
    "experts.shade": "shade by layer",
    "experts.one": "expert {expert} ({share})",
    "experts.and": " and ",
    "experts.layer-of": "layer {layer}, {split}",
    "experts.reading": "“{token}”: {layers}.",
    "experts.title-of": "layer {layer}: {split}",
    "experts.layer": "Layer {layer}",
    "experts.all-picked": "Layer {layer}: every expert was picked in this text; {busiest}",
    "experts.one-idle": "Layer {layer}: expert {idle} was never picked in this text; {busiest}",
    "experts.some-idle": "Layer {layer}: experts {idle} were never picked in this text; {busiest}",
    "experts.busiest": "the busiest, expert {expert}, got {share} of the work, an even share is {even}.",
    "experts.axis": "tokens, from left to right",
    "experts.load": "load; line: even share",
    "experts.dense": "{name} is dense: every token passes the same feed-forward layer, so there is nothing to choose.",
    "experts.open": "Open {name}",

    "cache.title": "The KV cache",
    "cache.see": "Each new token adds the same number of bytes to the cache: its keys and values, layer by layer. Because several query heads share a KV head, it is smaller than it would be with a KV head for each of them (pale).",
    "cache.shelf": "What is kept: a row for each layer and KV head",
    "cache.keys": "keys",
    "cache.values": "values",
    "cache.spared": "spared by sharing",
    "cache.graph": "Bytes, token by token",
    "cache.sum": "A token takes 2 (key and value) × {layers} layers × {kvHeads} KV heads × {size} numbers × {bytes} bytes = {each} bytes; with {heads} KV heads, one a query head, {plain}. Stored as bfloat16 both would be half.",
    "cache.shelf-alt": "{tokens} tokens in {layers} layers of {kvHeads} KV heads each; {spared} more a layer would be needed without sharing.",
    "cache.graph-alt": "After {tokens} tokens: {cached} with {kvHeads} KV heads, {plain} with {heads}.",
    "cache.tokens": "{tokens} tokens",
    "cache.now": "{tokens} tokens, {size}",
    "cache.facts": "{now} in the cache, of {full} when it is full ({room} tokens). The model ran on each token once; without a cache it would have run on {again} tokens for this text.",

    "swap.title": "Swap a part",
    "swap.see": "One part is exchanged and the trained weights stay: hear what is left of the model, and see what the change costs on a text it has never seen. Some swaps barely hurt, some ruin it.",
    "swap.choose": "swap",
    "swap.what": "{name} ({lab}): {what}.",
    "swap.mine": "The model as it is",
    "swap.theirs": "With the part swapped",
    "swap.heard": "Both answered “{request}” with the likeliest token each time, up to {most} tokens.",
    "swap.bars": "Nats a token on the fixed passage",
    "swap.costs": "What each swap costs, in nats a token on a story it has never seen",
    "swap.guessing": "Lower is better. Guessing among all {tokens} tokens costs {cost}.",
    "swap.as-it-is": "as it is",
    "swap.no-rope": "no RoPE",
    "swap.no-rope-what": "queries and keys are not turned: the model no longer knows where a token stands",
    "swap.layer-norm": "LayerNorm",
    "swap.layer-norm-what": "the mean is taken away before every norm of the stream, as LayerNorm does",
    "swap.no-norm": "no norm",
    "swap.no-norm-what": "nothing keeps the stream's size under control",
    "swap.no-qk-norm": "no QK-Norm",
    "swap.no-qk-norm-what": "queries and keys keep the lengths they were projected to",
    "swap.repeat": "repeat",
    "swap.repeat-what": "KV heads are laid out as a b a b (repeat) instead of a a b b (repeat_interleave): query heads read each other's KV head",
    "swap.relu": "ReLU",
    "swap.relu-what": "the gates are shut wherever they were slightly negative",
    "swap.expert-0": "always expert 0",
    "swap.expert-0-what": "the router is ignored: expert 0 has to do everything",
  };

  const language = () => document.documentElement.lang;

  /* A sentence in pieces, some of which may be elements: phrase("tokens.after", {token: node}) */
  T.phrase = (key, values = {}) => {
    const sentence = T.words[language()]?.[key] ?? T.words.en[key];
    if (sentence === undefined) throw new Error(`words.js has no “${key}”`);
    return sentence.split(/\{(\w+)\}/).map((piece, i) => {
      if (i % 2 && values[piece] === undefined) throw new Error(`“${key}” lacks {${piece}}`);
      return i % 2 ? values[piece] : piece;
    });
  };

  /* A sentence as text */
  T.word = (key, values) => T.phrase(key, values).join("");

  /* A whole number as it is written in the page's language */
  T.count = (number) => number.toLocaleString(language());

  /* Fill in the words that index.html names: data-word its text, data-word-NAME an attribute */
  T.worded = (root) => {
    for (const element of root.querySelectorAll("*"))
      for (const { name, value } of [...element.attributes])
        if (name === "data-word") element.textContent = T.word(value);
        else if (name.startsWith("data-word-")) element.setAttribute(name.slice(10), T.word(value));
  };
})(globalThis.TinyLLM);
