// One job: how it learns, what it is planned to be, what happened to it, and what can be done with it.
import {h, put, mark, pill, setPill, meter, stat, card, number, count, bytes, seconds, clock, ago, percent, kEnded} from './dom.js';
import {get, getText, order} from './live.js';
import {Chart} from './charts.js';
import {eventItems, shortLayout} from './overview.js';

// As `meshwright why` has them: what it says, and what is in it.
const kParts = [['compute', 'compute'], ['exposed communication', 'communication'], ['bubble, waiting for stages', 'bubble'],
  ['waiting for slower members', 'stragglers'], ['input', 'input'], ['copies from and to the host', 'copies'],
  ['between steps and the rest', 'between', 'rest']];

const kTabs = [['', 'Training'], ['plan', 'Plan'], ['log', 'Events and log'], ['config', 'Configuration']];
const kMostRows = 1400;
const kPoints = 600;
const kRecent = 30;  // rows that "now" means

export class Job {
  constructor(store, id, tab, ui) {
    Object.assign(this, {store, id, tab: tab || '', ui, rows: [], detail: null, plan: null});
    this.makeHead();
    this.body = h('div', {class: 'page'});
    this.element = h('div', {class: 'page'}, this.head, this.body);
    ({'': () => this.makeTraining(), plan: () => this.makePlan(), log: () => this.makeLog(),
      config: () => this.makeConfig()}[this.tab] || (() => this.makeTraining()))();
  }

  stop() {}

  job() {
    return this.id;
  }

  title() {
    const job = this.store.jobs.get(this.id);
    return `${job ? job.name : 'Job'} (${this.id})`;
  }

  makeHead() {
    this.name = h('h1', {}, `Job ${this.id}`);
    this.pill = pill('QUEUED');
    this.why = h('p', {class: 'why wide'});
    const button = (name, what, kind = '') => h('button', {class: kind, onclick: () => this.act(what)}, name);
    this.buttons = {checkpoint: button('Save a checkpoint', 'checkpoint'), pause: button('Pause', 'pause'),
      resume: button('Resume', 'resume', 'primary'), stop: button('Stop', 'stop', 'danger')};
    this.actions = h('div', {class: 'actions', role: 'group', 'aria-label': 'What can be done'}, Object.values(this.buttons));
    this.tabs = h('nav', {class: 'tabs', 'aria-label': 'About this job'}, kTabs.map(([tab, name]) => h('a',
      {href: `#/jobs/${this.id}${tab ? `/${tab}` : ''}`, 'aria-current': tab === this.tab ? 'page' : null}, name)));
    this.head = h('div', {class: 'head'}, h('div', {class: 'row'}, h('div', {class: 'row'}, this.name, this.pill), this.actions),
      this.why, this.tabs);
  }

  // ---- what can be done ----

  async act(what) {
    if (what === 'stop' && !(await this.ui.ask('Stop this job?', `Job ${this.id} ends. What it has learned is saved first where it keeps checkpoints.`, 'Stop it'))) return;
    try {
      await order(this.id, what);
      const said = {checkpoint: 'A checkpoint is being saved.', pause: 'Its state is saved; then it pauses.',
        resume: 'It goes back into the queue.', stop: 'It ends.'};
      this.ui.say(said[what]);
      await this.loadDetail();
    } catch (problem) {
      this.ui.say(problem.message, true);
    }
  }

  show() {
    const job = this.store.jobs.get(this.id) || this.detail;
    if (!job) return;
    put(this.name, job.name || `Job ${this.id}`);
    setPill(this.pill, job.state);
    const trouble = !kEnded.has(job.state) || job.state === 'FAILED';
    put(this.why, trouble && job.message ? `${job.reason ? `${job.reason}: ` : ''}${job.message}` : '');
    this.why.hidden = this.why.textContent === '';
    mark(this.why, 'data-state', job.state);
    const may = this.store.role === 'operator' && !kEnded.has(job.state);
    this.actions.hidden = !may;
    this.buttons.resume.hidden = job.state !== 'PAUSED';
    this.buttons.pause.hidden = job.state === 'PAUSED';
    this.buttons.checkpoint.disabled = job.state !== 'RUNNING';
    if (this.stats) this.showStats(job);
  }

