// SPDX-License-Identifier: Apache-2.0
// What of a model costs time or memory, by the names that the formulas of frameworks' files use
// ("model.layers"). Two models with equal facts cost the same.
#pragma once

#include <string_view>

#include "schedules/base/json_document.h"
#include "schedules/model/model.h"

namespace rehearse {

Json model_facts(const Transformer& model);

// The value at a dotted path of an object; none: nothing is there.
Json member_at(const Json& object, std::string_view path);

}  // namespace rehearse
