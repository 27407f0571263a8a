/* The page: which model, which text, which view; asking and writing. */
"use strict";

(function (T) {
  const { h } = T;
  const SAMPLES = [
    "Tell me a story about a kite.", "Tell me a story about Anna and a key.", "Tell me a story about a fox.",
    "Tell me a story about a dragon.", "Who are you?",
  ];
  const FIRST = 120; // tokens of the text that is there from the start, at most
  const PACE = 28; // milliseconds a token, at least: one can read along
  const at = (id) => document.getElementById(id);
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  const app = {
    loaded: null, // {name, config, model, tokenizer, computed}
    run: null, // the text and the model's record of it
    promptLength: 0,
    selected: 0, // the token that the views look at
    writing: null, // a promise while tokens are written
    knobs: {},
    seed: 1,
    /* A token of the text as one can see it */
    shown(i) {
      const plain = app.loaded.tokenizer.decode([app.run.ids[i]], false);
      return plain.trim() || T.visible(plain);
    },
    select(i) {
      app.selected = i;
      app.changed();
    },
    /* The largest share that a next token has after token i */
    sure(i) {
      const step = app.run.steps[i];
      return (step.sure ??= Math.max(...T.softmax(step.logits)));
    },
    /* Draw everything anew, once a frame at most */
    changed() {
      if (!due) due = setTimeout(draw, 0);
    },
    goOnWith,
    openModel,
  };
  T.app = app;
  let due = null, view = null, update = () => {}, text = null, stop = false;

  /* Views */

  function viewName() {
    const name = location.hash.slice(1);
    return T.views[name] ? name : Object.keys(T.views)[0];
  }

  function openView() {
    const name = viewName();
    view = T.views[name];
    for (const link of at("views").children)
      link.hash === `#${name}` ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
    const lab = T.lab(view.lab, T.word("lab", { lab: T.word(`lab.${view.lab}`) }));
    const title = T.word(`${name}.title`);
    at("panel").replaceChildren(
      h("h2", { id: "view-title" }, title),
      h("p", { class: "see" }, T.word(`${name}.see`), " ", h("span", { class: "lab" }, T.phrase("page.built", { lab }))));
    document.title = T.word("page.tab", { view: title });
    at("panel").dataset.view = name;
    update = () => {};
    if (!app.loaded) return;
    update = view.mount(at("panel"), app) || update;
    app.changed();
  }

  function draw() {
    due = null;
    if (!app.run) return;
    text.update(update.shade);
    update();
  }

  /* Models */

  async function openModel(name) {
    await halt();
    app.loaded = null;
    ready(false);
    const facts = T.page.models.find((each) => each.name === name);
    at("model").value = name;
    say(T.word("status.reading", { name, megabytes: facts.megabytes }));
    performance.mark("model asked for");
    try {
      app.loaded = await T.load(name);
    } catch (error) {
      say(error.message);
      return;
    }
    Object.assign(app.knobs, facts.knobs);
    at("about").textContent = described(app.loaded);
    T.compare(app.loaded, at("verdict"));
    begin(at("request").value);
    ready(true);
    // there is a text to look at from the start: the likeliest, at once
    const writing = write(FIRST, { ...app.knobs, temperature: 0 }, 0);
    openView();
    say(T.word("status.writing"));
    if (!(await writing)) return;
    say(T.word("status.ready"));
    leastSure();
  }

  function described({ name, config, model }) {
    const tensors = Object.values(model.tensors);
    const total = tensors.reduce((sum, each) => sum + each.data.length, 0);
    const { num_experts: experts, num_experts_per_tok: each } = config;
    return T.word("page.described", {
      name, millions: (total / 1e6).toFixed(2), layers: config.num_hidden_layers, heads: config.num_attention_heads,
      kvHeads: config.num_key_value_heads, experts: experts ? T.word("page.described-experts", { experts, each }) : "",
    });
  }

  /* Asking and writing */

  /* A new text: the request, as the model was taught to read it */
  function begin(request) {
    const { model, tokenizer, config } = app.loaded;
    const room = config.max_position_embeddings - 32;
    const ids = tokenizer.chatPrompt(request).slice(-room);
    app.run = new T.Run(model);
    for (const id of ids) app.run.push(id);
    app.promptLength = ids.length;
    app.selected = ids.length - 1;
    text.clear();
    app.changed();
  }

  /* Write up to `most` tokens, each by the knobs; resolves with how many there were */
  function write(most, knobs = app.knobs, pace = PACE) {
    stop = false;
    const work = async () => {
      const random = T.dice(app.seed++);
      const { run } = app;
      let written = 0, busy = 0;
      for (; written < most && !stop && canGoOn(); written++) {
        const started = performance.now();
        run.push(T.draw(T.candidates(run.logits, knobs), random));
        app.selected = run.ids.length - 1;
        const took = performance.now() - started;
        busy += took;
        if (calm.matches ? written % 20 === 0 : most > 1) {
          app.changed();
          await new Promise((done) => setTimeout(done, Math.max(0, pace - took)));
        }
      }
      app.changed();
      if (written > 1 && pace) told(written, busy);
      return stop ? 0 : written;
    };
    app.writing = work().finally(() => (app.writing = null));
    return app.writing;
  }

  function told(written, busy) {
    const { run, promptLength, loaded } = app;
    app.speed = (1000 * written) / busy;
    at("status").dataset.tokensPerSecond = app.speed.toFixed(1);
    say(T.word("status.written", { count: written, seconds: (busy / 1000).toFixed(1) }) + (ended() ? ` ${T.word("status.ended")}` : ""));
    at("text").dataset.answer = loaded.tokenizer.decode(run.ids.slice(promptLength));
  }

  /* Pick the place where the model was least sure how to go on: there is most to see */
  function leastSure() {
    const { run, promptLength } = app;
    const places = run.ids.map((_, i) => i).slice(promptLength - 1, ended() ? -1 : undefined);
    app.select(places.reduce((best, i) => (app.sure(i) < app.sure(best) ? i : best)));
    at("status").append(" ", T.word("status.least-sure", { token: app.shown(app.selected) }));
  }

  function ended() {
    const { ids } = app.run;
    return ids.length > app.promptLength && app.loaded.tokenizer.stops.has(ids[ids.length - 1]);
  }

  function canGoOn() {
    return !ended() && app.run.ids.length < app.loaded.config.max_position_embeddings;
  }

  async function halt() {
    stop = true;
    await app.writing;
  }

  /* The text up to the picked token, then this one, and what follows from it */
  async function goOnWith(id) {
    await halt();
    const kept = app.run.ids.slice(0, app.selected + 1);
    app.run.cut(kept.length);
    app.promptLength = Math.min(app.promptLength, kept.length);
    app.run.push(id);
    app.selected = kept.length;
    app.changed();
    await goOn();
  }

  /* Write to the end, with a button that stops it */
  async function goOn() {
    at("go").textContent = T.word("ask.stop");
    at("go").dataset.stops = "yes";
    say(T.word("status.writing"));
    const written = await write(400);
    at("go").textContent = T.word("ask.go");
    delete at("go").dataset.stops;
    if (written) leastSure();
  }

  async function ask(request) {
    if (!app.loaded) return;
    await halt();
    at("request").value = request;
    begin(request);
    await goOn();
  }

  /* Everything at its start */

  const say = (message) => (at("status").textContent = message);

  function ready(is) {
    at("go").disabled = at("step").disabled = !is;
    at("text").setAttribute("aria-busy", String(!is));
    document.documentElement.dataset.ready = is ? "yes" : "no";
  }

  function theme() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const button = at("theme");
    const set = (isDark) => {
      document.documentElement.dataset.theme = isDark ? "dark" : "light";
      button.setAttribute("aria-pressed", String(isDark));
      app.changed();
    };
    set(dark.matches);
    dark.addEventListener("change", (event) => set(event.matches));
    button.addEventListener("click", () => set(document.documentElement.dataset.theme !== "dark"));
  }

  function start() {
    T.worded(document);
    theme();
    text = new T.Text(at("text"), app);
    for (const name of Object.keys(T.views))
      at("views").append(h("a", { href: `#${name}` }, T.word(`${name}.title`)));
    for (const { name } of T.page.models) at("model").append(h("option", { value: name }, name));
    for (const sample of SAMPLES)
      at("samples").append(h("button", { type: "button", click: () => ask(sample) }, sample));
    at("request").value = SAMPLES[0];
    at("home").hidden = !T.page.home;
    at("home").href = T.page.home;
    for (const [lang, name, address] of T.page.others) {
      const link = h("a", { href: address, lang, hreflang: lang }, name);
      link.addEventListener("click", () => (link.href = address + location.hash));
      at("others").append(link);
    }
    at("model").addEventListener("change", (event) => openModel(event.target.value));
    at("skip").addEventListener("click", (event) => {
      event.preventDefault();
      at("panel").focus();
    });
    at("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      at("go").dataset.stops ? halt() : ask(at("request").value);
    });
    at("step").addEventListener("click", () => halt().then(() => write(1)).then((written) => written || (ended() && say(T.word("status.ended")))));
    addEventListener("hashchange", openView);
    openView();
    const wanted = viewName() === "experts" && T.page.models.find((each) => each.experts);
    const first = wanted || T.page.models[0];
    // after the first paint: the page stands before the model is read
    afterPaint(() => openModel(first.name));
  }

  function afterPaint(then) {
    const known = globalThis.PerformanceObserver?.supportedEntryTypes ?? [];
    if (!known.includes("paint")) {
      requestAnimationFrame(() => setTimeout(then, 0));
      return;
    }
    new PerformanceObserver((list, observer) => {
      if (!list.getEntriesByName("first-contentful-paint").length) return;
      observer.disconnect();
      then();
    }).observe({ type: "paint", buffered: true });
  }

  start();
})(globalThis.TinyLLM);
