// SPDX-License-Identifier: Apache-2.0
// Which key of a config.json is which symbol of which layer kind: one file for a model_type
// (scenarios/mappings/MODEL_TYPE.json), read when a config of that type is.
//
// A mapping either names the dialect that reads the type's files unchanged (`as`), or lists the
// blocks of a layer: norms, and what is chosen behind them, layer by layer, from the config's own
// words. Expressions name the config's keys, nested ones with a dot, i (the layer, from 0) and word
// (what the config calls it).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"
#include "schedules/model/config/config_keys.h"
#include "schedules/model/kinds/layer_kind.h"
#include "schedules/model/model.h"

namespace rehearse {

// The model_types that have a mapping, sorted.
const std::vector<std::string>& mapped_types();
bool is_mapped(std::string_view model_type);
const KeyTable& mapping_key_table();

struct Mapping {
  std::string model_type, path;
  JsonValue document;  // checked
  // The dialect that reads files of the type as they are; empty: the rest of the file does.
  std::string as() const;
};
// The shipped file of a model_type. Errors: one line, "FILE:LINE: KEY: what is wrong".
Result<Mapping> read_mapping(std::string_view model_type);
// The same of one's own text, for tests.
Result<Mapping> parse_mapping(const JsonValue& document, const std::string& path);
// The words that a file of the type may have, as the mapping knows them.
std::vector<std::string_view> keys_of(const Mapping& mapping);

struct MappedModel {
  Transformer model;
  ConfigUse use;
};
// A config.json of the mapping's type. `key` is the object's key path in the report's file. On
// failure the report has the error and the result is meaningless. REQUIRES: mapping.as() is empty.
MappedModel read_mapped(const Mapping& mapping, const JsonValue& object, const std::string& name,
                        const std::string& key, JsonReport& report);

// Every tensor of such a model as its files have them, the layers' with their numbers.
struct FileTensor {
  std::string name;  // "model.layers.#.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> layers;  // empty: it is no layer's
  bool operator==(const FileTensor&) const = default;
};
Result<std::vector<FileTensor>> mapped_tensors(const Mapping& mapping, const JsonValue& object,
                                               const std::string& path);

// The family whose words a config's keys are most like, for a config that none reads; empty: no
// key is any family's.
std::string nearest_family(const JsonValue& object);

}  // namespace rehearse
