// SPDX-License-Identifier: Apache-2.0
// Puts the viewer's core (core.cc, as WebAssembly) on a canvas: input becomes events, drawing commands become
// pixels. Layout, words and shares are the core's; nothing is computed here.
'use strict';
const canvas = document.querySelector('canvas'), g = canvas.getContext('2d', {alpha: false});
const decoder = new TextDecoder(), encoder = new TextEncoder();
const EVENT = {Key: 0, Text: 1, Move: 2, Press: 3, Release: 4, Double: 5, Wheel: 6, Resize: 7, Tick: 8};
let core, scale = 1;

// What stands in the page as gzip in base64; its text is given back.
async function unpacked(element) {
  const bytes = Uint8Array.from(atob(element.textContent), c => c.charCodeAt(0));
  element.textContent = '';
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer());
}
function lent(bytes) {  // a copy in the core's memory
  const at = core.allocate(bytes.length);
  new Uint8Array(core.memory.buffer, at, bytes.length).set(bytes);
  return at;
}

const colors = new Map();
function color(v) {  // 0xAABBGGRR
  let text = colors.get(v);
  if (!text) colors.set(v, text = `rgba(${v & 255},${v >>> 8 & 255},${v >>> 16 & 255},${(v >>> 24) / 255})`);
  return text;
}
const hatches = new Map();
function hatch(kind, ink) {  // a pattern of the core's pixels; 40 is a period of all
  const id = kind + '/' + ink;
  if (!hatches.has(id)) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 40;
    const context = tile.getContext('2d'), image = context.createImageData(40, 40), pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < 1600; ++i) pixels[i] = (ink & 0xffffff | core.hatch(kind, i % 40, i / 40 | 0) << 24) >>> 0;
    context.putImageData(image, 0, 0);
    hatches.set(id, g.createPattern(tile, 'repeat'));
  }
  return hatches.get(id);
}

const FONTS = ['11px', '13px', 'bold 17px'].map(size => size + ' "DejaVu Sans", Verdana, sans-serif');
const ANCHORS = ['left', 'center', 'right'];
const row = document.createElement('canvas'), rowContext = row.getContext('2d');
row.height = 1;
function draw() {
  const began = performance.now(), at = core.commands(), n = core.num_words();
  const u = new Uint32Array(core.memory.buffer, at, n), f = new Float32Array(core.memory.buffer, at, n);
  const listed = performance.now();
  g.textBaseline = 'alphabetic';
  let font = -1, anchor = -1;
  for (let i = 0; i < n;) {
    switch (u[i]) {
      case 1:
        if (u[i + 5] >>> 24) { g.fillStyle = color(u[i + 5]); g.fillRect(f[i + 1], f[i + 2], f[i + 3], f[i + 4]); }
        if (u[i + 6]) { g.fillStyle = hatch(u[i + 6], u[i + 7]); g.fillRect(f[i + 1], f[i + 2], f[i + 3], f[i + 4]); }
        if (u[i + 8]) {
          g.strokeStyle = color(u[i + 8]); g.lineWidth = 1;
          g.strokeRect(f[i + 1] + .5, f[i + 2] + .5, f[i + 3] - 1, f[i + 4] - 1);
        }
        i += 9; break;
      case 2: {
        const count = u[i + 5];
        if (count) {
          if (row.width < count) row.width = count;
          rowContext.putImageData(new ImageData(new Uint8ClampedArray(core.memory.buffer, at + 4 * (i + 6), 4 * count), count, 1), 0, 0);
          g.imageSmoothingEnabled = false;
          g.drawImage(row, 0, 0, count, 1, f[i + 1], f[i + 2], f[i + 3], f[i + 4]);
        }
        i += 6 + count; break;
      }
      case 3: {
        const base = f[i + 2], end = f[i + 3], count = u[i + 4], first = i + 5;
        g.fillStyle = color(u[i + 1]); g.beginPath(); g.moveTo(f[first], base);
        for (let k = 0; k < count; ++k) {
          const j = first + 2 * k;
          g.lineTo(f[j], f[j + 1]); g.lineTo(k + 1 < count ? f[j + 2] : end, f[j + 1]);
        }
        g.lineTo(end, base); g.fill(); i = first + 2 * count; break;
      }
      case 4:
        g.strokeStyle = color(u[i + 6]); g.lineWidth = f[i + 5];
        g.beginPath(); g.moveTo(f[i + 1], f[i + 2]); g.lineTo(f[i + 3], f[i + 4]); g.stroke(); i += 7; break;
      case 5: {
        const bytes = u[i + 7];
        if (font !== u[i + 4]) g.font = FONTS[font = u[i + 4]];
        if (anchor !== u[i + 3]) g.textAlign = ANCHORS[anchor = u[i + 3]];
        g.fillStyle = color(u[i + 5]);
        // As wide as the core laid it out, whatever font the reader has.
        if (bytes) g.fillText(decoder.decode(new Uint8Array(core.memory.buffer, at + 4 * (i + 8), bytes)), f[i + 1], f[i + 2], f[i + 6]);
        i += 8 + (bytes + 3 >> 2); break;
      }
      case 6:
        g.save(); g.beginPath();
        g.rect(Math.round(f[i + 1]), Math.round(f[i + 2]), Math.round(f[i + 3]), Math.round(f[i + 4])); g.clip(); i += 5; break;
      case 7: g.restore(); font = anchor = -1; i += 1; break;
      case 8:
        g.setTransform(scale * f[i + 2], 0, 0, scale * f[i + 2], 0, 0);
        g.fillStyle = color(u[i + 1]); g.fillRect(0, 0, innerWidth, innerHeight); i += 3; break;
      default: throw new Error('no such command: ' + u[i]);
    }
  }
  page.frames.push({core: listed - began, canvas: performance.now() - listed});
}

