// SPDX-License-Identifier: Apache-2.0
// Limits of a process, of which a page has none.
#pragma once

#define RLIMIT_AS 9
#define RLIM_INFINITY (~0ULL)
struct rlimit {
  unsigned long long rlim_cur, rlim_max;
};
inline int getrlimit(int, struct rlimit*) {
  return -1;
}
