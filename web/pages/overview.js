// The cluster at a glance: what it has, what runs, who computes, what happened.
import {h, put, mark, pill, setPill, meter, stat, card, number, count, seconds, ago, clock, percent, kEnded} from './dom.js';
import {get} from './live.js';
import {Chart, sparkline, timeTicks} from './charts.js';

const kRanges = [['1 h', 1], ['6 h', 6], ['24 h', 24], ['7 d', 168]];
const kHistoryMs = 10000;
const kSparkPoints = 40;

export class Overview {
  constructor(store) {
    this.store = store;
    this.rows = new Map();
    this.tiles = new Map();
    this.sparks = new Map();
    this.hours = 1;
    this.stats = {devices: stat('Devices at work'), workers: stat('Workers'), running: stat('Running'),
      queued: stat('Waiting'), tokens: stat('Tokens per second')};
    this.meter = meter('Devices at work');
    this.stats.devices.append(this.meter);
    this.makeHistory();
    this.makeJobs();
    this.makeWorkers();
    this.events = h('ol', {class: 'events'});
    this.element = h('div', {class: 'page'},
      h('h1', {class: 'hidden'}, 'Overview'),
      h('dl', {class: 'stats'}, Object.values(this.stats)),
      h('section', {class: 'card'}, this.jobsHead, this.jobsTable, this.noJobs),
      h('div', {class: 'halves'}, this.historyCard,
        h('section', {class: 'card'}, h('div', {class: 'row'}, h('h2', {}, 'Events'),
          h('a', {class: 'more', href: '#/events'}, 'all')), this.events)),
      h('section', {class: 'card'}, this.workersHead, this.grid, this.noWorkers));
    this.timer = setInterval(() => this.loadHistory(), kHistoryMs);
  }

  stop() {
    clearInterval(this.timer);
  }

  job() {
    return 0;
  }

  title() {
    return 'Overview';
  }

  makeHistory() {
    const time = {name: '', format: (x) => clock(x).slice(0, 5), ticks: timeTicks};
    const atTime = {...time, format: (x) => clock(x).replace(/:\d\d$/, '')};
    this.busy = new Chart({title: 'Devices at work', x: atTime, height: 130, fromZero: true,
      y: {format: (y) => number(y, 3)}});
    this.speed = new Chart({title: 'Tokens per second', x: atTime, height: 130, fromZero: true,
      y: {format: (y) => count(y)}});
    const ranges = kRanges.map(([name, hours]) => h('button', {'aria-pressed': String(hours === this.hours),
      onclick: (event) => this.choose(hours, event.currentTarget)}, name));
    this.ranges = h('div', {class: 'choice', role: 'group', 'aria-label': 'How far back'}, ranges);
    this.historyCard = h('section', {class: 'card'}, h('div', {class: 'row'}, h('h2', {}, 'The last hours'),
      this.ranges), this.busy.element, this.speed.element);
  }

  choose(hours, button) {
    this.hours = hours;
    for (const other of this.ranges.children) mark(other, 'aria-pressed', other === button);
    this.loadHistory();
  }

  makeJobs() {
    this.filter = h('input', {type: 'search', placeholder: 'name, state, layout', 'aria-label': 'Jobs to show',
      oninput: () => this.showJobs()});
    // What commands such as `generate` had for themselves: once ended, shown only when asked for.
    this.sessions = h('button', {'aria-pressed': 'false', hidden: true, onclick: () => {
      mark(this.sessions, 'aria-pressed', this.sessions.getAttribute('aria-pressed') !== 'true');
      this.showJobs();
    }});
    this.jobsHead = h('div', {class: 'row'}, h('h2', {}, 'Jobs'), h('div', {class: 'row end'}, this.sessions, this.filter));
    this.jobsBody = h('tbody');
    const heads = ['Job', 'State', 'Progress', 'Loss', 'Layout', 'Submitted', 'Time'];
    this.jobsTable = h('div', {class: 'scroll'}, h('table', {class: 'jobs'}, h('thead', {}, h('tr', {},
      heads.map((head) => h('th', {scope: 'col'}, head)))), this.jobsBody));
    this.noJobs = h('p', {class: 'empty', hidden: true}, 'No job yet. ', h('code', {}, 'meshwright submit job.toml'));
  }

