// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "exec/backend/element.h"
#include "tests/cuda/emulation_block.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {
namespace {

constexpr std::size_t kStack = 256 * 1024;  // of a fiber [B]
constexpr int kWarp = 32, kWarpgroup = 128;

struct Copy {
  std::uint32_t to;
  const void* from;
  std::uint32_t bytes;
  bool valid;
};

struct Fiber {
  ucontext_t context{};  // where it begins
  jmp_buf at;            // where it waits: a jump, unlike swapcontext, makes no system call
  std::byte* stack = nullptr;
  bool begun = false, done = false;
  const long* waits_for = nullptr;  // runs again when this reaches `until`
  long until = 0;
  std::vector<Copy> copies;         // under way, oldest first
  std::vector<std::size_t> groups;  // sizes
  std::size_t open = 0;             // copies of the group that is not ended
};

// Where the threads of a warp or a warpgroup meet.
template <int kThreads>
struct Meeting {
  Slot slots[2][kThreads];
  const char* name = nullptr;  // of the exchange under way
  int arrived = 0;
  long completed = 0;
};

// The block that runs.
struct Block {
  std::vector<Fiber> fibers;
  std::vector<Meeting<kWarp>> warps;
  std::vector<Meeting<kWarpgroup>> warpgroups;
  int arrived = 0;     // at the block's barrier
  long completed = 0;  // barriers
  std::size_t shared = 0;
  const std::function<void()>* body = nullptr;
  jmp_buf scheduler;
  int running = 0;
};

Block block;
Order order = Order::Forward;
bool only_noting = false;
int processor_count = 2;
std::vector<Launch> noted;
std::mt19937 random_order(1);
alignas(1024) std::byte shared_memory[kSharedLimit];

void enter() {
  (*block.body)();
  end_products();
  block.fibers[static_cast<std::size_t>(block.running)].done = true;
  _longjmp(block.scheduler, 1);
}

// Runs the fiber until it waits or ends.
[[gnu::noinline]] void resume(Fiber& fiber) {
  if (_setjmp(block.scheduler) != 0) return;
  if (fiber.begun) _longjmp(fiber.at, 1);
  fiber.begun = true;
  setcontext(&fiber.context);
}

Fiber& self() {
  return block.fibers[static_cast<std::size_t>(block.running)];
}

[[gnu::noinline]] void wait_for(const long* counter, long until) {
  Fiber& fiber = self();
  fiber.waits_for = counter;
  fiber.until = until;
  if (_setjmp(fiber.at) == 0) _longjmp(block.scheduler, 1);
}

std::vector<unsigned> ordered(unsigned count) {
  std::vector<unsigned> all(count);
  std::iota(all.begin(), all.end(), 0U);
  if (order == Order::Backward) std::reverse(all.begin(), all.end());
  if (order == Order::Shuffled) std::shuffle(all.begin(), all.end(), random_order);
  return all;
}

void run_block(int threads) {
  std::memset(shared_memory, 0xFF, block.shared);
  block.arrived = 0;
  block.completed = 0;
  block.warps.assign(static_cast<std::size_t>((threads + kWarp - 1) / kWarp), {});
  block.warpgroups.assign(static_cast<std::size_t>(threads / kWarpgroup), {});
  begin_products(threads);
  for (int k = 0; k < threads; ++k) {
    Fiber& fiber = block.fibers[static_cast<std::size_t>(k)];
    fiber.begun = fiber.done = false;
    fiber.waits_for = nullptr;
    fiber.copies.clear();
    fiber.groups.clear();
    fiber.open = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = kStack;
    makecontext(&fiber.context, enter, 0);
  }
  const std::vector<unsigned> turns = ordered(static_cast<unsigned>(threads));
  int left = threads;
  while (left > 0) {
    bool moved = false;
    for (const unsigned k : turns) {
      Fiber& fiber = block.fibers[k];
      if (fiber.done || (fiber.waits_for != nullptr && *fiber.waits_for < fiber.until)) continue;
      fiber.waits_for = nullptr;
      block.running = static_cast<int>(k);
      threadIdx.x = k;
      resume(fiber);
      moved = true;
      if (fiber.done) --left;
    }
    if (!moved) fail("threads wait for one another: a barrier that not all of them reach");
  }
}

}  // namespace

void fail(const char* what) {
  std::fprintf(stderr, "emulation: block (%u, %u, %u), thread %u: %s\n", blockIdx.x, blockIdx.y,
               blockIdx.z, threadIdx.x, what);
  std::abort();
}

void (*on_stream)(void*, std::function<void()>) = [](void*, std::function<void()> launch) {
  launch();
};

