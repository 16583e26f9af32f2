// SPDX-License-Identifier: Apache-2.0
#include "exec/body/body_meetings.h"

#include "exec/body/op_view.h"

namespace rehearse::exec {

std::vector<BodyMeeting> meetings(const BodyRunner& runner) {
  const BodyRunner::Shared& shared = runner.shared();
  std::vector<BodyMeeting> all;
  for (const auto& of_slice : shared.bodies) {
    for (const auto& of_kind : of_slice) {
      for (const Body& body : of_kind) {
        for (const Node& node : body.nodes) {
          const OpKind kind = collective_kind(node.kind());
          if (kind == OpKind::Forward) continue;
          all.push_back({node.axis, kind, node.pieces > 1 && shared.shape.gather});
        }
      }
    }
  }
  return all;
}

}  // namespace rehearse::exec
