// Runs before the first paint, so that a dark page never flashes white. A classic script: modules come too late.
(function () {
  try {
    var chosen = localStorage.getItem("stoker.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch (_) { /* no storage: the system's choice */ }
})();
