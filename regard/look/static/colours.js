// Palettes that people who see colours differently can read: lightness alone orders them.

const ANCHORS = {
  // Begins with the paper of the page, light or dark, so that nothing looks like nothing.
  ocean: {
    light: "ffffff e7f0f9 cfe2f2 aed0e8 82b8dc 559fcd 3384bb 1d6aa5 0f518b 083b6f 052450",
    dark: "151a21 17293b 1a3a56 1d4d74 226293 2d79ae 4191c3 60a9d3 8ac2e1 b9dbee f0f8fd",
  },
  viridis: "440154 482475 414487 355f8d 2a788e 21918c 22a884 44bf70 7ad151 bddf26 fde725",
  cividis: "00224e 083370 35456c 4f576c 666970 7d7c78 948e77 aea371 c8b866 e5cf52 fee838",
  inferno: "000004 160b39 420a68 6a176e 932667 bc3754 dd513a f37819 fca50a f6d746 fcffa4",
  grey: {
    light: "ffffff f0f0f0 dddddd c6c6c6 adadad 919191 757575 595959 3e3e3e 242424 0a0a0a",
    dark: "151a21 20252c 2e3339 404449 55585c 6d7073 888a8c a4a6a7 c0c1c2 dddddd fafafa",
  },
};

export const PALETTES = Object.keys(ANCHORS);

function rgbOf(hex) {
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** 256 colours of a palette as [red, green, blue, ...]. */
export function colourTable(palette, theme) {
  const anchors = ANCHORS[palette][theme] ?? ANCHORS[palette];
  const stops = anchors.split(" ").map(rgbOf);
  const table = new Uint8ClampedArray(256 * 3);
  for (let shade = 0; shade < 256; shade += 1) {
    const at = (shade / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    for (let part = 0; part < 3; part += 1) {
      const from = stops[low][part], to = stops[low + 1][part];
      table[3 * shade + part] = from + (at - low) * (to - from);
    }
  }
  return table;
}

/** One colour of a table, for CSS. */
export function cssColour(table, shade) {
  return `rgb(${table[3 * shade]}, ${table[3 * shade + 1]}, ${table[3 * shade + 2]})`;
}

/** Black or white, whichever is easier to read on a colour of the table. */
export function inkOn(table, shade) {
  const [red, green, blue] = table.subarray(3 * shade, 3 * shade + 3);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#10151c" : "#ffffff";
}

/** Shades as pixels. */
export function coloured(shades, table) {
  const pixels = new Uint8ClampedArray(4 * shades.length);
  const words = new Uint32Array(pixels.buffer);
  const palette = new Uint32Array(256);
  for (let shade = 0; shade < 256; shade += 1) {
    const [red, green, blue] = table.subarray(3 * shade, 3 * shade + 3);
    palette[shade] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  for (let at = 0; at < shades.length; at += 1) words[at] = palette[shades[at]];
  return pixels;
}
