// SPDX-License-Identifier: Apache-2.0
#include "exec/processes/abort_notice.h"

#include "exec/store/printable.h"
#include "exec/store/store_messages.h"

namespace rehearse::exec {
namespace {

constexpr std::size_t kLongestPath = 4096;  // of the folder of flight records

}  // namespace

std::string abort_bytes(const std::string& flight, const FailureAttribution& attribution) {
  const std::string folder = flight.size() <= kLongestPath ? flight : std::string();
  const std::string line = printable(attribution.line, kLargestText);
  return WireWriter().text(folder).text(line).number(attribution.exit_code).take();
}

AbortNotice parse_abort(const std::string& bytes) {
  WireReader in(bytes);
  AbortNotice notice;
  notice.flight = in.text();
  notice.line = printable(in.text(), kLargestText);
  notice.exit_code = in.number<std::int32_t>();
  if (!in.done() || notice.flight.find('\0') != std::string::npos) notice.flight.clear();
  if (notice.exit_code < 1 || notice.exit_code > 3) notice.exit_code = 3;
  return notice;
}

}  // namespace rehearse::exec