let pending = false, last = 0;
function drawLater() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(now => {
    pending = false;
    draw();
    if (core.playing()) {
      const seconds = (now - (last || now)) / 1000;
      last = now;
      send(EVENT.Tick, {seconds}, true);
    } else {
      last = 0;
    }
  });
}
function send(type, {key = 0, x = 0, y = 0, button = 0, seconds = 0, code = 0, from = {}} = {}, always = false) {
  const modifiers = (from.shiftKey ? 1 : 0) | (from.ctrlKey || from.metaKey ? 2 : 0);
  if (core.event(type, key, modifiers, x, y, button, seconds, code) || always) drawLater();
  const copied = core.clipboard_size();
  if (copied && navigator.clipboard) navigator.clipboard.writeText(decoder.decode(new Uint8Array(core.memory.buffer, core.take_clipboard(), copied)));
  if (core.take_export()) canvas.toBlob(blob => {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(blob);
    link.download = 'rehearse-view.png';
    link.click();
  });
}
function keyOf(name) {
  const bytes = encoder.encode(name), at = lent(bytes);
  return core.key(at, bytes.length);
}

// The page for who reads it by a script: the words on the canvas, and how long frames took.
const page = {
  frames: [],
  texts() {
    const at = core.commands(), n = core.num_words(), u = new Uint32Array(core.memory.buffer, at, n), found = [];
    const sizes = {1: () => 9, 2: i => 6 + u[i + 5], 3: i => 5 + 2 * u[i + 4], 4: () => 7, 5: i => 8 + (u[i + 7] + 3 >> 2), 6: () => 5, 7: () => 1, 8: () => 3};
    for (let i = 0; i < n; i += sizes[u[i]](i)) {
      if (u[i] === 5) found.push(decoder.decode(new Uint8Array(core.memory.buffer, at + 4 * (i + 8), u[i + 7])));
    }
    return found;
  },
};
globalThis.rehearsePage = page;

