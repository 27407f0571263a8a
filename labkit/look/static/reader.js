/* Reads a story back from its text and answers a question about it, as storyworld/reader.py does: its
   tables come in page-data.js. What contradicts the story before it is believed here. */
"use strict";

(function (T) {
  const only = (found) => (new Set(found).size === 1 ? [...found][0] : null);
  const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
  const PERSONS = "abc", THINGS = "xyv";
  const FREE = ["use", "noun", "container", "food", "owes", "debt", "debt_all", "thanked", "was_thanked"]; // steps that make nobody known

  T.reader = (tables) => {
    const { meanings, questions, rules, gender, pronouns, prefixes, plurals, numbers, spots, places } = tables;
    const phrase = new RegExp(tables.phrase, "g"), start = new RegExp(`^(?:${tables.start})`);
    const singular = Object.fromEntries(Object.entries(plurals).map(([one, many]) => [many, one]));
    const adjective = new RegExp(`^(?:${tables.adjectives.join("|")}) `), noun = (thing) => thing.replace(adjective, "");
    const at = (place) => `${places[place]} the ${place}`;
    const subject = (name) => (gender[name] === "f" ? "She" : "He");
    const value = (n) => (n === "0" ? 0 : numbers.indexOf(n) + 1);

    /* "Anna took the ball." -> ["<P> took the <X>.", ["Anna", "ball"]] */
    function mask(text, itIsAThing) {
      const values = [];
      const right = text.replace(/\b([Aa])(n?) (?=(\w))/g, (_, a, n, next) => (Boolean(n) === "aeiou".includes(next) ? `${a} ` : "? "));
      return [right.replace(phrase, (word, ...rest) => {
        const [name] = Object.entries(rest.at(-1)).find(([, found]) => found !== undefined);
        if (name === "it" && !itIsAThing) return word;
        values.push(...(name === "they" ? ["they", "they"] : [name === "it" ? "it" : word]));
        return { it: word === "It" ? "The <X>" : "the <X>", they: "<P> and <P>" }[name] || `<${name}>`;
      }), values];
    }

    const zip = (keys, values) => Object.fromEntries(keys.map((key, i) => [key, values[i]]));
    const agrees = ({ n, f }) => (n === undefined ? f === undefined || f in singular : (n === "one") === f in plurals);

    /* One event, or two that are joined by "and" */
    function lookUp(masked, values) {
      if (Object.hasOwn(meanings, masked)) return [[meanings[masked][0], zip(meanings[masked][1], values)]];
      for (const { index } of masked.matchAll(/ and /g)) {
        const left = meanings[`${masked.slice(0, index)}.`], right = meanings[`<P> ${masked.slice(index + 5)}`];
        if (left?.[1][0] !== "a" || right?.[1][0] !== "a") continue;
        const size = left[1].length;
        return [[left[0], zip(left[1], values)], [right[0], zip(right[1], ["same", ...values.slice(size)])]];
      }
      return null;
    }

    /* [first words, events] of a sentence; null if it has no meaning */
    function read(sentence) {
      const prefix = sentence.match(start)?.[0] || "", rest = sentence.slice(prefix.length);
      if (prefix && !/^[a-z]/.test(rest) && !(rest.split(" ")[0].replace(/[.,]+$/, "") in gender)) return null;
      for (const itIsAThing of [true, false]) {
        const events = lookUp(...mask(prefix ? capital(rest) : rest, itIsAThing));
        if (events?.every(([, args]) => agrees(args))) return [prefix, events];
      }
      return null;
    }

    /* The state after the sentences: people, things, counts, what happened, and what was unclear */
    function follow(sentences) {
      const world = { people: {}, things: {}, counts: {}, log: [], weather: null }, unclear = new Set();
      const scene = { kinds: {}, things: [], persons: [], now: [] };
      const person = (a) => (world.people[a] ??= { kind: "", place: null, hungry: null, sorrows: [] });
      const thing = (x) => (world.things[x] ??= { where: null });
      const move = (x, ...where) => (thing(x).where = where.length ? where : null);
      const placeOf = (x, depth = 0) => {
        const [sort, name] = thing(x).where || ["", ""];
        if (sort === "person") return person(name).place;
        if (sort === "thing") return depth < 9 ? placeOf(name, depth + 1) : null;
        return (sort === "spot" ? spots[name] : name) || null;
      };
      const count = (a, f, change) => (world.counts[`${a} ${f}`] = Math.max(0, change(world.counts[`${a} ${f}`] || 0)));
      const together = (a, b) => [a, b].forEach((each, i, [first, second]) => (person(each).place ||= person(i ? first : second).place));
      const steps = { // those that change what an answer needs
        new: (a, k) => (person(a).kind = k), at: (a, p) => (person(a).place = p), go: (a, p) => (person(a).place = p),
        at_if: (a, p) => p !== "p" && (person(a).place = p), together, near: (a, b) => b !== "b" && together(a, b),
        hold: (a, x) => move(x, "person", a), lay: (x, s) => move(x, "spot", s), into: (x, v) => move(x, "thing", v),
        gone: (x) => move(x, "gone", ""), vanish: (x) => move(x),
        swap: (a, b, x, y) => (thing(x).where?.join() === `person,${b}` && ([x, y] = [y, x]), move(x, "person", b), move(y, "person", a)),
        is_at: (x, s) => (!thing(x).where || thing(x).where.join() === `place,${spots[s]}`) && move(x, "spot", s),
        is_in: (x, p) => thing(x).where || move(x, "place", p),
        sorrow: (a, x, why) => person(a).sorrows.push([why, x]), hunger: (a) => (person(a).hungry = true), fed: (a) => (person(a).hungry = false),
        turn: (now) => (world.weather = now === "rain" ? "rain" : "sun"),
        count: (a, f, n) => count(a, f, () => value(n)), more: (a, f, n) => count(a, f, (have) => have + value(n)),
        fewer: (a, f, n) => count(a, f, (have) => have - value(n)),
      };

      const whom = (words) => {
        const low = words.toLowerCase();
        if (low in pronouns) return only(scene.persons.filter((p) => gender[p] === pronouns[low]));
        return low.startsWith("the ") ? only(Object.keys(scene.kinds).filter((p) => scene.kinds[p] === words.slice(4))) : words;
      };
      const which = (words) => {
        if (words === "it") return only(scene.now);
        return scene.things.includes(words) ? words : only(scene.things.filter((t) => noun(t) === words));
      };

      /* Names for "she", "it" and "the ball"; null where one has none */
      function resolve(raw) {
        const args = {};
        for (const [name, words] of Object.entries(raw)) {
          const isNew = words !== "it" && !scene.things.some((t) => noun(t) === words);
          if (words === "they") args[name] = scene.persons.length === 2 ? scene.persons["ab".indexOf(name)] : null;
          else if (PERSONS.includes(name)) args[name] = whom(words);
          else if (THINGS.includes(name)) args[name] = which(words) || (isNew ? words : null);
          else args[name] = name === "f" ? singular[words] || words : name === "p" ? words.split(" the ").at(-1) : words;
        }
        return args;
      }

      function mention(args) {
        const named = (keys) => [...new Set([...keys].map((key) => args[key]).filter(Boolean))];
        [scene.persons, scene.now] = [named(PERSONS), named(THINGS)];
        scene.things.push(...scene.now.filter((t) => !scene.things.includes(t)));
        for (const p of scene.persons) scene.kinds[p] ??= "";
        if (args.k && (args.a || args.b)) scene.kinds[args.b || args.a] = args.k;
      }

      function apply(kind, args, prefix) {
        if (prefixes[prefix] === -1) {
          world.weather = null;
          for (const each of Object.values(world.people)) each.hungry = null;
        }
        for (const [step, ...slots] of rules[kind]) {
          for (const slot of FREE.includes(step) ? [] : slots)
            if (args[slot]) PERSONS.includes(slot) ? person(args[slot]) : THINGS.includes(slot) && thing(args[slot]);
          if (step === "reach" || step === "together_with") placeOf(args[slots[1]]);
          steps[step]?.(...slots.map((slot) => args[slot] ?? slot));
        }
        world.log.push([kind, args]);
      }

      let last = {};
      for (const sentence of sentences) {
        const [prefix, events] = read(sentence) || (unclear.add(sentence), mention({}), ["", []]);
        events.forEach(([kind, raw], i) => {
          const args = resolve(raw.a === "same" ? { ...raw, a: last.a ?? "they" } : raw);
          if (Object.values(args).includes(null)) unclear.add(sentence);
          else apply(kind.split(":")[0], args, i ? "" : prefix);
          last = Object.fromEntries(Object.entries(args).filter(([, each]) => each !== null));
          mention(last);
        });
      }
      return { ...world, resolve, unclear: [...unclear] };
    }

    /* The answers of storyworld/questions.py; null where the story gives none */
    function answers({ people, things, counts, log, weather }) {
      const events = (kinds, wanted) =>
        log.filter(([kind, args]) => kinds.split(" ").includes(kind) && Object.entries(wanted).every(([key, each]) => args[key] === each)).map(([, args]) => args);
      const isTrade = (x) => events("lend swap", { x }).length || events("swap", { y: x }).length;
      const where = (x) => things[x].where || ["", ""];
      const found = (kinds, wanted, key) => only(events(kinds, wanted).map(key));
      const says = (text, ...needed) => (needed.every(Boolean) ? text : null);
      return {
        where_thing: ({ x }) => {
          const [sort, name] = where(x);
          return { person: `${name} has it.`, thing: `It is in the ${noun(name)}.`, place: `It is ${name && at(name)}.`, spot: `It is ${name}.` }[sort] || null;
        },
        who_has: ({ x }) => ({ person: `${where(x)[1]} has it.`, spot: "Nobody has it." })[where(x)[0]] || null,
        where_person: ({ a }) => says(`${subject(a)} is ${at(people[a].place)}.`, people[a].place),
        did_give: ({ a, b, x }) => (isTrade(x) ? null : events("give give_back", { a, b, x }).length ? `Yes, ${subject(a).toLowerCase()} did.` : `No, ${subject(a).toLowerCase()} did not.`),
        who_gave: ({ b, x }) => {
          const name = found("give give_back", { b, x }, (args) => args.a);
          return says(`${name} gave it to ${gender[b] === "f" ? "her" : "him"}.`, name, !isTrade(x));
        },
        how_many: ({ a, f }) => {
          const n = counts[`${a} ${f}`];
          return says(`${subject(a)} has ${n ? numbers[n - 1] : "no"} ${n === 1 ? f : plurals[f]}.`, n <= 12);
        },
        who_found: ({ x }) => ((name) => says(`${name} found it.`, name))(found("find find_in find_new", { x }, (args) => args.a)),
        where_found: ({ a, x }) => {
          const spot = found("find find_in find_new", { a, x }, (args) => args.s || `in the ${noun(args.v)}`);
          return says(`${subject(a)} found it ${spot}.`, spot);
        },
        where_hid: ({ a, x }) => ((spot) => says(`${subject(a)} hid it ${spot}.`, spot))(found("hide", { a, x }, (args) => args.s)),
        why_sad: ({ a }) => {
          const [[why, x] = [], ...more] = people[a].sorrows;
          return says(why === "lost" ? `Because ${subject(a).toLowerCase()} lost the ${noun(x)}.` : `Because the ${noun(x || "")} broke.`, why, !more.length);
        },
        colour: ({ x }) => says(`It is ${x.split(" ")[0]}.`, tables.colours.includes(x.split(" ")[0])),
        what_kind: ({ a }) => says(`${a} is a${"aeiou".includes(people[a].kind[0]) ? "n" : ""} ${people[a].kind}.`, people[a].kind),
        what_ate: ({ a }) => {
          const meals = [...events("eat share", { a }), ...events("share", { b: a })].map(({ x }) => `the ${noun(x)}`);
          meals.push(...events("count_eat", { a }).map(({ n, f }) => `${n} ${n === "one" ? f : plurals[f]}`));
          return says(`${subject(a)} ate ${meals[0]}.`, meals.length === 1);
        },
        what_in: ({ v }) => {
          const inside = Object.keys(things).filter((x) => where(x).join() === `thing,${v}`);
          if (!inside.length) return says("Nothing is in it.", events("put_in", { v }).length);
          return says(`The ${noun(inside[0])} is in it.`, inside.length === 1);
        },
        who_fixed: ({ x }) => ((name) => says(`${name} fixed it.`, name))(found("fix", { x }, (args) => args.a)),
        is_hungry: ({ a }) => ({ true: `Yes, ${subject(a).toLowerCase()} is.`, false: `No, ${subject(a).toLowerCase()} is not.` })[people[a].hungry] || null,
        did_rain: () => (events("rain", {}).length ? "Yes, it did." : says("No, it did not.", weather === "sun")),
      };
    }

    /* "who has the kite", with its capitals and its mark */
    function spelled(bare) {
      const names = new RegExp(`\\b(?:${Object.keys(gender).join("|")})\\b`, "gi");
      return `${capital(bare.replace(names, (name) => capital(name.toLowerCase())))}?`;
    }

    return {
      understands: (sentence) => read(sentence) !== null,
      /* [the answer that follows from the sentences or null, the sentences that are unclear] */
      answer(sentences, bareQuestion) {
        const story = follow(sentences), [masked, values] = mask(spelled(bareQuestion), false);
        if (!Object.hasOwn(questions, masked)) return [null, story.unclear];
        const [kind, keys] = questions[masked], args = story.resolve(zip(keys, values));
        const isKnown = Object.entries(args).every(([key, each]) => each && (!"abxv".includes(key) || each in story.people || each in story.things));
        return [isKnown ? answers(story)[kind](args) : null, story.unclear];
      },
    };
  };
})(globalThis.TinyLLM);
