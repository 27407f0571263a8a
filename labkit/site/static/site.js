// What a page does beside the theme: what scrolls can be reached by key, a prediction opens what
// came out, so does an address that points into a fold, and paper has no folds; another language is read from the same section on.
"use strict";

function reachable() {
  for (const box of document.querySelectorAll("pre, .table-wrapper, .formula")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

function openAround(target) {
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
}

function goToAddress() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  openAround(target);
  target?.scrollIntoView();
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

document.addEventListener("DOMContentLoaded", () => {
  for (const link of document.querySelectorAll(".languages a"))
    link.addEventListener("click", sameSection);
  reachable();
  document.addEventListener("change", tellOutcome);
  document.addEventListener("toggle", reachable, true);
  if (location.hash) goToAddress();
});
window.addEventListener("resize", reachable);
window.addEventListener("hashchange", goToAddress);

let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const fold of opened) {
    fold.open = true;
    for (const image of fold.querySelectorAll("img")) image.loading = "eager";
  }
});
window.addEventListener("afterprint", () => {
  for (const fold of opened) fold.open = false;
});
