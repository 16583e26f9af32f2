// SPDX-License-Identifier: Apache-2.0
#include "viz/import/json_scanner.h"

#include <array>
#include <cstring>

namespace rehearse::viz {
namespace {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

void put_utf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static constexpr std::array<std::uint32_t, 4> kLead{0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kLead[static_cast<std::size_t>(more)] | (code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F));
}

// Four hexadecimal digits; 0x10000 if they are none.
std::uint32_t hex4(std::string_view text) {
  std::uint32_t code = 0;
  if (text.size() < 4) return 0x10000;
  for (std::size_t i = 0; i < 4; ++i) {
    const char c = text[i];
    const int digit = is_digit(c)            ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return 0x10000;
    code = code << 4 | static_cast<std::uint32_t>(digit);
  }
  return code;
}

}  // namespace

void JsonScanner::fail(const char* expected) {
  if (fault_ == nullptr) fault_ = expected;
}

char JsonScanner::peek() {
  blanks();
  return at_ == end_ || !ok() ? '\0' : *at_;
}

bool JsonScanner::enter(char bracket) {
  if (peek() != bracket) {
    fail(bracket == '{' ? "an object was expected" : "a list was expected");
    return false;
  }
  ++at_;
  return true;
}

bool JsonScanner::next_item(bool& first) {
  const char c = peek();
  if (c == ']') {
    ++at_;
    return false;
  }
  if (!first) {
    if (c != ',') {
      fail("',' or ']' was expected");
      return false;
    }
    ++at_;
  }
  first = false;
  return ok();
}

bool JsonScanner::next_key(bool& first, std::string_view& key) {
  const char c = peek();
  if (c == '}') {
    ++at_;
    return false;
  }
  if (!first) {
    if (c != ',') {
      fail("',' or '}' was expected");
      return false;
    }
    ++at_;
  }
  first = false;
  key = raw_string();
  if (peek() != ':') {
    fail("':' was expected");
    return false;
  }
  ++at_;
  return ok();
}

std::string_view JsonScanner::raw_string() {
  if (peek() != '"') {
    fail("a string was expected");
    return {};
  }
  const char* first = ++at_;
  for (;;) {
    const auto* quote =
        static_cast<const char*>(std::memchr(at_, '"', static_cast<std::size_t>(end_ - at_)));
    if (quote == nullptr) {
      fail("a string has no end");
      at_ = end_;
      return {};
    }
    at_ = quote + 1;
    const char* slash = quote;
    while (slash != first && slash[-1] == '\\') --slash;
    if ((quote - slash) % 2 == 0) return {first, static_cast<std::size_t>(quote - first)};
  }
}

std::string JsonScanner::string() {
  std::string_view raw = raw_string();
  if (raw.find('\\') == std::string_view::npos) return std::string(raw);
  std::string out;
  while (!raw.empty()) {
    if (raw[0] != '\\') {
      out += raw[0];
      raw.remove_prefix(1);
      continue;
    }
    const char c = raw.size() > 1 ? raw[1] : '\0';
    static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    if (const auto known = kFrom.find(c); known != std::string_view::npos) {
      out += kTo[known];
      raw.remove_prefix(2);
      continue;
    }
    std::uint32_t code = c == 'u' ? hex4(raw.substr(2)) : 0x10000;
    if (code >= 0x10000) {
      fail("an unknown escape");
      return {};
    }
    raw.remove_prefix(6);
    if (code >= 0xD800 && code < 0xDC00 && raw.substr(0, 2) == "\\u") {  // a surrogate pair
      const std::uint32_t low = hex4(raw.substr(2));
      if (low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        raw.remove_prefix(6);
      }
    }
    put_utf8(out, code >= 0xD800 && code < 0xE000 ? 0xFFFD : code);
  }
  return out;
}

bool JsonScanner::boolean() {
  const char c = peek();
  if (c != 't' && c != 'f') {
    fail("true or false was expected");
    return false;
  }
  skip();
  return c == 't';
}

std::int64_t JsonScanner::integer() {
  return number(0);
}

std::int64_t JsonScanner::micros() {
  if (peek() != '"') return number(3);
  std::string_view inside = raw_string();
  JsonScanner scanner(inside);
  const std::int64_t time = scanner.number(3);
  scanner.expect_end();
  if (!scanner.ok()) fail("a number was expected");
  return time;
}

// mantissa * 10^exponent with `decimals` digits kept after the point: all in integers.
std::int64_t JsonScanner::number(int decimals) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  const bool negative = peek() == '-';
  if (negative) ++at_;
  std::int64_t value = 0;
  int places = 0;  // digits of `value` after the point
  bool digits = false, exact = true;
  const auto take = [&](char c, bool after_point) {
    digits = true;
    if (value > (kMost - 9) / 10) {  // beyond: keep the size, drop digits after the point
      exact = exact && after_point;
      return;
    }
    value = value * 10 + (c - '0');
    places += after_point;
  };
  for (; at_ != end_ && is_digit(*at_); ++at_) take(*at_, false);
  if (at_ != end_ && *at_ == '.') {
    ++at_;
    for (; at_ != end_ && is_digit(*at_); ++at_) take(*at_, true);
  }
  int exponent = 0;
  if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
    ++at_;
    const bool down = at_ != end_ && *at_ == '-';
    if (at_ != end_ && (*at_ == '-' || *at_ == '+')) ++at_;
    digits = digits && at_ != end_ && is_digit(*at_);
    for (; at_ != end_ && is_digit(*at_); ++at_) {
      if (exponent < 1000) exponent = exponent * 10 + (*at_ - '0');
    }
    if (down) exponent = -exponent;
  }
  if (!digits) {
    fail("a number was expected");
    return 0;
  }
  int shift = decimals + exponent - places;
  for (; shift < 0 && value != 0; ++shift) value /= 10;
  for (; shift > 0 && value != 0; --shift) {
    if (value > kMost / 10) {
      exact = false;
      break;
    }
    value *= 10;
  }
  if (!exact) {
    fail("a number is too large");
    return 0;
  }
  return negative ? -value : value;
}

void JsonScanner::skip() {
  int depth = 0;
  do {
    const char c = peek();
    switch (c) {
      case '"':
        raw_string();
        break;
      case '{':
      case '[':
        ++at_;
        ++depth;
        continue;
      case '}':
      case ']':
        if (depth == 0) return fail("a value was expected");
        ++at_;
        --depth;
        break;
      case ',':
      case ':':
        if (depth == 0) return fail("a value was expected");
        ++at_;
        continue;
      case '\0':
        return fail("the text ends early");
      default: {
        const char* first = at_;
        while (at_ != end_ && (is_digit(*at_) || (*at_ >= 'a' && *at_ <= 'z') || *at_ == '-' ||
                               *at_ == '+' || *at_ == '.' || (*at_ >= 'A' && *at_ <= 'Z'))) {
          ++at_;
        }
        if (at_ == first) return fail("a value was expected");
      }
    }
  } while (depth > 0 && ok());
}

void JsonScanner::expect_end() {
  if (peek() != '\0' || at_ != end_) fail("something follows the end");
}

}  // namespace rehearse::viz
