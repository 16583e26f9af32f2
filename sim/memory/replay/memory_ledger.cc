// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/replay/memory_ledger.h"

namespace rehearse::sim {

void Ledger::note_change() {
  if (sum(bytes_) > sum(most_)) most_ = bytes_;
  trail_.push_back(bytes_);
}

void Ledger::begin(Handle handle, std::uint8_t kind) {
  const auto index = static_cast<std::size_t>(handle);
  if (kind_of_.size() <= index) kind_of_.resize(part_of_.size());
  kind_of_[index] = kind;
  if (part_of_[index] == MemoryPart::Activations) kinds_[kind] += allocator_.block_size(handle);
}

void Ledger::end(Handle handle) {
  const auto index = static_cast<std::size_t>(handle);
  if (part_of_[index] != MemoryPart::Activations) return;
  kinds_[kind_of_[index]] -= allocator_.block_size(handle);
}

void Ledger::give(Handle handle, std::uint8_t kind) {
  end(handle);
  begin(handle, kind);
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
  if (tells_apart_) kinds_at_peak_ = kinds_;
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
