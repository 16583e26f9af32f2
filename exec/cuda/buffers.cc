// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/buffers.h"

namespace rehearse::exec::cuda {

// Freeing what was outgrown would wait for the device, which may wait for a partner that waits for
// us: kernels under way still use it.
void* Buffers::scratch(Lane lane, std::int64_t bytes) {
  DeviceMemory& memory = tracks_[{lane.rank, lane.track}].scratch;
  if (memory.bytes() < bytes && memory.data() != nullptr) {
    outgrown_.push_back(std::move(memory));
    memory = {};
  }
  streams_.check(memory.reserve(bytes), "cudaMalloc");
  return memory.data();
}

bool Buffers::reserve_scratch(Lane lane, std::int64_t bytes) {
  const bool made = tracks_[{lane.rank, lane.track}].scratch.reserve(bytes) == 0;
  if (!made) cudaGetLastError();  // clears it
  return made;
}

GemmWorkspace Buffers::workspace(Lane lane) {
  DeviceMemory& memory = tracks_[{lane.rank, lane.track}].workspace;
  streams_.check(memory.reserve(kGemmWorkspaceBytes), "cudaMalloc");
  return {memory.data(), kGemmWorkspaceBytes};
}

float* Buffers::clip_factor(std::int32_t rank) {
  DeviceMemory& memory = factors_[rank];
  streams_.check(memory.reserve(sizeof(float)), "cudaMalloc");
  return reinterpret_cast<float*>(memory.data());
}

const Buffers::DevicePieces& Buffers::pieces(std::int32_t rank, const void* result,
                                             const std::vector<TensorRange>& ranges) {
  const PiecesKey key{rank, result, ranges.size(), ranges.front().begin, ranges.back().end};
  const auto upload = [&](std::byte* to, const void* from, std::int64_t bytes) {
    streams_.check(write_now(to, from, bytes), "cudaMemcpy");
  };
  const auto [found, fresh] = pieces_.try_emplace(key);
  DevicePieces& made = found->second;
  if (!fresh) return made;
  const Pieces cut = cut_into_pieces(ranges);
  const std::int64_t pieces = static_cast<std::int64_t>(cut.pieces.size() * sizeof(Piece));
  const std::int64_t runs = static_cast<std::int64_t>(cut.runs.size() * sizeof(SlotRun));
  const std::int64_t runs_at = (pieces + 15) / 16 * 16,
                     partials_at = (runs_at + runs + 15) / 16 * 16;
  made.num_pieces = static_cast<std::int64_t>(cut.pieces.size());
  made.num_runs = static_cast<std::int64_t>(cut.runs.size());
  streams_.check(made.memory.reserve(partials_at + 8 * made.num_pieces), "cudaMalloc");
  std::byte* at = made.memory.data();
  if (at == nullptr) return made;
  upload(at, cut.pieces.data(), pieces);
  upload(at + runs_at, cut.runs.data(), runs);
  made.pieces = reinterpret_cast<const Piece*>(at);
  made.runs = reinterpret_cast<const SlotRun*>(at + runs_at);
  made.partials = reinterpret_cast<double*>(at + partials_at);
  return made;
}

std::int64_t Buffers::bytes() const {
  std::int64_t sum = 0;
  for (const auto& [key, track] : tracks_) sum += track.scratch.bytes() + track.workspace.bytes();
  for (const auto& [rank, factor] : factors_) sum += factor.bytes();
  for (const auto& [key, made] : pieces_) sum += made.memory.bytes();
  return sum;
}

}  // namespace rehearse::exec::cuda