  async load() {
    await this.loadDetail();
    await ({'': () => this.loadCurve(), plan: () => this.loadPlan(), log: () => this.loadLog(),
      config: () => this.loadConfig()}[this.tab] || (() => this.loadCurve()))();
    this.show();
  }

  async loadDetail() {
    this.detail = await get(`jobs/${this.id}`);
    this.store.jobs.set(this.id, {...this.store.jobs.get(this.id), ...this.detail});
    this.show();
  }

  // ---- training ----

  makeTraining() {
    this.stats = {step: stat('Step'), loss: stat('Loss'), speed: stat('Tokens per second'), time: stat('Step time'),
      left: stat('Time left'), saved: stat('Checkpoint'), recoveries: stat('Recoveries')};
    this.meter = meter('Steps done');
    this.stats.step.append(this.meter);
    const steps = {name: 'step', format: (x) => Math.round(x).toLocaleString('en')};
    const loss = {format: (y, exact) => number(y, exact ? 5 : 3)};
    this.charts = {
      loss: new Chart({title: 'Loss', x: steps, y: loss, height: 300}),
      speed: new Chart({title: 'Tokens per second', x: steps, y: {format: (y) => count(y)}, height: 150, fromZero: true}),
      time: new Chart({title: 'Step time', x: steps, y: {format: (y) => seconds(y)}, height: 150, fromZero: true, calm: true}),
      norm: new Chart({title: 'Gradient norm', x: steps, y: loss, height: 150, calm: true}),
      rate: new Chart({title: 'Learning rate', x: steps, y: {format: (y) => number(y, 3)}, height: 150, fromZero: true}),
    };
    this.memory = h('div', {class: 'memory'});
    this.body.append(h('dl', {class: 'stats'}, Object.values(this.stats)),
      h('section', {class: 'card'}, this.charts.loss.element),
      h('div', {class: 'quads'}, ['speed', 'time', 'norm', 'rate'].map((name) => h('section', {class: 'card'}, this.charts[name].element))),
      card('Memory by kind, as planned', this.memory));
  }

  async loadCurve() {
    const curve = await get(`jobs/${this.id}/steps?points=${kPoints}`);
    this.rows = curve.rows.map((row) => Object.fromEntries(curve.columns.map((name, i) => [name, row[i]])));
    this.last = curve.last_step;
    this.drawCurve();
    // A job that has not begun has none, and a browser complains of what is not there.
    if (!this.plan && this.detail && this.detail.started_unix_ms) {
      this.plan = await get(`jobs/${this.id}/plan`).catch(() => null);
    }
    this.memory.replaceChildren(...memoryOf(this.plan));
  }

  // Of the stream.
  add(steps) {
    if (this.tab !== '') return;
    for (const step of steps) {
      if (step.step <= this.last) continue;
      this.last = step.step;
      this.rows.push({...step, steps: 1, least_loss: step.loss, most_loss: step.loss});
    }
    if (this.rows.length > kMostRows) this.loadCurve().catch(() => {});
    this.drawSoon();
  }

