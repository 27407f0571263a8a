/* View "qknorm": queries and keys as projected, after the norm, after the rotation (02, 03). */
"use strict";

(function (T) {
  const { h, s } = T;
  const round = (value) => (Math.abs(value) >= 10 ? value.toFixed(0) : value.toFixed(2));

  T.view("qknorm", {
    lab: "03",
    uses: ["layer", "head"],
    mount(panel, app) {
      const { num_hidden_layers: layers, num_attention_heads: H, num_key_value_heads: K, head_dim: D, rope_theta: theta } = app.loaded.config;
      const clamp = (value, count) => Math.max(0, Math.min(value ?? 0, count - 1));
      app.layer = clamp(app.layer, layers);
      app.head = clamp(app.head, H);
      let pair = Math.min(4, D / 2 - 1);
      const chosen = h("div"), lengths = h("div"), turning = h("div", { class: "round" }), words = h("p"), numbers = h("p", { class: "quiet" });
      panel.append(
        chosen,
        h("div", { class: "halves" },
          h("div", {}, h("h3", {}, T.word("qknorm.lengths")), lengths, numbers),
          h("div", {}, h("h3", {}, T.word("qknorm.pair-of")),
            T.slider(T.word("qknorm.pair"), T.word("qknorm.pair-help", { last: D / 2 - 1 }), { min: 0, max: D / 2 - 1, step: 1, value: pair }, (value) => {
              pair = value;
              app.changed();
            }),
            turning, words)));
      const pick = (set) => (value) => { set(value); choices(); app.changed(); };
      const range = (n) => Array.from({ length: n }, (_, i) => String(i));
      function choices() {
        const [at, index] = focusOf(chosen);
        chosen.replaceChildren(
          T.choice(T.word("qknorm.layer"), range(layers), app.layer, pick((value) => (app.layer = value))),
          T.choice(T.word("qknorm.head"), range(H), app.head, pick((value) => (app.head = value))));
        if (at) chosen.querySelectorAll("button")[index].focus();
      }
      choices();

      function drawLengths() {
        const { steps } = app.run, { layer, head } = app;
        const kv = Math.floor(head / (H / K));
        const lines = [
          ["query-plain", "query", true, (seen) => seen.query.plain[head]],
          ["key-plain", "key", true, (seen) => seen.key.plain[kv]],
          ["query-normed", "query", false, (seen) => seen.query.turned[head]],
          ["key-normed", "key", false, (seen) => seen.key.turned[kv]],
        ].map(([name, colour, thin, take]) => ({ name: T.word(`qknorm.${name}`), colour, thin, values: steps.map((step) => T.length(take(step.layers[layer]))) }));
        const most = Math.max(...lines.flatMap((line) => line.values)), last = Math.max(1, steps.length - 1);
        const x = (i) => 34 + (i / last) * 396, y = (value) => 190 - (value / most) * 170;
        const spread = lines.map(({ name, values }) => T.word("qknorm.spread", { name, least: round(Math.min(...values)), most: round(Math.max(...values)) }));
        lengths.replaceChildren(T.picture(440, 215, T.word("qknorm.lengths-alt", { tokens: steps.length, spread: spread.join("; ") }),
          s("line", { x1: x(app.selected), x2: x(app.selected), y1: 15, y2: 190, class: "here" }),
          s("line", { x1: 34, x2: 430, y1: 190, y2: 190, class: "axis" }),
          s("text", { x: 30, y: 194, "text-anchor": "end" }, "0"), s("text", { x: 30, y: 26, "text-anchor": "end" }, round(most)),
          s("text", { x: 430, y: 208, "text-anchor": "end", class: "quiet" }, T.word("qknorm.position")),
          lines.map(({ values, colour, thin }) => s("polyline", { class: thin ? "thin" : "thick", stroke: `var(--${colour})`, points: values.map((v, i) => `${x(i)},${y(v)}`).join(" ") }))),
        h("p", { class: "legend" }, lines.map(({ name, colour, thin }) => h("span", {}, h("i", { class: thin ? "dash thin" : "dash", style: `--of:var(--${colour})` }), ` ${name} `))));
        numbers.textContent = T.word("qknorm.stays", { spread: spread.join(" · ") });
      }

      function drawTurning() {
        const { layer, head, selected: at } = app, seen = app.run.steps[at].layers[layer].query;
        const corner = (vector) => [vector[head][pair], vector[head][pair + D / 2]];
        const before = corner(seen.normed), after = corner(seen.turned);
        const radius = Math.hypot(...before) || 1, turn = T.turn(pair, D, theta);
        const place = ([a, b]) => [130 + (a / radius) * 95, 130 - (b / radius) * 95];
        const start = Math.atan2(before[1], before[0]);
        const first = Math.max(0, at - 48); // older positions would lie on top of each other
        const dots = Array.from({ length: at + 1 - first }, (_, i) => i + first).map((p) => place([radius * Math.cos(start + p * turn), radius * Math.sin(start + p * turn)]));
        const arrow = (to, name) => s("g", { class: name }, s("line", { x1: 130, y1: 130, x2: to[0], y2: to[1] }), s("circle", { cx: to[0], cy: to[1], r: 6 }));
        const angle = at * turn;
        const said = T.word("qknorm.turned", {
          pair, first: pair, second: pair + D / 2, turn: round(turn), position: at, angle: round(angle),
          turns: (angle / 2 / Math.PI).toFixed(2), before: before.map(round).join(", "), after: after.map(round).join(", "),
        });
        turning.replaceChildren(T.picture(260, 260, said,
          s("circle", { cx: 130, cy: 130, r: 95, class: "ring" }),
          s("line", { x1: 20, x2: 240, y1: 130, y2: 130, class: "axis" }), s("line", { x1: 130, x2: 130, y1: 20, y2: 240, class: "axis" }),
          dots.map(([x, y], p) => s("circle", { cx: x, cy: y, r: 2.5, class: "dot", opacity: 0.25 + (0.6 * p) / dots.length })),
          arrow(place(before), "before"), arrow(place(after), "after"),
          s("text", { x: 238, y: 146, class: "quiet", "text-anchor": "end" }, T.word("qknorm.feature", { feature: pair })), s("text", { x: 136, y: 26, class: "quiet" }, T.word("qknorm.feature", { feature: pair + D / 2 }))),
        h("p", { class: "legend" }, h("span", {}, h("i", { class: "dash thin", style: "--of:var(--soft)" }), ` ${T.word("qknorm.legend-normed")}`), " ", h("span", {}, h("i", { class: "dash", style: "--of:var(--query)" }), ` ${T.word("qknorm.legend-turned")}`)));
        words.textContent = said;
      }

      return () => {
        drawLengths();
        drawTurning();
      };
    },
  });

  /* [whether a button in the box has the focus, which] */
  function focusOf(box) {
    const index = [...box.querySelectorAll("button")].indexOf(document.activeElement);
    return [index >= 0, index];
  }
})(globalThis.TinyLLM);
