// Elements, colours, numbers. All text gets into the page as text, never as HTML.

const WIKIDATA = /^Q[1-9][0-9]*$/;

/** Makes an element; an attribute that is a property of elements, such as onclick, is set as one. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Shows a message in an element that is hidden without one. */
export function say(element, message) {
  element.textContent = message;
  element.hidden = !message;
}

export const count = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** A probability; only what is exactly 0 or 1 is shown as that. */
export function probability(value, digits = 2) {
  const least = 10 ** -digits;
  if (value > 0 && value < least / 2) return `<${least}`;
  if (value < 1 && value > 1 - least / 2) return `>${1 - least}`;
  return value.toFixed(digits);
}

/** A number with at most four digits after the point. */
export const shortest = (value) => String(Number(value.toFixed(4)));

/** Gives an element the colour of a label: the same one for the same name, everywhere. */
export function colour(element, label) {
  let hash = 1727; // sets the usual labels apart
  for (const character of label) hash = Math.imul(hash ^ character.codePointAt(0), 0x01000193) >>> 0;
  element.style.setProperty("--hue", hash % 360);
  return element;
}

/** The label of an entity, in its colour; null if it has none. */
export const chip = (label) => (label ? colour(el("span", { className: "chip" }, label), label) : null);

/** An id; one of Wikidata is a link to it. */
export function idElement(id) {
  if (!WIKIDATA.test(id)) return el("span", { className: "id" }, id);
  return el(
    "a",
    {
      className: "id",
      href: `https://www.wikidata.org/wiki/${id}`,
      target: "_blank",
      rel: "noreferrer noopener",
      "aria-label": `${id} on Wikidata, in a new tab`,
    },
    id,
  );
}

/** The ids of an entity that are to be shown: its own, and that of Wikidata if it is another. */
export function idElements({ id, ids }) {
  const wikidata = ids?.wikidata;
  const shown = wikidata !== id && WIKIDATA.test(wikidata) ? [id, wikidata] : [id];
  return shown.map(idElement).flatMap((element, i) => (i ? [" ", element] : [element]));
}
