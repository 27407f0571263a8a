/* The page's state in its address, after the "#":

     VIEW&model=..&q=..&seed=..&temperature=..&top-k=..&top-p=..&token=..&swap=..&layer=..&head=..&part=..

   q is a request, once per turn of the talk; the same requests, seed and knobs give the same text.
   A text that was stopped, or sent another way by hand, comes as `text`, token by token. */
"use strict";

(function (T) {
  const NUMBERS = ["seed", "temperature", "top-k", "top-p", "token", "layer", "head", "part"];
  const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

  /* {view, q: [..], model, text, swap, and the numbers; what the address lacks is undefined} */
  function parse(hash) {
    const [view, ...rest] = hash.replace(/^#/, "").split("&");
    const fields = new URLSearchParams(rest.join("&"));
    const state = { view, q: fields.getAll("q") };
    for (const name of ["model", "text", "swap"]) state[name] = fields.get(name) ?? undefined;
    for (const name of NUMBERS) {
      const value = parseFloat(fields.get(name));
      if (Number.isFinite(value)) state[name] = value;
    }
    return state;
  }

  function format({ view, q = [], ...rest }) {
    const fields = new URLSearchParams();
    if (rest.model !== undefined) fields.set("model", rest.model);
    for (const request of q) fields.append("q", request);
    for (const [name, value] of Object.entries(rest))
      if (value !== undefined && name !== "model") fields.set(name, value);
    const text = fields.toString();
    return text ? `#${view}&${text}` : `#${view}`;
  }

  /* Token ids as letters, three each */
  const pack = (ids) => ids.map((id) => DIGITS[id >> 12] + DIGITS[(id >> 6) & 63] + DIGITS[id & 63]).join("");

  /* The ids again; none where the text is damaged or has tokens that the model lacks */
  function unpack(text, vocabulary) {
    const ids = (text.match(/.../g) || []).map((three) =>
      [...three].reduce((sum, digit) => 64 * sum + (DIGITS.includes(digit) ? DIGITS.indexOf(digit) : NaN), 0));
    return ids.every((id) => id < vocabulary) ? ids : [];
  }

  T.address = { parse, format, pack, unpack };
})(globalThis.TinyLLM);
