/* View "swap": one part of the trained model exchanged, measured and heard (labs 01 to 06). */
"use strict";

(function (T) {
  const { h } = T;
  const same = (x) => x;
  const SWAPS = [
    { key: "no-rope", lab: "02", parts: { rotate: same } },
    { key: "layer-norm", lab: "01", parts: { norm: T.layerNorm } },
    { key: "no-norm", lab: "01", parts: { norm: same } },
    { key: "no-qk-norm", lab: "03", parts: { qkNorm: same } },
    { key: "repeat", lab: "03", parts: { kvHead: (head, G, K) => head % K } },
    { key: "relu", lab: "04", parts: { activation: T.relu } },
    { key: "expert-0", lab: "05", experts: true, parts: { route: (_, k) => ({ probs: [1], chosen: [0], weights: [1] }) } },
  ];
  // a story and a question that the models have not been trained on
  const PASSAGE = "<|im_start|>user\nWrite a short story about Maya and a ribbon.<|im_end|>\n<|im_start|>assistant\n"
    + "Maya, a curious goat, was at the playground. She had been given a ribbon. It rained hard. The goat got wet from head to toe. "
    + "Maya ran to the castle to get dry. Maya was soon dry again. The rain stopped, and the sun came out. At last, Maya was glad and laughed.<|im_end|>\n"
    + "<|im_start|>user\nWho has the ribbon?<|im_end|>\n<|im_start|>assistant\nMaya has it.<|im_end|>\n";
  const TRUE = { key: "as-it-is", parts: {} };
  const LONG = 48;
  T.PASSAGE = PASSAGE;
  const name = ({ key }) => T.word(`swap.${key}`);

  T.view("swap", {
    lab: "06",
    uses: ["swap"],
    mount(panel, app) {
      const { loaded } = app, vocabulary = loaded.config.vocab_size, swaps = SWAPS.filter((each) => !each.experts || loaded.config.num_experts);
      let current = Math.max(0, swaps.findIndex(({ key }) => key === app.swap));
      const chosen = h("div"), what = h("p", { class: "reading" });
      const [mine, theirs] = [h("p", { class: "heard" }), h("p", { class: "heard" })];
      const heard = h("p", { class: "quiet", role: "status" });
      const bars = h("ol", { class: "bars nats", "aria-label": T.word("swap.bars") });
      panel.append(chosen, what,
        h("div", { class: "halves" }, h("div", {}, h("h3", {}, T.word("swap.mine")), mine), h("div", {}, h("h3", {}, T.word("swap.theirs")), theirs)),
        heard,
        h("h3", {}, T.word("swap.costs")), bars,
        h("p", { class: "quiet" }, T.word("swap.guessing", { tokens: vocabulary, cost: Math.log(vocabulary).toFixed(1) })));

      function choose(index) {
        current = index;
        chosen.replaceChildren(T.choice(T.word("swap.choose"), swaps.map(name), current, (next) => { choose(next); chosen.querySelectorAll("button")[next].focus(); }));
        const { key, lab } = swaps[current];
        app.swap = key;
        what.replaceChildren(...T.phrase("swap.what", { name: T.word(`swap.${key}`), lab: T.lab(lab, T.word("lab", { lab })), what: T.word(`swap.${key}-what`) }));
        draw();
        app.changed();
      }

      /* Both models answer the same request, each time with the best token, side by side */
      let turn = 0;
      async function hear() {
        const mark = ++turn, { tokenizer } = loaded;
        const prompt = app.run.ids.slice(0, app.promptLength);
        const runs = [loaded.model, loaded.model.with(swaps[current].parts)].map((model) => new T.Run(model));
        const goesOn = () => mark === turn && panel.contains(mine);
        for (const box of [mine, theirs]) box.textContent = "…";
        for (const run of runs) await run.read(prompt, goesOn);
        const show = () => [mine, theirs].forEach((box, i) => (box.textContent = tokenizer.decode(runs[i].ids.slice(prompt.length)) || "…"));
        for (let n = 0; n < LONG && goesOn(); n++) {
          for (const run of runs) {
            if (run.ids.length === prompt.length || !tokenizer.stops.has(run.ids.at(-1))) await run.push(T.argmax(run.logits));
          }
          show();
        }
        if (!goesOn()) return;
        show();
        heard.textContent = T.word("swap.heard", { request: app.requests.at(-1) || "", most: LONG });
        measure();
      }

      /* The passage through every swap, once a model; the page breathes in between */
      async function measure() {
        const costs = (loaded.costs = loaded.costs || new Map());
        for (const each of [TRUE, ...swaps]) {
          if (costs.has(each.key)) continue;
          costs.set(each.key, null); // under way
          const run = new T.Run(loaded.model.with(each.parts));
          let sum = 0;
          for (const [i, id] of loaded.tokenizer.encode(PASSAGE).entries()) {
            await run.push(id);
            sum += run.nats(i);
          }
          costs.set(each.key, sum / (run.ids.length - 1));
          app.changed(); // draws them in the panel that is open now
        }
        bars.dataset.done = "yes";
      }

      function draw() {
        const costs = loaded.costs || new Map(), most = 1.4 * Math.log(vocabulary);
        bars.replaceChildren(...[TRUE, ...swaps].map((each, index) => {
          const cost = costs.get(each.key);
          const number = cost === undefined || cost === null ? "…" : cost < 100 ? cost.toFixed(2) : "> 100";
          const on = index - 1 === current;
          return h("li", {}, h("div", { class: on ? "bar on" : "bar" }, h("span", { class: "name" }, name(each)),
            h("span", { class: "track" }, h("i", { class: `${index ? "draw" : "model"}${cost > most ? " over" : ""}`, style: `width:${Math.min(100, (100 * (cost || 0)) / most)}%` })),
            h("span", { class: "number" }, number)));
        }));
      }

      let before = null;
      choose(current);
      return () => {
        if (app.writing) return; // what is written now is heard when it is whole
        draw();
        const asked = `${current} ${app.run.ids.slice(0, app.promptLength)}`;
        if (asked !== before) hear();
        before = asked;
      };
    },
  });
})(globalThis.TinyLLM);
