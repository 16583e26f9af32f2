// SPDX-License-Identifier: Apache-2.0
// Products of a warpgroup, from the text of the PTX ISA ("Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate Operation") and the canonical layouts that CUTLASS derives from it
// (include/cute/atom/mma_traits_sm90_gmma.hpp), of which only those with the 128-byte swizzle.
//
// A product reads shared memory when it is issued and again when it is waited for: it must hold the
// same, so nobody may overwrite it between. Its sums are kept back until then.
#include <algorithm>
#include <memory>

#include "tests/cuda/emulation_block.h"

namespace emulation {
namespace {

constexpr int kThreads = 128, kRows = 64, kDepth = 16, kMostColumns = 256;

// --- what a descriptor names -------------------------------------------------
struct Matrix {
  std::uint32_t start = 0, leading = 0, stride = 0;  // [B]
};

Matrix decode(std::uint64_t bits) {
  const auto field = [&](int first, int count) {
    return static_cast<std::uint32_t>(bits >> first & ((std::uint64_t{1} << count) - 1));
  };
  if (field(62, 2) != 1) fail("wgmma: only the 128-byte swizzle is emulated");
  if (field(14, 2) != 0 || field(30, 2) != 0 || field(46, 3) != 0 || field(52, 10) != 0) {
    fail("wgmma: a reserved bit of a descriptor is set");
  }
  const Matrix matrix{field(0, 14) << 4, field(16, 14) << 4, field(32, 14) << 4};
  // Offsets count from where the swizzle's pattern of 1024 bytes repeats; base offset 0 says:
  // there.
  if (field(49, 3) != 0 || matrix.start / 128 % 8 != 0) {
    fail("wgmma: a matrix does not begin where the swizzle's pattern does");
  }
  return matrix;
}

// Bits 4 to 6 of an address are xored with bits 7 to 9.
std::uint32_t swizzled(std::uint32_t address) {
  return address ^ (address / 128 % 8) * 16;
}

// Element (i, k), where k runs along the sum. Units of T = 8 elements, 16 bytes.
// Along the sum, "K-major":  ((8, m), (T, 2)) : ((8 T, stride), (1, T))
// Across it, "MN-major":     ((T, 8, m), (8, 2)) : ((1, T, leading), (8 T, stride))
std::uint32_t address_of(const Matrix& matrix, bool transposed, int i, int k) {
  const auto row = static_cast<std::uint32_t>(i), step = static_cast<std::uint32_t>(k);
  const std::uint32_t offset = transposed ? row % 64 * 2 + row / 64 * matrix.leading +
                                                step % 8 * 128 + step / 8 * matrix.stride
                                          : row % 8 * 128 + row / 8 * matrix.stride + step * 2;
  return swizzled(matrix.start + offset);
}

// --- a product ---------------------------------------------------------------
struct Chunk {
  std::uint32_t address = 0;
  std::byte held[16];
};

struct Result {
  float sums[kRows][kMostColumns];
  std::vector<Chunk> read;  // each once
};

struct Operands {
  Product product;
  int n = 0;
};
static_assert(sizeof(Operands) <= sizeof(Slot::at));

// Sums that are under way in a thread's registers.
struct Pending {
  float* c = nullptr;
  std::vector<float> values;
  long group = 0;
  std::vector<std::shared_ptr<Result>> products;
};

struct Thread {
  bool fenced = false;  // since the last wait
  long group = 0;       // that is open
  std::vector<Pending> pending;
  std::vector<std::uint32_t> unfenced;  // chunks written since the last proxy fence
};

std::vector<Thread> threads;
// Of 16 bytes of shared memory. What a thread wrote is seen by products behind a proxy fence of
// that thread and a barrier behind the fence.
struct Written {
  unsigned by = 0;   // thread + 1; 0: nobody
  long fenced = -1;  // after so many barriers; -1: not yet
};
Written written[kSharedLimit / 16];
std::vector<std::uint32_t> touched;              // chunks, by the block
std::vector<std::shared_ptr<Result>> results;    // of each warpgroup's last product
constexpr std::uint32_t kUnderWay = 0x7FBADBAD;  // a NaN

Thread& self() {
  return threads[threadIdx.x];
}

float read_element(Result& result, const Matrix& matrix, bool fp16, bool transposed, int i, int k) {
  const std::uint32_t address = address_of(matrix, transposed, i, k), chunk = address / 16 * 16;
  const std::byte* at = checked(chunk, 16);
  if (const Written& last = written[chunk / 16]; last.by != 0) {
    if (last.fenced < 0) fail("wgmma: reads what was written with no proxy fence behind it");
    if (last.fenced >= barriers()) fail("wgmma: no barrier behind the proxy fence");
  }
  if (result.read.empty() || result.read.back().address != chunk) {
    std::memcpy(result.read.emplace_back(Chunk{.address = chunk, .held = {}}).held, at, 16);
  }
  std::uint16_t half;
  std::memcpy(&half, at + address % 16, sizeof half);
  return widened(half, 0, fp16);
}

// Rows of A in registers, by warp and lane: as of mma.m16n8k16.
void read_registers(const Slot* slots, float (&a)[kRows][kDepth]) {
  for (int thread = 0; thread < kThreads; ++thread) {
    Operands of;
    std::memcpy(&of, slots[thread].at, sizeof of);
    const int group = thread % 32 / 4, first = thread % 4 * 2;
    for (int i = 0; i < 8; ++i) {
      const int row = thread / 32 * 16 + group + (i / 2 % 2 == 0 ? 0 : 8);
      const std::uint32_t word = of.product.a_registers[i / 2];
      a[row][first + i % 2 + (i < 4 ? 0 : 8)] = widened(word, i % 2, of.product.fp16);
    }
  }
}

void multiply(Slot* slots) {
  Operands first;
  std::memcpy(&first, slots[0].at, sizeof first);
  for (int thread = 1; thread < kThreads; ++thread) {
    Operands of;
    std::memcpy(&of, slots[thread].at, sizeof of);
    if (of.n != first.n || of.product.a_in_registers != first.product.a_in_registers ||
        of.product.a_matrix != first.product.a_matrix ||
        of.product.b_matrix != first.product.b_matrix ||
        of.product.b_transposed != first.product.b_transposed ||
        of.product.add != first.product.add || of.product.fp16 != first.product.fp16) {
      fail("wgmma: threads of a warpgroup give different operands");
    }
  }
  const Product& product = first.product;
  auto result = std::make_shared<Result>();
  static float a[kRows][kDepth], b[kDepth][kMostColumns];
  if (product.a_in_registers) {
    read_registers(slots, a);
  } else {
    const Matrix matrix = decode(product.a_matrix);
    for (int i = 0; i < kRows; ++i) {
      for (int k = 0; k < kDepth; ++k)
        a[i][k] = read_element(*result, matrix, product.fp16, false, i, k);
    }
  }
  const Matrix matrix = decode(product.b_matrix);
  if (product.b_transposed) {
    for (int k = 0; k < kDepth; ++k) {
      for (int j = 0; j < first.n; ++j)
        b[k][j] = read_element(*result, matrix, product.fp16, true, j, k);
    }
  } else {
    for (int j = 0; j < first.n; ++j) {
      for (int k = 0; k < kDepth; ++k)
        b[k][j] = read_element(*result, matrix, product.fp16, false, j, k);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    std::fill_n(result->sums[i], first.n, 0.0F);
    for (int k = 0; k < kDepth; ++k) {
      for (int j = 0; j < first.n; ++j) result->sums[i][j] += a[i][k] * b[k][j];
    }
  }
  results[threadIdx.x / kThreads] = std::move(result);
}

}  // namespace

void begin_products(int count) {
  threads.assign(static_cast<std::size_t>(count), {});
  results.assign(static_cast<std::size_t>(count / kThreads), {});
  for (const std::uint32_t chunk : touched) written[chunk] = {};
  touched.clear();
}
void end_products() {
  if (!self().pending.empty()) fail("wgmma: a thread ends before its products");
}

void note_write(std::uint32_t address) {
  if (written[address / 16].by == 0) touched.push_back(address / 16);
  written[address / 16] = {threadIdx.x + 1, -1};
  self().unfenced.push_back(address / 16);
}
void fence_proxy() {
  for (const std::uint32_t chunk : self().unfenced) {
    if (written[chunk].by == threadIdx.x + 1) written[chunk].fenced = barriers();
  }
  self().unfenced.clear();
}

void wgmma_fence() {
  exchange("wgmma.fence", nullptr, 0);
  self().fenced = true;
}

void wgmma_commit() {
  exchange("wgmma.commit_group", nullptr, 0);
  ++self().group;
}

void wgmma(float* c, int n, const Product& product) {
  if (!self().fenced) fail("wgmma: no wgmma.fence since the last wait");
  const Operands mine{product, n};
  exchange_in_warpgroup("wgmma.mma_async", &mine, sizeof mine, multiply);
  std::vector<Pending>& all = self().pending;
  auto at = std::find_if(all.begin(), all.end(), [&](const Pending& p) { return p.c == c; });
  if (at == all.end()) {
    all.push_back({.c = c, .values = std::vector<float>(c, c + n / 2), .group = 0, .products = {}});
    at = all.end() - 1;
  }
  if (at->values.size() != static_cast<std::size_t>(n / 2)) {
    fail("wgmma: sums that are under way are added to in another shape");
  }
  const std::shared_ptr<Result>& result = results[threadIdx.x / kThreads];
  const int row = static_cast<int>(threadIdx.x) % kThreads / 32 * 16 +
                  static_cast<int>(threadIdx.x) % 32 / 4,
            column = static_cast<int>(threadIdx.x) % 4 * 2;
  for (int i = 0; i < n / 2; ++i) {
    float& value = at->values[static_cast<std::size_t>(i)];
    if (!product.add) value = 0;
    value += result->sums[row + (i % 4 < 2 ? 0 : 8)][i / 4 * 8 + column + i % 2];
    std::memcpy(&c[i], &kUnderWay, sizeof c[i]);
  }
  at->group = self().group;
  at->products.push_back(result);
}

void wgmma_wait(int pending) {
  exchange(pending == 0 ? "wgmma.wait_group 0" : "wgmma.wait_group", nullptr, 0);
  Thread& thread = self();
  thread.fenced = false;
  const auto lands = [&](const Pending& p) {
    if (p.group >= thread.group - pending) return false;
    for (std::size_t i = 0; i < p.values.size(); ++i) {
      if (std::memcmp(&p.c[i], &kUnderWay, sizeof kUnderWay) != 0) {
        fail("wgmma: sums were written while they were under way");
      }
      p.c[i] = p.values[i];
    }
    for (const auto& product : p.products) {
      if (threadIdx.x % 32 != 0) break;  // once per warp is enough
      for (const Chunk& chunk : product->read) {
        if (std::memcmp(checked(chunk.address, 16), chunk.held, 16) != 0) {
          fail("wgmma: shared memory was overwritten before the product that reads it had ended");
        }
      }
    }
    return true;
  };
  std::erase_if(thread.pending, lands);
}

}  // namespace emulation
