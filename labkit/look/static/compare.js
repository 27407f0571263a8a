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

  const power = (value) => (value === Infinity ? T.word("verdict.no-number") : value >= 0.01 ? value.toPrecision(2)
    : `1e${Math.ceil(Math.log10(Math.max(value, 1e-9)))}`);

  /* {agree, sentence} */
  T.verdict = async ({ model, computed, name }) => {
    const { problem, ids } = computed, whose = T.word(`whose.${computed.whose}`, computed);
    if (problem) return { agree: false, sentence: T.word("verdict.problem", { whose, problem, name }) };
    const run = await new T.Run(model).read(ids);
    const take = (text, of) => {
      const theirs = T.floats(text), size = theirs.length / ids.length;
      return apart(run.steps.flatMap((step) => Array.from(of(step))), theirs.subarray(0, size * ids.length));
    };
    const layers = computed.layers.map((text, layer) => take(text, (step) => step.layers[layer].hidden));
    const logits = take(computed.logits, (step) => step.logits);
    const first = layers.findIndex((gap) => gap > SAME);
    if (first < 0 && logits <= SAME) return { agree: true, sentence: T.word("verdict.agree", { whose, gap: power(logits), tokens: ids.length, layers: layers.length, logits: model.config.vocab_size }) };
    const fine = first > 0 ? T.word("verdict.up-to", { layer: first - 1 }) : "";
    const where = first < 0 ? T.word("verdict.at-the-end") : T.word("verdict.at-layer", { layer: first, gap: power(layers[first]) });
    return { agree: false, sentence: T.word("verdict.differ", { whose, where, gap: power(logits), fine }) };
  };

  /* Say it on the page, where there is something to compare */
  T.compare = async (loaded, box) => {
    box.hidden = !loaded.computed;
    if (!loaded.computed) return;
    const { agree, sentence } = await T.verdict(loaded);
    box.classList.toggle("differs", !agree);
    box.classList.toggle("quiet", agree && loaded.computed.whose === "course"); // nobody asked
    box.textContent = `${agree ? "✓" : "≠"} ${sentence}`;
  };
})(globalThis.TinyLLM);
