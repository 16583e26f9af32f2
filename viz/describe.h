// One op, or one bubble, in words: what the window's panel and tooltip say.
#pragma once

#include <string>
#include <vector>

#include "viz/session.h"

namespace rehearse::viz {

struct Fact {
  std::string name, value;
};

// Times, place, data, what arrived last, slack, what its predicted cost rests on, and the other
// trace's time where two are compared. `deep`: also what needs a walk over the whole trace.
std::vector<Fact> describe_op(const Session& session, OpRef op, bool deep);
std::vector<Fact> describe_idle(const Document& document, std::int32_t idle);

}  // namespace rehearse::viz
