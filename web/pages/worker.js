// One worker: its devices and what they do, and what happened to it.
import {h, put, pill, setPill, card, bytes, number, seconds} from './dom.js';
import {get} from './live.js';
import {eventItems} from './overview.js';
import {tableOf} from './job.js';

const kLookMs = 5000;

// The name or address by which other machines reach it, without the port.
function hostOf(address) {
  return address.replace(/:\d+$/, '') || '–';
}

// The address has its scheme where metrics are by TLS, and none where they are not.
function metricsLink(address) {
  const url = address.includes('://') ? address : `http://${address}`;
  return h('a', {href: `${url}/metrics`, rel: 'noreferrer'}, address);
}

function programsOf(run) {
  return Object.entries(run.programs).map(([name, count]) => `${name} (${number(count)})`).join(', ');
}

export class Worker {
  constructor(store, name) {
    Object.assign(this, {store, name});
    this.pill = pill('READY');
    this.note = h('p', {class: 'why wide', hidden: true});
    this.facts = h('div', {class: 'scroll'});
    this.devices = h('div', {class: 'scroll'});
    this.events = h('ol', {class: 'events'});
    this.log = h('pre', {class: 'log', tabindex: 0, role: 'region', 'aria-label': 'The last lines of its log'});
    this.logNote = h('p', {class: 'why wide', hidden: true});
    this.profile = h('pre', {class: 'log', tabindex: 0, role: 'region', 'aria-label': 'What its devices measured of themselves'});
    this.element = h('div', {class: 'page'}, h('div', {class: 'head'}, h('div', {class: 'row'}, h('h1', {}, name), this.pill), this.note),
      h('div', {class: 'halves'}, card('Devices and what runs on them', this.devices), card('About it', this.facts)),
      card('Events that name it', this.events),
      card('Log', this.logNote, this.log),
      h('section', {class: 'card'}, h('details', {}, h('summary', {}, 'What its devices measured of themselves'), this.profile)));
    this.timer = setInterval(() => this.load().catch(() => {}), kLookMs);
  }

  stop() {
    clearInterval(this.timer);
  }

  job() {
    return 0;
  }

  title() {
    return this.name;
  }

  show() {}

  // The last lines; who has scrolled up to read is left where they are.
  async loadLog() {
    const log = await get(`workers/${encodeURIComponent(this.name)}/log?lines=200`).catch(() => null);
    put(this.logNote, log ? log.note : 'It has said nothing yet.');
    this.logNote.hidden = Boolean(log) && !log.note;
    const atEnd = this.log.scrollTop + this.log.clientHeight >= this.log.scrollHeight - 4;
    put(this.log, log ? log.lines.join('\n') : '');
    if (atEnd) this.log.scrollTop = this.log.scrollHeight;
  }

  async load() {
    if (document.hidden) return;
    const [worker, events] = await Promise.all([get(`workers/${encodeURIComponent(this.name)}`), get('events?limit=1000')]);
    setPill(this.pill, worker.state);
    put(this.note, worker.note);
    this.note.hidden = !worker.note;
    this.facts.replaceChildren(tableOf(['What', ''], [['Host', hostOf(worker.address)], ['Identity of the host', h('span', {class: 'small'}, worker.host)], ['Kind', `${worker.device_kind} ${worker.device_name}`],
      ['Memory of a device', bytes(worker.memory_bytes)], ['Threads of a device', worker.threads_per_device || '–'],
      ['Cores of the host', worker.host_cores || '–'], ['Data', worker.address],
      ['Metrics', worker.metrics_address ? metricsLink(worker.metrics_address) : '–'],
      ['Last heard', `${seconds(worker.last_seen_s)} ago`]]));
    this.devices.replaceChildren(tableOf(['Device', 'Job', 'State', 'Loss', 'Rank', 'Programs (instructions)'], worker.jobs.map((id, device) => {
      const job = this.store.jobs.get(id);
      const run = worker.runs.find((each) => each.device === device);
      return [device, id ? h('a', {href: `#/jobs/${id}`}, job ? `${id} ${job.name}` : id) : 'free',
        job ? job.state.toLowerCase() : '', job && job.steps_done ? number(job.loss) : '',
        run ? `${run.rank}, stage ${run.stage}` : '', run ? programsOf(run) : ''];
    })));
    const own = events.filter((event) => event.text.split(/[^\w.-]+/).includes(this.name));
    this.events.replaceChildren(...eventItems(own.slice(-50)));
    if (own.length === 0) this.events.append(h('li', {class: 'empty'}, 'None of the last 1,000 events.'));
    await this.loadLog();
    put(this.profile, worker.device_profile || 'Nothing: it was started without a profile.');
  }
}
