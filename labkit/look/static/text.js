/* The text above the views: one element a token; the arrow keys pick the token to look at. */
"use strict";

(function (T) {
  const { h } = T;
  const MARKS = { "<|im_start|>": "⟨", "<|im_end|>": "⟩", "<|endoftext|>": "∎" };

  class Text {
    constructor(box, app) {
      this.box = box;
      this.app = app;
      this.spans = [];
      box.addEventListener("keydown", (event) => this.key(event));
      box.addEventListener("click", (event) => {
        const found = event.target.closest("[data-at]");
        if (found) app.select(Number(found.dataset.at));
      });
    }

    /* Show what the run holds; elements that stand are kept. shade(i): {style, title} or null */
    update(shade) {
      const { run, loaded, selected, promptLength } = this.app;
      const stale = this.spans.findIndex((span, i) => span.token !== run.ids[i]);
      while (stale >= 0 && this.spans.length > stale) this.spans.pop().remove();
      for (let i = this.spans.length; i < run.ids.length; i++) {
        const plain = loaded.tokenizer.decode([run.ids[i]], false);
        const shown = MARKS[plain] || plain.replaceAll("\n", "↵\n");
        const span = h("span", { role: "option", id: `token-${i}`, "data-at": i, "aria-label": T.visible(plain) }, shown);
        span.token = run.ids[i];
        if (MARKS[plain]) span.classList.add("mark");
        this.spans.push(span);
        this.box.append(span);
      }
      this.spans.forEach((span, i) => {
        const { style = "", title = "" } = (shade && shade(i)) || {};
        if (span.getAttribute("style") !== style) span.setAttribute("style", style);
        if (span.title !== title) span.title = title;
        span.classList.toggle("prompt", i < promptLength);
        span.setAttribute("aria-selected", String(i === selected));
      });
      this.box.setAttribute("aria-activedescendant", `token-${selected}`);
      if (this.app.writing) this.box.scrollTop = this.box.scrollHeight;
    }

    clear() {
      this.spans = [];
      this.box.replaceChildren();
    }

    key(event) {
      const { run, selected } = this.app;
      const last = run.ids.length - 1;
      const to = { ArrowLeft: selected - 1, ArrowRight: selected + 1, Home: 0, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.app.select(Math.max(0, Math.min(last, to)));
      const span = this.spans[this.app.selected];
      if (span) span.scrollIntoView({ block: "nearest" });
    }
  }

  T.Text = Text;
})(globalThis.TinyLLM);
