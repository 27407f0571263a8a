/* The page: which model, which view; and its buttons. */
"use strict";

(function (T) {
  const { h } = T;
  const STORY = 40; // tokens that a turn has, at least, if it is a story
  const at = (id) => document.getElementById(id);

  const app = {
    loaded: null, // {name, config, model, tokenizer, computed}
    run: null, // the text and the model's record of it
    requests: [], // what was asked in this text
    promptLength: 0, // where the last answer begins
    answers: [], // [begin, end] of each answer in the text
    thoughts: [], // the same of each thought
    selected: 0, // the token that the views look at
    picked: false, // whether a person picked it
    writing: null, // a promise while tokens are read or written
    byHand: false, // whether requests, seed and knobs alone do not make this text
    isFirst: false, // the text that is there from the start
    isNew: false, // whether the way back leads to the text before
    knobs: {}, seed: 1,
    swap: undefined, layer: undefined, head: undefined, part: undefined, // what views look at
    /* A token of the text as one can see it */
    shown: (i) => text.shown(i),
    select(i) {
      Object.assign(app, { selected: i, picked: false });
      app.changed();
    },
    pick(i) {
      Object.assign(app, { selected: i, picked: true });
      app.changed();
    },
    /* The largest share that a next token has after token i */
    sure(i) {
      const step = app.run.steps[i];
      return (step.sure ??= T.largestShare(step.logits));
    },
    /* Draw everything anew, once a frame at most */
    changed() {
      due ??= setTimeout(draw, 0);
    },
    textChanged: () => text.clear(),
    asked() {
      at("request").value = "";
      markUnknown();
      app.isNew = !app.isFirst;
    },
    answered(answer, written) {
      at("text").dataset.answer = answer;
      if (written) at("status").dataset.tokensPerSecond = app.speed?.toFixed(1);
      suggest();
    },
    goOnWith: (id) => talk.goOnWith(id),
    writeOne: () => talk.step(""),
    openModel: (name) => openModel({ ...state(), model: name, q: [], text: undefined, token: undefined }),
  };
  T.app = app;
  let due = null, viewDue = null, view = null, update = () => {}, text = null, nextDraw = 0;

  const say = (message, more = false) => (more ? at("status").append(" ", message) : (at("status").textContent = message));
  const talking = (is) => {
    at("go").textContent = T.word(is ? "ask.stop" : "ask.go");
    is ? (at("go").dataset.stops = "yes") : delete at("go").dataset.stops;
  };
  const talk = T.talk(app, say, talking);
  const { viewName, wanted, state, keepAddress, place, textKey } = T.addressOf(app);

  /* Views */

  function openView() {
    const name = viewName();
    view = T.views[name];
    for (const link of at("views").children)
      link.dataset.view === name ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
    const tabs = at("views"), tab = tabs.querySelector("[aria-current]"); // on a phone not all fit
    requestAnimationFrame(() => (tabs.scrollLeft = tab.offsetLeft - tabs.offsetLeft - (tabs.clientWidth - tab.clientWidth) / 2));
    const title = T.word(`${name}.title`);
    const lab = view.lab && T.lab(view.lab, T.word("lab", { lab: T.word(`lab.${view.lab}`) }));
    const see = h("p", { class: "see" }, T.word(`${name}.see`), lab ? [" ", h("span", { class: "lab" }, T.phrase("page.built", { lab }))] : []);
    at("panel").replaceChildren(h("h2", { id: "view-title" }, title), see);
    document.title = T.word("page.tab", { view: title });
    at("panel").dataset.view = name;
    update.close?.();
    update = () => {};
    if (!app.loaded || !app.run) return;
    update = view.mount(at("panel"), app) || update;
    explainTerms(at("panel"), T.terms());
    nextDraw = 0;
    app.changed();
  }

  /* The text after every token, the view as often as it leaves two thirds of the time free */
  function draw() {
    due = null;
    if (!app.loaded || !app.run?.ids.length) return;
    app.selected = Math.min(app.selected, app.run.ids.length - 1);
    for (const name of ["answers", "thoughts"]) app[name] = app.loaded.tokenizer[name](app.run.ids);
    at("fold").hidden = !app.thoughts.length;
    text.update(update.shade);
    at("room").textContent = T.word("ask.room", { tokens: app.run.ids.length, room: app.loaded.config.max_position_embeddings });
    if (!app.writing || performance.now() >= nextDraw) viewDue ??= setTimeout(drawView, 0); // a task of its own
  }

  function drawView() {
    viewDue = null;
    if (!app.loaded || !app.run?.ids.length) return;
    const started = performance.now();
    update();
    nextDraw = performance.now() + Math.min(500, 2 * (performance.now() - started));
    if (!app.writing) keepAddress();
  }

  /* Somebody went to another address: a link, the way back */
  function follow() {
    const next = wanted(), { loaded } = app;
    if (loaded && textKey(next) === textKey({ ...state(), model: loaded.name })) {
      place(next);
      openView();
    } else openModel(next);
  }

  /* Models */

  function openModel(next) {
    const facts = T.factsOf(next.model);
    at("model").value = facts.name;
    return talk.alone(async (goesOn) => {
      if (app.loaded?.name !== facts.name) {
        Object.assign(app, { loaded: null, run: null });
        update.close?.();
        update = () => {}; // the view was made for the model before
        ready(false);
        say(T.word("status.reading", { name: facts.name, megabytes: facts.megabytes }));
        performance.mark("model asked for");
        try {
          const loaded = await T.load(facts.name);
          if (!goesOn()) return;
          app.loaded = loaded;
        } catch (error) {
          say(error.message);
          return;
        }
        await T.breath();
        at("about").textContent = described(app.loaded);
        explainTerms(at("about"), T.terms());
        world(facts.world);
        at("thinks").hidden = !app.loaded.tokenizer.think;
        markUnknown();
        await T.breath();
      }
      const { token } = next;
      place({ ...next, model: facts.name, token: undefined });
      await talk.clear();
      await T.breath();
      openView();
      await T.breath();
      ready(true);
      app.isFirst = !next.q.length && !next.text;
      if (app.isFirst) await talk.begin(T.samples.STORIES[0], goesOn);
      else await talk.restore(next, goesOn);
      if (token !== undefined && goesOn()) app.pick(Math.min(token, app.run.ids.length - 1));
      if (goesOn()) await T.compare(app.loaded, at("verdict"));
    });
  }

  function described({ name, config, model }) {
    const tensors = Object.values(model.tensors);
    const total = tensors.reduce((sum, tensor) => sum + tensor.data.length, 0);
    const { num_experts: experts, num_experts_per_tok: each } = config;
    return T.word("page.described", {
      name, parameters: T.count(total, { notation: "compact", maximumSignificantDigits: 3 }), layers: config.num_hidden_layers, heads: config.num_attention_heads,
      kvHeads: config.num_key_value_heads, experts: experts ? T.word("page.described-experts", { experts, each }) : "",
    });
  }

  /* What the model knows, from its card */
  function world(lists) {
    at("world").hidden = !Object.keys(lists).length;
    at("lists").replaceChildren(...Object.entries(lists).flatMap(([name, words]) =>
      [h("dt", {}, T.word(`world.${name}`)), h("dd", { lang: "en" }, words)]));
  }

  /* Words of the request in the box that the model does not know */
  function markUnknown() {
    const box = at("unknown"), { world: lists } = T.factsOf(app.loaded?.name);
    const [words, examples] = Object.keys(lists).length ? T.samples.unknown(at("request").value, lists, T.page.heard) : [[], []];
    box.hidden = !words.length;
    const inWords = (list, tag) => list.flatMap((word, i) => [i ? ", " : "", h(tag, { lang: "en" }, word)]);
    box.replaceChildren(...(words.length ? T.phrase("ask.unknown", { words: inWords(words, "mark"), examples: inWords(examples, "span") }).flat() : []));
  }

  /* The story that was told last: the last turn of some length */
  function lastStory() {
    const { run: { ids }, loaded: { tokenizer } } = app, turns = [[]];
    for (const id of ids) tokenizer.stops.has(id) ? turns.push([]) : turns.at(-1).push(id);
    return tokenizer.decode(turns.findLast((turn) => turn.length > STORY) || ids);
  }

  /* Requests to pick from: questions about the story that is there, or a first one */
  function suggest() {
    const { world: lists } = T.factsOf(app.loaded.name);
    const story = lastStory();
    const follow = talk.isEmpty() ? [] : T.samples.questions(story, lists);
    at("samples").replaceChildren(...(follow.length ? follow : T.samples.STORIES).map((sample) =>
      h("button", { type: "button", lang: "en", click: () => (follow.length ? talk.ask(sample) : startNew().then(() => talk.ask(sample))) }, sample)));
    at("request").placeholder = T.word(talk.isEmpty() ? "ask.first" : "ask.next");
  }

  const startNew = () => talk.alone(async () => {
    await talk.clear();
    app.isFirst = false;
    app.answered("", 0);
    say(T.word("status.new"));
  });

  /* Everything at its start */

  function ready(is) {
    for (const id of ["go", "step", "new"]) at(id).disabled = !is;
    at("text").setAttribute("aria-busy", String(!is));
    document.documentElement.dataset.ready = is ? "yes" : "no";
  }

  function listen() {
    const box = at("request");
    at("model").addEventListener("change", (event) => app.openModel(event.target.value));
    at("skip").addEventListener("click", (event) => {
      event.preventDefault();
      at("panel").focus();
    });
    at("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      at("go").dataset.stops ? talk.halt() : talk.ask(box.value);
    });
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      at("ask").requestSubmit();
    });
    at("step").addEventListener("click", () => talk.step(box.value));
    at("new").addEventListener("click", () => startNew().then(() => box.focus()));
    at("fold").addEventListener("click", () => {
      const isShown = at("text").classList.toggle("unfolded");
      at("fold").setAttribute("aria-pressed", String(isShown));
    });
    for (const tokens of T.BUDGETS) at("budget").append(h("option", { value: tokens }, T.word(tokens ? "ask.budget-of" : "ask.budget-none", { tokens })));
    at("budget").addEventListener("change", () => {
      app.knobs.budget = Number(at("budget").value);
      keepAddress();
    });
    box.addEventListener("input", markUnknown);
    addEventListener("hashchange", follow);
  }

  function start() {
    T.worded(document);
    T.theme(at("theme"), app.changed);
    text = new T.Text(at("text"), app);
    for (const name of Object.keys(T.views))
      at("views").append(h("a", { href: `#${name}`, "data-view": name }, T.word(`${name}.title`)));
    for (const { name } of T.page.models) at("model").append(h("option", { value: name }, name));
    at("home").hidden = !T.page.home;
    at("home").href = T.page.home;
    for (const [lang, name, address] of T.page.others)
      at("others").append(h("a", { href: address, lang, hreflang: lang, "data-address": address }, name));
    listen();
    T.tour(at("tour-button"));
    openView();
    T.afterPaint(() => openModel(wanted())); // the page is there before the model is read
  }

  start();
})(globalThis.TinyLLM);
