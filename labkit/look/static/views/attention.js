/* View "attention": who looks at whom, in every head of every layer (lab 03). */
"use strict";

(function (T) {
  const { h, percent } = T;

  T.view("attention", {
    lab: "03",
    mount(panel, app) {
      const { num_hidden_layers: layers, num_attention_heads: heads } = app.loaded.config;
      let layer = Math.min(1, layers - 1), head = 0, cell = null;
      const minis = h("div", { class: "minis", style: `--heads:${heads}` });
      const map = h("div", { class: "map" });
      const line = h("p", { class: "reading", role: "status" });
      const best = h("ol", { class: "plain" });
      const title = h("h3"), bestTitle = h("h3");
      panel.append(h("div", { class: "maps" },
        h("div", {}, h("h3", {}, T.word("attention.minis")), minis),
        h("div", {}, title, map, line),
        h("div", {}, bestTitle, best)));

      /* One head as a picture of T by T points, enlarged by the style sheet */
      function heat(steps, l, head_) {
        const size = steps.length;
        const canvas = h("canvas", { width: size, height: size });
        const context = canvas.getContext("2d");
        const image = context.createImageData(size, size);
        const [r, g, b] = T.rgb("heat");
        steps.forEach((step, row) => step.layers[l].attention[head_].forEach((weight, column) => {
          image.data.set([r, g, b, Math.round(255 * Math.sqrt(weight))], 4 * (row * size + column));
        }));
        context.putImageData(image, 0, 0);
        return canvas;
      }

      function read(row, column) {
        const last = app.run.ids.length - 1;
        cell = [Math.max(0, Math.min(last, row)), 0];
        cell[1] = Math.max(0, Math.min(cell[0], column)); // nobody looks ahead
        const weight = app.run.steps[cell[0]].layers[layer].attention[head][cell[1]];
        line.textContent = T.word("attention.cell", { to: app.shown(cell[0]), share: percent(weight), from: app.shown(cell[1]) });
        const share = 100 / (last + 1);
        cursor.setAttribute("style", `left:${cell[1] * share}%;top:${cell[0] * share}%;width:${share}%;height:${share}%`);
      }

      const cursor = h("i", { class: "cursor" });
      const big = h("div", {
        class: "big", tabindex: 0, role: "application", "aria-roledescription": T.word("attention.map"),
        mousemove: (event) => {
          const box = big.getBoundingClientRect(), size = app.run.ids.length;
          read(Math.floor(((event.clientY - box.top) / box.height) * size), Math.floor(((event.clientX - box.left) / box.width) * size));
        },
        click: () => cell && app.select(cell[0]),
        keydown: (event) => {
          const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [];
          if (down === undefined) return;
          event.preventDefault();
          const [row, column] = cell || [app.selected, app.selected];
          read(row + down, column + right);
        },
      });
      map.append(big);

      let drawn = 0, before = "";
      const update = () => {
        const { steps } = app.run;
        const stale = `${steps.length} ${layer} ${head} ${document.documentElement.dataset.theme} ${app.selected}`;
        if (stale === before || (app.writing && performance.now() - drawn < 250)) return;
        [before, drawn] = [stale, performance.now()];
        minis.replaceChildren(...Array.from({ length: layers * heads }, (_, i) => {
          const [l, one] = [Math.floor(i / heads), i % heads];
          const on = l === layer && one === head;
          const button = h("button", { type: "button", "aria-pressed": String(on), "aria-label": T.word("attention.mini", { layer: l, head: one }),
            click: () => { [layer, head] = [l, one]; update(); app.changed(); minis.children[i].focus(); } });
          button.append(heat(steps, l, one));
          return button;
        }));
        const { model, config } = app.loaded, kvHead = model.parts.kvHead(head, heads / config.num_key_value_heads);
        title.textContent = T.word("attention.head", { layer, head, kvHead });
        big.replaceChildren(heat(steps, layer, head), cursor);
        const weights = steps[app.selected].layers[layer].attention[head];
        const top = T.topk(weights, 6).filter((i) => weights[i] > 0.005);
        bestTitle.textContent = T.word("attention.most", { token: app.shown(app.selected) });
        best.replaceChildren(...top.map((i) => h("li", {}, T.phrase(app.selected === i ? "attention.itself" : "attention.back", { token: h("b", {}, app.shown(i)), back: app.selected - i, share: percent(weights[i]) }))));
        big.setAttribute("aria-label", T.word("attention.alt", {
          layer, head, tokens: steps.length, token: app.shown(app.selected),
          top: top.map((i) => `${app.shown(i)} ${percent(weights[i])}`).join(", "),
        }));
        if (!cell || cell[0] !== app.selected) read(app.selected, top[0]);
      };
      update.shade = (i) => {
        const weights = app.run.steps[app.selected].layers[layer].attention[head];
        return i < weights.length && weights[i] > 0.01
          ? { style: `background:${T.tint("heat", 0.6 * Math.sqrt(weights[i]))}`, title: percent(weights[i]) } : null;
      };
      return update;
    },
  });
})(globalThis.TinyLLM);
