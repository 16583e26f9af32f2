// SPDX-License-Identifier: Apache-2.0
#include "schedules/ir/payload.h"

#include <algorithm>

namespace rehearse {

Carried payload_of(const Schedule& schedule, OpId id) {
  const Op& op = schedule.ops[id.index()];
  const OpClass op_class = traits(op.kind).op_class;
  const auto operands = schedule.operands_of(id);
  const auto bytes = [&](std::size_t k) {
    const ValueId value = operands[k].value;
    return value ? schedule.values[value.index()].bytes.value : 0;
  };
  Carried carried;
  if (op_class == OpClass::Copy) {  // pairs (from, to); a gradient may be narrower on the host
    for (std::size_t k = 0; k + 1 < operands.size(); k += 2) {
      carried.elements += std::min(bytes(k), bytes(k + 1));
    }
  } else if (op_class == OpClass::Transfer || op_class == OpClass::Collective) {
    if (op.match && op.match.index() < schedule.carried.size()) {
      return schedule.carried[op.match.index()];
    }
    if (!operands.empty()) carried.elements = bytes(0);
  }
  return carried;
}

}  // namespace rehearse