  makeWorkers() {
    this.search = h('input', {type: 'search', placeholder: 'worker or state', 'aria-label': 'Workers to show',
      oninput: () => this.showWorkers()});
    this.workersHead = h('div', {class: 'row'}, h('h2', {}, 'Workers'), h('p', {class: 'legend'},
      h('i', {'data-use': 'busy'}), 'at work ', h('i', {'data-use': 'part'}), 'in part ', h('i', {'data-use': 'free'}),
      'free ', h('i', {'data-use': 'closed'}), 'closed ', h('i', {'data-use': 'lost'}), 'lost'), this.search);
    this.grid = h('ul', {class: 'tiles', onkeydown: (event) => this.walk(event)});
    this.noWorkers = h('p', {class: 'empty', hidden: true}, 'No worker has joined. ', h('code', {}, 'meshwright worker --address HOST:PORT'));
  }

  async load() {
    await Promise.all([this.loadHistory(), this.loadSparks()]);
  }

  async loadHistory() {
    if (document.hidden) return;
    const history = await get(`history?hours=${this.hours}&points=300`).catch(() => null);
    if (!history) return;
    const column = (name) => {
      const at = history.columns.indexOf(name);
      return history.rows.map((row) => row[at]);
    };
    const times = column('unix_ms');
    this.busy.set(times, [{name: 'at work', values: column('busy_devices')}, {name: 'there', values: column('devices')}]);
    this.speed.set(times, [{name: 'tokens/s', values: column('tokens_per_s')}]);
    const speeds = column('tokens_per_s');
    this.stats.tokens.set(speeds.length ? count(speeds[speeds.length - 1]) : '–', 'of all jobs');
  }

  // Small curves for what runs, and for the newest that do not.
  async loadSparks() {
    const jobs = [...this.store.jobs.values()].filter((job) => !isEndedSession(job)).sort((a, b) => kEnded.has(a.state) - kEnded.has(b.state) || b.id - a.id);
    await Promise.all(jobs.slice(0, 12).filter((job) => job.steps_done > 0).map(async (job) => {
      const curve = await get(`jobs/${job.id}/steps?points=${kSparkPoints}`).catch(() => null);
      if (!curve) return;
      const at = curve.columns.indexOf('loss');
      this.sparks.set(job.id, curve.rows.map((row) => row[at]));
    }));
    this.showJobs();
  }

  show() {
    const {totals} = this.store;
    const workers = totals.workers || {};
    const jobs = totals.jobs || {};
    const others = Object.entries(workers).filter(([state, n]) => state !== 'READY' && n > 0)
      .map(([state, n]) => `${n} ${state.toLowerCase()}`);
    this.stats.devices.set(`${totals.busy_devices || 0} of ${totals.devices || 0}`);
    this.meter.set(percent(totals.busy_devices || 0, totals.devices || 0));
    this.stats.workers.set(`${workers.READY || 0} ready`, others.join(', '));
    const rough = ['STARTING', 'PLANNING', 'RECOVERING'].map((state) => jobs[state] ? `${jobs[state]} ${state.toLowerCase()}` : '');
    this.stats.running.set(jobs.RUNNING || 0, rough.filter(Boolean).join(', '));
    this.stats.queued.set(jobs.QUEUED || 0, jobs.PAUSED ? `${jobs.PAUSED} paused` : '');
    this.showJobs();
    this.showWorkers();
    this.showEvents();
  }

