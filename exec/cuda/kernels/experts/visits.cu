// SPDX-License-Identifier: Apache-2.0
// Which token goes to which rank, once, and who came: orders by counting, as sort.cu has them for
// copies. A block reads a chunk of one rank's tokens, a thread follows one rank through it.
#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 1024;  // copies, at most

int chunk_tokens(const VisitsShape& s) {
  return static_cast<int>(s.per_token < kChunk ? kChunk / s.per_token : 1);
}
int chunks_of(const VisitsShape& s) {
  return static_cast<int>(blocks(s.tokens, chunk_tokens(s)));
}

// This block's chunk of the tokens of rank blockIdx.y: the ranks of their experts, -1: of none.
struct Chunk {
  std::int64_t first = 0;  // token
  int copies = 0;
};
__device__ __forceinline__ Chunk read_chunk(const VisitsShape& s, int tokens,
                                            const std::int32_t* chosen, std::int32_t* ranks) {
  Chunk chunk;
  chunk.first = static_cast<std::int64_t>(blockIdx.x) * tokens;
  const std::int64_t left = s.tokens - chunk.first;
  chunk.copies = static_cast<int>((left < tokens ? left : tokens) * s.per_token);
  const std::int32_t* mine = chosen + (blockIdx.y * s.tokens + chunk.first) * s.per_token;
  for (int i = static_cast<int>(threadIdx.x); i < chunk.copies; i += kThreads) {
    ranks[i] = mine[i] < 0 ? -1 : mine[i] / static_cast<std::int32_t>(s.per_rank);
  }
  __syncthreads();
  return chunk;
}

// counts(ranks, chunks, ranks): tokens of a chunk by the rank that they visit; nobody has a row
// yet.
__global__ void __launch_bounds__(kThreads)
    count_visits_kernel(VisitsShape s, int tokens, std::int64_t leaving, std::int64_t arriving,
                        const std::int32_t* __restrict__ chosen, std::int32_t* __restrict__ counts,
                        std::int32_t* __restrict__ token, std::int32_t* __restrict__ arrived) {
  __shared__ std::int32_t ranks[kChunk];
  const Chunk chunk = read_chunk(s, tokens, chosen, ranks);
  const int k = static_cast<int>(s.per_token);
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  for (int d = static_cast<int>(threadIdx.x); d < s.ranks; d += kThreads) {
    std::int32_t count = 0;
    for (int i = 0, last = -1; i < chunk.copies; ++i) {
      if (ranks[i] != d || i / k == last) continue;
      last = i / k;
      ++count;
    }
    counts[block * s.ranks + d] = count;
  }
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * gridDim.y * kThreads;
  const std::int64_t here = block * kThreads + threadIdx.x;
  for (std::int64_t i = here; i < leaving; i += stride) token[i] = -1;
  for (std::int64_t i = here; i < arriving; i += stride) arrived[i] = -1;
}

// counts becomes the visits of the chunks before; begins(ranks, ranks + 1), sent(ranks + 1).
__global__ void __launch_bounds__(kThreads)
    add_visits_kernel(VisitsShape s, int chunks, std::int32_t* __restrict__ counts,
                      std::int32_t* begins, std::int32_t* __restrict__ sent) {
  const int ranks = static_cast<int>(s.ranks), line = ranks + 1;
  for (int pair = static_cast<int>(threadIdx.x); pair < ranks * ranks; pair += kThreads) {
    const int source = pair / ranks, d = pair % ranks;
    std::int32_t before = 0;
    for (int c = 0; c < chunks; ++c) {
      std::int32_t& at = counts[(source * chunks + c) * ranks + d];
      const std::int32_t count = at;
      at = before;
      before += count;
    }
    begins[source * line + d + 1] = before;
  }
  __syncthreads();
  for (int source = static_cast<int>(threadIdx.x); source < ranks; source += kThreads) {
    std::int32_t* own = begins + source * line;
    own[0] = 0;
    for (int d = 0; d < ranks; ++d) own[d + 1] += own[d];
    for (int d = 0; d <= ranks && source == s.rank; ++d) sent[d] = own[d];
  }
}

