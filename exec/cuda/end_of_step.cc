// SPDX-License-Identifier: Apache-2.0
// The norms of all gradients and the optimizer, each a launch over many pieces.
#include <algorithm>
#include <cstdlib>

#include "exec/cuda/calls/cuda_kernels.h"

namespace rehearse::exec::cuda {

void CudaKernels::norms(Lane l, std::span<const NormRange> ranges, const float* loss,
                        std::int64_t slots, double* norms) {
  device_.check(cudaMemsetAsync(norms, 0, static_cast<std::size_t>(8 * slots), on(l)), "norms");
  if (!ranges.empty()) {
    // Flat over the arena: a range is where its gradient lies.
    const auto* base = reinterpret_cast<const float*>(device_.arena(l.rank));
    std::vector<TensorRange> flat;
    for (const NormRange& range : ranges) {
      flat.push_back({range.data - base, range.data - base + range.elements, range.slot, false});
    }
    const Buffers::DevicePieces& pieces = device_.buffers().pieces(l.rank, norms, flat);
    device_.check(sum_of_squares(on(l), base, pieces.pieces, pieces.num_pieces, pieces.runs,
                                 pieces.num_runs, pieces.partials, norms),
                  "sum of squares");
  }
  if (loss != nullptr) device_.check(to_double(on(l), loss, norms + slots - 1), "loss");
}

void CudaKernels::update(Lane l, const UpdateArguments& a) {
  float* factor = device_.buffers().clip_factor(l.rank);
  device_.check(
      clip_factor(on(l), a.norms, a.slots - 1, a.options->clip_norm, a.loss_scale, factor), "clip");
  std::vector<TensorRange> flat;
  double decay = 0;
  for (const UpdateRange& range : a.ranges) {
    flat.push_back({range.begin, range.end, 0, range.decay != 0});
    decay = std::max(decay, range.decay);
  }
  const Buffers::DevicePieces& pieces = device_.buffers().pieces(l.rank, a.parameter, flat);
  const bool own_master = a.master == nullptr;
  float* master = own_master ? static_cast<float*>(a.parameter) : a.master;
  void* narrow = own_master ? nullptr : a.parameter;
  switch (a.rule) {
    case UpdateRule::AdamW: {
      const AdamW constants = adamw_constants(a.options->beta1, a.options->beta2,
                                              a.options->epsilon, a.rate, decay, a.step);
      device_.check(
          cuda::adamw(on(l), type_, constants, pieces.pieces, pieces.num_pieces, a.gradient, factor,
                      master, a.moments[0], a.moments[1], narrow),
          "adamw");
      return;
    }
    case UpdateRule::Lion: {
      const Lion constants = lion_constants(a.options->beta1, a.options->beta2, a.rate, decay);
      device_.check(cuda::lion(on(l), type_, constants, pieces.pieces, pieces.num_pieces,
                               a.gradient, factor, master, a.moments[0], narrow),
                    "lion");
      return;
    }
    case UpdateRule::None:
      break;
  }
  std::abort();  // the reader refuses them
}

}  // namespace rehearse::exec::cuda
