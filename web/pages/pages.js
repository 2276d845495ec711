// The smaller pages: all events, and how the controller was started.
import {h, card, put} from './dom.js';
import {get} from './live.js';
import {eventItems} from './overview.js';
import {tableOf} from './job.js';

const kNewest = 1000;
const kMost = 10000;
const kRows = 300;

export class Events {
  constructor(store) {
    this.store = store;
    this.list = h('ol', {class: 'events'});
    this.find = h('input', {type: 'search', placeholder: 'text or job', 'aria-label': 'Events to show', oninput: () => {
      this.rows = kRows;
      this.fill();
    }});
    this.said = h('span', {class: 'small'});
    this.more = h('button', {hidden: true, onclick: () => {
      this.rows += kRows;
      this.fill();
    }}, 'Show more');
    this.older = h('button', {hidden: true, onclick: () => this.lookBack()}, 'Look further back');
    this.all = [];
    this.most = kNewest;
    this.rows = kRows;
    this.element = h('div', {class: 'page'}, h('section', {class: 'card'},
      h('div', {class: 'row'}, h('h1', {}, 'Events'), this.find), this.list,
      h('div', {class: 'row'}, this.said, h('div', {class: 'row end'}, this.more, this.older))));
  }

  stop() {}

  job() {
    return 0;
  }

  title() {
    return 'Events';
  }

  show() {}

  async load() {
    this.all = await get(`events?limit=${this.most}`);
    this.fill();
  }

  async lookBack() {
    this.most = kMost;
    await this.load();
  }

  heard(events) {
    this.all = [...this.all, ...events].slice(-this.most);
    this.fill();
  }

  fill() {
    const wanted = this.find.value.trim().toLowerCase();
    const found = this.all.filter((event) => `${event.job} ${event.text}`.toLowerCase().includes(wanted));
    const shown = found.slice(-this.rows);
    this.list.replaceChildren(...eventItems(shown));
    put(this.said, `${shown.length.toLocaleString('en')} of ${found.length.toLocaleString('en')}${wanted ? ' found' : ''} in the newest ${this.all.length.toLocaleString('en')}`);
    this.more.hidden = shown.length === found.length;
    this.older.hidden = this.most === kMost || this.all.length < kNewest;
  }
}

export class Configuration {
  constructor(store) {
    this.store = store;
    this.table = h('div', {class: 'scroll'});
    this.about = h('div', {class: 'scroll'});
    this.leave = h('form', {method: 'post', action: '/logout', hidden: true}, h('button', {}, 'Log out'));
    this.element = h('div', {class: 'page'}, h('h1', {class: 'hidden'}, 'Configuration'),
      h('div', {class: 'halves'}, card('This controller', this.about, this.leave), card('How it was started', this.table)),
      card('For programs', h('p', {}, h('a', {href: '/openapi.json'}, '/openapi.json'), ' describes the answers of /api/v1 that this page is made of. ',
        h('a', {href: '/metrics'}, '/metrics'), ' is for Prometheus.')));
  }

  stop() {}

  job() {
    return 0;
  }

  title() {
    return 'Configuration';
  }

  show() {
    const {about, role} = this.store;
    this.about.replaceChildren(tableOf(['What', ''], [['Version', about.version], ['Cluster', about.cluster_id], ['Term', about.term], ['You are', role]]));
  }

  async load() {
    const settings = await get('config');
    this.leave.hidden = !this.store.tokens;
    this.table.replaceChildren(tableOf(['Option', 'Value'], Object.entries(settings).map(([name, value]) => [name.replace(/_/g, '-'), value || '–'])));
    this.show();
  }
}
