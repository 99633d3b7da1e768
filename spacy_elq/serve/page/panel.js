// The panel that shows why a mention is a link, or why not.

import { byId, chip, el, idElements, probability, shortest } from "./dom.js";

const PARTS = [
  ["Vector", "vector", "Inner product of the vectors of mention and entity"],
  ["Name", "name", "Added because the mention is a name of the entity"],
  ["Popularity", "popularity", "Added for the entity's popularity"],
  ["Similarity", "similarity", "The sum of the three"],
];

/** getEntity: gives the promise of an entity's record. onClose: is called with the key of the mention. */
export function makePanel({ getEntity, onClose }) {
  const panel = byId("panel");
  const title = byId("panel-title");
  const body = byId("panel-body");
  let key = null;

  /** Shows a mention: {key, text, link, explanation, links}; link or explanation may be missing. */
  function show(mention) {
    const isNew = key !== mention.key;
    const hadFocus = body.contains(document.activeElement);
    key = mention.key;
    title.textContent = `“${mention.text}”`;
    body.replaceChildren(...describe(mention, getEntity));
    panel.hidden = false;
    if (isNew || hadFocus) title.focus({ preventScroll: true });
    if (isNew) panel.scrollIntoView({ block: "nearest" });
  }

  function close() {
    if (key === null) return;
    const [closed, hadFocus] = [key, panel.contains(document.activeElement)];
    key = null;
    panel.hidden = true;
    onClose(closed, hadFocus);
  }

  byId("panel-close").onclick = close;
  return { show, close, getKey: () => key };
}

function describe({ link, explanation, links }, getEntity) {
  const candidates = explanation?.candidates ?? link.alternatives;
  const sentence = explanation ? verdict(explanation, links) : `A link with the score ${probability(link.score)}.`;
  return [
    el("p", {}, sentence),
    ...(explanation ? [ownParts(explanation)] : []),
    ...(candidates.length ? [table(candidates, Boolean(explanation), getEntity)] : []),
  ];
}

function verdict({ start, end, score, threshold, is_link: isLink, candidates }, links) {
  if (!candidates.length) return "No link: it has no candidates.";
  const [reached, least] = [`its score of ${probability(score)}`, `the threshold of ${shortest(threshold)}`];
  if (score < threshold && isLink) return `A link: ${reached} is below ${least}, but the best in this text.`;
  if (score < threshold) return `No link: ${reached} is below ${least}.`;
  if (isLink) return `A link: ${reached} reaches ${least}.`;
  const better = links.find((link) => link.start < end && start < link.end);
  const rival = better ? `“${better.mention}”` : "a better mention";
  return `No link: ${reached} reaches ${least}, but it overlaps with ${rival}.`;
}

function ownParts({ parts, mention_probability: mention, joint, none, score, threshold }) {
  const shown = [
    ["Mention", parts.mention.toFixed(2), "What the model says, a logit"],
    ["Name", parts.name.toFixed(2), "Added because it is a name in the catalogue"],
    ["Mention probability", probability(mention, 4), "That it is a mention"],
    ["None of these", none === null ? null : probability(none, 4), "That no candidate is right"],
    ["Joint", probability(joint, 4), "That it is a mention of its best candidate"],
    ["Calibrated score", probability(score, 4), "That the link is right: compared with the threshold"],
    ["Threshold", shortest(threshold), "Least score of a link"],
  ];
  const rows = shown.filter(([, value]) => value !== null);
  const pair = ([name, value, title]) => el("div", { title }, el("dt", {}, name), el("dd", {}, value));
  return el("dl", {}, ...rows.map(pair));
}

function table(candidates, isExplained, getEntity) {
  const columns = isExplained ? PARTS : [];
  const main = isExplained
    ? ["Probability", "That it is this entity, if it is a mention"]
    : ["Score", "That the link is right"];
  const head = [["Candidate", ""], ["Id", ""], main, ...columns.map(([name, , title]) => [name, title])];
  const made = el(
    "table",
    {},
    el("caption", { className: "hidden" }, "Candidates, best first"),
    el("thead", {}, el("tr", {}, ...head.map(([name, title]) => el("th", { scope: "col", title }, name)))),
    el("tbody", {}, ...candidates.map((candidate) => row(candidate, columns, getEntity))),
  );
  return el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Candidates" }, made);
}

function row(candidate, columns, getEntity) {
  const value = candidate.probability ?? candidate.score;
  const bar = el("span", { className: "bar" });
  bar.style.width = `${Math.round(100 * value)}%`;
  const ids = el("td", {}, ...idElements(candidate));
  const description = el("span", { className: "quiet" });
  getEntity(candidate.id).then((entity) => {
    description.textContent = entity.description ?? "";
    ids.replaceChildren(...idElements(entity));
  }, () => {});
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, candidate.title || candidate.id, " ", chip(candidate.label), description),
    ids,
    el("td", {}, probability(value, 4), bar),
    ...columns.map(([, key]) => el("td", {}, candidate[key].toFixed(2))),
  );
}
