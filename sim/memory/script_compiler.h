// SPDX-License-Identifier: Apache-2.0
// A script's rows as the steps of a segment's program: names become slots, and what recomputation
// drops and makes again is spelled out.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "sim/memory/memory_script.h"

namespace rehearse::sim {

// What the backward of a script makes again: nothing, the tensors that its rows mark as dropped, or
// the whole forward.
enum class Remade : std::uint8_t { Nothing, Dropped, Everything };

// How much of a program somebody asks for. A forward does not depend on its backward. Apart: the
// backward in two as well.
enum class Extent : std::uint8_t { Forward, Whole, Apart };

// A script's rows, those of a layer's kinds among them.
struct ScriptRows {
  std::vector<const ScriptRow*> forward, backward;
  std::deque<ScriptRow> of_kinds;  // which stand in no profile
};

struct ScriptAsked {
  Remade remade = Remade::Nothing;
  Extent extent = Extent::Whole;
  bool compiled = false;  // by the framework: cheap tensors are made again where they are used
  // What is kept of streams is noted: it is computed again, in blocks of layers.
  bool notes_streams = false;
  std::uint8_t streams = 0;  // what streams are is that kind's (ModelPart::block); 0: nobody's
  // Of a head whose loss is the root's: there it is of all replicas' tokens.
  ReplicaRole role = ReplicaRole::Alike;
  std::int64_t replicas = 1;
};
SegmentProgram compile_script(const ScriptRows& script, const SizeLetters& letters, Flags flags,
                              const ScriptAsked& asked);

}  // namespace rehearse::sim
