// SPDX-License-Identifier: Apache-2.0
// A model's tensors as Hugging Face's files have them: names, shapes, and which element is which.
//
// Ours are [out, in], with q, k, v and gate, up in one. GPT-2's files keep its four products the
// other way round (Conv1D, [in, out]) under names without `transformer.` where the table is tied;
// GPT-NeoX's and Bloom's go head by head; most others keep q_proj, k_proj, v_proj apart, some
// gate_proj and up_proj too, and every expert's matrices; or all experts' in one tensor, (experts,
// in, out) (dialect_names.h). Dialects that are not executed have our own layout.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/weights/parameters.h"

namespace rehearse::exec {

// Rows [row_begin, row_begin + rows) of a whole tensor ([part.rows(), part.in]), as one tensor of a
// file.
struct FileTensor {
  std::string name;
  std::vector<std::int64_t>
      shape{};  // of the file: (rows, cols), (cols, rows) transposed, or (rows)
  std::int64_t row_begin = 0, rows = 0, cols = 1;
  bool transposed = false;
  bool per_head = false;  // its rows are a head's query, key and value, then the next head's
  // Its rows are so many equal blocks, one for each expert. Transposed: each by itself.
  std::int64_t blocks = 1;
};
std::vector<FileTensor> file_tensors(const Layout& layout, const TensorPlace& place);

// What stands before a base model's names in files of the model with its head; may be left out.
std::string_view file_prefix(const Transformer& model);
// Whether files may carry it though we read none of it: causal masks, rotary frequencies, the head
// of a tied table, prediction layers.
bool is_buffer(const Transformer& model, std::string_view name);

// The fp32 vectors of files, one number an expert, that routers add where they choose: no
// parameters, and trained otherwise. None: the model has no such routers.
struct CorrectionTensor {
  std::string name;
  std::int64_t layer = 0;
};
std::vector<CorrectionTensor> correction_tensors(const Transformer& model);

// `count` elements of file tensor number `tensor` from `element` on are the local elements `local`,
// `local + stride`, ... of one rank's part.
struct FileRun {
  std::size_t tensor = 0;
  std::int64_t element = 0, local = 0, stride = 1, count = 0;
};
// The local elements [first, last) of part `coordinate` (parameters.h), but for the vocabulary's
// padding.
void for_each_run(const Layout& layout, const TensorPlace& place,
                  const std::vector<FileTensor>& tensors, std::int32_t coordinate,
                  std::int64_t first, std::int64_t last,
                  const std::function<void(const FileRun&)>& visit);

}  // namespace rehearse::exec