void set_order(Order to) {
  order = to;
}
void only_note(bool on) {
  only_noting = on;
}
int processors() {
  return processor_count;
}
void set_processors(int count) {
  processor_count = count;
}

std::vector<Launch> take_launches() {
  return std::exchange(noted, {});
}

void run(dim3 grid, int threads, std::size_t shared, const std::function<void()>& body) {
  if (threads < 1 || threads > 1024) fail("a block has 1 to 1024 threads");
  if (shared > kSharedLimit) fail("more shared memory than a block may have");
  if (grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535)
    fail("a grid has at most 65535 blocks in y and z");
  if (only_noting) {
    noted.push_back({grid, threads, shared});
    return;
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  while (block.fibers.size() < static_cast<std::size_t>(threads)) {
    void* stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) fail("no memory for a stack");
    block.fibers.emplace_back().stack = static_cast<std::byte*>(stack);
  }
  block.shared = shared;
  block.body = &body;
  blockDim = dim3(static_cast<unsigned>(threads));
  gridDim = grid;
  for (const unsigned z : ordered(grid.z)) {
    for (const unsigned y : ordered(grid.y)) {
      for (const unsigned x : ordered(grid.x)) {
        blockIdx = dim3(x, y, z);
        run_block(threads);
      }
    }
  }
}

std::byte* dynamic_shared() {
  return shared_memory;
}

void block_barrier() {
  const long mine = block.completed;
  if (++block.arrived == static_cast<int>(blockDim.x)) {
    block.arrived = 0;
    ++block.completed;
    return;
  }
  wait_for(&block.completed, mine + 1);
}

long barriers() {
  return block.completed;
}

namespace {

template <int kThreads>
const Slot* meet(Meeting<kThreads>& meeting, const char* name, const void* mine, std::size_t bytes,
                 void (*combine)(Slot*)) {
  if (meeting.arrived == 0) meeting.name = name;
  if (std::strcmp(meeting.name, name) != 0) fail("lanes of a warp are at different instructions");
  // Two sets of slots: a thread that is ahead by one exchange does not overwrite what others read.
  Slot* slots = meeting.slots[meeting.completed % 2];
  if (bytes > 0) std::memcpy(slots[threadIdx.x % kThreads].at, mine, bytes);
  const int threads =
      std::min<int>(kThreads, static_cast<int>(blockDim.x - threadIdx.x / kThreads * kThreads));
  const long now = meeting.completed;
  if (++meeting.arrived == threads) {
    if (combine != nullptr) combine(slots);
    meeting.arrived = 0;
    ++meeting.completed;
  } else {
    wait_for(&meeting.completed, now + 1);
  }
  return slots;
}

}  // namespace

const Slot* exchange(const char* name, const void* mine, std::size_t bytes,
                     void (*combine)(Slot*)) {
  return meet(block.warps[threadIdx.x / kWarp], name, mine, bytes, combine);
}

const Slot* exchange_in_warpgroup(const char* name, const void* mine, std::size_t bytes,
                                  void (*combine)(Slot*)) {
  if (threadIdx.x / kWarpgroup >= block.warpgroups.size()) fail("not a whole warpgroup");
  return meet(block.warpgroups[threadIdx.x / kWarpgroup], name, mine, bytes, combine);
}

std::uint16_t to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return 0x7FFF;
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

std::uint16_t to_fp16(float value) {
  return rehearse::exec::Float16(value).bits;
}
float from_fp16(std::uint16_t half) {
  rehearse::exec::Float16 number;
  number.bits = half;
  return number;
}
float widened(std::uint32_t word, int half, bool fp16) {
  if (fp16) return from_fp16(static_cast<std::uint16_t>(half == 0 ? word : word >> 16));
  const std::uint32_t bits = half == 0 ? word << 16 : word & 0xFFFF0000U;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

namespace {

struct Operands {
  std::uint32_t a[4], b[2];
  float c[4];
  bool fp16;
};

// PTX ISA, fragments of mma.m16n8k16 for .bf16 and .f16: groupID = lane / 4, threadID_in_group =
// lane % 4. A: row = groupID for a0, a1, a4, a5, else groupID + 8; col = 2 threadID + (i & 1) for i
// < 4, + 8 else. B: row = 2 threadID + (i & 1) for i < 2, + 8 else; col = groupID. C: row = groupID
// for c0, c1, else groupID + 8; col = 2 threadID + (i & 1). (a0, a1) are in the first 32-bit
// register, and so on.
void multiply(Slot* slots) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < kWarp; ++lane) {
    Operands of;
    std::memcpy(&of, slots[lane].at, sizeof of);
    const int group = lane / 4, thread = lane % 4;
    for (int i = 0; i < 8; ++i) {
      const int row = i % 4 < 2 ? group : group + 8, col = 2 * thread + (i & 1) + (i < 4 ? 0 : 8);
      a[row][col] = widened(of.a[i / 2], i % 2, of.fp16);
    }
    for (int i = 0; i < 4; ++i) {
      b[2 * thread + (i & 1) + (i < 2 ? 0 : 8)][group] = widened(of.b[i / 2], i % 2, of.fp16);
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    Operands of;
    std::memcpy(&of, slots[lane].at, sizeof of);
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + (i < 2 ? 0 : 8), col = lane % 4 * 2 + (i & 1);
      for (int k = 0; k < 16; ++k) of.c[i] += a[row][k] * b[k][col];
    }
    std::memcpy(slots[lane].at, &of, sizeof of);
  }
}

}  // namespace

