// Which page is open, and what all of them know of the cluster.
import {h, put, mark} from './dom.js';
import {get, Live} from './live.js';
import {Overview} from './overview.js';
import {Job} from './job.js';
import {Worker} from './worker.js';
import {Events, Configuration} from './pages.js';

const kMostEvents = 200;

const store = {jobs: new Map(), workers: new Map(), totals: {}, events: [], role: 'viewer', about: {}};
const main = document.getElementById('main');
const shown = document.getElementById('live');
let view = null;
let drawing = false;

const ui = {
  say(text, bad = false) {
    const toast = document.getElementById('toast');
    mark(toast, 'data-bad', bad);
    put(toast, text);
    mark(toast, 'data-open', true);
    clearTimeout(ui.timer);
    ui.timer = setTimeout(() => mark(toast, 'data-open', false), bad ? 9000 : 4000);
  },
  // True when the answer is yes.
  ask(title, text, yes) {
    const dialog = document.getElementById('ask');
    put(document.getElementById('ask-title'), title);
    put(document.getElementById('ask-text'), text);
    put(document.getElementById('ask-yes'), yes);
    dialog.returnValue = 'no';
    dialog.showModal();
    return new Promise((answer) => {
      dialog.addEventListener('close', () => answer(dialog.returnValue === 'yes'), {once: true});
    });
  },
};

function viewOf(parts) {
  if (parts[0] === 'jobs' && /^\d+$/.test(parts[1] || '')) return new Job(store, Number(parts[1]), parts[2], ui);
  if (parts[0] === 'workers' && parts[1]) return new Worker(store, decodeURIComponent(parts[1]));
  if (parts[0] === 'events') return new Events(store);
  if (parts[0] === 'config') return new Configuration(store);
  return new Overview(store);
}

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (view) view.show();
  });
}

function take(jobs) {
  for (const job of jobs) {
    const before = store.jobs.get(job.id);
    if (before && before.state !== job.state) ui.say(`${job.name || 'job'} (${job.id}) is ${job.state.toLowerCase()}`, job.state === 'FAILED');
    store.jobs.set(job.id, {...before, ...job});
  }
}

// A page that asks for everything while it is asking does so once more, and not again and again.
let loading = null;
let again = false;
async function load() {
  if (loading) {
    again = true;
    return loading;
  }
  loading = (async () => {
    do {
      again = false;
      await loadOnce();
    } while (again);
  })();
  try {
    await loading;
  } finally {
    loading = null;
  }
  return null;
}

async function loadOnce() {
  const now = view;
  try {
    const overview = await get('overview');
    Object.assign(store, {totals: overview.totals, events: overview.events, role: overview.role, tokens: overview.tokens,
      about: {version: overview.version, cluster_id: overview.cluster_id, term: overview.term}});
    store.jobs = new Map(overview.jobs.map((job) => [job.id, {...store.jobs.get(job.id), ...job}]));
    store.workers = new Map(overview.workers.map((tile) => [tile[0], tile]));
    if (now === view) now.show();
    await now.load();
    document.title = `${view.title()} · Meshwright`;
    mark(main, 'data-ready', true);
  } catch (problem) {
    if (now !== view) return;
    if (problem.status === 404) {
      main.replaceChildren(h('p', {class: 'empty'}, problem.message));
      mark(main, 'data-ready', true);
    } else {
      showLive('wait');
    }
  }
}

function showLive(state, why = '') {
  mark(shown, 'data-state', state);
  put(shown, why || (state === 'live' ? 'live' : 'looking for the controller'));
}

const live = new Live((name, data) => {
  if (name === 'hello' || name === 'resync') load();
  if (name === 'jobs') take(data);
  if (name === 'workers') data.forEach((tile) => store.workers.set(tile[0], tile));
  if (name === 'totals') store.totals = data;
  if (name === 'events') {
    store.events = [...store.events, ...data].slice(-kMostEvents);
    if (view.heard) view.heard(data);
  }
  if (name === 'steps' && view.add && view.job() === data.job) view.add(data.steps);
  draw();
}, showLive);

function open() {
  const parts = location.hash.replace(/^#\/?/, '').split('/');
  if (view) view.stop();
  view = viewOf(parts);
  mark(main, 'data-ready', false);
  main.replaceChildren(view.element);
  for (const link of document.querySelectorAll('[data-nav]')) {
    const here = link.dataset.nav === (parts[0] || 'overview');
    if (here) mark(link, 'aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = `${view.title()} · Meshwright`;
  live.open(view.job());
}

addEventListener('hashchange', () => {
  open();
  main.focus({preventScroll: true});
  scrollTo(0, 0);
});
open();
