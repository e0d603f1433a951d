#!/bin/sh
# PostgreSQL and Chromium for the tests: installed where they are missing and we may, else one line says what is skipped.
missing=""
[ -n "$(command -v initdb || ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null)" ] || missing="postgresql"
command -v chromium >/dev/null || missing="$missing chromium fonts-dejavu-core"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 - one word for each package
    timeout 600 sh -c 'apt-get -q update && apt-get -q -y install --no-install-recommends "$@"' - $missing && exit 0
fi
echo "Not installed, and the tests that need them are skipped: $missing (Debian: apt-get install $missing)." >&2
exit 0