// Own tokens leave for every rank, those of all ranks arrive here.
__global__ void __launch_bounds__(kThreads)
    place_visits_kernel(VisitsShape s, int tokens, const std::int32_t* __restrict__ chosen,
                        const std::int32_t* __restrict__ counts,
                        const std::int32_t* __restrict__ begins, std::int32_t* __restrict__ token,
                        std::int32_t* __restrict__ row, std::int32_t* __restrict__ weight,
                        std::int32_t* __restrict__ arrived) {
  __shared__ std::int32_t ranks[kChunk];
  const Chunk chunk = read_chunk(s, tokens, chosen, ranks);
  const int k = static_cast<int>(s.per_token), line = static_cast<int>(s.ranks) + 1;
  const std::int64_t source = blockIdx.y;
  const std::int64_t block = source * gridDim.x + blockIdx.x;
  const bool own = source == s.rank;
  for (int i = static_cast<int>(threadIdx.x); own && i < chunk.copies; i += kThreads) {
    row[chunk.first * k + i] = weight[chunk.first * k + i] = -1;
  }
  __syncthreads();
  for (int d = static_cast<int>(threadIdx.x); d < s.ranks; d += kThreads) {
    const bool here = d == s.rank;
    if (!own && !here) continue;
    // Where its rows begin as they leave and as they arrive.
    std::int64_t leave = s.slot > 0 ? d * s.slot : begins[source * line + d];
    std::int64_t arrive = source * s.slot;
    for (std::int64_t other = 0; s.slot == 0 && here && other < source; ++other) {
      arrive += begins[other * line + d + 1] - begins[other * line + d];
    }
    std::int64_t place = counts[block * s.ranks + d] - 1, at = -1;
    for (int i = 0, last = -1; i < chunk.copies; ++i) {
      if (ranks[i] != d) continue;
      const bool fresh = i / k != last;
      last = i / k;
      if (fresh) ++place;
      const bool fits = s.slot == 0 || place < s.slot;
      if (own) {
        if (fresh) {
          at = fits ? leave + place : -1;
          row[chunk.first * k + i] = static_cast<std::int32_t>(at);
          if (fits) token[at] = static_cast<std::int32_t>(chunk.first + last);
        }
        if (fits) weight[chunk.first * k + i] = static_cast<std::int32_t>(at * k + i % k);
      }
      if (!fresh || !here || !fits || arrive + place >= s.room) continue;
      const std::int32_t* of = chosen + (source * s.tokens + chunk.first + last) * k;
      for (int j = 0; j < k; ++j) arrived[(arrive + place) * k + j] = of[j];
    }
  }
}

}  // namespace

std::int64_t sort_visits_scratch(const VisitsShape& s) {
  return 4 * s.ranks * chunks_of(s) * s.ranks;
}

int sort_visits(Stream stream, const VisitsShape& s, const std::int32_t* chosen,
                std::int32_t* token, std::int32_t* sent, std::int32_t* row, std::int32_t* weight,
                std::int32_t* begins, std::int32_t* arrived, void* scratch) {
  const std::int64_t largest = s.leaving() > s.room ? s.leaving() : s.room;
  if (largest * s.per_token > INT32_MAX / 2 || s.per_token > kChunk) return kInvalidValue;
  auto* counts = static_cast<std::int32_t*>(scratch);
  const int chunks = chunks_of(s), tokens = chunk_tokens(s);
  const dim3 grid(static_cast<unsigned>(chunks), static_cast<unsigned>(s.ranks));
  int status = launch(count_visits_kernel, grid, kThreads, 0, stream, s, tokens, s.leaving(),
                      s.room * s.per_token, chosen, counts, token, arrived);
  if (status == 0) {
    status =
        launch(add_visits_kernel, dim3(1), kThreads, 0, stream, s, chunks, counts, begins, sent);
  }
  if (status != 0) return status;
  return launch(place_visits_kernel, grid, kThreads, 0, stream, s, tokens, chosen, counts, begins,
                token, row, weight, arrived);
}

}  // namespace rehearse::exec::cuda
