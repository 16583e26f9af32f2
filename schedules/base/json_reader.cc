// SPDX-License-Identifier: Apache-2.0
// RapidJSON's events build JsonValue. It reads in place: of a copy of the text, in which it writes
// what escapes mean. Its reader works on a copy of its stream while it reads a text or a number, so
// at an event of one the stream still stands where that began; no token spans lines. The line of an
// event is therefore the number of newlines before the stream's place in the text as it came.
#include "schedules/base/json_reader.h"

#include <unistd.h>

#if defined(__SSE2__)
#define RAPIDJSON_SSE2  // texts and blanks by 16 bytes
#endif
#if defined(__clang__)
// RapidJSON 1.1 adds to a null pointer before it has reserved anything (internal/stack.h).
#pragma clang attribute push(__attribute__((no_sanitize("pointer-overflow"))), apply_to = function)
#endif
#include <rapidjson/reader.h>
#if defined(__clang__)
#pragma clang attribute pop
#endif

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "schedules/base/bytes/regular_file.h"
#include "schedules/base/decimal.h"
#include "schedules/base/utf8.h"

namespace rehearse {
namespace {

constexpr std::size_t kMaxDepth = 200;
constexpr std::size_t kMaxMembers = 10'000;  // of one object: keys are searched one by one
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kPadding = 16;  // what the reader of 16 bytes may look at behind a text

// Numbers come as their text: from_chars rounds to the nearest double, the reader's own may not.
constexpr unsigned kParse = rapidjson::kParseInsituFlag | rapidjson::kParseNumbersAsStringsFlag;

// Builds the document; every handler returns false to stop.
class Builder {
 public:
  using Text = const char*;
  using Length = rapidjson::SizeType;

  // `text` is what `stream` reads a copy of.
  Builder(const std::string& path, std::string_view text, rapidjson::InsituStringStream& stream,
          std::int32_t first_line, std::size_t most, JsonValue& root)
      : text_(text),
        stream_(stream),
        counted_(text.data()),
        line_(first_line),
        report_(path),
        most_(most),
        root_(root) {}

  bool Null() { return add(JsonKind::Null) != nullptr; }
  bool Bool(bool value) {
    JsonValue* at = add(JsonKind::Bool);
    if (at != nullptr) at->boolean = value;
    return at != nullptr;
  }
  bool RawNumber(Text digits, Length length, bool) {
    const std::string_view written(digits, length);
    std::int64_t integer = 0;
    const auto [end, error] = std::from_chars(digits, digits + length, integer);
    if (error == std::errc() && end == digits + length) return add_integer(integer);
    double value = 0;
    if (!read_decimal(written, value)) {
      value = std::strtod(digits, nullptr);  // outside of a double's range: zero or infinity
      if (std::isinf(value)) return too_large(stream_.Tell(), written);
    }
    constexpr double kExact = 9007199254740992.0;  // 2^53
    const bool whole = std::floor(value) == value && std::abs(value) <= kExact;
    if (whole) return add_integer(static_cast<std::int64_t>(value));  // 1e3, 2048.0
    JsonValue* at = add(JsonKind::Number);
    if (at != nullptr) at->number = value;
    return at != nullptr;
  }
  bool String(Text text, Length length, bool) {
    if (!whole(text, length)) return false;
    JsonValue* at = add(JsonKind::String);
    if (at != nullptr) at->text.assign(text, length);
    return at != nullptr;
  }
  bool StartObject() { return open(JsonKind::Object); }
  bool StartArray() { return open(JsonKind::Array); }
  bool EndObject(Length) { return close(); }
  bool EndArray(Length) { return close(); }
  bool Key(Text text, Length length, bool) {
    if (!whole(text, length)) return false;
    const std::string_view name(text, length);
    JsonValue& object = *open_.back();
    if (object.find(name) != nullptr) {
      report_.fail(line(), path_of(name), "the key stands twice in one object");
      return false;
    }
    if (object.members.size() >= kMaxMembers) {
      report_.fail(line(), path_of(name), "an object of more than 10000 keys");
      return false;
    }
    JsonMember& member = object.members.emplace_back();
    member.key = name;
    member.line = line();
    return true;
  }
  // The other handlers of numbers are not called (kParse).
  bool Int(int) { return false; }
  bool Uint(unsigned) { return false; }
  bool Int64(std::int64_t) { return false; }
  bool Uint64(std::uint64_t) { return false; }
  bool Double(double) { return false; }