  showJobs() {
    const wanted = this.filter.value.trim().toLowerCase();
    const all = [...this.store.jobs.values()].sort((a, b) => b.id - a.id);
    const sessions = all.filter(isEndedSession).length;
    const withSessions = this.sessions.getAttribute('aria-pressed') === 'true';
    put(this.sessions, `${sessions} ended ${sessions === 1 ? 'session' : 'sessions'}`);
    mark(this.sessions, 'title', 'of generate, predict, chat, embed and evaluate');
    this.sessions.hidden = sessions === 0;
    const jobs = all.filter((job) => (withSessions || !isEndedSession(job)) && (!wanted
      || `${job.id} ${job.name} ${job.tool} ${job.state} ${job.layout} ${job.reason}`.toLowerCase().includes(wanted)));
    const kept = new Set();
    jobs.forEach((job, at) => {
      kept.add(job.id);
      const row = this.rows.get(job.id) || this.makeRow(job);
      this.fillRow(row, job);
      if (this.jobsBody.children[at] !== row.element) this.jobsBody.insertBefore(row.element, this.jobsBody.children[at] || null);
    });
    for (const [id, row] of this.rows) {
      if (kept.has(id)) continue;
      row.element.remove();
      this.rows.delete(id);
    }
    this.noJobs.hidden = jobs.length > 0;
    this.jobsTable.hidden = jobs.length === 0;
  }

  makeRow(job) {
    const cell = (label, ...children) => h('td', {'data-label': label}, ...children);
    const row = {name: h('a', {href: `#/jobs/${job.id}`}), why: h('span', {class: 'why'}), pill: pill(job.state),
      meter: meter(`Progress of job ${job.id}`), steps: h('span', {class: 'small'}), loss: h('span', {class: 'num'}),
      spark: h('span', {class: 'sparkbox'}), layout: h('span', {class: 'small'}), when: h('span', {class: 'small'}),
      took: h('span', {class: 'small num'}), points: null};
    row.element = h('tr', {}, cell('Job', h('span', {class: 'id'}, `${job.id}`), row.name), cell('State', row.pill, row.why),
      cell('Progress', row.meter, row.steps), cell('Loss', row.loss, row.spark), cell('Layout', row.layout),
      cell('Submitted', row.when), cell('Time', row.took));
    this.rows.set(job.id, row);
    return row;
  }

  fillRow(row, job) {
    put(row.name, job.name || `job ${job.id}`);
    setPill(row.pill, job.state);
    put(row.why, kEnded.has(job.state) && job.state !== 'FAILED' ? '' : job.reason);
    mark(row.why, 'title', job.message);
    row.meter.set(percent(job.steps_done, job.steps));
    put(row.steps, job.steps ? `${job.steps_done.toLocaleString('en')} of ${job.steps.toLocaleString('en')}` : job.steps_done.toLocaleString('en'));
    put(row.loss, job.steps_done > 0 ? number(job.loss) : '–');
    put(row.layout, shortLayout(job.layout));
    mark(row.layout, 'title', job.layout);
    put(row.when, ago(job.submitted_unix_ms));
    const end = job.ended_unix_ms || Date.now();
    put(row.took, job.started_unix_ms ? seconds((end - job.started_unix_ms) / 1000) : '–');
    this.grow(job);
    const points = this.sparks.get(job.id);
    if (points && row.points !== points.length + points[points.length - 1]) {
      row.points = points.length + points[points.length - 1];
      row.spark.replaceChildren(sparkline(points));
    }
  }

  // The last point follows what the stream says of the job.
  grow(job) {
    const points = this.sparks.get(job.id);
    if (!points || job.state !== 'RUNNING' || points[points.length - 1] === job.loss || !Number.isFinite(job.loss)) return;
    points.push(job.loss);
    if (points.length > 2 * kSparkPoints) points.splice(0, points.length, ...points.filter((_, i) => i % 2 === 1));
  }

