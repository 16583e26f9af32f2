// SPDX-License-Identifier: Apache-2.0
// Chooses the instruction set once, at the first call: REHEARSE_ISA's, or the fastest.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "exec/cpu/kernels/bf16/tables.h"
#include "exec/cpu/kernels/instruction_set.h"
#include "exec/cpu/kernels/table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace rehearse::exec {

#if defined(__x86_64__)
// clang 14 knows no such word of __builtin_cpu_supports.
static bool converts_halves() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
// AVX512_BF16: leaf 7, part 1, bit 5 of eax.
static bool multiplies_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 1U << 5) != 0;
}
#endif

bool ask_for_tiles() {
#if defined(__x86_64__) && defined(__linux__) && defined(SYS_arch_prctl)
  unsigned a = 0, b = 0, c = 0, d = 0;  // AMX-BF16 and AMX-TILE: leaf 7, bits 22 and 24 of edx
  constexpr unsigned kTiles = 1U << 22 | 1U << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTiles) != kTiles) return false;
  constexpr long kAsk = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kAsk, kTileData) == 0;
#else
  return false;
#endif
}

const std::vector<KernelTable>& kernel_tables() {
  static const std::vector<KernelTable> tables = [] {
    std::vector<KernelTable> list{generic_kernels()};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && converts_halves()) {
      list.push_back(avx2_kernels());
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
      list.push_back(avx512_kernels());
      const auto add = [&](const KernelTable& table) {
        if (!table.instruction_set.empty()) list.push_back(table);
      };
      if (multiplies_bf16()) add(avx512_bf16_kernels());
      if (ask_for_tiles()) add(amx_kernels());
    }
#endif
    return list;
  }();
  return tables;
}

namespace {

Result<const KernelTable*> chosen() {
  const char* value = std::getenv("REHEARSE_ISA");
  const std::string asked = value == nullptr ? "" : value;
  if (asked.empty()) return &kernel_tables().back();
  std::string there;
  for (const KernelTable& table : kernel_tables()) {
    if (asked == table.instruction_set) return &table;
    there += (there.empty() ? "" : ", ") + std::string(table.instruction_set);
  }
  if (std::ranges::find(kInstructionSets, asked) != kInstructionSets.end()) {
    return Error{"REHEARSE_ISA: this machine has no " + asked + "; there is " + there};
  }
  return Error{"REHEARSE_ISA: no instruction set \"" + asked + "\" (" +
               instruction_sets(", ", " or ") + "); there is " + there};
}

}  // namespace

std::string instruction_sets(std::string_view between, std::string_view last) {
  std::string all;
  for (const std::string_view set : kInstructionSets) {
    if (!all.empty()) all += set == kInstructionSets.back() ? last : between;
    all += set;
  }
  return all;
}

Result<> instruction_set_as_asked() {
  const Result<const KernelTable*> found = chosen();
  if (!found) return found.error();
  return {};
}

const KernelTable& kernels() {
  static const KernelTable& table = [&]() -> const KernelTable& {
    const Result<const KernelTable*> found = chosen();
    if (found) return *found.value();
    std::fprintf(stderr, "%s\n", found.error().message.c_str());  // commands have asked before
    std::abort();
  }();
  return table;
}

std::string_view instruction_set() {
  return kernels().instruction_set;
}

std::int64_t kernel_room_bytes(const KernelRoom& room) {
  return kernels().room_bytes(room);
}

}  // namespace rehearse::exec