  // What the reader stumbled over at `place`, of a document that no handler refused.
  void fail(rapidjson::ParseErrorCode code, std::size_t place) {
    const std::string_view rest = text_.substr(place);
    switch (code) {
      case rapidjson::kParseErrorStringUnicodeEscapeInvalidHex:
      case rapidjson::kParseErrorStringUnicodeSurrogateInvalid:
      case rapidjson::kParseErrorStringEscapeInvalid:
      case rapidjson::kParseErrorStringMissQuotationMark:
        bad_string(place);
        return;
      case rapidjson::kParseErrorNumberTooBig:
        too_large(place, rest.substr(0, word_length(rest)));
        return;
      default:
        break;
    }
    const bool in_a_word = code == rapidjson::kParseErrorValueInvalid ||
                           code == rapidjson::kParseErrorNumberMissFraction ||
                           code == rapidjson::kParseErrorNumberMissExponent ||
                           word_length(rest) > 0;
    std::size_t begin = place;
    while (in_a_word && begin > 0 && in_word(text_[begin - 1])) --begin;
    move_to(place);
    const std::string_view what = text_.substr(begin);
    if (what.empty()) {
      report_.fail(line(), "", "not JSON: the text ends too early");
      return;
    }
    std::size_t length = std::max<std::size_t>(word_length(what), 1);
    if (what.front() == '"') length = std::min(what.find('"', 1), what.size() - 1) + 1;
    report_.fail(line(), "", "not JSON: unexpected " + printable(what.substr(0, length), 40));
  }
  JsonReport& report() { return report_; }

