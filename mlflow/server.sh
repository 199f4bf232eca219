#!/usr/bin/env bash
# The team's tracking server on one machine, without Docker: MLflow with passwords, PostgreSQL, a folder of artifacts.
#
#   mlflow/server.sh                      start it; Ctrl-C ends it and PostgreSQL
#   mlflow/server.sh COMMAND ...          run a command with the server's settings and its PostgreSQL (pg_dump, mlflow db)
#   mlflow/server.sh --secrets            write the settings with random secrets, and start nothing
#
#   --folder FOLDER   where database and artifacts are (mlflow/store/server)
#   --env FILE        the settings (mlflow/server.env); the first start writes it, with random secrets
#
# What is set in the environment comes before the file, as with docker compose. SERVER_PYTHON is the Python that has mlflow,
# SERVER_USER the user that MLflow runs as where root starts this (mlflow).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$here/store/server
settings=$here/server.env
python=${SERVER_PYTHON:-$here/../.venv/bin/python}
secrets=(MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY PGPASSWORD)
answer_within_s=600 # 13 s where nothing else runs, minutes where everything does

say() { printf '%s\n' "$*" >&2; }

die() {
    say "mlflow/server.sh: $*"
    exit 1
}

# Where root starts the server, PostgreSQL runs as the user of its Debian package, and MLflow as a user without rights.
user=${SERVER_USER:-mlflow}
as_mlflow=()
as_postgres() { "$@"; }
if ((EUID == 0)); then
    as_mlflow=(setpriv --reuid="$user" --regid="$user" --init-groups --)
    as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"; }
fi

# A file with every secret of the example filled in, 48 random hexadecimal digits each.
write_settings() {
    local line
    (
        umask 077
        while IFS= read -r line; do
            if [[ $line =~ ^[A-Z_]+=$ ]]; then
                line+=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
            fi
            printf '%s\n' "$line"
        done <"$here/server.env.example" >"$settings.partial"
    )
    mv "$settings.partial" "$settings"
    say "settings    $settings was written, with random secrets; the password of admin is MLFLOW_AUTH_ADMIN_PASSWORD there"
}

