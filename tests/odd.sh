#!/bin/sh
# A part of the tests as no developer starts them: a path with spaces, no HOME, no terminal, a umask that lets no one in,
# SIGINT and SIGHUP ignored. `tests/odd.sh PYTHON [TEST...]`.
set -eu
python=$1
shift
[ $# -gt 0 ] || set -- tests/cli tests/compat/test_det_commands.py tests/e2e/test_walk.py tests/e2e/test_refusals.py \
    tests/e2e/test_postgres.py tests/engines/test_local.py tests/packaging \
    tests/predict/online tests/pytorch/test_stops.py tests/server/test_main.py tests/server/test_package_routes.py \
    tests/storage tests/supervisor tests/templates/test_project.py
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
clone="$folder/a clone"
mkdir "$clone"
git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ -e "$f" ] && printf "%s\0" "$f"; done' - |
    tar --null -T - -c | tar -x -C "$clone"
cd "$clone"
umask 077
trap '' INT HUP
# PYTHONPATH is how the copy is found, and would win over a `stoker` that a package brings: that test is not for here.
PYTHONPATH="$clone/src" env -u HOME -u TERM setsid -w "$python" -m pytest -n 4 --dist worksteal \
    --basetemp "$folder/its tests" "$@" \
    --deselect tests/packaging/test_environment.py::test_installed_hypertune_and_stoker_win_over_the_provided </dev/null
