// A drawing as a list of marks, which becomes pixels or SVG. Pictures that are exported are scenes.

import { hiddenCanvas, svgElement } from "./dom.js";

export const FONT =
  'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif';

export class Scene {
  constructor(paper) {
    this.paper = paper;
    this.marks = [];
    this.width = 0;
    this.height = 0;
  }

  box(x, y, width, height, fill, stroke = null) {
    this.marks.push({ kind: "box", x, y, width, height, fill, stroke });
    return this.reach(x + width, y + height);
  }

  /** `anchor` is start, middle or end; `turn` in degrees; y is the middle of the letters. */
  text(x, y, text, { size = 12, fill, anchor = "start", turn = 0, bold = false }) {
    this.marks.push({ kind: "text", x, y, text, size, fill, anchor, turn, bold });
    return this;
  }

  /** A link that leaves and arrives level. */
  link(x, y, toX, toY, stroke, width, opacity = 1) {
    this.marks.push({ kind: "link", x, y, toX, toY, stroke, width, opacity });
    return this;
  }

  /** A canvas, one cell of which is drawn as a block. */
  picture(x, y, width, height, canvas) {
    this.marks.push({ kind: "picture", x, y, width, height, canvas });
    return this.reach(x + width, y + height);
  }

  reach(x, y) {
    this.width = Math.max(this.width, x);
    this.height = Math.max(this.height, y);
    return this;
  }
}

function fontOf(mark) {
  return `${mark.bold ? "600 " : ""}${mark.size}px ${FONT}`;
}

const DRAWN = {
  box(context, mark) {
    if (mark.fill) {
      context.fillStyle = mark.fill;
      context.fillRect(mark.x, mark.y, mark.width, mark.height);
    }
    if (mark.stroke) {
      context.strokeStyle = mark.stroke;
      context.lineWidth = 1;
      context.strokeRect(mark.x, mark.y, mark.width, mark.height);
    }
  },
  text(context, mark) {
    context.save();
    context.translate(mark.x, mark.y);
    context.rotate((mark.turn * Math.PI) / 180);
    context.font = fontOf(mark);
    context.fillStyle = mark.fill;
    context.textAlign = { start: "left", middle: "center", end: "right" }[mark.anchor];
    context.textBaseline = "middle";
    context.fillText(mark.text, 0, 0);
    context.restore();
  },
  link(context, mark) {
    const middle = (mark.x + mark.toX) / 2;
    context.globalAlpha = mark.opacity;
    context.strokeStyle = mark.stroke;
    context.lineWidth = mark.width;
    context.beginPath();
    context.moveTo(mark.x, mark.y);
    context.bezierCurveTo(middle, mark.y, middle, mark.toY, mark.toX, mark.toY);
    context.stroke();
    context.globalAlpha = 1;
  },
  picture(context, mark) {
    context.imageSmoothingEnabled = mark.width < mark.canvas.width;
    context.drawImage(mark.canvas, mark.x, mark.y, mark.width, mark.height);
  },
};

/** The scene on a context, as large as it is. */
export function drawScene(scene, context) {
  for (const mark of scene.marks) DRAWN[mark.kind](context, mark);
}

/** The scene as a canvas, `scale` pixels for each of its own; less where that would be too many. */
export function sceneCanvas(scene, scale = 2) {
  const most = Math.min(scale, 12_000 / Math.max(scene.width, scene.height));
  const canvas = hiddenCanvas(Math.ceil(scene.width * most), Math.ceil(scene.height * most));
  const context = canvas.getContext("2d");
  context.fillStyle = scene.paper;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.scale(most, most);
  drawScene(scene, context);
  return canvas;
}

const WRITTEN = {
  box: (owner, mark) => [
    "rect",
    {
      x: mark.x,
      y: mark.y,
      width: mark.width,
      height: mark.height,
      fill: mark.fill ?? "none",
      ...(mark.stroke && { stroke: mark.stroke }),
    },
  ],
  text: (owner, mark) => [
    "text",
    {
      transform: `translate(${mark.x} ${mark.y})${mark.turn ? ` rotate(${mark.turn})` : ""}`,
      "font-size": mark.size,
      "font-weight": mark.bold ? 600 : 400,
      fill: mark.fill,
      "text-anchor": mark.anchor,
      dy: "0.35em",
    },
  ],
  link: (owner, mark) => {
    const middle = (mark.x + mark.toX) / 2;
    const bend = `${middle} ${mark.y} ${middle} ${mark.toY}`;
    const way = `M${mark.x} ${mark.y}C${bend} ${mark.toX} ${mark.toY}`;
    return [
      "path",
      {
        d: way,
        fill: "none",
        stroke: mark.stroke,
        "stroke-width": mark.width,
        "stroke-opacity": mark.opacity,
      },
    ];
  },
  picture: (owner, mark) => [
    "image",
    {
      x: mark.x,
      y: mark.y,
      width: mark.width,
      height: mark.height,
      preserveAspectRatio: "none",
      "image-rendering": "pixelated",
      href: mark.canvas.toDataURL("image/png"),
    },
  ],
};

/** The scene as the text of an SVG file: made of nodes, so that no label can become markup. */
export function sceneSvg(scene) {
  const owner = document.implementation.createDocument("http://www.w3.org/2000/svg", "svg", null);
  const root = owner.documentElement;
  const width = Math.ceil(scene.width), height = Math.ceil(scene.height);
  const viewBox = `0 0 ${width} ${height}`;
  for (const [name, value] of Object.entries({ width, height, viewBox, "font-family": FONT })) {
    root.setAttribute(name, value);
  }
  root.append(svgElement(owner, "rect", { width, height, fill: scene.paper }));
  for (const mark of scene.marks) {
    const [tag, attributes] = WRITTEN[mark.kind](owner, mark);
    const made = svgElement(owner, tag, attributes);
    if (mark.kind === "text") made.append(owner.createTextNode(mark.text));
    root.append(made);
  }
  return new XMLSerializer().serializeToString(owner);
}