  drawSoon() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.drawCurve();
      this.show();
    });
  }

  drawCurve() {
    const {rows} = this;
    const xs = rows.map((row) => row.step + 1);
    const column = (name) => rows.map((row) => row[name]);
    const band = rows.some((row) => row.steps > 1) ? {least: column('least_loss'), most: column('most_loss')} : null;
    const lines = [{name: 'loss', values: column('loss')}];
    if (rows.some((row) => row.validation_loss !== null)) lines.push({name: 'validation', values: column('validation_loss'), kind: 'dots'});
    const job = this.store.jobs.get(this.id) || this.detail;
    const of = {spans: column('steps'), nothing: job && kEnded.has(job.state) ? 'no steps' : 'nothing yet'};
    this.charts.loss.set(xs, lines, {...of, band});
    this.charts.speed.set(xs, [{name: 'tokens/s', values: rows.map((row) => row.seconds > 0 ? row.tokens / row.seconds : null)}], of);
    this.charts.time.set(xs, [{name: 'step', values: rows.map((row) => row.seconds > 0 ? row.seconds / row.steps : null)}], of);
    this.charts.norm.set(xs, [{name: 'norm', values: column('grad_norm')}], of);
    this.charts.rate.set(xs, [{name: 'rate', values: column('lr')}], of);
  }

  recent() {
    const rows = this.rows.slice(-kRecent);
    const sum = (name) => rows.reduce((all, row) => all + (row[name] || 0), 0);
    const time = sum('seconds');
    const of = rows.length > 0 ? stepsText(rows[0].step - rows[0].steps + 2, rows[rows.length - 1].step + 1) : '';
    return {step: time > 0 ? time / sum('steps') : NaN, speed: time > 0 ? sum('tokens') / time : NaN, of};
  }

  showStats(job) {
    const {step, speed} = this.recent();
    this.stats.step.set(job.steps_done.toLocaleString('en'), job.steps ? `of ${job.steps.toLocaleString('en')}` : '');
    this.meter.set(percent(job.steps_done, job.steps));
    const validated = [...this.rows].reverse().find((row) => row.validation_loss !== null && row.validation_loss !== undefined);
    this.stats.loss.set(job.steps_done ? number(job.loss) : '–', validated ? `validation ${number(validated.validation_loss)}` : '');
    this.stats.speed.set(count(speed), shortLayout(job.layout));
    const planned = this.plan && this.plan.forecast ? this.plan.forecast.step_s : NaN;
    this.stats.time.set(seconds(step), Number.isFinite(planned) ? `planned ${seconds(planned)}` : '');
    const left = (job.steps - job.steps_done) * step;
    const took = job.started_unix_ms ? ((job.ended_unix_ms || Date.now()) - job.started_unix_ms) / 1000 : NaN;
    const since = kEnded.has(job.state) ? `took ${seconds(took)}` : `began ${seconds(took)} ago`;
    this.stats.left.set(job.state === 'RUNNING' ? seconds(left) : '–', Number.isFinite(took) ? since : '');
    const kept = job.checkpoint_step !== null && job.checkpoint_step !== undefined;
    this.stats.saved.set(kept ? `step ${job.checkpoint_step.toLocaleString('en')}` : 'none', job.checkpoint_folder || '');
    const detail = this.detail || {};
    this.stats.recoveries.set(detail.recoveries ?? '–', 'in the last 24 hours');
  }

  // ---- plan ----

  makePlan() {
    this.figures = h('dl', {class: 'stats'});
    this.picture = h('div', {class: 'picture', tabindex: 0, role: 'region', 'aria-label': 'Stages and devices over time, as forecast'});
    this.measured = h('div', {class: 'picture', tabindex: 0, role: 'region', 'aria-label': 'Stages and devices over time, as measured'});
    this.parts = h('div', {class: 'scroll'});
    this.stages = h('div', {class: 'scroll'});
    this.shardings = h('div', {class: 'scroll tall'});
    this.notes = h('ul', {class: 'notes'});
    this.find = h('input', {type: 'search', placeholder: 'weight', 'aria-label': 'Weights to show', oninput: () => this.showShardings()});
    this.body.append(this.figures, h('section', {class: 'card'}, h('div', {class: 'row'}, h('h2', {}, 'Stages and devices over time, as forecast'),
      h('a', {class: 'more', href: `/api/v1/jobs/${this.id}/plan.svg`}, 'picture alone')), this.picture),
      this.happened = h('section', {class: 'card'}, h('div', {class: 'row'}, h('h2', {}, 'The same as measured'),
        h('a', {class: 'more', href: `/api/v1/jobs/${this.id}/timeline`, download: `job-${this.id}-timeline.json`}, 'trace for Perfetto')), this.recorded = h('p', {class: 'hint'}), this.measured, this.parts),
      h('div', {class: 'halves'}, card('Stages', this.stages), card('Why', this.notes,
        h('p', {class: 'hint'}, 'What every other choice would have cost: ', h('code', {}, 'meshwright plan explain JOB.toml WEIGHT')))),
      h('section', {class: 'card'}, h('div', {class: 'row'}, h('h2', {}, 'How weights are split'), this.find), this.shardings));
  }

  async loadPlan() {
    try {
      this.plan = await get(`jobs/${this.id}/plan`);
    } catch (problem) {
      this.picture.replaceChildren(h('p', {class: 'empty'}, problem.status === 404 ? 'It has not been planned yet.' : problem.message));
      return;
    }
    const curve = await get(`jobs/${this.id}/steps?points=${kPoints}`).catch(() => null);
    this.rows = curve ? curve.rows.map((row) => Object.fromEntries(curve.columns.map((name, i) => [name, row[i]]))) : [];
    this.showFigures();
    const {stages, memory} = this.plan;
    const howMany = `${stages.length} ${stages.length === 1 ? 'stage' : 'stages'}`;
    this.picture.replaceChildren(pictureOf(`/api/v1/jobs/${this.id}/plan.svg`, `Plan of job ${this.id}: ${this.plan.layout.text}; ${howMany}; the tables below say the same.`));
    this.showMeasured(await get(`jobs/${this.id}/parts`).catch(() => null));
    this.stages.replaceChildren(tableOf(['Stage', 'Layers', 'Devices', 'Mesh', 'Fullest device'], stages.map((stage) => {
      const own = memory.filter((device) => device.stage === stage.stage);
      const most = Math.max(0, ...own.map((device) => device.allocated_bytes));
      const budget = own.length ? own[0].budget_bytes : 0;
      return [stage.stage, stage.layers.map(([first, last]) => `${first}–${last}`).join(', '), stage.devices,
        Object.entries(stage.mesh).map(([axis, size]) => `${axis} ${size}`).join(' × ') || '1',
        `${bytes(most)}${budget ? ` of ${bytes(budget)}` : ''}`];
    })));
    this.notes.replaceChildren(...(this.plan.notes.length ? this.plan.notes : ['The plan is as it was asked for: nothing fell back.']).map((note) => h('li', {}, note)));
    this.showShardings();
  }

  // Parts of a step on the mean device, beside the forecast.
  showMeasured(parts) {
    if (!parts) {
      this.measured.replaceChildren(h('p', {class: 'empty'}, 'No step has been recorded yet: the second to the fourth step of a run are.'));
      return;
    }
    const last = parts.first_step + parts.steps - 1;
    const table = parts.steps === 1 ? 'So is the table' : `The table has the ${stepsText(parts.first_step, last)}`;
    put(this.recorded, `The picture is of step ${last.toLocaleString('en')}, which was recorded. ${table}. What is measured above is of the newest steps.`);
    const total = (of) => Object.values(of).reduce((sum, value) => sum + value, 0);
    this.measured.replaceChildren(pictureOf(`/api/v1/jobs/${this.id}/measured.svg?of=${parts.first_step}`, `Step ${last} of job ${this.id} as measured; the table below has the mean: ${seconds(total(parts.measured))}, forecast ${seconds(total(parts.forecast))}.`));
    const of = (figures, names) => names.reduce((sum, name) => sum + (figures[`${name}_s`] || 0), 0);
    const rows = kParts.map(([title, ...names]) => [title, of(parts.measured, names), of(parts.forecast, names)]).filter(([, now, then]) => now > 0 || then > 0);
    this.parts.replaceChildren(tableOf(['Part of a step', `Measured, ${stepsText(parts.first_step, last)}`, 'Forecast'],
      [...rows, ['all', total(parts.measured), total(parts.forecast)]].map(([title, now, then]) => [title, seconds(now), seconds(then)])));
  }

  showFigures() {
    const {forecast, layout, memory} = this.plan;
    const {step, speed, of} = this.recent();
    const figures = [['Step, forecast', seconds(forecast.step_s), ''],
      ['Step, measured', seconds(step), Number.isFinite(step) && forecast.step_s ? `${number(step / forecast.step_s, 3)} × the forecast; ${of}` : ''],
      ['Tokens/s, forecast', count(forecast.tokens_per_s), ''], ['Tokens/s, measured', count(speed), of],
      ['Waiting', forecast.waiting_of_time === null ? '–' : `${number(100 * forecast.waiting_of_time, 3)} %`, 'of the devices’ time'],
      ['Fullest device', bytes(Math.max(...memory.map((device) => device.allocated_bytes))), shortLayout(layout.text)]];
    this.figures.replaceChildren(...figures.map(([name, value, note]) => {
      const figure = stat(name);
      figure.set(value, note);
      return figure;
    }));
  }

  showShardings() {
    if (!this.plan) return;
    const wanted = this.find.value.trim().toLowerCase();
    const rows = foldLayers(this.plan.params).filter((row) => row.name.toLowerCase().includes(wanted));
    this.shardings.replaceChildren(tableOf(['Weight', 'Sharding', 'Stages'], rows.map((row) => [row.name, row.sharding, row.stages])));
  }

  // ---- events and log ----

  makeLog() {
    this.events = h('ol', {class: 'events'});
    this.lines = h('pre', {class: 'log', tabindex: 0, role: 'region', 'aria-label': 'Log of the job'});
    this.body.append(card('Events', this.events), card('Log', this.lines));
  }

  async loadLog() {
    const [events, log] = await Promise.all([get(`jobs/${this.id}/events?limit=100`), get(`jobs/${this.id}/log`)]);
    this.events.replaceChildren(...eventItems(events));
    const atEnd = this.lines.scrollTop + this.lines.clientHeight >= this.lines.scrollHeight - 4;
    put(this.lines, log.lines.slice(-1000).join('\n') || 'It has said nothing yet.');
    if (atEnd) this.lines.scrollTop = this.lines.scrollHeight;
  }

  heard() {
    if (this.tab === 'log') this.loadLog().catch(() => {});
  }

  // ---- configuration ----

  makeConfig() {
    this.text = h('pre', {class: 'log', tabindex: 0, role: 'region', 'aria-label': 'Configuration of the job'});
    this.places = h('div', {class: 'scroll'});
    this.body.append(card('Where it is', this.places), card('Configuration, as resolved', this.text));
  }

  async loadConfig() {
    const job = this.detail;
    this.places.replaceChildren(tableOf(['What', ''], [['Folder on the controller', job.directory], ['Layout', job.layout || '–'],
      ['Devices', (job.devices || []).map(([worker, device]) => `${worker}:${device}`).join(' ') || '–'],
      ['Submitted', `${clock(job.submitted_unix_ms)} (${ago(job.submitted_unix_ms)})`],
      ['Started', clock(job.started_unix_ms)], ['Ended', clock(job.ended_unix_ms)], ['Runs', job.runs]]));
    put(this.text, await getText(`jobs/${this.id}/config`).catch(() => '') || 'It was submitted by a program, without a file.');
  }
}

