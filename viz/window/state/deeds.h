// SPDX-License-Identifier: Apache-2.0
// What commands do that is more than one call of the reducer's: what they are given is read, and
// refused where it means nothing. Internal to viz/window/state.
#pragma once

#include <string_view>

#include "viz/window/state/reducer.h"

namespace rehearse::viz::deeds {

using Given = std::string_view;

// Conditions under which commands do something.
bool for_two(const Session& session, const ViewState& state);
bool for_pairs(const Session& session, const ViewState& state);
bool for_selected(const Session& session, const ViewState& state);
bool for_experts(const Session& session, const ViewState& state);
bool for_classes(const Session& session, const ViewState& state);
bool for_the_past(const Session& session, const ViewState& state);
bool for_the_future(const Session& session, const ViewState& state);

// The heat map.
void heat(Reducer& on, Given name);  // without a name: opens or closes it
void next_heat(Reducer& on, Given);
void heat_ranks(Reducer& on, Given words);  // "64-127": those ranks alone, the first to the last

// Rows. Without a number: that under the mouse, or of the selected op.
void unfold(Reducer& on, Given text);  // its class: one row, or all of its ranks
void unfold_all(Reducer& on, Given);
void pin(Reducer& on, Given text);

// "step", "wall", "op" (the selected one) or an op's name; without a word the next of them.
void align(Reducer& on, Given name);
void difference(Reducer& on, Given);
void color(Reducer& on, Given name);

// Fields.
void search(Reducer& on, Given text);
void edit(Reducer& on, Given name);
void type(Reducer& on, Given text);
void only(Reducer& on, Given words);  // "kinds F,B": that part of the filter; no text: everything

// Tables.
void sort(Reducer& on, Given words);  // "COLUMN", "COLUMN falling", or "none"
void line(Reducer& on, Given text);

void play(Reducer& on, Given);

}  // namespace rehearse::viz::deeds
