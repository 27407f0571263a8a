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
    const isForStory = /\bstory\b/i.test(request), list = knownWords(world, heard, isForStory);
    const words = [...new Set(request.match(/[\p{L}\p{M}\p{N}]+(['’]\p{L}+)?/gu) || [])];
    const found = words.filter((word) => !list.has(word.toLowerCase().replace(/['’]s$/, "")));
    const isName = found.length > 0 && found.every((word) => /^\p{Lu}/u.test(word) && !request.startsWith(word));
    const some = (name, count) => {
      const all = (world[name] || "").split(", "), step = Math.max(1, Math.floor(all.length / count));
      return all.filter((_, i) => i % step === 0).slice(0, count);
    };
    return [found, isName ? some("names", 6) : [...some("beings", 4), ...some("things", 4)]];
  }

  T.samples = { STORIES, questions, unknown };
})(globalThis.TinyLLM);
