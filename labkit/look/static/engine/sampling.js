/* Lab 07: from scores to the next token. */
"use strict";

(function (T) {
  /* All tokens, the best first: {id, plain, prob}. plain is the model's own probability; prob
     is what the knobs make of it, 0 for a token that they cut. topK 0 and topP 1 cut nothing. */
  function candidates(logits, { temperature, topK, topP }) {
    const plain = T.softmax(logits); // (V,)
    const order = T.topk(logits, logits.length);
    if (temperature === 0)
      return order.map((id, rank) => ({ id, plain: plain[id], prob: rank === 0 ? 1 : 0 }));
    const kept = topK ? Math.min(topK, order.length) : order.length;
    const probs = T.softmax(order.slice(0, kept).map((id) => logits[id] / temperature));
    let better = 0; // what all better tokens add up to
    const found = order.map((id, rank) => {
      const prob = rank < kept && (rank === 0 || better < topP) ? probs[rank] : 0;
      better += rank < kept ? probs[rank] : 0;
      return { id, plain: plain[id], prob };
    });
    const sum = found.reduce((total, each) => total + each.prob, 0);
    for (const each of found) each.prob /= sum;
    return found;
  }

  /* Draw one token id by its probability; random() gives a number from 0 up to 1 */
  function draw(found, random) {
    let left = random();
    for (const { id, prob } of found) if ((left -= prob) < 0) return id;
    return found[0].id;
  }

  /* Random numbers from 0 up to 1, the same for the same seed (Marsaglia's xorshift, 32 bits) */
  function dice(seed) {
    let state = (seed * 2654435769 + 1) >>> 0 || 1;
    return () => {
      state ^= state << 13;
      state ^= state >>> 17;
      state ^= state << 5;
      return (state >>> 0) / 4294967296;
    };
  }

  Object.assign(T, { candidates, draw, dice });
})(globalThis.TinyLLM);
