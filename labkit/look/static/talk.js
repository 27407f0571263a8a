/* The talk: requests, what the model writes, and the text that both make. */
"use strict";

(function (T) {
  const FIRST = 120; // tokens of the text that is there from the start, at most
  const MOST = 400; // tokens of an answer, at most
  const ROOM = 32; // tokens that must be left for an answer
  const PACE = 28; // milliseconds a token, at least: one can read along
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  /* say(message) tells the person; talked(is) turns the button that asks into one that stops */
  T.talk = (app, say, talking) => {
    let latest = 0;

    /* Stop what runs, then work(goesOn); of several calls only the last begins */
    async function alone(work) {
      const mine = ++latest;
      await app.writing?.catch(() => {});
      if (mine !== latest) return;
      app.writing = work(() => mine === latest);
      try {
        await app.writing;
      } finally {
        app.writing = null;
        app.changed();
      }
    }

    const ended = () => app.run.ids.length > app.promptLength && app.loaded.tokenizer.stops.has(app.run.ids.at(-1));
    const room = () => app.loaded.config.max_position_embeddings - app.run.ids.length;
    const isEmpty = () => app.requests.length === 0;

    /* An empty text: what comes before the first request */
    async function clear() {
      const { model, tokenizer } = app.loaded;
      app.run = await new T.Run(model).read(tokenizer.encode(tokenizer.chat[0]));
      Object.assign(app, { requests: [], byHand: false, made: null, promptLength: app.run.ids.length });
      app.selected = app.run.ids.length - 1;
      app.textChanged();
    }

    /* Read a request into the text; false where it does not fit or was stopped */
    async function read(request, goesOn) {
      const { run, loaded: { tokenizer } } = app;
      const hadEnded = ended(), left = Math.max(0, room() + hadEnded - ROOM);
      const thinks = Boolean(tokenizer.think && app.knobs.budget);
      let ids = tokenizer.chatPrompt(request, isEmpty(), thinks);
      if (ids.length > left) {
        say(T.word(isEmpty() ? "status.too-long" : "status.full", { tokens: ids.length, left }));
        return false;
      }
      if (hadEnded) run.cut(run.ids.length - 1); // its end comes again, with the request
      if (isEmpty()) {
        const same = run.ids.findIndex((id, i) => id !== ids[i]); // a request may begin with a line end
        run.cut(same < 0 ? run.ids.length : same);
        ids = ids.slice(run.ids.length);
      }
      app.asked();
      talking(true);
      app.requests.push(request);
      app.made ??= settings();
      await forget();
      app.promptLength = run.ids.length + ids.length;
      await run.read(ids, () => {
        app.selected = run.ids.length - 1;
        app.changed();
        return goesOn();
      });
      app.promptLength = run.ids.length;
      app.selected = run.ids.length - 1;
      app.changed();
      if (goesOn()) return true;
      app.byHand = true;
      talking(false);
      tell(0);
      return false;
    }

    /* Thoughts of earlier turns are not read again: Qwen3's template leaves them out */
    async function forget() {
      const { run, loaded: { tokenizer } } = app, [begin, end] = tokenizer.thoughts(run.ids).at(-1) || [];
      if (begin === undefined) return;
      const rest = run.ids.slice(end);
      run.cut(begin);
      await run.read(rest);
    }

    /* Write up to `most` tokens, each by the knobs; resolves with how many there were */
    async function write(most, knobs, pace, goesOn) {
      const { run } = app, random = T.dice(app.seed + 7919 * run.ids.length);
      let written = 0, busy = 0;
      for (; written < most && goesOn() && !ended() && room() > 0; written++) {
        const started = performance.now();
        const drawn = T.draw(T.candidates(run.logits, knobs), random); // also where it is not taken: the dice go on
        await run.push(app.loaded.tokenizer.forced(run.ids, knobs.budget) ?? drawn);
        app.selected = run.ids.length - 1;
        app.sure(app.selected);
        busy += performance.now() - started;
        if (calm.matches || !pace) {
          if (written % 8 === 0) app.changed();
          await T.rest();
        } else if (most > 1) {
          app.changed();
          await new Promise((done) => setTimeout(done, Math.max(0, pace - (performance.now() - started))));
        }
      }
      if (!ended() && room() > 0) app.byHand = true;
      if (written) app.speed = (1000 * written) / busy;
      return goesOn() ? written : 0;
    }

    /* What was asked and answered so far, in turn */
    function turns() {
      const { run, loaded: { tokenizer } } = app;
      const answers = tokenizer.answers(run.ids).map(([begin, end]) => tokenizer.decode(run.ids.slice(begin, end)));
      return app.requests.flatMap((request, i) => [request, answers[i] || ""]);
    }

    const settings = () => JSON.stringify([app.knobs, app.seed]);

    /* Write to the end, with a button that stops it, and say how it went */
    async function answer(goesOn, pace = PACE) {
      talking(true);
      say(T.word("status.writing"));
      const written = await write(MOST, app.knobs, pace, goesOn);
      talking(false);
      tell(written);
      if (written) leastSure(written);
    }

    function tell(written) {
      const { run, promptLength, loaded } = app;
      const parts = [];
      if (written > 8) parts.push(T.word("status.written", { count: written, speed: Math.round(app.speed) }));
      if (ended()) parts.push(T.word("status.ended"));
      else if (room() <= 0) parts.push(T.word("status.no-room", { room: loaded.config.max_position_embeddings }));
      else parts.push(T.word("status.stopped"));
      say(parts.join(" "));
      const answer = loaded.tokenizer.decode(run.ids.slice(Math.max(promptLength, thought()))), { world } = T.factsOf(loaded.name);
      app.answered(answer, written);
      if (!ended() || !Object.keys(world).length || app.requests.length === 0) return;
      const [key, words] = T.samples.fault(app.requests.at(-1), answer.replace(/<\|.*$/s, ""), turns().slice(0, -2), world, T.page.heard);
      if (key) say(T.word(key, { words: words.join(", ") }), true);
    }

    /* Where the last thought ends, 0 without one */
    const thought = () => app.loaded.tokenizer.thoughts(app.run.ids).at(-1)?.[1] ?? 0;

    /* Pick the place where the model was least sure how to go on: there is most to see */
    function leastSure(written) {
      const { run, promptLength } = app;
      const places = run.ids.map((_, i) => i).slice(Math.max(promptLength, thought()) - 1, ended() ? -1 : undefined);
      app.select(places.reduce((best, i) => (app.sure(i) < app.sure(best) ? i : best)));
      if (written > 12) say(T.word("status.least-sure", { token: app.shown(app.selected) }), true);
    }

    /* Ask in the text that is there; what the box holds stays there if it cannot be asked */
    function ask(request) {
      if (!app.loaded) return null;
      if (!request.trim()) {
        say(T.word("status.empty"));
        return null;
      }
      const { world } = T.factsOf(app.loaded.name), isKnown = Object.keys(world).length;
      if (isKnown && !app.writing && T.samples.lacksStory(request, turns(), world, T.page.heard)) {
        say(T.word("fault.no-story"));
        return null;
      }
      return alone(async (goesOn) => {
        if (app.isFirst || (app.made && app.made !== settings())) app.byHand = true;
        app.isFirst = false;
        const isSame = isEmpty() && app.before === request;
        if (isSame) app.seed++; // the same again: another story
        app.before = isEmpty() ? request : app.before;
        if (await read(request, goesOn)) await answer(goesOn);
      });
    }

    return {
      alone, ask, clear, isEmpty, room,
      halt: () => alone(async () => {}),
      /* The likeliest first text, at once: there is something to look at from the start */
      async begin(request, goesOn) {
        if (!(await read(request, goesOn))) return;
        await write(FIRST, { ...app.knobs, temperature: 0 }, 0, goesOn);
        talking(false);
        if (!goesOn()) return;
        Object.assign(app, { byHand: false, requests: [request], made: null, isFirst: true });
        say(T.word("status.ready"));
        app.answered(app.loaded.tokenizer.decode(app.run.ids.slice(app.promptLength)), 1);
        leastSure(0);
      },
      /* A text from an address: its tokens, or its requests asked anew */
      async restore({ q, text }, goesOn) {
        const { config: { vocab_size, max_position_embeddings }, tokenizer } = app.loaded;
        say(T.word("status.writing"));
        const ids = text ? T.address.unpack(text, vocab_size).slice(0, max_position_embeddings) : [];
        if (ids.length) {
          app.run = new T.Run(app.loaded.model);
          app.textChanged();
          await app.run.read(ids, () => (app.selected = app.run.ids.length - 1, app.changed(), goesOn()));
          const from = app.run.ids.findIndex((id, i) => id !== ids[i]);
          if (from >= 0 || !goesOn()) return;
          const [begin] = tokenizer.answers(ids).at(-1) || [ids.length];
          Object.assign(app, { byHand: true, requests: q, promptLength: begin, selected: ids.length - 1 });
          app.answered(tokenizer.decode(ids.slice(begin)), 0);
          say(T.word("status.restored"));
          return;
        }
        for (const request of q) {
          if (!goesOn() || !(await read(request, goesOn))) return;
          await answer(goesOn, 0);
        }
      },
      /* The text up to the picked token, then this one, and what follows from it */
      goOnWith: (id) => alone(async (goesOn) => {
        const length = app.selected + 1;
        app.run.cut(length);
        app.promptLength = Math.min(app.promptLength, length);
        await app.run.push(id);
        Object.assign(app, { byHand: true, isFirst: false, selected: length });
        app.isNew = true;
        app.changed();
        await answer(goesOn);
      }),
      /* One more token; of the request in the box, where there is one */
      step: (request) => alone(async (goesOn) => {
        if (request.trim()) {
          if (!(await read(request, goesOn))) return null;
          talking(false);
        }
        if (ended() || isEmpty()) return say(T.word(isEmpty() ? "status.empty" : "status.ended-step"));
        app.byHand = true;
        app.isFirst = false;
        await write(1, app.knobs, 0, goesOn);
        if (ended()) tell(1);
        else say(T.word("status.one", { token: app.shown(app.selected) }));
      }),
    };
  };
})(globalThis.TinyLLM);
