/* Numbers: the little linear algebra that the decoder needs, on one token's vectors.

   A vector is a Float32Array. A matrix is {rows, cols, data}, row after row, as PyTorch's
   nn.Linear stores its weight: (out_features, in_features). */
"use strict";
globalThis.TinyLLM = globalThis.TinyLLM || {};

(function (T) {
  /* weight x: one dot product a row, (rows, cols) with (cols,) -> (rows,) */
  function linear(weight, x, bias) {
    const { rows, cols, data } = weight;
    const out = new Float32Array(rows);
    const even = cols - (cols % 4);
    for (let row = 0, at = 0; row < rows; row++, at += cols) {
      let a = 0, b = 0, c = 0, d = 0; // four sums at once keep the processor busy
      for (let i = 0; i < even; i += 4) {
        a += data[at + i] * x[i];
        b += data[at + i + 1] * x[i + 1];
        c += data[at + i + 2] * x[i + 2];
        d += data[at + i + 3] * x[i + 3];
      }
      for (let i = even; i < cols; i++) a += data[at + i] * x[i];
      out[row] = a + b + c + d + (bias ? bias.data[row] : 0);
    }
    return out;
  }

  /* x + y, a new vector */
  const add = (x, y) => x.map((value, i) => value + y[i]);

  /* x with the part of y that begins at `from` */
  function dot(x, y, from = 0) {
    let sum = 0;
    for (let i = 0; i < x.length; i++) sum += x[i] * y[from + i];
    return sum;
  }

  /* the Euclidean length of a vector */
  const length = (x) => Math.sqrt(dot(x, x));

  /* Lab 01: divide by the root mean square, then scale each feature */
  function rmsNorm(x, weight, eps) {
    const scale = 1 / Math.sqrt(dot(x, x) / x.length + eps);
    return x.map((value, i) => value * scale * weight[i]);
  }

  /* Lab 01: the same, with the mean taken away first (and no bias: the model has learnt none) */
  function layerNorm(x, weight, eps) {
    const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
    return rmsNorm(x.map((value) => value - mean), weight, eps);
  }

  /* Probabilities from scores; the largest is taken away first, so that no exp overflows */
  function softmax(scores) {
    let largest = -Infinity;
    for (const score of scores) if (score > largest) largest = score;
    const out = new Float32Array(scores.length);
    let sum = 0;
    for (let i = 0; i < out.length; i++) sum += out[i] = Math.exp(scores[i] - largest);
    for (let i = 0; i < out.length; i++) out[i] /= sum;
    return out;
  }

  /* The largest of these probabilities */
  function largestShare(scores) {
    let largest = -Infinity, sum = 0;
    for (const score of scores) if (score > largest) largest = score;
    for (const score of scores) sum += Math.exp(score - largest);
    return 1 / sum;
  }

  /* Lab 04 */
  const silu = (x) => x / (1 + Math.exp(-x));
  const relu = (x) => (x > 0 ? x : 0);

  /* The index of the largest value, the first of several */
  function argmax(values) {
    let best = 0;
    for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
    return best;
  }

  /* The indices of the `count` largest values, the largest first */
  function topk(values, count) {
    if (count > 50) {
      const order = Array.from(values, (_, i) => i);
      return order.sort((i, j) => values[j] - values[i] || i - j).slice(0, count);
    }
    const best = [];
    for (let i = 0; i < values.length; i++) {
      let rank = best.length;
      while (rank && values[i] > values[best[rank - 1]]) rank--;
      if (rank === count) continue;
      best.splice(rank, 0, i);
      best.length = Math.min(best.length, count);
    }
    return best;
  }

  /* A pause in which the page can act; the timers of browsers make 4 ms of it, a message none */
  const channel = new MessageChannel(), waiting = [];
  let paused = 0; // when the last pause was over
  channel.port1.onmessage = () => {
    paused = performance.now();
    waiting.shift()();
  };
  const breath = () => new Promise((done) => {
    waiting.push(done);
    channel.port2.postMessage(null);
  });
  /* A pause, where the last one was 8 ms ago */
  const rest = () => (performance.now() - paused < 8 ? null : breath());

  Object.assign(T, {
    breath, rest, linear, add, dot, length, rmsNorm, layerNorm, softmax, largestShare, silu, relu, argmax, topk,
  });
})(globalThis.TinyLLM);
