/* View "tokens": what the model expects next, and what the knobs make of it (lab 07). */
"use strict";

(function (T) {
  const { h, percent, slider, visible } = T;
  const ROWS = 12;

  T.view("tokens", {
    title: "The next token",
    lab: "07 generation",
    see: "Every token is drawn from a list of probabilities: turn the knobs and see which tokens stay in the draw; pick a bar, and the story goes on with that token.",
    mount(panel, app) {
      const { knobs } = app;
      const all = (value) => (value === 0 ? "all" : String(value));
      const knob = (name, key, help, range) =>
        slider(name, help, { ...range, value: knobs[key] }, (value) => {
          knobs[key] = value;
          app.changed();
        });
      const bars = h("ol", { class: "bars", "aria-label": "Likeliest next tokens" });
      const after = h("h3");
      const kept = h("p", { class: "quiet" });
      panel.append(
        h("div", { class: "split" },
          h("div", { class: "knobs" },
            knob("temperature", "temperature", "0 takes the best; above 1 flattens", { min: 0, max: 2, step: 0.05, shown: (v) => v.toFixed(2) }),
            knob("top-k", "topK", "only the k best tokens", { min: 0, max: 40, step: 1, shown: all }),
            knob("top-p", "topP", "the fewest best that sum to p", { min: 0.05, max: 1, step: 0.05, shown: (v) => v.toFixed(2) }),
            h("p", { class: "legend" }, h("i", { class: "swatch model" }), " the model ", h("i", { class: "swatch draw" }), " after the knobs")),
          h("div", {}, after, bars, kept)));

      return () => {
        const step = app.run.steps[app.selected];
        if (!step) return;
        const found = T.candidates(step.logits, knobs);
        const next = app.run.ids[app.selected + 1];
        after.replaceChildren("after ", h("q", {}, app.shown(app.selected)));
        bars.replaceChildren(...found.slice(0, ROWS).map((each) => row(each, each.id === next, app)));
        const stay = found.filter((each) => each.prob > 0);
        kept.textContent = `${stay.length} of ${found.length} tokens can be drawn.`
          + (next === undefined ? "" : ` The text goes on with “${app.shown(app.selected + 1)}”.`);
      };
    },
  });

  function row({ id, plain, prob }, taken, app) {
    const name = visible(app.loaded.tokenizer.decode([id], false));
    const label = `${name}: model ${percent(plain)}, after the knobs ${percent(prob)}${taken ? ", taken" : ""}`;
    return h("li", { class: prob ? "" : "out" },
      h("button", { type: "button", "aria-label": label, click: () => app.goOnWith(id) },
        h("span", { class: "name" }, name, taken ? h("b", { title: "the text goes on with it" }, " ✓") : null),
        h("span", { class: "track" },
          h("i", { class: "model", style: `width:${100 * plain}%` }),
          h("i", { class: "draw", style: `width:${100 * prob}%` })),
        h("span", { class: "number" }, prob ? percent(prob) : "cut")));
  }
})(globalThis.TinyLLM);
