// SPDX-License-Identifier: Apache-2.0
// What a report says of `fits`: the decision that a plan is bought on.
#pragma once

#include <string>

#include "sim/predict/predict.h"

namespace rehearse::sim {

// For people: "fits", "DOES NOT FIT", and how near the capacity where it is within 5 %.
std::string fit_words(const MemoryReport& memory);
// What a plan that does not fit needs first to say: the rest of the report is of a step that cannot
// be made. With the nearest plan that fits, as flags. Empty: it fits.
std::string misfit_text(const Prediction& prediction);
// What the worst day brings that the plan tells of, for people: "the busiest rank has 1.50 times
// the mean rows", "a sample has 8,192 tokens"; empty: every day is alike.
std::string day_words(const DayLoad& load);
// On which day a tight plan breaks, and what would hold, as flags. Empty: it is not tight.
std::string tight_text(const Prediction& prediction);
// The report key `memory.bad_day`, as a JSON text: null where the plan is not tight.
std::string bad_day_json(const MemoryReport& memory);
// Where a row of the memory table has its peak: "0F5", "OPTIMIZER_STEP", "before step 0".
std::string peak_words(const Prediction& prediction, std::size_t row);
// Where some row has it before step 0: why, and what a step needs. Empty: none has.
std::string building_note(const Prediction& prediction);
// Where memory is held only because the allocator empties its cache and tries again: how much it
// maps anew in every step, and how long that takes. Empty: it need not.
std::string retries_note(const Prediction& prediction);
// The report key `memory.instead`, as a JSON text: null where the plan fits or none was looked for.
std::string instead_json(const MemoryReport& memory);

}  // namespace rehearse::sim
