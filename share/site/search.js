// SPDX-License-Identifier: Apache-2.0
// Search in the documentation. It runs in the page, with an index that is a script, because a browser that has opened a
// page from disk neither starts workers nor requests files.
"use strict";

const shownResults = 40;
const excerptLength = 200;

function load(script) {
  return new Promise((loaded, failed) => {
    const element = document.createElement("script");
    element.src = script;
    element.onload = loaded;
    element.onerror = () => failed(new Error(`cannot load ${script}`));
    document.head.append(element);
  });
}

function indexOf(documents) {
  return lunr(function () {
    this.ref("location");
    this.field("title", {boost: 5});
    this.field("text");
    documents.forEach((section) => this.add(section));
  });
}

/// Returns the matching sections, best first. A word also matches longer words that begin with it, with less weight.
function matches(index, words) {
  return index.query((query) => {
    for (const word of words) {
      query.term(word, {boost: 10});
      query.term(word, {usePipeline: false, wildcard: lunr.Query.wildcard.TRAILING});
    }
  });
}

function excerpt(text, words) {
  const found = words.map((word) => text.toLowerCase().indexOf(word)).filter((at) => at >= 0);
  const begin = Math.max(0, Math.min(...found, text.length) - 60);
  const from = found.length === 0 || begin === 0 ? 0 : text.indexOf(" ", begin) + 1;
  return (from > 0 ? "... " : "") + text.slice(from, from + excerptLength);
}

function article(section, page, words) {
  const link = document.createElement("a"), heading = document.createElement("h3"), text = document.createElement("p");
  link.href = section.location;
  link.textContent = section.title === page ? page : `${page}: ${section.title}`;
  heading.append(link);
  text.textContent = excerpt(section.text, words);
  const element = document.createElement("article");
  element.append(heading, text);
  return element;
}

async function search(field, results) {
  await load("search/lunr.js");
  await load("search/index.js");
  const sections = new Map(searchIndex.docs.map((section) => [section.location, section]));
  const index = indexOf(searchIndex.docs);
  const show = () => {
    const words = field.value.toLowerCase().split(lunr.tokenizer.separator).filter((word) => word.length > 1);
    const found = words.length > 0 ? matches(index, words).slice(0, shownResults).map(({ref}) => sections.get(ref)) : [];
    results.replaceChildren(...found.map((section) =>
      article(section, sections.get(section.location.split("#")[0]).title, words)));
    if (found.length === 0 && words.length > 0) results.textContent = "No page has these words.";
  };
  field.value = new URLSearchParams(window.location.search).get("q") ?? "";
  field.addEventListener("input", show);
  show();
}

const results = document.getElementById("mkdocs-search-results");
if (results) {
  search(document.getElementById("mkdocs-search-query"), results).catch((problem) => {
    results.textContent = problem.message;
  });
}
