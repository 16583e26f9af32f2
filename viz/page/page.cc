// SPDX-License-Identifier: Apache-2.0
#include "viz/page/page_module.h"

#include <zlib.h>

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/base/installed/module.h"
#include "schedules/trace/trace_bytes.h"
#include "viz/page/pack.h"

// The files of this folder, put here by the assembler (CMakeLists.txt).
extern "C" const char rehearse_page_html[], rehearse_page_html_end[], rehearse_page_script[],
    rehearse_page_script_end[], rehearse_page_core[], rehearse_page_core_end[];

namespace rehearse::viz {
namespace {

std::string_view between(const char* begin, const char* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

std::string gzip(const std::string& bytes) {
  constexpr int kWindowBits = 15 + 16;  // 16: with gzip's header
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, kWindowBits, 9, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, static_cast<uLong>(bytes.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<std::uint8_t>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63U];
    }
  }
  return text;
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<') {
      safe += "&lt;";
    } else if (c == '&') {
      safe += "&amp;";
    } else if (c == '"') {
      safe += "&quot;";
    } else {
      safe += c;
    }
  }
  return safe;
}

Result<std::string> page_of(std::span<const Trace> traces, const PageOptions& options) {
  std::string packed;
  for (const Trace& trace : traces) {
    const std::string file = trace_bytes(trace);
    if (file.size() >= std::size_t{1} << 31) {
      return Error{"the trace has 2 GB and more, which no browser takes: --range or fewer ranks"};
    }
    packed += "<script type=\"text/plain\" class=\"trace\">" +
              base64(gzip(pack_trace(std::as_bytes(std::span(file))))) + "</script>\n";
  }
  if (options.waterfall) {
    packed += "<script type=\"text/plain\" id=\"causes\">" +
              base64(gzip(pack_waterfall(*options.waterfall))) + "</script>\n";
  }
  const std::string report = options.report.empty()
                                 ? std::string()
                                 : "<details><summary>report</summary><pre>" +
                                       escaped(options.report) + "</pre></details>";
  const std::array<std::pair<std::string_view, std::string>, 6> values{{
      {"version", options.version},
      {"title", escaped(options.title)},
      {"report", report},
      {"core", base64(between(rehearse_page_core, rehearse_page_core_end))},
      {"traces", packed},
      {"script", std::string(between(rehearse_page_script, rehearse_page_script_end))},
  }};
  std::string html;
  std::string_view rest = between(rehearse_page_html, rehearse_page_html_end);
  for (std::size_t at = rest.find("{{"); at != std::string_view::npos; at = rest.find("{{")) {
    const std::size_t end = rest.find("}}", at);
    const std::string_view name = rest.substr(at + 2, end - at - 2);
    html += rest.substr(0, at);
    for (const auto& [known, value] : values) {
      if (known == name) html += value;
    }
    rest.remove_prefix(end + 2);
  }
  return html.append(rest);
}

}  // namespace
}  // namespace rehearse::viz

REHEARSE_MODULE(page, rehearse::viz::PageModule, .make = rehearse::viz::page_of)
