/* View "attention": who looks at whom, in every head of every layer (lab 03). */
"use strict";

(function (T) {
  const { h, percent } = T;

  T.view("attention", {
    title: "Attention",
    lab: "03 attention",
    begins: 40,
    see: "Each square is one head: a row is a token, and the darker a cell, the more that token takes from the one in the column. Go down the layers: the heads of layer 0 look most at the token itself, later ones further back.",
    mount(panel, app) {
      const { num_hidden_layers: layers, num_attention_heads: heads } = app.loaded.config;
      let layer = Math.min(1, layers - 1), head = 0, cell = null;
      const minis = h("div", { class: "minis", style: `--heads:${heads}` });
      const map = h("div", { class: "map" });
      const line = h("p", { class: "reading", role: "status" });
      const best = h("ol", { class: "plain" });
      const title = h("h3"), bestTitle = h("h3");
      panel.append(h("div", { class: "maps" },
        h("div", {}, h("h3", {}, "Layers down, heads across"), minis),
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
        line.textContent = `“${app.shown(cell[0])}” takes ${percent(weight)} from “${app.shown(cell[1])}”.`;
        const share = 100 / (last + 1);
        cursor.setAttribute("style", `left:${cell[1] * share}%;top:${cell[0] * share}%;width:${share}%;height:${share}%`);
      }

      const cursor = h("i", { class: "cursor" });
      const big = h("div", {
        class: "big", tabindex: 0, role: "application", "aria-roledescription": "heat map",
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
          const button = h("button", { type: "button", "aria-pressed": String(on), "aria-label": `layer ${l}, head ${one}`,
            click: () => { [layer, head] = [l, one]; update(); app.changed(); minis.children[i].focus(); } });
          button.append(heat(steps, l, one));
          return button;
        }));
        title.textContent = `Layer ${layer}, head ${head} (reads KV head ${app.loaded.model.parts.kvHead(head, heads / app.loaded.config.num_key_value_heads)})`;
        big.replaceChildren(heat(steps, layer, head), cursor);
        const weights = steps[app.selected].layers[layer].attention[head];
        const top = T.topk(weights, 6).filter((i) => weights[i] > 0.005);
        bestTitle.replaceChildren("“", app.shown(app.selected), "” takes most from");
        best.replaceChildren(...top.map((i) => h("li", {}, h("b", {}, app.shown(i)), ` ${app.selected === i ? "itself" : `${app.selected - i} back`}, ${percent(weights[i])}`)));
        big.setAttribute("aria-label", `Attention of layer ${layer}, head ${head}, ${steps.length} tokens; arrow keys read single cells. `
          + `${app.shown(app.selected)} takes most from ${top.map((i) => `${app.shown(i)} ${percent(weights[i])}`).join(", ")}.`);
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
