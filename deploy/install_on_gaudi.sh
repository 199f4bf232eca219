#!/usr/bin/env bash
# Make an environment on top of the packages of Intel's Gaudi container, and see that torch and habana stay the image's.
#
#   deploy/install_on_gaudi.sh PYTHON ENVIRONMENT PIP-INSTALL-ARGUMENTS...
#   deploy/install_on_gaudi.sh python3 .venv --editable .
#
# All other packages get the versions of constraints.txt, the tested ones, unless torch or habana rule one out. The
# Makefile and the Dockerfile both install through this file. pip's own settings (PIP_INDEX_URL, ...) hold.
set -euo pipefail
python=$1 environment=$2
shift 2
deploy=$(dirname "${BASH_SOURCE[0]}")
packages=$deploy/image_packages.py

# The environment takes its pip from the image: Intel's image on Ubuntu 24.04 has no python3-venv to make one from.
"$python" -m venv --system-site-packages --without-pip "$environment"
"$python" "$packages" record "$environment/image.txt"
"$environment/bin/python" "$packages" constrain "$deploy/../constraints.txt" "$environment/constraints.txt"
# image.txt as requirements, not only as constraints: what its packages need of others (an older numpy, say) then holds.
"$environment/bin/python" -m pip install --requirement "$environment/image.txt" \
    --constraint "$environment/constraints.txt" "$@"
"$environment/bin/python" "$packages" check "$environment/image.txt"
