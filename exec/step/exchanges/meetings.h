// SPDX-License-Identifier: Apache-2.0
// Which collectives run over which groups in a step: who carries them can connect before the first.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "exec/step/exchanges/group_instances.h"
#include "schedules/scenario/layout.h"

namespace rehearse::exec {

struct Meeting {
  std::int32_t group = 0;  // of the schedule
  OpKind kind{};           // of bodies' rings: Send
  bool apart = false;      // parts lie apart (Exchange::pitch)
  auto operator<=>(const Meeting&) const = default;
};

// Each once, ascending: on all ranks the same list.
std::vector<Meeting> meetings(const Layout& layout, const Schedule& schedule,
                              const GroupInstances& groups);

}  // namespace rehearse::exec
