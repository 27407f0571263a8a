/* The pictures of the overview: values as cells, arcs of attention, bars. */
"use strict";

(function (T) {
  const { h, s, percent } = T;
  const HEADS = ["--expert-0", "--expert-3", "--expert-2", "--expert-4"];
  const headColour = (head) => `var(${HEADS[head % HEADS.length]})`;

  /* Values as cells of a canvas, row by row: the sign is the color, the size its strength */
  function cells(canvas, values, columns) {
    const rows = Math.ceil(values.length / columns);
    if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
    const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
    const colours = [T.rgb("less"), T.rgb("more")];
    const most = 2.2 * (T.length(values) / Math.sqrt(values.length)) || 1;
    values.forEach((value, i) => {
      const [r, g, b] = colours[value > 0 ? 1 : 0];
      image.data.set([r, g, b, Math.round(255 * Math.min(1, Math.abs(value) / most) ** 0.8)], 4 * i);
    });
    context.putImageData(image, 0, 0);
  }

  /* An arc from x to an earlier place, as high as it is far */
  const arc = (x, to, base, height) => `M${x.toFixed(1)} ${base}C${x.toFixed(1)} ${base - height},${to.toFixed(1)} ${base - height},${to.toFixed(1)} ${base}`;

  /* Small: all heads over all tokens, without words */
  function smallArcs(heads) {
    const W = 120, H = 56, base = H - 5, count = heads[0].length, x = (i) => 6 + (i / Math.max(1, count - 1)) * (W - 12);
    const arcs = heads.flatMap((weights, head) => T.topk(weights, 5).filter((i) => weights[i] > 0.06 && i < count - 1).map((i) =>
      s("path", { d: arc(x(count - 1), x(i), base, 8 + 52 * (1 - i / count) ** 0.6), stroke: headColour(head), "stroke-width": 0.6 + 3 * weights[i], opacity: 0.35 + 0.65 * weights[i] })));
    const self = heads.map((weights, head) => s("circle", { cx: W - 6, cy: base, r: 1 + 4 * weights[count - 1], fill: headColour(head), opacity: 0.8 }));
    return s("svg", { viewBox: `0 0 ${W} ${H}`, class: "arcs", "aria-hidden": "true" },
      s("line", { x1: 4, x2: W - 4, y1: base, y2: base, class: "axis" }), arcs, self);
  }

  /* Large: the tokens that matter, in words, and each head's arcs to them */
  function largeArcs(app, heads, selected, text) {
    const W = 640, narrow = innerWidth < 700, H = narrow ? 250 : 218, base = 158;
    const total = heads[0].map((_, i) => Math.max(...heads.map((weights) => weights[i])));
    const SHOWN = narrow ? 9 : 13, near = Array.from({ length: Math.min(4, selected + 1) }, (_, k) => selected - k);
    const places = [...new Set([...near, ...T.topk(total, SHOWN)])].slice(0, SHOWN).sort((a, b) => a - b);
    const x = (k) => 24 + (k / Math.max(1, places.length - 1)) * (W - (narrow ? 130 : 100)), end = x(places.length - 1);
    const arcs = heads.flatMap((weights, head) => places.slice(0, -1).map((i, k) => weights[i] > 0.015 &&
      s("path", { d: arc(end, x(k), base, 24 + 176 * ((places.length - 1 - k) / places.length) ** 0.75), stroke: headColour(head), "stroke-width": 0.75 + 11 * weights[i], opacity: 0.3 + 0.6 * weights[i] })));
    const size = narrow ? 22 : 14;
    const words = places.map((i, k) => s("text", {
      x: x(k), y: base + 20, class: i === selected ? "word here" : "word", "font-size": size,
      "fill-opacity": i === selected ? 1 : 0.5 + 0.5 * Math.min(1, 2 * total[i]), transform: `rotate(32 ${x(k)} ${base + 20})`,
    }, app.shown(i).slice(0, 12)));
    return s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": text, class: "arcs" },
      s("line", { x1: 20, x2: W - 60, y1: base, y2: base, class: "axis" }), arcs.filter(Boolean),
      places.map((i, k) => s("circle", { cx: x(k), cy: base, r: i === selected ? 6 : 3, class: i === selected ? "now" : "past" })), words);
  }

  const legend = (count, kvHead) => h("p", { class: "legend" }, Array.from({ length: count }, (_, head) =>
    h("span", {}, h("i", { class: "swatch", style: `background:${headColour(head)}` }), ` ${T.word("overview.head-of", { head, kvHead: kvHead(head) })}`)));

  /* Values as bars up and down from a middle line; rows: [values, color] one above the other */
  function spikes(rows, text) {
    const W = 640, row = 176 / rows.length;
    const parts = rows.flatMap(([values, colour], k) => {
      const middle = 8 + row * (k + 0.5), most = Math.max(...Array.from(values, Math.abs)) || 1, step = W / values.length;
      let d = "";
      values.forEach((value, i) => (d += `M${((i + 0.5) * step).toFixed(1)} ${middle}v${((-value / most) * (row / 2 - 6)).toFixed(1)}`));
      return [s("line", { x1: 0, x2: W, y1: middle, y2: middle, class: "axis" }), s("path", { d, stroke: colour, "stroke-width": Math.max(1, 0.7 * step), fill: "none" })];
    });
    return s("svg", { viewBox: `0 0 ${W} 190`, role: "img", "aria-label": text, class: "spikes" }, parts);
  }

  /* Named bars: [name, share, color, note] */
  const bars = (rows) => h("ol", { class: "plain-bars" }, rows.map(([name, share, colour, note]) =>
    h("li", {}, h("span", { class: "name" }, name), h("span", { class: "track" }, h("i", { style: `width:${100 * share}%;background:${colour}` })), h("span", { class: "number" }, note ?? percent(share)))));

  T.pictures = { cells, smallArcs, largeArcs, legend, spikes, bars, headColour };
})(globalThis.TinyLLM);