  // There may be a thousand: only what has changed is touched. What is not looked for is hidden where it is, so that each
  // has its place again when nothing is.
  showWorkers() {
    const wanted = this.search.value.trim().toLowerCase();
    let changed = false;
    for (const tile of this.store.workers.values()) {
      const [name, state, devices, busy, host, note] = tile;
      let link = this.tiles.get(name);
      if (!link) {
        link = h('a', {href: `#/workers/${encodeURIComponent(name)}`, tabindex: -1});
        this.tiles.set(name, link);
        this.grid.append(h('li', {}, link));
        changed = true;
      }
      const hidden = wanted !== '' && !`${name} ${host} ${state}`.toLowerCase().includes(wanted);
      if (link.parentElement.hidden !== hidden) {
        link.parentElement.hidden = hidden;
        changed = true;
      }
      if (link.tile === tile) continue;
      link.tile = tile;
      const text = `${name}: ${state.toLowerCase()}, ${busy} of ${devices} ${devices === 1 ? 'device' : 'devices'} at work${note ? `, ${note}` : ''}`;
      mark(link, 'aria-label', text);
      mark(link, 'title', text);
      mark(link, 'data-use', useOf(state, busy, devices));
    }
    for (const [name, link] of this.tiles.size === this.store.workers.size ? [] : this.tiles) {
      if (this.store.workers.has(name)) continue;
      link.parentElement.remove();
      this.tiles.delete(name);
      changed = true;
    }
    if (changed) this.nameTiles();
    this.noWorkers.hidden = this.store.workers.size > 0;
  }

  shownTiles() {
    return [...this.grid.querySelectorAll('li:not([hidden]) a')];
  }

  // Names where there is room for them, and the one tile at which the tab key stops.
  nameTiles() {
    const shown = this.shownTiles();
    const many = shown.length > 64;
    mark(this.grid, 'data-many', many);
    for (const [name, link] of this.tiles) put(link, many ? '' : name);
    if (shown.some((link) => link.tabIndex === 0)) return;
    for (const link of this.tiles.values()) mark(link, 'tabindex', -1);
    if (shown.length) mark(shown[0], 'tabindex', 0);
  }

  // One stop of the tab key; arrows walk within.
  walk(event) {
    const links = this.shownTiles();
    const now = links.indexOf(document.activeElement);
    const top = (link) => link.getBoundingClientRect().top;
    const perRow = Math.max(1, links.findIndex((link) => top(link) > top(links[0]) + 2));
    const to = {ArrowLeft: now - 1, ArrowRight: now + 1, ArrowUp: now - perRow, ArrowDown: now + perRow, Home: 0,
      End: links.length - 1}[event.key];
    if (to === undefined || now < 0 || !links[to]) return;
    event.preventDefault();
    mark(links[now], 'tabindex', -1);
    mark(links[to], 'tabindex', 0);
    links[to].focus();
  }

  showEvents() {
    if (this.shownEvents === this.store.events) return;
    this.shownEvents = this.store.events;
    this.events.replaceChildren(...eventItems(this.store.events.slice(-14)));
  }
}

export function eventItems(events) {
  return [...events].reverse().map((event) => h('li', {},
    h('time', {datetime: new Date(event.unix_ms).toISOString()}, clock(event.unix_ms)),
    event.job ? h('a', {href: `#/jobs/${event.job}`, class: 'id'}, `${event.job}`) : h('span', {class: 'id'}),
    h('span', {}, event.text)));
}

function isEndedSession(job) {
  return Boolean(job.tool) && kEnded.has(job.state);
}

function useOf(state, busy, devices) {
  if (state === 'LOST' || state === 'LEFT') return 'lost';
  if (state !== 'READY' && busy === 0) return 'closed';
  if (busy === 0) return 'free';
  return busy < devices ? 'part' : 'busy';
}

// Axes of one device say nothing.
export function shortLayout(layout) {
  const words = (layout || '').split(' ').filter((word) => word && !/=(1|0|none|)$/.test(word) && !word.startsWith('schedule='));
  return words.slice(0, 5).join(' ') || (layout ? 'one device' : '–');
}
