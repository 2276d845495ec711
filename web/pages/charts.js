// Line charts as SVG: an axis of steps or of time, some lines, a band, dots. Each can be read by
// pointer, by arrow keys, and as a table.
import {h, svg, put} from './dom.js';

const kCharWidth = 7;  // of a digit of an axis, at most
const kMargin = {left: 56, right: 12, top: 8, bottom: 22};

// Round numbers between least and most.
export function ticks(least, most, wanted) {
  if (!(most > least)) return [least];
  const rough = (most - least) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999) || power * 10;
  const first = Math.ceil(least / step - 1e-9);
  const found = [];
  for (let i = first; i * step <= most + step * 1e-9; i += 1) found.push(i * step || 0);
  return found;
}

function extent(values) {
  let least = Infinity;
  let most = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  return [least, most];
}

function quantile(values, share) {
  const sorted = values.filter((value) => value !== null && Number.isFinite(value)).sort((a, b) => a - b);
  return sorted[Math.floor(share * (sorted.length - 1))];
}

export class Chart {
  // x, y: {name, format}. fromZero: the axis begins there. calm: a few values far above all others do not
  // set the scale. height: in pixels.
  constructor({title, x, y, height = 180, fromZero = false, calm = false}) {
    Object.assign(this, {title, x, y, height, fromZero, calm, at: -1, xs: [], lines: [], band: null, spans: null});
    this.nothing = 'loading';  // what it says while there is nothing to draw
    this.output = h('output', {class: 'at', 'aria-live': 'polite'});
    this.graph = svg('svg', {class: 'chart', height, tabindex: 0, role: 'img'});
    this.table = h('table', {class: 'numbers'});
    this.details = h('details', {}, h('summary', {}, 'as a table'), this.table);
    this.details.addEventListener('toggle', () => this.tell());
    this.element = h('figure', {class: 'figure'},
      h('figcaption', {}, h('h3', {}, title), this.output), this.graph, this.details);
    this.graph.addEventListener('pointermove', (event) => this.point(event));
    this.graph.addEventListener('pointerleave', () => this.move(-1));
    this.graph.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.graph);
  }

  // lines: [{name, values, kind: 'line' | 'dots'}], one value for each of xs; null: none.
  // band: {least, most} around the first line. spans: how many steps each of xs stands for and ends with; null: one.
  // nothing: what it says where there is nothing to draw.
  set(xs, lines, {band = null, spans = null, nothing = 'nothing yet'} = {}) {
    Object.assign(this, {xs, lines, band, spans, nothing});
    this.draw();
  }

  draw() {
    const width = this.graph.clientWidth;
    if (width === 0) return;
    const [left, right] = extent(this.xs);
    const values = this.lines.flatMap((line) => line.values);
    let [low, high] = extent(values);
    this.graph.replaceChildren();
    mark(this.graph, this.summary(low, high));
    if (!Number.isFinite(low) || !Number.isFinite(left)) {
      this.graph.append(svg('text', {x: width / 2, y: this.height / 2, class: 'nothing'}, this.nothing));
      return;
    }
    if (this.calm) high = Math.min(high, 1.5 * quantile(values, 0.98));
    if (this.fromZero) low = Math.min(0, low);
    const pad = (high - low) * 0.05 || Math.abs(high) * 0.05 || 1;
    low = this.fromZero && low === 0 ? 0 : low - pad;
    high += pad;
    const plot = {width: width - kMargin.left - kMargin.right, height: this.height - kMargin.top - kMargin.bottom};
    this.px = (x) => kMargin.left + (right > left ? (x - left) / (right - left) : 0.5) * plot.width;
    this.py = (y) => kMargin.top + plot.height - ((Math.min(y, high) - low) / (high - low)) * plot.height;
    this.drawAxes(left, right, low, high, plot);
    if (this.band) this.graph.append(svg('path', {class: 'band', d: this.bandPath()}));
    this.lines.forEach((line, index) => this.drawLine(line, index));
    this.cursor = svg('g', {class: 'cursor'});
    this.graph.append(this.cursor);
    this.move(this.at);
    this.tell();
  }

  drawAxes(left, right, low, high, plot) {
    const grid = svg('g', {class: 'grid'});
    for (const tick of ticks(low, high, 4)) {
      const y = this.py(tick);
      grid.append(svg('line', {x1: kMargin.left, x2: kMargin.left + plot.width, y1: y, y2: y}));
      grid.append(svg('text', {x: kMargin.left - 8, y: y + 4, class: 'y'}, this.y.format(tick)));
    }
    const wanted = Math.max(3, Math.floor(plot.width / 100));
    const found = this.x.ticks ? this.x.ticks(left, right, wanted) : ticks(left, right, wanted);
    for (const tick of found) {
      const text = this.x.format(tick);
      // The first and the last stay within the picture.
      const half = (text.length * kCharWidth) / 2;
      const x = Math.max(half, Math.min(kMargin.left + plot.width + kMargin.right - half, this.px(tick)));
      grid.append(svg('text', {x, y: this.height - 4, class: 'x'}, text));
    }
    this.graph.append(grid);
  }

  drawLine(line, index) {
    if (line.kind === 'dots') {
      const dots = svg('g', {class: `dots c${index}`});
      line.values.forEach((value, i) => {
        if (Number.isFinite(value) && value !== null) {
          dots.append(svg('circle', {cx: this.px(this.xs[i]), cy: this.py(value), r: 3}));
        }
      });
      this.graph.append(dots);
      return;
    }
    let path = '';
    let pen = 'M';
    line.values.forEach((value, i) => {
      if (value === null || !Number.isFinite(value)) {
        pen = 'M';
        return;
      }
      path += `${pen}${this.px(this.xs[i]).toFixed(1)} ${this.py(value).toFixed(1)}`;
      pen = 'L';
    });
    this.graph.append(svg('path', {class: `line c${index}`, d: path}));
  }

  bandPath() {
    const up = [];
    const down = [];
    this.xs.forEach((x, i) => {
      const least = this.band.least[i];
      const most = this.band.most[i];
      if (!Number.isFinite(least) || !Number.isFinite(most)) return;
      up.push(`${this.px(x).toFixed(1)} ${Math.max(kMargin.top, this.py(most)).toFixed(1)}`);
      down.unshift(`${this.px(x).toFixed(1)} ${Math.min(this.height - kMargin.bottom, this.py(least)).toFixed(1)}`);
    });
    return up.length ? `M${up.join('L')}L${down.join('L')}Z` : '';
  }

  point(event) {
    if (this.xs.length === 0 || !this.px) return;
    const x = event.clientX - this.graph.getBoundingClientRect().left;
    let best = 0;
    this.xs.forEach((value, i) => {
      if (Math.abs(this.px(value) - x) < Math.abs(this.px(this.xs[best]) - x)) best = i;
    });
    this.move(best);
  }

  key(event) {
    const last = this.xs.length - 1;
    const now = this.at < 0 ? last : this.at;
    const to = {ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last, PageUp: now - 20, PageDown: now + 20,
      Escape: -1}[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.move(event.key === 'Escape' ? -1 : Math.max(0, Math.min(last, to)));
  }

  move(at) {
    this.at = at < this.xs.length ? at : -1;
    const shown = this.at >= 0 ? this.at : this.xs.length - 1;
    put(this.output, shown < 0 ? '' : this.textAt(shown));
    if (!this.cursor) return;
    this.cursor.replaceChildren();
    if (this.at < 0) return;
    const x = this.px(this.xs[this.at]);
    this.cursor.append(svg('line', {x1: x, x2: x, y1: kMargin.top, y2: this.height - kMargin.bottom}));
  }

  textAt(i) {
    const parts = this.lines
      .filter((line) => line.values[i] !== null && Number.isFinite(line.values[i]))
      .map((line) => `${line.name} ${this.y.format(line.values[i], true)}`);
    return `${this.placeAt(i)}: ${parts.join(', ')}`;
  }

  // "step 7", or of a point that stands for several "mean of steps 2,990 to 3,000".
  placeAt(i) {
    const last = this.x.format(this.xs[i]);
    return this.isMean(i) ? `mean of ${this.x.name}s ${this.firstAt(i)} to ${last}` : `${this.x.name} ${last}`;
  }

  isMean(i) {
    return this.spans !== null && this.spans[i] > 1;
  }

  firstAt(i) {
    return this.x.format(this.xs[i] - this.spans[i] + 1);
  }

  summary(low, high) {
    if (this.xs.length === 0) return `${this.title}: ${this.nothing}`;
    return `${this.title}: ${this.textAt(this.xs.length - 1)}; from ${this.y.format(low)} to ${this.y.format(high)}. `
      + 'Arrow keys read it point by point.';
  }

  // The newest rows, and only while somebody has the table open.
  tell() {
    if (!this.details.open) return;
    const means = this.spans !== null && this.spans.some((span) => span > 1);
    const head = h('tr', {}, h('th', {scope: 'col'}, means ? `mean of ${this.x.name}s` : this.x.name),
      this.lines.map((line) => h('th', {scope: 'col'}, line.name)));
    const rows = [];
    for (let i = this.xs.length - 1; i >= 0 && rows.length < 30; i -= 1) {
      rows.push(h('tr', {}, h('td', {}, this.isMean(i) ? `${this.firstAt(i)} to ${this.x.format(this.xs[i])}` : this.x.format(this.xs[i])), this.lines.map((line) => h('td', {},
        line.values[i] === null ? '–' : this.y.format(line.values[i], true)))));
    }
    this.table.replaceChildren(h('thead', {}, head), h('tbody', {}, rows));
  }
}

function mark(graph, text) {
  if (graph.getAttribute('aria-label') !== text) graph.setAttribute('aria-label', text);
}

// A line without axes, for a cell of a table.
export function sparkline(values, width = 96, height = 22) {
  const graph = svg('svg', {class: 'spark', width, height, viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true'});
  const finite = values.filter((value) => value !== null && Number.isFinite(value));
  if (finite.length < 2) return graph;
  const [low, high] = extent(finite);
  const points = finite.map((value, i) => {
    const x = 1 + (i / (finite.length - 1)) * (width - 2);
    const y = height - 2 - (high > low ? (value - low) / (high - low) : 0.5) * (height - 4);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  graph.append(svg('polyline', {points: points.join(' ')}));
  return graph;
}

// Round times of day between two moments.
export function timeTicks(left, right, wanted) {
  const sizes = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880].map((minutes) => minutes * 60000);
  const size = sizes.find((s) => (right - left) / s <= wanted) || sizes[sizes.length - 1];
  const found = [];
  for (let at = Math.ceil(left / size) * size; at <= right; at += size) found.push(at);
  return found;
}
