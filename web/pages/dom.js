// Elements, and numbers as people read them.

// h('a', {href: '#/', class: 'x', onclick: f}, 'text', element, ...)
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Touches the page only where something has changed.
export function put(element, text) {
  const value = String(text);
  if (element.textContent !== value) element.textContent = value;
  return element;
}

export function mark(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

const kNone = '–';

export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return kNone;
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(digits)));
}

export function count(value) {
  if (!Number.isFinite(value)) return kNone;
  if (Math.abs(value) < 10) return number(value, 3);
  for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e4]]) {
    const scale = unit === 'k' ? 1e3 : size;
    if (Math.abs(value) >= size) return `${Number((value / scale).toPrecision(3))} ${unit}`;
  }
  return Math.round(value).toLocaleString('en');
}

export function bytes(value) {
  if (!Number.isFinite(value) || value <= 0) return kNone;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const step = Math.min(units.length - 1, Math.floor(Math.log2(value) / 10));
  return `${Number((value / 1024 ** step).toPrecision(3))} ${units[step]}`;
}

export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return kNone;
  if (value === 0) return '0 s';
  if (value < 1e-3) return `${number(value * 1e6, 3)} µs`;
  if (value < 1) return `${number(value * 1e3, 3)} ms`;
  if (value < 60) return `${number(value, 3)} s`;
  const whole = Math.round(value);
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const first = parts.findIndex(([size]) => whole >= size);
  const [size, unit] = parts[first];
  const rest = parts[first + 1] ? Math.floor((whole % size) / parts[first + 1][0]) : 0;
  return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${parts[first + 1][1]}` : ''}`;
}

export function ago(unixMs) {
  if (!unixMs) return kNone;
  return `${seconds(Math.max(1, Math.round((Date.now() - unixMs) / 1000)))} ago`;
}

export function clock(unixMs) {
  if (!unixMs) return kNone;
  const date = new Date(unixMs);
  const time = date.toLocaleTimeString('en-GB');
  const today = date.toDateString() === new Date().toDateString();
  return today ? time : `${date.toLocaleDateString('en-GB', {day: 'numeric', month: 'short'})} ${time}`;
}

export function percent(part, whole) {
  return whole > 0 ? Math.min(100, (100 * part) / whole) : 0;
}

// A state has a sign of its own, so that colour is not all that tells it.
const kSigns = {
  RUNNING: '●', QUEUED: '○', PLANNING: '◔', STARTING: '◑', SUCCEEDED: '✓', FAILED: '✕', CANCELLED: '⊘',
  RECOVERING: '↻', PAUSED: 'Ⅱ', READY: '●', LOST: '✕', LEFT: '○', SUSPECT: '?', CORDONED: '⊘',
  DRAINING: '↧', DRAINED: '⊘', QUARANTINED: '!',
};

export function pill(state) {
  return setPill(h('span', {class: 'pill'}, h('span', {'aria-hidden': 'true'}), h('span')), state);
}

export function setPill(element, state) {
  mark(element, 'data-state', state);
  put(element.firstChild, kSigns[state] || '•');
  put(element.lastChild, state.toLowerCase());
  return element;
}

export const kEnded = new Set(['SUCCEEDED', 'FAILED', 'CANCELLED']);

// A bar that says how much of a whole is done.
export function meter(label) {
  const fill = h('span', {class: 'fill'});
  const element = h('span', {class: 'meter', role: 'progressbar', 'aria-label': label, 'aria-valuemin': 0,
    'aria-valuemax': 100}, fill);
  element.set = (share) => {
    mark(element, 'aria-valuenow', Math.round(share));
    const width = `${share.toFixed(1)}%`;
    if (fill.style.width !== width) fill.style.width = width;
  };
  return element;
}

export function stat(name, wide = false) {
  const value = h('dd', {class: 'value'}, '–');
  const note = h('dd', {class: 'note'});
  const element = h('div', {class: wide ? 'stat wide' : 'stat'}, h('dt', {}, name), value, note);
  element.set = (text, more = '') => {
    put(value, text);
    put(note, more);
  };
  return element;
}

export function card(title, ...children) {
  return h('section', {class: 'card'}, h('h2', {}, title), ...children);
}
