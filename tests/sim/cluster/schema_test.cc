// SPDX-License-Identifier: Apache-2.0
// The schemas in scenarios/schema/ say exactly what the loaders' tables say: they are written from
// them. UPDATE_GOLDEN=1 rewrites the files; the difference is reviewed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "schedules/base/json_keys.h"
#include "schedules/model/config/model_keys.h"
#include "schedules/model/kinds/layer_kind.h"
#include "schedules/model/kinds/mapping.h"
#include "schedules/runtime/runtime_file.h"
#include "schedules/scenario/keys/scenario_keys.h"
#include "sim/cluster/cluster_keys.h"

namespace rehearse {
namespace {

struct SchemaFile {
  const char* name;
  const KeyTable* table;
};

std::vector<SchemaFile> schema_files() {
  return {{"scenario", &scenario_key_table()},
          {"model", &model_key_table()},
          {"cluster", &sim::cluster_key_table()},
          {"fabric", &sim::fabric_key_table()},
          {"calibration", &sim::calibration_key_table()},
          {"case", &case_file_key_table()},
          {"runtime", &runtime_key_table()},
          {"layer", &layer_kind_key_table()},
          {"mapping", &mapping_key_table()}};
}

TEST(Schema, IsTheLoadersTable) {
  for (const SchemaFile& file : schema_files()) {
    const std::string path = std::string("scenarios/schema/") + file.name + ".json";
    const std::string expected = json_schema(*file.table);
    if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(path) << expected;
    const Result<std::string> shipped = read_text_file(path, 1 << 20);
    ASSERT_TRUE(shipped) << shipped.error().message;
    EXPECT_EQ(shipped.value(), expected) << path;
  }
}

// Two ways to the same sets: what a parser finds in the schema, and the table.
void expect_equal_keys(const JsonValue& schema, const KeyTable& table, const std::string& where) {
  const JsonValue* properties = schema.given("properties");
  ASSERT_NE(properties, nullptr) << where;
  EXPECT_EQ(properties->members.size(), table.keys.size()) << where;
  const JsonValue* closed = schema.given("additionalProperties");
  ASSERT_NE(closed, nullptr) << where;
  EXPECT_EQ(closed->boolean, table.open) << where;
  for (const KeySpec& spec : table.keys) {
    const JsonValue* property = properties->given(spec.name);
    ASSERT_NE(property, nullptr) << where << "." << spec.name;
    const JsonValue* choices = property->given("anyOf");
    const JsonValue& rule = choices == nullptr ? *property : choices->items.at(0);
    const JsonValue* type = rule.given("type");
    ASSERT_NE(type, nullptr) << where << "." << spec.name;
    std::size_t types = 0;
    for (unsigned bits = spec.types; bits != 0; bits &= bits - 1) ++types;
    const std::size_t listed = type->is(JsonKind::String) ? 1 : type->items.size();
    EXPECT_EQ(listed, types + (spec.required ? 0 : 1)) << where << "." << spec.name;
    if (spec.members != nullptr) {
      expect_equal_keys(rule, *spec.members, where + "." + std::string(spec.name));
    }
    if (spec.items != nullptr) {
      const JsonValue* items = rule.given("items");
      ASSERT_NE(items, nullptr) << where << "." << spec.name;
      expect_equal_keys(*items, *spec.items, where + "." + std::string(spec.name) + "[]");
    }
  }
}

TEST(Schema, HasTheKeysOfTheTableToTheBottom) {
  for (const SchemaFile& file : schema_files()) {
    const Result<JsonValue> schema =
        read_json(std::string("scenarios/schema/") + file.name + ".json");
    ASSERT_TRUE(schema) << schema.error().message;
    expect_equal_keys(schema.value(), *file.table, file.name);
  }
}

// A number that an int32 must hold has a bound in its table.
void expect_bounded_integers(const KeyTable& table, const std::string& where) {
  for (const KeySpec& spec : table.keys) {
    const unsigned types = spec.types | spec.item_types;
    if ((types & kInteger) != 0) {
      EXPECT_TRUE(spec.max <= 0x1p62) << where << "." << spec.name;
      EXPECT_TRUE(spec.min >= 0) << where << "." << spec.name;
    }
    if (spec.members != nullptr) expect_bounded_integers(*spec.members, where);
    if (spec.items != nullptr) expect_bounded_integers(*spec.items, where);
  }
}

TEST(Schema, BoundsEveryInteger) {
  for (const SchemaFile& file : schema_files()) expect_bounded_integers(*file.table, file.name);
}

}  // namespace
}  // namespace rehearse
