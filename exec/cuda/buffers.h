// SPDX-License-Identifier: Apache-2.0
// Device memory beside the arenas: scratch of the column sums, the workspace of the matrix
// products, and lists of pieces for the end of a step.
//
// It is allocated in the first step and never after. The kernels of one rank use it one after
// another; what runs side by side, on another track (exchange.h), has its own.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "exec/cuda/calls/gemm.h"
#include "exec/cuda/calls/kernels.h"
#include "exec/cuda/device_memory.h"
#include "exec/cuda/streams.h"

namespace rehearse::exec::cuda {

class Buffers {
 public:
  explicit Buffers(Streams& streams) : streams_(streams) {}

  void* scratch(Lane lane, std::int64_t bytes);
  // So much of it before it is asked for. False: there is no memory. REQUIRES: nothing uses it.
  bool reserve_scratch(Lane lane, std::int64_t bytes);
  GemmWorkspace workspace(Lane lane);
  float* clip_factor(std::int32_t rank);

  // A rank's lists of pieces.
  struct DevicePieces {
    DeviceMemory memory;
    const Piece* pieces = nullptr;
    const SlotRun* runs = nullptr;
    double* partials = nullptr;
    std::int64_t num_pieces = 0, num_runs = 0;
  };
  // Cuts the ranges into pieces. They are uploaded when they are first asked for, since a rank's
  // lists do not change from step to step. result: where the lists' result lies.
  const DevicePieces& pieces(std::int32_t rank, const void* result,
                             const std::vector<TensorRange>& ranges);

  void end_step() { outgrown_.clear(); }
  std::int64_t bytes() const;

 private:
  // rank, where the result lies, how many ranges, from where to where
  using PiecesKey = std::tuple<std::int32_t, const void*, std::size_t, std::int64_t, std::int64_t>;
  struct OfTrack {
    DeviceMemory scratch, workspace;
  };

  Streams& streams_;
  std::map<std::pair<std::int32_t, Track>, OfTrack> tracks_;
  std::map<std::int32_t, DeviceMemory> factors_;
  std::vector<DeviceMemory> outgrown_;  // freed after the step
  std::map<PiecesKey, DevicePieces> pieces_;
};

}  // namespace rehearse::exec::cuda
