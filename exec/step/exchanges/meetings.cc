// SPDX-License-Identifier: Apache-2.0
#include "exec/step/exchanges/meetings.h"

#include <set>

#include "exec/body/body_meetings.h"
#include "schedules/ranks/group_key.h"

namespace rehearse::exec {

std::vector<Meeting> meetings(const Layout& layout, const Schedule& schedule,
                              const GroupInstances& groups) {
  std::set<Meeting> all;
  for (const Op& op : schedule.ops) {
    if (traits(op.kind).op_class == OpClass::Collective) all.insert({op.group.value, op.kind});
  }
  for (const BodyMeeting& met : meetings(BodyRunner(layout))) {
    const std::int32_t group = groups.group(kind_along(met.axis));
    if (group < std::ssize(groups.of)) all.insert({group, met.kind, met.apart});
  }
  return {all.begin(), all.end()};
}

}  // namespace rehearse::exec
