// SPDX-License-Identifier: Apache-2.0
#include "cli/trace/doctor_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "schedules/base/json_reader.h"
#include "schedules/trace/trace.h"
#include "viz/hang/hang.h"
#include "viz/import/import.h"
#include "viz/import/json_scanner.h"
#include "viz/profile/read_profiles.h"

namespace rehearse::cli {
namespace {

// The files that are meant: a folder's, in the order of their names.
Result<std::vector<std::string>> files_of(const std::vector<std::string>& named) {
  std::vector<std::string> files;
  for (const std::string& path : named) {
    std::error_code fault;
    if (!std::filesystem::is_directory(path, fault)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (std::filesystem::directory_iterator it(path, fault), end; !fault && it != end;
         it.increment(fault)) {
      std::error_code unknown;
      if (it->is_regular_file(unknown)) inside.push_back(it->path().string());
    }
    if (fault) return Error{path + ": cannot read: " + fault.message()};
    if (inside.empty()) return Error{path + ": holds no file"};
    std::ranges::sort(inside);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

enum class FileKind : std::uint8_t { Dump, Ras, Kineto, Spans, Nsys, Trace };
constexpr std::string_view kKindWords[]{"a dump of PyTorch's Flight Recorder",
                                        "text of NCCL's RAS",
                                        "a profile of PyTorch",
                                        "of OpenTelemetry's spans",
                                        "of Nsight Systems",
                                        "a trace of ours"};

// The kind of a JSON document, by the first of its keys that tells; of a list, by its first item.
std::optional<FileKind> kind_of_json(std::string_view text) {
  viz::JsonScanner in(text);
  bool first = true;
  if (in.peek() == '[' && (!in.enter('[') || !in.next_item(first))) return {};
  std::string_view key;
  first = true;
  if (in.peek() != '{' || !in.enter('{')) return {};
  while (in.next_key(first, key)) {
    for (const std::string_view word : {"traceEvents", "schemaVersion", "deviceProperties", "ph"}) {
      if (key == word) return FileKind::Kineto;
    }
    if (key == "resourceSpans") return FileKind::Spans;
    for (const std::string_view word : {"entries", "pg_config", "pg_status", "nccl_comm_state"}) {
      if (key == word) return FileKind::Dump;
    }
    in.skip();
  }
  return {};
}

constexpr std::int64_t kMostDump = std::int64_t{1} << 28;  // [B]

class Reading {
 public:
  Result<> add(const std::string& path) {
    if (is_trace_file(path)) {
      if (const Result<> one = keep(FileKind::Trace, path); !one) return one;
      return add_trace(path);
    }
    const std::string begin = beginning(path);
    if (begin.starts_with('\x80') || begin.starts_with("PK")) {
      return Error{path +
                   ": a pickle; nothing is unpickled here: docs/flight_recorder_json.py FILE... "
                   "writes it as JSON"};
    }
    if (begin.starts_with("SQLite format 3")) {
      if (const Result<> one = keep(FileKind::Nsys, path); !one) return one;
      return add_nsys(path);
    }
    Result<std::string> text = viz::read_inflated(path);
    if (!text) return text.error();
    const std::optional<FileKind> kind =
        viz::is_ras(text.value()) ? FileKind::Ras : kind_of_json(text.value());
    if (!kind) return not_known(text.value(), path);
    if (const Result<> one = keep(*kind, path); !one) return one;
    switch (*kind) {
      case FileKind::Ras:
        if (!read_.ras.empty()) return Error{path + ": a second text of RAS; name one"};
        read_.ras = text.value();
        read_.ras_path = path;
        return {};
      case FileKind::Dump:
        return add_dumps(text.value(), path);
      case FileKind::Kineto:
        return add_kineto(text.value(), path);
      case FileKind::Spans:
        spans_.push_back({path, std::move(text).value()});
        return {};
      case FileKind::Nsys:
      case FileKind::Trace:
        break;
    }
    return {};
  }

  Result<DoctorFiles> take() {
    if (!spans_.empty()) {
      if (const Result<> known = need_families(); !known) return known.error();
      Result<std::vector<viz::RankProfile>> profiles = viz::span_profiles(spans_, read_.families);
      if (!profiles) return profiles.error();
      read_.profiles = std::move(profiles).value();
    }
    // One profile that says no rank is the job's only one.
    if (read_.profiles.size() == 1 && read_.profiles.front().rank < 0) {
      read_.profiles.front().rank = 0;
    }
    return std::move(read_);
  }

 private:
  // All files are of one kind.
  Result<> keep(FileKind kind, const std::string& path) {
    if (!kind_) {
      kind_ = kind;
      first_ = path;
    }
    if (kind == *kind_) return {};
    return Error{path + ": " + std::string(kKindWords[static_cast<std::size_t>(kind)]) + ", and " +
                 first_ + " is " + std::string(kKindWords[static_cast<std::size_t>(*kind_)]) +
                 ": name files of one kind"};
  }

  static std::string beginning(const std::string& path) {
    std::string begin(16, '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
    begin.resize(static_cast<std::size_t>(file.gcount()));
    return begin;
  }

  static Result<> not_known(const std::string& text, const std::string& path) {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && (text[first] == '{' || text[first] == '[')) {
      if (const Result<JsonValue> document = parse_json(text, path); !document) {
        return document.error();  // where it is broken
      }
    }
    return Error{path +
                 ": neither a profile (PyTorch's, a trace of ours) nor a dump of PyTorch's "
                 "Flight Recorder (JSON with \"entries\") nor text of NCCL's RAS"};
  }

  Result<> add_dumps(const std::string& text, const std::string& path) {
    if (static_cast<std::int64_t>(text.size()) > kMostDump) {
      return Error{path + ": more than " + std::to_string(kMostDump) + " bytes: no dump is"};
    }
    const Result<JsonValue> document = parse_json(text, path);
    if (!document) return document.error();
    Result<std::vector<viz::Dump>> dumps = viz::read_dumps(document.value(), path);
    if (!dumps) return dumps.error();
    std::ranges::move(dumps.value(), std::back_inserter(read_.dumps));
    return {};
  }

  Result<> need_families() {
    if (read_.families.size() > 0) return {};
    Result<viz::Families> families = viz::Families::read();
    if (!families) return families.error();
    read_.families = std::move(families).value();
    return {};
  }

  Result<> add_kineto(const std::string& text, const std::string& path) {
    if (const Result<> known = need_families(); !known) return known;
    Result<viz::RankProfile> profile = viz::kineto_profile(text, path, read_.families);
    if (!profile) return profile.error();
    read_.profiles.push_back(std::move(profile).value());
    return {};
  }

  Result<> add_nsys(const std::string& path) {
    if (const Result<> known = need_families(); !known) return known;
    Result<std::vector<viz::RankProfile>> profiles = viz::nsys_profiles(path, read_.families);
    if (!profiles) return profiles.error();
    std::ranges::move(profiles.value(), std::back_inserter(read_.profiles));
    return {};
  }

  Result<> add_trace(const std::string& path) {
    const Result<Trace> trace = read_trace(path);
    if (!trace) return trace.error();
    std::ranges::move(viz::trace_profiles(trace.value(), path), std::back_inserter(read_.profiles));
    return {};
  }

  DoctorFiles read_;
  std::vector<viz::SpanFile> spans_;
  std::optional<FileKind> kind_;
  std::string first_;
};

}  // namespace

Result<DoctorFiles> read_doctor_files(const std::vector<std::string>& named) {
  const Result<std::vector<std::string>> files = files_of(named);
  if (!files) return files.error();
  Reading reading;
  for (const std::string& path : files.value()) {
    if (const Result<> added = reading.add(path); !added) return added.error();
  }
  return reading.take();
}

}  // namespace rehearse::cli
