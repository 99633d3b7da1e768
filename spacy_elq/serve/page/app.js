// The page: a text, its links, why there are these, and a search in the catalogue.

import { ask, latest } from "./api.js";
import { byId, chip, colour, count, el, idElements, probability, say, shortest } from "./dom.js";
import { makePanel } from "./panel.js";

const DELAY = 200;
const ALTERNATIVES = 10;
const MOST_EXAMPLES = 4;
const MOST_ALIASES = 8;
// those of them that the pipeline links are offered
const EXAMPLES = [
  "who is the president of france",
  "how far is paris from new york city",
  "who wrote romeo and juliet",
  "what is the capital of georgia",
  "is mercury hotter than venus",
  "where do jaguars live",
  "who played princess leia in star wars",
  "when did shaquille o'neal play for the lakers",
];

const box = byId("text");
const slider = byId("threshold");
const search = byId("search");
const entities = new Map();
// what is asked: threshold is null while it is the pipeline's
const wanted = { threshold: null, labels: new Set() };
let info = null;
// what is shown
const shown = { links: [], explanations: [] };

// --- the pipeline

async function loadInfo(signal) {
  info ??= await ask("info", { signal });
  const { pipeline, version, entities: size, threshold, labels } = info;
  const facts = size === null ? "" : ` · ${count(size, "entity", "entities")}`;
  byId("facts").textContent = `${pipeline} ${version}${facts}`;
  byId("threshold-control").hidden = threshold === null;
  byId("labels-control").hidden = labels.length < 2;
  search.closest("section").hidden = size === null;
  showOptions();
}

function getEntity(id) {
  if (info.entities === null) return Promise.reject(new Error("There is no catalogue."));
  if (!entities.has(id)) entities.set(id, ask(`entities/${encodeURIComponent(id)}`));
  return entities.get(id);
}

// --- options

function showOptions() {
  const { threshold: own, labels } = info;
  const isOwn = wanted.threshold === null;
  const value = shortest((isOwn ? own : wanted.threshold) ?? 0);
  slider.value = value;
  byId("threshold-value").textContent = value;
  slider.setAttribute("aria-valuetext", isOwn ? `${value}, the pipeline's` : value);
  byId("threshold-reset").disabled = isOwn;
  if (!byId("labels").children.length) byId("labels").append(...labels.map(labelBox));
  for (const input of byId("labels").querySelectorAll("input")) input.checked = wanted.labels.has(input.value);
}

function labelBox(label) {
  const input = el("input", { type: "checkbox", value: label });
  input.onchange = () => {
    wanted.labels[input.checked ? "add" : "delete"](label);
    link(DELAY);
  };
  return el("label", {}, input, chip(label));
}

function setThreshold(value) {
  wanted.threshold = value;
  showOptions();
  link(DELAY);
}

slider.oninput = () => setThreshold(slider.valueAsNumber);
byId("threshold-reset").onclick = () => {
  slider.focus();
  setThreshold(null);
};

function getOptions() {
  const options = {};
  if (wanted.threshold !== null && info.threshold !== null) options.threshold = wanted.threshold;
  const labels = info.labels.length < 2 ? [] : info.labels.filter((label) => wanted.labels.has(label));
  if (labels.length) options.within = { labels };
  return options;
}

// --- links

const link = latest(async (signal) => {
  const onPause = (message) => say(byId("error"), message);
  await loadInfo(signal);
  const text = box.value;
  writeFragment(text);
  if (!text.trim()) {
    showLinks({ text: "", links: [] });
    showExplanations([]);
    byId("status").textContent = "";
    return;
  }
  const body = { text, ...getOptions() };
  byId("others").inert = true;
  const answer = await ask("link", { body: { ...body, alternatives: ALTERNATIVES }, signal, onPause });
  const [result] = answer.results;
  showLinks(result);
  const explains = info.explains && !result.error;
  const { mentions } = explains ? await ask("explain", { body, signal, onPause }) : { mentions: [] };
  say(byId("error"), result.error ?? "");
  showExplanations(mentions);
}, (error) => {
  say(byId("error"), error.message);
  showExplanations(shown.explanations);
});

const keyOf = ({ start, end }) => `${start}-${end}`;

function showLinks({ text, links, error }) {
  Object.assign(shown, { links, explanations: [] });
  say(byId("error"), error ?? "");
  byId("status").textContent = error ? "" : count(links.length, "link", "links");
  keepFocus(() => byId("result").replaceChildren(...mark(text, links)));
  const labels = [...new Set(links.map(({ label }) => label))].filter(Boolean);
  byId("legend").hidden = labels.length < 2;
  byId("legend").replaceChildren(...labels.map((label) => el("li", {}, chip(label))));
}

/** The text in pieces. Offsets of the server count code points, those of JavaScript do not. */
function mark(text, links) {
  const points = Array.from(text);
  const pieces = [];
  let done = 0;
  for (const found of links) {
    const mention = points.slice(found.start, found.end).join("");
    pieces.push(points.slice(done, found.start).join(""), mentionButton(found, mention, found, true));
    done = found.end;
  }
  return [...pieces, points.slice(done).join("")];
}

