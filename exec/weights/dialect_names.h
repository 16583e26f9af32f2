// SPDX-License-Identifier: Apache-2.0
// What Hugging Face's files of a dialect call a layer's parameters, and which of them they keep in
// one tensor (transformers, src/transformers/models/*/modeling_*.py).
#pragma once

#include <string>
#include <string_view>

#include "schedules/body/kernel.h"
#include "schedules/model/model.h"

namespace rehearse::exec {

enum class QkvForm : std::uint8_t {
  Joined,   // rows of all queries, then keys, then values, as we have them
  Apart,    // three tensors
  PerHead,  // one tensor: a head's query, key and value, then the next head's
};

enum class ExpertsForm : std::uint8_t {
  Each,    // every expert's matrices by themselves
  Joined,  // one tensor (experts, in, out)
};

struct DialectNames {
  std::string_view base;     // before a base model's names in files of the model with its head
  bool base_written = true;  // false: base models' files are published, so it is left out
  std::string_view layers;   // before a layer's number
  QkvForm qkv = QkvForm::Joined;
  bool gate_apart = false;  // gate and up are two tensors
  bool conv1d = false;      // products of layers are [in, out]
  // Each expert by itself: `experts`, its number, the matrix. Joined: `experts`, the matrix, and
  // "_bias" of biases.
  ExpertsForm experts_form = ExpertsForm::Each;
  std::string_view experts = "mlp.experts.";
  std::string_view expert_gate = "gate_proj", expert_up = "up_proj", expert_down = "down_proj";
  std::string_view correction = "mlp.gate.e_score_correction_bias";  // Experts::correction_bias
};
DialectNames dialect_names(const Transformer& model);

// Without `layers`, number and ".weight" or ".bias"; "": the dialect has no such parameter.
std::string_view dialect_stem(const Transformer& model, ParameterRole role);

}  // namespace rehearse::exec
