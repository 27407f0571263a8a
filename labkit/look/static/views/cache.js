/* View "cache": what the model keeps of every token, in bytes (lab 07). */
"use strict";

(function (T) {
  const { h, s } = T;
  const BYTES = 4; // of a float32, as this page computes
  const kilobytes = (bytes) => `${(bytes / 1024).toLocaleString(document.documentElement.lang, { maximumFractionDigits: bytes < 10240 ? 1 : 0 })} KiB`;

  T.view("cache", {
    lab: "07",
    mount(panel, app) {
      const { num_hidden_layers: L, num_attention_heads: H, num_key_value_heads: K, head_dim: D, max_position_embeddings: room } = app.loaded.config;
      const each = 2 * L * K * D * BYTES, plain = 2 * L * H * D * BYTES;
      const facts = h("p", { class: "facts", role: "status" }), shelf = h("div"), graph = h("div");
      panel.append(facts,
        h("div", { class: "halves" },
          h("div", {}, h("h3", {}, T.word("cache.shelf")), shelf,
            h("p", { class: "legend" }, h("span", {}, h("i", { class: "swatch", style: "background:var(--key)" }), ` ${T.word("cache.keys")}`), " ", h("span", {}, h("i", { class: "swatch", style: "background:var(--value)" }), ` ${T.word("cache.values")}`), " ", h("span", {}, h("i", { class: "swatch spare" }), ` ${T.word("cache.spared")}`))),
          h("div", {}, h("h3", {}, T.word("cache.graph")), graph)),
        h("p", { class: "quiet" }, T.word("cache.sum", { layers: L, kvHeads: K, size: D, bytes: BYTES, each: T.count(each), heads: H, plain: T.count(plain) })));

      function drawShelf(tokens) {
        const row = 200 / (L * H), unit = 396 / Math.max(64, tokens), rows = [];
        for (let layer = 0; layer < L; layer++)
          for (let head = 0; head < H; head++) {
            const y = 8 + (layer * H + head) * row, width = tokens * unit;
            if (head >= K) rows.push(s("rect", { x: 34, y, width, height: row - 1.5, class: "spare" }));
            else rows.push(
              s("rect", { x: 34, y, width, height: row / 2 - 0.75, fill: "var(--key)" }),
              s("rect", { x: 34, y: y + row / 2 - 0.75, width, height: row / 2 - 0.75, fill: "var(--value)" }),
              s("rect", { x: 34 + width - unit, y, width: unit, height: row - 1.5, class: "newest" }));
            if (!head) rows.push(s("text", { x: 28, y: y + 12, "text-anchor": "end" }, String(layer)));
          }
        return T.picture(440, 215, T.word("cache.shelf-alt", { tokens, layers: L, kvHeads: K, spared: H - K }), rows);
      }

      function drawGraph(tokens) {
        const most = plain * Math.max(64, tokens), x = (n) => 60 + (n / Math.max(64, tokens)) * 370, y = (bytes) => 190 - (bytes / most) * 170;
        const line = (bytes, name) => s("polyline", { class: name, points: `${x(0)},${y(0)} ${x(tokens)},${y(bytes * tokens)}` });
        return T.picture(440, 215, T.word("cache.graph-alt", { tokens, cached: kilobytes(each * tokens), kvHeads: K, plain: kilobytes(plain * tokens), heads: H }),
          s("line", { x1: 60, x2: 430, y1: 190, y2: 190, class: "axis" }), s("line", { x1: 60, x2: 60, y1: 20, y2: 190, class: "axis" }),
          s("text", { x: 54, y: 194, "text-anchor": "end" }, "0"),
          s("text", { x: 430, y: 208, "text-anchor": "end", class: "quiet" }, T.word("cache.tokens", { tokens: Math.max(64, tokens) })),
          line(plain, "pale"), line(each, "thick cached"),
          s("circle", { cx: x(tokens), cy: y(each * tokens), r: 5, fill: "var(--accent)" }),
          s("text", { x: Math.max(x(tokens), 150), y: y(each * tokens) + 22, "text-anchor": "end" }, kilobytes(each * tokens)),
          s("text", { x: Math.max(x(tokens) - 12, 150), y: Math.max(16, y(plain * tokens) - 2), "text-anchor": "end", class: "quiet" }, kilobytes(plain * tokens)));
      }

      return () => {
        // to write token t the model would run on all t before it; the prompt is read at once
        const tokens = app.run.cache.length, { answers } = app;
        const written = answers.reduce((sum, [begin, end]) => sum + Math.min(end + 1, tokens) - begin, 0);
        const again = answers.reduce((sum, [begin, end]) => { for (let t = begin; t < Math.min(end + 1, tokens); t++) sum += t; return sum; }, 0);
        const now = h("b", {}, T.word("cache.now", { tokens, size: kilobytes(each * tokens) }));
        facts.replaceChildren(...T.phrase("cache.facts", { now, full: kilobytes(each * room), room, written, again: T.count(again) }));
        shelf.replaceChildren(drawShelf(tokens));
        graph.replaceChildren(drawGraph(tokens));
      };
    },
  });
})(globalThis.TinyLLM);
