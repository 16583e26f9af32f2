// SPDX-License-Identifier: Apache-2.0
// Tensors in one safetensors file, STEM.safetensors, or where they are many in several with an
// index as Hugging Face writes it: STEM-00001-of-00002.safetensors, ...,
// STEM.safetensors.index.json.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "exec/checkpoint/safetensors.h"

namespace rehearse::exec {

class TensorFiles {
 public:
  // `path`: a safetensors file or an index. `check` sees each file as soon as it is open; the first
  // error is the answer. Errors: of the files, "INDEX: TENSOR: not in FILE".
  using Check = std::function<Result<>(const SafetensorsFile&)>;
  static Result<TensorFiles> open(const std::string& path, const Check& check = {});
  // STEM.safetensors in `folder`, or its index; empty where there is neither.
  static std::string find(const std::string& folder, const std::string& stem);

  struct Tensor {
    const SafetensorsFile* file = nullptr;
    const TensorInfo* info = nullptr;
  };
  std::vector<Tensor> tensors() const;
  // What was read so far need not stay in this process's memory.
  void forget() const {
    for (const SafetensorsFile& file : files_) file.forget();
  }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<SafetensorsFile> files_;
};

inline constexpr std::int64_t kShardBytes = 5'000'000'000;  // Hugging Face's "5GB"

class TensorFilesWriter {
 public:
  // Creates the files of `folder`, or opens those that another process has created with the same
  // arguments. A file holds at most `shard_bytes`, or one tensor.
  static Result<TensorFilesWriter> open(bool create, const std::string& folder,
                                        const std::string& stem,
                                        const std::vector<TensorInfo>& tensors,
                                        std::int64_t shard_bytes);
  // As SafetensorsWriter's; `tensor`: number in `tensors`.
  void write(std::size_t tensor, std::int64_t first, std::int64_t count, const float* data,
             std::int64_t stride);
  Result<> finish();
  // Path and text of the index; empty where there is one file.
  const std::string& index_path() const { return index_path_; }
  const std::string& index() const { return index_; }

 private:
  struct At {
    std::size_t file = 0, tensor = 0;
  };
  std::vector<SafetensorsWriter> files_;
  std::vector<At> at_;
  std::string index_path_, index_;
};

}  // namespace rehearse::exec
