// SPDX-License-Identifier: Apache-2.0
// Two traces of one schedule, one with a row for each class of equal ranks (a prediction, or a
// measurement by version 0.1), the other with a row for every rank: side by side.
#pragma once

#include "schedules/trace/trace.h"

namespace rehearse::viz {

// Gives the coarser of the two a row for every rank as well, each as its class had it: then their
// ops have equal numbers. Does nothing where they are of different schedules or alike in this.
void align_rows(Trace& a, Trace& b);

}  // namespace rehearse::viz
