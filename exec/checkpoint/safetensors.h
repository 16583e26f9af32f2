// SPDX-License-Identifier: Apache-2.0
// safetensors files (github.com/huggingface/safetensors, README.md, "Format"): eight bytes with the
// length N of the header, little-endian; N bytes of JSON, {name: {dtype, shape, data_offsets}} and
// `__metadata__`, strings by strings; then the data, without holes.
//
// Read through a memory map, F16 and BF16 converted; written as F32, by any number of processes
// that each write the elements they have. Not here: which tensors a model has (hugging_face.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"

namespace rehearse::exec {

struct TensorInfo {
  std::string name;
  std::string type = "F32";  // the format's word
  std::vector<std::int64_t> shape{};
  std::int64_t begin = 0, end = 0;  // [B from the file's beginning]

  std::int64_t elements() const;
};
std::string shape_text(std::span<const std::int64_t> shape);  // "[2, 3]"

using Metadata = std::map<std::string, std::string>;

struct Unmap {
  std::size_t bytes = 0;
  void operator()(const std::byte* memory) const;
};

class SafetensorsFile {
 public:
  // Errors: "FILE: TENSOR: what". Refused: what is no regular file (a pipe is not waited for), a
  // header longer than the file or than 100 MB, what is
  // not its JSON, a name twice, an unknown type, offsets that are not the shape's bytes, that
  // overlap, leave a hole or end elsewhere than the file.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // by place in the file
  const Metadata& metadata() const { return metadata_; }
  const TensorInfo* find(std::string_view name) const;  // nullptr: none
  std::span<const std::byte> header() const { return {memory_.get(), header_bytes_}; }
  std::span<const std::byte> bytes(const TensorInfo& tensor) const {
    return {memory_.get() + tensor.begin, static_cast<std::size_t>(tensor.end - tensor.begin)};
  }
  // The types that read() converts.
  static bool readable(const TensorInfo& tensor);
  // out[i * stride] is element first + i, i < count. REQUIRES: readable(tensor), within it.
  void read(const TensorInfo& tensor, std::int64_t first, std::int64_t count, float* out,
            std::int64_t stride) const;
  // Pages of the file that were read leave this process's memory; they are read again if need be.
  void forget() const;

 private:
  std::string path_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  Metadata metadata_;
  std::size_t header_bytes_ = 0;  // all before the tensors
  std::unique_ptr<const std::byte[], Unmap> memory_;
};

inline constexpr std::int64_t kFileBuffer = 1 << 20;  // [B] gathered before they are written

// Writes elements of an F32 file, in any order, from any number of processes.
class SafetensorsWriter {
 public:
  // Makes the file in its final size, with its header, in the place of an older one. The tensors
  // lie in the given order. Errors (of all calls): "FILE: cannot write: what the machine says".
  static Result<SafetensorsWriter> create(const std::string& path, std::vector<TensorInfo> tensors,
                                          const Metadata& metadata);
  // Opens what another process has created with the same arguments.
  static Result<SafetensorsWriter> join(const std::string& path, std::vector<TensorInfo> tensors,
                                        const Metadata& metadata);
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();

  // Element first + i of tensor number `tensor` is data[i * stride], i < count.
  void write(std::size_t tensor, std::int64_t first, std::int64_t count, const float* data,
             std::int64_t stride);
  // What was written lies on the disk. The first error of all writes.
  Result<> finish();

 private:
  SafetensorsWriter(const std::string& path, std::vector<TensorInfo> tensors);
  void flush();
  void fail();

  std::string path_;
  std::vector<TensorInfo> tensors_;
  int file_ = -1;
  std::vector<float> waiting_;   // the bytes from waiting_at_ on
  std::int64_t waiting_at_ = 0;  // [B]
  std::string failure_;
};

}  // namespace rehearse::exec