 private:
  static bool in_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '+' || c == '.' || c == '_';
  }
  static std::size_t word_length(std::string_view text) {
    return static_cast<std::size_t>(std::ranges::find_if_not(text, in_word) - text.begin());
  }
  // Where the stream stands now. Places only grow.
  std::int32_t line() { return move_to(stream_.Tell()); }
  std::int32_t move_to(std::size_t place) {
    const char* const to = text_.data() + place;
    while (counted_ < to) {
      const void* found = std::memchr(counted_, '\n', static_cast<std::size_t>(to - counted_));
      if (found == nullptr) break;
      counted_ = static_cast<const char*>(found) + 1;
      ++line_;
    }
    counted_ = std::max(counted_, to);
    return line_;
  }
  bool too_large(std::size_t place, std::string_view digits) {
    report_.fail(move_to(place), "", "the number " + printable(digits, 40) + " is too large");
    return false;
  }
  bool bad_string(std::size_t place) {
    report_.fail(move_to(place), "",
                 "not JSON: a string is not closed on its line, or has a bad escape");
    return false;
  }
  // Half of a character outside of 16 bits, which the reader lets through where the other half is
  // missing before it; the document itself was UTF-8.
  bool whole(Text text, Length length) {
    const std::string_view all(text, length);
    for (std::size_t at = 0; (at = all.find('\xED', at)) != std::string_view::npos; ++at) {
      if (at + 1 < length && static_cast<unsigned char>(all[at + 1]) >= 0xA0)
        return bad_string(stream_.Tell());
    }
    return true;
  }
  bool add_integer(std::int64_t value) {
    JsonValue* at = add(JsonKind::Integer);
    if (at == nullptr) return false;
    at->integer = value;
    at->number = static_cast<double>(value);
    return true;
  }
  JsonValue* add(JsonKind kind) {
    if (++values_ > most_) {
      report_.fail(line(), "", "a document of more than " + std::to_string(most_) + " values");
      return nullptr;
    }
    JsonValue* at = &root_;
    if (!open_.empty()) {
      JsonValue& parent = *open_.back();
      at = parent.is(JsonKind::Array) ? &parent.items.emplace_back() : &parent.members.back().value;
    }
    at->kind = kind;
    at->line = line();
    return at;
  }
  bool open(JsonKind kind) {
    JsonValue* at = add(kind);
    if (at == nullptr) return false;
    if (open_.size() >= kMaxDepth) {
      report_.fail(at->line, "", "nested deeper than " + std::to_string(kMaxDepth) + " levels");
      return false;
    }
    open_.push_back(at);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  std::string path_of(std::string_view last) const {
    std::string path;
    for (const JsonValue* value : open_) {
      if (value->is(JsonKind::Array)) {
        path += "[" + std::to_string(value->items.size() - 1) + "]";
      } else if (value != open_.back()) {
        path += (path.empty() ? "" : ".") + value->members.back().key;
      }
    }
    return path + (path.empty() ? "" : ".") + std::string(last);
  }

  std::string_view text_;
  rapidjson::InsituStringStream& stream_;
  const char* counted_;  // newlines before it are in line_
  std::int32_t line_;
  JsonReport report_;
  const std::size_t most_;
  JsonValue& root_;
  std::size_t values_ = 0;
  std::vector<JsonValue*> open_;  // stable: a parent's vector grows only while it is the last
};

}  // namespace

const JsonMember* JsonValue::find(std::string_view key) const {
  for (const JsonMember& member : members) {
    if (member.key == key) return &member;
  }
  return nullptr;
}

const JsonValue* JsonValue::given(std::string_view key) const {
  const JsonMember* member = find(key);
  return member == nullptr || member->value.is(JsonKind::Null) ? nullptr : &member->value;
}

Error json_error(const std::string& path, std::int32_t line, const std::string& key,
                 const std::string& what) {
  std::string message = printable(path, 4096);
  if (line > 0) message += ":" + std::to_string(line);
  if (!key.empty()) message += ": " + printable(key, 200);
  return {message + ": " + what};
}

std::string json_excerpt(std::string_view text) {
  constexpr std::size_t kShown = 100;
  return text.size() <= kShown ? json_quoted(text) : json_quoted(text.substr(0, kShown)) + "...";
}

void JsonReport::fail(std::int32_t line, const std::string& key, const std::string& what,
                      bool unsupported) {
  if (first_.has_value()) return;
  first_ = json_error(path_, line, key, what);
  first_->unsupported = unsupported;
}

Result<JsonValue> parse_json(std::string_view text, const std::string& path,
                             std::int32_t first_line, std::size_t most) {
  const bool blank = text.find_first_not_of(" \t\r\n") == std::string_view::npos;
  if (blank) return json_error(path, 0, "", "the file is empty");
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  // The reader wants an end that it sees, and room behind it.
  std::string copy;
  copy.reserve(text.size() + kPadding);
  copy = text;
  if (const std::size_t good = utf8_prefix(copy); good < copy.size()) {
    const auto line =
        std::count(copy.begin(), copy.begin() + static_cast<std::ptrdiff_t>(good), '\n');
    return json_error(path, first_line + static_cast<std::int32_t>(line), "", "not UTF-8 text");
  }
  JsonValue root;
  rapidjson::InsituStringStream stream(copy.data());
  Builder builder(path, text, stream, first_line, most, root);
  rapidjson::Reader reader;
  const rapidjson::ParseResult done = reader.Parse<kParse>(stream, builder);
  if (done.IsError() && builder.report().ok()) builder.fail(done.Code(), done.Offset());
  const std::size_t end = stream.Tell();
  if (!done.IsError() && end < copy.size()) {  // a zero byte, which ends the stream
    builder.fail(rapidjson::kParseErrorDocumentRootNotSingular, end);
  }
  if (!builder.report().ok()) return builder.report().error();
  return root;
}

// Opened without waiting: a pipe that nobody writes to would never come, and what it is can be seen
// only then for sure.
Result<std::string> read_text_file(const std::string& path, std::int64_t limit) {
  const Result<RegularFile> file = RegularFile::open(path, limit);
  if (!file) return file.error();
  const auto fail = [&](const std::string& what) {
    return Error{printable(path, 4096) + ": " + what};
  };
  std::string text(static_cast<std::size_t>(file.value().bytes()), '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t got = ::read(file.value().descriptor(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(std::string("cannot be read: ") + std::strerror(errno));
    if (got == 0) return fail("became shorter while it was read");
    done += static_cast<std::size_t>(got);
  }
  return text;
}

Result<JsonValue> read_json(const std::string& path) {
  const Result<std::string> text = read_text_file(path, kMostText);
  if (!text) return text.error();
  return parse_json(text.value(), path);
}

std::int32_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::int32_t> row(b.size() + 1);  // distances of a's prefix to all prefixes of b
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<std::int32_t>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::int32_t diagonal = row[0];
    row[0] = static_cast<std::int32_t>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::int32_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> known) {
  std::string_view best;
  std::int32_t least = INT32_MAX;
  for (const std::string_view candidate : known) {
    const std::int32_t distance = edit_distance(word.substr(0, 64), candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string what_is_known(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view best = nearest(word, known);
  const std::size_t letters = std::max(word.size(), best.size());
  if (2 * static_cast<std::size_t>(edit_distance(word.substr(0, 64), best)) <= letters) {
    return ", the nearest known one is " + std::string(best);
  }
  std::string all = ", known are";
  for (const std::string_view one : known)
    all += (one == known.front() ? " " : ", ") + std::string(one);
  return all;
}

}  // namespace rehearse
