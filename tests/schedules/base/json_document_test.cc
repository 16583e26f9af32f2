// SPDX-License-Identifier: Apache-2.0
// What commands write is JSON that reads back as it was said, in the order in which it was said.
#include "schedules/base/json_document.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace rehearse {
namespace {

TEST(JsonDocument, LiteralsAreObjectsWhereAllElementsArePairsWithAText) {
  const Json object{{"a", 1}, {"b", {{"c", "d"}, {"e", nullptr}}}};
  EXPECT_EQ(object.dump(), R"({"a":1,"b":{"c":"d","e":null}})");
  EXPECT_EQ(Json::array({"a", 1}).dump(), R"(["a",1])");
  EXPECT_EQ(Json({"a", "b"}).dump(), R"(["a","b"])");
  EXPECT_EQ(Json::object().dump(), "{}");
  EXPECT_EQ(Json::array().dump(2), "[]");
  EXPECT_EQ(Json().dump(), "null");
  EXPECT_EQ(Json(std::vector<std::int32_t>{1, 2}).dump(), "[1,2]");
}

TEST(JsonDocument, MembersStayInTheirOrder) {
  Json json;
  json["z"] = 1;
  json["a"] = true;
  json["z"] = 2.5;
  json.update({{"m", 3}, {"a", false}});
  EXPECT_EQ(json.dump(), R"({"z":2.5,"a":false,"m":3})");
  json.erase("a");
  json.erase("not there");
  EXPECT_EQ(json.dump(2), "{\n  \"z\": 2.5,\n  \"m\": 3\n}");
  EXPECT_TRUE(json.contains("m"));
  EXPECT_FALSE(json.contains("a"));
}

TEST(JsonDocument, WhatIsNoNumberOrNoTextIsStillADocument) {
  EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).dump(), "null");
  EXPECT_TRUE(Json(std::numeric_limits<double>::infinity()).is_null());
  EXPECT_EQ(Json(std::optional<double>()).dump(), "null");
  EXPECT_EQ(Json(std::optional<double>(1)).dump(), "1.0");
  EXPECT_EQ(Json("a\"\\\n\x01\xff").dump(), "\"a\\\"\\\\\\n\\u0001\xEF\xBF\xBD\"");
}

// nlohmann's writer is the oracle: the same bytes, but that ours has the fewest digits always (its
// own takes one more in 0.3 % of doubles).
TEST(JsonDocument, NumbersReadBackAndLookAsBefore) {
  std::mt19937_64 random(1);
  std::int32_t longer = 0;
  constexpr std::int32_t kNumbers = 20'000;
  for (std::int32_t i = 0; i < kNumbers; ++i) {
    double value = 0;
    const std::uint64_t bits = random();
    if (i % 2 == 0) std::memcpy(&value, &bits, sizeof value);
    if (i % 2 == 1)
      value = std::ldexp(static_cast<double>(bits % 100'000), static_cast<int>(bits % 80) - 60);
    if (!std::isfinite(value)) continue;
    const std::string text = Json(value).dump(), theirs = nlohmann::json(value).dump();
    EXPECT_EQ(std::strtod(text.c_str(), nullptr), value) << text;
    EXPECT_LE(text.size(), theirs.size());
    if (text != theirs) ++longer;
  }
  EXPECT_LT(longer, kNumbers / 100);
}

TEST(JsonDocument, ADocumentThatWasReadIsWrittenAsItWas) {
  const std::string text = R"({"a":[1,2.5,{"b":[]},{}],"c":null,"d":{"e":true,"f":"é\n"}})";
  EXPECT_EQ(Json::parse(text).dump(), text);
  EXPECT_EQ(Json::parse(text).dump(2), nlohmann::ordered_json::parse(text).dump(2));
}

}  // namespace
}  // namespace rehearse
