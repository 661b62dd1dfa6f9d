// A link to what is seen: the panels as JSON behind the # of the address, which is never sent.

const LONGEST = 20_000;
const PANELS = 2;

/** Keep the panels in the address; what is too long for an address is not kept. */
export function write(panels) {
  const text = encodeURIComponent(JSON.stringify(panels));
  history.replaceState(null, "", text.length > LONGEST ? location.pathname : `#${text}`);
}

/** The panels that the address keeps; none if it keeps nothing that can be read. */
export function read() {
  try {
    const held = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    return Array.isArray(held) ? held.filter((each) => typeof each?.run === "string").slice(0, PANELS) : [];
  } catch {
    return [];
  }
}
