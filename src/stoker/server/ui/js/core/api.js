// The REST API, the very one that scripts use.

export const API = "/api/v1";

/** What went wrong, in the server's words; `status` 0 means that nobody answered. */
export class ApiError extends Error {
  constructor(message, { status = 0, problems = [] } = {}) {
    super(message);
    this.status = status;
    this.problems = problems;
  }
}

/** GET as JSON. `path` begins with "/jobs…"; `query` leaves out what is null or "". */
export function get(path, { query, signal } = {}) {
  return call("GET", path + asQuery(query), { signal });
}

export const post = (path, body) => call("POST", path, { body });
export const patch = (path, body) => call("PATCH", path, { body });
export const put = (path, body) => call("PUT", path, { body });
export const remove = (path) => call("DELETE", path, {});

/** GET of what has a tag: {data, tag}; null if it is still the one that is known. */
export async function getTagged(path, { tag, signal } = {}) {
  const response = await send("GET", path, { signal, headers: tag ? { "If-None-Match": tag } : {} });
  return response.status === 304 ? null : { data: await response.json(), tag: response.headers.get("ETag") };
}

/** GET of float32 or other bytes. */
export async function getBytes(path, { query, signal } = {}) {
  return (await send("GET", path + asQuery(query), { signal })).arrayBuffer();
}

export const getText = async (path, { query, signal } = {}) =>
  (await send("GET", path + asQuery(query), { signal })).text();

async function call(method, path, options) {
  const response = await send(method, path, options);
  if (response.status === 202 || response.status === 204) return null;
  return response.json();
}

async function send(method, path, { body, signal, headers: given = {} } = {}) {
  const headers = body === undefined ? given : { ...given, "Content-Type": "application/json" };
  let response;
  try {
    response = await fetch(API + path, { method, signal, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. This page goes on by itself when it is back.");
  }
  if (response.ok || response.status === 304) return response;
  if (response.status === 401) location.reload(); // the server now shows the sign-in form at this very address
  const told = await response.json().catch(() => ({}));
  throw new ApiError(told.error || `${response.status} ${response.statusText}`, { status: response.status, problems: told.problems });
}

/** "?a=1&b=2", or "". Lists repeat the name. */
export function asQuery(values) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values || {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") found.append(name, one);
    }
  }
  const text = found.toString();
  return text && `?${text}`;
}

/**
 * Something loaded that keeps its last good data. load() never throws: it calls `show(data, {error, at})`, where
 * `data` is what was last read (or null), `error` why it is not newer (or null), and `at` when it was read.
 * An older answer never overwrites a newer one.
 */
export function resource(read, show) {
  let data = null, at = 0, turn = 0;
  let stop = new AbortController();
  return {
    async load() {
      const mine = ++turn;
      stop.abort();
      stop = new AbortController();
      try {
        const found = await read(stop.signal);
        if (mine !== turn) return;
        data = found;
        at = Date.now();
        show(data, { error: null, at });
      } catch (error) {
        if (error.name === "AbortError" || mine !== turn) return;
        show(data, { error, at });
      }
    },
    close() { turn++; stop.abort(); },
    get data() { return data; },
  };
}