export function tableOf(heads, rows) {
  return h('table', {}, h('thead', {}, h('tr', {}, heads.map((head) => h('th', {scope: 'col'}, head)))),
    h('tbody', {}, rows.map((row) => h('tr', {}, row.map((cell) => h('td', {}, cell instanceof Node ? cell : String(cell)))))));
}

// Layers that are split alike are one row: "h.{0-11}.attn.weight".
function foldLayers(params) {
  const rows = new Map();
  for (const param of params) {
    const found = param.name.match(/^(.*?\.)(\d+)(\..*)$/);
    const key = found ? `${found[1]}*${found[3]} ${param.sharding}` : param.name;
    const row = rows.get(key) || {found, sharding: param.sharding, numbers: [], name: param.name, stages: new Set()};
    if (found) row.numbers.push(Number(found[2]));
    param.stages.forEach((stage) => row.stages.add(stage));
    rows.set(key, row);
  }
  return [...rows.values()].map((row) => ({
    name: row.numbers.length > 1 ? `${row.found[1]}{${ranges(row.numbers)}}${row.found[3]}` : row.name,
    sharding: row.sharding, stages: ranges([...row.stages].sort((a, b) => a - b))}));
}

function ranges(numbers) {
  const parts = [];
  for (const value of numbers) {
    const last = parts[parts.length - 1];
    if (last && value === last[1] + 1) last[1] = value;
    else parts.push([value, value]);
  }
  return parts.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(',');
}

