#!/usr/bin/env bash
# cluster.local.yaml end to end on one machine, as root: ray up, a study, again, ray down.
#
# `ray up` and `ray down` run `ray stop`, which ends every Ray it can see. So all of it runs in
# namespaces of its own: no process outside is seen (pid), no port is shared (net: loopback and an
# sshd on it), and the home folder and /tmp are layers that are thrown away (mount).
set -euo pipefail
cd "$(dirname "$0")/../.."
repository=$PWD

say() { echo "== $*"; }

need() {
  command -v "$1" > /dev/null || [ -x "/usr/sbin/$1" ] || { echo "$1 is missing: $2"; exit 1; }
}

outside() {
  [ "$(id -u)" = 0 ] || { echo "needs root, for namespaces and mounts"; exit 1; }
  need sshd "apt-get install openssh-server"
  need rsync "apt-get install rsync"
  need ip "apt-get install iproute2"
  need unshare "apt-get install util-linux"
  case $repository in /tmp/*) echo "not from a checkout under /tmp, which is hidden"; exit 1 ;; esac
  [ -x .venv/bin/ray ] || { echo "no Ray in .venv: make install"; exit 1; }
  work=$(mktemp -d /var/tmp/ray-up.XXXXXX)
  trap 'rm -rf "$work"' EXIT
  mkdir -p /run/sshd
  unshare --pid --fork --kill-child --mount --mount-proc --net bash "$0" inside "$work"
}

inside() {
  work=$1
  home=$(getent passwd root | cut -d: -f6)
  ip link set lo up
  mkdir "$work"/{above,aside,storage}
  mount -t overlay overlay -o "lowerdir=$home,upperdir=$work/above,workdir=$work/aside" "$home"
  mount -t tmpfs tmpfs /tmp
  export HOME=$home PATH=$repository/.venv/bin:$PATH RAY_AUTH_MODE=token
  unset RAY_ADDRESS RAY_AUTH_TOKEN

  say "sshd on the loopback"
  ssh-keygen -q -t ed25519 -N '' -f "$work/host"
  ssh-keygen -q -t ed25519 -N '' -f "$work/key"
  cp "$work/key.pub" "$work/authorized"
  /usr/sbin/sshd -f /dev/null -E "$work/sshd.log" -o Port=22 -o "HostKey=$work/host" \
    -o "AuthorizedKeysFile=$work/authorized" -o StrictModes=no -o PermitRootLogin=yes \
    -o PidFile=none -o UsePAM=no
  ray get-auth-token --generate > "$work/token"
  python tests/cluster/here.py "$work" > "$work/cluster.yaml"

  say "ray up"
  ray up --yes --no-config-cache "$work/cluster.yaml" > "$work/up.log" 2>&1 || fail up

  say "only the loopback reaches the dashboard, and only the token gets an answer"
  ss -ltn | grep ':8265 ' | grep -v '127.0.0.1:8265' && fail up
  code() { curl -s -o /dev/null -w '%{http_code}' "$@" http://127.0.0.1:8265/api/v0/nodes; }
  [ "$(code)" = 401 ] || fail up
  [ "$(code -H "Authorization: Bearer $(cat ~/.ray/auth_token)")" = 200 ] || fail up

  say "a study, but for latency, which a machine busy with this says nothing about"
  for phase in train evaluate report; do
    study $phase "--phase $phase --wait-for-nodes 1"
  done
  grep 'cluster: 1 node sound' "$work/train.log" || fail train
  [ "$(ls "$work"/storage/trials/*/trial.json | wc -l)" = 6 ] || fail train
  [ "$(ls "$work"/storage/trials/*/scores/*.parquet | wc -l)" = 6 ] || fail evaluate
  grep -q 'nDCG@10' "$work/storage/studies/smoke/RESULTS.md" || fail report

  say "the same again has nothing to do"
  study again "--phase train"
  grep '6 done, 0 to train' "$work/again.log" || fail again

  say "ray down"
  ray down --yes "$work/cluster.yaml" > "$work/down.log" 2>&1 || fail down
  if pgrep -f 'raylet|gcs_server'; then fail down; fi
  say "all well"
}

study() {
  ray exec --no-config-cache "$work/cluster.yaml" "study/study.sh grids/smoke.yaml $2" \
    > "$work/$1.log" 2>&1 || fail "$1"
}

fail() {
  tail -n 60 "$work/$1.log"
  echo "FAILED at $1"
  exit 1
}

if [ "${1-}" = inside ]; then inside "$2"; else outside; fi
