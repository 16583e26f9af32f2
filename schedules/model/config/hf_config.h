// SPDX-License-Identifier: Apache-2.0
// Reads Hugging Face's config.json, in the dialects of dialects/hf_dialects.cc, into a Transformer.
//
// A file is taken unchanged: what has no meaning for cost or training is ignored, what is left out
// has Hugging Face's default for its model_type. A key within two edits of one that the dialect
// knows and the file lacks is refused as a typing mistake; so is a model_type that we do not know.
// A file may describe several models (gemma3): then the language model is read, its text_config.
// Keys that `run` does not perform are taken and listed (config_keys.h).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "schedules/base/json_reader.h"
#include "schedules/model/config/config_keys.h"
#include "schedules/model/model.h"

namespace rehearse {

struct ModelFile {
  Transformer model;
  ConfigUse use;
};
Result<ModelFile> read_model_file(const std::string& path);
// An object inside another file: `key` is its key path there ("model"), "" for a whole file.
// On failure the report has the error and the result is meaningless.
ModelFile parse_model_file(const JsonValue& object, const std::string& name, const std::string& key,
                           JsonReport& report);

// The model alone.
Result<Transformer> read_transformer(const std::string& path);
Transformer parse_transformer(const JsonValue& object, const std::string& name,
                              const std::string& key, JsonReport& report);

// The model types of the dialects; mapped_types() (kinds/mapping.h) are the rest that can be read.
std::span<const std::string_view> known_model_types();

}  // namespace rehearse
