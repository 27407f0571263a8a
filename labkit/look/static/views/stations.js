/* One token's way through the model: the stations it passes, with the numbers of each. */
"use strict";

(function (T) {
  const rms = (x) => Math.sqrt(T.dot(x, x) / x.length);

  /* The stations of any token, in order: {kind, layer, key} */
  T.stations = (model) => {
    const layers = Array.from({ length: model.config.num_hidden_layers }, (_, layer) => layer);
    const inside = (layer) => ["norm", "attention", "norm-again", model.usesExperts(layer) ? "experts" : "swiglu"]
      .map((kind) => ({ kind, layer, key: `${kind}-${layer}` }));
    return [
      { kind: "embed", key: "embed" }, ...layers.flatMap(inside),
      { kind: "final", key: "final" }, { kind: "head", key: "head" },
    ];
  };

  /* What a station does to token i: the stream before and after it, and what is special to it */
  T.atStation = ({ kind, layer }, { loaded: { model }, run }, i) => {
    const step = run.steps[i], seen = step.layers[layer];
    const embedded = () => model.embed(run.ids[i]);
    const below = layer ? step.layers[layer - 1].hidden : embedded();
    if (kind === "embed") return { stream: embedded() };
    if (kind === "norm") return { stream: below, before: below, after: seen.normed, size: rms(below) };
    if (kind === "attention") return { stream: seen.between, heads: seen.attention };
    if (kind === "norm-again") return { stream: seen.between, before: seen.between, after: seen.normedAgain, size: rms(seen.between) };
    if (kind === "experts") return { stream: seen.hidden, ...seen.expertsSeen };
    if (kind === "swiglu") return { stream: seen.hidden, open: seen.open };
    const last = step.layers.at(-1).hidden;
    if (kind === "final") return { stream: last, before: last, after: model.norm(last, "model.norm"), size: rms(last) };
    return { stream: last, probs: T.softmax(step.logits) };
  };

  /* The likeliest tokens, were the stream read here: [id, share] */
  T.guesses = (model, stream, count) => {
    const probs = T.softmax(model.read(stream));
    return T.topk(probs, count).map((id) => [id, probs[id]]);
  };
})(globalThis.TinyLLM);
