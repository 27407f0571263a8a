/* The page's state in its address, after the "#":

     VIEW&model=..&q=..&seed=..&temperature=..&top-k=..&top-p=..&budget=..&token=..&swap=..&layer=..&head=..&part=..

   q is a request, once per turn of the talk; the same requests, seed and knobs give the same text.
   A text that was stopped, or sent another way by hand, comes as `text`, token by token. */
"use strict";

(function (T) {
  T.BUDGETS = [0, 16, 64, 256]; // tokens of a thought that a person may choose
  const THOUGHT = 64; // of them, to begin with
  const WHOLE = ["seed", "top-k", "budget", "token", "layer", "head", "part"];
  const NUMBERS = ["temperature", "top-p", ...WHOLE];
  const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

  /* {view, q: [..], model, text, swap, and the numbers; what the address lacks is undefined} */
  function parse(hash) {
    const [view, ...rest] = hash.replace(/^#/, "").split("&");
    const fields = new URLSearchParams(rest.join("&"));
    const state = { view, q: fields.getAll("q") };
    for (const name of ["model", "text", "swap"]) state[name] = fields.get(name) ?? undefined;
    for (const name of NUMBERS) {
      const value = parseFloat(fields.get(name));
      if (value >= 0 && value < 1e9) state[name] = WHOLE.includes(name) ? Math.floor(value) : value;
    }
    return state;
  }

  function format({ view, q = [], ...rest }) {
    const fields = new URLSearchParams();
    if (rest.model !== undefined) fields.set("model", rest.model);
    for (const request of q) fields.append("q", request);
    for (const [name, value] of Object.entries(rest))
      if (value !== undefined && name !== "model") fields.set(name, value);
    const text = fields.toString();
    return text ? `#${view}&${text}` : `#${view}`;
  }

  /* Token ids as letters, three each */
  const pack = (ids) => ids.map((id) => DIGITS[id >> 12] + DIGITS[(id >> 6) & 63] + DIGITS[id & 63]).join("");

  /* The ids again; none where the text is damaged or has tokens that the model lacks */
  function unpack(text, vocabulary) {
    const ids = (text.match(/.../g) || []).map((three) =>
      [...three].reduce((sum, digit) => 64 * sum + (DIGITS.includes(digit) ? DIGITS.indexOf(digit) : NaN), 0));
    return ids.every((id) => id < vocabulary) ? ids : [];
  }

  T.factsOf = (name) => T.page.models.find((model) => model.name === name) || T.page.models[0];

  /* The address of what the app shows: read, written, and put back into the app */
  T.addressOf = (app) => {
    const at = (id) => document.getElementById(id);
    const viewName = () => wanted().view;

    /* The address, with its view and, where experts are asked for, a model that has some */
    function wanted() {
      const found = T.address.parse(location.hash);
      if (!T.views[found.view]) found.view = Object.keys(T.views)[0];
      found.model ??= modelFor(found.view);
      return found;
    }
    const modelFor = (name) => (T.page.models.find((model) => name === "experts" && model.experts) || T.page.models[0]).name;

    /* The state that the address holds */
    function state() {
      const { knobs, loaded, requests, run, isFirst, byHand } = app;
      const advised = T.factsOf(loaded?.name).knobs, name = viewName(), { uses = [] } = T.views[name];
      const knob = (key) => (knobs[key] === advised[key] ? undefined : knobs[key]);
      const hasText = run && !isFirst && requests.length > 0;
      return {
        view: name,
        model: loaded && loaded.name !== modelFor(name) ? loaded.name : undefined,
        q: hasText ? requests : [],
        seed: hasText || app.seed !== 1 ? app.seed : undefined,
        temperature: knob("temperature"), "top-k": knob("topK"), "top-p": knob("topP"),
        budget: loaded?.tokenizer.think && knobs.budget !== THOUGHT ? knobs.budget : undefined,
        token: app.picked ? app.selected : undefined,
        ...Object.fromEntries(uses.map((key) => [key, app[key]])), // swap, layer, head, part
        text: hasText && byHand ? T.address.pack(run.ids) : undefined,
      };
    }

    /* A link to a view with this text and these knobs */
    T.link = (name, changes = {}) => {
      const { loaded } = app, model = loaded && loaded.name !== modelFor(name) ? loaded.name : undefined;
      const { uses = [] } = T.views[name];
      const looks = Object.fromEntries(["swap", "layer", "head", "part"].map((key) => [key, uses.includes(key) ? app[key] : undefined]));
      return T.address.format({ ...state(), view: name, model, ...looks, ...changes });
    };

    function keepAddress() {
      const address = T.address.format(state());
      for (const link of at("views").children) link.href = T.link(link.dataset.view);
      for (const link of at("others").children) link.href = link.dataset.address + address;
      if (address === location.hash || (address === `#${viewName()}` && !location.hash)) return;
      history[app.isNew ? "pushState" : "replaceState"](null, "", address);
      app.isNew = false;
    }

    /* What makes the text, apart from how it is looked at */
    const textKey = ({ model, q, text: ids, seed, temperature, ...rest }) =>
      JSON.stringify([T.factsOf(model).name, q, ids, q.length && !ids ? [seed, temperature, rest["top-k"], rest["top-p"], rest.budget] : 0]);

    function place({ swap, layer, head, part, token, seed = 1, temperature, ...rest }) {
      const { knobs } = T.factsOf(rest.model);
      Object.assign(app, { swap, layer, head, part, seed });
      Object.assign(app.knobs, { temperature: temperature ?? knobs.temperature, topK: rest["top-k"] ?? knobs.topK, topP: rest["top-p"] ?? knobs.topP, budget: T.BUDGETS.includes(rest.budget) ? rest.budget : THOUGHT });
      at("budget").value = app.knobs.budget;
      if (token !== undefined) app.pick(token);
    }

    return { viewName, wanted, state, keepAddress, place, textKey };
  };

  T.address = { parse, format, pack, unpack };
})(globalThis.TinyLLM);
