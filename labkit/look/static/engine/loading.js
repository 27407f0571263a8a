/* Loading: a model is a script, models/NAME.js, which hands its weights to `TinyLLM.receive`.

   A page opened from a file may run scripts and fetch nothing; so the weights travel as text
   (base64), two bytes a number where they are stored as bfloat16. */
"use strict";

(function (T) {
  const received = new Map(); // name -> what the script handed over

  T.receive = (name, payload) => received.set(name, payload);

  /* The model and tokenizer in models/NAME.js, and what its Python code computed, if that was
     written along; the script is fetched when first asked for */
  const loaded = new Map();
  T.load = (name) => {
    if (!loaded.has(name)) loaded.set(name, script(`models/${encodeURIComponent(name)}.js`).then(() => T.opened(name)));
    return loaded.get(name);
  };

  T.opened = async (name) => {
    const { config, tokenizer, tensors, data, computed } = received.get(name);
    received.delete(name); // the text is not needed twice
    const bytes = await inPieces(data);
    const found = {};
    for (const [key, { shape, dtype, offset }] of Object.entries(tensors)) {
      const rows = shape[0], cols = shape.length > 1 ? shape[1] : 1;
      found[key] = { rows, cols, data: numbers(bytes, dtype, offset, rows * cols) };
      await T.rest();
    }
    await T.breath();
    return {
      name,
      config,
      computed: computed || null,
      model: new T.Qwen3(config, found),
      tokenizer: new T.Tokenizer(tokenizer),
    };
  };

  function script(source) {
    return new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.src = source;
      element.onload = resolve;
      element.onerror = () => reject(new Error(T.word("status.missing", { source })));
      document.head.append(element);
    });
  }

  /* The bytes of a long text in base64, with pauses in which the page can act */
  async function inPieces(text) {
    const SIZE = 4 * 20000, bytes = new Uint8Array((text.length / 4) * 3 - text.slice(-2).replace(/[^=]/g, "").length);
    for (let at = 0; at < text.length; at += SIZE) {
      await T.rest();
      bytes.set(fromBase64(text.slice(at, at + SIZE)), (at / 4) * 3);
    }
    return bytes;
  }

  function fromBase64(text) {
    const letters = atob(text);
    const bytes = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
    return bytes;
  }

  /* `count` numbers from `offset` on, as Float32Array. A bfloat16 is the upper half of a
     float32: shifted up by 16 bits, with zeros below, it is that number. */
  function numbers(bytes, dtype, offset, count) {
    if (dtype === "float32") return new Float32Array(bytes.slice(offset, offset + 4 * count).buffer);
    const halves = new Uint16Array(bytes.slice(offset, offset + 2 * count).buffer);
    const out = new Uint32Array(count);
    for (let i = 0; i < count; i++) out[i] = halves[i] << 16;
    return new Float32Array(out.buffer);
  }

  T.floats = (text) => new Float32Array(fromBase64(text).buffer);
})(globalThis.TinyLLM);
