// SPDX-License-Identifier: Apache-2.0
// rehearse doctor: why a job stands still, from what its ranks left behind.
#include "cli/trace/doctor.h"

#include <algorithm>
#include <filesystem>

#include "cli/commands.h"
#include "schedules/base/json_reader.h"
#include "viz/hang/hang.h"

namespace rehearse::cli {
namespace {

struct DoctorOptions {
  std::vector<std::string> traces;
  std::string scenario;
  bool json = false;
};

constexpr std::int64_t kMostDump = std::int64_t{1} << 28;  // [B]

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

// What is in a file that doctor does not take; empty: it may be JSON or text.
std::string not_taken(std::string_view text) {
  if (text.starts_with('\x80') || text.starts_with("PK")) {
    return "a pickle; nothing is unpickled here: docs/flight_recorder_json.py FILE... writes it as "
           "JSON";
  }
  if (text.starts_with("SQLite format 3")) {
    return "profiles of Nsight Systems are not built yet";
  }
  if (text.starts_with("\x1f\x8b") || text.find("\"traceEvents\"") != std::string_view::npos ||
      text.find("\"resourceSpans\"") != std::string_view::npos) {
    return "profiles are not built yet; explain takes them";
  }
  return {};
}

struct Read {
  std::vector<viz::Dump> dumps;
  std::string ras, ras_path;  // empty: none
};

Result<> read_file(const std::string& path, Read& read) {
  const Result<std::string> text = read_text_file(path, kMostDump);
  if (!text) return text.error();
  if (const std::string reason = not_taken(text.value()); !reason.empty()) {
    return Error{path + ": " + reason};
  }
  if (viz::is_ras(text.value())) {
    if (!read.ras.empty()) return Error{path + ": a second text of RAS; name one"};
    read.ras = text.value();
    read.ras_path = path;
    return {};
  }
  const Result<JsonValue> document = parse_json(text.value(), path);
  if (!document) return document.error();
  if (!viz::is_dump(document.value())) {
    return Error{path +
                 ": neither a dump of PyTorch's Flight Recorder (JSON with \"entries\") nor "
                 "text of NCCL's RAS"};
  }
  Result<std::vector<viz::Dump>> dumps = viz::read_dumps(document.value(), path);
  if (!dumps) return dumps.error();
  for (viz::Dump& dump : std::move(dumps).value()) read.dumps.push_back(std::move(dump));
  return {};
}

int doctor(const DoctorOptions& options) {
  if (!options.scenario.empty()) {
    return fail(
        "doctor: --scenario puts a prediction beside a profile, and profiles are not built "
        "yet");
  }
  const Result<std::vector<std::string>> files = files_of(options.traces);
  if (!files) return fail(files.error());
  Read read;
  for (const std::string& path : files.value()) {
    if (const Result<> taken = read_file(path, read); !taken) return fail(taken.error());
  }
  if (!read.dumps.empty() && !read.ras.empty()) {
    return fail("doctor: " + read.ras_path +
                ": RAS counts a communicator's ranks, dumps the job's: "
                "name the one or the other");
  }
  const Result<viz::Hang> hang = read.ras.empty() ? viz::find_hang(std::move(read.dumps))
                                                  : viz::find_hang_in_ras(read.ras, read.ras_path);
  if (!hang) return fail("doctor: " + hang.error().message);
  print_text(options.json ? viz::hang_json(hang.value()) : viz::hang_text(hang.value()));
  return kDone;
}

}  // namespace

Command doctor_command() {
  const auto o = std::make_shared<DoctorOptions>();
  Command command{"doctor", "why a job hangs: who is missing, in which call, who waits for it"};
  command.options = {
      required({"TRACE", &o->traces,
                "dumps of PyTorch's Flight Recorder as JSON (files, or a folder), or text of "
                "NCCL's RAS"}),
      {"--scenario", &o->scenario, "of a profile: the prediction beside it; not built yet"},
      {"--json", &o->json, "one JSON document on stdout"},
  };
  command.footer = "Example: rehearse doctor tests/data/hangs/order";
  command.perform = [o](const Given&) { return doctor(*o); };
  return command;
}

}  // namespace rehearse::cli
