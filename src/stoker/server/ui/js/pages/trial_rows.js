// Trials of a search as rows: from the columns that the server sends, and from its news. Pure.

/** Answers of GET /jobs/{job}/trials/columns as rows: {number, state, …, hparams: {}, metrics: {}}. */
export function rowsOf(found) {
  const { columns } = found;
  const hparams = Object.entries(found.hparams ?? {});
  const metrics = Object.entries(found.metrics ?? {});
  const names = Object.keys(columns);
  return columns.number.map((_, at) => {
    const row = { hparams: {}, metrics: {} };
    for (const name of names) row[name] = columns[name][at];
    for (const [name, values] of hparams) if (values[at] !== null) row.hparams[name] = values[at];
    for (const [name, values] of metrics) if (values[at] !== null) row.metrics[name] = values[at];
    return row;
  });
}

/** The value that a condition or a column is about: the objective, a hyperparameter, or a column. */
export function valueOf(row, name, metric = null) {
  if (name === "objective" || (name === metric && !(name in row.hparams))) return row.objective;
  if (name in row.hparams) return row.hparams[name];
  if (name in row.metrics) return row.metrics[name];
  return row[name] ?? null;
}

/** Names of hyperparameters that are not the same in all rows, in the order of the search's space. */
export function varying(rows) {
  const seen = new Map();
  for (const row of rows) {
    for (const name of Object.keys(row.hparams)) {
      const known = seen.get(name);
      if (known?.varies) continue;
      const value = row.hparams[name];
      const key = typeof value === "object" ? JSON.stringify(value) : value;
      if (!known) seen.set(name, { first: key, varies: false });
      else if (known.first !== key) known.varies = true;
    }
  }
  const names = [...seen].filter(([, one]) => one.varies).map(([name]) => name);
  return names.length ? names : [...seen.keys()];
}

/** "log", "linear" or "category", as the search's space says, else as the values look. */
export function scaleOf(name, space, rows) {
  const parameter = name.split(".").reduce((inner, part) => inner?.[part], space ?? {});
  if (parameter?.type === "categorical") return "category";
  if (parameter?.scale === "log") return "log";
  return rows.every((row) => row.hparams[name] === undefined || typeof row.hparams[name] === "number") ? "linear" : "category";
}

/** Best first; those without a value last. */
export function byObjective(rows, maximize) {
  const sign = maximize ? -1 : 1;
  return [...rows].sort((a, b) => (a.objective === null) - (b.objective === null) || sign * (a.objective - b.objective));
}
