/* View "experts": which experts each token was sent to, and how much each of them has to do (05). */
"use strict";

(function (T) {
  const { h, s, percent } = T;

  T.view("experts", {
    title: "Experts",
    lab: "05 mixture of experts",
    begins: 60,
    see: "In a layer with experts, a router sends each token to a few of them: the text is shaded by the first choice, and the bars show how unevenly the work is spread.",
    mount(panel, app) {
      const { config, model, name } = app.loaded;
      const layers = Array.from({ length: config.num_hidden_layers }, (_, i) => i).filter((i) => model.usesExperts(i));
      if (!layers.length) return without(panel, app, name);
      const { num_experts: X, num_experts_per_tok: k } = config;
      let layer = layers[0];
      const colour = (expert) => `var(--expert-${expert % 8})`;
      const chosen = h("div"), charts = h("div"), reading = h("p", { role: "status", class: "reading" });
      panel.append(chosen, reading, charts);
      const choices = () => chosen.replaceChildren(T.choice("shade by layer", layers.map(String), layers.indexOf(layer), (index) => {
        layer = layers[index];
        choices();
        chosen.querySelectorAll("button")[index].focus();
        app.changed();
      }));
      choices();

      const routed = (i, l) => app.run.steps[i].layers[l].expertsSeen;
      const split = ({ chosen: experts, weights }) => experts.map((expert, slot) => `expert ${expert} (${percent(weights[slot])})`).join(" and ");

      function chart(l) {
        const { steps } = app.run, tokens = steps.length;
        const picks = new Array(X).fill(0);
        steps.forEach((_, i) => routed(i, l).chosen.forEach((expert) => picks[expert]++));
        const share = picks.map((count) => count / (k * tokens)); // of all picks; even is 1 / X
        const idle = picks.flatMap((count, expert) => (count ? [] : [expert]));
        const said = `Layer ${l}: ` + (idle.length ? `${idle.length > 1 ? "experts" : "expert"} ${idle.join(", ")} ${idle.length > 1 ? "were" : "was"} never picked in this text` : "every expert was picked in this text") + `; the busiest, expert ${T.argmax(share)}, got ${percent(Math.max(...share))} of the work, an even share is ${percent(1 / X)}.`;
        const row = 17, total = Math.max(320, Math.min(760, charts.clientWidth));
        const width = total - 182, load = total - 145, step = width / tokens, most = Math.max(...share);
        return h("figure", {}, h("h3", {}, `Layer ${l}`),
          T.picture(total, X * row + 26, said,
            s("rect", { x: 22 + app.selected * step, y: 0, width: step, height: X * row, class: "column" }),
            Array.from({ length: X }, (_, expert) => s("text", { x: 14, y: expert * row + 13, "text-anchor": "end" }, String(expert))),
            steps.flatMap((_, i) => routed(i, l).chosen.map((expert, slot) => s("rect", { x: 22 + i * step, y: expert * row + 1, width: Math.max(1, step - 0.5), height: row - 2, fill: colour(expert), opacity: 0.25 + 0.75 * routed(i, l).weights[slot] }))),
            share.map((each, expert) => [
              s("rect", { x: load, y: expert * row + 3, width: Math.max(1, (each / most) * 95), height: row - 6, fill: colour(expert) }),
              s("text", { x: load + 6 + (each / most) * 95, y: expert * row + 13 }, percent(each))]),
            s("line", { x1: load + (1 / X / most) * 95, x2: load + (1 / X / most) * 95, y1: 0, y2: X * row, class: "here" }),
            s("text", { x: 22, y: X * row + 18, class: "quiet" }, "tokens, from left to right"),
            s("text", { x: load, y: X * row + 18, class: "quiet" }, "load; line: even share")),
          h("figcaption", {}, said));
      }

      let drawn = 0;
      const update = () => {
        reading.textContent = `“${app.shown(app.selected)}”: ` + layers.map((l) => `layer ${l}, ${split(routed(app.selected, l))}`).join("; ") + ".";
        if (app.writing && performance.now() - drawn < 250) return;
        drawn = performance.now();
        charts.replaceChildren(...layers.map(chart));
      };
      update.shade = (i) => {
        const seen = routed(i, layer);
        return { style: `background:color-mix(in srgb, ${colour(seen.chosen[0])} 38%, transparent)`, title: `layer ${layer}: ${split(seen)}` };
      };
      return update;
    },
  });

  /* A dense model has none: offer one that has */
  function without(panel, app, name) {
    const other = T.page.models.find((each) => each.experts);
    panel.append(h("p", {}, `${name} is dense: every token passes the same feed-forward layer, so there is nothing to choose. `,
      other ? h("button", { type: "button", click: () => app.openModel(other.name) }, `Open ${other.name}`) : null));
    return null;
  }
})(globalThis.TinyLLM);
