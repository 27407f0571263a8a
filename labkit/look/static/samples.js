/* What to ask: requests for a story, and questions about the story that is there. */
"use strict";

(function (T) {
  const STORIES = [
    "Tell me a story about a kite.", "Tell me a story about Anna and a key.", "Tell me a story about a fox named Felix.",
    "Tell me a long story about a red ball.", "Tell me a story about a dragon.", "Who are you?",
  ];

  /* The words of a list that a text has, in the order of the text */
  function mentioned(list, text) {
    const found = (list || "").split(", ").filter((word) => word && new RegExp(`\\b${T.escaped(word)}\\b`).test(text));
    return found.sort((a, b) => text.indexOf(a) - text.indexOf(b));
  }

  /* Questions that the story may answer; world: what the model knows, {names, things, ...} */
  function questions(story, world) {
    const [thing] = mentioned(world.things, story), [name] = mentioned(world.names, story);
    return [
      ...(thing ? [`Where is the ${thing}?`, `Who has the ${thing}?`] : []),
      ...(name ? [`Where is ${name}?`, `Who is ${name}?`] : []),
    ].slice(0, 3);
  }

  const LITTLE = "a an the of in on at by to for with and or is was that who his her".split(" ");
  const parts = (list) => (list || "").split(/[, ]+/).filter(Boolean);
  const known = new Map();
  const TOLD = 3; // sentences of an answer that is a story

  /* The words that a request can be made of: for a story it says who and what, else anything that stories
     say. world: what the model knows, {names, things, ...}; heard: words of {requests, texts} */
  function knownWords(world, heard, isForStory) {
    const key = JSON.stringify([world, isForStory]);
    if (!known.has(key)) {
      const { places, counted, ...about } = world;
      const lists = Object.values(isForStory ? about : world).flatMap(parts);
      known.set(key, new Set([...LITTLE, ...heard.requests, ...(isForStory ? [] : heard.texts), ...lists.map((word) => word.toLowerCase())]));
    }
    return known.get(key);
  }

  /* Words of a request that the model does not know, and some of the same sort that it knows: [words, examples] */
  function unknown(request, world, heard) {
    const isForStory = isStoryRequest(request, heard), list = knownWords(world, heard, isForStory);
    const words = [...new Set(request.match(/[\p{L}\p{M}\p{N}]+(['’]\p{L}+)?/gu) || [])];
    const found = words.filter((word) => !list.has(word.toLowerCase().replace(/['’]s$/, "")));
    const isName = found.length > 0 && found.every((word) => /^\p{Lu}/u.test(word) && !request.startsWith(word));
    const some = (name, count) => {
      const all = (world[name] || "").split(", "), step = Math.max(1, Math.floor(all.length / count));
      return all.filter((_, i) => i % step === 0).slice(0, count);
    };
    return [found, isName ? some("names", 6) : [...some("beings", 4), ...some("things", 4)]];
  }

  /* What follows judges a request and an answer as labkit/model/chat/manners.py does */

  const bare = (text) => text.toLowerCase().replace(/ color /g, " colour ").trim().replace(/\s+/g, " ").replace(/[.?! ]+$/, "")
    .replace(/^(where|who|what)['’]s /, "$1 is ").replace(/^((?:where |who |what |what colour )?)was /, "$1is ").replace(/^why is /, "why was ");
  const shifted = (by) => (mark) => String.fromCharCode(mark.charCodeAt() + by); // what ends no sentence, in quotes
  const sentences = (text) => text.replace(/\s+/g, " ").replace(/"[^"]*"/g, (quote) => quote.replace(/[.!?]/g, shifted(0xe000)))
    .match(/[^.!?]*(?:[.!?]+|$)/g).map((each) => each.replace(/[\ue021-\ue03f]/g, shifted(-0xe000)).trim()).filter(Boolean);
  const reader = (heard) => (heard.understood ??= T.reader(heard.reader));
  const isTold = (request) => /^this /i.test(request.trim()) || sentences(request).length > 2;
  const isStoryRequest = (request, heard) => (/\bstor(y|ies)\b/i.test(request) && !isTold(request)) || heard.plain.includes(bare(request));

  function isQuestion(request, heard) {
    const last = bare(sentences(request).at(-1) || "");
    return !heard.chatter.includes(last) && heard.forms.some((form) => new RegExp(`^(?:${form})$`).test(last));
  }

  /* The sentences of the story that a request brings along or that was told before; [] for none */
  function storyOf(request, earlier, heard) {
    for (const text of [request, ...earlier.toReversed()]) {
      const all = sentences(text), told = all.at(-1)?.endsWith("?") ? all.slice(0, -1) : all;
      const isMine = told.some(reader(heard).understands) || (text === request && told.length && told.length < all.length);
      if (told.length >= TOLD || isMine) return told;
    }
    return [];
  }

  /* Whether it asks about a story that nobody told */
  const lacksStory = (request, earlier, world, heard) =>
    isQuestion(request, heard) && !unknown(request, world, heard)[0].length && !storyOf(request, earlier, heard).length;

  /* What is wrong with an answer: [key of words.js or "", words] */
  function fault(request, answer, earlier, world, heard) {
    const has = (text, word) => new RegExp(`\\b${T.escaped(word)}\\b`, "i").test(text);
    const names = Object.values(world).flatMap((list) => list.split(", "));
    if (heard.refusals.includes(answer.trim()) || heard.chatter.includes(bare(request))) return ["", []];
    if (isStoryRequest(request, heard)) {
      if (sentences(answer).length < TOLD) return ["fault.no-answer", []];
      const wishes = `(?:(?:${heard.adjectives.join("|")}) )?(?:${[...names].sort((a, b) => b.length - a.length).map(T.escaped).join("|")})`;
      const left = [...new Set(request.match(new RegExp(`\\b${wishes}\\b`, "gi")))].filter((wish) => !has(answer, wish));
      return [left.length ? "fault.left-out" : "", left];
    }
    if (isQuestion(request, heard)) {
      const story = storyOf(request, earlier, heard), question = sentences(request).at(-1);
      const [found, unclear] = reader(heard).answer(story, bare(question)), right = found || heard.untold;
      if (unclear.length) return ["fault.unclear", unclear.slice(0, 1)];
      if (answer.trim() === right) return ["", []];
      return found ? ["fault.contradicted", [found]] : ["fault.unsettled", []];
    }
    const isMine = storyOf(request, [], heard).length && sentences(request).some(reader(heard).understands);
    return [heard.itself.includes(answer.trim()) || isMine ? "" : "fault.no-answer", []];
  }

  T.samples = { STORIES, questions, unknown, lacksStory, fault };
})(globalThis.TinyLLM);
