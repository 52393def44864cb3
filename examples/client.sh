#!/bin/sh
# Durable calls, signals and a lock with curl.
#
#     holdoff serve &
#     sh examples/client.sh [http://127.0.0.1:7070]
#
# HOLDOFF_API_TOKEN is sent if it is set. curl repeats what the daemon asks to be repeated, when it asks for it.
set -eu

base=${1:-http://127.0.0.1:7070}
base=${base%/}
key="curl $$ $(date +%s)"

ask() {
  path=$1
  shift
  curl --silent --show-error --fail-with-body --retry 6 --retry-connrefused --max-time 60 \
    ${HOLDOFF_API_TOKEN:+--header "Authorization: Bearer $HOLDOFF_API_TOKEN"} "$@" "$base$path"
}

# One value of an answer in JSON.
value() {
  sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"
}

# The daemon calls itself here; in earnest this is your service.
call="{\"operation\": \"example.call\", \"dedup\": \"$key\", \"http\": {\"method\": \"GET\", \"url\": \"$base/healthz\"}}"
task=$(ask /v1/tasks --json "$call" | value id)
again=$(ask /v1/tasks --json "$call" | value id)
[ "$task" = "$again" ] && echo "sent twice under one key: one task"

until state=$(ask "/v1/tasks/$task" | sed 's/"steps".*//' | value state) && [ "$state" != running ]; do
  sleep 0.1
done
echo "task $state"

alarm="{\"fingerprint\": \"$key\", \"task\": {\"operation\": \"example.alarm\", \"payload\": {\"disk\": \"full\"}}}"
ask /v1/signals --json "$alarm" > /dev/null
echo "signals: $(ask /v1/signals --json "$alarm" | value occurrences) of one task"

held=$(ask /v1/locks/acquire --json "{\"key\": \"$key\", \"lease\": \"30s\", \"wait\": \"20s\"}")
proof="{\"key\": \"$key\", \"token\": $(echo "$held" | value token), \"lock\": \"$(echo "$held" | value lock)\"}"
ask /v1/locks/renew --json "$proof" > /dev/null
ask /v1/locks/release --json "$proof" > /dev/null
echo "lock: held, renewed and let go"