void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
         bool fp16) {
  const Operands mine{{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}, fp16};
  Operands result;
  std::memcpy(&result, exchange("mma", &mine, sizeof mine, multiply)[threadIdx.x % kWarp].at,
              sizeof result);
  for (int i = 0; i < 4; ++i) c[i] = result.c[i];
}

std::byte* checked(std::uint32_t address, std::uint32_t bytes) {
  if (address % bytes != 0) fail("a shared address is not aligned");
  if (address + bytes > block.shared) fail("a shared address lies beyond the block's memory");
  return shared_memory + address;
}

std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(static_cast<const std::byte*>(pointer) - shared_memory);
}
void store_word(std::uint32_t to, std::uint32_t word) {
  std::memcpy(checked(to, 4), &word, 4);
  note_write(to);
}
uint4 load_words(std::uint32_t from) {
  uint4 out;
  std::memcpy(&out, checked(from, 16), 16);
  return out;
}

namespace {

// The 8 rows of a matrix are read at once: they must lie in different banks, of which 8 rows of 16
// bytes fill all.
void check_banks(Slot* slots) {
  for (int matrix = 0; matrix < 4; ++matrix) {
    unsigned banks = 0;
    for (int i = 0; i < 8; ++i) {
      std::uint32_t at;
      std::memcpy(&at, slots[8 * matrix + i].at, sizeof at);
      banks |= 1U << at / 16 % 8;
    }
    if (banks != 0xFF) fail("rows of a matrix collide in a bank");
  }
}

}  // namespace

// Row i of matrix k at the address of lane 8 k + i; lane gets elements 2 (lane % 4) and the next of
// row lane / 4 of every matrix, or of the column if transposed.
void load_matrices(std::uint32_t (&out)[4], std::uint32_t row, bool transposed) {
  const Slot* slots =
      exchange(transposed ? "ldmatrix.trans" : "ldmatrix", &row, sizeof row, check_banks);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto element = [&](int matrix, int r, int c) {
    std::uint32_t at;
    std::memcpy(&at, slots[8 * matrix + r].at, sizeof at);
    std::uint16_t value;
    std::memcpy(&value, checked(at, 16) + 2 * c, sizeof value);
    return static_cast<std::uint32_t>(value);
  };
  for (int matrix = 0; matrix < 4; ++matrix) {
    const int i = lane / 4, j = lane % 4 * 2;
    out[matrix] = transposed ? element(matrix, j, i) | element(matrix, j + 1, i) << 16
                             : element(matrix, i, j) | element(matrix, i, j + 1) << 16;
  }
}

void start_copy(std::uint32_t to, const void* from, std::uint32_t bytes, bool valid) {
  if (valid && reinterpret_cast<std::uintptr_t>(from) % bytes != 0)
    fail("cp.async from an unaligned address");
  std::memset(checked(to, bytes), 0xFF, bytes);
  self().copies.push_back({to, from, bytes, valid});
  ++self().open;
}
void end_group() {
  Fiber& fiber = self();
  fiber.groups.push_back(fiber.open);
  fiber.open = 0;
}
void wait_groups(int pending) {
  Fiber& fiber = self();
  while (fiber.groups.size() > static_cast<std::size_t>(pending)) {
    for (std::size_t k = 0; k < fiber.groups.front(); ++k) {
      const Copy& copy = fiber.copies[k];
      if (copy.valid) {
        std::memcpy(checked(copy.to, copy.bytes), copy.from, copy.bytes);
      } else {
        std::memset(checked(copy.to, copy.bytes), 0, copy.bytes);
      }
      note_write(copy.to);
    }
    fiber.copies.erase(fiber.copies.begin(),
                       fiber.copies.begin() + static_cast<std::ptrdiff_t>(fiber.groups.front()));
    fiber.groups.erase(fiber.groups.begin());
  }
}

}  // namespace emulation
