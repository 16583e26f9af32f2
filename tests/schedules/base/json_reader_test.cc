// SPDX-License-Identifier: Apache-2.0
// The reader against another implementation: documents and broken documents, made at random. What
// nlohmann's parser takes, ours takes with the same values, and the other way round; keys that
// stand twice and zero bytes behind a document are ours alone to refuse.
#include "schedules/base/json_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "schedules/base/decimal.h"
#include "schedules/base/json_document.h"

namespace rehearse {
namespace {

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t most) {
  return random() % most;
}

std::string some_text(Random& random) {
  static const std::string kPieces[] = {"a",        "key",          " ",
                                        "\\n",      "\\\"",         "\\\\",
                                        "\\u0041",  "\\u00e9",      "\\ud83d\\ude00",
                                        "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                                        "\\/",      "\\u0000",      "0123456789abcdef"};
  std::string text;
  for (std::size_t pieces = below(random, 6); pieces > 0; --pieces) {
    text += kPieces[below(random, std::size(kPieces))];
  }
  return text;
}

std::string some_number(Random& random) {
  static const std::string kNumbers[] = {"0",
                                         "-0",
                                         "1",
                                         "-1",
                                         "9223372036854775807",
                                         "9223372036854775808",
                                         "-9223372036854775808",
                                         "18446744073709551616",
                                         "1e3",
                                         "2048.0",
                                         "0.1",
                                         "1e-7",
                                         "1E+5",
                                         "5e-324",
                                         "1e-400",
                                         "1.7e308",
                                         "123456789012345678901234567890",
                                         "0.30000000000000004",
                                         "9007199254740993.0"};
  if (below(random, 2) == 0) return kNumbers[below(random, std::size(kNumbers))];
  return std::to_string(random()) + "." + std::to_string(random()) + "e-" +
         std::to_string(below(random, 60));
}

std::string some_document(Random& random, int depth) {
  static const std::string kBlanks[] = {"", " ", "\n", "\t", "\r\n", "                  \n   "};
  const auto blank = [&] { return kBlanks[below(random, std::size(kBlanks))]; };
  const std::size_t kind = below(random, depth == 0 ? 5 : 7);
  static const std::string kWords[] = {"null", "true", "false"};
  if (kind < 3) return blank() + kWords[kind] + blank();
  if (kind == 3) return blank() + some_number(random) + blank();
  if (kind == 4) return blank() + '"' + some_text(random) + '"' + blank();
  std::string text = kind == 5 ? "[" : "{";
  const std::size_t count = below(random, 5);
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) text += ",";
    if (kind == 6)
      text += blank() + '"' + some_text(random) + std::to_string(i) + '"' + blank() + ":";
    text += some_document(random, depth - 1);
  }
  return text + (kind == 5 ? "]" : "}") + blank();
}

