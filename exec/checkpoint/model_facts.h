// SPDX-License-Identifier: Apache-2.0
// What makes two models one: what a checkpoint keeps of its model beside the tensors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedules/model/model.h"

namespace rehearse::exec {

struct ModelFact {
  std::string_view key;  // Hugging Face's, or the nearest to it
  std::string value;     // as JSON, on one line
  bool later = false;    // version 0.1 did not write it
};

// Sizes, and the forms that no tensor's name or shape tells. Positions count only where they are
// learned: others hold no parameters, and a run may lengthen them. Rates of dropout may change too.
std::vector<ModelFact> model_facts(const Transformer& model);

}  // namespace rehearse::exec
