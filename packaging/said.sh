#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the command says of itself, as files to install. Usage: said.sh REHEARSE FOLDER
set -e
"$1" man | gzip -9n >"$2/rehearse.1.gz"
for shell in bash zsh fish; do "$1" completion $shell >"$2/$shell"; done
