// SPDX-License-Identifier: Apache-2.0
#include "exec/checkpoint/checkpoint_digests.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "exec/checkpoint/crc32c.h"

namespace rehearse::exec {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kOwn = ",\n  \"digest\": \"";  // before the sum of state.json itself
constexpr std::string_view kEnd = "\"\n}\n";
constexpr std::int64_t kMaxIndex = std::int64_t{64} << 20;

std::string hex(std::uint32_t sum) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", sum);
  return text;
}

// A file's part, in pieces that do not stay in this process's memory.
std::uint32_t sum_of(const SafetensorsFile& file, std::span<const std::byte> bytes) {
  std::uint32_t sum = 0;
  while (!bytes.empty()) {
    const std::size_t piece = std::min(bytes.size(), kDigestPiece);
    sum = crc32c(bytes.first(piece), sum);
    bytes = bytes.subspan(piece);
    file.forget();
  }
  return sum;
}

std::uint32_t sum_of(std::string_view text) {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())));
}

Result<std::uint32_t> read_sum(const JsonValue& value, const std::string& path,
                               const std::string& key) {
  const std::string& text = value.text;
  const bool good = value.is(JsonKind::String) && text.size() == 8 &&
                    text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!good) return json_error(path, value.line, key, "not a sum of 8 hexadecimal digits");
  return static_cast<std::uint32_t>(std::stoul(text, nullptr, 16));
}

Error damaged(const std::string& path, const std::string& what, std::uint32_t found,
              std::uint32_t written) {
  return json_error(
      path, 0, what,
      "not as it was written: its CRC32C is " + hex(found) + ", state.json has " + hex(written));
}

std::string name_of(const std::string& path) {
  return fs::path(path).filename().string();
}

Result<const FileDigest*> digest_of(const std::string& path, const Digests& digests) {
  const auto at = digests.find(name_of(path));
  if (at == digests.end()) return json_error(path, 0, "", "state.json has no digest of it");
  return &at->second;
}

}  // namespace

Result<> add_digests(const std::string& folder, const std::string& stem, Digests& digests) {
  const std::string path = TensorFiles::find(folder, stem);
  const Result<TensorFiles> files = TensorFiles::open(path);
  if (!files) return files.error();
  if (path.ends_with(".json")) {
    const Result<std::string> index = read_text_file(path, kMaxIndex);
    if (!index) return index.error();
    digests[name_of(path)].header = sum_of(index.value());
  }
  for (const SafetensorsFile& file : files.value().files()) {
    FileDigest& digest = digests[name_of(file.path())];
    digest.header = crc32c(file.header());
    for (const TensorInfo& tensor : file.tensors()) {
      digest.tensors[tensor.name] = sum_of(file, file.bytes(tensor));
    }
    file.forget();
  }
  return {};
}

std::string digests_json(const Digests& digests) {
  std::string text = "{";
  for (const auto& [name, digest] : digests) {
    text += (text.size() > 1 ? ",\n    " : "\n    ") + json_quoted(name) +
            ": {\"header\": " + json_quoted(hex(digest.header)) + ", \"tensors\": {";
    bool first = true;
    for (const auto& [tensor, sum] : digest.tensors) {
      text +=
          (first ? "\n      " : ",\n      ") + json_quoted(tensor) + ": " + json_quoted(hex(sum));
      first = false;
    }
    text += "}}";
  }
  return text + '}';
}

Result<Digests> read_digests(const JsonValue& value, const std::string& path) {
  Digests digests;
  for (const JsonMember& file : value.members) {
    const std::string at = "crc32c." + file.key;
    const JsonValue* header = file.value.given("header");
    const JsonValue* tensors = file.value.given("tensors");
    if (header == nullptr || tensors == nullptr) {
      return json_error(path, file.line, at, "needs header and tensors");
    }
    FileDigest& digest = digests[file.key];
    const Result<std::uint32_t> sum = read_sum(*header, path, at + ".header");
    if (!sum) return sum.error();
    digest.header = sum.value();
    for (const JsonMember& tensor : tensors->members) {
      const Result<std::uint32_t> of = read_sum(tensor.value, path, at + ".tensors." + tensor.key);
      if (!of) return of.error();
      digest.tensors[tensor.key] = of.value();
    }
  }
  return digests;
}

Result<> check_header(const SafetensorsFile& file, const Digests& digests) {
  const Result<const FileDigest*> found = digest_of(file.path(), digests);
  if (!found) return found.error();
  const std::uint32_t sum = crc32c(file.header());
  if (sum != found.value()->header) {
    return damaged(file.path(), "header", sum, found.value()->header);
  }
  for (const TensorInfo& tensor : file.tensors()) {
    if (found.value()->tensors.contains(tensor.name)) continue;
    return json_error(file.path(), 0, tensor.name, "state.json has no digest of it");
  }
  return {};
}

Result<> check_index(const std::string& path, const Digests& digests) {
  const Result<const FileDigest*> found = digest_of(path, digests);
  if (!found) return found.error();
  const Result<std::string> index = read_text_file(path, kMaxIndex);
  if (!index) return index.error();
  const std::uint32_t sum = sum_of(index.value());
  if (sum != found.value()->header) return damaged(path, "", sum, found.value()->header);
  return {};
}

Result<> check_tensor(const SafetensorsFile& file, const TensorInfo& tensor,
                      const Digests& digests) {
  const Result<const FileDigest*> found = digest_of(file.path(), digests);
  if (!found) return found.error();
  const std::uint32_t written = found.value()->tensors.find(tensor.name)->second;
  const std::uint32_t sum = sum_of(file, file.bytes(tensor));
  if (sum != written) return damaged(file.path(), tensor.name, sum, written);
  return {};
}

std::string with_own_digest(std::string text) {
  text.erase(text.find_last_of('}'));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::string sum = hex(sum_of(text));
  return text.append(kOwn).append(sum).append(kEnd);
}

Result<> check_own_digest(std::string_view text, const std::string& path, bool required) {
  const std::size_t own = text.rfind(kOwn);
  if (own == std::string_view::npos && !required) return {};
  const std::string_view before = text.substr(0, own);
  const std::string expected = std::string(kOwn) + hex(sum_of(before)) + std::string(kEnd);
  if (own == std::string_view::npos || text.substr(own) != expected) {
    return json_error(path, 0, "digest", "the file is not as it was written");
  }
  return {};
}

}  // namespace rehearse::exec
