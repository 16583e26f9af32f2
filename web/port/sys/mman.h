// SPDX-License-Identifier: Apache-2.0
// Files in memory: what is emulated for WebAssembly has no advice.
#pragma once

#include_next <sys/mman.h>

#ifndef MADV_DONTNEED
#define MADV_DONTNEED 4
#endif
#ifndef MAP_POPULATE
#define MAP_POPULATE 0
#endif
inline int madvise(void*, size_t, int) {
  return 0;
}
