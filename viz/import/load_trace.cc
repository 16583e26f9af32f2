// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "schedules/base/json_reader.h"
#include "viz/import/import.h"

#ifdef REHEARSE_ZLIB
#include <zlib.h>
#endif

namespace rehearse::viz {
namespace {

// A file is read whole: no more than half of what this machine has.
std::int64_t most_bytes() {
  constexpr std::int64_t kMost = std::int64_t{1} << 34;  // 16 GiB: more is no trace
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? std::min(kMost, std::int64_t{pages} * size / 2) : kMost;
}

#ifdef REHEARSE_ZLIB
// What a profile of so many bytes inflates to at most. Traces shrink to a tenth or a thirtieth;
// deflate itself allows a thousandth, which no trace is.
std::size_t most_inflated(std::size_t compressed) {
  constexpr std::size_t kTimes = 100, kSmall = std::size_t{16} << 20;
  return std::min(static_cast<std::size_t>(most_bytes()), kSmall + kTimes * compressed);
}
#endif

bool is_gzip(std::string_view bytes) {
  return bytes.substr(0, 2) == "\x1f\x8b";
}

#ifdef REHEARSE_ZLIB
Result<std::string> gunzip(const std::string& bytes, const std::string& path) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return Error{path + ": cannot inflate"};
  std::string out;
  std::size_t fed = 0;
  int state = Z_OK;
  const std::size_t most = most_inflated(bytes.size());
  while (state == Z_OK && out.size() <= most) {
    if (stream.avail_in == 0) {  // avail_in has 32 bits
      const std::size_t piece = std::min<std::size_t>(bytes.size() - fed, 1u << 30);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + fed));
      stream.avail_in = static_cast<uInt>(piece);
      fed += piece;
    }
    const std::size_t before = out.size();
    const std::size_t room =
        std::clamp<std::size_t>(before, std::size_t{1} << 20, std::size_t{1} << 26);
    out.resize(before + room);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream.avail_out = static_cast<uInt>(room);
    state = inflate(&stream, Z_NO_FLUSH);
    out.erase(before + room - stream.avail_out);
    if (state == Z_BUF_ERROR ||
        (state == Z_OK && stream.avail_in == 0 && fed == bytes.size() && stream.avail_out > 0)) {
      break;
    }
  }
  inflateEnd(&stream);
  if (out.size() > most) {
    return Error{path + ": " + std::to_string(bytes.size()) + " bytes inflate to more than " +
                 std::to_string(most) + ": that is no trace"};
  }
  if (state != Z_STREAM_END) return Error{path + ": the gzip stream is broken or cut short"};
  return out;
}
#else
Result<std::string> gunzip(const std::string&, const std::string& path) {
  return Error{path + ": this build has no zlib and cannot read gzipped files"};
}
#endif

// It begins like JSON.
Result<std::string> read_json(const std::string& path) {
  Result<std::string> text = read_inflated(path);
  if (!text) return text.error();
  const std::size_t first = text.value().find_first_not_of(" \t\r\n");
  if (first == std::string::npos || (text.value()[first] != '{' && text.value()[first] != '[')) {
    return Error{path + ": neither a trace of rehearse nor Chrome JSON"};
  }
  return text;
}

Result<Trace> load_folder(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code fault;
  for (std::filesystem::directory_iterator it(folder, fault), end; !fault && it != end;
       it.increment(fault)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".json") || name.ends_with(".json.gz")) paths.push_back(it->path().string());
  }
  if (fault) return Error{folder + ": cannot read: " + fault.message()};
  if (paths.empty()) return Error{folder + ": holds no .json or .json.gz"};
  std::ranges::sort(paths);
  std::vector<Profile> profiles;
  for (const std::string& path : paths) {
    const Result<std::string> text = read_json(path);
    if (!text) return text.error();
    Result<Profile> profile = import_profile(text.value(), path);
    if (!profile) return profile.error();
    if (profile.value().ours)
      return Error{path + ": is of rehearse, not of one rank: name it alone"};
    profiles.push_back(std::move(profile).value());
  }
  Result<Trace> made = join_profiles(std::move(profiles));
  if (!made) return Error{folder + ": " + made.error().message};
  Trace joined = std::move(made).value();
  joined.title = std::filesystem::path(folder + "/").parent_path().filename().string();
  if (const std::string wrong = trace_fault(joined); !wrong.empty())
    return Error{folder + ": " + wrong};
  return joined;
}

}  // namespace

Result<std::string> read_inflated(const std::string& path) {
  Result<std::string> text = read_text_file(path, most_bytes());
  if (!text || !is_gzip(text.value())) return text;
  return gunzip(text.value(), path);
}

Result<Trace> load_trace(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return load_folder(path);
  if (is_trace_file(path)) return read_trace(path);
  const Result<std::string> text = read_json(path);
  if (!text) return text.error();
  return import_chrome(text.value(), path);
}

}  // namespace rehearse::viz
