// What a page does beside the theme: what scrolls can be reached by key, a prediction opens what
// came out, so does an address that leads into a fold; terms are explained, figures enlarged; paper
// has open folds, and help only if a reader asks; another language is read from the same section on.
"use strict";

function reachable() {
  for (const box of document.querySelectorAll("pre, .table-wrapper, .formula, .map")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

function openAround(target) {
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
}

// The first place in a section, or below it, that has a word of the search; it is marked
function placeOf(section) {
  const words = (new URLSearchParams(location.search).get("q") || "").toLowerCase().split(/\s+/).filter(Boolean);
  const walker = document.createTreeWalker(section, NodeFilter.SHOW_TEXT);
  while (words.length && walker.nextNode()) {
    const text = walker.currentNode, at = Math.min(...words.map((word) => text.data.toLowerCase().indexOf(word)).map((i) => (i < 0 ? Infinity : i)));
    if (!Number.isFinite(at)) continue;
    const mark = document.createElement("mark"), word = words.find((one) => text.data.toLowerCase().startsWith(one, at));
    const range = document.createRange();
    range.setStart(text, at);
    range.setEnd(text, at + word.length);
    range.surroundContents(mark);
    return mark;
  }
  return section;
}

function goToAddress() {
  const section = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!section) return;
  const target = placeOf(section);
  openAround(target);
  target.scrollIntoView({ block: target === section ? "start" : "center" });
}

function tellOutcome(event) {
  const choices = event.target.closest("fieldset.predict");
  let cell = choices?.nextElementSibling;
  for (; cell?.matches("div.cell"); cell = cell.nextElementSibling)
    for (const fold of cell.querySelectorAll("details")) fold.open = true;
}

// The same page in another language, at the section that is read
function sameSection(event) {
  const sections = [...document.querySelectorAll(".content section[id]")];
  const read = sections.filter((one) => one.getBoundingClientRect().top < innerHeight / 3).pop();
  const link = event.currentTarget;
  link.hash = read && read !== sections[0] ? read.id : "";
}

// A figure that is shown smaller than it is opens by itself, where a phone can enlarge it
function enlarge(event) {
  const image = event.target.closest(".content img");
  if (image && image.clientWidth < 0.9 * image.naturalWidth && !image.closest("a")) location.href = image.src;
}

document.addEventListener("DOMContentLoaded", () => {
  for (const link of document.querySelectorAll(".languages a"))
    link.addEventListener("click", sameSection);
  const terms = document.getElementById("terms");
  const article = document.querySelector("article");
  if (terms && article && !document.getElementById("search-results")) explainTerms(article, JSON.parse(terms.textContent));
  const rail = document.querySelector(".toc-drawer"); // a second one needs a name
  rail?.setAttribute("aria-label", rail.querySelector(".toc-title")?.textContent.trim() ?? "");
  reachable();
  document.addEventListener("change", tellOutcome);
  document.addEventListener("click", enlarge);
  document.addEventListener("toggle", reachable, true);
  document.getElementById("print")?.addEventListener("click", () => print());
  if (location.hash) goToAddress();
});
window.addEventListener("resize", reachable);
window.addEventListener("hashchange", goToAddress);

// On paper all folds are open but those with help, which a reader opens or asks for
let opened = [];
window.addEventListener("beforeprint", () => {
  const withHelp = document.getElementById("print-help")?.checked;
  opened = [...document.querySelectorAll(`details:not([open])${withHelp ? "" : ":not(.help)"}`)];
  for (const fold of opened) fold.open = true;
  for (const image of document.querySelectorAll("img")) image.loading = "eager";
});
window.addEventListener("afterprint", () => {
  for (const fold of opened) fold.open = false;
});
