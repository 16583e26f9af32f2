// SPDX-License-Identifier: Apache-2.0
// What of a model costs time or memory, by the names that the formulas of frameworks' files use
// ("model.layers"). Two models with equal facts cost the same.
#pragma once

#include "schedules/base/json_document.h"
#include "schedules/model/model.h"

namespace rehearse {

Json model_facts(const Transformer& model);

}  // namespace rehearse
