#!/usr/bin/env bash
# Install what tests need beside Python: PostgreSQL for the team's server, Chromium with its driver to look at pages, and
# a C++ compiler for the stand-in for HPUs. Does nothing where all of it is there; what is missing it installs from
# Debian's packages, as root.
set -euo pipefail

missing=()
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null || missing+=(postgresql)
[[ -x /usr/bin/chromium ]] || missing+=(chromium fonts-dejavu-core)
[[ -x /usr/bin/chromedriver ]] || missing+=(chromium-driver)
command -v "${CXX:-c++}" >/dev/null || missing+=(g++)
((${#missing[@]})) || exit 0

cannot() {
    echo "$0: the tests need ${missing[*]}, and $1." >&2
    echo "Install them yourself, or run the tests that do without them: make check" >&2
    exit 1
}
as_root=()
((EUID == 0)) || as_root=(sudo)
for needed in apt-get "${as_root[@]}"; do
    command -v "$needed" >/dev/null || cannot "there is no $needed here to install them with"
done
echo "installing for the tests: ${missing[*]}"
"${as_root[@]}" apt-get update --quiet --quiet
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --quiet --quiet --no-install-recommends "${missing[@]}" || cannot "apt-get failed"
