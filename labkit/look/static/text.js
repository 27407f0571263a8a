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
      const { run, selected, promptLength, answers, thoughts } = this.app;
      const isLonger = this.spans.length < run.ids.length;
      this.match();
      this.spans.forEach((span, i) => {
        const { style = "", title = span.mark || "" } = (shade && shade(i)) || {};
        const isPrompt = i < promptLength && !answers.some(([begin, end]) => begin <= i && i < end);
        const [begin, end] = thoughts.find(([from, to]) => from <= i && i < to) || [];
        const now = `${style}|${title}|${isPrompt}|${i === selected}|${end && [begin, end]}`;
        if (span.before === now) return;
        span.before = now;
        span.setAttribute("style", style);
        span.title = title;
        span.piece.classList.toggle("prompt", isPrompt);
        span.piece.classList.toggle("thought", end !== undefined);
        if (i === begin) span.piece.dataset.tokens = T.word("ask.thought", { tokens: end - begin });
        else delete span.piece.dataset.tokens;
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

    /* One element per token of the run, from the first that differs, and two pieces before: an accent may join a letter */
    match() {
      const { run, loaded } = this.app;
      const stale = this.spans.findIndex((span, i) => span.token !== run.ids[i]);
      let from = stale < 0 ? this.spans.length : stale;
      if (stale < 0 && from === run.ids.length) return;
      for (let back = 2; back && from; back--) from = this.spans[from - 1].first;
      while (this.spans.length > from) (this.spans.at(-1).piece.remove(), this.spans.pop());
      for (const piece of loaded.tokenizer.pieces(run.ids.slice(from))) this.append(piece);
    }

    /* A piece of text: a token, or the tokens that make its characters together, a mark below for each */
    append({ text, size }) {
      const first = this.spans.length, { ids } = this.app.run;
      const shown = MARKS[text] || text.replaceAll("\n", "↵\n");
      const option = (part) => {
        const i = first + part;
        const label = size > 1 ? T.word("ask.part", { text: T.visible(text), part: part + 1, parts: size }) : MARKS[text] ? text : T.visible(text);
        const span = h("span", { role: "option", id: `token-${i}`, "data-at": i, "aria-label": label });
        this.spans.push(Object.assign(span, { token: ids[i], first, shown: T.visible(text.trim() || text) }));
        if (size > 1) Object.assign(span, { mark: label, shown: `${span.shown} ${part + 1}/${size}` });
        return span;
      };
      const options = Array.from({ length: size }, (_, part) => option(part));
      let piece = options[0];
      if (size > 1) piece = h("span", { class: "piece", role: "group", "aria-label": shown, "data-at": first }, shown, h("span", {}, options));
      else piece.append(shown);
      if (MARKS[text]) {
        piece.mark = text;
        piece.classList.add("mark");
      }
      for (const span of options) span.piece = piece;
      this.box.append(piece);
    }

    /* Token i as one can see it, by itself */
    shown(i) {
      this.match();
      return this.spans[i].shown;
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
