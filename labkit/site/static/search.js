// Search: the sections that have all words that were asked for, each with an excerpt; a result leads
// to the very place. It needs no server, and no list of words: it looks for letters.
"use strict";

(function () {
  const MOST = 60, AROUND = 90;
  const asked = (new URLSearchParams(location.search).get("q") || "").trim();
  const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  for (const box of document.querySelectorAll(".sidebar-search")) box.value = asked;
  if (!words.length) return;

  const places = (text, word) => text.split(word).length - 1;
  const beginnings = (text, word) => places(` ${text}`, ` ${word}`); // "rope" is not in "property"
  const found = [];
  for (const [page, id, lab, title, text] of SECTIONS) {
    const head = `${lab} ${title}`.toLowerCase(), body = text.toLowerCase();
    if (!words.every((word) => head.includes(word) || body.includes(word))) continue;
    const weight = words.reduce((sum, word) => sum + 20 * places(title.toLowerCase(), word) + Math.min(8, places(body, word)) + 4 * Math.min(8, beginnings(body, word)), 0);
    if (weight) found.push({ page, id, lab, title, text, weight });
  }
  found.sort((a, b) => b.weight - a.weight);

  const element = (tag, ...children) => {
    const made = document.createElement(tag);
    made.append(...children);
    return made;
  };

  /* The words around the first hit, the hits marked */
  function excerpt(text) {
    const lower = text.toLowerCase(), place = (word) => (beginnings(lower, word) ? ` ${lower}`.indexOf(` ${word}`) : lower.indexOf(word));
    const first = Math.min(...words.map(place).filter((at) => at >= 0));
    if (!Number.isFinite(first)) return [text.slice(0, 2 * AROUND)];
    const from = Math.max(0, first - AROUND), piece = text.slice(from, first + AROUND + words[0].length);
    const pattern = new RegExp(`(${words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "gi");
    const parts = piece.split(pattern).map((part, i) => (i % 2 ? element("mark", part) : part));
    return [from ? "… " : "", ...parts, " …"];
  }

  document.getElementById("search-count").textContent =
    found.length ? SEARCH.count.replace("{count}", found.length) : SEARCH.none;
  for (const { page, id, lab, title, text } of found.slice(0, MOST)) {
    const link = element("a", title === lab ? lab : `${lab} › ${title}`);
    link.href = `${page}.html?q=${encodeURIComponent(asked)}#${id}`;
    document.getElementById("search-results").append(element("li", link, element("p", ...excerpt(text))));
  }
})();
