/* View "overview": the whole model, and one token's way through it, step by step or running. */
"use strict";

(function (T) {
  const { h, s, percent, pictures: P } = T;
  const SPEEDS = { slow: 1400, fast: 260 }; // milliseconds per station
  const KINDS = { // where the part is seen, and the lab in which it is built
    embed: { view: "tokens", lab: "06" },
    norm: { view: "swap", looks: { swap: "no-norm" }, lab: "01" },
    attention: { view: "attention", lab: "03" },
    swiglu: { view: "swap", looks: { swap: "relu" }, lab: "04" },
    experts: { view: "experts", lab: "05" },
    head: { view: "tokens", lab: "07" },
  };
  const kindOf = (kind) => KINDS[kind] || KINDS.norm;
  const round = (value) => value.toFixed(value < 10 ? 2 : 1);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let speed = "slow", hasRun = false;

  T.view("overview", {
    uses: ["part"],
    mount(panel, app) {
      const { model, config, tokenizer } = app.loaded, stations = T.stations(model), last = stations.length - 1;
      const plain = (id) => T.visible(tokenizer.pieces([id])[0].text);
      let place = Math.max(0, Math.min(Math.round(app.part ?? 0), last)), playing = false, timer = null, drawnIds = "";

      /* The map: a column per layer, the embedding before them and the head behind */
      const boxes = {}, strips = {}, says = {};
      const station = ({ kind, layer, key }, index) => {
        const name = T.word(`overview.${kind}`), where = layer === undefined ? name : T.word("overview.in-layer", { name, layer });
        return (boxes[key] = h("button", { type: "button", class: `station ${kind}`, "aria-label": where, click: () => { pause(); go(index); } },
          h("span", { class: "what" }, T.word(`overview.${kind === "norm-again" ? "norm" : kind}`)), h("span", { class: "inner" })));
      };
      const strip = (key) => h("span", { class: "strip" }, (strips[key] = h("canvas", { "aria-hidden": "true" })), (says[key] = h("span", { class: "says" })));
      const made = stations.map(station);
      const layers = Array.from({ length: config.num_hidden_layers }, (_, layer) =>
        h("div", { class: "layer" }, h("h3", {}, T.word("overview.layer", { layer })), made.slice(1 + 4 * layer, 5 + 4 * layer), strip(layer)));
      const wires = s("svg", { class: "wires", "aria-hidden": "true" });
      const dot = s("circle", { r: 6, class: "dot" });
      const map = h("div", { class: "net", style: `--layers:${layers.length}` }, wires,
        h("div", { class: "end" }, made[0], strip("embed")), layers, h("div", { class: "end" }, made[last - 1], made[last]));

      /* The stage: what happens at the station, with the numbers of this token */
      const title = h("h3"), text = h("p"), guess = h("p", { class: "quiet" }), links = h("p", { class: "links" }), picture = h("div", { class: "picture-of" });
      const stage = h("div", { class: "stage" }, h("div", { class: "tells" }, title, text, guess, links), picture);

      /* The player */
      const play = h("button", { type: "button", class: "main", click: () => (playing ? pause() : run()) });
      const slider = h("input", { type: "range", min: 0, max: last, value: place, "aria-label": T.word("overview.way"), input: () => { pause(); go(Number(slider.value)); } });
      const button = (word, act) => h("button", { type: "button", "aria-label": T.word(`overview.${word}`), title: T.word(`overview.${word}`), click: act }, word === "back" ? "‹" : "›");
      const pace = h("button", { type: "button", "aria-pressed": "false", click: () => { speed = speed === "slow" ? "fast" : "slow"; controls(); } }, T.word("overview.fast"));
      const now = h("span", { class: "now-token" });
      panel.querySelector("h2").after(h("div", { class: "player" }, play,
        button("back", () => { pause(); go(place - 1); }), slider, button("forward", () => { pause(); place < last ? go(place + 1) : onward(); }), pace, now));
      panel.append(map, stage);

      function controls() {
        play.textContent = T.word(playing ? "overview.pause" : "overview.play");
        pace.setAttribute("aria-pressed", String(speed === "fast"));
      }

      /* Lines between the stations, as they are placed now */
      let segments = [];
      function wire() {
        const area = map.getBoundingClientRect();
        if (!area.width) return;
        const centre = (box) => { const r = box.getBoundingClientRect(); return [r.left - area.left + r.width / 2, r.top - area.top + r.height / 2]; };
        const points = made.map(centre);
        segments = points.slice(1).map(([x, y], k) => {
          const [a, b] = points[k], bend = Math.abs(x - a) > 60 ? (x - a) / 2 : 0;
          return s("path", { d: bend ? `M${a} ${b}C${a + bend} ${b},${x - bend} ${y},${x} ${y}` : `M${a} ${b}L${x} ${y}`, class: "wire" });
        });
        wires.setAttribute("viewBox", `0 0 ${area.width} ${area.height}`);
        wires.replaceChildren(...segments, dot);
        mark();
      }
      const resized = new ResizeObserver(wire);
      resized.observe(map);

      function mark() {
        made.forEach((box, k) => {
          box.classList.toggle("on", k === place);
          box.classList.toggle("ahead", k > place && !app.writing);
        });
        segments.forEach((segment, k) => segment.classList.toggle("on", k < place));
        slider.value = place;
        slider.setAttribute("aria-valuetext", made[place].getAttribute("aria-label"));
      }

      /* The dot goes along the line to the station */
      function travel(from) {
        const segment = segments[from];
        if (!segment || calm.matches || place !== from + 1) return;
        const length = segment.getTotalLength(), started = performance.now(), time = Math.min(420, 0.8 * SPEEDS[speed]);
        const move = () => {
          const share = Math.min(1, (performance.now() - started) / time), point = segment.getPointAtLength(length * (1 - (1 - share) ** 2));
          dot.setAttribute("cx", point.x);
          dot.setAttribute("cy", point.y);
          dot.classList.toggle("moves", share < 1);
          if (share < 1 && place === from + 1 && panel.contains(map)) requestAnimationFrame(move);
        };
        move();
      }

      function go(to) {
        const from = place;
        place = Math.max(0, Math.min(last, to));
        app.part = playing ? undefined : place;
        mark();
        travel(from);
        show();
        app.changed();
      }

      function run() {
        playing = true;
        hasRun = true;
        if (place === last) place = -1;
        controls();
        tick();
      }
      function pause() {
        playing = false;
        hasRun = true;
        clearTimeout(timer);
        controls();
      }
      function tick() {
        if (!playing || !panel.contains(map)) return;
        if (app.writing) return void (timer = setTimeout(tick, 300));
        if (place < last) go(place + 1);
        else onward();
        timer = setTimeout(tick, place === last ? 1.6 * SPEEDS[speed] : SPEEDS[speed]);
      }
      /* The next token of the text; at its end the model writes one */
      async function onward() {
        if (app.selected + 1 >= app.run.ids.length) {
          if (tokenizer.stops.has(app.run.ids.at(-1))) return pause();
          await app.writeOne();
        }
        place = 0;
        app.select(Math.min(app.selected + 1, app.run.ids.length - 1));
      }

      /* All numbers of the picked token in the map; while tokens are written, a quarter of it at a time */
      let turn = 0;
      const inPieces = T.pieces();
      function drawMap() {
        const i = app.selected, { run } = app;
        turn++;
        inPieces(stations.filter((_, k) => !app.writing || k === last || (k + turn) % 4 === 0), (each) => {
          if (run !== app.run || i >= run.ids.length) return; // another text by now
          const found = T.atStation(each, app, i), inner = boxes[each.key].querySelector(".inner");
          if (each.kind === "attention") inner.replaceChildren(P.smallArcs(found.heads));
          else if (each.kind === "swiglu") P.cells(canvasIn(inner), found.open, 32);
          else if (each.kind === "experts") inner.replaceChildren(expertDots(found));
          else if (each.kind === "embed") inner.replaceChildren(h("b", {}, app.shown(i)));
          else if (each.kind === "head") inner.replaceChildren(P.bars(topOf(found.probs, 5)));
          else inner.textContent = `${round(found.size)} → 1`;
          const key = each.kind === "embed" ? "embed" : ["swiglu", "experts"].includes(each.kind) ? each.layer : null;
          if (key === null) return;
          P.cells(strips[key], found.stream, 48);
          if (app.writing) return;
          const [[id, share]] = T.guesses(model, found.stream, 1);
          says[key].replaceChildren(h("b", {}, plain(id)), ` ${percent(share)}`);
        });
      }
      const canvasIn = (box) => box.querySelector("canvas") || box.appendChild(h("canvas", { "aria-hidden": "true" }));
      /* The bars of the head are as long as the share is beside the largest one */
      const topOf = (probs, count) => T.topk(probs, count).map((id, _, [best]) =>
        [plain(id), probs[id] / probs[best], id === app.run.ids[app.selected + 1] ? "var(--warn)" : "var(--heat)", percent(probs[id])]);

      function expertDots({ probs, chosen, weights }) {
        const columns = Math.ceil(probs.length / 2);
        return s("svg", { viewBox: `0 0 ${30 * columns} 56`, "aria-hidden": "true" }, Array.from(probs, (prob, expert) => {
          const slot = chosen.indexOf(expert), x = 15 + 30 * (expert % columns), y = 15 + 27 * Math.floor(expert / columns), colour = `var(--expert-${expert % 8})`;
          return [s("circle", { cx: x, cy: y, r: 11, class: "expert", stroke: colour, fill: slot < 0 ? "none" : colour, "fill-opacity": slot < 0 ? 0 : 0.35 + 0.65 * weights[slot], opacity: slot < 0 ? 0.45 : 1 }),
            s("text", { x, y: y + 4, "text-anchor": "middle", class: slot < 0 ? "quiet" : "chosen" }, String(expert))];
        }));
      }

      /* The stage for the station that the token has reached */
      function show() {
        const at = stations[Math.max(0, place)], found = T.atStation(at, app, app.selected), { kind, layer } = at;
        const { view, looks = {}, lab } = kindOf(kind), fill = facts(at, found), sentence = T.word(`overview.${kind}-is`, fill);
        title.textContent = made[Math.max(0, place)].getAttribute("aria-label");
        text.textContent = sentence;
        if (!app.writing) guess.textContent = kind === "head" ? "" : T.word("overview.guess", { guess: T.guesses(model, found.stream, 3).map(([id, share]) => `“${plain(id)}” ${percent(share)}`).join(", ") });
        const way = (to, more) => h("a", { href: T.link(to, { ...more, part: undefined }) }, T.word(`${to}.title`));
        links.replaceChildren(T.word("overview.see-there"), " ", way(view, view === "swap" ? looks : { layer }),
          ...(kind === "attention" ? [" · ", way("qknorm", { layer }), " · ", way("cache", {})] : []), " · ", T.lab(lab, T.word("lab", { lab })));
        picture.replaceChildren(...draw(at, found, sentence));
      }

      function facts({ kind, layer }, found) {
        const i = app.selected, token = app.shown(i), next = app.run.ids[i + 1];
        if (kind === "embed") return { token, id: app.run.ids[i], vocabulary: config.vocab_size, size: config.hidden_size };
        if (found.before) return { before: round(found.size), size: config.hidden_size };
        if (kind === "attention") {
          const best = found.heads.map((weights, head) => { const from = T.argmax(weights.subarray(0, Math.max(1, i))); return { head, from, share: weights[from] }; }).sort((a, b) => b.share - a.share)[0];
          return { layer, heads: found.heads.length, count: i + 1, head: best.head, share: percent(best.share), from: app.shown(best.from), back: i - best.from };
        }
        if (kind === "swiglu") return { size: found.open.length, open: found.open.filter((value) => Math.abs(value) > 0.1).length };
        if (kind === "experts") return { k: found.chosen.length, experts: found.probs.length, split: found.chosen.map((expert, slot) => T.word("experts.one", { expert, share: percent(found.weights[slot]) })).join(T.word("experts.and")) };
        return { vocabulary: config.vocab_size, top: plain(T.argmax(found.probs)), share: percent(Math.max(...found.probs)), next: next === undefined ? "…" : app.shown(i + 1) };
      }

      function draw({ kind }, found, sentence) {
        const ratio = config.num_attention_heads / config.num_key_value_heads;
        if (kind === "embed") return [P.spikes([[found.stream, "var(--more)"]], sentence)];
        if (found.before) return [P.spikes([[found.before, "var(--soft)"], [found.after, "var(--more)"]], sentence), h("p", { class: "legend" }, T.word("overview.before-after"))];
        if (kind === "attention") return [P.largeArcs(app, found.heads, app.selected, sentence), P.legend(found.heads.length, (head) => model.parts.kvHead(head, ratio, config.num_key_value_heads))];
        if (kind === "swiglu") {
          const canvas = h("canvas", { role: "img", "aria-label": sentence, class: "gates" });
          P.cells(canvas, found.open, 64);
          return [canvas, h("p", { class: "legend" }, T.word("overview.gates"))];
        }
        if (kind === "experts") return [P.bars(Array.from(found.probs, (prob, expert) => {
          const slot = found.chosen.indexOf(expert);
          return [T.word("overview.expert", { expert }), prob, `var(--expert-${expert % 8})`, slot < 0 ? percent(prob) : `${percent(prob)} ✓`];
        }))];
        return [P.bars(topOf(found.probs, innerWidth < 640 ? 5 : 8)), h("p", { class: "legend" }, h("i", { class: "swatch", style: "background:var(--warn)" }), ` ${T.word("tokens.taken")}`)];
      }

      const update = () => {
        const theme = document.documentElement.dataset.theme, ids = `${theme} ${app.run.ids.length} ${app.selected} ${!!app.writing}`;
        now.replaceChildren(...T.phrase("overview.token", { token: h("b", {}, app.shown(app.selected)) }));
        if (ids === drawnIds) return;
        if (app.writing) place = last;
        else if (app.part !== undefined) place = Math.max(0, Math.min(Math.round(app.part), last));
        else if (!playing && !hasRun && !calm.matches && app.part === undefined) {
          place = 0;
          run();
        }
        drawnIds = ids;
        drawMap();
        mark();
        show();
      };
      update.shade = (i) => {
        const { kind, layer } = stations[Math.max(0, place)];
        if (kind !== "attention" || app.writing) return null;
        const heads = app.run.steps[app.selected].layers[layer].attention, share = Math.max(...heads.map((weights) => weights[i] || 0));
        return share > 0.02 ? { style: `background:${T.tint("heat", 0.6 * Math.sqrt(share))}`, title: percent(share) } : null;
      };
      update.close = () => {
        clearTimeout(timer);
        playing = false;
        resized.disconnect();
      };
      controls();
      return update;
    },
  });
})(globalThis.TinyLLM);
