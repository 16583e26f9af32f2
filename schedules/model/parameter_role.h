// SPDX-License-Identifier: Apache-2.0
// Which tensor of a segment a parameter is: the word that bodies, weights and files share.
#pragma once

#include <cstdint>

namespace rehearse {

// Whose parameter a tensor or a node's is, within its segment.
enum class ParameterRole : std::uint8_t {
  None,   // a parameter that our executor does not run: of prediction layers
  Norm1,  // before attention
  Qkv,
  Query,      // of latent attention: of the hidden state, where queries are not compressed
  QueryDown,  // to the compressed queries
  QueryDownNorm,
  QueryUp,
  KeyValueDown,  // to the compressed keys and values, and the rotary key
  KeyValueDownNorm,
  KeyValueUp,  // a head's key but for the rotary part, then its value
  QueryNorm,
  KeyNorm,
  Sinks,
  Projection,
  OutNorm1,  // of what attention gives
  Norm2,     // before the MLP
  Up,
  Down,
  OutNorm2,  // of what the MLP gives
  FinalNorm,
  Table,
  Head,  // the table of an untied head
  Positions,
  EmbeddingNorm,
  Router,
  ExpertUp,  // of all routed experts of a rank, one behind the other
  ExpertDown,
  SharedUp,  // of the shared experts as one MLP
  SharedDown,
  SharedGate,
};

}  // namespace rehearse
