// SPDX-License-Identifier: Apache-2.0
// The tensors that the files of a mapped model have.
#include <algorithm>
#include <optional>

#include "schedules/model/kinds/mapped_layers.h"

namespace rehearse {
namespace {

class TensorLister : public MappedLayers {
 public:
  using MappedLayers::MappedLayers;

  std::vector<FileTensor> tensors() {
    read_layers();
    read_outer();
    std::vector<FileTensor> all;
    if (!ok()) return all;
    const std::int64_t h = hidden(), vocabulary = vocabulary_size();
    add_outer(all, "embedding", {vocabulary, h}, false);
    for (const ChosenKind& chosen : at_embedding_) add_kind(all, "", chosen, chosen.number);
    for (std::size_t i = 0; i < layers_.size(); ++i) add_layer(all, static_cast<std::int64_t>(i));
    for (const ChosenKind& chosen : at_head_) add_kind(all, "", chosen, chosen.number);
    add_outer(all, "final_norm", {h}, true);
    if (!tied()) add_outer(all, "head", {vocabulary, h}, false);
    return all;
  }

 private:
  void add(std::vector<FileTensor>& all, const std::string& name, std::vector<std::int64_t> shape,
           std::optional<std::int64_t> layer) {
    const auto same = std::ranges::find_if(
        all, [&](const FileTensor& other) { return other.name == name && other.shape == shape; });
    if (same != all.end()) {
      if (layer) same->layers.push_back(*layer);
      return;
    }
    FileTensor tensor{.name = name, .shape = std::move(shape), .layers = {}};
    if (layer) tensor.layers.push_back(*layer);
    all.push_back(std::move(tensor));
  }

  void add_norm(std::vector<FileTensor>& all, const std::string& name,
                std::optional<std::int64_t> layer) {
    add(all, name + ".weight", {hidden()}, layer);
    const JsonValue* bias = mapping().given("stream")->given("norm_bias");
    if (bias != nullptr && bias->boolean) add(all, name + ".bias", {hidden()}, layer);
  }

  void add_outer(std::vector<FileTensor>& all, const char* key, std::vector<std::int64_t> shape,
                 bool norm) {
    const std::string name = text_of(key);
    if (norm) return add_norm(all, name, {});
    add(all, name + ".weight", std::move(shape), {});
  }

  void add_kind(std::vector<FileTensor>& all, const std::string& base, const ChosenKind& chosen,
                std::optional<std::int64_t> layer) {
    const Result<std::vector<NamedShape>> shapes = tensor_shapes(chosen.bound, chosen.words);
    if (!shapes) return fail("model_type", shapes.error().message);
    const std::string module = chosen.module.empty() ? base : base + chosen.module + ".";
    for (const NamedShape& shape : shapes.value())
      add(all, module + shape.name, shape.shape, layer);
  }

  void add_layer(std::vector<FileTensor>& all, std::int64_t layer) {
    const std::string base = text_of("layer_name") + ".";
    for (const LayerBlock& block : layers_[static_cast<std::size_t>(layer)]) {
      for (const std::string& norm : block.norms) add_norm(all, base + norm, layer);
      for (const ChosenKind& chosen : block.chosen) add_kind(all, base, chosen, layer);
      for (const std::string& norm : block.norms_after) add_norm(all, base + norm, layer);
    }
  }
};

}  // namespace

Result<std::vector<FileTensor>> mapped_tensors(const Mapping& mapping, const JsonValue& object,
                                               const std::string& path) {
  JsonReport report(path);
  std::vector<FileTensor> tensors = TensorLister(mapping, object, "", report).tensors();
  if (!report.ok()) return report.error();
  return tensors;
}

}  // namespace rehearse