# The file is read, not run: a password is never taken for a command.
read_settings() {
    local line name value number=0
    while IFS= read -r line || [[ -n $line ]]; do
        number=$((number + 1))
        [[ $line =~ ^[[:space:]]*(#|$) ]] && continue
        [[ $line =~ ^([A-Z_][A-Z0-9_]*)=([A-Za-z0-9.,:/*@+_-]*)$ ]] ||
            die "line $number of $settings is not NAME=value of letters, digits and . , : / * @ + _ - (no quotes, no spaces)"
        name=${BASH_REMATCH[1]} value=${BASH_REMATCH[2]}
        if [[ -n $value && -z ${!name:-} ]]; then
            export "$name=$value"
        fi
    done <"$settings"
    [[ -z $(find "$settings" -perm /077) ]] ||
        die "$settings holds passwords, and others may read it: chmod 600 $settings"
}

check_secrets() {
    local name value
    [[ ${MLFLOW_ARTIFACTS_DESTINATION:-} != s3:* ]] || secrets+=(AWS_SECRET_ACCESS_KEY)
    for name in "${secrets[@]}"; do
        value=${!name:-}
        [[ -n $value ]] || die "$name is empty in $settings: fill it in, or move the file away, and one is made with random secrets"
        ((${#value} >= 12)) || die "$name in $settings is shorter than 12 characters: give a longer one"
    done
}

# The programs that made the data, else the newest that are installed.
find_postgres() {
    local found version=
    [[ ! -f $data/PG_VERSION ]] || version=$(<"$data/PG_VERSION")
    # shellcheck disable=SC2086  # the version is the pattern
    found=$(printf '%s\n' /usr/lib/postgresql/${version:-*}/bin | sort -V | tail -n 1)
    if [[ ! -x $found/initdb ]]; then # not Debian's layout: what is on the path
        found=$(dirname "$(readlink -f "$(command -v initdb || echo /nowhere)")")
    fi
    [[ -x $found/initdb ]] || die "PostgreSQL ${version:+$version }is not installed: apt-get install postgresql${version:+-$version}"
    PATH=$found:$PATH
}

# What PostgreSQL owns is below $folder/database, and what MLflow owns is $folder/artifacts. No one else can read either;
# MLflow's user, where there is one, reaches the socket.
make_folders() {
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    data=$folder/database/data
    ((${#folder} <= 75)) ||
        die "the path $folder is longer than the 75 characters that leave room for PostgreSQL's socket: give a shorter one with --folder"
    if ((EUID == 0)); then
        getent passwd postgres >/dev/null || die "there is no user postgres, and as root PostgreSQL does not run: apt-get install postgresql"
        as_postgres test -x "$folder" ||
            die "the user postgres cannot enter $folder: give a folder that it can, with --folder (/srv/mlflow), or do not run this as root"
        getent passwd "$user" >/dev/null ||
            useradd --system --user-group --home-dir /nonexistent --shell /usr/sbin/nologin "$user" ||
            die "there is no user $user, and it cannot be made: name one with SERVER_USER"
        "${as_mlflow[@]}" "$python" -c 'import os, sys; sys.exit(not os.access(sys.executable, os.X_OK))' ||
            die "the user $user cannot run $python: make the environment where that user can, and name it with SERVER_PYTHON"
        install -d -o postgres -g "$user" -m 750 "$folder/database" "$folder/database/socket"
        install -d "$folder/artifacts"
        chown --recursive "$user:$user" "$folder/artifacts" # an earlier version of this script ran MLflow as root
        chmod 700 "$folder/artifacts"
    else
        install -d -m 700 "$folder/database" "$folder/database/socket" "$folder/artifacts"
    fi
    export PGHOST=$folder/database/socket PGUSER=mlflow PGDATABASE=mlflow PGPORT=5432
    umask 077
    called_from=$PWD
    cd "$folder" # PostgreSQL's user may not be allowed into the folder this was called from
}

# A database of its own: made whole or not at all, and open to its password alone, through a socket.
make_database() {
    local password=$folder/database/password
    as_postgres rm -rf "$data.new" "$password"
    as_postgres install -m 600 /dev/null "$password"
    printf '%s' "$PGPASSWORD" >"$password"
    as_postgres initdb --pgdata="$data.new" --username=mlflow --pwfile="$password" --auth=scram-sha-256 \
        --encoding=UTF8 --locale=C >/dev/null || die "initdb failed"
    as_postgres rm "$password"
    as_postgres mv "$data.new" "$data"
    say "database    $data was made"
}

start_postgres() {
    local options="-c listen_addresses= -c unix_socket_directories='$PGHOST' -c max_connections=300" try
    if as_postgres pg_ctl status --pgdata="$data" >/dev/null 2>&1; then
        return 0 # a server that runs, or was killed and left it behind
    fi
    started_postgres=yes
    for try in 1 2 3; do
        # After a kill the new one waits for the last processes of the old to be gone.
        if as_postgres pg_ctl start --wait --pgdata="$data" --log="$folder/database/log" --options="$options" >/dev/null 9>&-; then
            return 0
        fi
        sleep "$try"
    done
    say "$(as_postgres tail -n 5 "$folder/database/log")"
    die "PostgreSQL does not start; its log is $folder/database/log"
}

open_database() {
    [[ -f $data/PG_VERSION ]] || make_database
    start_postgres
    psql --no-psqlrc --quiet --dbname=postgres --command='' || die "PGPASSWORD in $settings is not the password with which $data was made"
    [[ -n $(psql -XAt --dbname=postgres --command="SELECT 1 FROM pg_database WHERE datname = 'mlflow'") ]] ||
        createdb mlflow
}

# One server for one folder. MLflow inherits the lock, so that one whose script was killed still counts.
take_lock() {
    exec 9>"$folder/lock"
    flock --nonblock 9 || die "a server already runs on $folder"
}

# Whatever ends this script, MLflow goes first, and PostgreSQL writes what it has.
end() {
    local status=$?
    trap '' HUP INT TERM
    if [[ -n ${server:-} ]]; then
        kill -TERM "$server" 2>/dev/null || true
        wait "$server" || true
    fi
    if [[ -n ${started_postgres:-} ]]; then
        as_postgres pg_ctl stop --wait --mode=fast --pgdata="$data" >/dev/null 2>&1 || true
    fi
    exit "$status"
}

answers() {
    local to=$MLFLOW_HOST reply
    [[ $to != 0.0.0.0 ]] || to=127.0.0.1
    reply=$(
        exec 2>/dev/null 8<>"/dev/tcp/$to/$MLFLOW_PORT" || exit 0
        printf 'GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n' >&8
        head -n 1 <&8
    ) || true
    [[ $reply == *' 200 '* ]]
}

start_mlflow() {
    local until=$((SECONDS + answer_within_s))
    if answers; then
        die "something already answers on port $MLFLOW_PORT: end it, or set MLFLOW_PORT in $settings"
    fi
    HOME=$folder "${as_mlflow[@]}" "$python" -m mlflow server --app-name basic-auth --serve-artifacts &
    server=$!
    until answers; do
        kill -0 "$server" 2>/dev/null || die "MLflow ended before it answered; the reason is above"
        ((SECONDS < until)) || die "MLflow did not answer within $answer_within_s s"
        sleep 0.2
    done
}

run_server() {
    take_lock
    started_postgres=yes # also one that a killed server left behind is ended with this one
    open_database
    start_mlflow
    say "server      http://$MLFLOW_HOST:$MLFLOW_PORT (user $MLFLOW_AUTH_ADMIN_USERNAME); Ctrl-C ends it"
    say "store       $folder"
    watch
}

# Until MLflow ends. PostgreSQL alone may go, killed for its memory: then it is started again, and clients try again.
watch() {
    while kill -0 "$server" 2>/dev/null; do
        sleep 3 9>&- &
        wait -n "$server" "$!" || true
        if ! as_postgres pg_ctl status --pgdata="$data" >/dev/null 2>&1; then
            say "PostgreSQL has ended; it is started again"
            start_postgres
        fi
    done
    die "MLflow has ended; the reason is above"
}

only_secrets=
while [[ ${1:-} == --* ]]; do
    case $1 in
        --folder) folder=${2:?"--folder needs a folder"} && shift 2 ;;
        --env) settings=${2:?"--env needs a file"} && shift 2 ;;
        --secrets) only_secrets=yes && shift ;;
        --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit ;;
        *) die "there is no option $1; --help says what there is" ;;
    esac
done

if [[ -n $only_secrets && -f $settings ]]; then
    die "$settings is there already, and keeps its secrets"
fi
[[ -f $settings ]] || write_settings
[[ -z $only_secrets ]] || exit 0
settings=$(cd "$(dirname "$settings")" && pwd)/$(basename "$settings")
[[ $python != */* || -x $python ]] || die "$python is not there: make server makes it, or set SERVER_PYTHON"
[[ $python != */* ]] || python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")

read_settings
check_secrets
make_folders
find_postgres
PATH=$(dirname "$python"):$PATH
export PATH
export MLFLOW_HOST=${MLFLOW_HOST:-127.0.0.1} MLFLOW_PORT=${MLFLOW_PORT:-5000} MLFLOW_WORKERS=${MLFLOW_WORKERS:-2}
export MLFLOW_BACKEND_STORE_URI=postgresql+psycopg2:// MLFLOW_AUTH_CONFIG_PATH=$here/basic_auth.ini
export MLFLOW_ARTIFACTS_DESTINATION=${MLFLOW_ARTIFACTS_DESTINATION:-$folder/artifacts}
# Seven more processes that rate answers of language models, and reports to MLflow's makers: a sweep needs neither.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=${MLFLOW_SERVER_ENABLE_JOB_EXECUTION:-false}
export MLFLOW_DISABLE_TELEMETRY=${MLFLOW_DISABLE_TELEMETRY:-true}
unset MLFLOW_TRACKING_URI # of a client; this is the server

trap end EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
if (($#)); then
    open_database
    cd "$called_from"
    "$@"
else
    run_server
fi