std::string broken(Random& random, std::string text) {
  static constexpr char kMarks[] = "{}[]:,\"\\ \ntfn-+.eE0159\xED\xA0\x80\xFF\x01/*";
  constexpr std::size_t kCount = sizeof kMarks - 1;
  for (std::size_t changes = 1 + below(random, 2); changes > 0 && !text.empty(); --changes) {
    const std::size_t at = below(random, text.size());
    switch (below(random, 4)) {
      case 0:
        text.erase(at, 1);
        break;
      case 1:
        text.insert(at, 1, kMarks[below(random, kCount)]);
        break;
      case 2:
        text[at] = kMarks[below(random, kCount)];
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

// Counts the lines of what was read: no value stands before its parent or behind the text's end.
void expect_lines_in_order(const JsonValue& value, std::int32_t last) {
  EXPECT_LE(value.line, last);
  for (const JsonValue& item : value.items) {
    EXPECT_GE(item.line, value.line);
    expect_lines_in_order(item, last);
  }
  for (const JsonMember& member : value.members) {
    EXPECT_GE(member.line, value.line);
    EXPECT_GE(member.value.line, member.line);
    expect_lines_in_order(member.value, last);
  }
}

// Numbers are compared as doubles: 1e3 is an integer to one and not to the other.
void expect_equal(const JsonValue& ours, const nlohmann::json& theirs, const std::string& text) {
  switch (ours.kind) {
    case JsonKind::Null:
      EXPECT_TRUE(theirs.is_null()) << text;
      return;
    case JsonKind::Bool:
      EXPECT_EQ(ours.boolean, theirs.get<bool>()) << text;
      return;
    case JsonKind::Integer:
      if (theirs.is_number_integer()) {
        EXPECT_EQ(ours.integer, theirs.get<std::int64_t>()) << text;
      }
      [[fallthrough]];
    case JsonKind::Number:
      EXPECT_EQ(ours.number, theirs.get<double>()) << text;
      return;
    case JsonKind::String:
      EXPECT_EQ(ours.text, theirs.get<std::string>()) << text;
      return;
    case JsonKind::Array:
      ASSERT_EQ(ours.items.size(), theirs.size()) << text;
      for (std::size_t i = 0; i < ours.items.size(); ++i)
        expect_equal(ours.items[i], theirs[i], text);
      return;
    case JsonKind::Object:
      ASSERT_EQ(ours.members.size(), theirs.size()) << text;
      for (const JsonMember& member : ours.members) {
        ASSERT_TRUE(theirs.contains(member.key)) << text;
        expect_equal(member.value, theirs[member.key], text);
      }
      return;
  }
}

TEST(JsonReader, TakesWhatAnotherParserTakes) {
  Random random(7);
  std::int32_t taken = 0, refused = 0;
  constexpr std::int32_t kDocuments = 40'000;
  for (std::int32_t i = 0; i < kDocuments; ++i) {
    std::string text = some_document(random, 4);
    if (i % 3 != 0) text = broken(random, text);
    const Result<JsonValue> ours = parse_json(text, "t");
    const nlohmann::json theirs = nlohmann::json::parse(text, nullptr, false);
    if (!ours && ours.error().message.find("stands twice") != std::string::npos) continue;
    ASSERT_EQ(static_cast<bool>(ours), !theirs.is_discarded())
        << text << "\n"
        << (ours ? "taken" : ours.error().message);
    ++(ours ? taken : refused);
    if (!ours) continue;
    expect_equal(ours.value(), theirs, text);
    expect_lines_in_order(ours.value(),
                          1 + static_cast<std::int32_t>(std::ranges::count(text, '\n')));
  }
  EXPECT_GT(taken, kDocuments / 4);
  EXPECT_GT(refused, kDocuments / 4);
}

std::string error_of(const std::string& text) {
  const Result<JsonValue> read = parse_json(text, "t");
  return read ? "" : read.error().message;
}

TEST(JsonReader, SaysWhereAndWhat) {
  EXPECT_EQ(error_of("{\"a\": 1,\n \"b\": nulx}"), "t:2: not JSON: unexpected nulx");
  EXPECT_EQ(error_of("[1,\n01]"), "t:2: not JSON: unexpected 01");
  EXPECT_EQ(error_of("[1 \"two\"]"), "t:1: not JSON: unexpected \"two\"");
  EXPECT_EQ(error_of("[1,]"), "t:1: not JSON: unexpected ]");
  EXPECT_EQ(error_of("[1]\n\n{"), "t:3: not JSON: unexpected {");
  EXPECT_EQ(error_of("{\"a\": [1,\n"), "t:2: not JSON: the text ends too early");
  EXPECT_EQ(error_of("[\n1e999]"), "t:2: the number 1e999 is too large");
  EXPECT_EQ(error_of("[\n-1.8e308]"), "t:2: the number -1.8e308 is too large");
  EXPECT_EQ(error_of("\n\"a\nb\""),
            "t:2: not JSON: a string is not closed on its line, or has a bad escape");
  EXPECT_EQ(error_of("\n[\"\\udc00\"]"),
            "t:2: not JSON: a string is not closed on its line, or has a bad escape");
  EXPECT_EQ(error_of("[\n\"\xFF\"]"), "t:2: not UTF-8 text");
  EXPECT_EQ(error_of(std::string("{}\0{}", 5)), "t:1: not JSON: unexpected ?");
  EXPECT_EQ(error_of("{\"a\": 1,\n\"a\": 2}"), "t:2: a: the key stands twice in one object");
  EXPECT_EQ(error_of("{\"a\": [{}, {\"b\": 1, \"b\": 2}]}"),
            "t:1: a[1].b: the key stands twice in one object");
  EXPECT_EQ(error_of(std::string(201, '[')), "t:1: nested deeper than 200 levels");
  EXPECT_EQ(error_of("\xEF\xBB\xBF[1]"), "");
}

// As std::from_chars reads them, bit by bit; what is no number, or goes on behind one, is none.
TEST(Decimal, IsTheNearestDouble) {
  Random random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = below(random, 3) == 0 ? "-" : "";
    for (std::size_t digits = below(random, 10); digits > 0; --digits) {
      text += static_cast<char>('0' + below(random, 10));
    }
    if (below(random, 4) > 0) text += '.';
    for (std::size_t digits = below(random, 10); digits > 0; --digits) {
      text += static_cast<char>('0' + below(random, 10));
    }
    if (below(random, 20) == 0) text += below(random, 2) == 0 ? "e3" : "x";
    double wanted = 0, read = 0;
    const char* const end = text.data() + text.size();
    const auto [last, error] = std::from_chars(text.data(), end, wanted);
    ASSERT_EQ(read_decimal(text, read), error == std::errc() && last == end) << text;
    if (error != std::errc() || last != end) continue;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(read), std::bit_cast<std::uint64_t>(wanted)) << text;
  }
}

}  // namespace
}  // namespace rehearse
