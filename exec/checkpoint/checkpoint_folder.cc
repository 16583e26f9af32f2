// SPDX-License-Identifier: Apache-2.0
#include "exec/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <tuple>
#include <vector>

#include "exec/checkpoint/checkpoint_state.h"
#include "exec/checkpoint/tensor_files.h"
#include "schedules/base/json_reader.h"

namespace rehearse::exec {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp", kOld = ".old";

Result<> rename_to(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) return cannot_write(to);
  return {};
}

// "step-000020", "step-000020.tmp", "step-000020.old": the number; -1: another name.
std::int64_t step_of(std::string_view name) {
  constexpr std::string_view kStep = "step-";
  for (const std::string_view ending : {kTemporary, kOld}) {
    if (name.ends_with(ending)) name.remove_suffix(ending.size());
  }
  if (!name.starts_with(kStep)) return -1;
  name.remove_prefix(kStep.size());
  const bool number = !name.empty() && name.size() <= 18 &&
                      name.find_first_not_of("0123456789") == std::string_view::npos;
  return number ? std::stoll(std::string(name)) : -1;
}

// Folders of steps, in the order of their names.
std::vector<std::string> step_folders(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code none;
  for (fs::directory_iterator entry(directory, none), end; !none && entry != end;
       entry.increment(none)) {
    std::string name = entry->path().filename().string();
    std::error_code unknown;
    if (step_of(name) >= 0 && entry->is_directory(unknown)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

struct Step {
  std::string name;
  CheckpointHead head;
  bool named = false;  // by `latest`
  // Later is newer. Of one step the one with its final name, then the one that waited for it.
  auto order() const {
    const int finished = name.ends_with(kOld) ? 0 : name.ends_with(kTemporary) ? 1 : 2;
    return std::tuple(head.written, named, head.step, finished);
  }
};

// The name in `latest`; empty where there is none.
std::string read_latest(const std::string& directory) {
  const Result<std::string> read = read_text_file(directory + "/latest", 256);
  if (!read) return {};
  std::string name = read.value();
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

// The newest whole step of a directory; empty where it has none at all.
Result<std::optional<CheckpointPlace>> newest_step(const std::string& directory) {
  const std::string latest = read_latest(directory);
  std::optional<Step> best;
  struct Damage {
    std::int64_t step = 0;
    bool named = false;
    Error error;
  };
  std::vector<Damage> damaged;
  std::error_code none;
  for (const std::string& name : step_folders(directory)) {
    const std::string state = directory + '/' + name + "/state.json";
    if (!fs::exists(state, none)) continue;  // not written to its end
    Result<CheckpointHead> head = read_head(state);
    if (!head) {
      const bool final = !name.ends_with(kTemporary) && !name.ends_with(kOld);
      if (final) damaged.push_back({step_of(name), name == latest, head.error()});
      continue;
    }
    Step step{.name = name, .head = head.value(), .named = name == latest};
    if (!best || best->order() < step.order()) best = std::move(step);
  }
  for (const Damage& damage : damaged) {
    if (!best || damage.named || damage.step > best->head.step) return damage.error;
  }
  if (!best) return std::optional<CheckpointPlace>();
  CheckpointPlace found{.folder = directory + '/' + best->name};
  if (best->name != latest) {
    found.note = directory +
                 "/latest: " + (latest.empty() ? "is missing" : "names " + json_excerpt(latest)) +
                 "; the run goes on from " + best->name + ", the newest whole checkpoint there";
  }
  return std::optional(std::move(found));
}

}  // namespace

std::string step_name(std::int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%06lld", static_cast<long long>(step));
  return text;
}

Error cannot_write(const std::string& path) {
  return Error{path + ": cannot write: " + std::strerror(errno)};
}

Result<> sync_folder(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool done = folder >= 0 && fsync(folder) == 0;
  const Error error = cannot_write(path);
  if (folder >= 0) ::close(folder);
  if (!done) return error;
  return {};
}

Result<> write_synced(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  bool good = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
              std::fflush(file) == 0 && fsync(fileno(file)) == 0;
  const Error error = cannot_write(path);
  if (file != nullptr) good = std::fclose(file) == 0 && good;
  if (!good) return error;
  return {};
}

void remove_all(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

Result<> publish_step(const std::string& directory, const std::string& name) {
  const std::string final = directory + '/' + name, old = final + std::string(kOld),
                    temporary = final + std::string(kTemporary);
  std::error_code none;
  if (fs::exists(final, none)) {
    remove_all(old);
    if (const Result<> aside = rename_to(final, old); !aside) return aside;
  }
  if (const Result<> named = rename_to(temporary, final); !named) {
    if (fs::exists(old, none)) std::rename(old.c_str(), final.c_str());
    return named;
  }
  if (const Result<> synced = sync_folder(directory); !synced) return synced;
  const std::string latest = directory + "/latest";
  if (const Result<> written = write_synced(latest + ".tmp", name + '\n'); !written) return written;
  if (const Result<> named = rename_to(latest + ".tmp", latest); !named) return named;
  remove_all(old);
  return sync_folder(directory);
}

std::int64_t written_before(const std::string& directory) {
  constexpr std::string_view kKey = "\"written\": ";
  constexpr std::size_t kHead = 512;  // the key stands near the beginning
  std::int64_t most = 0;
  for (const std::string& name : step_folders(directory)) {
    std::ifstream in(directory + '/' + name + "/state.json", std::ios::binary);
    std::string head(kHead, '\0');
    in.read(head.data(), kHead);
    const std::size_t at = head.find(kKey);
    if (at == std::string::npos) continue;
    most = std::max<std::int64_t>(most, std::atoll(head.c_str() + at + kKey.size()));
  }
  return most;
}

Result<CheckpointPlace> locate_checkpoint(const std::string& path) {
  std::error_code none;
  if (!fs::exists(path, none)) return Error{path + ": no such file or folder"};
  if (!fs::is_directory(path, none)) return CheckpointPlace{.weights = path};
  if (fs::exists(path + "/state.json", none)) return CheckpointPlace{.folder = path};
  Result<std::optional<CheckpointPlace>> newest = newest_step(path);
  if (!newest) return newest.error();
  if (newest.value()) return *std::move(newest).value();
  if (fs::exists(path + "/latest", none)) {
    const std::string name = read_latest(path);
    if (std::ranges::count(step_folders(path), name) > 0) {
      return Error{path + '/' + name + "/state.json: is missing: no whole checkpoint"};
    }
    return Error{path + "/latest: names no checkpoint of this folder: " + json_excerpt(name)};
  }
  std::string weights = TensorFiles::find(path, "model");
  if (weights.empty())
    return Error{path + ": holds no checkpoint (no latest, state.json or model.safetensors)"};
  return CheckpointPlace{.weights = std::move(weights)};
}

}  // namespace rehearse::exec
