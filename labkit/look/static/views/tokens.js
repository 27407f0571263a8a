/* View "tokens": what the model expects next, and what the knobs make of it (lab 07). */
"use strict";

(function (T) {
  const { h, percent, slider, visible } = T;
  const ROWS = 10, GUESSES = 3;

  T.view("tokens", {
    lab: "07",
    mount(panel, app) {
      const { knobs } = app;
      const all = (value) => (value === 0 ? T.word("tokens.top-k-all") : String(value));
      const knob = (name, key, range) =>
        slider(T.word(`tokens.${name}`), T.word(`tokens.${name}-help`), { ...range, value: knobs[key] }, (value) => {
          knobs[key] = value;
          app.changed();
        });
      const bars = h("ol", { class: "bars", "aria-label": T.word("tokens.bars") });
      const after = h("h3"), scale = h("span");
      const kept = h("p", { class: "quiet" });
      const see = h("p", { class: "see" }), way = h("ol", { class: "way" });
      panel.append(
        h("div", { class: "split" },
          h("div", { class: "knobs" },
            knob("temperature", "temperature", { min: 0, max: 2, step: 0.05, shown: (v) => v.toFixed(2) }),
            knob("top-k", "topK", { min: 0, max: 40, step: 1, shown: all }),
            knob("top-p", "topP", { min: 0.05, max: 1, step: 0.05, shown: (v) => v.toFixed(2) }),
            h("p", { class: "legend" }, h("span", {}, h("i", { class: "swatch model" }), ` ${T.word("tokens.model")}`), " ", h("span", {}, h("i", { class: "swatch draw" }), ` ${T.word("tokens.draw")}`))),
          h("div", {}, after,
            h("p", { class: "heading", "aria-hidden": "true" }, h("span"), scale, h("span", { class: "number" }, T.word("tokens.model")), h("span", { class: "number" }, T.word("tokens.draw"))),
            bars, kept)),
        h("h3", {}, T.word("tokens.way")), see, way);

      const update = () => {
        const step = app.run.steps[app.selected];
        if (!step) return;
        const found = T.candidates(step.logits, knobs);
        const next = app.run.ids[app.selected + 1];
        after.replaceChildren(...T.phrase("tokens.after", { token: h("q", {}, app.shown(app.selected)) }));
        const most = [0.2, 0.5].find((share) => Math.max(found[0].plain, found[0].prob) <= share) ?? 1;
        scale.textContent = T.word("tokens.scale", { most: percent(most) });
        bars.replaceChildren(...found.slice(0, ROWS).map((each) => row(each, each.id === next, app, most)));
        const stay = found.filter((each) => each.prob > 0);
        kept.textContent = T.word("tokens.kept", { kept: stay.length, all: found.length })
          + (next === undefined ? "" : ` ${T.word("tokens.goes-on", { token: app.shown(app.selected + 1) })}`);
        if (app.writing) return;
        see.textContent = T.word("tokens.way-see", { token: app.shown(app.selected) });
        way.replaceChildren(...stations(app).map(([name, hidden]) => h("li", {}, h("span", {}, name), guesses(app, hidden))));
      };
      update.shade = (i) => {
        if (i < app.promptLength - 1 && !app.answers.some(([begin, end]) => begin - 1 <= i && i < end)) return null;
        const share = app.sure(i);
        return { style: `background:${T.tint("warn", 0.6 * (1 - share))}`, title: T.word("tokens.sure", { share: percent(share) }) };
      };
      return update;
    },
  });

  /* Where the stream of the picked token can be read: [name, hidden (E,)] */
  function stations({ loaded: { model }, run, selected }) {
    const link = (view, word, layer) => h("a", { href: T.link(view, { layer }) }, T.word(`tokens.way-${word}`));
    const layer = (each, number) => [T.phrase("tokens.way-step", {
      layer: number, attention: link("attention", "attention", number),
      mlp: model.usesExperts(number) ? link("experts", "experts", number) : T.word("tokens.way-mlp"),
    }), each.hidden];
    const embedded = [T.word("tokens.way-embed"), model.embed(run.ids[selected])];
    return [embedded, ...run.steps[selected].layers.map(layer)];
  }

  /* The likeliest tokens, were the stream read here */
  function guesses({ loaded: { model, tokenizer } }, hidden) {
    const probs = T.softmax(model.read(hidden));
    return h("span", { class: "guesses" }, T.topk(probs, GUESSES).map((id) =>
      h("span", { class: "guess", style: `background:${T.tint("heat", 0.35 * probs[id])}` }, h("b", {}, visible(tokenizer.pieces([id])[0].text)), ` ${percent(probs[id])}`)));
  }

  function row({ id, plain, prob }, taken, app, most) {
    const name = visible(app.loaded.tokenizer.pieces([id])[0].text);
    const label = T.word(taken ? "tokens.row-taken" : "tokens.row", { token: name, model: percent(plain), draw: percent(prob) });
    return h("li", { class: prob ? "" : "out" },
      h("button", { type: "button", "aria-label": label, click: () => app.goOnWith(id) },
        h("span", { class: "name" }, name, taken ? h("b", { title: T.word("tokens.taken") }, " ✓") : null),
        h("span", { class: "track" },
          h("i", { class: "model", style: `width:${(100 * plain) / most}%` }),
          h("i", { class: "draw", style: `width:${(100 * prob) / most}%` })),
        h("span", { class: "number quiet" }, percent(plain)),
        h("span", { class: "number" }, prob ? percent(prob) : T.word("tokens.cut"))));
  }
})(globalThis.TinyLLM);
