// What is written for a token: short, on one line, with nothing in it that cannot be seen.
// The same rules as label.py; a test holds both to the same answers.

const LONGEST = 20;
const TAIL = 6;
const SIGNS = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "←" };
const INKLESS = /^[\p{Z}\p{C}]$/u;
const MARK = /^\p{M}/u;

/** The token as it can be read. */
export function visible(token) {
  if (token === "") return "∅";
  const letters = Array.from(token);
  let begin = letters.findIndex((letter) => letter !== " ");
  if (begin < 0) begin = letters.length;
  let end = letters.length;
  while (end > 0 && letters[end - 1] === " ") end -= 1;
  const between = (place) => begin <= place && place < end; // where a space stays one
  const signs = letters
    .map((letter, place) => (letter === " " && between(place) ? " " : signOf(letter)))
    .filter((_, place) => Math.min(place, letters.length - 1 - place) <= LONGEST);
  return (MARK.test(token) ? "◌" : "") + shortened(signs);
}

/** A title, at its full length, with nothing in it that cannot be seen. */
export function heading(text) {
  return Array.from(text, (letter) => (letter === " " ? " " : signOf(letter))).join("");
}

function signOf(letter) {
  if (letter in SIGNS) return SIGNS[letter];
  return INKLESS.test(letter) || /^[\ud800-\udfff]$/.test(letter) ? numbered(letter) : letter;
}

function numbered(letter) {
  return `\\u{${letter.codePointAt(0).toString(16)}}`;
}

function shortened(signs) {
  if (lengthOf(signs) <= LONGEST) return signs.join("");
  let head = fitting(signs, LONGEST - TAIL - 1);
  if (!head.length) head = signs.slice(0, 1);
  const tail = fitting(signs.slice(head.length).reverse(), TAIL);
  return [...head, "…", ...tail.reverse()].join("");
}

function lengthOf(signs) {
  return signs.reduce((sum, sign) => sum + Array.from(sign).length, 0);
}

function fitting(signs, room) {
  const kept = [];
  for (const sign of signs) {
    room -= Array.from(sign).length;
    if (room < 0) break;
    kept.push(sign);
  }
  return kept;
}
