// SPDX-License-Identifier: Apache-2.0
// Trials of kernels before the first step (Kernels::trials): the bodies of a rank's compute ops are
// walked once, with kernels that choose and write nothing that is kept. Nobody is met, nothing is
// copied.
#pragma once

#include "exec/step/rank_state.h"

namespace rehearse::exec {

// The rank's arena holds zeros afterwards. Error: an op that cannot go on, and why.
Result<> try_kernels(const LocalRanks& local, const RankState& rank, const BodyRunner& runner);

}  // namespace rehearse::exec
