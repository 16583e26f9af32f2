// SPDX-License-Identifier: Apache-2.0
// nlohmann's SAX events build JsonValue. The parser reads through an iterator that remembers how
// far it came: the line of an event is the number of newlines before that place.
#include "schedules/base/json_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "schedules/base/regular_file.h"
#include "schedules/base/utf8.h"

namespace rehearse {
namespace {

constexpr std::size_t kMaxDepth = 200;
constexpr std::size_t kMaxMembers = 10'000;  // of one object: keys are searched one by one

// Where the parser is; shared by all copies of the iterator.
struct Cursor {
  const char* at = nullptr;
  std::int32_t line = 1;
};

class LineIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineIterator() = default;
  LineIterator(const char* at, Cursor* cursor) : at_(at), cursor_(cursor) {}
  reference operator*() const { return *at_; }
  LineIterator& operator++() {
    if (*at_ == '\n') ++cursor_->line;
    cursor_->at = ++at_;
    return *this;
  }
  LineIterator operator++(int) {
    LineIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const LineIterator& other) const { return at_ == other.at_; }
  bool operator!=(const LineIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_ = nullptr;
  Cursor* cursor_ = nullptr;
};

// Builds the document; every handler returns false to stop.
class Builder {
 public:
  Builder(const std::string& path, std::string_view text, const Cursor& cursor, std::size_t most,
          JsonValue& root)
      : text_(text), cursor_(cursor), report_(path), most_(most), root_(root) {}

  bool null() { return add(JsonKind::Null) != nullptr; }
  bool boolean(bool value) {
    JsonValue* at = add(JsonKind::Bool);
    if (at != nullptr) at->boolean = value;
    return at != nullptr;
  }
  bool number_integer(std::int64_t value) { return add_integer(value); }
  bool number_unsigned(std::uint64_t value) {
    if (value <= static_cast<std::uint64_t>(INT64_MAX)) {
      return add_integer(static_cast<std::int64_t>(value));
    }
    return add_number(static_cast<double>(value));
  }
  bool number_float(double value, const std::string&) {
    constexpr double kExact = 9007199254740992.0;  // 2^53
    if (std::floor(value) == value && std::abs(value) <= kExact) {
      return add_integer(static_cast<std::int64_t>(value));  // 1e3, 2048.0
    }
    return add_number(value);
  }
  bool string(std::string& value) {
    JsonValue* at = add(JsonKind::String);
    if (at != nullptr) at->text = std::move(value);
    return at != nullptr;
  }
  bool binary(std::vector<std::uint8_t>&) { return false; }  // never in text
  bool start_object(std::size_t) { return open(JsonKind::Object); }
  bool start_array(std::size_t) { return open(JsonKind::Array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    JsonValue& object = *open_.back();
    if (object.find(name) != nullptr) {
      report_.fail(cursor_.line, path_of(name), "the key stands twice in one object");
      return false;
    }
    if (object.members.size() >= kMaxMembers) {
      report_.fail(cursor_.line, path_of(name), "an object of more than 10000 keys");
      return false;
    }
    JsonMember& member = object.members.emplace_back();
    member.key = std::move(name);
    member.line = cursor_.line;
    return true;
  }
  bool parse_error(std::size_t, const std::string& token, const nlohmann::detail::exception& e) {
    constexpr int kNumberOverflow = 406;
    const std::string_view what = e.what();
    if (e.id == kNumberOverflow) {
      report_.fail(line_of_number(), "", "the number " + printable(token, 40) + " is too large");
    } else if (what.find("UTF-8") != what.npos) {
      report_.fail(cursor_.line, "", "not UTF-8 text");
    } else if (what.find("invalid string") != what.npos) {
      report_.fail(line_of_number(), "",
                   "not JSON: a string is not closed on its line, or has a bad escape");
    } else if (what.find("unexpected end of input") != what.npos) {
      report_.fail(cursor_.line, "", "not JSON: the text ends too early");
    } else {
      report_.fail(line_of_number(), "", "not JSON: unexpected " + stumbled_over(what));
    }
    return false;
  }
  JsonReport& report() { return report_; }

 private:
  // What the parser stumbled over: a word or number (it may have looked one character past it), a
  // string, or a single mark. `what` is the parser's own description.
  std::string stumbled_over(std::string_view what) const {
    std::string_view read = text_.substr(0, static_cast<std::size_t>(cursor_.at - text_.data()));
    const auto says = [&](std::string_view words) { return what.find(words) != what.npos; };
    if (says("unexpected string literal")) {
      const std::size_t quote = read.size() < 2 ? read.npos : read.rfind('"', read.size() - 2);
      return printable(read.substr(quote == read.npos ? 0 : quote), 40);
    }
    const bool word = says("invalid literal") || says("invalid number") || says("number literal");
    if (word && read.size() > 1 && !in_word(read.back()) && in_word(read[read.size() - 2])) {
      read.remove_suffix(1);
    }
    std::size_t begin = read.size() - 1;
    while (word && begin > 0 && in_word(read[begin - 1])) --begin;
    return printable(read.substr(begin), 40);
  }
  static bool in_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '+' || c == '.' || c == '_';
  }
  // The parser looks one character past a number (and past what it did not expect): that may be a
  // line break, which does not count yet.
  std::int32_t line_of_number() const {
    return cursor_.at > text_.data() && cursor_.at[-1] == '\n' ? cursor_.line - 1 : cursor_.line;
  }
  bool add_integer(std::int64_t value) {
    JsonValue* at = add(JsonKind::Integer);
    if (at == nullptr) return false;
    at->line = line_of_number();
    at->integer = value;
    at->number = static_cast<double>(value);
    return true;
  }
  bool add_number(double value) {
    JsonValue* at = add(JsonKind::Number);
    if (at == nullptr) return false;
    at->line = line_of_number();
    at->number = value;
    return true;
  }
  JsonValue* add(JsonKind kind) {
    if (++values_ > most_) {
      report_.fail(cursor_.line, "",
                   "a document of more than " + std::to_string(most_) + " values");
      return nullptr;
    }
    JsonValue* at = &root_;
    if (!open_.empty()) {
      JsonValue& parent = *open_.back();
      at = parent.is(JsonKind::Array) ? &parent.items.emplace_back() : &parent.members.back().value;
    }
    at->kind = kind;
    at->line = cursor_.line;
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
  std::string path_of(const std::string& last) const {
    std::string path;
    for (const JsonValue* value : open_) {
      if (value->is(JsonKind::Array)) {
        path += "[" + std::to_string(value->items.size() - 1) + "]";
      } else if (value != open_.back()) {
        path += (path.empty() ? "" : ".") + value->members.back().key;
      }
    }
    return path + (path.empty() ? "" : ".") + last;
  }

  std::string_view text_;
  const Cursor& cursor_;
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
  JsonValue root;
  Cursor cursor{text.data(), first_line};
  Builder builder(path, text, cursor, most, root);
  const LineIterator begin(text.data(), &cursor), end(text.data() + text.size(), &cursor);
  if (!nlohmann::json::sax_parse(begin, end, &builder)) return builder.report().error();
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
