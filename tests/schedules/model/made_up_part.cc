// SPDX-License-Identifier: Apache-2.0
// parts.cc with one part more, as docs/add_a_layer.md would have it added: the linker takes this
// list in place of the shipped one, and so does everything that reads it.
#include "tests/schedules/model/made_up_part.h"

#include "schedules/model/parts.h"

#define layer_parts shipped_layer_parts
#include "schedules/model/parts.cc"  // NOLINT
#undef layer_parts

namespace rehearse {

bool made_up_part = false;

std::vector<ModelPart> layer_parts(const Transformer& model, std::int64_t layer) {
  std::vector<ModelPart> parts = shipped_layer_parts(model, layer);
  if (made_up_part) {
    parts.push_back(
        matrix(Role::None, "made_up.weight", 2 * model.hidden, model.hidden, Cut::Rows));
  }
  return parts;
}

}  // namespace rehearse
