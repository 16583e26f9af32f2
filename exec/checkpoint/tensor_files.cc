// SPDX-License-Identifier: Apache-2.0
#include "exec/checkpoint/tensor_files.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

#include "schedules/base/json_reader.h"

namespace rehearse::exec {
namespace {
namespace fs = std::filesystem;

const std::string kFile = ".safetensors", kIndex = ".safetensors.index.json";

std::string shard_name(const std::string& stem, std::size_t number, std::size_t count) {
  char text[32];
  std::snprintf(text, sizeof text, "-%05zu-of-%05zu", number + 1, count);
  return stem + text + kFile;
}

}  // namespace

std::string TensorFiles::find(const std::string& folder, const std::string& stem) {
  std::error_code none;
  for (const std::string& ending : {kFile, kIndex}) {
    std::string path = folder + '/' + stem + ending;
    if (fs::exists(path, none)) return path;
  }
  return {};
}

Result<TensorFiles> TensorFiles::open(const std::string& path, const Check& check) {
  TensorFiles made;
  made.path_ = path;
  const auto add = [&](const std::string& name) -> Result<> {
    Result<SafetensorsFile> file = SafetensorsFile::open(name);
    if (!file) return file.error();
    if (const Result<> good = check ? check(file.value()) : Result<>(); !good) return good;
    made.files_.push_back(std::move(file).value());
    return {};
  };
  if (!path.ends_with(".json")) {
    if (const Result<> added = add(path); !added) return added.error();
    return made;
  }
  const Result<JsonValue> read = read_json(path);
  if (!read) return read.error();
  const JsonValue* map = read.value().given("weight_map");
  if (map == nullptr || !map->is(JsonKind::Object))
    return json_error(path, 0, "weight_map", "is missing");
  std::set<std::string> names;
  for (const JsonMember& entry : map->members) {
    // A name in this folder that an error can print on its line.
    const auto odd = [](char c) { return c == '/' || static_cast<unsigned char>(c) < ' '; };
    const bool plain = entry.value.is(JsonKind::String) && !entry.value.text.empty() &&
                       std::ranges::none_of(entry.value.text, odd);
    if (!plain) return json_error(path, entry.line, "weight_map." + entry.key, "not a file's name");
    names.insert(entry.value.text);
  }
  std::map<std::string, std::size_t> number;
  for (const std::string& name : names) {
    number[name] = made.files_.size();
    const Result<> added = add((fs::path(path).parent_path() / name).string());
    if (!added) return added.error();
  }
  for (const JsonMember& entry : map->members) {
    const SafetensorsFile& file = made.files_[number[entry.value.text]];
    if (file.find(entry.key) == nullptr) {
      return json_error(path, entry.line, "weight_map." + entry.key, "not in " + entry.value.text);
    }
  }
  return made;
}

std::vector<TensorFiles::Tensor> TensorFiles::tensors() const {
  std::vector<Tensor> all;
  for (const SafetensorsFile& file : files_) {
    for (const TensorInfo& info : file.tensors()) all.push_back({&file, &info});
  }
  return all;
}

Result<TensorFilesWriter> TensorFilesWriter::open(bool create, const std::string& folder,
                                                  const std::string& stem,
                                                  const std::vector<TensorInfo>& tensors,
                                                  std::int64_t shard_bytes) {
  TensorFilesWriter made;
  std::vector<std::vector<TensorInfo>> shards(1);
  std::int64_t held = 0, total = 0;
  for (const TensorInfo& tensor : tensors) {
    const std::int64_t bytes = tensor.elements() * 4;
    if (held > 0 && held + bytes > shard_bytes) {
      shards.emplace_back();
      held = 0;
    }
    made.at_.push_back({shards.size() - 1, shards.back().size()});
    shards.back().push_back(tensor);
    held += bytes;
    total += bytes;
  }
  std::string map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1 ? stem + kFile : shard_name(stem, i, shards.size());
    for (const TensorInfo& tensor : shards[i]) {
      map += (map.empty() ? "" : ",") + ("\n    " + json_quoted(tensor.name)) + ": " +
             json_quoted(name);
    }
    const Metadata metadata{{"format", "pt"}};  // Hugging Face's loader refuses a file without it
    const auto opened = create ? SafetensorsWriter::create : SafetensorsWriter::join;
    Result<SafetensorsWriter> file = opened(folder + '/' + name, std::move(shards[i]), metadata);
    if (!file) return file.error();
    made.files_.push_back(std::move(file).value());
  }
  if (shards.size() > 1) {
    made.index_path_ = folder + '/' + stem + kIndex;
    made.index_ = "{\n  \"metadata\": {\"total_size\": " + std::to_string(total) +
                  "},\n  \"weight_map\": {" + map + "\n  }\n}\n";
  }
  return made;
}

void TensorFilesWriter::write(std::size_t tensor, std::int64_t first, std::int64_t count,
                              const float* data, std::int64_t stride) {
  const At& at = at_[tensor];
  files_[at.file].write(at.tensor, first, count, data, stride);
}

Result<> TensorFilesWriter::finish() {
  Result<> first;
  for (SafetensorsWriter& file : files_) {
    const Result<> done = file.finish();
    if (!done && first) first = done;
  }
  return first;
}

}  // namespace rehearse::exec
