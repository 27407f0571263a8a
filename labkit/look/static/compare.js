/* What somebody's Python code computed, beside what this page computes of the same tokens. */
"use strict";

(function (T) {
  const SAME = 1e-3; // apart from rounding: as far as any two right models are from each other

  /* The largest difference, as a share of the larger numbers' size where that is above 1 */
  function apart(ours, theirs) {
    let most = 0;
    for (let i = 0; i < ours.length; i++) {
      const gap = Math.abs(ours[i] - theirs[i]) / Math.max(1, Math.abs(ours[i]));
      if (!(gap <= most)) most = Number.isNaN(gap) ? Infinity : gap;
    }
    return most;
  }

  const power = (value) => (value === Infinity ? "something that is no number" : value >= 0.01 ? value.toPrecision(2)
    : `1e${Math.ceil(Math.log10(Math.max(value, 1e-9)))}`);

  /* {agree, sentence} */
  T.verdict = ({ model, computed, name }) => {
    const { whose, problem, ids } = computed;
    if (problem) return { agree: false, sentence: `${whose} does not run yet: ${problem}. What you see here is the page's own engine with the weights of ${name}; what you write next can be compared again.` };
    const run = new T.Run(model);
    for (const id of ids) run.push(id);
    const take = (text, of) => {
      const theirs = T.floats(text), size = theirs.length / ids.length;
      return apart(run.steps.flatMap((step) => Array.from(of(step))), theirs.subarray(0, size * ids.length));
    };
    const layers = computed.layers.map((text, layer) => take(text, (step) => step.layers[layer].hidden));
    const logits = take(computed.logits, (step) => step.logits);
    const first = layers.findIndex((gap) => gap > SAME);
    if (first < 0 && logits <= SAME) return { agree: true, sentence: `${whose} and this page agree to ${power(logits)}: ${ids.length} tokens, ${layers.length} layers, ${model.config.vocab_size} logits each.` };
    const fine = first > 0 ? `Up to layer ${first - 1} they agree. ` : "";
    const where = first < 0 ? "differ after the last layer, in the final norm or the head" : `differ from layer ${first} on (layers count from 0), there by ${power(layers[first])}`;
    return { agree: false, sentence: `${whose} and this page ${where}; the logits differ by ${power(logits)}. ${fine}Nothing is lost: \`tinyllm assemble\` names the part to look at. The views below show the page's own engine.` };
  };

  /* Say it on the page, where there is something to compare */
  T.compare = (loaded, box) => {
    box.hidden = !loaded.computed;
    if (!loaded.computed) return;
    const { agree, sentence } = T.verdict(loaded);
    box.classList.toggle("differs", !agree);
    box.textContent = `${agree ? "✓" : "≠"} ${sentence}`;
  };
})(globalThis.TinyLLM);
