// What the controller says: answers of /api/v1, and the stream of what happens.

export async function get(path) {
  const answer = await fetch(`/api/v1/${path}`, {headers: {Accept: 'application/json'}});
  return read(answer);
}

export async function getText(path) {
  const answer = await fetch(`/api/v1/${path}`);
  if (!answer.ok) return read(answer);
  return answer.text();
}

export async function order(job, what) {
  return read(await fetch(`/api/v1/jobs/${job}/${what}`, {method: 'POST'}));
}

async function read(answer) {
  if (answer.status === 401) location.assign('/');
  const body = await answer.json().catch(() => ({}));
  if (answer.ok) return body;
  const problem = new Error(body.error || `the controller answered ${answer.status}`);
  problem.status = answer.status;
  throw problem;
}

const kNames = ['hello', 'resync', 'jobs', 'workers', 'totals', 'events', 'steps'];
const kAskAgainMs = 5000;

// One stream at a time, for a page that is open. Where there is no room for one more viewer, or no
// controller, the page asks for everything again every few seconds.
export class Live {
  // told(name, data): 'hello' and 'resync' mean: ask for everything anew. shown(state, why): 'live', 'wait' for the
  // controller, 'full': there is no room for this page, which asks every few seconds.
  constructor(told, shown) {
    this.told = told;
    this.shown = shown;
    this.source = null;
    this.timer = 0;
    document.addEventListener('visibilitychange', () => this.look());
  }

  // job: whose steps are wanted; 0: none.
  open(job) {
    const same = job === this.job && this.source && this.source.readyState !== EventSource.CLOSED;
    if (same) {
      this.told('hello', {});
      return;
    }
    this.job = job;
    this.close();
    const source = new EventSource(`/api/v1/stream?job=${job}`);
    this.source = source;
    for (const name of kNames) {
      source.addEventListener(name, (event) => {
        this.shown('live');
        this.told(name, JSON.parse(event.data));
      });
    }
    source.onerror = () => {
      if (source !== this.source) return;
      if (source.readyState !== EventSource.CLOSED) {
        this.shown('wait');
        return;
      }
      this.source = null;
      this.told('resync', {});
      this.timer = setTimeout(() => this.open(this.job), kAskAgainMs);
      this.sayWhy(job);
    };
  }

  // A stream that is refused says no more than that: the reason is asked for.
  async sayWhy(job) {
    const answer = await fetch(`/api/v1/stream?job=${job}`).catch(() => null);
    if (answer && answer.ok) {
      answer.body.cancel();
      return;
    }
    const {error} = answer ? await answer.json().catch(() => ({})) : {};
    if (!this.source) this.shown(error ? 'full' : 'wait', error);
  }

  close() {
    clearTimeout(this.timer);
    if (this.source) this.source.close();
    this.source = null;
  }

  // A page that nobody sees asks for nothing.
  look() {
    if (document.hidden) this.close();
    else if (!this.source) this.open(this.job || 0);
  }
}
