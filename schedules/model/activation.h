// SPDX-License-Identifier: Apache-2.0
// The function of an MLP between its products: what a config.json calls hidden_act.
#pragma once

#include <cstdint>

namespace rehearse {

enum class ActivationKind : std::uint8_t {
  GeluTanh,   // Hendrycks & Gimpel 2016, arXiv 1606.08415: the form by tanh
  GeluExact,  // by the error function
  QuickGelu,  // x sigmoid(1.702 x)
  Relu,
  Relu2,  // relu squared
  Silu,
  Tanh
};

}  // namespace rehearse