function listen() {
  const NAMES = {' ': 'Space', ArrowLeft: 'Left', ArrowRight: 'Right', ArrowUp: 'Up', ArrowDown: 'Down'}, keys = new Map();
  const mouse = (type, e) => send(type, {x: e.offsetX, y: e.offsetY, button: [0, 2, 1][e.button] || 0, from: e});
  const touches = new Map();
  let spread = 0;
  canvas.onpointermove = e => {
    if (touches.has(e.pointerId)) touches.set(e.pointerId, e);
    if (touches.size < 2) return mouse(EVENT.Move, e);
    const [a, b] = [...touches.values()], now = Math.hypot(a.offsetX - b.offsetX, a.offsetY - b.offsetY);
    send(EVENT.Move, {x: (a.offsetX + b.offsetX) / 2, y: (a.offsetY + b.offsetY) / 2});
    send(EVENT.Wheel, {y: Math.log(now / spread) * 8, from: {ctrlKey: true}});
    spread = now;
  };
  canvas.onpointerdown = e => {
    canvas.focus();
    canvas.setPointerCapture(e.pointerId);
    if (e.pointerType === 'touch') touches.set(e.pointerId, e);
    if (touches.size === 2) {
      const [a, b] = [...touches.values()];
      spread = Math.hypot(a.offsetX - b.offsetX, a.offsetY - b.offsetY);
    }
    if (touches.size < 2) mouse(EVENT.Press, e);
  };
  canvas.onpointerup = canvas.onpointercancel = e => {
    const many = touches.size > 1;
    touches.delete(e.pointerId);
    if (!many) mouse(EVENT.Release, e);
  };
  canvas.ondblclick = e => mouse(EVENT.Double, e);
  canvas.oncontextmenu = e => e.preventDefault();
  canvas.addEventListener('wheel', e => {
    e.preventDefault();
    const step = e.deltaMode ? 1 / 3 : 1 / 100;
    send(EVENT.Wheel, {x: -e.deltaX * step, y: -e.deltaY * step, from: e});
  }, {passive: false});
  canvas.onkeydown = e => {
    const name = NAMES[e.key] || (e.key.length === 1 ? e.key.toUpperCase() : e.key);
    if (!keys.has(name)) keys.set(name, keyOf(name));
    if (keys.get(name)) { send(EVENT.Key, {key: keys.get(name), from: e}); e.preventDefault(); }
    if (e.key.length === 1 && !e.ctrlKey && !e.metaKey) send(EVENT.Text, {code: e.key.charCodeAt(0), from: e});
  };
  onresize = () => {
    scale = devicePixelRatio || 1;
    canvas.width = Math.round(innerWidth * scale);
    canvas.height = Math.round(innerHeight * scale);
    canvas.style.width = innerWidth + 'px';
    canvas.style.height = innerHeight + 'px';
    send(EVENT.Resize, {x: innerWidth, y: innerHeight}, true);
  };
}

async function main() {
  const none = () => 0;
  const {instance} = await WebAssembly.instantiate(await unpacked(document.getElementById('core')),
      {wasi_snapshot_preview1: {fd_close: none, fd_seek: none, fd_write: none}});
  core = instance.exports;
  core._initialize();
  for (const element of document.querySelectorAll('script.trace')) {
    const bytes = await unpacked(element);
    if (core.add_trace(lent(bytes), bytes.length) < 0) throw new Error('the trace cannot be read');
  }
  const causes = document.getElementById('causes');
  if (causes) {
    const bytes = await unpacked(causes);
    core.add_causes(lent(bytes), bytes.length);
  }
  core.start(innerWidth, innerHeight);
  listen();
  onresize();
  draw();
  canvas.focus();
  page.ready = true;
}
main().catch(error => {
  document.body.insertAdjacentHTML('afterbegin', '<p></p>');
  document.querySelector('p').textContent = String(error);
});