function mentionButton(found, text, { id, title, label }, isLink) {
  const [key, name, score] = [keyOf(found), title || id || "no candidates", probability(found.score)];
  const said = [`${text}: ${name}`, isLink ? label : "no link", `score ${score}`];
  const button = el(
    "button",
    {
      type: "button",
      className: isLink ? "mention" : "other",
      "data-key": key,
      "aria-label": said.filter(Boolean).join(", "),
      "aria-controls": "panel",
      "aria-expanded": "false",
      onclick: () => toggle(key),
    },
    el("span", { className: "words" }, text),
    name.toLowerCase() === text.toLowerCase() ? null : el("span", { className: "name" }, name),
    el("span", { className: "score" }, score),
  );
  return isLink ? colour(button, label) : button;
}

function showExplanations(explanations) {
  shown.explanations = explanations;
  const keys = new Set(shown.links.map(keyOf));
  const others = explanations.filter((mention) => !keys.has(keyOf(mention))).sort((a, b) => b.score - a.score);
  const buttons = others.map((found) => mentionButton(found, found.text, found.candidates[0] ?? {}, false));
  keepFocus(() => byId("others-list").replaceChildren(...buttons.map((button) => el("li", {}, button))));
  byId("others").hidden = !others.length;
  byId("others").inert = false;
  showPanel(panel.getKey());
}

/** Changes what is shown; a mention that has the focus and is still there keeps it. */
function keepFocus(change) {
  const { key } = document.activeElement.dataset;
  change();
  if (key) buttonOf(key)?.focus();
}

// --- the panel

const buttonOf = (key) => document.querySelector(`[data-key="${key}"]`);

const panel = makePanel({
  getEntity,
  onClose(key, hadFocus) {
    buttonOf(key)?.setAttribute("aria-expanded", "false");
    if (hadFocus) (buttonOf(key) ?? box).focus();
  },
});

function toggle(key) {
  const isOpen = panel.getKey() === key;
  panel.close();
  if (isOpen) return;
  entities.clear();
  showPanel(key);
}

/** Shows a mention in the panel, or closes it if there is no such mention any more. */
function showPanel(key) {
  const { links, explanations } = shown;
  const ofKey = (found) => keyOf(found) === key;
  const [own, explanation] = [links.find(ofKey), explanations.find(ofKey)];
  if (!own && !explanation) {
    panel.close();
    return;
  }
  panel.show({ key, text: own?.mention ?? explanation.text, link: own, explanation, links });
  buttonOf(key)?.setAttribute("aria-expanded", "true");
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target !== search) panel.close();
});

// --- the catalogue

const find = latest(async (signal) => {
  const name = search.value.trim();
  const onPause = (message) => say(byId("search-error"), message);
  const query = new URLSearchParams({ name });
  const answer = name ? await ask(`entities?${query}`, { signal, onPause }) : { entities: [] };
  const found = answer.entities;
  say(byId("search-error"), "");
  byId("search-status").textContent = name ? count(found.length, "entity", "entities") : "";
  byId("found").replaceChildren(...found.map(foundItem));
}, (error) => say(byId("search-error"), error.message));

function foundItem(entity) {
  const { title, label, description, aliases = [] } = entity;
  const rest = aliases.length - MOST_ALIASES;
  const also = aliases.slice(0, MOST_ALIASES).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
  return el(
    "li",
    {},
    el("div", {}, el("strong", {}, title), " ", ...idElements(entity), " ", chip(label)),
    description ? el("div", {}, description) : null,
    also ? el("div", { className: "quiet" }, `Also: ${also}`) : null,
  );
}

search.oninput = () => find(search.value.trim() ? DELAY : 0);

// --- examples

async function showExamples() {
  const answer = await ask("link", { body: { text: EXAMPLES, alternatives: 0 } }).catch(() => null);
  const known = EXAMPLES.filter((_, i) => answer?.results[i].links.length);
  const offered = (known.length ? known : EXAMPLES).slice(0, MOST_EXAMPLES);
  const take = (text) => {
    box.value = text;
    link(0);
  };
  byId("examples").append(...offered.map((text) => el("button", { type: "button", onclick: () => take(text) }, text)));
}

// --- the address

function writeFragment(text) {
  const parts = new URLSearchParams();
  if (text) parts.set("q", text);
  if (wanted.threshold !== null) parts.set("threshold", wanted.threshold);
  for (const label of wanted.labels) parts.append("label", label);
  const fragment = String(parts) && `#${parts}`;
  if (fragment !== location.hash) history.replaceState(null, "", location.pathname + location.search + fragment);
}

function readFragment() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const threshold = parts.get("threshold");
  box.value = parts.get("q") ?? "";
  wanted.threshold = threshold && threshold >= 0 && threshold <= 1 ? Number(threshold) : null;
  wanted.labels = new Set(parts.getAll("label"));
  link(0);
}

box.oninput = () => link(box.value.trim() ? DELAY : 0);
addEventListener("hashchange", readFragment);
readFragment();
showExamples();
