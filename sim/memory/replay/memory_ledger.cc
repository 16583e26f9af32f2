// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/replay/memory_ledger.h"

namespace rehearse::sim {

void Ledger::note_change() {
  if (sum(bytes_) > sum(most_)) most_ = bytes_;
  trail_.push_back(bytes_);
}

RankMemory Ledger::result() const {
  const auto bytes = [this](MemoryPart part) { return at_peak_[static_cast<std::size_t>(part)]; };
  RankMemory memory;
  memory.peak_allocated = peak_;
  memory.peak_reserved = allocator_.max_reserved();
  memory.at_op = peak_op_;
  memory.at_op_behind = peak_behind_;
  memory.at_building = peak_at_building_;
  memory.peak_in_steps = peak_in_steps_;
  memory.parts = {.parameters = bytes(MemoryPart::Parameters),
                  .gradients = bytes(MemoryPart::Gradients),
                  .optimizer = bytes(MemoryPart::Optimizer),
                  .activations = bytes(MemoryPart::Activations),
                  .buffers = bytes(MemoryPart::Buffers),
                  .workspace = bytes(MemoryPart::Workspace)};
  memory.retries = allocator_.retries();
  if (retried()) memory.remapped = mapped_;
  return memory;
}

}  // namespace rehearse::sim
