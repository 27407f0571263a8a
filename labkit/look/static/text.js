/* The text: one element per token; the arrow keys pick the token to look at. */
"use strict";

(function (T) {
  const { h, MARKS } = T;

  class Text {
    constructor(box, app) {
      Object.assign(this, { box, app, spans: [], isFollowing: true });
      // its end stays in sight until somebody looks elsewhere in it
      new ResizeObserver(() => this.follow()).observe(box);
      for (const name of ["wheel", "pointerdown", "keydown"]) box.addEventListener(name, () => (this.isFollowing = false), { passive: true });
      box.addEventListener("keydown", (event) => this.key(event));
      box.addEventListener("click", (event) => {
        const found = event.target.closest("[data-at]");
        if (found) app.pick(Number(found.dataset.at));
      });
    }

    /* Show what the run holds; elements that are right stay. shade(i): {style, title} or null */
    update(shade) {
      const { run, selected, promptLength, answers } = this.app;
      const stale = this.spans.findIndex((span, i) => span.token !== run.ids[i]);
      while (stale >= 0 && this.spans.length > stale) this.spans.pop().remove();
      const isLonger = this.spans.length < run.ids.length;
      for (let i = this.spans.length; i < run.ids.length; i++) this.append(run.ids[i], i);
      this.spans.forEach((span, i) => {
        const { style = "", title = span.mark || "" } = (shade && shade(i)) || {};
        const isPrompt = i < promptLength && !answers.some(([begin, end]) => begin <= i && i < end);
        const now = `${style}|${title}|${isPrompt}|${i === selected}`;
        if (span.before === now) return;
        span.before = now;
        span.setAttribute("style", style);
        span.title = title;
        span.classList.toggle("prompt", isPrompt);
        span.setAttribute("aria-selected", String(i === selected));
      });
      this.box.setAttribute("aria-activedescendant", `token-${selected}`);
      if (isLonger) {
        this.isFollowing = true;
        requestAnimationFrame(() => this.follow()); // with the layout that comes then anyway
      }
    }

    follow() {
      if (this.isFollowing) this.box.scrollTop = 1e6;
    }

    append(id, i) {
      const plain = this.app.loaded.tokenizer.decode([id], false);
      const shown = MARKS[plain] || plain.replaceAll("\n", "↵\n");
      const span = h("span", { role: "option", id: `token-${i}`, "data-at": i, "aria-label": MARKS[plain] ? plain : T.visible(plain) }, shown);
      span.token = id;
      if (MARKS[plain]) span.mark = plain;
      if (span.mark) span.classList.add("mark");
      this.spans.push(span);
      this.box.append(span);
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
      this.app.pick(Math.max(0, Math.min(last, to)));
      this.spans[this.app.selected]?.scrollIntoView({ block: "nearest" });
    }
  }

  T.Text = Text;
})(globalThis.TinyLLM);
