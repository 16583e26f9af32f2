// SPDX-License-Identifier: Apache-2.0
// The slowest of equal ranks, for scripts and for people: what `run` and `compare` say of it.
#pragma once

#include <string>

#include "schedules/base/json_document.h"
#include "schedules/trace/trace.h"

namespace rehearse::cli {

// An entry for each class of at least two equal ranks: position, ranks, rank (the slowest), busy_s,
// median_s, excess.
Json stragglers_json(const Trace& trace);
// A line on the class whose slowest rank is furthest behind; nothing where there are no classes.
std::string straggler_text(const Json& stragglers);
std::string straggler_text(const Trace& trace);

}  // namespace rehearse::cli
