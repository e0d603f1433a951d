// Values that tell when they change.

/** signal(1): .value reads, .set(v) writes, .watch(fn) calls fn now and after each change; it returns the way to stop. */
export function signal(initial) {
  const watchers = new Set();
  return {
    value: initial,
    set(value) {
      if (Object.is(value, this.value)) return;
      this.value = value;
      for (const watcher of [...watchers]) watcher(value);
    },
    watch(watcher) {
      watchers.add(watcher);
      watcher(this.value);
      return () => watchers.delete(watcher);
    },
  };
}
