// SPDX-License-Identifier: Apache-2.0
#include "schedules/trace/resident_memory.h"

#include <cstdio>

namespace rehearse {
namespace {

std::string size_text(std::int64_t bytes) {
  char text[32];
  const double b = static_cast<double>(bytes);
  if (b >= 1e9) {
    std::snprintf(text, sizeof text, "%.2f GB", b * 1e-9);
  } else if (b >= 1e6) {
    std::snprintf(text, sizeof text, "%.1f MB", b * 1e-6);
  } else {
    std::snprintf(text, sizeof text, "%.1f kB", b * 1e-3);
  }
  return text;
}

std::string line(std::string_view name, const std::string& value) {
  char text[128];
  std::snprintf(text, sizeof text, "  %-36.*s %10s", static_cast<int>(name.size()), name.data(),
                value.c_str());
  return text;
}

}  // namespace

std::int64_t ResidentPlan::total() const {
  std::int64_t sum = arenas;
  for (const Item& item : outside) sum += item.bytes;
  return sum;
}

std::string resident_text(const ResidentPlan& plan, std::int64_t measured_bytes) {
  std::string text =
      "memory of all processes\n" + line("arenas of all ranks", size_text(plan.arenas)) + '\n';
  for (const ResidentPlan::Item& item : plan.outside) {
    if (item.bytes > 0) text += line(item.text, size_text(item.bytes)) + '\n';
  }
  text += line("planned", size_text(plan.total())) + '\n';
  if (measured_bytes < 0) return text;
  char share[32];
  std::snprintf(
      share, sizeof share, " (%+.1f %%)",
      100 * (static_cast<double>(measured_bytes) / static_cast<double>(plan.total()) - 1));
  return text + line("measured: resident at the peak", size_text(measured_bytes)) + share + '\n';
}

}  // namespace rehearse
