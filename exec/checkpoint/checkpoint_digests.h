// SPDX-License-Identifier: Apache-2.0
// The sums by which a checkpoint's files are recognised as what was written: in state.json, per
// file its header (of an index: all of it) and every tensor's bytes.
//
// Files of version 0.1 have none and are read without.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "exec/checkpoint/tensor_files.h"
#include "schedules/base/json_reader.h"

namespace rehearse::exec {

// So much of a file is in memory while it is read [B].
inline constexpr std::size_t kDigestPiece = std::size_t{1} << 24;

struct FileDigest {
  std::uint32_t header = 0;
  std::map<std::string, std::uint32_t, std::less<>> tensors;
};
using Digests = std::map<std::string, FileDigest, std::less<>>;  // by the file's name

// Adds the digests of STEM's files in a folder, as they lie there.
Result<> add_digests(const std::string& folder, const std::string& stem, Digests& digests);

std::string digests_json(const Digests& digests);
// `value`: what digests_json wrote, in the file `path`.
Result<Digests> read_digests(const JsonValue& value, const std::string& path);

// Whether the file (or index) is as it was written; tensors' bytes are not looked at. Errors:
// "FILE: header: ...", a file or tensor without a sum.
Result<> check_header(const SafetensorsFile& file, const Digests& digests);
Result<> check_index(const std::string& path, const Digests& digests);
// Whether a tensor's bytes are. REQUIRES: check_header() was content with the file.
Result<> check_tensor(const SafetensorsFile& file, const TensorInfo& tensor,
                      const Digests& digests);

// `text` with a last member "digest": the sum of all that stands before it. `text` is one object.
std::string with_own_digest(std::string text);
// Error: text that with_own_digest() did not write so. Text without the member is content where
// `required` is false.
Result<> check_own_digest(std::string_view text, const std::string& path, bool required);

}  // namespace rehearse::exec
