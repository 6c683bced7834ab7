#!/usr/bin/env bash
# The command on the head of a cluster: joins its Ray, keeps results where all nodes see them.
#   ray exec cluster.yaml 'study/study.sh grids/full.yaml'
set -euo pipefail
. ~/.study
cd ~/study
exec python -m ray_ablation.run --address auto --storage "$STUDY_STORAGE" "$@"
