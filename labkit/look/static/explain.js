/* Terms that a page explains where they come first: a tap, or Enter, shows the meaning. */
"use strict";

(function () {
  const SKIP = "a, button, code, pre, summary, h1, h2, h3, h4, math, svg, figcaption, .term, label, legend, option, textarea";
  let open = null;

  function close() {
    open?.note.remove();
    open?.button.setAttribute("aria-expanded", "false");
    open = null;
  }

  function show(button, meaning) {
    const again = open?.button === button;
    close();
    if (again) return;
    const note = document.createElement("span");
    note.className = "meaning";
    note.setAttribute("role", "status");
    document.body.append(note);
    note.textContent = meaning; // after it is there, so that it is read out
    const box = button.getBoundingClientRect(), width = note.offsetWidth;
    note.style.left = `${Math.max(8, Math.min(box.left, document.documentElement.clientWidth - width - 8)) + scrollX}px`;
    note.style.top = `${box.bottom + scrollY + 4}px`;
    button.setAttribute("aria-expanded", "true");
    open = { button, note };
  }

  /* Mark the first place of each term inside root; terms: [["KV heads|KV head", meaning], ..] */
  globalThis.explainTerms = (root, terms) => {
    const left = new Map(terms.flatMap(([forms, meaning]) => forms.split("|").map((form) => [form, { meaning, forms }])));
    const escaped = [...left.keys()].map((form) => form.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).sort((a, b) => b.length - a.length);
    if (!escaped.length) return;
    const pattern = new RegExp(`(?<![\\w-])(?:${escaped.join("|")})(?![\\w-])`);
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), texts = [], done = new Set();
    while (walker.nextNode()) if (!walker.currentNode.parentElement.closest(SKIP)) texts.push(walker.currentNode);
    for (let text of texts)
      for (let found; (found = pattern.exec(text.data)); ) {
        const rest = text.splitText(found.index + found[0].length), { meaning, forms } = left.get(found[0]);
        if (!done.has(forms)) {
          done.add(forms);
          const word = text.splitText(found.index), button = document.createElement("button");
          Object.assign(button, { type: "button", className: "term", textContent: found[0], onclick: () => show(button, meaning) });
          button.setAttribute("aria-expanded", "false");
          word.replaceWith(button);
        }
        text = rest;
      }
  };

  addEventListener("keydown", (event) => event.key === "Escape" && close());
  addEventListener("click", (event) => event.target.closest?.(".term, .meaning") || close());
  addEventListener("hashchange", close);
})();
