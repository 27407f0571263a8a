/* View "attention": which tokens look at which, in every head of every layer (lab 03). */
"use strict";

(function (T) {
  const { h, percent } = T;

  /* One head as a picture: a row per token, drawn once, so that a new token costs one row */
  class Heat {
    constructor() {
      this.canvas = h("canvas", { width: 64, height: 64 });
      this.rows = 0;
    }
    update(steps, layer, head) {
      const size = steps.length, context = this.canvas.getContext("2d", { willReadFrequently: true }), [r, g, b] = T.rgb("heat");
      if (size < this.rows) this.rows = 0;
      if (this.canvas.width < size) { // a canvas that grows is empty
        const drawn = this.rows && context.getImageData(0, 0, this.rows, this.rows);
        this.canvas.width = this.canvas.height = 2 ** Math.ceil(Math.log2(size));
        if (drawn) context.putImageData(drawn, 0, 0);
      }
      if (!this.rows) context.clearRect(0, 0, this.canvas.width, this.canvas.height);
      if (this.rows < size) {
        const image = context.createImageData(size, size - this.rows), pixels = image.data;
        for (let row = this.rows; row < size; row++) {
          let at = 4 * (row - this.rows) * size;
          for (const weight of steps[row].layers[layer].attention[head]) {
            pixels[at++] = r;
            pixels[at++] = g;
            pixels[at++] = b;
            pixels[at++] = 255 * Math.sqrt(weight);
          }
        }
        context.putImageData(image, 0, this.rows);
        this.rows = size;
      }
      this.canvas.style.width = this.canvas.style.height = `${(100 * this.canvas.width) / size}%`;
    }
  }

  T.view("attention", {
    lab: "03",
    uses: ["layer", "head"],
    mount(panel, app) {
      const { num_hidden_layers: layers, num_attention_heads: heads } = app.loaded.config;
      let cell = null;
      app.layer = Math.max(0, Math.min(app.layer ?? 1, layers - 1));
      app.head = Math.max(0, Math.min(app.head ?? 0, heads - 1));
      const buttons = [], small = [];
      let large = new Heat(), before = "", last = [];
      for (let i = 0; i < layers * heads; i++) {
        const [layer, head] = [Math.floor(i / heads), i % heads];
        small.push(new Heat());
        buttons.push(h("button", { type: "button", "aria-label": T.word("attention.mini", { layer, head }),
          click: () => { Object.assign(app, { layer, head }); app.changed(); } }, h("span", {}, small[i].canvas)));
      }
      const map = h("div", { class: "map" });
      const line = h("p", { class: "reading", role: "status" });
      const best = h("ol", { class: "plain" });
      const title = h("h3"), bestTitle = h("h3");
      panel.append(h("div", { class: "maps" },
        h("div", {}, h("h3", {}, T.word("attention.minis")), h("div", { class: "minis", style: `--heads:${heads}` }, buttons)),
        h("div", {}, title, map, line),
        h("div", {}, bestTitle, best)));

      function read(row, column) {
        const end = app.run.ids.length - 1;
        cell = [Math.max(0, Math.min(end, row)), 0];
        cell[1] = Math.max(0, Math.min(cell[0], column)); // no token looks ahead
        const weight = app.run.steps[cell[0]].layers[app.layer].attention[app.head][cell[1]];
        line.textContent = T.word("attention.cell", { to: app.shown(cell[0]), share: percent(weight), from: app.shown(cell[1]) });
        const share = 100 / (end + 1);
        cursor.setAttribute("style", `left:${cell[1] * share}%;top:${cell[0] * share}%;width:${share}%;height:${share}%`);
      }

      const cursor = h("i", { class: "cursor" });
      const big = h("div", {
        class: "big", tabindex: 0, role: "application", "aria-roledescription": T.word("attention.map"),
        mousemove: (event) => {
          const box = big.getBoundingClientRect(), size = app.run.ids.length;
          read(Math.floor(((event.clientY - box.top) / box.height) * size), Math.floor(((event.clientX - box.left) / box.width) * size));
        },
        click: () => cell && app.pick(cell[0]),
        keydown: (event) => {
          const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [];
          if (down === undefined) return;
          event.preventDefault();
          const [row, column] = cell || [app.selected, app.selected];
          read(row + down, column + right);
        },
      }, large.canvas, cursor);
      map.append(big);
      const inPieces = T.pieces();

      const update = () => {
        const { steps, ids } = app.run, { layer, head } = app;
        const theme = document.documentElement.dataset.theme;
        const stays = last.every((id, i) => id === ids[i]) && before.startsWith(theme);
        if (!stays) [large, ...small].forEach((heat) => (heat.rows = 0));
        if (!before.endsWith(`${layer} ${head}`)) large.rows = 0;
        [before, last] = [`${theme} ${layer} ${head}`, [...ids]];
        buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === layer * heads + head)));
        large.update(steps, layer, head);
        inPieces(small, (heat, i) => heat.update(steps, Math.floor(i / heads), i % heads));
        const { model, config } = app.loaded, kvHead = model.parts.kvHead(head, heads / config.num_key_value_heads);
        title.textContent = T.word("attention.head", { layer, head, kvHead });
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
        const weights = app.run.steps[app.selected].layers[app.layer].attention[app.head];
        return i < weights.length && weights[i] > 0.01
          ? { style: `background:${T.tint("heat", 0.6 * Math.sqrt(weights[i]))}`, title: percent(weights[i]) } : null;
      };
      return update;
    },
  });
})(globalThis.TinyLLM);
