/* The tokenizer: byte-level BPE, as tokenizer.json describes it.

   A text is cut into pieces by a pattern (words with the space before them, single digits,
   punctuation); each piece becomes bytes, each byte a visible character; then the pair of
   neighbours that stands highest in the list of merges is joined, again and again. */
"use strict";

(function (T) {
  /* The 256 characters that stand for bytes: printable ones for themselves, else from 256 on */
  const CHARACTER = [];
  for (let byte = 0, next = 256; byte < 256; byte++) {
    const shown = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    CHARACTER.push(String.fromCodePoint(shown ? byte : next++));
  }
  const BYTE = new Map(CHARACTER.map((character, byte) => [character, byte]));

  /* A text as a pattern that matches it alone */
  T.escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

  class Tokenizer {
    /* vocab: the tokens by id; merges: pairs, the best first; added: special tokens */
    constructor({ vocab, merges, pattern, normal, added, chat, stops, think }) {
      this.vocab = vocab;
      this.ids = new Map(vocab.map((token, id) => [token, id]));
      this.rank = new Map(merges.map((pair, rank) => [pair.join(" "), rank]));
      // white space as Unicode has it, as tokenizer.json means it: JavaScript's \s differs a bit
      this.pattern = new RegExp(pattern.replaceAll("\\s", "\\p{White_Space}"), "gu");
      this.normal = normal; // "NFC": an accent joins its letter first
      this.added = new Map(added.map((token) => [token.content, token.id]));
      this.special = new Set(added.filter((token) => token.special).map((token) => token.id));
      const names = [...this.added.keys()].sort((a, b) => b.length - a.length);
      this.cut = new RegExp(`(${names.map(T.escaped).join("|")})`, "u");
      this.chat = chat; // [before a request, after it, between an answer and the next request]
      this.stops = new Set(stops);
      this.think = think; // {marks: [opening, closing], asks: after a request, closing: ids}; null for most models
      this.known = new Map(); // pieces seen before
    }

    /* Text -> token ids; special tokens written out in it become their ids */
    encode(text) {
      return text.split(this.cut).flatMap((part) => {
        if (this.added.has(part)) return [this.added.get(part)];
        return [...(this.normal ? part.normalize(this.normal) : part).matchAll(this.pattern)].flatMap(([piece]) => this.merged(piece));
      });
    }

    /* A request as the model was taught to read it, at the start of a text or after an answer.
       Special tokens that a person spells out stay letters: each is cut in two before it is encoded. */
    chatPrompt(request, isFirst = true, thinks = false) {
      const parts = request.split(this.cut);
      const texts = [this.chat[isFirst ? 0 : 2]];
      for (const part of parts) {
        if (!this.added.has(part)) texts[texts.length - 1] += part;
        else {
          texts[texts.length - 1] += part[0];
          texts.push(part.slice(1));
        }
      }
      texts[texts.length - 1] += thinks ? this.think.asks : this.chat[1];
      return texts.flatMap((each) => this.encode(each));
    }

    /* The model's answers in a text: [begin, end] of each, the token that ends it and a thought before it left out */
    answers(ids) {
      const openings = [this.chat[1], ...(this.think ? [this.think.asks] : [])].map((text) => this.encode(text));
      openings.sort((a, b) => b.length - a.length);
      const thoughts = this.thoughts(ids), found = [];
      for (let i = 0; i < ids.length; i++) {
        const opening = openings.find((each) => each.every((id, k) => ids[i + k] === id));
        if (!opening) continue;
        let end = i + opening.length;
        const [, begin] = thoughts.find(([from, to]) => from >= i && from <= end && to > end) || [0, end];
        while (end < ids.length && !this.stops.has(ids[end])) end++;
        found.push([Math.min(begin, end), end]);
        i = end - 1;
      }
      return found;
    }

    /* The thoughts in a text, [begin, end] of each with its marks and the white space behind it; an empty one is none */
    thoughts(ids) {
      const [open, close] = this.think?.marks || [], found = [];
      const isBlank = (i) => i < ids.length && !this.stops.has(ids[i]) && !this.decode([ids[i]]).trim();
      for (let i = 0; i < ids.length; i++) {
        if (ids[i] !== open) continue;
        const begin = i++;
        let isEmpty = true;
        for (; i < ids.length && ids[i] !== close && !this.stops.has(ids[i]); i++) isEmpty &&= isBlank(i);
        if (ids[i] === close) do i++; while (isBlank(i));
        if (!isEmpty || i >= ids.length) found.push([begin, i]);
        i--;
      }
      return found;
    }

    /* The token that a budget puts next: the closing of a thought that has had as many tokens, undefined elsewhere */
    forced(ids, budget) {
      const [open, close] = this.think?.marks || [], first = ids.lastIndexOf(open) + 1;
      const written = ids.slice(first), behind = written.slice(budget), { closing } = this.think || {};
      if (!first || written.length < budget || written.slice(0, budget).includes(close)) return undefined;
      return behind.every((id, k) => id === closing[k]) ? closing[behind.length] : undefined;
    }

    /* One piece -> token ids */
    merged(piece) {
      if (this.known.has(piece)) return this.known.get(piece);
      let parts = Array.from(new TextEncoder().encode(piece), (byte) => CHARACTER[byte]);
      while (parts.length > 1) {
        let best = Infinity, at = -1;
        for (let i = 0; i + 1 < parts.length; i++) {
          const rank = this.rank.get(`${parts[i]} ${parts[i + 1]}`);
          if (rank < best) [best, at] = [rank, i];
        }
        if (at < 0) break;
        parts.splice(at, 2, parts[at] + parts[at + 1]);
      }
      const ids = parts.map((part) => this.ids.get(part));
      this.known.set(piece, ids);
      return ids;
    }

    bytes(id) {
      return Array.from(this.vocab[id] || "", (character) => BYTE.get(character));
    }

    /* Token ids -> text; half a character becomes the replacement character */
    decode(ids, skipSpecial = true) {
      const bytes = ids.flatMap((id) => (skipSpecial && this.special.has(id) ? [] : this.bytes(id)));
      return new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));
    }

    /* Token ids -> pieces that can be shown, [{text, size}]: `size` tokens that make whole characters
       together; bytes that make none are spelled out, such as \xE7 */
    pieces(ids) {
      const found = [];
      for (let i = 0; i < ids.length; ) {
        const bytes = [];
        let size = 0, text;
        do {
          bytes.push(...this.bytes(ids[i + size++]));
          text = textOf(bytes);
        } while (text === undefined && i + size < ids.length);
        if (text === null) {
          size = 1;
          bytes.length = this.bytes(ids[i]).length;
        }
        found.push({ text: text ?? bytes.map((byte) => `\\x${byte.toString(16).toUpperCase().padStart(2, "0")}`).join(""), size });
        i += size;
      }
      return joined(found);
    }
  }

  /* The text of these bytes; null where they are none, undefined where the last character is not whole */
  function textOf(bytes) {
    try {
      const text = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true }).decode(new Uint8Array(bytes), { stream: true });
      return new TextEncoder().encode(text).length === bytes.length ? text : undefined;
    } catch {
      return null;
    }
  }

  /* Pieces that are one sign to the eye, such as a letter and its accent, as one piece */
  function joined(pieces) {
    const starts = new Set(Array.from(new Intl.Segmenter().segment(pieces.map(({ text }) => text).join("")), ({ index }) => index));
    const found = [];
    let at = 0;
    for (const { text, size } of pieces) {
      if (starts.has(at) || !text) found.push({ text, size });
      else {
        found.at(-1).text += text;
        found.at(-1).size += size;
      }
      at += text.length;
    }
    return found;
  }

  T.Tokenizer = Tokenizer;
})(globalThis.TinyLLM);
