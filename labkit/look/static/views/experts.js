/* View "experts": which experts each token was sent to, and how much each of them has to do (05). */
"use strict";

(function (T) {
  const { h, s, percent } = T;

  T.view("experts", {
    lab: "05",
    uses: ["layer"],
    mount(panel, app) {
      const { config, model, name } = app.loaded;
      const layers = Array.from({ length: config.num_hidden_layers }, (_, i) => i).filter((i) => model.usesExperts(i));
      if (!layers.length) return without(panel, app, name);
      const { num_experts: X, num_experts_per_tok: k } = config;
      if (!layers.includes(app.layer)) app.layer = layers[0];
      const colour = (expert) => `var(--expert-${expert % 8})`;
      const chosen = h("div"), charts = h("div"), reading = h("p", { role: "status", class: "reading" });
      panel.append(chosen, reading, charts);
      const choices = () => chosen.replaceChildren(T.choice(T.word("experts.shade"), layers.map(String), layers.indexOf(app.layer), (index) => {
        app.layer = layers[index];
        choices();
        chosen.querySelectorAll("button")[index].focus();
        app.changed();
      }));
      choices();

      const routed = (i, l) => app.run.steps[i].layers[l].expertsSeen;
      const split = ({ chosen: experts, weights }) => experts.map((expert, slot) => T.word("experts.one", { expert, share: percent(weights[slot]) })).join(T.word("experts.and"));

      function chart(l) {
        const { steps } = app.run, tokens = steps.length;
        const picks = new Array(X).fill(0);
        steps.forEach((_, i) => routed(i, l).chosen.forEach((expert) => picks[expert]++));
        const share = picks.map((count) => count / (k * tokens)); // of all picks; even is 1 / X
        const idle = picks.flatMap((count, expert) => (count ? [] : [expert]));
        const busiest = T.word("experts.busiest", { expert: T.argmax(share), share: percent(Math.max(...share)), even: percent(1 / X) });
        const many = ["all-picked", "one-idle"][idle.length] || "some-idle";
        const said = T.word(`experts.${many}`, { layer: l, idle: idle.join(", "), busiest });
        const row = 17, total = Math.max(320, Math.min(760, charts.clientWidth));
        const width = total - 182, load = total - 145, step = width / tokens, most = Math.max(...share);
        return h("figure", {}, h("h3", {}, T.word("experts.layer", { layer: l })),
          T.picture(total, X * row + 26, said,
            s("rect", { x: 22 + app.selected * step, y: 0, width: step, height: X * row, class: "column" }),
            Array.from({ length: X }, (_, expert) => s("text", { x: 14, y: expert * row + 13, "text-anchor": "end" }, String(expert))),
            cells(steps, l, step, row),
            share.map((each, expert) => [
              s("rect", { x: load, y: expert * row + 3, width: Math.max(1, (each / most) * 95), height: row - 6, fill: colour(expert) }),
              s("text", { x: total, y: expert * row + 13, "text-anchor": "end" }, percent(each))]),
            s("line", { x1: load + (1 / X / most) * 95, x2: load + (1 / X / most) * 95, y1: 0, y2: X * row, class: "here" }),
            s("text", { x: 22, y: X * row + 18, class: "quiet" }, T.word("experts.axis")),
            s("text", { x: load, y: X * row + 18, class: "quiet" }, T.word("experts.load"))),
          h("figcaption", {}, said));
      }

      /* A cell for each pick; those of an expert with about the same weight are one path */
      function cells(steps, l, step, row) {
        const paths = new Map(), width = Math.max(1, step - 0.5);
        steps.forEach((_, i) => routed(i, l).chosen.forEach((expert, slot) => {
          const key = `${expert} ${Math.ceil(4 * routed(i, l).weights[slot])}`;
          paths.set(key, `${paths.get(key) || ""}M${(22 + i * step).toFixed(1)} ${expert * row + 1}h${width.toFixed(1)}v${row - 2}h-${width.toFixed(1)}z`);
        }));
        return [...paths].map(([key, d]) => {
          const [expert, quarter] = key.split(" ").map(Number);
          return s("path", { d, fill: colour(expert), opacity: 0.25 + 0.1875 * quarter });
        });
      }

      const update = () => {
        const each = layers.map((l) => T.word("experts.layer-of", { layer: l, split: split(routed(app.selected, l)) }));
        reading.textContent = T.word("experts.reading", { token: app.shown(app.selected), layers: each.join("; ") });
        charts.replaceChildren(...layers.map(chart));
      };
      update.shade = (i) => {
        const { layer } = app, seen = routed(i, layer);
        return (seen.shade ??= { style: `background:color-mix(in srgb, ${colour(seen.chosen[0])} 38%, transparent)`, title: T.word("experts.title-of", { layer, split: split(seen) }) });
      };
      return update;
    },
  });

  /* A dense model has none: offer one that has */
  function without(panel, app, name) {
    const other = T.page.models.find((each) => each.experts);
    panel.append(h("p", {}, T.word("experts.dense", { name }), " ",
      other ? h("button", { type: "button", click: () => app.openModel(other.name) }, T.word("experts.open", { name: other.name })) : null));
    return null;
  }
})(globalThis.TinyLLM);
