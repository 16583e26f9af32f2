// SPDX-License-Identifier: Apache-2.0
#include "exec/weights/hugging_face.h"

#include <algorithm>
#include <cstdlib>

#include "exec/weights/dialect_names.h"

namespace rehearse::exec {
namespace {

// Products of layers as Conv1D has them: [in, out].
bool is_conv1d(const Transformer& model, const ModelPart& part) {
  return dialect_names(model).conv1d && part.matrix() &&
         (part.cut == Cut::Rows || part.cut == Cut::Columns);
}

std::string replaced(std::string name, std::string_view part, std::string_view by) {
  return name.replace(name.find(part), part.size(), by);
}

// Where a file that goes head by head, [head][q, k, v], has row `row` of ours, [q, k, v][head].
std::int64_t row_per_head(const Transformer& model, std::int64_t row) {
  const std::int64_t d = model.head_dim, all = model.heads * d;
  const std::int64_t part = row / all, head = row % all / d;
  return (3 * head + part) * d + row % d;
}

// Consecutive rows of one rank's part that are consecutive rows of one file tensor.
struct RowBlock {
  std::size_t tensor = 0;
  std::int64_t local = 0;         // first element of the part
  std::int64_t row = 0, col = 0;  // in the file tensor, before it is transposed
  std::int64_t rows = 1;
};

}  // namespace

std::vector<FileTensor> file_tensors(const Layout& layout, const TensorPlace& place) {
  const Transformer& model = layout.model;
  const ParameterRole role = place.what.role;
  const ModelPart& part = place.part;
  std::vector<FileTensor> tensors;
  std::int64_t row = 0;
  const auto add = [&](const std::string& name, std::int64_t rows) {
    FileTensor tensor{.name = name,
                      .row_begin = row,
                      .rows = rows,
                      .cols = part.in,
                      .transposed = is_conv1d(model, part)};
    if (!part.matrix()) {
      tensor.shape = {rows};
    } else if (tensor.transposed) {
      tensor.shape = {part.in, rows};
    } else {
      tensor.shape = {rows, part.in};
    }
    tensors.push_back(std::move(tensor));
    row += rows;
  };
  const DialectNames names = dialect_names(model);
  if (names.qkv == QkvForm::Apart && role == ParameterRole::Qkv) {
    add(replaced(place.name, "qkv_proj", "q_proj"), part.blocks[0]);
    add(replaced(place.name, "qkv_proj", "k_proj"), part.blocks[1]);
    add(replaced(place.name, "qkv_proj", "v_proj"), part.blocks[2]);
  } else if (names.gate_apart && !part.expert && part.matrices == 2) {
    add(replaced(place.name, "gate_up_proj", "gate_proj"), part.blocks[0]);
    add(replaced(place.name, "gate_up_proj", "up_proj"), part.blocks[1]);
  } else if (part.expert && names.experts_form != ExpertsForm::Each) {
    const std::int64_t experts = part.copies, rows = part.out;
    const std::string stem = place.name.substr(0, place.name.rfind('.'));
    add(stem + (place.what.bias ? "_bias" : ""), part.rows());
    FileTensor& all = tensors.back();
    all.blocks = experts;
    all.transposed = !place.what.bias;
    all.shape = {experts, part.in, rows};
    if (place.what.bias) all.shape = {experts, rows};
  } else if (part.expert) {
    const std::string before = place.name.substr(0, place.name.find("mlp.experts."));
    const std::int64_t rows = part.out;
    for (std::int64_t e = 0; e < model.experts.count; ++e) {
      const auto one = [&](std::string_view matrix, std::int64_t of) {
        add(before + std::string(names.experts) + std::to_string(e) + '.' + std::string(matrix) +
                ".weight",
            of);
      };
      if (role == ParameterRole::ExpertDown) {
        one(names.expert_down, rows);
        continue;
      }
      if (part.matrices == 1) {
        one(names.expert_up, rows);
        continue;
      }
      one(names.expert_gate, rows / 2);
      one(names.expert_up, rows / 2);
    }
  } else {
    // With a head of its own in the file, Hugging Face's loader wants the base model under its
    // name.
    const bool under = !names.base_written && !model.tied_embedding && role != ParameterRole::Head;
    add((under ? std::string(names.base) : "") + place.name, part.rows());
    tensors.back().per_head = names.qkv == QkvForm::PerHead && role == ParameterRole::Qkv &&
                              model.kv_heads == model.heads;
  }
  return tensors;
}

std::string_view file_prefix(const Transformer& model) {
  return dialect_names(model).base;
}

namespace {

// A layer behind the model's own, which predicts further tokens: we have none, nor has
// transformers.
bool is_of_prediction_layer(const Transformer& model, std::string_view name) {
  const std::string_view layers = dialect_names(model).layers;
  const std::size_t at = name.find(layers);
  if (model.prediction_layers == 0 || at == std::string_view::npos) return false;
  const std::int64_t layer = std::atoll(std::string(name.substr(at + layers.size())).c_str());
  return layer >= model.layers && layer < model.layers + model.prediction_layers;
}

}  // namespace

bool is_buffer(const Transformer& model, std::string_view name) {
  return is_of_prediction_layer(model, name) || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq") ||
         name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias") ||
         (model.tied_embedding &&
          name == std::string(dialect_stem(model, ParameterRole::Head)) + ".weight");
}

std::vector<CorrectionTensor> correction_tensors(const Transformer& model) {
  std::vector<CorrectionTensor> tensors;
  const DialectNames names = dialect_names(model);
  for (std::int64_t layer = 0; model.experts.correction_bias && layer < model.layers; ++layer) {
    if (!model.has_experts(layer)) continue;
    tensors.push_back(
        {std::string(names.layers) + std::to_string(layer) + '.' + std::string(names.correction),
         layer});
  }
  return tensors;
}

void for_each_run(const Layout& layout, const TensorPlace& place,
                  const std::vector<FileTensor>& tensors, std::int32_t coordinate,
                  std::int64_t first, std::int64_t last,
                  const std::function<void(const FileRun&)>& visit) {
  const ModelPart& part = place.part;
  const std::int64_t width = part_columns(layout, place);
  const bool transposed = tensors.front().transposed;
  // Columns [begin, end) of a block of rows.
  const auto emit = [&](const RowBlock& block, std::int64_t begin, std::int64_t end) {
    const FileTensor& tensor = tensors[block.tensor];
    const std::int64_t height = tensor.rows / tensor.blocks;
    FileRun run{.tensor = block.tensor};
    if (transposed) {
      run.stride = width;
      run.count = block.rows;
      for (std::int64_t c = begin; c < end; ++c) {
        run.element =
            (block.row / height * tensor.cols + block.col + c) * height + block.row % height;
        run.local = block.local + c;
        visit(run);
      }
      return;
    }
    const bool joined = end - begin == tensor.cols;  // whole rows lie one after another
    run.count = joined ? block.rows * tensor.cols : end - begin;
    for (std::int64_t r = 0; r < (joined ? 1 : block.rows); ++r) {
      run.element = (block.row + r) * tensor.cols + block.col + begin;
      run.local = block.local + r * width + begin;
      visit(run);
    }
  };
  // The file tensor and place of the row that starts at local element `at`; rows 0: padding.
  const auto row_at = [&](std::int64_t at) {
    RowBlock block{.local = at, .rows = 0};
    const std::int64_t element = whole_element(layout, place, coordinate, at);
    if (element < 0) return block;
    const std::int64_t row = element / part.in;
    while (row >= tensors[block.tensor].row_begin + tensors[block.tensor].rows) ++block.tensor;
    block.row = row - tensors[block.tensor].row_begin;
    if (tensors[block.tensor].per_head) block.row = row_per_head(layout.model, block.row);
    block.col = element % part.in;
    block.rows = 1;
    return block;
  };
  RowBlock open{.rows = 0};
  const auto close = [&] {
    if (open.rows > 0) emit(open, 0, width);
    open.rows = 0;
  };
  for (std::int64_t at = first; at < last;) {
    const std::int64_t row_begin = at / width * width, row_end = row_begin + width;
    const std::int64_t begin = at - row_begin, end = std::min(last, row_end) - row_begin;
    const RowBlock row = row_at(row_begin);
    const bool full = row.rows > 0 && begin == 0 && end == width;
    const bool goes_on = full && open.rows > 0 && open.tensor == row.tensor &&
                         open.row + open.rows == row.row && open.col == row.col &&
                         row.row % (tensors[row.tensor].rows / tensors[row.tensor].blocks) != 0;
    if (goes_on) {
      ++open.rows;
    } else {
      close();
      if (full) {
        open = row;
      } else if (row.rows > 0) {
        emit(row, begin, end);
      }
    }
    at = row_begin + end;
  }
  close();
}

}  // namespace rehearse::exec
