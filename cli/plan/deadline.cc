// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/deadline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "schedules/base/json_reader.h"

namespace rehearse::cli {

namespace chrono = std::chrono;

Result<chrono::sys_days> read_date(const std::string& text, std::string_view flag) {
  int year = 0;
  unsigned month = 0, day = 0;
  int end = 0;
  const int read = std::sscanf(text.c_str(), "%4d-%2u-%2u%n", &year, &month, &day, &end);
  const chrono::year_month_day date{chrono::year(year), chrono::month(month), chrono::day(day)};
  if (read != 3 || static_cast<std::size_t>(end) != text.size() || !date.ok() || year < 1970) {
    return Error{
        fmt::format("{}: {}: no date; a date is like 2027-03-01", flag, json_excerpt(text))};
  }
  return chrono::sys_days(date);
}

std::string date_text(chrono::sys_days day) {
  const chrono::year_month_day date(day);
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

chrono::sys_days day_after(chrono::sys_days start, double seconds) {
  constexpr double kMostDays = 1e6;  // 2,700 years: beyond it, no date means anything
  const double days = std::min(std::floor(seconds / 86400), kMostDays);
  return start + chrono::days(static_cast<int>(days));
}

Result<double> seconds_until(chrono::sys_days start, chrono::sys_days by) {
  if (by < start) {
    return Error{"--by: " + date_text(by) + " is before the run begins, " + date_text(start)};
  }
  return static_cast<double>((by - start).count() + 1) * 86400.0;
}

}  // namespace rehearse::cli
