// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/replay/memory_ledger.h"

namespace rehearse::sim {

void Ledger::note_change() {
  if (sum(bytes_) > sum(most_)) most_ = bytes_;
  trail_.push_back(bytes_);
}

void Ledger::note_mapping(std::int64_t bytes) {
  if (mapped_.empty() || mapped_.back().op != op) mapped_.push_back({.op = op});
  mapped_.back().bytes += bytes;
}

void Ledger::note_peak() {
  const std::int64_t now = allocator_.allocated();
  if (!building_) peak_in_steps_ = std::max(peak_in_steps_, now);
  if (now <= peak_) return;
  peak_ = now;
  at_peak_ = bytes_;
  peak_op_ = op;
  peak_behind_ = behind;
  peak_at_building_ = building_;
}

void Ledger::make_room(std::size_t index) {
  part_of_.resize(2 * index + 64);
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
