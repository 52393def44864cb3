#!/bin/sh
# Durable calls, signals and a lock with curl.
#
#     holdoff serve &
#     sh examples/client.sh [http://127.0.0.1:7070]
#
# The script sends HOLDOFF_API_TOKEN if it is set. curl retries transient errors, not before Retry-After.
set -eu

base=${1:-http://127.0.0.1:7070}
base=${base%/}
key="curl $$ $(date +%s)"

call_api() {
  path=$1
  shift
  curl --silent --show-error --fail-with-body --retry 6 --retry-connrefused --max-time 60 \
    ${HOLDOFF_API_TOKEN:+--header "Authorization: Bearer $HOLDOFF_API_TOKEN"} "$@" "$base$path"
}

# Prints one value of a JSON response.
value() {
  sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"
}

# The daemon calls itself here; use the URL of your service.
call="{\"operation\": \"example.call\", \"dedup\": \"$key\", \"http\": {\"method\": \"GET\", \"url\": \"$base/healthz\"}}"
task=$(call_api /v1/tasks --json "$call" | value id)
again=$(call_api /v1/tasks --json "$call" | value id)
[ "$task" = "$again" ] && echo "sent twice under one key: one task"

until state=$(call_api "/v1/tasks/$task" | sed 's/"steps".*//' | value state) && [ "$state" != running ]; do
  sleep 0.1
done
echo "task $state"

alarm="{\"fingerprint\": \"$key\", \"task\": {\"operation\": \"example.alarm\", \"payload\": {\"disk\": \"full\"}}}"
call_api /v1/signals --json "$alarm" > /dev/null
echo "signals: $(call_api /v1/signals --json "$alarm" | value occurrences) of one task"

held=$(call_api /v1/locks/acquire --json "{\"key\": \"$key\", \"lease\": \"30s\", \"wait\": \"20s\"}")
proof="{\"key\": \"$key\", \"token\": \"$(echo "$held" | value token)\", \"lock\": \"$(echo "$held" | value lock)\"}"
call_api /v1/locks/renew --json "$proof" > /dev/null
call_api /v1/locks/release --json "$proof" > /dev/null
echo "lock: acquired, renewed and released"
