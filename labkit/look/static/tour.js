/* The tour: six steps through the page, offered at the first visit. It bars nothing: the page goes on
   working beside it, and Escape ends it. */
"use strict";

(function (T) {
  const { h } = T;
  const STEPS = [
    { at: "#text", view: "overview" },
    { at: ".net", view: "overview" },
    { at: ".station.attention", view: "overview", looks: { part: 2 } },
    { at: ".bars", view: "tokens" },
    { at: ".choice", view: "swap" },
    { at: "#views", view: "overview" },
  ];
  const KEY = "tinyllm-tour";

  /* What a browser keeps between visits; some keep nothing for a page from a file */
  const kept = {
    get: () => { try { return localStorage.getItem(KEY); } catch { return "none"; } },
    set: () => { try { localStorage.setItem(KEY, "seen"); } catch { /* asked again next time */ } },
  };

  T.tour = (button) => {
    let step = 0, box = null, lit = null;
    const light = (target) => {
      lit?.classList.remove("lit");
      lit = target;
      lit?.classList.add("lit");
      lit?.scrollIntoView({ block: "nearest" });
    };
    function end() {
      kept.set();
      light(null);
      box?.remove();
      box = null;
      button.focus();
    }
    async function go(to) {
      step = to;
      const { at, view, looks = {} } = STEPS[step];
      location.hash = T.link(view, looks);
      const last = step === STEPS.length - 1;
      const act = (word, click, main) => h("button", { type: "button", class: main ? "main" : null, click }, T.word(`tour.${word}`));
      box.classList.toggle("left", step > 0); // beside what it speaks of
      box.replaceChildren(
        h("p", { class: "quiet" }, T.word("tour.step", { step: step + 1, steps: STEPS.length })),
        h("p", {}, T.word(`tour.${step + 1}`)),
        h("div", { class: "row" }, step ? act("back", () => go(step - 1)) : null,
          last ? null : act("end", end), act(last ? "done" : "next", last ? end : () => go(step + 1), true)));
      box.querySelector(".main").focus();
      await new Promise((done) => setTimeout(done, 250)); // until the view is there
      if (box && step === to) light(document.querySelector(at));
    }
    const start = () => {
      if (!box) document.body.append((box = h("div", { id: "tour", role: "dialog", "aria-label": T.word("tour.name"),
        keydown: (event) => event.key === "Escape" && end() })));
      go(0);
    };
    button.addEventListener("click", start);
    // at the first visit the button asks for attention; a frame in a notebook has no visitors
    if (kept.get() === null && self === top) button.classList.add("first");
    button.addEventListener("click", () => button.classList.remove("first"));
  };
})(globalThis.TinyLLM);
