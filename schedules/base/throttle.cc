// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/throttle.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace rehearse {
namespace {

// All of the text is one number.
bool is_number(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<Throttle> read_throttle(std::string_view text) {
  const std::size_t comma = text.find(',');
  double rate = 0, latency = 0;
  const bool numbers = comma != std::string_view::npos && is_number(text.substr(0, comma), rate) &&
                       is_number(text.substr(comma + 1), latency);
  if (!numbers || !(rate >= 1e-6 && rate <= 1e6) || !(latency >= 0 && latency <= 1e6)) {
    return Error{fmt::format(
        "'{}' is not GBPS,LATENCY_US: GB/s from 0.000001 to 1000000, us from 0 to 1000000, as in "
        "0.5,200",
        text)};
  }
  return Throttle{.bytes_per_ns = rate, .latency_ns = std::llround(latency * 1e3)};
}

std::string throttle_text(const Throttle& throttle) {
  return fmt::format("{} GB/s each way between two processes, {} us later", throttle.bytes_per_ns,
                     static_cast<double>(throttle.latency_ns) * 1e-3);
}

}  // namespace rehearse