// "step 7", or what a mean is of: "mean of steps 2 to 4".
function stepsText(first, last) {
  const text = (step) => step.toLocaleString('en');
  return first === last ? `step ${text(last)}` : `mean of steps ${text(first)} to ${text(last)}`;
}

// It fits where it is shown, and opens alone, where it can be enlarged.
function pictureOf(src, alt) {
  return h('a', {href: src, 'aria-label': `${alt} Opens alone.`}, h('img', {src, alt}));
}

const kMostDevices = 16;

// What a device has in each memory.
function memoriesOf(device) {
  const far = (name, kinds, total) => (total > 0 ? [{name: `${name} of device ${device.device}`, kinds, total}] : []);
  return [{name: `device ${device.device}`, kinds: device.kinds_bytes, total: device.allocated_bytes, budget: device.budget_bytes},
    ...far('host', device.host_kinds_bytes, device.host_bytes), ...far('disk', device.disk_kinds_bytes, device.disk_bytes)];
}

// A bar for each memory of each device, or of the fullest ones.
function memoryOf(plan) {
  if (!plan || !plan.memory || plan.memory.length === 0) return [h('p', {class: 'empty'}, 'It has not been planned yet.')];
  const devices = [...plan.memory].sort((a, b) => b.allocated_bytes - a.allocated_bytes).slice(0, kMostDevices)
    .sort((a, b) => a.device - b.device);
  const memories = devices.flatMap(memoriesOf);
  const whole = Math.max(...memories.map((memory) => Math.max(memory.total, memory.budget || 0)));
  const most = Math.max(...memories.map((memory) => memory.total));
  // A budget far above all need would leave nothing to see.
  const scale = whole > 4 * most ? most : whole;
  const kinds = Object.keys(devices[0].kinds_bytes).filter((kind) => memories.some((memory) => memory.kinds[kind] > 0));
  const legend = h('p', {class: 'legend'}, kinds.map((kind, i) => [h('i', {class: `k${i}`}), `${kind.replace(/_/g, ' ')} `]));
  const bars = memories.map((memory) => {
    const said = kinds.map((kind) => `${kind} ${bytes(memory.kinds[kind] || 0)}`).join(', ');
    const bar = h('span', {class: 'stack', role: 'img', 'aria-label': said, title: said});
    kinds.forEach((kind, i) => {
      const part = h('span', {class: `k${i}`});
      part.style.width = `${percent(memory.kinds[kind] || 0, scale)}%`;
      bar.append(part);
    });
    const budget = memory.budget ? ` of ${bytes(memory.budget)}` : '';
    return h('li', {}, h('span', {class: 'small'}, memory.name), bar, h('span', {class: 'small num'}, `${bytes(memory.total)}${budget}`));
  });
  const left = plan.memory.length - devices.length;
  return [legend, h('ul', {class: 'bars'}, bars), left > 0 ? h('p', {class: 'hint'}, `${left} ${left === 1 ? 'device that needs' : 'devices that need'} less left out.`) : ''];
}
