// SPDX-License-Identifier: Apache-2.0
// Walks JSON without building a document: for files of gigabytes. The caller asks for what it
// expects; the first thing that is not there stops the scanner for good, and `ok` says so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rehearse::viz {

class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text)
      : begin_(text.data()), at_(begin_), end_(begin_ + text.size()) {}

  bool ok() const { return fault_ == nullptr; }
  const char* fault() const { return fault_; }  // what was expected; null: nothing wrong yet
  std::size_t offset() const { return static_cast<std::size_t>(at_ - begin_); }

  char peek();               // next character that is no blank; 0 at the end
  bool enter(char bracket);  // '{' or '['
  // In an object: true and the key, or false at its end. In an array likewise, without a key.
  // `first` starts as true.
  bool next_key(bool& first, std::string_view& key);
  bool next_item(bool& first);
  // A string's inside as it stands in the text, escapes and all.
  std::string_view raw_string();
  std::string string();  // with escapes resolved
  bool boolean();
  std::int64_t integer();  // a fraction is cut off; beyond int64: a fault
  // A number of microseconds, or such a number in quotes, as nanoseconds: exact, by its digits.
  std::int64_t micros();
  void skip();        // any value
  void expect_end();  // nothing but blanks may follow
  void fail(const char* expected);
  // What was read since `offset`: a number as it stands.
  std::string_view text_since(std::size_t offset) const {
    return {begin_ + offset, static_cast<std::size_t>(at_ - begin_) - offset};
  }

 private:
  void blanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  std::int64_t number(int decimals);

  const char *begin_, *at_, *end_;
  const char* fault_ = nullptr;
};

}  // namespace rehearse::viz
