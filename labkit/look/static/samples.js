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

  T.samples = { STORIES, questions };
})(globalThis.TinyLLM);
