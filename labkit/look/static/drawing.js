/* Drawing: elements in one call, and what the views' pictures share. */
"use strict";

(function (T) {
  const SVG = "http://www.w3.org/2000/svg";

  /* h("p", {class: "quiet"}, "text", another): an element. A function is a listener. */
  const h = (tag, attributes, ...children) =>
    filled(document.createElement(tag), attributes, children);
  const s = (tag, attributes, ...children) =>
    filled(document.createElementNS(SVG, tag), attributes, children);

  function filled(element, attributes = {}, children = []) {
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") element.addEventListener(name, value);
      else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined));
    return element;
  }

  /* A picture of given size that fits the width there is; `text` is for those who do not see it */
  const picture = (width, height, text, ...children) =>
    s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": text, class: "picture" }, ...children);

  /* A slider with its name and value; change(value) */
  function slider(name, help, { min, max, step, value, shown = String }, change) {
    const out = h("output", {}, shown(value));
    const input = h("input", {
      type: "range", min, max, step, value, "aria-label": name, "aria-valuetext": shown(value),
      input: (event) => {
        const now = Number(event.target.value);
        out.textContent = shown(now);
        event.target.setAttribute("aria-valuetext", shown(now));
        change(now);
      },
    });
    return h("label", { class: "knob" }, h("span", {}, name, " ", out), input, h("small", {}, help));
  }

  /* Buttons of which one is on; pick(index) */
  function choice(name, labels, current, pick) {
    return h("div", { class: "choice", role: "group", "aria-label": name },
      h("span", { "aria-hidden": "true" }, name),
      labels.map((label, index) =>
        h("button", { type: "button", "aria-pressed": String(index === current), "aria-label": `${name} ${label}`,
          click: () => pick(index) }, label)));
  }

  /* A colour of the style sheet, by its name there */
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  /* A colour of the style sheet, more or less of it: share from 0 to 1 */
  const tint = (name, share) => `color-mix(in srgb, var(--${name}) ${Math.round(100 * share)}%, transparent)`;

  /* [red, green, blue] of a colour of the style sheet, from 0 to 255; asked once for each theme */
  const known = new Map();
  function rgb(name) {
    const key = `${name} ${document.documentElement.dataset.theme}`;
    if (!known.has(key)) known.set(key, colour(name).match(/[0-9a-f]{2}/gi).map((pair) => parseInt(pair, 16)));
    return known.get(key);
  }

  const percent = (share) => (share >= 0.0995 || share === 0 ? `${Math.round(100 * share)}%`
    : share >= 0.001 ? `${(100 * share).toFixed(1)}%` : "<0.1%");

  /* A token as one can see it: special tokens, line ends and spaces at an edge are drawn */
  const MARKS = { __proto__: null, "<|im_start|>": "⟨", "<|im_end|>": "⟩", "<|endoftext|>": "∎" };
  const visible = (text) => MARKS[text] || (text === "" ? "∅" : text.replaceAll("\n", "↵").replace(/^ | $/g, "␣"));

  /* A function that works through a list with pauses in between, until it is called again */
  const pieces = () => {
    let latest = 0;
    return async (list, work) => {
      const mine = ++latest;
      for (const [i, each] of list.entries()) {
        await T.rest();
        if (mine !== latest) return;
        work(each, i);
      }
    };
  };

  /* A link to a lab's page where there is one, by the lab's number */
  const lab = (number, text) => h(T.page.labs[number] ? "a" : "span", { href: T.page.labs[number] || null }, text);

  /* Call then() after the browser has shown the page for the first time */
  function afterPaint(then) {
    if (!globalThis.PerformanceObserver?.supportedEntryTypes?.includes("paint")) {
      requestAnimationFrame(() => setTimeout(then, 0));
      return;
    }
    new PerformanceObserver((list, observer) => {
      if (!list.getEntriesByName("first-contentful-paint").length) return;
      observer.disconnect();
      then();
    }).observe({ type: "paint", buffered: true });
  }

  /* Light or dark: as the system has it, until the button is pressed */
  function theme(button, changed) {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const set = (isDark) => {
      document.documentElement.dataset.theme = isDark ? "dark" : "light";
      button.setAttribute("aria-pressed", String(isDark));
      changed();
    };
    set(dark.matches);
    dark.addEventListener("change", (event) => set(event.matches));
    button.addEventListener("click", () => set(document.documentElement.dataset.theme !== "dark"));
  }

  Object.assign(T, { theme, pieces, MARKS, afterPaint, h, s, lab, picture, slider, choice, rgb, tint, percent, visible });
})(globalThis.TinyLLM);

/* The views, by the name in the page's address: {lab, uses, mount(panel, app)}; their words are in
   words.js. `uses` lists what the address keeps for the view (swap, layer, head, part). mount fills the
   panel and returns what runs after every change; it may have shade(i) -> {style, title} for the
   tokens of the text, and close() for when another view opens. */
(function (T) {
  T.views = { __proto__: null }; // an address may ask for any name
  T.view = (name, view) => (T.views[name] = view);
})(globalThis.TinyLLM);
